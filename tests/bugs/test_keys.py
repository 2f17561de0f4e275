"""E. Keys and scope (36-42)."""
import pytest

from bug_words import CALL, F, F2, RETENTION, TOK2, everything, lost, one, policy, record, refused, refused_claim


def test_36_no_tenant_sees_another(pair):
    """nensii21/devlink#773 and #1195, jox-sm/deepslate-rpg#104, josipmusa/idempotency4j#9, key alone in fiber,
    express-idempotency, IdempotentAPI (source), Formance ledger migrations 7 to 8 (source): one tenant gets another
    tenant's answer."""
    token = pair.claim(pair.c1, "k", scope="tA", token="secret-token-of-tA")["token"]
    assert one(pair.c1, "SELECT idem_checkpoint('tA', 'k', ?, 'secret-point', 'secret-data')", token) == 1
    pair.complete(pair.c1, "k", token, "secret body", 299, '{"x":"secret"}', scope="tA")
    pair.at(1234)
    answer = pair.claim(pair.c2, "k", scope="tB", token="a-token-of-tB-itself")
    assert (answer["outcome"], answer["attempt"]) == ("claimed", 1)
    rows = pair.c2.execute("SELECT * FROM idem_records WHERE scope = 'tB'").fetchall()
    assert len(rows) == 1
    for shown in (str(answer), str(rows)):
        assert "secret" not in shown and "299" not in shown
    # Neither does the token of one tenant open the record of another.
    refusal = lost(pair.c2, "SELECT idem_complete('tB', 'k', ?, 'mine')", token)
    assert "claim lost" in refusal and "secret" not in refusal


@pytest.mark.parametrize("glue", [":", "|", "%", "/", ",", "-", "_", " ", "::", "'", '"', ""])
def test_37_scope_and_key_are_never_glued(pair, glue):
    """supermemoryai/supermemory#1679, arun0009/idempotent#225, node-idempotency and square1 join with ":" (source):
    scope and key are glued with a delimiter and collide."""
    names = {(f"a{glue}b", "c"), ("a", f"b{glue}c"), ("", f"a{glue}b{glue}c")}
    for scope, key in names:
        answer = pair.claim(pair.c1, key, scope=scope)
        assert answer["outcome"] == "claimed"
        pair.complete(pair.c1, key, answer["token"], f"{scope} + {key}", scope=scope)
    assert pair.count() == len(names) == 3
    for scope, key in names:
        assert pair.claim(pair.c2, key, scope=scope)["response"] == f"{scope} + {key}"


def test_37_no_nul_in_scope_or_key(pair):
    """As above: a NUL is what a C string would be cut at."""
    refused_claim(pair.c1, "a\0b", "c", F, "pay", says=["scope", "NUL"])
    refused_claim(pair.c1, "a", "b\0c", F, "pay", says=["key", "NUL"])


def test_38_rotating_a_credential_changes_nothing(pair):
    """RamaAditya49/titen#104: scope is the credential: rotating an API key makes duplicates.

    With the principal as scope, the retry after the rotation finds the answer; with the credential as scope it is
    another owner's key and runs again: which is what the documentation warns of."""
    principal_of = {"api-key-old": "acct_1", "api-key-new": "acct_1"}
    token = pair.claim(pair.c1, "k", scope=principal_of["api-key-old"])["token"]
    pair.complete(pair.c1, "k", token, "paid", scope="acct_1")
    assert pair.claim(pair.c2, "k", scope=principal_of["api-key-new"])["response"] == "paid"
    assert pair.outcome(pair.c2, "k", scope="api-key-new") == "claimed"


def test_39_an_empty_key_is_refused(pair):
    """dbos-inc/dbos-transact-py#759 (an empty id re-forked about 96 times a day), Formance ledger migration 7,
    josipmusa/idempotency4j#20, arun0009/idempotent#225: an empty key switches protection off."""
    refused_claim(pair.c1, "t", "", F, "pay", says=["key is empty", "255"])
    refused_claim(pair.c1, "t", None, F, "pay", says=["key is NULL"])
    refused_claim(pair.c1, None, "k", F, "pay", says=["scope is NULL"])
    assert pair.count() == 0
    for key in " ", "   ", " k", "k", "K":  # neither trimmed nor folded
        assert pair.outcome(pair.c1, key) == "claimed"
    assert pair.count() == 5


def test_40_characters_are_counted_not_bytes(pair):
    """hono-idempotency 0.8.0 (release notes), granit-fx/granit-dotnet#1151: characters and bytes mixed up, or no
    bound at all."""
    longest = "\u00e9" * 255
    assert pair.outcome(pair.c1, longest) == "claimed"
    assert pair.outcome(pair.c2, longest) == "in_progress"
    assert record(pair.c1, longest)["key"] == longest
    assert pair.visible(longest, "state") == ("processing",)
    assert pair.outcome(pair.c1, "\U0001f600" * 255) == "claimed"
    refused_claim(pair.c1, "t", "a" * 256, F, "pay", says=["key is 256 characters", "255"])
    refused_claim(pair.c1, "t", "\u00e9" * 256, F, "pay", says=["key is 256 characters", "255"])
    refused_claim(pair.c1, "s" * 256, "k", F, "pay", says=["scope is 256 characters", "255"])
    refused_claim(pair.c1, "t", "a" * 255 + "\0", F, "pay", says=["key", "NUL"])
    refused_claim(pair.c1, "t", "a\0", F, "pay", says=["key", "NUL"])
    refused_claim(pair.c1, "t", "a\u0001", F, "pay", says=["key", "control"])
    for text in "x'61ff'", "x'c080'", "x'eda080'", "x'61c3'":  # stray byte, overlong, surrogate, cut off
        refused(pair.c1, f"SELECT * FROM idem_claim('t', CAST({text} AS TEXT), ?, 'pay', NULL)", F,
                says=["key is not valid UTF-8"])
        refused(pair.c1, CALL + f"idem_claim('t', CAST({text} AS TEXT), ?, 'pay')", F, says=["key is not valid UTF-8"])
    assert pair.count() == 2


@pytest.mark.parametrize("hostile", ["replay", "completed", "replayed=1", '{"outcome":"replay"}',
                                     '","outcome":"replay","x":"', "true"])
def test_41_no_argument_makes_a_replay(pair, hostile):
    """VilledeMontreal/express-idempotency#35: the "hit" flag can be set from outside."""
    policy(pair.c1, "*", allow_content_key=1)
    normal = {"scope": "t", "key": "k", "fingerprint": F, "operation": "pay", "token": None}
    for i, name in enumerate(normal):
        args = dict(normal, key=f"k{i}")
        args[name] = hostile.ljust(16, ".") if name == "token" else hostile
        answer = pair.claim(pair.c1, **args)
        assert (answer["outcome"], answer["replayed"]) == ("claimed", 0)
    whole = dict.fromkeys(normal, hostile)
    whole["token"] = hostile.ljust(16, ".")
    assert pair.claim(pair.c1, **whole)["outcome"] == "claimed"
    whole["token"] = TOK2
    assert pair.claim(pair.c2, **whole)["outcome"] == "in_progress"
    assert pair.count("state = 'completed'") == 0


def test_42_a_changed_body_never_runs_under_the_same_key(pair):
    """julik/idempo (source): the body is part of the storage key, so a changed body silently runs."""
    tokens = {key: pair.claim(pair.c1, key)["token"] for key in ("running", "completed", "released", "expired", "purged")}
    for key in "expired", "purged":
        pair.complete(pair.c1, key, tokens[key])
    pair.at(RETENTION - 1)
    pair.complete(pair.c1, "completed", tokens["completed"])
    assert one(pair.c1, "SELECT idem_renew('t', 'running', ?)", tokens["running"]) > 0
    assert one(pair.c1, "SELECT idem_release('t', 'released', ?)", tokens["released"]) == 1
    pair.at(RETENTION)
    assert one(pair.c1, "SELECT idem_purge(1)") == 1  # one of the two expired answers is now a tombstone
    assert [pair.state(key) for key in tokens] == ["processing", "completed", "released", "expired", "expired"]
    before = everything(pair.c1)
    for key in tokens:
        assert pair.outcome(pair.c2, key, F2) == "mismatch"
    assert everything(pair.c1) == before

"""C. Double completion, stuck states (21-23)."""
from bug_words import LEASE, RETENTION, TOMBSTONE, lost, one, policy, record


def audit(db):
    return db.execute("SELECT * FROM idem_audit ORDER BY id").fetchall()


def test_21_the_first_answer_stays(pair):
    """bacen/pix-perguntas-e-respostas#123, huangruiteng/loopx#2909, jamjet-labs/jamjet#108: a second "complete"
    fails, or rewrites the outcome."""
    token = pair.claim(pair.c1, "k")["token"]
    complete = "SELECT idem_complete('t', 'k', ?, ?, ?, ?)"
    assert one(pair.c1, complete, token, "paid", 201, '{"a":1}') == 1
    before = record(pair.c1, "k")
    pair.at(1000)
    assert one(pair.c2, complete, token, "paid", 201, '{"a":1}') == 1
    assert record(pair.c1, "k") == before
    for other in (("PAID", 201, '{"a":1}'), (b"paid", 201, '{"a":1}'), (None, 201, '{"a":1}'), ("paid", 200, '{"a":1}'),
                  ("paid", None, '{"a":1}'), ("paid", 201, '{"a": 1}'), ("paid", 201, None)):
        assert "first answer stays" in lost(pair.c2, complete, token, *other)
    answer = pair.claim(pair.c2, "k")
    assert (answer["response"], answer["code"], answer["headers"]) == ("paid", 201, '{"a":1}')


def test_22_nothing_stays_running(pair):
    """torkiv-labs/Nexuq#361, Noveum/orbit#455: a refused or failed operation stays "running"."""
    token = {key: pair.claim(pair.c1, key)["token"] for key in ("refused", "failed", "lost sight of")}
    pair.complete(pair.c1, "refused", token["refused"], "card declined", 402)
    assert one(pair.c1, "SELECT idem_release('t', 'failed', ?, 'no connection')", token["failed"]) == 1
    assert one(pair.c1, "SELECT idem_suspend('t', 'lost sight of', ?, 'timeout')", token["lost sight of"]) == 1
    assert [pair.state(key) for key in token] == ["completed", "released", "unknown"]

    answer = pair.claim(pair.c2, "refused")
    assert (answer["outcome"], answer["code"], answer["http_status"]) == ("replay", 402, 402)
    answer = pair.claim(pair.c2, "failed")
    assert (answer["outcome"], answer["attempt"]) == ("claimed", 2)
    for _ in range(3):
        assert pair.outcome(pair.c2, "lost sight of") == "unknown"
        pair.at(LEASE)
    assert one(pair.c2, "SELECT idem_resolve('t', 'lost sight of', 'completed', 'it was paid', 200)") == 1
    assert pair.claim(pair.c2, "lost sight of")["response"] == "it was paid"


def test_23_nothing_owns_a_key_for_ever(pair):
    """paperclipai/paperclip#12127: a finished (expired) row owns the key for ever."""
    policy(pair.c1, "pay", audit="all")
    kept = []

    def nothing_forgotten():
        """The audit only grows, and its chain is whole."""
        now = audit(pair.c1)
        assert now[:len(kept)] == kept and len(now) > len(kept)
        assert one(pair.c1, "SELECT idem_audit_verify()") is None
        kept[:] = now

    token = pair.claim(pair.c1, "k")["token"]
    one(pair.c1, "SELECT idem_release('t', 'k', ?)", token)
    nothing_forgotten()
    answer = pair.claim(pair.c1, "k")
    assert (answer["outcome"], answer["attempt"]) == ("claimed", 2)
    pair.complete(pair.c1, "k", answer["token"])
    nothing_forgotten()

    pair.at(RETENTION + TOMBSTONE - 1)
    assert pair.outcome(pair.c1, "k") == "expired"
    pair.at(RETENTION + TOMBSTONE)
    answer = pair.claim(pair.c1, "k")  # not yet purged
    assert (answer["outcome"], answer["attempt"]) == ("claimed", 1)
    pair.complete(pair.c1, "k", answer["token"])
    nothing_forgotten()

    pair.at(2 * (RETENTION + TOMBSTONE))
    # Both at once: the answer becomes a tombstone, which is over as well.
    assert one(pair.c1, "SELECT idem_purge()") == 1 and one(pair.c1, "SELECT idem_purge()") == 1
    assert pair.count() == 0
    answer = pair.claim(pair.c1, "k")
    assert (answer["outcome"], answer["attempt"]) == ("claimed", 1)
    nothing_forgotten()

"""D. Fingerprint (24-35)."""
import json
import sqlite3

import pytest

from bug_words import DEEP, F, F2, connect, one, record, refused_claim


@pytest.fixture(scope="module")
def fp():
    """Fingerprint of a payload; the pure function needs no file and no store."""
    db = connect(":memory:", init=False)

    def fingerprint(payload, *paths):
        text = one(db, f"SELECT idem_fingerprint(?{', ?' * len(paths)})", payload, *paths)
        if isinstance(payload, str):  # bodies come as text or as bytes: no difference
            assert one(db, f"SELECT idem_fingerprint(?{', ?' * len(paths)})", payload.encode(), *paths) == text
        return text

    def error(payload, says):
        with pytest.raises(sqlite3.OperationalError) as caught:
            fingerprint(payload)
        assert str(caught.value).startswith("idem_fingerprint: " + says), str(caught.value)

    fingerprint.error, fingerprint.db = error, db
    yield fingerprint
    db.close()


def test_24_member_order_does_not_matter(fp):
    """aws-powertools/powertools-lambda-python#638, aws-powertools/powertools-lambda-typescript#2120,
    mojaloop/project#2463, nestarc 0.3.0 (release notes), node-idempotency (source), oyamist/merkle-json#8: member
    order changes the hash."""
    assert fp('{"a":1,"b":{"c":2,"d":3}}') == fp('{"b":{"d":3,"c":2},"a":1}')
    assert fp("[1,2]") != fp("[2,1]")


def test_25_no_number_passes_through_a_double(fp):
    """idempot-js and every path through a double (source), Rul1an/assay#2239: 9007199254740993 and ...992 hash
    alike: another amount is answered from the store."""
    for n in "9007199254740993", "[9007199254740993]", '{"amount":9007199254740993}':
        assert fp(n) != fp(n.replace("993", "992"))
    assert fp("1e400") != fp("1e401")
    assert fp("1e-400") != fp("0")
    assert fp("0.1") == fp("0.10")


def test_26_one_stated_number_rule(fp):
    """powertools-lambda-python (source: 1 and 1.0 differ, 0.0 and -0.0 differ, NaN accepted), ash_onetime refuses
    floats, databendlabs/databend#20547: no stated number rule."""
    assert len({fp(n) for n in ("1", "1.0", "1e0", "10e-1")}) == 1
    assert fp('"1"') != fp("1")
    assert fp("-0") == fp("0") == fp("-0.0")
    fp.error("NaN", "syntax at byte 0")
    fp.error("Infinity", "syntax at byte 0")
    fp.error('{"a": NaN}', "syntax at byte 6")
    fp.error("[-Infinity]", "number at byte 2")


def test_27_only_json_has_a_fingerprint(fp):
    """fractaledmind/acidic_job#111: text of live objects (with their address) in the key: every run another
    key."""
    fp.error(1, "type")
    fp.error(1.0, "type")
    assert fp(None) is None
    raw = one(fp.db, "SELECT idem_fingerprint_raw('1')")
    assert raw.startswith("idemr1:") and fp("1").startswith("idem1:")
    assert raw.split(":")[1] != fp("1").split(":")[1]


def test_28_large_and_empty_payloads(fp):
    """ikyriak/IdempotentAPI#58 (hash always of an empty body), #38 (over 30 KB hashed differently each time): every
    payload looks the same, or never the same."""
    payload = json.dumps([{"sku": f"sku-{i}", "price": i / 7} for i in range(24000)])
    assert len(payload) > 1 << 20
    times = 100 if DEEP else 20
    assert len({one(fp.db, "SELECT idem_fingerprint(?)", payload) for _ in range(times)}) == 1
    assert fp(payload.replace("sku-12345", "sku-12346")) != fp(payload)
    fp.error("", "eof at byte 0")
    assert fp(None) is None
    assert fp("{}").startswith("idem1:")


def test_29_a_reworded_memo_may_be_left_out(fp):
    """aws-powertools/powertools-lambda-python#8065, KeeperHub/keeperhub#1877: a reworded memo or a time stamp makes
    an honest retry a mismatch."""
    first = '{"amount":5,"memo":"thanks","sent_at":"10:00"}'
    again = '{"amount":5,"memo":"thank you","sent_at":"10:01"}'
    paths = "-$.memo", "-$.sent_at"
    assert fp(first) != fp(again)
    assert fp(first, *paths) == fp(again, *paths)
    assert fp(first, *paths) != fp(first.replace("5", "6"), *paths)
    assert fp('"0.001"') != fp('"0.0010"')
    assert fp("0.001") == fp("0.0010")


def test_30_null_absent_and_falsy_are_three_things(fp, pair):
    """powertools is_missing_idempotency_key (source: falsy means "no key"): null, absent and falsy are mixed up."""
    assert len({fp(p) for p in ('{"a":null}', "{}", '{"a":0}', '{"a":false}', '{"a":""}')}) == 5
    for key in "0", "false", "null":
        assert pair.outcome(pair.c1, key) == "claimed"
    assert pair.count() == 3
    for key in "0", "false", "null":
        assert pair.outcome(pair.c2, key) == "in_progress"


def test_31_unicode_is_compared_as_it_is(fp):
    """oasis-tcs/sarif-spec#789, rocicorp/repc#207; JSON.parse keeps the last duplicate: Unicode forms and odd input
    merge or split silently."""
    assert fp('"\u00e9"') != fp('"e\u0301"')
    assert fp('"\\u00e9"') == fp('"\u00e9"')
    fp.error('"\\ud800"', "surrogate at byte 1")
    fp.error('{"a":1,"\\u0061":2}', "dupkey at byte 7")


def test_32_the_operation_is_part_of_the_request(pair):
    """diegosouzapw/OmniRoute#11532, theam/facility#196, IdempotentAPI (path only): query string or operation is in
    neither fingerprint nor scope: another request is answered from the store."""
    for key in "running", "completed", "released":
        token = pair.claim(pair.c1, key, F, "charge")["token"]
        if key == "completed":
            pair.complete(pair.c1, key, token, "charged")
        elif key == "released":
            assert one(pair.c1, "SELECT idem_release('t', ?, ?)", key, token) == 1
        answer = pair.claim(pair.c2, key, F, "refund")
        assert answer["outcome"] == "mismatch"
        assert "response" not in answer and "code" not in answer


def test_33_the_fingerprint_is_compared_in_every_state(pair):
    """aws-powertools/powertools-lambda-python#3821, aws-powertools/powertools-lambda-typescript#2058, #1502, #5705:
    the hash is not compared on the fast path, or is dropped on completion so that an honest retry mismatches."""
    for name, last in (("k1", "idem_complete('t', 'k1', ?, 'done')"), ("k2", "idem_release('t', 'k2', ?)")):
        token = pair.claim(pair.c1, name, F)["token"]
        assert pair.visible(name, "fingerprint") == (F,)
        for call in f"idem_renew('t', '{name}', ?)", f"idem_checkpoint('t', '{name}', ?, 'charged')", last:
            one(pair.c1, "SELECT " + call, token)
            assert record(pair.c1, name)["fingerprint"] == F
            assert pair.outcome(pair.c2, name, F2) == "mismatch"
    assert pair.outcome(pair.c2, "k1", F) == "replay"
    assert pair.outcome(pair.c2, "k2", F) == "claimed"
    assert record(pair.c1, "k2")["fingerprint"] == F
    refused_claim(pair.c1, "t", "k3", None, "pay", says=["fingerprint is NULL"])


@pytest.mark.parametrize("then", ["running", "completed", "released"])
def test_34_fingerprints_of_two_forms_are_not_compared(pair, then):
    """theam/facility#196, faiscadev/fakecloud#2507: an upgrade of the hash turns honest retries into mismatches, or
    worse."""
    old, new = "idem0:" + "a" * 64, "idem1:" + "a" * 64
    token = pair.claim(pair.c1, "k", old)["token"]
    if then == "completed":
        pair.complete(pair.c1, "k", token)
    elif then == "released":
        one(pair.c1, "SELECT idem_release('t', 'k', ?)", token)
    refused_claim(pair.c2, "t", "k", new, "pay", says=["idem0:", "idem1:"])
    refused_claim(pair.c2, "t", "k", "idemr1:" + "a" * 64, "pay", says=["idem0:", "idemr1:"])


def test_35_equal_payloads_are_no_duplicates(pair):
    """idempot-js (source): the same payload under a *new* key is refused (two honest tips of $10)."""
    assert pair.outcome(pair.c1, "k1") == "claimed"
    assert pair.outcome(pair.c1, "k2") == "claimed"
    assert pair.count() == 2

"""idem_health for an operator, idem_contract for a client: plain views that any reader can run."""
import json
import sqlite3
import time

import pytest
from life_kit import DAY, LEASE, RETENTION, claim, clock, complete, fresh, one, policy, won


@pytest.fixture
def db(path):
    db = fresh(path)
    one(db, "SELECT idem_clock(NULL)")
    yield db
    db.close()


def health(path):
    """Read without the extension, as a monitoring program would."""
    plain = sqlite3.connect(path)
    cursor = plain.execute("SELECT * FROM idem_health")
    names = [d[0] for d in cursor.description]
    rows = cursor.fetchall()
    plain.close()
    assert len(rows) == 1
    return dict(zip(names, rows[0]))


def test_health_of_an_empty_store(db, path):
    got = health(path)
    assert abs(got.pop("now") - time.time() * 1000) < 5000
    assert got == {"processing": 0, "stale": 0, "unknown": 0, "released": 0, "completed": 0, "expired": 0,
                   "purgeable": 0, "oldest_processing_ms": None, "oldest_unknown_ms": None, "inbox": 0,
                   "audit_rows": 0}


def test_health_counts_each_state(db, path):
    now = int(time.time() * 1000)
    policy(db, "short", tombstone_ms=1000)
    clock(db, now - 2 * LEASE)
    won(db, "stale")
    one(db, "SELECT idem_suspend('t', 'u1', ?)", won(db, "u1"))
    clock(db, now - LEASE)
    one(db, "SELECT idem_suspend('t', 'u2', ?)", won(db, "u2"))
    clock(db, now - 5000)
    for key in ("p1", "p2", "p3"):
        won(db, key)
    for key in ("r1", "r2"):
        one(db, "SELECT idem_release('t', ?, ?)", key, won(db, key))
    for key in ("c1", "c2", "c3", "c4"):
        complete(db, key, won(db, key))
    one(db, "SELECT idem_seen('s', 'young')")
    clock(db, now - RETENTION - 10_000)
    complete(db, "e1", won(db, "e1"))                      # an answer that is over
    complete(db, "e2", won(db, "e2"))                      # a tombstone
    clock(db, now - 40 * DAY)
    one(db, "SELECT idem_seen('s', 'old')")
    complete(db, "gone", won(db, "gone", operation="short"), "x")   # all of its time is over
    db.execute("UPDATE idem_store SET state = 'tombstone', due_at = due_at + tombstone_ms "
               "WHERE key IN ('e2', 'gone')")
    got = health(path)
    assert {k: got[k] for k in ("processing", "stale", "unknown", "released", "completed", "expired",
                                "purgeable", "inbox", "audit_rows")} == {
        "processing": 3, "stale": 1, "unknown": 2, "released": 2, "completed": 4, "expired": 2,
        "purgeable": 3, "inbox": 2, "audit_rows": 4}
    assert 2 * LEASE - 1000 < got["oldest_processing_ms"] < 2 * LEASE + 10_000
    assert 2 * LEASE - 1000 < got["oldest_unknown_ms"] < 2 * LEASE + 10_000
    one(db, "SELECT idem_clock(NULL)")
    assert one(db, "SELECT idem_purge()") == got["purgeable"]
    after = health(path)
    assert (after["purgeable"], after["expired"], after["inbox"]) == (0, 2, 1)


def test_health_after_purges_still_counts_what_is_open(db, path):
    clock(db, 1)
    won(db, "k")
    one(db, "SELECT idem_release('t', 'r', ?)", won(db, "r"))
    one(db, "SELECT idem_suspend('t', 'u', ?)", won(db, "u"))
    one(db, "SELECT idem_clock(NULL)")
    for _ in range(5):
        one(db, "SELECT idem_purge()")
    got = health(path)
    assert (got["stale"], got["released"], got["unknown"], got["processing"]) == (1, 1, 1, 0)


def contract(path):
    plain = sqlite3.connect(path)
    cursor = plain.execute("SELECT * FROM idem_contract ORDER BY operation")
    names = [d[0] for d in cursor.description]
    rows = [dict(zip(names, row)) for row in cursor]
    assert plain.execute("SELECT min(json_valid(document)) FROM idem_contract").fetchall() == [(1,)]
    plain.close()
    return {row["operation"]: row for row in rows}


def test_contract_of_the_default_row(db, path):
    row = contract(path)["*"]
    assert json.loads(row.pop("document")) == {
        "operation": "*", "description": "every operation without a row of its own",
        "header": "Idempotency-Key",
        "key": {"min_length": 1, "max_length": 255,
                "rule": "one key per logical operation, kept across retries"},
        "replay": {"for_seconds": 86400, "counted_from": "completion"},
        "in_progress": {"status": 409, "retry_after": True, "waits_up_to_seconds": 0},
        "mismatch": {"status": 422}, "unknown": {"status": 409, "after_seconds_without_news": 60},
        "after_retention": {"status": 410, "for_seconds": 2592000}, "max_attempts": None}
    assert row == {
        "operation": "*", "description": "every operation without a row of its own",
        "header": "Idempotency-Key", "key_rule": "1 to 255 characters, no control characters",
        "retention_ms": 86_400_000, "tombstone_ms": 2_592_000_000, "lease_ms": 60_000, "wait_ms": 0,
        "in_progress_status": 409, "mismatch_status": 422, "unknown_status": 409, "expired_status": 410,
        "on_stale": "unknown", "max_attempts": 0}


def test_contract_follows_the_policy_at_once(db, path):
    policy(db, 'POST /"pay\\ments"', lease_ms=1500, retention_ms=2500, tombstone_ms=3500, wait_ms=4500,
           on_stale="retry", max_attempts=5, description='quotes " and \\ and \u00e9')
    rows = contract(path)
    assert set(rows) == {"*", "inbox", 'POST /"pay\\ments"'}
    document = json.loads(rows['POST /"pay\\ments"']["document"])
    assert document["operation"] == 'POST /"pay\\ments"'
    assert document["description"] == 'quotes " and \\ and \u00e9'
    assert document["replay"]["for_seconds"] == 2.5
    assert document["after_retention"]["for_seconds"] == 3.5
    assert document["in_progress"]["waits_up_to_seconds"] == 4.5
    assert document["unknown"]["after_seconds_without_news"] is None   # a stale claim is retried
    assert document["max_attempts"] == 5
    db.execute("DELETE FROM idem_policy WHERE operation LIKE 'POST%'")
    assert set(contract(path)) == {"*", "inbox"}


def test_the_contract_tells_the_truth(db):
    """The codes and times it promises are those that claims give."""
    policy(db, "pay", lease_ms=1000, retention_ms=2000, tombstone_ms=3000)
    document = json.loads(one(db, "SELECT document FROM idem_contract WHERE operation = 'pay'"))
    clock(db, 10_000)
    token = won(db, "k", operation="pay")
    won(db, "stale", operation="pay")
    assert claim(db, "k", operation="pay")["http_status"] == document["in_progress"]["status"]
    assert claim(db, "k", "x", operation="pay")["http_status"] == document["mismatch"]["status"]
    complete(db, "k", token)
    clock(db, 10_000 + int(1000 * document["unknown"]["after_seconds_without_news"]))
    assert claim(db, "stale", operation="pay")["http_status"] == document["unknown"]["status"]
    end = 10_000 + int(1000 * document["replay"]["for_seconds"])
    clock(db, end - 1)
    assert claim(db, "k", operation="pay")["outcome"] == "replay"
    clock(db, end)
    assert claim(db, "k", operation="pay")["http_status"] == document["after_retention"]["status"]
    end += int(1000 * document["after_retention"]["for_seconds"])
    clock(db, end - 1)
    assert claim(db, "k", operation="pay")["outcome"] == "expired"
    clock(db, end)
    assert claim(db, "k", operation="pay")["outcome"] == "claimed"
    longest = document["key"]["max_length"]
    assert claim(db, "k" * longest)["outcome"] == "claimed"
    with pytest.raises(sqlite3.Error):
        claim(db, "k" * (longest + 1))


@pytest.mark.parametrize("bound", [1e300, 9.1e15, 1.5, -1.5, -9.1e15, -1e300, float("inf"), "x", None])
@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
def test_a_time_range_may_have_any_bound(db, op, bound):
    """The range that is read is never narrower than what is asked."""
    won(db, "k")
    until = one(db, "SELECT due_at FROM main.idem_store")
    want = one(db, f"SELECT ? {op} ?", until, bound)
    got = one(db, f"SELECT count(*) FROM idem_records WHERE lease_until {op} ?", bound)
    assert got == (want or 0)

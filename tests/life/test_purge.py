"""The purge: bounded, by index, honest about what it did."""
import sqlite3

import pytest
from conftest import needs_progress
from life_kit import (RETENTION, T, TOMBSTONE, claim, clock, complete, connect, fresh, one, policy, record,
                      refused, won)


@pytest.fixture
def db(path):
    db = fresh(path)
    yield db
    db.close()


def fill(db, n, state="completed", due="i"):
    """Rows straight into the table: due at 1, 2, 3 ..."""
    db.execute("BEGIN")
    db.execute(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) "
        "INSERT INTO idem_store(scope, key, operation, fingerprint, state, attempt, token, due_at, "
        "tombstone_ms, created_at, updated_at, completed_at, code, headers, response) "
        f"SELECT 's', ?2 || i, '', 'fp', ?2, 1, hex(randomblob(16)), {due}, 1000, 0, 0, 0, 200, 'h', 'body' "
        "FROM n", (n, state))
    db.execute("COMMIT")


def count(db, state):
    return one(db, "SELECT count(*) FROM idem_store WHERE state = ?", state)


def test_an_answer_becomes_a_tombstone_then_goes(db):
    token = won(db, "k")
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'point', 'data')", token)
    complete(db, "k", token, b"body", 201, "headers")
    first = record(db, "k")
    clock(db, T + RETENTION - 1)
    assert one(db, "SELECT idem_purge()") == 0 and record(db, "k") == first
    clock(db, T + RETENTION)
    assert claim(db, "k")["outcome"] == "expired"          # over, whether or not a purge has run
    assert one(db, "SELECT idem_purge()") == 1
    row = record(db, "k")
    for column in ("token", "spent", "headers", "response", "recovery_point", "checkpoint", "reason"):
        assert row[column] is None, column
    for column in ("id", "scope", "key", "operation", "fingerprint", "created_at", "completed_at"):
        assert row[column] == first[column], column
    assert row["state"] == "tombstone" and row["due_at"] == T + RETENTION + TOMBSTONE
    for later in (RETENTION, RETENTION + TOMBSTONE - 1):
        clock(db, T + later)
        got = claim(db, "k")
        assert (got["outcome"], got["http_status"], got["completed_at"]) == ("expired", 410, T)
        assert got["response"] is None
        assert claim(db, "k", "other")["outcome"] == "mismatch"
        assert one(db, "SELECT idem_purge()") == 0
    clock(db, T + RETENTION + TOMBSTONE)
    assert one(db, "SELECT count(*) FROM idem_records") == 0
    assert one(db, "SELECT idem_purge()") == 1 and record(db, "k") is None
    assert claim(db, "k")["attempt"] == 1


def test_a_key_whose_time_is_over_begins_anew_before_the_purge(db):
    policy(db, max_attempts=2)
    one(db, "SELECT idem_release('t', 'k', ?, 'reason')", won(db, "k"))
    token = won(db, "k")
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'old point', 'old data')", token)
    complete(db, "k", token, "old", 201, "h")
    clock(db, T + RETENTION + TOMBSTONE)
    got = claim(db, "k", "another fingerprint", operation="another")
    assert (got["outcome"], got["attempt"], got["created_at"]) == ("claimed", 1, T + RETENTION + TOMBSTONE)
    assert one(db, "SELECT idem_purge()") == 0
    assert {c for c, v in record(db, "k").items() if v is None} >= {   # nothing of the old life is left
        "spent", "completed_at", "code", "headers", "response", "recovery_point", "checkpoint", "reason"}
    one(db, "SELECT idem_release('t', 'k', ?)", got["token"])
    got = claim(db, "k", "another fingerprint", operation="another")
    assert (got["attempt"], got["recovery_point"], got["checkpoint"]) == (2, None, None)
    complete(db, "k", got["token"], "new", None, None)
    got = claim(db, "k", "another fingerprint", operation="another")
    assert (got["response"], got["code"], got["headers"]) == ("new", None, None)


@pytest.mark.parametrize("limit, touched", [(1, 1), (7, 7), (30, 30), (31, 30), (1_000_000, 30), (5.0, 5)])
def test_bounded_and_counted(db, limit, touched):
    for state in ("completed", "tombstone"):
        fill(db, 10, state)
    for i in range(10):
        one(db, "SELECT idem_seen('s', ?)", f"e{i}")
    clock(db, T + 400 * RETENTION)

    def left():
        return (one(db, "SELECT count(*) FROM idem_store WHERE state = 'completed'"),
                one(db, "SELECT count(*) FROM idem_store WHERE key LIKE 'tombstone%'"),
                one(db, "SELECT count(*) FROM idem_inbox"))

    before = left()
    assert before == (10, 10, 10)
    assert one(db, "SELECT idem_purge(?)", limit) == touched
    assert sum(before) - sum(left()) == touched


def test_the_default_batch_is_1000(db):
    fill(db, 2500)
    assert [one(db, "SELECT idem_purge()") for _ in range(3)] == [1000, 1000, 1000]
    assert count(db, "completed") + count(db, "tombstone") <= 2500


def test_repeated_it_ends(db):
    """proteanhq/protean#1072: batches that loop for ever."""
    fill(db, 500)
    fill(db, 500, "tombstone")
    fill(db, 50, "processing")
    total = calls = 0
    while True:
        n = one(db, "SELECT idem_purge(90)")
        assert 0 <= n <= 90
        if n == 0:
            break
        total, calls = total + n, calls + 1
    assert total == 500 + 500 + 500 and calls < 25         # each answer twice: as such, as a tombstone
    assert db.execute("SELECT state, count(*) FROM idem_store GROUP BY 1").fetchall() == [("processing", 50)]


def test_the_oldest_go_first(db):
    fill(db, 100)
    assert one(db, "SELECT idem_purge(10)") == 10
    assert one(db, "SELECT max(id) FROM idem_store WHERE state = 'tombstone'") == 10


def test_what_is_not_due_stays(db):
    fill(db, 10, due=f"{T} + i")
    fill(db, 10, "tombstone", due=f"{T} + i")
    clock(db, T + 4)
    assert one(db, "SELECT idem_purge()") == 8
    assert count(db, "completed") == 6


@pytest.mark.parametrize("limit, text", [
    (0, "out of range"), (-1, "out of range"), (1_000_001, "out of range"), (2**63 - 1, "out of range"),
    (1.5, "not an integer"), ("abc", "not an integer"), ("5 ", "not an integer"), ("1e3", "not an integer"), (None, "NULL"),
    (b"1", "not an integer"), (1e300, "out of range")])
def test_bad_limits_are_refused(db, limit, text):
    fill(db, 3)
    refused(db, "SELECT idem_purge(?)", limit, text=text, code="SQLITE_ERROR", begins="idem_purge: max_rows")
    assert count(db, "completed") == 3


def test_nothing_due_locks_nothing(db, path):
    other = connect(path, init=False)
    other.execute("BEGIN IMMEDIATE")
    db.execute("PRAGMA busy_timeout = 0")
    assert one(db, "SELECT idem_purge()") == 0
    other.execute("ROLLBACK")
    fill(db, 1)
    other.execute("BEGIN IMMEDIATE")
    refused(db, "SELECT idem_purge()", text="locked", code="SQLITE_BUSY", begins="idem_purge:")
    other.execute("ROLLBACK")
    other.close()
    assert one(db, "SELECT idem_purge()") == 1


def test_rolled_back(db):
    fill(db, 20)
    before = db.execute("SELECT * FROM idem_store").fetchall()
    db.execute("BEGIN")
    assert one(db, "SELECT idem_purge(7)") == 7
    db.execute("ROLLBACK")
    assert db.execute("SELECT * FROM idem_store").fetchall() == before


def test_plans_without_a_scan(db):
    """Every statement of the trigger, as SQLite would run it: searches by index, no sorting."""
    fill(db, 5000)
    fill(db, 5000, "tombstone")
    db.execute("ANALYZE")
    text = one(db, "SELECT sql FROM sqlite_schema WHERE name = 'idem_purge_batch_run'")
    body = text[text.index("BEGIN") + 5:text.rindex("END")]
    statements = [s.strip() for s in body.split(";") if s.strip()]
    assert len(statements) == 3
    for statement in statements:
        for name in ("at", "tombstones", "answers", "events"):
            statement = statement.replace(f"new.{name}", "?")
        plan = [row[3] for row in db.execute("EXPLAIN QUERY PLAN " + statement,
                                             (0,) * statement.count("?"))]
        print(plan)
        assert any("INDEX idem_store_due (state=? AND due_at<?)" in step or
                   "INDEX idem_inbox_expires (expires_at<?)" in step for step in plan), plan
        assert not any(step.startswith("SCAN idem") or "TEMP B-TREE" in step for step in plan), plan


def steps(db, sql):
    """How many instructions of SQLite's machine a statement costs, nested ones included: to within 1 %."""
    ticks = 0

    def tick():
        nonlocal ticks
        ticks += 1

    db.set_progress_handler(tick, 100)
    got = one(db, sql)
    db.set_progress_handler(None, 0)
    return got, ticks


@needs_progress
@pytest.mark.parametrize("state", ["completed", "tombstone", "event"])
def test_the_cost_is_that_of_the_rows_touched(db, path, state, tmp_path):
    costs = {}
    for n in (2_000, 100_000):
        big = fresh(tmp_path / f"{n}.db")
        if state == "event":
            big.execute("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                        "INSERT INTO idem_inbox SELECT 's', 'e' || i, NULL, 0, i FROM n", (n,))
        else:
            fill(big, n, state)
            fill(big, n, "processing")                     # old, and none of its business
        got, costs[n] = steps(big, "SELECT idem_purge(1000)")
        assert got == 1000
        for _ in range(3):                                 # later batches cost the same as the first
            got, again = steps(big, "SELECT idem_purge(300)")
            assert got == 300 and again < costs[n]
        big.close()
    print(state, costs)
    assert costs[2_000] > 50
    assert costs[100_000] < 1.2 * costs[2_000]


@needs_progress
def test_an_idle_purge_costs_nothing_in_a_large_store(db):
    fill(db, 50_000, due=f"{T} + 1000 + i")
    got, ticks = steps(db, "SELECT idem_purge(1000)")
    assert got == 0 and ticks <= 2

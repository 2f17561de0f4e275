"""Policies are rows: effective at once everywhere, refused when absurd, and kind to what exists."""
import sqlite3

import pytest
from life_kit import (DAY, LEASE, RETENTION, T, TOMBSTONE, audit, claim, clock, complete, connect,
                      fresh, one, policy, record, refused, won)

INT64_MAX = 2**63 - 1
BOUNDS = {                     # the lowest and the highest value that each number may have
    "lease_ms": (1, 30 * DAY),
    "retention_ms": (1, 3650 * DAY),
    "tombstone_ms": (1, 36500 * DAY),
    "wait_ms": (0, 60_000),
    "max_attempts": (0, 1_000_000),
    "max_response_bytes": (0, 1_000_000_000),
    "allow_content_key": (0, 1),
}


@pytest.fixture
def db(path):
    db = fresh(path)
    yield db
    db.close()


def test_the_default_row_is_as_documented(db):
    row = db.execute("SELECT lease_ms, retention_ms, tombstone_ms, wait_ms, on_stale, max_attempts, "
                     "max_response_bytes, allow_content_key, audit FROM idem_policy "
                     "WHERE operation = '*'").fetchall()
    assert row == [(LEASE, RETENTION, TOMBSTONE, 0, "unknown", 0, 1_048_576, 0, "exceptions")]


@pytest.mark.parametrize("column", BOUNDS)
def test_checks_refuse_what_is_absurd(db, column):
    low, high = BOUNDS[column]
    db.execute("INSERT INTO idem_policy(operation) VALUES ('op')")
    before = db.execute("SELECT * FROM idem_policy").fetchall()
    for bad in (low - 1, high + 1, -1, 1.5, "abc", "", b"1", None, INT64_MAX, -INT64_MAX - 1, 1e300):
        for sql in (f"UPDATE idem_policy SET {column} = ? WHERE operation = 'op'",
                    f"UPDATE idem_policy SET {column} = ? WHERE operation = '*'",
                    f"INSERT INTO idem_policy(operation, {column}) VALUES ('new', ?)",
                    f"UPDATE OR REPLACE idem_policy SET {column} = ifnull(?, -7)",
                    f"INSERT INTO idem_policy(operation, {column}) VALUES ('op', ?) "
                    f"ON CONFLICT DO UPDATE SET {column} = excluded.{column}"):
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(sql, (bad,))
    assert db.execute("SELECT * FROM idem_policy").fetchall() == before
    for good in (low, high, float(high)):
        db.execute(f"UPDATE idem_policy SET {column} = ? WHERE operation = 'op'", (good,))
        assert one(db, f"SELECT {column} FROM idem_policy WHERE operation = 'op'") == good


@pytest.mark.parametrize("column, bad", [
    ("on_stale", "ignore"), ("on_stale", ""), ("on_stale", "RETRY"), ("on_stale", None), ("on_stale", 0),
    ("audit", "some"), ("audit", ""), ("audit", None), ("audit", 1), ("operation", ""),
    ("operation", None), ("operation", "x" * 256)], ids=range(12))
def test_words_are_checked_too(db, column, bad):
    db.execute("INSERT INTO idem_policy(operation) VALUES ('op')")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(f"UPDATE idem_policy SET {column} = ? WHERE operation = 'op'", (bad,))


@pytest.mark.parametrize("sql", [
    "DELETE FROM idem_policy WHERE operation = '*'", "DELETE FROM idem_policy",
    "UPDATE idem_policy SET operation = 'x' WHERE operation = '*'",
    "UPDATE OR REPLACE idem_policy SET operation = 'inbox' WHERE operation = '*'",
    "UPDATE OR IGNORE idem_policy SET operation = 'x' WHERE operation = '*'",
    "UPDATE OR REPLACE idem_policy SET operation = NULL WHERE operation = '*'"])
def test_the_default_row_stays(db, sql):
    before = db.execute("SELECT * FROM idem_policy").fetchall()
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(sql)
    assert db.execute("SELECT * FROM idem_policy").fetchall() == before


def test_replacing_the_default_row_is_a_change_of_it(db):
    """Where triggers are recursive a REPLACE is seen as the deletion that it is, and refused."""
    replace = "INSERT OR REPLACE INTO idem_policy(operation, lease_ms) VALUES ('*', ?)"
    db.execute("PRAGMA recursive_triggers = ON")
    with pytest.raises(sqlite3.IntegrityError, match="change it instead"):
        db.execute(replace, (4,))
    db.execute("PRAGMA recursive_triggers = OFF")
    db.execute(replace, (5,))
    won(db, "k")
    assert record(db, "k")["due_at"] == T + 5


def test_the_largest_values_do_not_overflow(db):
    for column in ("lease_ms", "retention_ms", "tombstone_ms"):
        policy(db, **{column: BOUNDS[column][1]})
    clock(db, 253_402_300_799_999)                         # the end of the year 9999
    token = won(db, "k")
    assert claim(db, "k")["retry_after_ms"] == 30 * DAY
    complete(db, "k", token)
    assert claim(db, "k")["outcome"] == "replay"
    row = db.execute("SELECT expires_at, tombstone_until FROM idem_records").fetchall()
    assert row == [(253_402_300_799_999 + 3650 * DAY, 253_402_300_799_999 + 40150 * DAY)]


def test_an_operation_without_a_row_uses_the_default(db):
    policy(db, lease_ms=1111)
    policy(db, "pay", lease_ms=2222)
    for operation, lease in ((None, 1111), ("other", 1111), ("PAY", 1111), ("pay ", 1111), ("pay", 2222)):
        claim(db, f"k{operation}", operation=operation)
        assert record(db, f"k{operation}")["due_at"] == T + lease, operation
    db.execute("DELETE FROM idem_policy WHERE operation = 'pay'")
    claim(db, "again", operation="pay")
    assert record(db, "again")["due_at"] == T + 1111


def test_the_name_of_the_default_row_is_no_operation(db):
    refused(db, "SELECT idem_claim('t', 'k', 'fp', '*')", text="default policy", code="SQLITE_ERROR",
            begins="idem_claim: operation")


def test_the_records_operation_rules_its_completion(db):
    policy(db, "pay", retention_ms=5000, tombstone_ms=7000)
    complete(db, "k", won(db, "k", operation="pay"))
    row = record(db, "k")
    assert (row["due_at"], row["tombstone_ms"]) == (T + 5000, 7000)


def test_effective_at_once_in_every_connection(db, path, journal):
    db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
    others = [connect(path, init=False) for _ in range(3)]
    for i, other in enumerate(others):
        clock(other, T)
        won(other, f"warm{i}")                             # statements are prepared and cached
    for lease in (1000, 2000, 3000):
        policy(db, lease_ms=lease)
        for i, other in enumerate(others):
            won(other, f"k{i}-{lease}")
            assert record(db, f"k{i}-{lease}")["due_at"] == T + lease
    others[0].execute("BEGIN IMMEDIATE")
    policy(others[0], lease_ms=9)
    assert claim(others[0], "inside")["lease_until"] == T + 9
    others[0].execute("ROLLBACK")                          # a change that never was
    won(others[1], "after")
    assert record(db, "after")["due_at"] == T + 3000
    for other in others:
        other.close()


def test_deadlines_of_existing_records_stay(db):
    policy(db, lease_ms=10_000, retention_ms=20_000, tombstone_ms=40_000)
    won(db, "running")
    complete(db, "done", won(db, "done"))
    complete(db, "gone", won(db, "gone"))
    for change in ({"lease_ms": 1, "retention_ms": 1, "tombstone_ms": 1},
                   {"lease_ms": DAY, "retention_ms": 100 * DAY, "tombstone_ms": 1000 * DAY}):
        policy(db, **change)
        clock(db, T + 9_999)
        assert claim(db, "running")["outcome"] == "in_progress"
        clock(db, T + 10_000)
        assert claim(db, "running")["outcome"] == "unknown"
        clock(db, T + 19_999)
        assert claim(db, "done")["outcome"] == "replay"
        clock(db, T + 20_000)
        assert claim(db, "done")["outcome"] == "expired"
        clock(db, T + 59_999)
        assert claim(db, "done")["outcome"] == "expired"
        assert one(db, "SELECT state FROM idem_records WHERE key = 'done' AND scope = 't'") == "expired"
    clock(db, T + 60_000)
    assert claim(db, "done")["outcome"] == "claimed"
    # The purge keeps to it as well: a tombstone made now still ends when it was promised to.
    clock(db, T + 59_000)
    assert one(db, "SELECT idem_purge()") == 1
    assert record(db, "gone")["due_at"] == T + 60_000


def test_new_grants_use_the_new_values(db):
    token = won(db, "k")
    policy(db, lease_ms=5_000, retention_ms=7_000, tombstone_ms=9_000)
    assert claim(db, "k")["retry_after_ms"] == 5_000       # never more than a lease, as promised
    assert one(db, "SELECT idem_renew('t', 'k', ?)", token) == T + 5_000
    complete(db, "k", token)
    row = record(db, "k")
    assert (row["due_at"], row["tombstone_ms"]) == (T + 7_000, 9_000)


def test_on_stale_applies_at_once(db):
    won(db, "k")
    clock(db, T + LEASE)
    assert claim(db, "k")["outcome"] == "unknown"
    policy(db, on_stale="retry")
    assert one(db, "SELECT state FROM idem_records") == "processing"
    assert one(db, "SELECT outcome FROM idem_records") == "claimed"
    got = claim(db, "k")
    assert (got["outcome"], got["attempt"]) == ("claimed", 2)
    clock(db, T + 2 * LEASE)
    policy(db, on_stale="unknown")
    assert claim(db, "k")["outcome"] == "unknown"
    assert one(db, "SELECT state FROM idem_records") == "unknown"


def test_on_stale_does_not_touch_suspended_records(db):
    one(db, "SELECT idem_suspend('t', 'k', ?)", won(db, "k"))
    policy(db, on_stale="retry")
    clock(db, T + 10 * LEASE)
    assert claim(db, "k")["outcome"] == "unknown"


def test_max_attempts_applies_at_once(db):
    for _ in range(3):
        one(db, "SELECT idem_release('t', 'k', ?)", won(db, "k"))
    policy(db, max_attempts=3)
    assert claim(db, "k")["outcome"] == "exhausted"
    policy(db, max_attempts=4)
    got = claim(db, "k")
    assert (got["outcome"], got["attempt"]) == ("claimed", 4)
    policy(db, max_attempts=1)
    assert claim(db, "k")["outcome"] == "in_progress"      # a live claim is not taken away
    complete(db, "k", got["token"])
    assert claim(db, "k")["outcome"] == "replay"


def test_max_response_bytes_applies_at_once(db):
    first, second = won(db, "first"), won(db, "second")
    policy(db, max_response_bytes=3)
    complete(db, "first", first, "1234", 201, "h")
    got = claim(db, "first")
    assert (got["outcome"], got["response"], got["response_omitted"], got["code"], got["headers"]) == (
        "replay", None, 1, 201, "h")
    complete(db, "first", first, "1234", 201, "h")         # the same answer again is fine
    refused(db, "SELECT idem_complete('t', 'first', ?, '1235', 201, 'h')", first, text="another answer")
    policy(db, max_response_bytes=4)
    complete(db, "second", second, "1234")
    assert claim(db, "second")["response"] == "1234"
    complete(db, "first", first, "1234", 201, "h")         # compared in the form it was kept
    assert claim(db, "first")["response_omitted"] == 1


def test_an_empty_answer_is_never_too_large(db):
    policy(db, max_response_bytes=0)
    for key, response in (("text", ""), ("blob", b""), ("null", None)):
        complete(db, key, won(db, key), response)
        got = claim(db, key)
        assert (got["response"], got["response_omitted"]) == (response, 0)
        assert type(got["response"]) is type(response)


def test_allow_content_key_applies_at_once(db):
    for args in (("t", "same", "same"), ("t", "same", b"same")):
        refused(db, "SELECT idem_claim(?, ?, ?)", *args, text="key equals the fingerprint",
                code="SQLITE_ERROR")
    refused(db, "SELECT idem_claim('acct', 'acct', 'fp')", text="key equals the scope",
            code="SQLITE_ERROR")
    assert one(db, "SELECT count(*) FROM idem_store") == 0
    policy(db, allow_content_key=1)
    complete(db, "same", won(db, "same", fingerprint="same"))
    assert claim(db, "acct", scope="acct")["outcome"] == "claimed"
    policy(db, allow_content_key=0)
    refused(db, "SELECT idem_claim('t', 'same', 'same')", text="key equals the fingerprint",
            code="SQLITE_ERROR")
    assert one(db, "SELECT state FROM idem_records WHERE scope = 't' AND key = 'same'") == "completed"


def test_audit_applies_at_once(db):
    policy(db, audit="off")
    token = won(db, "k")
    policy(db, audit="all")
    complete(db, "k", token)
    claim(db, "k")
    policy(db, audit="exceptions")
    claim(db, "k")
    assert audit(db) == ["complete", "replay"]


def test_a_renamed_operation_keeps_its_records(db):
    policy(db, "pay", lease_ms=5000, on_stale="retry")
    won(db, "k", operation="pay")
    db.execute("UPDATE idem_policy SET operation = 'payments' WHERE operation = 'pay'")
    clock(db, T + 5000)
    assert claim(db, "k", operation="pay")["outcome"] == "unknown"       # the default row's word
    assert claim(db, "k", operation="payments")["outcome"] == "mismatch"

"""The audit: append-only, one row per event worth explaining, and a chain that shows tampering."""
import sqlite3

import pytest
from life_kit import (LEASE, T, audit, claim, clock, complete, connect, fresh, one, policy, record,
                      refused, won)


@pytest.fixture
def db(path):
    db = fresh(path)
    yield db
    db.close()


def verify(db):
    return one(db, "SELECT idem_audit_verify()")


# What is written

def live(db):
    """A life with every event in it; the events as (event, level at which it is written, attempt, detail)."""
    policy(db, on_stale="retry", max_attempts=3)
    events = []

    def event(name, level, attempt, detail=None):
        events.append((name, level, attempt, detail))

    token = won(db, "k")
    event("claim", "all", 1)
    claim(db, "k")
    event("refused", "all", 1, "in_progress")
    claim(db, "k", "other")
    event("refused", "all", 1, "mismatch")
    assert one(db, "SELECT idem_renew('t', 'k', ?)", token)
    assert one(db, "SELECT idem_checkpoint('t', 'k', ?, 'point')", token)
    one(db, "SELECT idem_release('t', 'k', ?, 'first reason')", token)
    event("release", "exceptions", 1, "first reason")
    token = won(db, "k")
    event("claim", "all", 2)
    one(db, "SELECT idem_suspend('t', 'k', ?, 'second reason')", token)
    event("suspend", "exceptions", 2, "second reason")
    claim(db, "k")
    event("refused", "all", 2, "unknown")
    one(db, "SELECT idem_resolve('t', 'k', 'retry', 'third reason')")
    event("resolve-retry", "exceptions", 2, "third reason")
    won(db, "k")
    event("claim", "all", 3)
    for attempt in (4, 5):
        clock(db, T + attempt * LEASE)
        token = won(db, "k")
        event("take-over", "exceptions", attempt)
    clock(db, T + 6 * LEASE)
    assert claim(db, "k")["outcome"] == "exhausted"
    event("exhausted", "exceptions", 5, "exhausted")
    assert claim(db, "k")["outcome"] == "exhausted"
    event("refused", "all", 5, "exhausted")                # the exception is written once
    one(db, "SELECT idem_resolve('t', 'k', 'completed', 'x')")
    event("resolve-completed", "exceptions", 5)
    claim(db, "k")
    event("replay", "all", 5, "replay")
    db.execute("DELETE FROM idem_records WHERE scope = 't' AND key = 'k'")
    event("erase", "exceptions", 5)
    token = won(db, "k")
    event("claim", "all", 1)
    complete(db, "k", token)
    event("complete", "all", 1)
    complete(db, "k", token)                               # a repetition is no event
    return events


@pytest.mark.parametrize("level, levels", [
    ("off", ()), ("exceptions", ("exceptions",)), ("all", ("exceptions", "all"))])
def test_levels(db, level, levels):
    policy(db, audit=level)
    want = [(name, attempt) for name, at, attempt, _ in live(db) if at in levels]
    rows = db.execute("SELECT event, attempt FROM idem_audit ORDER BY id").fetchall()
    assert rows == want
    assert len(rows) == {"off": 0, "exceptions": 8, "all": 18}[level]
    assert verify(db) is None


def test_rows_say_who_when_and_why(db):
    policy(db, audit="all")
    events = live(db)
    rows = db.execute("SELECT id, at, event, scope, key, operation, attempt, detail FROM idem_audit "
                      "ORDER BY id").fetchall()
    assert [row[0] for row in rows] == list(range(1, len(events) + 1))
    assert [row[1] for row in rows] == sorted(row[1] for row in rows) and rows[0][1] == T
    assert {row[3:6] for row in rows} == {("t", "k", "")}
    for row, (name, _, _, detail) in zip(rows, events):
        if name in ("release", "suspend", "resolve-retry", "refused"):
            assert row[7] == detail, row


def test_no_event_shows_a_token_or_an_answer(db):
    policy(db, audit="all")
    token = won(db, "k", token="secret-token-0123456789")
    complete(db, "k", token, "secret answer", 200, "secret headers")
    claim(db, "k")
    text = "".join(str(row) for row in db.execute("SELECT * FROM idem_audit"))
    assert "secret" not in text


def test_a_refused_claim_of_a_stranger_is_counted_under_the_key(db):
    policy(db, audit="all")
    won(db, "k", operation="pay")
    claim(db, "k", operation="refund")
    assert db.execute("SELECT event, operation, detail FROM idem_audit ORDER BY id").fetchall() == [
        ("claim", "pay", None), ("refused", "refund", "mismatch")]


def test_a_read_only_connection_answers_without_a_note(db, path):
    policy(db, audit="all")
    complete(db, "k", won(db, "k"))
    reader = connect(f"file:{path}?mode=ro", init=False, uri=True)
    clock(reader, T)
    assert claim(reader, "k")["outcome"] == "replay"
    assert verify(reader) is None
    reader.close()
    assert audit(db) == ["claim", "complete"]


def test_what_did_not_happen_is_not_written(db):
    policy(db, audit="all")
    token = won(db, "k")
    refused(db, "SELECT idem_complete('t', 'k', 'another-token-0123', 'x')", text="claim lost")
    db.execute("BEGIN")
    complete(db, "k", token)
    assert audit(db) == ["claim", "complete"]
    db.execute("ROLLBACK")
    assert audit(db) == ["claim"] and verify(db) is None
    complete(db, "k", token)
    assert audit(db) == ["claim", "complete"] and verify(db) is None


def test_purge_leaves_the_audit_alone(db):
    policy(db, audit="all", retention_ms=1, tombstone_ms=1)
    complete(db, "k", won(db, "k"))
    clock(db, T + 10)
    assert one(db, "SELECT idem_purge()") == 1 and one(db, "SELECT idem_purge()") == 1
    assert audit(db) == ["claim", "complete"]
    won(db, "k")
    assert audit(db, "k") == ["claim", "complete", "claim"] and verify(db) is None


# Append-only

@pytest.mark.parametrize("sql, text", [
    ("UPDATE idem_audit SET detail = 'x'", "rows are never changed"),
    ("UPDATE idem_audit SET id = id + 100", "rows are never changed"),
    ("UPDATE OR REPLACE idem_audit SET id = 1 WHERE id = 2", "rows are never changed"),
    ("DELETE FROM idem_audit", "rows are never deleted"),
    ("DELETE FROM idem_audit WHERE id = 3", "rows are never deleted"),
    ("INSERT OR REPLACE INTO idem_audit SELECT * FROM idem_audit WHERE id = 3", "added at its end"),
    ("REPLACE INTO idem_audit SELECT 2, at, event, scope, key, operation, attempt, detail, prev, digest "
     "FROM idem_audit WHERE id = 3", "added at its end"),
    ("INSERT INTO idem_audit SELECT 100, at, event, scope, key, operation, attempt, detail, prev, digest "
     "FROM idem_audit WHERE id = 3", "added at its end"),
    ("INSERT INTO idem_audit SELECT 0, at, event, scope, key, operation, attempt, detail, prev, digest "
     "FROM idem_audit WHERE id = 3", "added at its end")])
@pytest.mark.parametrize("extension", [True, False])
def test_plain_sql_cannot_change_it(db, path, sql, text, extension):
    policy(db, audit="all")
    for i in range(3):
        complete(db, f"k{i}", won(db, f"k{i}"))
    before = db.execute("SELECT * FROM idem_audit").fetchall()
    other = connect(path, init=False, load=extension)
    refused(other, sql, text=text)
    other.close()
    assert db.execute("SELECT * FROM idem_audit").fetchall() == before and verify(db) is None


# The chain

COLUMNS = ("id", "at", "event", "scope", "key", "operation", "attempt", "detail", "prev", "digest")
N = 12


@pytest.fixture
def chain(db, path):
    """A chain of 12 rows, and a way to tamper with it: drop the triggers, change, put them back."""
    policy(db, audit="all")
    for i in range(4):
        token = won(db, f"k{i}", operation="pay")
        one(db, "SELECT idem_release('t', ?, ?, ?)", f"k{i}", token, f"it's reason {i}")
        won(db, f"k{i}", operation="pay")
    assert one(db, "SELECT count(*) FROM idem_audit") == N and verify(db) is None
    triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' "
                          "AND tbl_name = 'idem_audit'").fetchall()
    assert len(triggers) == 3

    def tamper(*statements):
        plain = sqlite3.connect(path, isolation_level=None)
        plain.execute("BEGIN")
        for name, _ in triggers:
            plain.execute(f"DROP TRIGGER {name}")
        changed = sum(plain.execute(sql).rowcount for sql in statements)
        for _, sql in triggers:
            plain.execute(sql)
        plain.execute("COMMIT")
        plain.close()
        assert changed > 0
        return verify(db)

    return tamper


def quoted(value):
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def test_digests_are_recomputed_here(db, chain):
    """The documented form, built by hand, so that an auditor needs no idem to check a chain."""
    prev = "idem-audit"
    for row in db.execute(f"SELECT {', '.join(COLUMNS)} FROM idem_audit ORDER BY id").fetchall():
        id, at, event, scope, key, operation, attempt, detail, got_prev, digest = row
        text = ",".join([prev, str(id), str(at), quoted(event), quoted(scope), quoted(key),
                         quoted(operation), str(attempt), quoted(detail)])
        assert got_prev == prev
        assert digest == one(db, "SELECT idem_fingerprint_raw(?)", text.encode())
        prev = digest


def test_the_store_is_refused_while_a_trigger_is_missing(db, path):
    complete(db, "k", won(db, "k"))
    plain = sqlite3.connect(path)
    plain.execute("DROP TRIGGER idem_audit_no_delete")
    plain.close()
    for sql in ("SELECT idem_audit_verify()", "SELECT idem_claim('t', 'k', 'fp')",
                "SELECT * FROM idem_records"):
        refused(db, sql, text="the store is incomplete, TRIGGER idem_audit_no_delete is missing: restore",
                code="SQLITE_ERROR")


@pytest.mark.parametrize("column, value", [
    ("at", "at + 1"), ("event", "'complete'"), ("event", "event || ' '"), ("scope", "'other'"), ("key", "'k9'"),
    ("key", "key || char(0) || 'more'"), ("operation", "''"), ("operation", "upper(operation)"),
    ("attempt", "attempt + 1"), ("detail", "'another reason'"), ("detail", "iif(detail IS NULL, '', NULL)"),
    ("detail", "ifnull(detail, '') || char(0) || 'more'"), ("detail", "'NULL'"), ("prev", "digest"),
    ("prev", "prev || ' '"), ("prev", "prev || char(0)"), ("digest", "prev"), ("digest", "''"),
    ("digest", "digest || char(0) || 'more'"), ("digest", "upper(digest)")], ids=range(20))
@pytest.mark.parametrize("row", [1, 2, 7, N])
def test_a_changed_row_is_found(chain, column, value, row):
    assert chain(f"UPDATE idem_audit SET {column} = {value} WHERE id = {row}") == row


def test_the_first_of_several_is_named(chain):
    assert chain("UPDATE idem_audit SET at = at + 1 WHERE id IN (9, 4, 11)") == 4


@pytest.mark.parametrize("row", [1, 2, 7, N - 1])
def test_a_removed_row_is_found(chain, row):
    assert chain(f"DELETE FROM idem_audit WHERE id = {row}") == row


@pytest.mark.parametrize("row", [1, 2, 7, N - 1])
def test_a_removed_row_is_found_when_the_gap_is_closed(chain, row):
    assert chain(f"DELETE FROM idem_audit WHERE id = {row}",
                 f"UPDATE idem_audit SET id = -id + 1 WHERE id > {row}",
                 "UPDATE idem_audit SET id = -id WHERE id < 0") == row


@pytest.mark.parametrize("first, second", [(1, 2), (4, 5), (3, 9), (N - 1, N)])
def test_reordered_rows_are_found(chain, first, second):
    assert chain(f"UPDATE idem_audit SET id = -1 WHERE id = {first}",
                 f"UPDATE idem_audit SET id = {first} WHERE id = {second}",
                 f"UPDATE idem_audit SET id = {second} WHERE id = -1") == first


@pytest.mark.parametrize("place", [0, -1, -2**63])
def test_a_row_inserted_before_the_first_is_found(chain, place):
    names = ", ".join(COLUMNS[1:])
    assert chain(f"INSERT INTO idem_audit SELECT {place}, {names} FROM idem_audit WHERE id = 3") == place


@pytest.mark.parametrize("place", [1, 5, N])
def test_a_row_inserted_between_is_found(chain, place):
    names = ", ".join(COLUMNS[1:])
    assert chain(f"UPDATE idem_audit SET id = -id WHERE id >= {place}",
                 "UPDATE idem_audit SET id = 1 - id WHERE id < 0",
                 f"INSERT INTO idem_audit SELECT {place}, {names} FROM idem_audit WHERE id = 4") == place


@pytest.mark.parametrize("place", [N + 1, N + 5, 2**63 - 1])
def test_a_row_added_at_the_end_without_a_digest_is_found(chain, place):
    names = ", ".join(COLUMNS[1:])
    assert chain(f"INSERT INTO idem_audit SELECT {place}, {names} FROM idem_audit WHERE id = 3") == N + 1


def test_a_cut_off_tail_shows_only_in_the_head_kept_elsewhere(db, chain):
    """What a chain cannot show, and how an operator sees it all the same."""
    head = "SELECT id, digest FROM idem_audit ORDER BY id DESC LIMIT 1"
    kept = db.execute(head).fetchall()[0]
    assert kept[0] == one(db, "SELECT audit_rows FROM idem_health") == N
    assert chain(f"DELETE FROM idem_audit WHERE id > {N - 3}") is None
    assert db.execute(head).fetchall()[0] != kept
    assert db.execute("SELECT 1 FROM idem_audit WHERE id = ? AND digest = ?", kept).fetchall() == []
    # Even one that grows to the same length again cannot have the same head.
    for i in range(4, 7):
        won(db, f"k{i}", operation="pay")
    now = db.execute(head).fetchall()[0]
    assert verify(db) is None and now[0] == kept[0] and now[1] != kept[1]


def test_a_longer_chain_still_holds_the_head_kept_elsewhere(db, chain):
    kept = db.execute("SELECT id, digest FROM idem_audit ORDER BY id DESC LIMIT 1").fetchall()[0]
    for i in range(4, 9):
        won(db, f"k{i}", operation="pay")
    assert db.execute("SELECT 1 FROM idem_audit WHERE id = ? AND digest = ?", kept).fetchall() == [(1,)]


def test_an_empty_chain_is_whole(db):
    assert verify(db) is None and one(db, "SELECT audit_rows FROM idem_health") == 0


def test_concurrent_writers_make_one_chain(db, path):
    from life_kit import CHILD, SO, child
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    policy(db, audit="all")
    script = CHILD + """
db.execute("PRAGMA synchronous = OFF")
for i in range(150):
    key = f"{sys.argv[3]}-{i}"
    token = db.execute("SELECT token FROM idem_claim('t', ?, 'fp')", (key,)).fetchone()[0]
    db.execute("SELECT idem_complete('t', ?, ?, 'x')", (key, token)).fetchone()
"""
    children = [child(script, path, SO, name) for name in ("a", "b")]
    for process in children:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert one(db, "SELECT count(*) FROM idem_audit") == 600 and verify(db) is None

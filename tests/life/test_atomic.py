"""Each write is one statement: whole or not at all, wherever it is called."""
import sqlite3

import pytest
from life_kit import (LEASE, RETENTION, T, clock, complete, connect, fresh, one, policy, refused,
                      won)

TOKEN = "the-token-of-attempt-1"
CALLS = {
    "claim": "idem_claim('t', 'new', 'fp')",
    "claim again": "idem_claim('t', 'released', 'fp')",
    "take over": "idem_claim('t', 'stale', 'fp', 'retry')",
    "note a replay": "idem_claim('t', 'done', 'fp')",
    "complete": f"idem_complete('t', 'open', '{TOKEN}', 'answer', 201)",
    "release": f"idem_release('t', 'open', '{TOKEN}')",
    "suspend": f"idem_suspend('t', 'open', '{TOKEN}')",
    "renew": f"idem_renew('t', 'open', '{TOKEN}')",
    "checkpoint": f"idem_checkpoint('t', 'open', '{TOKEN}', 'point')",
    "resolve completed": "idem_resolve('t', 'unknown', 'completed', 'x')",
    "resolve retry": "idem_resolve('t', 'unknown', 'retry')",
    "seen": "idem_seen('s', 'event')",
    "purge": "idem_purge()",
}
SHAPES = {
    "select": "SELECT {}",
    "carrier": "INSERT INTO idem_call DEFAULT VALUES RETURNING {}",
    "insert values": "INSERT INTO business(x) VALUES ({})",
    "insert select": "INSERT INTO business(x) SELECT {}",
    "update": "UPDATE business SET x = {} WHERE id = 1",
}


@pytest.fixture
def db(path):
    db = fresh(path)
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    policy(db, audit="all")
    policy(db, "retry", audit="all", on_stale="retry", lease_ms=1)
    policy(db, "brief", audit="all", retention_ms=1)
    db.execute("CREATE TABLE business(id INTEGER PRIMARY KEY, x NOT NULL, ok INTEGER NOT NULL DEFAULT 1 "
               "CHECK (ok = 1))")
    db.execute("INSERT INTO business(x) VALUES ('first')")
    won(db, "open", token=TOKEN)
    won(db, "stale", operation="retry")
    one(db, "SELECT idem_release('t', 'released', ?)", won(db, "released"))
    one(db, "SELECT idem_suspend('t', 'unknown', ?)", won(db, "unknown"))
    complete(db, "done", won(db, "done"))
    complete(db, "brief", won(db, "brief", operation="brief"))
    clock(db, T + 1000)
    yield db
    db.close()


def everything(path):
    """All rows of all tables, as another connection sees them."""
    plain = sqlite3.connect(path)
    rows = {table: plain.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("idem_store", "idem_inbox", "idem_audit", "business")}
    plain.close()
    return rows


def run(db, call, shape):
    return db.execute(SHAPES[shape].format(CALLS[call])).fetchall()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("call", CALLS)
def test_autocommit(db, path, call, shape):
    before = everything(path)
    run(db, call, shape)
    after = everything(path)
    assert not db.in_transaction
    changed = {table for table in after if after[table] != before[table]}
    if shape in ("insert values", "insert select", "update"):
        assert "business" in changed
    assert changed - {"business"} != set()
    assert one(db, "SELECT idem_audit_verify()") is None
    # Nothing keeps a lock: another connection writes at once.
    other = sqlite3.connect(path, timeout=0, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    other.execute("ROLLBACK")
    other.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT outermost"])
@pytest.mark.parametrize("call", CALLS)
def test_transaction(db, path, call, shape, begin):
    before = everything(path)
    db.execute(begin)
    run(db, call, shape)
    assert everything(path) == before                      # nobody sees it yet
    db.execute("ROLLBACK")
    assert everything(path) == before
    db.execute(begin)
    run(db, call, shape)
    db.execute("COMMIT")
    assert everything(path) != before
    assert one(db, "SELECT idem_audit_verify()") is None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("call", CALLS)
def test_savepoint_that_is_rolled_back(db, path, call, shape):
    before = everything(path)
    db.execute("BEGIN")
    db.execute("INSERT INTO business(x) VALUES ('kept')")
    db.execute("SAVEPOINT s")
    run(db, call, shape)
    db.execute("ROLLBACK TO s")
    db.execute("RELEASE s")
    db.execute("COMMIT")
    after = everything(path)
    assert after.pop("business")[-1][1] == "kept"
    before.pop("business")
    assert after == before
    assert one(db, "SELECT idem_audit_verify()") is None


FAILING = {
    "insert values": "INSERT INTO business(x, ok) VALUES ({}, 2)",
    "insert select": "INSERT INTO business(x, ok) SELECT {}, 2",
    "update": "UPDATE business SET x = {}, ok = 2 WHERE id = 1",
}


@pytest.mark.parametrize("shape", FAILING)
@pytest.mark.parametrize("call", CALLS)
def test_an_outer_write_that_fails_takes_the_call_with_it(db, path, call, shape):
    before = everything(path)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        db.execute(FAILING[shape].format(CALLS[call])).fetchall()
    assert not db.in_transaction
    assert everything(path) == before
    run(db, call, "select")                                # and nothing is left half done
    assert everything(path) != before


@pytest.mark.parametrize("call", CALLS)
def test_the_same_in_a_transaction_that_is_then_rolled_back(db, path, call):
    before = everything(path)
    for sql in FAILING.values():
        db.execute("BEGIN")
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            db.execute(sql.format(CALLS[call])).fetchall()
        assert db.in_transaction
        db.execute("ROLLBACK")
        assert everything(path) == before


REFUSED = {
    "claim": "idem_claim('t', '', 'fp')",
    "complete": "idem_complete('t', 'open', 'a-token-that-is-wrong', 'x')",
    "complete twice": "idem_complete('t', 'done', 'a-token-that-is-wrong', 'x')",
    "release": "idem_release('t', 'open', 'a-token-that-is-wrong')",
    "suspend": "idem_suspend('t', 'open', 'a-token-that-is-wrong')",
    "renew": "idem_renew('t', 'open', 'a-token-that-is-wrong')",
    "checkpoint": f"idem_checkpoint('t', 'open', '{TOKEN}', '')",
    "resolve": "idem_resolve('t', 'open', 'retry')",
    "seen": "idem_seen('s', '')",
    "purge": "idem_purge(0)",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("call", REFUSED)
def test_a_refused_call_leaves_nothing_behind(db, path, call, shape):
    before = everything(path)
    sql = SHAPES[shape].format(REFUSED[call])
    for begin, end in ((None, None), ("BEGIN", "COMMIT"), ("BEGIN IMMEDIATE", "COMMIT")):
        if begin:
            db.execute(begin)
        with pytest.raises(sqlite3.Error) as error:
            db.execute(sql).fetchall()
        assert str(error.value).startswith("idem_")
        assert db.in_transaction == bool(begin)            # the transaction is the caller's to end
        if end:
            db.execute(end)
        assert everything(path) == before


def test_a_lost_claim_takes_the_business_rows_with_it(db, path):
    """The error of a superseded worker reaches the application, which rolls back."""
    before = everything(path)
    with pytest.raises(sqlite3.IntegrityError, match="claim lost"):
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute("INSERT INTO business(x) VALUES ('charged twice')")
            db.execute("SELECT idem_complete('t', 'open', 'a-token-that-is-wrong', 'x')").fetchall()
            db.execute("COMMIT")
        except sqlite3.Error:
            db.execute("ROLLBACK")
            raise
    assert everything(path) == before


@pytest.mark.parametrize("stale", [False, True], ids=["locked", "stale"])
@pytest.mark.parametrize("form", ["SELECT json_extract(idem_claim('t', ?, 'fp'), '$.outcome')",
                                  "SELECT outcome FROM idem_claim('t', ?, 'fp')"])
def test_what_needs_no_write_waits_for_nobody(db, path, form, stale):
    """Another connection writes, or has written since this transaction began: answers come all the
    same, the note that 'exhausted' makes can wait, and so can a completion done elsewhere."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA busy_timeout = 0")
    other = connect(path, init=False)
    clock(other, T)
    policy(db, "once", max_attempts=1, audit="exceptions")
    policy(db, "*", audit="exceptions")
    once = won(db, "once", operation="once")
    assert one(db, "SELECT idem_release('t', 'once', ?)", once) == 1
    token = won(db, "finished")
    complete(other, "finished", token)
    if stale:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM idem_policy").fetchone()
        won(other, "meanwhile")
    else:
        other.execute("BEGIN IMMEDIATE")
    complete(db, "finished", token)
    refused(db, "SELECT idem_complete('t', 'finished', ?, 'another answer')", token, text="with another answer",
            code="SQLITE_CONSTRAINT")
    assert one(db, form, "finished") == "replay"
    assert one(db, form.replace("'fp'", "'fp', 'once'"), "once") == "exhausted"
    assert one(db, "SELECT count(*) FROM idem_audit WHERE event = 'exhausted'") == 0
    for connection in (db, other):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    assert one(db, form.replace("'fp'", "'fp', 'once'"), "once") == "exhausted"
    assert one(db, "SELECT count(*) FROM idem_audit WHERE event = 'exhausted'") == 1
    other.close()


def test_a_completion_that_must_write_says_why_it_cannot(db, path):
    db.execute("PRAGMA busy_timeout = 0")
    other = connect(path, init=False)
    token = won(db, "mine")
    other.execute("BEGIN IMMEDIATE")
    refused(db, "SELECT idem_complete('t', 'mine', ?, 'answer')", token, text="database is locked", code="SQLITE_BUSY",
            begins="idem_complete:")
    other.execute("ROLLBACK")
    complete(db, "mine", token)
    other.close()

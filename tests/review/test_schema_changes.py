"""The schema may change, and temp.idem_claim may vanish: calls go on, and cost what they cost before.

What was wrong:
- every function created temp.idem_claim again where it was missing, pure ones too, and below a statement that
  writes. SQLite then ended that statement: INSERT ... SELECT idem_derive_key(...) failed, and so did REINDEX of
  an index on such a function, once PRAGMA temp_store had dropped the temp tables;
- after VACUUM or a change of the schema by another connection the table was there, but not connected: every
  call tried to create it, failed, and kept no statement prepared;
- a listing that met a change of the schema at every attempt gave up without an error: no rows.
"""
import sqlite3

import pytest

from conftest import claim, connect, needs_authorizer, needs_trace, one


def without_table(path):
    """A connection that has lost temp.idem_claim: PRAGMA temp_store drops every temp table."""
    db = connect(path, init=False)
    db.execute("PRAGMA temp_store = 2")
    assert one(db, "SELECT count(*) FROM temp.sqlite_schema") == 0
    return db


@pytest.fixture
def store(path):
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("CREATE TABLE t(a)")
    db.execute("INSERT INTO t VALUES('k1'), ('k2'), ('k3')")
    db.close()
    return path


WRITES = {
    "INSERT INTO t SELECT idem_derive_key(a,'x') FROM t": "SELECT count(*) = 6 FROM t",
    "CREATE TABLE copy AS SELECT idem_derive_key(a,'x') AS d FROM t": "SELECT count(*) = 3 FROM copy",
    "CREATE INDEX i ON t(idem_derive_key(a,'x'))":
        "SELECT count(*) = 3 FROM t INDEXED BY i WHERE idem_derive_key(a,'x') > ''",
    "INSERT INTO t SELECT idem_claim('s',a,'fp') FROM t": "SELECT count(*) = 3 FROM main.idem_store",
    "INSERT INTO t SELECT idem_seen('s',a) FROM t": "SELECT count(*) = 3 FROM main.idem_inbox",
}


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_calls_idem(store, write, in_transaction):
    db = without_table(store)
    if in_transaction:
        db.execute("BEGIN")
        db.execute("INSERT INTO t SELECT 'k4' WHERE 0")
    db.execute(write)
    if in_transaction:
        assert db.in_transaction
        db.execute("COMMIT")
    assert one(db, WRITES[write]) == 1
    assert one(db, "PRAGMA integrity_check") == "ok"
    db.close()


def test_an_index_on_a_function(store):
    db = connect(store, init=False)
    db.execute("CREATE INDEX i ON t(idem_derive_key(a,'x'))")
    db.close()
    for sql in ("REINDEX", "REINDEX i", "INSERT INTO t VALUES('k4'), ('k5')", "DELETE FROM t WHERE a = 'k4'",
                "VACUUM", "ANALYZE", "UPDATE t SET a = a || '.'"):
        db = without_table(store)
        db.execute(sql)
        assert one(db, "PRAGMA integrity_check") == "ok", sql
        db.close()
    db = connect(store, init=False)
    assert db.execute("SELECT a FROM t ORDER BY 1").fetchall() == [("k1.",), ("k2.",), ("k3.",), ("k5.",)]
    db.close()


def test_init_brings_the_table_form_back(store):
    db = connect(store, init=False)
    assert claim(db, "a")["outcome"] == "claimed"
    for key in ("b", "c"):
        db.execute("PRAGMA temp_store = 1")
        db.execute("PRAGMA temp_store = 2")
        with pytest.raises(sqlite3.OperationalError, match="idem_claim"):
            claim(db, key)
        assert one(db, "SELECT idem_init()") == 1
        assert claim(db, key)["outcome"] == "claimed"
    db.close()


class Prepared:
    """Counts what is prepared on a connection: SQLite asks the authorizer for each table that is touched."""
    def __init__(self, db):
        self.seen = []
        db.set_authorizer(self)

    def __call__(self, action, first, second, schema, trigger):
        self.seen.append((action, first, second, schema))
        return sqlite3.SQLITE_OK


def changed_by_another(path, db):
    other = connect(path, init=False, load=False)
    other.execute("CREATE TABLE of_another(a)")
    other.close()


CHANGES = {
    "by-another": changed_by_another,
    "vacuum": lambda path, db: db.execute("VACUUM"),
    "both": lambda path, db: (db.execute("VACUUM"), changed_by_another(path, db)),
}
CALLS = ["SELECT idem_purge()", "SELECT idem_claim('t','k','fp')", "SELECT idem_seen('s','e')",
         "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','k','fp')",
         "INSERT INTO t SELECT idem_claim('t','k','fp')"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("change", CHANGES)
@needs_authorizer
def test_after_a_change_of_the_schema_statements_are_kept_again(store, change, call):
    db = connect(store, init=False)
    one(db, "SELECT idem_claim('t','k','fp')")
    prepared = Prepared(db)
    CHANGES[change](store, db)
    for _ in range(2):  # one call to notice, one to prepare what the first left out
        db.execute(call).fetchall()
    assert prepared.seen
    prepared.seen.clear()
    for _ in range(20):
        db.execute(call).fetchall()
    assert prepared.seen == []
    db.set_authorizer(None)
    assert claim(db, "k")["outcome"] == "in_progress"
    db.close()


@needs_trace
def test_a_listing_while_the_schema_keeps_changing(store):
    """Between each look at the schema and the first row it changes once more."""
    db = connect(store, init=False)
    for key in ("a", "b"):
        claim(db, key)
    changes = []

    def change(text):
        if "FROM main.idem_store r" in text and len(changes) < 200:
            db.set_trace_callback(None)
            changes.append(f"CREATE TABLE change_{len(changes)}(a)")
            db.execute(changes[-1])
            db.set_trace_callback(change)

    db.set_trace_callback(change)
    try:
        rows = db.execute("SELECT key FROM idem_records").fetchall()
    except sqlite3.OperationalError:
        rows = None
    db.set_trace_callback(None)
    assert changes, "the test no longer changes the schema in time"
    assert rows is None or sorted(rows) == [("a",), ("b",)]
    assert sorted(db.execute("SELECT key FROM idem_records").fetchall()) == [("a",), ("b",)]
    db.close()

"""idem_init() that fails leaves nothing behind: no object, no wrong picture of the schema, no
listing that fails.

What was wrong:
- a temp table or view that bore a name of the store took the store's triggers and indexes: main was
  left with half a store, committed, and never got the rest;
- after an idem_init() that could not look at the schema (a lock, an interrupt), every listing
  without a row failed: "lost 50 races in a row".
"""
import sqlite3

import pytest

from conftest import claim, connect, one, needs_authorizer

TEMP_OBJECTS = {
    "idem_policy": "operation",
    "idem_store": "id, state, due_at, audit_event",
    "idem_inbox": "expires_at",
    "idem_audit": "id",
    "idem_audit_entry": "at, event, scope, key, operation, attempt, detail",
}


def names(db, schema):
    return {name for name, in db.execute(f"SELECT name FROM {schema}.sqlite_schema").fetchall()}


@pytest.mark.parametrize("outer", ["SELECT idem_init()",
                                   "INSERT INTO idem_call SELECT idem_init()"])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("table", TEMP_OBJECTS)
def test_a_temp_object_of_the_same_name(path, table, begin, outer):
    db = connect(path, init=False)
    if table == "idem_audit_entry":
        db.execute(f"CREATE TEMP VIEW {table}({TEMP_OBJECTS[table]}) AS SELECT 1, 2, 3, 4, 5, 6, 7")
    else:
        db.execute(f"CREATE TEMP TABLE {table}({TEMP_OBJECTS[table]})")
    before = names(db, "temp")
    if begin:
        db.execute(begin)
        db.execute("CREATE TABLE mine(a)")
    with pytest.raises(sqlite3.OperationalError, match=rf"temp\.{table} is not as idem created it"):
        db.execute(outer).fetchall()
    if begin:
        db.execute("INSERT INTO mine VALUES(1)")
        db.execute("COMMIT")
    assert names(db, "main") == ({"mine"} if begin else set())
    assert names(db, "temp") == before
    db.execute(f"DROP {'VIEW' if table == 'idem_audit_entry' else 'TABLE'} temp.{table}")
    assert one(db, "SELECT idem_init()") == 1
    assert claim(db, "k")["outcome"] == "claimed"
    assert one(db, "PRAGMA integrity_check") == "ok"
    db.close()


@pytest.mark.parametrize("tables", range(22, 28))
@needs_authorizer
def test_what_was_undone_is_forgotten(path, tables):
    """SQLite undoes the tables, but not its memory of them, until it meets another schema cookie.
    If other connections bring the cookie to where it would have been, it reads their tables as the
    store's."""
    db, other = connect(path, init=False), connect(path, init=False)
    deny = (sqlite3.SQLITE_INSERT, "idem_policy")
    db.set_authorizer(lambda action, name, *rest: sqlite3.SQLITE_DENY if (action, name) == deny
                      else sqlite3.SQLITE_OK)
    db.execute("BEGIN")
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        one(db, "SELECT idem_init()")
    db.execute("COMMIT")
    db.set_authorizer(None)
    other.execute("BEGIN")
    for i in range(tables):
        other.execute(f"CREATE TABLE t{i}(a)")
    other.execute("COMMIT")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        db.execute("SELECT * FROM idem_meta").fetchall()
    assert one(db, f"SELECT count(*) FROM t{tables - 1}") == 0
    other.close()
    db.close()


LISTINGS = ["SELECT key FROM idem_records",
            "SELECT key FROM idem_records WHERE scope = 't' AND key = 'none'",
            "SELECT key FROM idem_records WHERE scope = 'nobody'",
            "SELECT key FROM idem_records WHERE rowid = 9",
            "SELECT key FROM idem_records WHERE state = 'released'"]


def test_listings_after_an_init_that_could_not_look(path):
    db, other = connect(path, timeout=0), connect(path, timeout=0)
    for sql in LISTINGS:
        assert db.execute(sql).fetchall() == []
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        one(db, "SELECT idem_init()")
    other.execute("COMMIT")
    for sql in LISTINGS:
        assert db.execute(sql).fetchall() == []
    assert one(other, "SELECT idem_init()") == 1
    other.close()
    db.close()

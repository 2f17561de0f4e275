"""Deciding from memory: what a connection remembers of its last claim must never outweigh the store.

What was wrong: a write counted as done when the connection's total of changed rows had moved, which rows of a temp
trigger move as well; and a completion from memory took the remembered operation's policy for the record's.
"""
import sqlite3

import pytest

from conftest import claim, connect, needs_trace, one, policy, record

TOKEN = "token-of-try-000010"
TRIGGER = "CREATE TEMP TRIGGER noisy BEFORE {} ON main.idem_store BEGIN INSERT INTO log VALUES (1); {} END"

FORMS = {
    "table": "SELECT outcome FROM idem_claim('t', ?, 'fp')",
    "scalar": "SELECT substr(idem_claim('t', ?, 'fp'), 13, 7)",
    "carrier": "INSERT INTO idem_call DEFAULT VALUES RETURNING substr(idem_claim('t', ?, 'fp'), 13, 7)",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("begin", ["", "BEGIN", "BEGIN IMMEDIATE"])
@pytest.mark.parametrize("audit", ["exceptions", "all"])
def test_rows_of_a_temp_trigger_are_no_claim(db, path, form, begin, audit):
    other = connect(path)
    policy(other, audit=audit)
    claim(other, "done", token=TOKEN)
    one(other, "SELECT idem_complete('t', 'done', ?, 'answer')", TOKEN)
    claim(other, "live", token=TOKEN)
    db.execute("CREATE TEMP TABLE log(x)")
    db.execute(TRIGGER.format("INSERT", ""))
    if begin:
        db.execute(begin)
    for n in range(3):
        assert db.execute(FORMS[form], (f"new-{n}",)).fetchall()[0][0].startswith("claimed")
        assert db.execute(FORMS[form], ("done",)).fetchall()[0][0].startswith("replay")
        assert db.execute(FORMS[form], ("live",)).fetchall()[0][0].startswith("in_prog")
    if begin:
        db.execute("COMMIT")
    assert record(other, "live")["token"] == TOKEN
    other.close()


def test_a_completion_that_a_temp_trigger_ignores_is_not_done(db):
    claim(db, "k", token=TOKEN)
    db.execute("CREATE TEMP TABLE log(x)")
    db.execute(TRIGGER.format("UPDATE", "SELECT RAISE(IGNORE);"))
    with pytest.raises(sqlite3.Error, match="lost 1000 races"):
        one(db, "SELECT idem_complete('t', 'k', ?, 'answer')", TOKEN)
    assert record(db, "k")["state"] == "processing"


def test_a_completion_takes_the_policy_of_the_records_own_operation(db, path):
    other = connect(path)
    policy(db, "short", retention_ms=1000)
    policy(db, "long", retention_ms=86400000, audit="all")
    for c in (db, other):
        one(c, "SELECT idem_clock(1700000000000)")
    db.execute("BEGIN IMMEDIATE")
    claim(db, "k", operation="short", token=TOKEN)
    db.execute("ROLLBACK")
    claim(other, "k", operation="long", token=TOKEN)
    assert one(db, "SELECT idem_complete('t', 'k', ?, 'answer')", TOKEN) == 1
    row = record(db, "k")
    assert row["due_at"] - row["completed_at"] == 86400000
    events = [e for (e,) in db.execute("SELECT event FROM idem_audit ORDER BY id").fetchall()]
    assert events == ["claim", "complete"]
    other.close()


def test_a_completion_said_before_needs_no_write(db, path):
    other = connect(path)
    claim(db, "k", token=TOKEN)
    one(other, "SELECT idem_complete('t', 'k', ?, 'answer')", TOKEN)
    db.execute("PRAGMA query_only = 1")
    assert one(db, "SELECT idem_complete('t', 'k', ?, 'answer')", TOKEN) == 1
    other.close()


def test_calls_do_not_abort_the_statement_they_stand_in(db):
    """PRAGMA temp_store drops the table form; bringing it back below a statement that reads would abort that."""
    db.execute("CREATE TABLE t(a)")
    db.execute("INSERT INTO t VALUES (1), (2)")
    db.execute("PRAGMA temp_store = 2").fetchall()
    rows = db.execute("SELECT json_extract(idem_claim('t', 'k', 'fp'), '$.outcome'), (SELECT count(*) FROM t)").fetchall()
    assert rows == [("claimed", 2)]
    cursor = db.execute("SELECT a, (SELECT max(a) FROM t WHERE a <= outer.a) FROM t AS outer")
    assert cursor.fetchone() == (1, 1)
    one(db, "SELECT json_extract(idem_claim('t', 'k2', 'fp'), '$.outcome')")
    assert cursor.fetchone() == (2, 2)
    cursor.close()
    one(db, "SELECT idem_init()")
    assert claim(db, "k3")["outcome"] == "claimed"


@needs_trace
def test_the_table_may_be_dropped_while_the_library_works(db):
    """From a trace callback, which runs in the middle of things: it crashed."""
    db.execute("CREATE TEMP TABLE single AS SELECT 1 AS x")
    hits = []

    def drop(sql):
        if "idem_store" in sql and not hits:
            hits.append(sql)
            db.execute("DROP TABLE IF EXISTS temp.idem_claim")

    for n in range(3):
        hits.clear()
        db.set_trace_callback(drop)
        try:
            db.execute("SELECT idem_claim('t', ?, 'fp') FROM temp.single", (f"k{n}",)).fetchall()
        except sqlite3.Error:
            pass  # refused is fine, crashed is not
        db.set_trace_callback(None)
        assert hits
        one(db, "SELECT idem_init()")
        assert claim(db, f"after-{n}")["outcome"] == "claimed"

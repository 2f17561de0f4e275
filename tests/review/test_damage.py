"""A damaged record fails the calls on it, and nothing else.

What was wrong: such a call failed with SQLITE_CORRUPT, which SQLite takes for damage of the file that it found
itself: it made the rest of the caller's transaction read-only, and the work that had nothing to do with the
record was lost. And one row with an absurd tombstone_ms made every purge fail, so that nothing was purged
any more.
"""
import sqlite3

import pytest

from conftest import claim, connect, one, record

TOKEN = "token-0123456789"
DAMAGE = {
    "due_at": "due_at=-5",
    "attempt": "attempt=0",
    "granted": "granted=7",
    "created_at": "created_at=-1",
}
CALLS = {
    "scalar": "SELECT idem_claim('t','k','fp')",
    "table": "SELECT * FROM idem_claim('t','k','fp')",
    "carrier": "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','k','fp')",
    "insert": f"INSERT INTO idem_records(scope,key,fingerprint,token) VALUES('t','k','fp','{TOKEN}')",
    "release": f"SELECT idem_release('t','k','{TOKEN}')",
    "renew": f"SELECT idem_renew('t','k','{TOKEN}')",
    "resolve": "SELECT idem_resolve('t','k','retry')",
    "listing": "SELECT * FROM idem_records",
    "update": f"UPDATE idem_records SET state='unknown' WHERE scope='t' AND key='k' AND token='{TOKEN}'",
    "erase": "DELETE FROM idem_records WHERE scope='t' AND key='k'",
}


@pytest.fixture
def damaged(path):
    """Returns a function that damages the record 'k'. The file is read by a new connection."""
    opened = []

    def damage(assignment):
        db = connect(path)
        db.execute("PRAGMA journal_mode = WAL").fetchall()
        db.execute("CREATE TABLE business(what)")
        claim(db, "k", token=TOKEN)
        assert db.execute(f"UPDATE main.idem_store SET {assignment} WHERE key='k'").rowcount == 1
        db.close()
        opened.append(connect(path, init=False))
        return opened[-1]

    yield damage
    for db in opened:
        db.close()


def fails_as_corrupt(db, sql):
    with pytest.raises(sqlite3.DatabaseError) as failed:
        db.execute(sql).fetchall()
    assert failed.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_CORRUPT, failed.value
    return str(failed.value)


@pytest.mark.parametrize("call", CALLS)
def test_the_rest_of_the_transaction_commits(damaged, call):
    db = damaged(DAMAGE["due_at"])
    before = record(db, "k")
    db.execute("BEGIN")
    db.execute("INSERT INTO business VALUES('before')")
    assert "due_at" in fails_as_corrupt(db, CALLS[call])
    db.execute("INSERT INTO business VALUES('after')")
    assert claim(db, "healthy")["outcome"] == "claimed"
    db.execute("COMMIT")
    assert db.execute("SELECT what FROM business").fetchall() == [("before",), ("after",)]
    assert record(db, "healthy")["state"] == "processing"
    assert record(db, "k") == before


@pytest.mark.parametrize("column", DAMAGE)
def test_whatever_is_damaged(damaged, column):
    db = damaged(DAMAGE[column])
    db.execute("BEGIN")
    assert column in fails_as_corrupt(db, CALLS["scalar"])
    db.execute("INSERT INTO business VALUES('after')")
    db.execute("COMMIT")
    assert one(db, "SELECT count(*) FROM business") == 1


ABSURD = ["tombstone_ms=9223372036854775807", "tombstone_ms=9223372036854775802",
          "due_at=-5, tombstone_ms=-9223372036854775808", "tombstone_ms=NULL", "tombstone_ms=-1"]
LONGEST = 200 * 365 * 86400000


@pytest.mark.parametrize("assignment", ABSURD)
def test_one_absurd_row_does_not_stop_every_purge(db, assignment):
    for key in ("k", "other"):
        claim(db, key, token=TOKEN)
        one(db, "SELECT idem_complete('t',?,?,'personal data')", key, TOKEN)
    db.execute("UPDATE main.idem_store SET due_at = 5")
    db.execute(f"UPDATE main.idem_store SET {assignment} WHERE key = 'k'")
    assert one(db, "SELECT idem_purge()") == 2
    for key in ("k", "other"):
        row = record(db, key)
        assert (row["state"], row["response"], row["token"]) == ("tombstone", None, None)
    # a time that cannot be is taken for the longest: nothing is run again because of it
    assert record(db, "k")["due_at"] in (5 + LONGEST, 0 + LONGEST)
    one(db, "SELECT idem_purge()")
    assert record(db, "other") is None
    assert one(db, "SELECT idem_purge()") == 0


def test_a_record_that_is_over_before_it_is_erased(db):
    """DELETE lists first and erases then; a record whose time ends in between is gone already: no error."""
    for key in ("a", "b"):
        claim(db, key, token=TOKEN)
        one(db, "SELECT idem_complete('t',?,?,'x')", key, TOKEN)
    row = record(db, "a")
    end = row["due_at"] + row["tombstone_ms"]
    one(db, "SELECT idem_clock(?)", end - 1)
    assert one(db, "SELECT count(*) FROM idem_records") == 2
    # the clock moves on while the rows are being looked for
    db.execute("DELETE FROM idem_records WHERE scope='t' AND idem_clock(?) > 0", (end + 1,))
    assert db.execute("SELECT key FROM idem_records").fetchall() == []
    assert claim(db, "a")["outcome"] == "claimed"

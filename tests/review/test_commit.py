"""A write counts when its commit has succeeded, and not when the statement has given its first row.

What was wrong: under PRAGMA count_changes every INSERT, UPDATE and DELETE gives a row, and gives it before it
commits. idem took that row for the end and reset the statement. In a rollback journal the commit must wait for
every reader to leave; if it could not, the reset rolled the write back in silence: the caller was told
'claimed', and nothing was stored, so that the next caller was told 'claimed' as well.
"""
import sqlite3

import pytest

from conftest import claim, connect, one, policy, record

TOKEN, OTHER = "token-of-the-first", "token-of-the-other"
DAY = 86400000

CLAIM = "idem_claim('t','k','fp',NULL,:token)"
FORMS = {
    "claim": [f"SELECT {CLAIM}", f"INSERT INTO idem_call DEFAULT VALUES RETURNING {CLAIM}",
              "INSERT INTO idem_records(scope,key,fingerprint,token) VALUES('t','k','fp',:token)"],
    "claim table": [f"SELECT outcome FROM {CLAIM}"],
    "claim from temp": [f"SELECT {CLAIM} FROM temp.one_row"],
    "claim table from temp": [f"SELECT c.outcome FROM temp.one_row, {CLAIM} AS c"],
    "audited": ["SELECT idem_claim('t','k','fp','audited',:token)"],
    "audited table": ["SELECT outcome FROM idem_claim('t','k','fp','audited',:token)"],
    "retry": ["SELECT idem_claim('t','free','fp',NULL,'token-of-attempt-2')"],
    "seen": ["SELECT idem_seen('source','event')"],
    "seen from temp": ["SELECT idem_seen('source','event') FROM temp.one_row"],
    "complete": ["SELECT idem_complete('t','held',:token,'answer',200)",
                 "UPDATE idem_records SET state='completed', response='answer'"
                 " WHERE scope='t' AND key='held' AND token=:token"],
    "complete from temp": ["SELECT idem_complete('t','held',:token,'answer',200) FROM temp.one_row"],
    "release": ["SELECT idem_release('t','held',:token)"],
    "suspend": ["SELECT idem_suspend('t','held',:token)"],
    "renew": ["SELECT idem_renew('t','held',:token)"],
    "checkpoint": ["SELECT idem_checkpoint('t','held',:token,'half-way')"],
    "resolve": ["SELECT idem_resolve('t','dark','retry')"],
    "purge": ["SELECT idem_purge()"],
    "purge from temp": ["SELECT idem_purge() FROM temp.one_row"],
}


def contents(db):
    """Everything that idem stores."""
    return [db.execute(f"SELECT * FROM main.{table} ORDER BY 1").fetchall()
            for table in ("idem_store", "idem_inbox", "idem_audit", "idem_meta")]


@pytest.fixture
def writer(path):
    """A connection in DELETE mode that counts changes and does not wait."""
    db = connect(path, timeout=0)
    assert one(db, "PRAGMA journal_mode = DELETE") == "delete"
    db.execute("PRAGMA synchronous = OFF")
    db.execute("CREATE TEMP TABLE one_row AS SELECT 1 AS a")
    policy(db, "audited", audit="all")
    one(db, "SELECT idem_clock(idem_clock() - ?)", 2 * DAY)
    claim(db, "old", token=TOKEN)
    one(db, "SELECT idem_complete('t','old',?,'x')", TOKEN)
    one(db, "SELECT idem_clock(NULL)")
    for key in ("held", "dark", "free", "done"):
        assert claim(db, key, token=TOKEN)["outcome"] == "claimed"
    one(db, "SELECT idem_suspend('t','dark',?)", TOKEN)
    one(db, "SELECT idem_release('t','free',?)", TOKEN)
    one(db, "SELECT idem_complete('t','done',?,'x')", TOKEN)
    db.execute("PRAGMA count_changes = 1")
    yield db
    db.close()


@pytest.mark.parametrize("form", FORMS)
def test_a_commit_that_fails_is_no_success(path, writer, form):
    reader = connect(path, load=False, init=False)
    before = contents(reader)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM idem_policy").fetchall()
    for sql in FORMS[form]:
        with pytest.raises(sqlite3.OperationalError) as failed:
            writer.execute(sql, {"token": TOKEN}).fetchall()
        assert failed.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_BUSY
        assert "database is locked" in str(failed.value)  # and not 1000 attempts taken for lost races
        assert not writer.in_transaction
    reader.execute("COMMIT")
    assert contents(reader) == before
    writer.execute(FORMS[form][0], {"token": TOKEN}).fetchall()  # when the reader has left it works
    assert contents(reader) != before
    reader.close()


def test_two_callers_are_not_both_told_claimed(path, writer):
    """The harm of it: the second caller found nothing and ran the operation again."""
    writer.execute("PRAGMA busy_timeout = 100")
    reader, second = connect(path, load=False, init=False), connect(path, init=False)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM idem_policy").fetchall()
    told = []
    for db, token in ((writer, TOKEN), (second, OTHER)):
        try:
            told.append(claim(db, "k", token=token)["outcome"])
        except sqlite3.OperationalError:
            told.append("busy")
        if reader.in_transaction:
            reader.execute("COMMIT")
    assert told == ["busy", "claimed"]
    assert record(second, "k")["token"] == OTHER
    reader.close()
    second.close()

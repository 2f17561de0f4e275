"""What can go wrong with an answer goes wrong before the claim is written, not after it.

What was wrong:
- the JSON of the scalar form could exceed SQLITE_LIMIT_LENGTH (a checkpoint of control characters grows
  sixfold). The call failed after the claim had been stored: the caller learned no token, and the next caller
  was told 'in progress' until the lease was over;
- in FROM idem_claim('t','k','fp') WHERE key='k' there are two constraints on the hidden column key. One became
  the argument; the other was checked on a row whose hidden columns are NULL, so that the claim was made and its
  row thrown away.
"""
import sqlite3

import pytest

from conftest import claim, connect, one, policy, record

TOKEN, NEXT = "token-0123456789", "token-of-attempt-2"
LIMIT = 400_000


@pytest.fixture
def resumable(db):
    """A released record with a checkpoint that is short as it is, and long as JSON."""
    policy(db, "audited", audit="all")
    for key, operation in (("k", None), ("audited", "audited")):
        claim(db, key, operation=operation, token=TOKEN)
        one(db, "SELECT idem_checkpoint('t',?,?,'half-way',?)", key, TOKEN, "\x01" * 100_000)
        one(db, "SELECT idem_release('t',?,?)", key, TOKEN)
    return db


@pytest.mark.parametrize("key", ["k", "audited"])
@pytest.mark.parametrize("form", ["SELECT {}", "INSERT INTO idem_call DEFAULT VALUES RETURNING {}"])
def test_json_that_is_too_long(resumable, key, form):
    db, before = resumable, record(resumable, key)
    operation = "audited" if key == "audited" else None
    call = form.format("idem_claim('t',?,'fp',?,?)")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LIMIT)
    events = one(db, "SELECT count(*) FROM idem_audit")
    with pytest.raises(sqlite3.DataError) as failed:
        db.execute(call, (key, operation, NEXT)).fetchall()
    assert failed.value.sqlite_errorcode == sqlite3.SQLITE_TOOBIG
    assert "FROM idem_claim(...)" in str(failed.value)
    assert record(db, key) == before
    assert one(db, "SELECT count(*) FROM idem_audit") == events
    # The typed columns have no such limit.
    row = claim(db, key, operation=operation, token=NEXT)
    assert (row["outcome"], row["attempt"], row["token"]) == ("claimed", 2, NEXT)
    assert row["checkpoint"] == "\x01" * 100_000


@pytest.mark.parametrize("where", [
    "key='k'", "scope='t'", "fingerprint='fp'", "key='k' AND scope='t'", "c.key IN (SELECT 'k')", "key='other'"])
def test_an_argument_is_given_once(path, where):
    db = connect(path)
    with pytest.raises(sqlite3.OperationalError, match="wrong number of arguments"):
        db.execute(f"SELECT outcome FROM idem_claim('t','k','fp') AS c WHERE {where}").fetchall()
    assert one(db, "SELECT count(*) FROM main.idem_store") == 0
    db.close()


@pytest.mark.parametrize("where", ["operation='op'", "claim_token='another-token-0123'"])
def test_an_optional_argument_is_given_once(path, where):
    db = connect(path)
    with pytest.raises(sqlite3.OperationalError, match="wrong number of arguments"):
        db.execute(f"SELECT outcome FROM idem_claim('t','k','fp','op',?) WHERE {where}", (TOKEN,)).fetchall()
    assert one(db, "SELECT count(*) FROM main.idem_store") == 0
    db.close()


@pytest.mark.parametrize("where", [
    "key IS 'k'", "key LIKE 'k%'", "scope >= 't'", "key > 'j' AND key < 'l'", "key BETWEEN 'j' AND 'l'",
    "key <> 'other'", "key IS NOT NULL", "fingerprint GLOB 'fp'", "claim_token IS NOT NULL", "operation > ''"])
def test_an_argument_is_given_by_an_equation(path, where):
    """Any other comparison with a hidden column would hide the row of a claim that has happened."""
    db = connect(path)
    with pytest.raises(sqlite3.OperationalError, match="wrong number of arguments"):
        db.execute(f"SELECT outcome FROM idem_claim('t','k','fp') WHERE {where}").fetchall()
    assert one(db, "SELECT count(*) FROM main.idem_store") == 0
    db.close()

"""The limits that SQLite's page on security advises for hostile SQL, but for the three in the README."""
import sqlite3

import pytest

from conftest import PRAGMAS, SO, claim, connect, one, policy, record

ADVISED = {"LENGTH": 1_000_000, "SQL_LENGTH": 100_000, "COLUMN": 100, "EXPR_DEPTH": 24,
           "COMPOUND_SELECT": 3, "VDBE_OP": 25_000, "FUNCTION_ARG": 24, "ATTACHED": 0,
           "LIKE_PATTERN_LENGTH": 50, "VARIABLE_NUMBER": 24, "TRIGGER_DEPTH": 10}
TOKEN = "token-0123456789"


def tighten(db, limits=ADVISED):
    for name, value in limits.items():
        db.setlimit(getattr(sqlite3, f"SQLITE_LIMIT_{name}"), value)


def live(db, operation):
    """The life of a key, and what beside it has SQL of its own."""
    key = f"key-{operation}"
    assert claim(db, key, operation=operation, token=TOKEN)["outcome"] == "claimed"
    one(db, "SELECT idem_checkpoint('t', ?, ?, 'half', 'data')", key, TOKEN)
    one(db, "SELECT idem_renew('t', ?, ?)", key, TOKEN)
    one(db, "SELECT idem_suspend('t', ?, ?)", key, TOKEN)
    one(db, "SELECT idem_resolve('t', ?, 'retry', 'why')", key)
    assert claim(db, key, operation=operation)["attempt"] == 2
    db.execute("DELETE FROM idem_records WHERE state = 'completed'")
    other = f"other-{operation}"
    claim(db, other, operation=operation, token=TOKEN)
    one(db, "SELECT idem_release('t', ?, ?)", other, TOKEN)
    claim(db, other, operation=operation, token=TOKEN + "2")
    one(db, "SELECT idem_complete('t', ?, ?, 'answer', 201, 'a: b')", other, TOKEN + "2")
    assert claim(db, other, operation=operation)["response"] == "answer"
    assert one(db, "SELECT idem_seen('s', ?, 'fp')", operation) == 1
    db.execute("SELECT * FROM idem_records WHERE state = 'completed' AND expires_at > 5").fetchall()
    db.execute("SELECT * FROM idem_health").fetchall()
    db.execute("SELECT * FROM idem_contract").fetchall()
    assert one(db, "SELECT idem_audit_verify()") is None


def test_the_advised_limits(path):
    first = connect(path, init=False)
    tighten(first)
    one(first, "SELECT idem_init()")
    policy(first, "audited", audit="all")
    live(first, "plain")
    first.close()
    second = connect(path, init=False, load=False)
    tighten(second)                                     # the schema is read under these limits
    second.enable_load_extension(True)
    second.load_extension(SO)
    live(second, "audited")
    one(second, "SELECT idem_clock(idem_clock() + 9000000000)")
    assert one(second, "SELECT idem_purge()") > 0
    second.close()


@pytest.mark.parametrize("name", ["EXPR_DEPTH", "VARIABLE_NUMBER"])
def test_below_them_calls_fail_and_say_so(path, name):
    connect(path).close()
    db = connect(path, init=False)
    tighten(db, {name: 8})
    with pytest.raises(sqlite3.Error, match="^idem_.*(too large|too many)"):
        live(db, "plain")
    assert not db.in_transaction
    tighten(db, ADVISED)
    db.execute("DELETE FROM idem_store")
    live(db, "again")
    db.close()


HALF = "\u20aa" * 170_000                              # twice: 680 kB in UTF-16, 1.02 MB in UTF-8


@pytest.mark.parametrize("verb, args", [
    ("complete", "?||?, 201"), ("checkpoint", "'point', ?||?")])
def test_what_is_too_long_in_utf_8_alone_is_not_lost(path, verb, args):
    """Bound, it would be too long: that must not make a NULL of it."""
    if PRAGMAS:
        pytest.skip("has an encoding of its own")
    raw = connect(path, init=False, load=False)
    raw.executescript("PRAGMA encoding = 'UTF-16'; CREATE TABLE mine(a)")
    raw.close()
    db = connect(path)
    claim(db, "k", token=TOKEN)
    before = record(db, "k")
    tighten(db)
    with pytest.raises(sqlite3.Error, match="^idem_.*too big"):
        db.execute(f"SELECT idem_{verb}('t', 'k', ?, {args})", (TOKEN, HALF, HALF)).fetchall()
    assert record(db, "k") == before and not db.in_transaction
    assert one(db, "SELECT idem_complete('t', 'k', ?, 'short')", TOKEN) == 1
    db.close()

"""What the tests of a record's life share, on top of tests/conftest.py.

The shared module is loaded by its path: other test folders have a conftest of their own, and a plain
"import conftest" would find whichever was imported last.
"""
import importlib.util
import pathlib
import sqlite3
import subprocess
import sys

import pytest

_path = pathlib.Path(__file__).resolve().parent.parent / "conftest.py"
_spec = importlib.util.spec_from_file_location("idem_shared_conftest", _path)
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)

ROOT, SO, DEEP = shared.ROOT, shared.SO, shared.DEEP
connect, one, claim, record, policy = (shared.connect, shared.one, shared.claim, shared.record,
                                       shared.policy)

T = 1_800_000_000_000          # a set clock: the time of the first call of a test
HOUR, DAY = 3_600_000, 86_400_000
LEASE, RETENTION, TOMBSTONE = 60_000, DAY, 30 * DAY   # of the default policy

TOKENS = {
    "complete": "SELECT idem_complete('t', ?, ?, 'answer', 200)",
    "release": "SELECT idem_release('t', ?, ?)",
    "suspend": "SELECT idem_suspend('t', ?, ?)",
    "renew": "SELECT idem_renew('t', ?, ?)",
    "checkpoint": "SELECT idem_checkpoint('t', ?, ?, 'point', 'data')",
}


def fresh(path):
    """A connection on a new store, with its clock set. No test here pulls the plug: syncing is off."""
    db = connect(path, init=False)
    db.execute("PRAGMA synchronous = OFF")
    assert one(db, "SELECT idem_init()") == 1
    clock(db, T)
    return db


def clock(db, ms):
    """Sets the clock of this connection."""
    assert one(db, "SELECT idem_clock(?)", ms) == ms


def won(db, key, **kw):
    """Claims a key, which must succeed; its token."""
    got = claim(db, key, **kw)
    assert got["outcome"] == "claimed", got
    return got["token"]


def complete(db, key, token, response="answer", code=200, headers=None, scope="t"):
    assert one(db, "SELECT idem_complete(?, ?, ?, ?, ?, ?)", scope, key, token, response, code,
               headers) == 1


def refused(db, sql, *args, text, code="SQLITE_CONSTRAINT", begins=None):
    """The statement must fail, with this class of code and with this text in its message."""
    with pytest.raises(sqlite3.Error) as info:
        db.execute(sql, args).fetchall()
    error = info.value
    assert error.sqlite_errorname.split("_")[:2] == code.split("_")[:2], (error.sqlite_errorname, error)
    assert text in str(error), str(error)
    if begins:
        assert str(error).startswith(begins), str(error)
    return error


def audit(db, key=None):
    """The events of the audit in order, those of one key or all."""
    return [row[0] for row in db.execute(
        "SELECT event FROM idem_audit WHERE ?1 IS NULL OR key = ?1 ORDER BY id", (key,))]


def child(script, *args):
    """Starts a Python child process on a script that is given as text; stdin and stdout are pipes."""
    return subprocess.Popen([sys.executable, "-c", script, *map(str, args)], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


# The first lines of such a script: a connection "db" on argv[1], with the extension of argv[2].
CHILD = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None)
db.enable_load_extension(True)
db.load_extension(sys.argv[2])
"""

"""What all tests share: the extension under test, connections that have it, and small words for calls.

Tests run under Debian's python3, whose sqlite3 module can load extensions. IDEM_SO names another
build of the extension (a sanitized one, for example).
"""
import os
import pathlib
import sqlite3
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SO = os.environ.get("IDEM_SO", str(ROOT / "idem.so"))
DATA = ROOT.parent / "shared" / "data"
DEEP = os.environ.get("IDEM_DEEP") == "1"


def connect(path, init=True, load=True, timeout=10.0, **kw):
    """A connection in autocommit mode (transactions are spelled out), with the extension loaded."""
    kw.setdefault("isolation_level", None)
    db = sqlite3.connect(str(path), timeout=timeout, **kw)
    if load:
        db.enable_load_extension(True)
        db.load_extension(SO)
        db.enable_load_extension(False)
    if init:
        db.execute("SELECT idem_init()").fetchall()
    return db


def one(db, sql, *args):
    """The only value of the only row."""
    rows = db.execute(sql, args).fetchall()
    assert len(rows) == 1, rows
    return rows[0][0]


def claim(db, key, fingerprint="fp", operation=None, token=None, scope="t"):
    """The table-valued claim as a dict."""
    cur = db.execute("SELECT * FROM idem_claim(?, ?, ?, ?, ?)",
                     (scope, key, fingerprint, operation, token))
    names = [d[0] for d in cur.description]
    rows = cur.fetchall()
    assert len(rows) == 1
    return dict(zip(names, rows[0]))


def record(db, key, scope="t"):
    """The raw row of the store as a dict, or None."""
    cur = db.execute("SELECT * FROM main.idem_store WHERE scope = ? AND key = ?", (scope, key))
    names = [d[0] for d in cur.description]
    row = cur.fetchone()
    cur.close()
    return dict(zip(names, row)) if row else None


def policy(db, operation="*", **columns):
    """Inserts or changes the policy of an operation."""
    db.execute("INSERT INTO idem_policy(operation) VALUES (?) ON CONFLICT DO NOTHING", (operation,))
    for name, value in columns.items():
        db.execute(f"UPDATE idem_policy SET {name} = ? WHERE operation = ?", (value, operation))


def new_key():
    return str(uuid.uuid4())


@pytest.fixture(params=["WAL", "DELETE"])
def journal(request):
    return request.param


@pytest.fixture
def path(tmp_path):
    return tmp_path / "test.db"


@pytest.fixture
def db(path):
    """A connection on a fresh WAL database; its close must succeed."""
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    yield db
    db.close()

"""What all tests share: the extension under test, connections that have it, and small words for calls.

Tests run under Debian's python3, whose sqlite3 module can load extensions. From the environment:

    IDEM_SO               another build of the extension (a sanitized one, for example)
    IDEM_DEEP=1           the long form of a test (see deep.py)
    IDEM_DEEP_SECONDS     limits a long form that could go on for ever
    IDEM_DEEP_SEED        where long forms that draw begin: other ground each time without it
    IDEM_PRAGMAS          for fresh databases: "page_size=512;encoding='UTF-16le'"
    IDEM_SQLITE_VERSION   the SQLite that the tests must be running on (see tests/versions)
"""
import os
import pathlib
import random
import sqlite3
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SO = os.environ.get("IDEM_SO", str(ROOT / "idem.so"))
DATA = ROOT.parent / "shared" / "data"
DEEP = os.environ.get("IDEM_DEEP") == "1"
SEED = os.environ.get("IDEM_DEEP_SEED")
PRAGMAS = [p for p in os.environ.get("IDEM_PRAGMAS", "").split(";") if p]

wanted = os.environ.get("IDEM_SQLITE_VERSION", sqlite3.sqlite_version)
assert sqlite3.sqlite_version == wanted, f"on SQLite {sqlite3.sqlite_version}, not on {wanted}"


def deep_seed():
    """Where a long form that draws begins. What fails names its seed, so it can be repeated."""
    return int(SEED) if SEED else random.SystemRandom().randrange(10**6, 10**12)


def shape(db):
    """Gives a database that is still empty the page size and encoding asked for."""
    for pragma in PRAGMAS:
        db.execute(f"PRAGMA {pragma}")


def compiled_with(option):
    return (option,) in sqlite3.connect(":memory:").execute("PRAGMA compile_options").fetchall()


needs_authorizer = pytest.mark.skipif(compiled_with("OMIT_AUTHORIZATION"),
                                      reason="this SQLite was compiled without authorizers")
needs_progress = pytest.mark.skipif(compiled_with("OMIT_PROGRESS_CALLBACK"),
                                    reason="this SQLite was compiled without progress handlers")


def traces():
    """The compile options do not tell."""
    seen, db = [], sqlite3.connect(":memory:")
    db.set_trace_callback(seen.append)
    db.execute("SELECT 1")
    return bool(seen)


needs_trace = pytest.mark.skipif(not traces(), reason="this SQLite was compiled without traces")


def pytest_addoption(parser):
    parser.addoption("--first", type=int, default=0, help="begin at this test (modulo their count)")


def pytest_collection_modifyitems(config, items):
    n = config.getoption("--first") % max(1, len(items))
    items[:] = items[n:] + items[:n]


def connect(path, init=True, load=True, timeout=10.0, **kw):
    """A connection in autocommit mode (transactions are spelled out), with the extension loaded."""
    kw.setdefault("isolation_level", None)
    db = sqlite3.connect(str(path), timeout=timeout, **kw)
    shape(db)
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

"""An object of the file counts as idem's own if it is one of sql/store.sql, whole, and once.

What was wrong: the objects were counted, and an object counted if its text stood in sql/store.sql. An empty
text stands everywhere (it was even read behind the end), and the same text could count twice. So a file could
lack a trigger, the audit's for example, and pass.
"""
import sqlite3

import pytest

from conftest import SO, connect, one

AUDIT_TRIGGERS = ["idem_store_audit", "idem_audit_no_update", "idem_audit_no_delete", "idem_purge_batch_run"]
AUTOINDEX = "sqlite_autoindex_idem_store_1"
CALLS = [
    "SELECT idem_init()",
    "SELECT idem_claim('t','k','fp')",
    "SELECT * FROM idem_claim('t','k','fp')",
    "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','k','fp')",
    "SELECT idem_seen('s','e')",
    "SELECT idem_purge()",
    "SELECT idem_audit_verify()",
    "SELECT * FROM idem_records",
]


def rewrite(path, *statements):
    """Makes a store, and changes sqlite_schema by hand."""
    connect(path).close()
    db = connect(path, init=False, load=False)
    db.execute("PRAGMA writable_schema = ON")
    for sql in statements:
        assert db.execute(sql).rowcount == 1, sql
    db.close()


def refused(db):
    for sql in CALLS:
        with pytest.raises(sqlite3.OperationalError, match="not as idem created it"):
            db.execute(sql).fetchall()
    assert one(db, "SELECT count(*) FROM main.idem_store") == 0
    db.close()


@pytest.mark.parametrize("trigger", AUDIT_TRIGGERS)
def test_an_empty_text(path, trigger):
    rewrite(path, f"UPDATE sqlite_schema SET sql = '' WHERE name = '{AUTOINDEX}'",
            f"DELETE FROM sqlite_schema WHERE name = '{trigger}'")
    refused(connect(path, init=False))


@pytest.mark.parametrize("trigger", AUDIT_TRIGGERS)
def test_the_same_text_twice(path, trigger):
    """SQLite itself refuses such a schema, unless the connection says PRAGMA writable_schema = ON."""
    rewrite(path, f"DELETE FROM sqlite_schema WHERE name = '{trigger}'",
            "INSERT INTO sqlite_schema SELECT * FROM sqlite_schema WHERE name = 'idem_policy_keep_default'")
    db = connect(path, init=False, load=False)
    db.execute("PRAGMA writable_schema = ON")
    db.enable_load_extension(True)
    db.load_extension(SO)
    refused(db)

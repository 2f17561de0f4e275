"""Small promises that no other test asks for."""
import json
import sqlite3

import pytest

from conftest import SO, claim, connect, one, policy

TOKEN = "token-0123456789"


def test_exhausted_is_told_on_a_read_only_connection(db, path):
    """The audit's note that a record is exhausted waits for somebody who can write."""
    policy(db, on_stale="retry", max_attempts=1)
    one(db, "SELECT idem_clock(1000)")
    claim(db, "k", token=TOKEN)
    reader = connect(f"file:{path}?mode=ro", init=False, uri=True)
    one(reader, "SELECT idem_clock(10000000)")
    assert json.loads(one(reader, "SELECT idem_claim('t', 'k', 'fp')"))["outcome"] == "exhausted"
    assert claim(reader, "k")["outcome"] == "exhausted"
    reader.close()
    assert one(db, "SELECT count(*) FROM idem_audit") == 0
    one(db, "SELECT idem_clock(10000000)")
    assert claim(db, "k")["outcome"] == "exhausted"
    assert one(db, "SELECT group_concat(event) FROM idem_audit") == "exhausted"


def test_arguments_are_not_columns(db):
    """The hidden columns of idem_claim() are NULL, and its one row has the rowid 1."""
    rows = db.execute("SELECT rowid, scope, key, fingerprint, operation, claim_token, outcome"
                      " FROM idem_claim('t', 'k', 'fp')").fetchall()
    assert rows == [(1, None, None, None, None, None, "claimed")]


@pytest.mark.parametrize("schema", ["main", "more"])
def test_the_claims_table_belongs_to_temp(db, schema):
    db.execute("ATTACH ':memory:' AS more")
    with pytest.raises(sqlite3.OperationalError, match="can be created in the schema temp only"):
        db.execute(f"CREATE VIRTUAL TABLE {schema}.idem_claim USING idem_claim")
    assert claim(db, "k")["outcome"] == "claimed"


@pytest.mark.parametrize("column, kind", [("lease_until", "held"), ("expires_at", "done")])
@pytest.mark.parametrize("low, high", [(-9e18, 9e18), (-1e300, 1e300), ("-1e999", "1e999")])
def test_times_without_end(db, column, kind, low, high):
    """Bounds that no integer holds: everything lies between them, nothing beyond."""
    claim(db, "held", token=TOKEN)
    claim(db, "done", token=TOKEN)
    one(db, "SELECT idem_complete('t', 'done', ?, 'r')", TOKEN)
    sql = f"SELECT group_concat(key) FROM idem_records WHERE {column}"
    assert one(db, f"{sql} > {low} AND {column} < {high}") == kind
    assert one(db, f"{sql} >= {low} AND {column} <= {high}") == kind
    assert one(db, f"{sql} < {low}") is None
    assert one(db, f"{sql} >= {high}") is None


@pytest.mark.parametrize("version", ["idem 0.0.1, SQLite 3.40.1", "", None])
def test_another_version_is_there_already(path, version):
    db = connect(path, init=False, load=False)
    db.create_function("idem_version", 0, lambda: version)
    db.enable_load_extension(True)
    with pytest.raises(sqlite3.OperationalError, match="another version is loaded already: "):
        db.load_extension(SO)
    db.close()


@pytest.mark.parametrize("code, kept", [("-7", -7), ("-", None), ("9" * 19, None), (-7.0, -7),
                                        (-7.5, None), (7.5, None), (b"7", None)])
def test_numbers_as_drivers_bind_them(db, code, kept):
    claim(db, "k", token=TOKEN, operation="x")
    if kept is None:
        with pytest.raises(sqlite3.OperationalError, match="^idem_complete: code is not an integer"):
            one(db, "SELECT idem_complete('t', 'k', ?, 'r', ?)", TOKEN, code)
        assert one(db, "SELECT state FROM idem_store") == "processing"
    else:
        one(db, "SELECT idem_complete('t', 'k', ?, 'r', ?)", TOKEN, code)
        assert claim(db, "k", operation="x")["code"] == kept


@pytest.mark.parametrize("word", ["retrx", "Retry", "retr", "retry\0", "complated"])
def test_no_other_word_resolves(db, word):
    claim(db, "k", token=TOKEN)
    one(db, "SELECT idem_suspend('t', 'k', ?)", TOKEN)
    with pytest.raises(sqlite3.OperationalError, match="^idem_resolve: "):
        one(db, "SELECT idem_resolve('t', 'k', ?)", word)
    assert one(db, "SELECT state FROM idem_store") == "unknown"

"""Rows that idem never writes: wrong types, absurd numbers, unknown states, damaged texts, planted past the
checks of STRICT tables; and bytes of the file changed at random.

A clear error or the right answer; never a crash, a wrong outcome, or a claim granted on nonsense.
"""
import os
import random
import sqlite3
import subprocess
import sys

import pytest

from conftest import DEEP, SO, claim, connect, one

TOKEN = "token-0123456789"


@pytest.fixture(scope="module")
def image():
    db = connect(":memory:")
    for key in ("held", "dark", "done", "free", "over"):
        claim(db, key, token=TOKEN)
    one(db, "SELECT idem_suspend('t','dark',?)", TOKEN)
    one(db, "SELECT idem_release('t','free',?)", TOKEN)
    one(db, "SELECT idem_complete('t','done',?,'answer',200,'h: v')", TOKEN)
    one(db, "SELECT idem_seen('s','e','fp')")
    one(db, "SELECT idem_clock(1000)")
    one(db, "SELECT idem_complete('t','over',?,'answer')", TOKEN)
    data = db.serialize()
    db.close()
    return data


def plant(image, path, script, args=()):
    """Runs SQL on the tables as if they were neither STRICT nor CHECKed, then puts their texts back."""
    path.write_bytes(image)
    raw = sqlite3.connect(str(path), isolation_level=None)
    raw.execute("PRAGMA synchronous = OFF")
    raw.execute("PRAGMA writable_schema = ON")
    raw.execute("PRAGMA ignore_check_constraints = ON")
    saved = raw.execute("SELECT name, sql FROM sqlite_schema WHERE name LIKE 'idem%'").fetchall()
    for old, new in ((") STRICT", ")"), (" NOT NULL", ""), (" INTEGER", " BLOB"), (" TEXT", " BLOB"), (" ANY", " BLOB"),
                     (" BLOB PRIMARY KEY", " INTEGER PRIMARY KEY")):
        raw.execute("UPDATE sqlite_schema SET sql = replace(sql, ?, ?) "
                    "WHERE type = 'table' AND name IN ('idem_store', 'idem_inbox', 'idem_meta')", (old, new))
    raw.close()
    raw = sqlite3.connect(str(path), isolation_level=None)
    raw.execute("PRAGMA synchronous = OFF")
    raw.execute("PRAGMA ignore_check_constraints = ON")
    raw.execute(script, args)
    raw.execute("PRAGMA writable_schema = ON")
    for name, sql in saved:
        raw.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, name))
    raw.close()


def damaged(db, sql, args=()):
    with pytest.raises(sqlite3.DatabaseError, match="^idem_[a-z]+: the record holds what idem never writes") as e:
        db.execute(sql, args).fetchall()
    assert e.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_CORRUPT
    assert "restore the database" in str(e.value)
    assert not db.in_transaction
    return str(e.value)


BAD = []
for state in ("'nonsense'", "''", "NULL", "5", "x'636f6d706c65746564'", "'completed' || char(0)", "'COMPLETED'",
              "'processing '", "1.5"):
    BAD.append(("done", f"state = {state}", "state"))
for number in ("9223372036854775807", "-9223372036854775808", "-1", "1e300", "'5'", "x'35'", "1.5",
               "'9223372036854775808'"):
    for column in ("due_at", "tombstone_ms", "created_at", "completed_at"):
        BAD.append(("done", f"{column} = {number}", column))
    BAD.append(("held", f"due_at = {number}", "due_at"))
    BAD.append(("held", f"created_at = {number}", "created_at"))
for number in ("0", "-1", "9223372036854775807", "'1'", "1.5", "NULL"):
    BAD.append(("held", f"attempt = {number}", "attempt"))
for number in ("-1", "9223372036854775807", "'0'", "NULL", "2"):
    BAD.append(("held", f"granted = {number}", "granted"))
for column in ("due_at", "tombstone_ms", "created_at", "completed_at"):
    BAD.append(("done", f"{column} = NULL", column))
BAD += [("held", "due_at = NULL", "due_at"), ("dark", "due_at = 5", "due_at"), ("free", "due_at = 'x'", "due_at"),
        ("done", "code = 'x'", "code"), ("done", "code = 1.5", "code"), ("done", "code = x'00'", "code"),
        ("done", "response_omitted = 2", "response_omitted"), ("done", "response_omitted = NULL", "response_omitted"),
        ("done", "operation = NULL", "operation"), ("done", "operation = 5", "operation"),
        ("done", "operation = x'00'", "operation"), ("done", "fingerprint = NULL", "fingerprint"),
        ("done", "fingerprint = 5", "fingerprint"), ("done", "fingerprint = 1.5", "fingerprint"),
        ("held", "token = 5", "token"), ("held", "token = x'00'", "token"), ("held", "spent = 5", "spent"),
        ("held", "spent = x'00'", "spent"), ("done", "headers = 5", "headers"), ("done", "headers = x'00'", "headers"),
        ("done", "response = 5", "response"), ("done", "response = 1.5", "response"),
        ("held", "recovery_point = 5", "recovery_point"), ("held", "checkpoint = 5", "checkpoint"),
        ("held", "reason = 5", "reason"), ("held", "reason = x'00'", "reason")]


@pytest.mark.parametrize("key,change,column", BAD, ids=[f"{k}-{c}" for k, c, _ in BAD])
def test_a_planted_value(image, path, key, change, column):
    plant(image, path, f"UPDATE idem_store SET {change} WHERE key = '{key}'")
    db = connect(path, init=False)
    stored = db.execute("SELECT * FROM idem_store").fetchall()
    assert f"(column {column})" in damaged(db, "SELECT idem_claim('t',?,'fp')", (key,))
    damaged(db, "SELECT * FROM idem_claim('t',?,'fp')", (key,))
    damaged(db, "SELECT idem_complete('t',?,?,'r')", (key, TOKEN))
    damaged(db, "SELECT idem_release('t',?,?)", (key, TOKEN))
    damaged(db, "SELECT idem_resolve('t',?,'retry')", (key,))
    damaged(db, "SELECT * FROM idem_records WHERE scope='t' AND key=?", (key,))
    damaged(db, "SELECT * FROM idem_records")
    assert db.execute("SELECT * FROM idem_store").fetchall() == stored
    if key != "free":                             # the other records are as good as before
        assert claim(db, "free")["outcome"] == "claimed"
    assert claim(db, "new")["outcome"] == "claimed"
    db.close()


@pytest.mark.parametrize("change", ["scope = NULL", "key = NULL", "key = 5", "scope = x'74'", "scope = 1.5"])
def test_a_key_of_another_type_is_another_key(image, path, change):
    plant(image, path, f"UPDATE idem_store SET {change} WHERE key = 'done'")
    db = connect(path, init=False)
    assert claim(db, "done")["outcome"] == "claimed"
    damaged(db, "SELECT * FROM idem_records")
    db.close()


@pytest.mark.parametrize("value", ["lease_ms = 0", "lease_ms = -5", "lease_ms = 9223372036854775807",
                                   "retention_ms = 0", "tombstone_ms = -1", "wait_ms = 9999999", "wait_ms = -1",
                                   "max_attempts = -1", "max_response_bytes = -1", "allow_content_key = 7"])
def test_a_policy_past_its_checks(image, path, value):
    plant(image, path, f"UPDATE idem_policy SET {value}")
    db = connect(path, init=False)
    for sql in ("SELECT idem_claim('t','new','fp')", "SELECT * FROM idem_claim('t','done','fp')",
                "SELECT * FROM idem_records"):
        damaged(db, sql)
    assert one(db, "SELECT count(*) FROM idem_store") == 5
    db.close()


@pytest.mark.parametrize("value,audited", [("audit = 'nonsense'", None), ("on_stale = 'nonsense'", None),
                                           ("audit = 'ALL'", None), ("on_stale = ''", None)])
def test_a_word_that_is_none_falls_on_the_safe_side(image, path, value, audited):
    plant(image, path, f"UPDATE idem_policy SET {value}")
    db = connect(path, init=False)
    one(db, "SELECT idem_clock(idem_clock() + 100000)")   # the lease of 'held' is over
    assert claim(db, "held")["outcome"] == "unknown"      # nobody may take over
    db.close()


def test_no_default_policy(image, path):
    path.write_bytes(image)
    raw = sqlite3.connect(str(path), isolation_level=None)
    raw.execute("PRAGMA writable_schema = ON")
    saved = raw.execute("SELECT sql FROM sqlite_schema WHERE name = 'idem_policy_keep_default'").fetchone()[0]
    raw.execute("UPDATE sqlite_schema SET sql = replace(sql, '''*''', '''x''') WHERE name = 'idem_policy_keep_default'")
    raw.close()
    raw = sqlite3.connect(str(path), isolation_level=None)
    raw.execute("DELETE FROM idem_policy WHERE operation = '*'")
    raw.execute("PRAGMA writable_schema = ON")
    raw.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'idem_policy_keep_default'", (saved,))
    raw.close()
    db = connect(path, init=False)
    with pytest.raises(sqlite3.OperationalError, match="^idem_claim: idem_policy has no row '\\*'"):
        one(db, "SELECT idem_claim('t','new','fp')")
    for listing in ("", "WHERE scope = 't' AND key = 'done'", "WHERE state = 'completed'"):
        with pytest.raises(sqlite3.OperationalError, match="idem_policy has no row '\\*'"):
            db.execute(f"SELECT key FROM idem_records {listing}").fetchall()
    db.close()


@pytest.mark.parametrize("version", ["NULL", "'1'", "0", "-1", "1.5", "x'01'", "9223372036854775807"])
def test_a_strange_schema_version(image, path, version):
    plant(image, path, f"UPDATE idem_meta SET schema_version = {version}")
    db = connect(path, init=False)
    try:
        got = claim(db, "done")
        assert version in ("'1'", "1.5", "x'01'") and got["response"] == "answer"
    except sqlite3.OperationalError as e:
        assert "schema version" in str(e) or "not as idem created it" in str(e)
    db.close()


@pytest.mark.parametrize("change", ["DELETE FROM idem_meta", "UPDATE idem_meta SET policy_version = NULL",
                                    "UPDATE idem_meta SET policy_version = 'x'"])
def test_damaged_meta(image, path, change):
    plant(image, path, change)
    db = connect(path, init=False)
    before = db.execute("SELECT * FROM idem_store").fetchall()
    for sql in ("SELECT idem_claim('t','new','fp')", "SELECT idem_claim('t','done','fp')",
                f"SELECT idem_complete('t','held','{TOKEN}','r')"):
        with pytest.raises(sqlite3.DatabaseError, match="^idem_(claim|complete): "):
            db.execute(sql).fetchall()
    assert db.execute("SELECT * FROM idem_store").fetchall() == before
    db.close()


@pytest.mark.parametrize("change", ["expires_at = 9223372036854775807", "expires_at = -5", "expires_at = 'x'",
                                    "expires_at = NULL", "fingerprint = 5"])
def test_a_planted_event(image, path, change):
    plant(image, path, f"UPDATE idem_inbox SET {change}")
    db = connect(path, init=False)
    try:
        assert one(db, "SELECT idem_seen('s','e','fp')") == 0
    except sqlite3.DatabaseError as e:
        assert str(e).startswith("idem_seen: ")
    assert one(db, "SELECT idem_seen('s','other')") == 1
    db.close()


@pytest.mark.parametrize("column,value", [("digest", "NULL"), ("digest", "5"), ("prev", "x'00'"), ("at", "'x'"),
                                          ("attempt", "1e300"), ("event", "NULL")])
def test_a_planted_audit_row(image, path, column, value):
    path.write_bytes(image)
    raw = sqlite3.connect(str(path), isolation_level=None)
    raw.execute("PRAGMA writable_schema = ON")
    saved = raw.execute("SELECT name, sql FROM sqlite_schema WHERE name IN ('idem_audit', 'idem_audit_no_update')"
                        ).fetchall()
    raw.execute("UPDATE sqlite_schema SET sql = replace(replace(replace(replace(sql, ') STRICT', ')'), ' NOT NULL', ''),"
                " ' TEXT', ' BLOB'), 'at        INTEGER', 'at BLOB') WHERE name = 'idem_audit'")
    raw.execute("UPDATE sqlite_schema SET sql = 'CREATE TRIGGER idem_audit_no_update BEFORE UPDATE ON idem_audit "
                "BEGIN SELECT 1; END' WHERE name = 'idem_audit_no_update'")
    raw.close()
    raw = sqlite3.connect(str(path), isolation_level=None)
    raw.execute(f"UPDATE idem_audit SET {column} = {value} WHERE id = 2")
    raw.execute("PRAGMA writable_schema = ON")
    for name, sql in saved:
        raw.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, name))
    raw.close()
    db = connect(path, init=False)
    assert one(db, "SELECT idem_audit_verify()") == 2
    db.close()


def test_invalid_utf8_comes_back_as_it_is(image, path):
    """TEXT of the file that is not UTF-8 cannot stand in JSON: it goes as base64 there."""
    plant(image, path, "UPDATE idem_store SET response = CAST(x'22ff5c00' AS TEXT), headers = CAST(x'fe' AS TEXT) "
                       "WHERE key = 'done'")
    db = connect(path, init=False)
    if one(db, "PRAGMA encoding") != "UTF-8":
        db.close()
        pytest.skip("SQLite repairs what it converts to UTF-8")
    db.text_factory = bytes
    text = one(db, "SELECT idem_claim('t','done','fp')")
    assert b'"response_base64":"Iv9cAA=="' in text and b'"headers_base64":"/g=="' in text
    assert one(db, "SELECT json_valid(?)", text.decode("ascii")) == 1
    assert db.execute("SELECT CAST(response AS BLOB) FROM idem_claim('t','done','fp')").fetchone()[0] == \
        b"\x22\xff\x5c\x00"
    db.close()


def test_a_huge_spent_list(image, path):
    plant(image, path, "UPDATE idem_store SET spent = ? WHERE key = 'free'", ("\n" * 3000000,))
    db = connect(path, init=False)
    got = claim(db, "free", token="token-of-another-try")
    assert (got["outcome"], got["attempt"]) == ("claimed", 2)
    assert one(db, "SELECT length(spent) FROM idem_store WHERE key = 'free'") <= 8192
    db.close()


RANDOM_BYTES = r"""
import random, sqlite3, sys
path, so, seed, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
good = open(path, "rb").read()
calls = ["SELECT idem_claim('t','new','fp')", "SELECT idem_claim('t','done','fp')",
         "SELECT * FROM idem_claim('t','held','fp')", "SELECT * FROM idem_records",
         "SELECT * FROM idem_records WHERE state = 'completed'", "SELECT idem_purge()",
         "SELECT idem_audit_verify()", "SELECT idem_seen('s','e')", "SELECT idem_init()",
         "SELECT idem_complete('t','held','token-0123456789','r')", "DELETE FROM idem_records",
         "SELECT idem_resolve('t','dark','retry')", "SELECT * FROM idem_health"]
for i in range(rounds):
    dice = random.Random(seed * 100000 + i)
    data = bytearray(good)
    for _ in range(dice.choice([1, 1, 2, 5, 20])):
        at = dice.randrange(100, len(data)) if dice.random() < 0.9 else dice.randrange(len(data))
        data[at] = dice.choice([0, 255, 127, 128, data[at] ^ (1 << dice.randrange(8)), dice.randrange(256)])
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.text_factory = bytes
    db.enable_load_extension(True)
    db.load_extension(so)
    db.deserialize(bytes(data))
    print(i, flush=True)
    for sql in dice.sample(calls, 6):
        try:
            db.execute(sql).fetchall()
        except sqlite3.Error:
            pass
        except UnicodeDecodeError as e:           # SQLite quotes a damaged name; idem must not
            if e.object.startswith(b"idem_") and b"malformed" not in e.object:
                raise
        if db.in_transaction:
            print("IN TRANSACTION after", sql)
            sys.exit(3)
    db.close()
"""


@pytest.mark.parametrize("seed", range(4 if DEEP else 2))
def test_random_bytes(image, path, seed):
    """Bytes of the file changed at random: errors are fine, crashes and open transactions are not."""
    path.write_bytes(image)
    done = subprocess.run([sys.executable, "-c", RANDOM_BYTES, str(path), SO, str(seed),
                           str(5000 if DEEP else 150)], capture_output=True, text=True,
                          env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
    assert done.returncode == 0, (done.returncode, done.stdout.splitlines()[-1:], done.stderr[-2000:])


def test_random_values(image, path):
    """Any storable value in any column: an error or an answer, and the same one in all forms."""
    dice = random.Random(7)
    values = [None, 0, 1, -1, 2**63 - 1, -2**63, 1.5, 1e300, "", "x", b"", b"\xff", "completed", "processing",
              "released", "unknown", "tombstone", "idem1:", TOKEN, 1800000000000]
    columns = ["operation", "fingerprint", "state", "attempt", "granted", "token", "spent", "due_at", "tombstone_ms",
               "created_at", "updated_at", "completed_at", "code", "headers", "response", "response_omitted",
               "recovery_point", "checkpoint", "reason"]
    for i in range(600 if DEEP else 60):
        chosen = dice.sample(columns, dice.choice([1, 1, 2, 4]))
        file = path.with_name(f"{i}.db")
        plant(image, file, "UPDATE idem_store SET " + ", ".join(f"{c} = ?" for c in chosen) + " WHERE key = 'done'",
              [dice.choice(values) for _ in chosen])
        db = connect(file, init=False)
        answers = []
        for sql in ("SELECT outcome FROM idem_claim('t','done','fp')",
                    "SELECT json_extract(idem_claim('t','done','fp'), '$.outcome')"):
            db.execute("BEGIN")                   # SQLite lets nobody commit after SQLITE_CORRUPT
            try:
                answers.append(one(db, sql))
            except sqlite3.DatabaseError as e:
                assert str(e).startswith("idem_claim: "), str(e)
                answers.append("error")
            db.execute("ROLLBACK")
        assert answers[0] == answers[1], (chosen, answers)
        assert claim(db, "new")["outcome"] == "claimed"
        db.close()
        file.unlink()

"""What the library shows to its host: one symbol, no foreign libraries, the right flags.

Contract, section 8, trap 6; functions that write are DIRECTONLY, so that a database file cannot call
them.
"""
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess

import pytest

from conftest import SO, claim, connect, one

PURE = {"idem_fingerprint", "idem_fingerprint_raw", "idem_hmac_fingerprint", "idem_canonical",
        "idem_header_key", "idem_derive_key", "idem_schema"}
HARMLESS = {"idem_key", "idem_version"}
# function: the numbers of arguments that it takes
DIRECT = {"idem_init": {0}, "idem_claim": {3, 4, 5}, "idem_complete": {4, 5, 6},
          "idem_release": {3, 4}, "idem_suspend": {3, 4}, "idem_renew": {3},
          "idem_checkpoint": {4, 5}, "idem_resolve": {3, 4, 5, 6}, "idem_seen": {2, 3},
          "idem_purge": {0, 1}, "idem_clock": {0, 1}, "idem_audit_verify": {0}}

DETERMINISTIC, DIRECTONLY, SUBTYPE, INNOCUOUS = 0x800, 0x80000, 0x100000, 0x200000


def tool(*words):
    if not shutil.which(words[0]):
        pytest.skip(f"{words[0]} is not installed")
    return subprocess.run(words, capture_output=True, text=True, check=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def test_one_symbol():
    names = [line.split()[-1] for line in tool("nm", "-D", "--defined-only", SO).splitlines()]
    assert names == ["sqlite3_idem_init"]


@pytest.mark.skipif("/asan/" in SO, reason="the sanitizers' runtimes are shared libraries")
def test_dynamic_section():
    text = tool("readelf", "-dW", SO)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    assert needed == ["libc.so.6"], "a libcrypto of the host must not be able to meet ours"
    assert "BIND_NOW" in text and re.search(r"FLAGS_1\).*NOW.*NODELETE", text)
    for bad in ("RPATH", "RUNPATH", "TEXTREL"):
        assert bad not in text


def test_segments():
    text = tool("readelf", "-lW", SO)
    stack = [line for line in text.splitlines() if "GNU_STACK" in line]
    assert len(stack) == 1 and " RW " in stack[0] and "RWE" not in stack[0]
    assert "GNU_RELRO" in text


def test_undefined_symbols_are_libc_alone():
    for line in tool("nm", "-D", "--undefined-only", SO).splitlines():
        name = line.split()[-1]
        assert not re.match(r"(sqlite3|EVP|OPENSSL|CRYPTO|RAND)_", name), name


@pytest.fixture
def functions(db):
    """(name, arguments) -> flags of all functions of ours."""
    rows = db.execute("SELECT name, narg, flags FROM pragma_function_list WHERE name LIKE 'idem%'")
    return {(name, narg): flags for name, narg, flags in rows.fetchall()}


def test_functions_and_their_arities(functions):
    found = {}
    for name, narg in functions:
        found.setdefault(name, set()).add(narg)
    assert set(found) == PURE | HARMLESS | set(DIRECT)
    for name, nargs in DIRECT.items():
        assert found[name] == nargs, name


def test_flags(functions):
    for (name, narg), flags in functions.items():
        assert bool(flags & DIRECTONLY) == (name in DIRECT), name
        assert bool(flags & DETERMINISTIC) == (name in PURE), name
        assert bool(flags & INNOCUOUS) == (name in PURE | HARMLESS), name


ARGUMENTS = {"idem_init": "", "idem_claim": "'t','new','fp'", "idem_purge": "",
             "idem_complete": "'t','k','token-0123456789','r'",
             "idem_release": "'t','k','token-0123456789'",
             "idem_suspend": "'t','k','token-0123456789'",
             "idem_renew": "'t','k','token-0123456789'",
             "idem_checkpoint": "'t','k','token-0123456789','p'",
             "idem_resolve": "'t','k','retry'", "idem_seen": "'s','e'", "idem_clock": "0",
             "idem_audit_verify": ""}


@pytest.mark.parametrize("trusted", ["ON", "OFF"])
@pytest.mark.parametrize("name", sorted(DIRECT))
def test_a_file_cannot_call_them(db, name, trusted):
    call = f"{name}({ARGUMENTS[name]})"
    db.execute(f"SELECT idem_claim('t', 'k', 'fp', '', 'token-0123456789')").fetchall()
    db.execute("CREATE TABLE u(a)")
    db.execute(f"PRAGMA trusted_schema = {trusted}")
    db.execute(f"CREATE VIEW v AS SELECT {call}")
    db.execute(f"CREATE TRIGGER tr AFTER INSERT ON u BEGIN SELECT {call}; END")
    before = db.execute("SELECT * FROM main.idem_store").fetchall()
    for sql in ("SELECT * FROM v", "INSERT INTO u VALUES(1)"):
        with pytest.raises(sqlite3.OperationalError, match=f"unsafe use of {name}"):
            db.execute(sql).fetchall()
    with pytest.raises(sqlite3.OperationalError):
        db.execute(f"CREATE TABLE w(a, b AS ({call}))")
    with pytest.raises(sqlite3.OperationalError):
        db.execute(f"CREATE INDEX i ON u({call})")
    assert db.execute("SELECT * FROM main.idem_store").fetchall() == before
    assert one(db, "SELECT idem_clock()") > 1000000


@pytest.mark.parametrize("sql", ["SELECT * FROM idem_records", "SELECT * FROM main.idem_records",
                                 "SELECT * FROM idem_call"])
def test_a_view_cannot_read_the_tables(db, sql):
    db.execute(f"CREATE VIEW v AS {sql}")
    with pytest.raises(sqlite3.OperationalError, match="unsafe use of virtual table"):
        db.execute("SELECT * FROM v").fetchall()


@pytest.mark.parametrize("body", [
    "INSERT INTO idem_records(scope, key, fingerprint, token) VALUES('t','x','fp','token-0123456789')",
    "DELETE FROM idem_records", "INSERT INTO idem_call DEFAULT VALUES",
    "UPDATE idem_records SET state='completed' WHERE token='token-0123456789'"])
def test_a_trigger_cannot_write_the_tables(db, body):
    db.execute("CREATE TABLE u(a)")
    claim(db, "done", token="token-0123456789")
    one(db, "SELECT idem_complete('t', 'done', 'token-0123456789', 'answer')")
    before = db.execute("SELECT * FROM main.idem_store").fetchall()
    try:
        db.execute(f"CREATE TRIGGER tr AFTER INSERT ON u BEGIN {body}; END")
    except sqlite3.OperationalError:
        return                                    # refused at once: just as well
    if sqlite3.sqlite_version_info >= (3, 40):
        with pytest.raises(sqlite3.OperationalError, match="unsafe use of virtual table"):
            db.execute("INSERT INTO u VALUES(1)")
    elif "idem_records" in body:                  # an older one lets the trigger try
        with pytest.raises(sqlite3.OperationalError, match="the database object tr is not as idem created it"):
            db.execute("INSERT INTO u VALUES(1)")
    assert db.execute("SELECT * FROM main.idem_store").fetchall() == before


def test_a_view_cannot_claim_through_the_table(db):
    db.execute("CREATE VIEW v AS SELECT * FROM idem_claim('t','x','fp')")
    with pytest.raises(sqlite3.OperationalError):
        db.execute("SELECT * FROM v").fetchall()  # a view of main does not see temp.idem_claim
    assert one(db, "SELECT count(*) FROM main.idem_store") == 0


def test_the_claim_table_lives_in_temp_only(db):
    for schema in ("main.", "aux."):
        if schema == "aux.":
            db.execute("ATTACH ':memory:' AS aux")
        with pytest.raises(sqlite3.OperationalError, match="in the schema temp only"):
            db.execute(f"CREATE VIRTUAL TABLE {schema}mine USING idem_claim")
    for module in ("idem_call", "idem_records"):  # eponymous only
        with pytest.raises(sqlite3.OperationalError, match="no such module"):
            db.execute(f"CREATE VIRTUAL TABLE main.mine USING {module}")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        db.execute("SELECT * FROM main.idem_claim('t','x','fp')")
    assert one(db, "SELECT count(*) FROM main.sqlite_schema WHERE name IN ('mine', 'idem_claim')") == 0


def test_plans_open_no_transaction_on_main(db):
    """Trap 10: the statement around a table-valued claim must not open main; p1 is the schema."""
    def transactions(sql):
        return [row[2:4] for row in db.execute("EXPLAIN " + sql).fetchall() if row[1] == "Transaction"]
    assert transactions("SELECT * FROM idem_claim('t','x','fp')") == [(1, 0)]
    assert transactions("SELECT idem_claim('t','x','fp')") == []
    assert transactions(
        "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','x','fp')") == [(0, 1)]


def test_loads_with_any_file_name_that_keeps_the_letters(tmp_path):
    for name in ("idem.so", "libidem.so", "idem0.so", "idem-1.2.so"):
        copy = tmp_path / name
        shutil.copy(SO, copy)
        code = ("import sqlite3, sys; d = sqlite3.connect(':memory:'); d.enable_load_extension(True); "
                "d.load_extension(sys.argv[1]); print(d.execute('SELECT idem_version()').fetchone()[0])")
        out = subprocess.run(["/usr/bin/python3", "-c", code, str(copy)], capture_output=True, text=True)
        assert out.stdout.startswith("idem "), (name, out.stderr)


def test_static_pointer_to_openssl_is_its_own():
    db = connect(":memory:", init=False)
    version = one(db, "SELECT idem_version()")
    assert re.fullmatch(r"idem \d+\.\d+\.\d+, SQLite \d+\.\d+\.\d+, OpenSSL .*", version)
    assert pathlib.Path(SO).exists()
    db.close()

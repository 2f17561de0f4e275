"""corrupt_child.py EXTENSION DIRECTORY SEED COUNT SECONDS: damaged stores, one after the other.

Each is a good store with one to three things changed at random, of one of three kinds:

    values   any storable value in any column of any of idem's tables, past STRICT and the CHECKs
    schema   objects dropped, renamed, altered, replaced, added, their texts changed by a character
    bytes    bytes of the file

and then every call of idem in random order. Whatever the damage: no crash (the parent sees to
that), errors are errors of idem or SQLite, no transaction stays open, no code of the file runs,
nothing outside the store is written. A schema that is not to the letter idem's own is refused by
every call. Prints the number of each store before it is made; exits with 1 and a reason at the
first thing that is not so.
"""
import random
import sqlite3
import sys
import time

SO, DIRECTORY, SEED, COUNT, SECONDS = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:6])
TOKEN = "token-0123456789"
TABLES = ["idem_meta", "idem_policy", "idem_store", "idem_inbox", "idem_audit"]
VIEWS = [
    "idem_audit_entry", "idem_claim_audited", "idem_purge_batch", "idem_health", "idem_contract"]
VIRTUAL = ["idem_call", "idem_records", "idem_claim"]
VALUES = [None, 0, 1, -1, 2, 2**31, 2**63 - 1, -2**63, 0.5, 1e300, -1e19, "", "x", "*", "1", "pay",
          "completed", "processing", "released", "unknown", "tombstone", "COMPLETED", "all", "off",
          "retry", "idem1:aa", TOKEN, "a\0b", "\n" * 300, b"", b"\xff\xfe", b"completed",
          1_700_000_000_000, "y" * 9000]
CALLS = [
    "SELECT idem_claim('t', 'new', 'fp')",
    "SELECT idem_claim('t', 'done', 'fp', 'pay')",
    "SELECT * FROM idem_claim('t', 'held', 'fp')",
    "SELECT * FROM idem_claim('t', 'free', 'fp', 'pay')",
    "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t', 'new-2', 'fp', 'pay')",
    f"SELECT idem_complete('t', 'held', '{TOKEN}', 'r')",
    f"SELECT idem_release('t', 'held', '{TOKEN}')",
    f"SELECT idem_suspend('t', 'held', '{TOKEN}')",
    f"SELECT idem_renew('t', 'held', '{TOKEN}')",
    f"SELECT idem_checkpoint('t', 'held', '{TOKEN}', 'p', 'd')",
    "SELECT idem_resolve('t', 'dark', 'retry')",
    "SELECT idem_resolve('t', 'dark', 'completed', 'r')",
    "SELECT idem_seen('s', 'e', 'fp')",
    "SELECT idem_seen('s', 'new')",
    "SELECT idem_purge(3)",
    "SELECT idem_audit_verify()",
    "SELECT * FROM idem_records",
    "SELECT * FROM idem_records WHERE state = 'expired'",
    "SELECT * FROM idem_records WHERE scope = 't' AND key = 'done'",
    "DELETE FROM idem_records WHERE key = 'done'",
    "SELECT idem_init()",
    f"INSERT INTO idem_records(scope, key, fingerprint, token) VALUES ('t', 'n3', 'fp', '{TOKEN}')",
    f"UPDATE idem_records SET state = 'completed' WHERE key = 'held' AND token = '{TOKEN}'",
]
REFUSED = (sqlite3.Error, UnicodeDecodeError)   # the latter: an error whose text is no UTF-8
spied = []


def spy(*args):
    spied.append(args)
    return 1


def attempt(db, sql, args=()):
    """Damage that SQLite itself refuses is no damage."""
    try:
        db.execute(sql, args).fetchall()
    except REFUSED:
        pass


def connect(path, load=True):
    db = sqlite3.connect(path, isolation_level=None)
    db.text_factory = lambda b: b.decode("utf-8", "surrogateescape")
    attempt(db, "PRAGMA synchronous = OFF")
    db.create_function("spy", -1, spy)
    db.create_function("pure_spy", -1, spy, deterministic=True)
    if load:
        db.enable_load_extension(True)
        db.load_extension(SO)
    return db


def good():
    """The image of a store with a record in every state."""
    db = connect(":memory:")
    db.executescript(
        "CREATE TABLE loot(a, b); INSERT INTO loot VALUES ('untouched', 1); SELECT idem_init();"
        "CREATE TABLE orders(id INTEGER PRIMARY KEY, key TEXT UNIQUE);"
        "INSERT INTO orders(key) VALUES ('done'), ('held'); SELECT idem_clock(1000);"
        "INSERT INTO idem_policy(operation, audit, on_stale) VALUES ('pay', 'all', 'retry')")
    for key in ("old", "held", "dark", "done", "free"):
        if key == "held":
            db.execute("SELECT idem_clock(NULL)").fetchall()
        db.execute("SELECT idem_claim('t', ?, 'fp', ?, ?)",
                   (key, "pay" if key in "done free" else None, TOKEN)).fetchall()
        verb = {"old": "complete", "done": "complete", "dark": "suspend",
                "free": "release"}.get(key)
        if verb:
            db.execute(f"SELECT idem_{verb}('t', ?, ?, 'answer')", (key, TOKEN)).fetchall()
    db.execute("SELECT idem_seen('s', 'e', 'fp')").fetchall()
    return db.serialize()


def damage_values(path, dice):
    """As tests/hostile does it: the tables lose their types for a moment and get them back."""
    db = connect(path, load=False)
    db.execute("PRAGMA writable_schema = ON")
    saved = db.execute(
        "SELECT name, sql FROM sqlite_schema WHERE name LIKE 'idem%' AND sql NOTNULL").fetchall()
    for old, new in ((") STRICT", ")"), (" STRICT,", ""), (" NOT NULL", ""), (" INTEGER", " BLOB"),
                     (" TEXT", " BLOB"), (" ANY", " BLOB"),
                     (" BLOB PRIMARY KEY", " INTEGER PRIMARY KEY")):
        db.execute("UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE type = 'table' AND "
                   "name IN ('idem_store', 'idem_inbox', 'idem_meta', 'idem_policy', 'idem_audit')",
                   (old, new))
    db.execute("DELETE FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'idem%'")
    triggers = [s for s in saved if s[1].startswith("CREATE TRIGGER")]
    db.close()
    db = connect(path, load=False)
    db.execute("PRAGMA ignore_check_constraints = ON")
    for _ in range(dice.choice([1, 1, 2, 3])):
        table = dice.choice(TABLES + ["idem_store"] * 4)
        columns = [r[1] for r in db.execute(f"PRAGMA table_info({table})")]
        where = dice.choice(["", " WHERE key IN ('done', 'free')", " WHERE key = 'held'"]) \
            if table == "idem_store" else ""
        attempt(db, f"UPDATE OR REPLACE {table} SET {dice.choice(columns)} = ?{where}",
                (dice.choice(VALUES),))
        if dice.random() < 0.1:
            attempt(db, f"DELETE FROM {table}")
    db.execute("PRAGMA writable_schema = ON")
    for name, sql in saved:
        db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, name))
    for name, sql in triggers:
        table = sql.split(" ON ")[1].split()[0]
        db.execute("INSERT INTO sqlite_schema(type, name, tbl_name, rootpage, sql) "
                   "VALUES ('trigger', ?, ?, 0, ?)", (name, table, sql))
    db.close()
    return False


def damage_schema(path, dice):
    """True if the schema is now another one."""
    db = connect(path, load=False)
    before = schema(db)
    for _ in range(dice.choice([1, 1, 2, 3])):
        table, other = dice.choice(TABLES), dice.choice(TABLES + VIEWS + VIRTUAL)
        try:
            ours = db.execute("SELECT type, name FROM sqlite_schema WHERE name LIKE 'idem%' "
                              "AND sql NOTNULL").fetchall()
        except sqlite3.DatabaseError:             # the schema cannot be read any more: damaged enough
            break
        kind, name = dice.choice(ours or [("table", "loot")])
        column = dice.choice([r[1] for r in db.execute(f"PRAGMA table_info({table})")] or ["a"])
        when = dice.choice(["BEFORE", "AFTER"]) + " " + dice.choice(["INSERT", "UPDATE", "DELETE"])
        do = dice.choice(["SELECT spy()", "DELETE FROM loot", "SELECT RAISE(IGNORE)",
                          "INSERT INTO loot VALUES ('written', spy())"])
        change = dice.randrange(11)
        if change == 0 and name != "loot":
            attempt(db, f"DROP {kind} {name}")
        elif change == 1:
            attempt(db, f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
        elif change == 2:
            what = dice.choice([f"DROP COLUMN {column}", "ADD COLUMN more"])
            attempt(db, f"ALTER TABLE {table} {what}")
        elif change == 3:
            columns = ", ".join(f"spy() AS {r[1]}" for r in
                                db.execute(f"PRAGMA table_info({table})"))
            attempt(db, f"ALTER TABLE {table} RENAME TO moved")
            attempt(db, f"CREATE VIEW {table} AS SELECT {columns or 1}")
        elif change in (4, 5):
            evil = f"evil_{dice.randrange(99)}"
            attempt(db, f"CREATE TRIGGER {evil} {when} ON {table} BEGIN {do}; END")
        elif change == 6:
            attempt(db, f"CREATE INDEX evil ON {table}(pure_spy({column}))")
        elif change == 7:
            attempt(db, dice.choice(
                [f"CREATE TABLE {other}(a, b)", f"CREATE VIEW {other} AS SELECT spy() AS a"]))
        elif change == 8:                         # a purge would fire a trigger of another table
            parent, key = dice.choice([("idem_store", "id"), ("idem_inbox", "source, event_id")])
            action = dice.choice(["CASCADE", "SET NULL", "SET DEFAULT"])
            attempt(db, f"CREATE TABLE evil_child({key}, FOREIGN KEY({key}) REFERENCES {parent}"
                        f"({key}) ON DELETE {action})")
            attempt(db, f"INSERT INTO evil_child SELECT {key} FROM {parent}")
            attempt(db, f"CREATE TRIGGER evil_act {when} ON evil_child BEGIN {do}; END")
        else:                                     # one character of one text
            db.execute("PRAGMA writable_schema = ON")
            text = db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).fetchone()[0]
            at = dice.randrange(7, len(text))
            other = dice.choice(["", " ", "x", "1", "(", text[at].swapcase()])
            text = text[:at] + other + text[at + 1:]
            attempt(db, "UPDATE sqlite_schema SET sql = ? WHERE name = ?", (text, name))
            db.execute("PRAGMA writable_schema = OFF")
    try:
        changed = schema(db) != before
    except REFUSED:
        changed = True
    db.close()
    return changed


def schema(db):
    return sorted(map(repr, db.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()))


def damage_bytes(path, dice):
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        for _ in range(dice.choice([1, 1, 2, 5, 20])):
            at = dice.randrange(100 if dice.random() < 0.9 else 0, len(data))
            flipped = data[at] ^ (1 << dice.randrange(8))
            data[at] = dice.choice([0, 255, 127, 128, flipped, dice.randrange(256)])
        file.seek(0)
        file.write(data)
    return False


def others(path):
    """What is not idem's: read without it. None where the damage has reached it."""
    try:
        db = sqlite3.connect(path)
        db.text_factory = bytes
        return [db.execute(f"SELECT * FROM {t} NOT INDEXED").fetchall() for t in ("loot", "orders")]
    except REFUSED:
        return None


def expect(condition, *what):
    if not condition:
        print("NOT SO:", *what)
        sys.exit(1)


def attack(path, dice, kind, refused):
    before = others(path)
    db = connect(path)
    attempt(db, "PRAGMA foreign_keys = ON")
    if dice.random() < 0.2:                       # temp objects of the application shadow nothing
        attempt(db, f"CREATE TEMP TABLE {dice.choice(TABLES)}(a, id, scope, key, state)")
    for call in dice.sample(CALLS, len(CALLS) if refused else 12):
        spied.clear()
        try:
            db.execute(call).fetchall()
            # A call that names a virtual table means the file's object of that name.
            named = "idem_claim(" not in call and ("idem_call" in call or "idem_records" in call)
            expect(not refused or named, kind, call, "was answered on a schema that is not idem's")
        except REFUSED as e:                      # SQLite quotes a damaged name; idem must not
            text = getattr(e, "object", b"")
            expect(not text.startswith(b"idem_") or b"malformed" in text, call, text)
        expect(not db.in_transaction, call, "left a transaction open")
        if kind == "schema" and not any(v in call for v in ("idem_call", "idem_records")):
            expect(not spied, call, "ran code of the file")
    db.close()
    expect(before is None or others(path) == before, kind, "wrote outside the store")


def main():
    image, until = good(), time.monotonic() + SECONDS
    for i in range(int(COUNT)):
        if time.monotonic() > until:
            break
        dice = random.Random(f"{SEED:.0f}-{i}")
        kind = dice.choice(["values", "schema", "schema", "bytes"])
        print(i, kind, flush=True)
        path = f"{DIRECTORY}/{i % 8}.db"
        with open(path, "wb") as file:
            file.write(image)
        damage = {"values": damage_values, "schema": damage_schema, "bytes": damage_bytes}[kind]
        attack(path, dice, kind, damage(path, dice))
    print("done")


main()

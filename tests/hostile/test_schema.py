"""Database files that only pretend to have idem's store.

Contract, section 8, trap 8: a clear error, never code execution or a wrong outcome. Code of the file would
show: spy() is a function that every object of the file may call, and it counts; and tables outside of the
store must never change.
"""
import re
import sqlite3

import pytest

from conftest import DEEP, ROOT, SO, claim, connect, one

TOKEN = "token-0123456789"
CALLS = [
    "SELECT idem_init()",
    "SELECT idem_claim('t','new','fp')",
    "SELECT idem_claim('t','done','fp')",
    "SELECT idem_claim('t','new','fp','audited')",
    "SELECT * FROM idem_claim('t','new','fp')",
    "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','new','fp')",
    f"SELECT idem_complete('t','held','{TOKEN}','r')",
    f"SELECT idem_release('t','held','{TOKEN}')",
    f"SELECT idem_suspend('t','held','{TOKEN}')",
    f"SELECT idem_renew('t','held','{TOKEN}')",
    f"SELECT idem_checkpoint('t','held','{TOKEN}','p')",
    "SELECT idem_resolve('t','dark','retry')",
    "SELECT idem_seen('s','e')",
    "SELECT idem_purge()",
    "SELECT idem_audit_verify()",
    "SELECT * FROM idem_records",
    "SELECT * FROM idem_records WHERE scope='t' AND key='done'",
    f"INSERT INTO idem_records(scope,key,fingerprint,token) VALUES('t','new','fp','{TOKEN}')",
    f"UPDATE idem_records SET state='completed' WHERE scope='t' AND key='held' AND token='{TOKEN}'",
    "DELETE FROM idem_records WHERE scope='t' AND key='done'",
]

# Changes that somebody made to a good store. Each must be refused.
TABLES = ["idem_meta", "idem_policy", "idem_store", "idem_inbox", "idem_audit"]
VIEWS = ["idem_audit_entry", "idem_claim_audited", "idem_purge_batch", "idem_health", "idem_contract"]
TAMPERED = {}
for table in TABLES:
    TAMPERED[f"trigger-insert-{table}"] = \
        f"CREATE TRIGGER evil AFTER INSERT ON {table} BEGIN SELECT spy(); INSERT INTO loot VALUES(1); END"
    TAMPERED[f"trigger-update-{table}"] = \
        f"CREATE TRIGGER evil BEFORE UPDATE ON {table.upper()} BEGIN SELECT spy(); DELETE FROM loot; END"
    TAMPERED[f"trigger-delete-{table}"] = \
        f'CREATE TRIGGER "evil" AFTER DELETE ON [{table.title()}] BEGIN SELECT spy(); END'
    TAMPERED[f"column-{table}"] = f"ALTER TABLE {table} ADD COLUMN more TEXT"
    TAMPERED[f"renamed-{table}"] = f"ALTER TABLE {table} RENAME TO other_{table}"
    TAMPERED[f"dropped-{table}"] = f"DROP TABLE {table}"
for column in ("response", "reason", "spent", "tombstone_ms", "granted"):
    TAMPERED[f"no-{column}"] = f"ALTER TABLE idem_store RENAME COLUMN {column} TO gone"
for table, columns in (("idem_store", "state"), ("idem_policy", "audit"), ("idem_inbox", "seen_at")):
    TAMPERED[f"index-{table}"] = f"CREATE INDEX evil ON {table}({columns})"
    TAMPERED[f"index-expression-{table}"] = f"CREATE INDEX evil ON {table}(pure_spy({columns}))"
    TAMPERED[f"index-partial-{table}"] = f"CREATE INDEX evil ON {table}({columns}) WHERE pure_spy(1)"
for view in VIEWS:
    TAMPERED[f"dropped-{view}"] = f"DROP VIEW {view}"
    TAMPERED[f"replaced-{view}"] = f"DROP VIEW {view}; CREATE VIEW {view} AS SELECT spy() AS a"
    TAMPERED[f"table-for-{view}"] = f"DROP VIEW {view}; CREATE TABLE {view}(a)"
for view in ("idem_audit_entry", "idem_claim_audited", "idem_purge_batch"):
    TAMPERED[f"instead-{view}"] = \
        f"CREATE TRIGGER evil INSTEAD OF INSERT ON {view} BEGIN SELECT spy(); INSERT INTO loot VALUES(1); END"
TAMPERED["no-audit-trigger"] = "DROP TRIGGER idem_store_audit"
TAMPERED["no-due-index"] = "DROP INDEX idem_store_due"
TAMPERED["audit-not-append-only"] = "DROP TRIGGER idem_audit_no_delete"
TAMPERED["no-policy-trigger"] = "DROP TRIGGER idem_policy_updated"
TAMPERED["own-trigger-writes-the-audit"] = (
    "CREATE TRIGGER evil AFTER INSERT ON loot BEGIN INSERT INTO idem_audit_entry"
    " VALUES (1, 'resolve-completed', 't', 'done', '', 1, 'anna said so'); END")
TAMPERED["own-trigger-reads-store"] = \
    "CREATE TRIGGER evil AFTER INSERT ON loot BEGIN SELECT spy() FROM idem_store; END"
# A deletion in the store changes the rows that refer to it, and that fires their triggers.
for what, column in (
        ("cascade", "INTEGER REFERENCES idem_store(id) ON DELETE CASCADE"),
        ("set-null", 'INTEGER REFERENCES "Idem_Store"(id) ON DELETE/**/SET/**/NULL'),
        ("set-default", "INTEGER DEFAULT 0 REFERENCES[IDEM_STORE](id) ON\tdelete\nset\ndefault"),
        ("inbox", "TEXT, b TEXT, FOREIGN KEY(a, b) REFERENCES idem_inbox ON DELETE CASCADE")):
    TAMPERED[f"foreign-key-{what}"] = (
        f"CREATE TABLE evil(a {column}); INSERT INTO evil(a) SELECT id FROM idem_store;"
        "CREATE TRIGGER evil_go AFTER DELETE ON evil BEGIN SELECT spy(); DELETE FROM loot; END;"
        "CREATE TRIGGER evil_gone AFTER UPDATE ON evil BEGIN SELECT spy(); DELETE FROM loot; END")
for name in ("idem_call", "idem_records", "IDEM_CALL"):
    TAMPERED[f"table-{name}"] = (
        f"CREATE TABLE {name}(result, scope, key, fingerprint, token);"
        f"CREATE TRIGGER evil AFTER INSERT ON {name} BEGIN SELECT spy(); INSERT INTO loot VALUES(1); END")
    TAMPERED[f"view-{name}"] = (
        f"CREATE VIEW {name} AS SELECT spy() AS result;"
        f"CREATE TRIGGER evil INSTEAD OF INSERT ON {name} BEGIN SELECT spy(); INSERT INTO loot VALUES(1); END")

REPLACED = {}
for table in TABLES:
    columns = "id, schema_version, policy_version, operation, scope, key, state, source, event_id, at, token"
    for case in (table, table.upper(), f'"{table.title()}"'):
        REPLACED[f"view-{case}"] = (
            f"CREATE VIEW {case} AS SELECT spy() AS id, 1 AS schema_version, 0 AS policy_version, '*' AS operation,"
            " 't' AS scope, 'done' AS key, 'completed' AS state;"
            f"CREATE TRIGGER evil INSTEAD OF INSERT ON {case} BEGIN SELECT spy(); INSERT INTO loot VALUES(1); END;"
            f"CREATE TRIGGER evil2 INSTEAD OF UPDATE ON {case} BEGIN SELECT spy(); INSERT INTO loot VALUES(1); END")
    # SQLite makes such a table before it looks at WHERE 0.
    REPLACED[f"materialized-{table}"] = (
        f"CREATE VIEW {table} AS WITH x(v) AS MATERIALIZED (SELECT spy()) SELECT 1 AS id, x.v AS schema_version,"
        " y.v AS policy_version, '*' AS operation, 't' AS scope, 'done' AS key, 'completed' AS state FROM x, x AS y;"
        f"CREATE TRIGGER evil2 INSTEAD OF UPDATE ON {table} BEGIN SELECT spy(); INSERT INTO loot VALUES(1); END")
    REPLACED[f"table-{table}"] = f"CREATE TABLE {table}({columns}); INSERT INTO {table}(id) VALUES(1)"
    REPLACED[f"virtual-{table}"] = f"CREATE VIRTUAL TABLE {table} USING fts5({columns.replace('key,', '')})"
    REPLACED[f"generated-{table}"] = \
        f"CREATE TABLE {table}(id INTEGER PRIMARY KEY, schema_version AS (pure_spy(id)), policy_version AS (id)); " \
        f"INSERT INTO {table}(id) VALUES(1)"
REPLACED["all-as-views"] = "".join(
    f"CREATE VIEW {t} AS SELECT spy() AS id, spy() AS schema_version, spy() AS policy_version;" for t in TABLES)
REPLACED["index-of-that-name"] = "CREATE INDEX idem_store_due ON loot(a)"
REPLACED["trigger-of-that-name"] = "CREATE TRIGGER idem_store AFTER INSERT ON loot BEGIN SELECT spy(); END"


class Spy:
    """Counts the calls of functions that objects of the file may use."""
    def __init__(self):
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        return 1

    def register(self, db):
        db.create_function("spy", -1, self)
        db.create_function("pure_spy", -1, self, deterministic=True)
        # A SQLite that trusts no schema would refuse some of them before idem is asked.
        db.execute("PRAGMA trusted_schema = ON")


def good(path, image=[]):
    """A store with three records, and a table that is none of idem's business."""
    if not image:
        db = make_good()
        image.append(db.serialize())
        db.close()
    path.write_bytes(image[0])


def make_good():
    db = connect(":memory:")
    db.execute("CREATE TABLE loot(a)")
    db.execute("INSERT INTO loot VALUES('untouched')")
    db.execute("INSERT INTO idem_policy(operation, audit) VALUES('audited', 'all')")
    for key in ("held", "dark", "done"):
        claim(db, key, token=TOKEN)
    one(db, "SELECT idem_suspend('t','dark',?)", TOKEN)
    one(db, "SELECT idem_complete('t','done',?,'answer')", TOKEN)
    return db


def tamper(path, script, spy):
    db = connect(path, init=False, load=False)
    spy.register(db)
    db.execute("PRAGMA synchronous = OFF")
    db.executescript(script)
    db.close()
    spy.calls = 0


def content(path):
    """Everything in the file but the schema, read without idem and without calling what is in it."""
    raw = sqlite3.connect(str(path))
    raw.execute("PRAGMA trusted_schema = OFF")
    out = {}
    for name, sql in raw.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall():
        if "VIRTUAL" in sql.upper() or "pure_spy" in sql or name.startswith("sqlite_"):
            continue
        out[name] = raw.execute(f'SELECT * FROM "{name}"').fetchall()
    schema = raw.execute("SELECT * FROM sqlite_schema").fetchall()
    raw.close()
    return out, schema


MESSAGE = re.compile(r"idem_\w+: (the database object .* is not as idem created it, or acts on its tables, and is not"
                     r" trusted: drop it or restore the store"
                     r"|the store is incomplete, [A-Z]+ idem_\w+ is missing: restore the database from a backup"
                     r"|this database has no idem store: run SELECT idem_init)")

def attack(path, spy, calls=CALLS, own_tables=()):
    """Every call on the file: refused, nothing run, nothing written."""
    before = content(path)
    if not DEEP:                                  # every third call, beginning with another one each time
        calls = calls[sum(path.parent.name.encode()) % 3::3]
    for call in calls:
        if any(name in call for name in own_tables):
            continue                              # the application itself names the file's object
        for begin in "", "BEGIN", "BEGIN IMMEDIATE":
            db = connect(path, init=False)
            spy.register(db)
            db.execute(begin)
            with pytest.raises(sqlite3.DatabaseError) as e:
                db.execute(call).fetchall()
            text = str(e.value)
            assert MESSAGE.match(text), (begin, call, text)
            assert spy.calls == 0, (begin, call, "code of the file was run")
            assert db.in_transaction == bool(begin)
            assert one(db, "SELECT 1") == 1
            db.close()
        assert content(path) == before, (call, "the file was changed")


@pytest.mark.parametrize("script", TAMPERED.values(), ids=TAMPERED.keys())
def test_a_tampered_store(path, script):
    good(path)
    spy = Spy()
    tamper(path, script, spy)
    own = [n for n in ("idem_call", "idem_records") if re.search(rf"(TABLE|VIEW) {n}\b", script, re.I)]
    attack(path, spy, own_tables=own)


@pytest.mark.parametrize("script", REPLACED.values(), ids=REPLACED.keys())
def test_something_else_under_the_stores_names(path, script):
    raw = sqlite3.connect(str(path))
    raw.executescript("PRAGMA synchronous = OFF; CREATE TABLE loot(a); INSERT INTO loot VALUES('untouched')")
    raw.close()
    spy = Spy()
    tamper(path, script, spy)
    attack(path, spy)


@pytest.mark.parametrize("call", [c for c in CALLS if "idem_init" not in c])
@pytest.mark.parametrize("evil", [TAMPERED["trigger-insert-idem_store"], TAMPERED["trigger-update-idem_store"],
                                  TAMPERED["trigger-insert-idem_inbox"], TAMPERED["instead-idem_claim_audited"],
                                  TAMPERED["index-expression-idem_store"], TAMPERED["table-idem_call"],
                                  "DROP TABLE idem_store; CREATE VIEW idem_store AS SELECT spy() AS id"])
@pytest.mark.parametrize("seen", ["unseen", "reloaded"])
def test_a_change_between_two_calls(path, call, evil, seen):
    """The connection has verified the store and keeps statements; then another one changes the schema."""
    good(path)
    spy = Spy()
    db = connect(path, init=False)
    spy.register(db)
    for key in ("a", "b"):                        # everything is prepared, the verdict is remembered
        claim(db, key, token=TOKEN)
        one(db, "SELECT idem_complete('t',?,?,'x')", key, TOKEN)
    db.execute("SELECT * FROM idem_records").fetchall()
    tamper(path, evil, spy)
    if seen == "reloaded":                        # any statement of the application reloads the schema
        db.execute("SELECT * FROM loot").fetchall()
    before = content(path)
    if "idem_call(" in evil and "idem_call" in call:
        return                                    # the application itself names the file's table
    with pytest.raises(sqlite3.DatabaseError) as e:
        db.execute(call).fetchall()
    assert MESSAGE.match(str(e.value)), str(e.value)
    assert spy.calls == 0
    assert content(path) == before
    db.close()


def test_a_rolled_back_cookie_does_not_verify_another_schema(path):
    """A rollback takes a schema cookie back and another connection's change gives it out again."""
    good(path)
    spy = Spy()
    db = connect(path, init=False)
    spy.register(db)
    db.execute("BEGIN")
    db.execute("CREATE TABLE mine(a)")            # cookie + 1
    assert claim(db, "a")["outcome"] == "claimed" # verified under it
    db.execute("ROLLBACK")
    tamper(path, TAMPERED["trigger-insert-idem_inbox"], spy)  # cookie + 1 again
    db.execute("SELECT * FROM loot").fetchall()
    with pytest.raises(sqlite3.OperationalError, match="not trusted"):
        one(db, "SELECT idem_seen('s','e')")
    assert spy.calls == 0
    db.close()


def test_own_changes_are_noticed(path):
    good(path)
    spy = Spy()
    db = connect(path, init=False)
    spy.register(db)
    claim(db, "a")
    db.execute("CREATE TRIGGER evil AFTER INSERT ON idem_store BEGIN SELECT spy(); END")
    for sql in ("SELECT idem_claim('t','b','fp')", "SELECT * FROM idem_claim('t','b','fp')"):
        with pytest.raises(sqlite3.OperationalError, match="object evil is not as idem created it"):
            db.execute(sql).fetchall()
    assert spy.calls == 0
    db.execute("DROP TRIGGER evil")
    assert claim(db, "b")["outcome"] == "claimed"
    db.close()


# What only sounds like the store is the application's own affair.
HARMLESS = {
    "index": "CREATE TABLE invoice(a, idem_store_id INTEGER REFERENCES idem_store(id));"
             " CREATE INDEX invoice_idem_store_id ON invoice(idem_store_id)",
    "index-on-an-archive": "CREATE TABLE idem_store_archive(a); CREATE INDEX by_a ON idem_store_archive(a)",
    "trigger": "CREATE TABLE idem_audit_archive(a); CREATE TRIGGER keep AFTER INSERT ON loot"
               " BEGIN INSERT INTO idem_audit_archive VALUES (new.a); END",
    "trigger-of-a-column": "CREATE TABLE mine(idem_records_seen); CREATE TRIGGER seen AFTER UPDATE OF"
                           " idem_records_seen ON mine BEGIN DELETE FROM loot; END",
    "foreign-key": "CREATE TABLE customer(id INTEGER PRIMARY KEY); CREATE TABLE mine(idem_store_key,"
                   " customer REFERENCES customer ON DELETE CASCADE)",
}


@pytest.mark.parametrize("script", HARMLESS.values(), ids=HARMLESS.keys())
def test_a_name_that_begins_like_one_of_ours(path, script):
    """A migration in the middle of a payment must not keep it from being completed."""
    good(path)
    db = connect(path, init=False)
    assert claim(db, "a", token=TOKEN)["outcome"] == "claimed"
    db.executescript(script)
    assert one(db, "SELECT idem_complete('t','a',?,'x')", TOKEN) == 1
    assert one(db, "SELECT idem_init()") == 1
    assert one(db, "SELECT count(*) FROM idem_records WHERE key = 'a'") == 1
    db.close()


# -- lies in sqlite_schema ---------------------------------------------------------------------------

FORGED = {
    "tbl_name": ("trigger", "evil", "loot", "CREATE TRIGGER evil AFTER INSERT ON idem_store BEGIN SELECT spy(); END"),
    "tbl_name-upper": ("trigger", "evil", "loot",
                       "CREATE TRIGGER evil AFTER INSERT ON IDEM_STORE BEGIN SELECT spy(); END"),
    "type": ("index", "evil", "loot", "CREATE TRIGGER evil AFTER INSERT ON idem_store BEGIN SELECT spy(); END"),
    "type-table": ("table", "evil", "evil", "CREATE TRIGGER evil AFTER INSERT ON idem_store BEGIN SELECT spy(); END"),
    "type-view": ("view", "evil", "evil", "CREATE TRIGGER evil AFTER INSERT ON idem_store BEGIN SELECT spy(); END"),
    "type-nonsense": ("x", "evil", "x", "CREATE TRIGGER evil AFTER INSERT ON 'Idem_Store' BEGIN SELECT spy(); END"),
    "spaces": ("view", "evil", "x", "create\ttrigger evil after insert on idem_store begin select spy(); end"),
    "comment": ("trigger", "evil", "x", "CREATE/**/TRIGGER evil AFTER INSERT ON/**/idem_store BEGIN SELECT spy(); END"),
    "index": ("table", "evil", "x", "CREATE INDEX evil ON idem_store(pure_spy(state))"),
    **{f"instead-of-{view}": ("trigger", "evil", "loot",
                              f"CREATE TRIGGER evil INSTEAD OF INSERT ON {view} BEGIN SELECT spy(); DELETE FROM loot; END")
       for view in ("idem_audit_entry", "idem_claim_audited", "idem_purge_batch")},
    "name-of-ours": ("trigger", "idem_store_audit", "loot",
                     "CREATE TRIGGER evil AFTER INSERT ON idem_store BEGIN SELECT spy(); END"),
}


PARTS = re.findall(r"^CREATE (INDEX|TRIGGER) (\w+)", (ROOT / "sql" / "store.sql").read_text(), re.M)


@pytest.mark.parametrize("kind, name", PARTS, ids=[name for _, name in PARTS])
def test_a_twin_of_a_part_of_the_store(path, kind, name):
    """Listed first, it would keep SQLite from loading the genuine one, whose text stands there too."""
    db = connect(path, init=False)
    db.executescript("CREATE TABLE loot(a); CREATE TABLE room(a)")
    assert one(db, "SELECT idem_init()") == 1
    db.execute("DROP TABLE room")                 # its row, the second, is free
    db.close()
    raw = sqlite3.connect(str(path))
    raw.execute("PRAGMA writable_schema = ON")
    if kind == "INDEX":
        root = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()[0]
        twin = ("index", name, "loot", root, f"CREATE INDEX {name} ON loot(a)")
    else:
        twin = ("trigger", name, "loot", 0, f"CREATE TRIGGER {name} AFTER INSERT ON loot BEGIN SELECT 1; END")
    raw.execute("INSERT INTO sqlite_schema(rowid, type, name, tbl_name, rootpage, sql) VALUES (2, ?, ?, ?, ?, ?)", twin)
    raw.execute("PRAGMA schema_version = 4242")
    raw.commit()
    raw.close()
    db = connect(path, init=False)
    db.execute("PRAGMA writable_schema = ON")
    for sql in ("SELECT idem_claim('t', 'new', 'fp')", "SELECT * FROM idem_records", "SELECT idem_init()"):
        with pytest.raises(sqlite3.DatabaseError) as e:
            db.execute(sql).fetchall()
        assert f"the database object {name} is not as idem created it" in str(e.value), str(e.value)
    db.close()


@pytest.mark.parametrize("writable", [0, 1], ids=["plain", "writable_schema"])
@pytest.mark.parametrize("row", FORGED.values(), ids=FORGED.keys())
def test_a_forged_schema_row(path, row, writable):
    """Without writable_schema SQLite itself finds the schema malformed; with it, idem must look."""
    good(path)
    raw = sqlite3.connect(str(path))
    raw.execute("PRAGMA synchronous = OFF")
    raw.execute("PRAGMA writable_schema = ON")
    root = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'loot'").fetchone()[0]
    raw.execute("INSERT INTO sqlite_schema(type, name, tbl_name, rootpage, sql) VALUES(?,?,?,?,?)",
                (*row[:3], root if "INDEX" in row[3] else 0, row[3]))
    raw.commit()
    raw.close()
    spy = Spy()
    for call in ("SELECT idem_claim('t','new','fp')", "SELECT * FROM idem_claim('t','new','fp')",
                 "SELECT * FROM idem_records",
                 f"INSERT INTO idem_records(scope,key,fingerprint,token) VALUES('t','new','fp','{TOKEN}')"):
        db = sqlite3.connect(str(path), isolation_level=None)
        spy.register(db)
        db.execute(f"PRAGMA writable_schema = {writable}")
        db.enable_load_extension(True)
        db.load_extension(SO)
        with pytest.raises(sqlite3.DatabaseError, match="not trusted|malformed|no such table|no such module"):
            db.execute(call).fetchall()
        assert spy.calls == 0
        db.close()


def test_case_sensitive_like_does_not_blind_the_check(path):
    good(path)
    spy = Spy()
    tamper(path, TAMPERED["trigger-update-idem_store"], spy)
    db = connect(path, init=False)
    spy.register(db)
    db.execute("PRAGMA case_sensitive_like = ON")
    with pytest.raises(sqlite3.OperationalError, match="not trusted"):
        one(db, f"SELECT idem_complete('t','held','{TOKEN}','r')")
    assert spy.calls == 0
    db.close()


# -- temp objects and attached databases ----------------------------------------------------------------

@pytest.mark.parametrize("make", [
    "CREATE TEMP TABLE {}(id, scope, key, state, operation, schema_version, policy_version)",
    "CREATE TEMP VIEW {} AS SELECT spy() AS id, 't' AS scope, 'done' AS key, 'released' AS state"])
def test_temp_objects_shadow_nothing(path, make):
    good(path)
    db = connect(path, init=False)
    spy = Spy()
    spy.register(db)
    for name in TABLES + VIEWS:
        db.execute(make.format(name))
    assert claim(db, "done")["response"] == "answer"
    assert '"claimed"' in one(db, "SELECT idem_claim('t','new','fp','audited')")
    assert claim(db, "new2")["outcome"] == "claimed"
    assert one(db, "SELECT idem_complete('t','held',?,'r')", TOKEN) == 1
    assert one(db, "SELECT idem_resolve('t','dark','retry')") == 1
    assert one(db, "SELECT idem_seen('s','e')") == 1
    assert one(db, "SELECT idem_purge()") == 0
    assert one(db, "SELECT count(*) FROM idem_records") == 5
    assert one(db, "SELECT idem_audit_verify()") is None
    assert one(db, "SELECT count(*) FROM main.idem_audit") == 3
    assert one(db, "SELECT idem_init()") == 1
    assert spy.calls == 0
    if "TABLE" in make:
        for name in TABLES + VIEWS:
            assert one(db, f"SELECT count(*) FROM temp.{name}") == 0
    db.close()


def test_no_half_store_is_made_where_temp_tables_have_its_names(path):
    db = connect(path, init=False)
    for name in TABLES:
        db.execute(f"CREATE TEMP TABLE {name}(a)")
    with pytest.raises(sqlite3.OperationalError, match="^idem_init: "):
        one(db, "SELECT idem_init()")
    assert one(db, "SELECT count(*) FROM main.sqlite_schema") == 0
    for name in TABLES:
        db.execute(f"DROP TABLE temp.{name}")
    assert one(db, "SELECT idem_init()") == 1
    db.close()


def test_an_attached_store_is_never_meant(path, tmp_path):
    good(tmp_path / "other.db")
    db = connect(path, init=False)
    db.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    for sql in ("SELECT idem_claim('t','done','fp')", "SELECT * FROM idem_claim('t','done','fp')",
                "SELECT * FROM idem_records"):
        with pytest.raises(sqlite3.OperationalError, match="run SELECT idem_init"):
            db.execute(sql).fetchall()
    assert one(db, "SELECT idem_init()") == 1
    assert claim(db, "done")["outcome"] == "claimed"
    assert one(db, "SELECT count(*) FROM other.idem_store") == 3
    db.close()


def test_a_temp_table_named_idem_claim(path):
    """An application's own temp table of that name stays; the other forms work."""
    good(path)
    db = connect(path, init=False, load=False)
    db.execute("CREATE TEMP TABLE idem_claim(a)")
    db.enable_load_extension(True)
    db.load_extension(SO)
    assert '"replay"' in one(db, "SELECT idem_claim('t','done','fp')")
    assert one(db, "SELECT count(*) FROM temp.idem_claim") == 0
    db.close()


@pytest.mark.parametrize("kind", ["TABLE idem_claim(a, b)", "VIEW idem_claim AS SELECT spy() AS outcome"])
def test_an_object_of_the_file_named_idem_claim(path, kind):
    """temp is searched before main, so the table-valued form is ours; the file is refused all the same."""
    good(path)
    spy = Spy()
    tamper(path, f"CREATE {kind}", spy)
    db = connect(path, init=False)
    spy.register(db)
    for sql in ("SELECT * FROM idem_claim('t','done','fp')", "SELECT idem_claim('t','done','fp')"):
        with pytest.raises(sqlite3.OperationalError, match="^idem_claim: the database object idem_claim is not"):
            db.execute(sql).fetchall()
    assert spy.calls == 0
    db.close()


def test_what_applications_may_add(path):
    """Own tables, views and triggers beside the store are no concern of idem's."""
    good(path)
    db = connect(path, init=False)
    db.executescript("""
        CREATE TABLE orders(id INTEGER PRIMARY KEY, key TEXT);
        CREATE INDEX orders_key ON orders(key);
        CREATE VIEW stuck AS SELECT scope, key FROM idem_store WHERE state = 'unknown';
        CREATE TRIGGER orders_new AFTER INSERT ON orders BEGIN UPDATE orders SET key = key; END;
        CREATE TABLE notes(store_id INTEGER REFERENCES idem_store(id), note TEXT);
        CREATE TABLE kept(store_id INTEGER REFERENCES idem_store(id) ON DELETE RESTRICT, asset_id, offset);
        CREATE VIRTUAL TABLE search USING fts5(body);
        ANALYZE;
    """)
    assert claim(db, "done")["response"] == "answer"
    assert claim(db, "new")["outcome"] == "claimed"
    assert one(db, "SELECT key FROM stuck") == "dark"
    db.execute("UPDATE idem_policy SET lease_ms = 5 WHERE operation = '*'")
    db.execute("VACUUM")
    assert claim(db, "new-2")["outcome"] == "claimed"
    db.close()

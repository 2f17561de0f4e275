"""What surrounds a call: no store, a store of a future version, a read-only database, a lock beyond
busy_timeout, a full disk, an interrupt. A clear error that starts with the function's name, the right
SQLite code, nothing written, the connection usable.
"""
import sqlite3
import time

import pytest

from conftest import claim, connect, needs_progress, one, policy, record

TOKEN = "token-0123456789"

# Calls that write on the store that the fixture makes, by name of the speaker.
WRITERS = [
    ("idem_claim", "SELECT idem_claim('t','new','fp')"),
    ("idem_claim", "SELECT idem_claim('t','new','fp','audited')"),
    ("idem_claim", "SELECT idem_claim('t','free','fp')"),
    ("idem_claim", "SELECT idem_claim('t','over','fp')"),
    ("idem_claim", "SELECT * FROM idem_claim('t','new','fp')"),
    ("idem_claim", "SELECT * FROM idem_claim('t','free','fp')"),
    ("idem_complete", f"SELECT idem_complete('t','held','{TOKEN}','r',200)"),
    ("idem_complete", f"SELECT idem_complete('t','watched','{TOKEN}','r')"),
    ("idem_release", f"SELECT idem_release('t','held','{TOKEN}','why')"),
    ("idem_suspend", f"SELECT idem_suspend('t','held','{TOKEN}')"),
    ("idem_renew", f"SELECT idem_renew('t','held','{TOKEN}')"),
    ("idem_checkpoint", f"SELECT idem_checkpoint('t','held','{TOKEN}','p','d')"),
    ("idem_resolve", "SELECT idem_resolve('t','dark','completed','r')"),
    ("idem_resolve", "SELECT idem_resolve('t','dark','retry')"),
    ("idem_seen", "SELECT idem_seen('s','new')"),
    ("idem_purge", "SELECT idem_purge()"),
]
TABLE_WRITERS = [
    ("idem_records", f"INSERT INTO idem_records(scope,key,fingerprint,token) VALUES('t','new','fp','{TOKEN}')"),
    ("idem_records", "UPDATE idem_records SET state='completed', response='r' "
                     f"WHERE scope='t' AND key='held' AND token='{TOKEN}'"),
    ("idem_records", "DELETE FROM idem_records WHERE scope='t' AND key='free'"),
    ("idem_claim", "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','new','fp')"),
]
READERS = [
    ("idem_claim", "SELECT idem_claim('t','done','fp')"),
    ("idem_claim", "SELECT * FROM idem_claim('t','done','fp')"),
    ("idem_claim", "SELECT idem_claim('t','held','fp')"),
    ("idem_claim", "SELECT idem_claim('t','done','other')"),
    ("idem_complete", f"SELECT idem_complete('t','done','{TOKEN}','answer')"),
    ("idem_seen", "SELECT idem_seen('s','before')"),
    ("idem_audit_verify", "SELECT idem_audit_verify()"),
    ("idem_records", "SELECT * FROM idem_records"),
    ("idem_records", "SELECT * FROM idem_records WHERE scope='t' AND key='done'"),
]
EVERY = WRITERS + TABLE_WRITERS + READERS
ids = [f"{i}-{name}" for i, (name, _) in enumerate(EVERY)]


def fill(db):
    policy(db, "audited", audit="all")
    for key in ("held", "dark", "free", "done"):
        claim(db, key, token=TOKEN)
    claim(db, "watched", operation="audited", token=TOKEN)
    one(db, "SELECT idem_suspend('t','dark',?)", TOKEN)
    one(db, "SELECT idem_release('t','free',?)", TOKEN)
    one(db, "SELECT idem_complete('t','done',?,'answer')", TOKEN)
    one(db, "SELECT idem_seen('s','before')")
    one(db, "SELECT idem_clock(1000)")
    for key in ("over", "expired"):
        claim(db, key, token=TOKEN)
        one(db, "SELECT idem_complete('t',?,?,'x')", key, TOKEN)
    one(db, "SELECT idem_clock(1000 + 86400000 + 2592000000)")
    one(db, "SELECT idem_clock(NULL)")


@pytest.fixture
def file(path):
    db = connect(path)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("CREATE TABLE business(id INTEGER PRIMARY KEY, body)")
    fill(db)
    db.close()
    return path


def everything(db):
    return [db.execute(f"SELECT * FROM main.{t}").fetchall()
            for t in ("idem_store", "idem_inbox", "idem_audit", "idem_policy", "idem_meta")]


def fails(db, name, sql, code, says):
    with pytest.raises(sqlite3.DatabaseError) as e:
        db.execute(sql).fetchall()
    assert str(e.value).startswith(f"{name}: ") and says in str(e.value), str(e.value)
    assert e.value.sqlite_errorcode & 0xff == code, e.value.sqlite_errorname
    assert not db.in_transaction
    assert TOKEN not in str(e.value)
    return e.value


@pytest.mark.parametrize("name,sql", EVERY, ids=ids)
def test_no_store(name, sql):
    db = connect(":memory:", init=False)
    fails(db, name, sql, sqlite3.SQLITE_ERROR, "run SELECT idem_init()")
    assert one(db, "SELECT count(*) FROM sqlite_schema") == 0
    assert one(db, "SELECT idem_init()") == 1
    assert claim(db, "k")["outcome"] == "claimed"
    db.close()


@pytest.mark.parametrize("name,sql", EVERY + [("idem_init", "SELECT idem_init()")], ids=ids + ["init"])
def test_a_store_of_a_future_version(file, name, sql):
    db = connect(file)
    db.execute("UPDATE idem_meta SET schema_version = 7")
    db.execute("CREATE TABLE later(a)")           # a new schema cookie, as an upgrade makes
    before = everything(db)
    e = fails(db, name, sql, sqlite3.SQLITE_ERROR, "schema version 7, this library knows version 1")
    assert "load a newer idem" in str(e)
    assert everything(db) == before
    db.close()
    fresh = connect(file, init=False)
    fails(fresh, name, sql, sqlite3.SQLITE_ERROR, "schema version 7")
    fresh.execute("UPDATE idem_meta SET schema_version = 1")
    assert claim(fresh, "done")["response"] == "answer"
    fresh.close()


def test_a_future_store_with_other_tables(file):
    """The version explains them, so it is asked first."""
    db = connect(file, load=False, init=False)
    db.execute("ALTER TABLE idem_store ADD COLUMN novelty TEXT")
    db.execute("CREATE TABLE idem_novelty(a)")
    db.execute("CREATE INDEX idem_store_novelty ON idem_store(novelty)")
    db.execute("UPDATE idem_meta SET schema_version = 2")
    db.close()
    db = connect(file, init=False)
    for name, sql in READERS + [("idem_init", "SELECT idem_init()")]:
        fails(db, name, sql, sqlite3.SQLITE_ERROR, "schema version 2, this library knows version 1")
    db.close()


def read_only(path, how):
    if how == "query_only":
        db = connect(path, init=False)
        db.execute("PRAGMA query_only = ON")
        return db
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    db.enable_load_extension(True)
    from conftest import SO
    db.load_extension(SO)
    return db


@pytest.mark.parametrize("how", ["mode=ro", "query_only"])
def test_read_only(file, how):
    db = read_only(file, how)
    before = everything(db)
    for name, sql in WRITERS + TABLE_WRITERS:
        if sql.startswith("SELECT"):
            fails(db, name, sql, sqlite3.SQLITE_READONLY, "")
        else:                                     # SQLite refuses the outer statement by itself
            with pytest.raises(sqlite3.OperationalError) as e:
                db.execute(sql).fetchall()
            assert e.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_READONLY
        assert everything(db) == before
    for name, sql in READERS:
        db.execute(sql).fetchall()
    assert claim(db, "done")["response"] == "answer"
    assert one(db, "SELECT idem_init()") == 1     # the store is there: nothing to write
    db.close()


def test_read_only_inside_a_transaction(file):
    db = read_only(file, "mode=ro")
    db.execute("BEGIN")
    assert claim(db, "done")["outcome"] == "replay"
    with pytest.raises(sqlite3.OperationalError, match="^idem_claim: .*read-only") as e:
        claim(db, "new")
    assert e.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_READONLY
    assert '"replay"' in one(db, "SELECT idem_claim('t','done','fp')")
    db.execute("COMMIT")
    db.close()


def test_the_read_only_message_names_the_pool(file):
    db = read_only(file, "mode=ro")
    e = fails(db, "idem_claim", "SELECT idem_claim('t','new','fp')", sqlite3.SQLITE_READONLY, "read-only")
    assert "INSERT INTO idem_call" in str(e)
    db.close()


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_locked_beyond_busy_timeout(file, mode):
    holder = connect(file, load=False, init=False)
    holder.execute(f"PRAGMA journal_mode = {mode}").fetchall()
    db = connect(file, timeout=0.05)
    before = everything(db)
    holder.execute("BEGIN IMMEDIATE" if mode == "WAL" else "BEGIN EXCLUSIVE")
    for name, sql in WRITERS + TABLE_WRITERS + (READERS if mode == "DELETE" else []):
        began = time.monotonic()
        if sql.startswith("SELECT") and name != "idem_records":
            fails(db, name, sql, sqlite3.SQLITE_BUSY, "database is locked (another connection is writing")
        else:
            with pytest.raises(sqlite3.OperationalError) as e:
                db.execute(sql).fetchall()
            assert e.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_BUSY
        assert 0.04 < time.monotonic() - began < 2, "busy_timeout was not honoured"
    holder.execute("ROLLBACK")
    assert everything(db) == before
    for name, sql in WRITERS:
        try:
            db.execute(sql).fetchall()            # all of them work now, or say what is true
        except sqlite3.IntegrityError:
            pass
    db.close()
    holder.close()


def test_a_locked_claim_waits(file):
    """busy_timeout is honoured in every form: the claim succeeds as soon as the lock is gone."""
    import threading
    forms = ["SELECT idem_claim('t',?,'fp')", "SELECT outcome FROM idem_claim('t',?,'fp')",
             "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t',?,'fp')"]
    db = connect(file, timeout=10)
    for begin in ("", "BEGIN"):
        for i, sql in enumerate(forms):
            ready = threading.Event()

            def hold():
                holder = connect(file, load=False, init=False)
                holder.execute("BEGIN IMMEDIATE")
                ready.set()
                time.sleep(0.15)
                holder.execute("COMMIT")
                holder.close()

            thread = threading.Thread(target=hold)
            thread.start()
            ready.wait()
            if begin:
                db.execute(begin)
            assert "claimed" in one(db, sql, f"key-{begin}-{i}")
            if begin:
                db.execute("COMMIT")
            thread.join()
    db.close()


def full(db):
    """No page more for this database."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    pages = one(db, "PRAGMA page_count")
    assert one(db, f"PRAGMA max_page_count = {pages}") == pages


def roomy(db):
    db.execute("PRAGMA max_page_count = 100000").fetchall()


BIG = "x" * 100000


@pytest.mark.parametrize("name,sql", [
    ("idem_complete", f"SELECT idem_complete('t','held','{TOKEN}',?)"),
    ("idem_complete", f"SELECT idem_complete('t','watched','{TOKEN}',?)"),
    ("idem_checkpoint", f"SELECT idem_checkpoint('t','held','{TOKEN}','p',?)"),
    ("idem_resolve", "SELECT idem_resolve('t','dark','completed',?)"),
    ("idem_records", "UPDATE idem_records SET state='completed', response=? "
                     f"WHERE scope='t' AND key='held' AND token='{TOKEN}'"),
])
@pytest.mark.parametrize("begin", ["", "BEGIN", "BEGIN IMMEDIATE"])
def test_a_full_disk(file, name, sql, begin):
    db = connect(file)
    full(db)
    before = everything(db)
    if begin:
        db.execute(begin)
    with pytest.raises(sqlite3.OperationalError, match=f"^{name}: database or disk is full") as e:
        db.execute(sql, (BIG,)).fetchall()
    assert e.value.sqlite_errorcode == sqlite3.SQLITE_FULL
    if db.in_transaction:
        assert everything(db) == before
        db.execute("ROLLBACK")
    assert everything(db) == before
    assert claim(db, "done")["response"] == "answer"
    roomy(db)
    db.execute(sql, (BIG,)).fetchall()
    assert everything(db) != before
    assert one(db, "PRAGMA integrity_check") == "ok"
    db.close()


@pytest.mark.parametrize("sql", ["SELECT idem_claim('t',?,'fp')", "SELECT outcome FROM idem_claim('t',?,'fp')",
                                 "SELECT idem_claim('t',?,'fp','audited')",
                                 "SELECT idem_seen('s',?)"])
def test_claims_until_the_disk_is_full(file, sql):
    db = connect(file)
    full(db)
    done = 0
    with pytest.raises(sqlite3.OperationalError, match="^idem_(claim|seen): database or disk is full") as e:
        for i in range(10000):
            one(db, sql, f"{i:04}" + "k" * 240)
            done += 1
    assert e.value.sqlite_errorcode == sqlite3.SQLITE_FULL
    assert not db.in_transaction
    count = "SELECT count(*) FROM idem_inbox" if "seen" in sql else \
        "SELECT count(*) FROM idem_store WHERE key LIKE '%kkkkk'"
    assert one(db, count) == done + ("seen" in sql)
    if "audited" in sql:
        assert one(db, "SELECT count(*) FROM idem_audit WHERE key LIKE '%kkkkk'") == done
    assert one(db, "SELECT idem_audit_verify()") is None
    roomy(db)
    assert "claimed" in one(db, sql, "after") if "claim" in sql else one(db, sql, "after") == 1
    db.close()


def test_no_room_for_the_store(path):
    db = connect(path, init=False)
    db.execute("CREATE TABLE t(a)")
    db.execute("PRAGMA max_page_count = 5").fetchall()
    fails(db, "idem_init", "SELECT idem_init()", sqlite3.SQLITE_FULL, "database or disk is full")
    assert one(db, "SELECT count(*) FROM sqlite_schema") == 1
    roomy(db)
    assert one(db, "SELECT idem_init()") == 1
    db.close()


def shape(db):
    """What a call changes, without times and random tokens."""
    return (db.execute("SELECT key, state, attempt, response, recovery_point, reason, audit_event "
                       "FROM idem_store ORDER BY key").fetchall(),
            db.execute("SELECT event_id FROM idem_inbox ORDER BY 1").fetchall(),
            db.execute("SELECT event, key FROM idem_audit ORDER BY id").fetchall())


@needs_progress
@pytest.mark.parametrize("begin", ["", "BEGIN IMMEDIATE"])
@pytest.mark.parametrize("name,sql", WRITERS, ids=[f"{i}-{n}" for i, (n, _) in enumerate(WRITERS)])
def test_interrupted_at_any_instruction(file, name, sql, begin):
    """An interrupt at the n-th instruction, n = 1, 2, 4, 7 ...: done as a whole, or not at all.

    Done it may be if the interrupt hits the outer SELECT after the call has returned.
    """
    db = connect(file)
    before = shape(db)
    db.execute("SAVEPOINT s")
    db.execute(sql).fetchall()
    whole = shape(db)
    db.execute("ROLLBACK TO s")
    db.execute("RELEASE s")
    db.close()
    n = 1
    while True:
        db = connect(file)
        count = 0

        def progress():
            nonlocal count
            count += 1
            return count == n

        if begin:
            db.execute(begin)
        db.set_progress_handler(progress, 1)
        try:
            db.execute(sql).fetchall()
            interrupted = False
        except sqlite3.OperationalError as e:
            assert e.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT, e
            interrupted = True
        db.set_progress_handler(None, 1)
        after = shape(db)
        if interrupted:
            assert after in (before, whole), (n, "an interrupted call was done in part")
        elif name != "idem_renew":
            assert after == whole != before
        if db.in_transaction:
            db.execute("ROLLBACK")
            assert shape(db) == before
        assert one(db, "SELECT idem_audit_verify()") is None
        assert claim(db, "done")["response"] == "answer"
        db.close()
        if not interrupted and count < n:
            return
        if not begin and after != before:
            return                                # it is durable from here on
        n += 1 + n // 2

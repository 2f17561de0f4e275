"""Loading: twice, read-only, inside a transaction, under locks, under query_only, by an authorizer.

Contract, section 8, traps 5 and 10: loading writes nothing and never fails for a lock; where the
table-valued form cannot be made yet, the other forms work and it appears at the next call.
"""
import sqlite3
import subprocess
import sys

import pytest

from conftest import DEEP, SO, claim, connect, one, needs_authorizer

TOKEN = "token-0123456789"


def raw(path, **kw):
    db = connect(path, init=False, load=False, **kw)
    db.enable_load_extension(True)
    return db


def speaks(db):
    """False if SQLite runs nothing at all: since 3.5x it reads the schema even for SELECT 1."""
    try:
        return one(db, "SELECT 1") == 1
    except sqlite3.DatabaseError:
        assert sqlite3.sqlite_version_info > (3, 40, 1), "this version is known to run it"
        return False


def has_claim_table(db):
    return one(db, "SELECT count(*) FROM temp.sqlite_schema WHERE name = 'idem_claim'") == 1


@pytest.fixture
def store(path):
    """A WAL file with a store and one completed record; closed again."""
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    claim(db, "done", token=TOKEN)
    one(db, "SELECT idem_complete('t', 'done', ?, 'answer', 200)", TOKEN)
    db.close()
    return path


def assert_replays(db):
    assert '"replay"' in one(db, "SELECT idem_claim('t', 'done', 'fp')")


@needs_authorizer
def test_again_where_nobody_can_tell_whether_it_is_loaded(store):
    """Two of it on one connection would have two clocks."""
    db = raw(store)
    db.load_extension(SO)
    one(db, "SELECT idem_clock(1700000000000)")
    db.set_authorizer(lambda action, a, b, *rest: sqlite3.SQLITE_DENY if b == "idem_version" else sqlite3.SQLITE_OK)
    with pytest.raises(sqlite3.OperationalError, match="whether it is loaded already: not authorized"):
        db.load_extension(SO)
    db.set_authorizer(None)
    assert claim(db, "k")["created_at"] == 1700000000000
    assert '"in_progress"' in one(db, "SELECT idem_claim('t', 'k', 'fp')")
    db.close()


def test_twice_through_the_api(store):
    db = raw(store)
    db.load_extension(SO)
    db.load_extension(SO)
    claim(db, "k")
    db.load_extension(SO)
    assert claim(db, "k")["outcome"] == "in_progress"
    db.close()


def test_twice_through_sql(store):
    db = raw(store)
    for _ in range(3):
        assert one(db, "SELECT load_extension(?)", SO) is None
        assert_replays(db)
    assert claim(db, "done")["outcome"] == "replay"
    db.close()


def test_twice_keeps_the_clock_and_the_cache(store):
    db = raw(store)
    db.load_extension(SO)
    one(db, "SELECT idem_clock(12345)")
    db.load_extension(SO)
    assert one(db, "SELECT idem_clock()") == 12345
    db.close()


def test_another_version_is_refused(store):
    db = raw(store)
    db.create_function("idem_version", 0, lambda: "idem 0.0.9, SQLite x, y")
    with pytest.raises(sqlite3.OperationalError, match="another version is loaded already: idem 0.0.9"):
        db.load_extension(SO)
    db.close()


@pytest.mark.parametrize("how", ["mode=ro", "immutable=1"])
def test_read_only_connection(store, how):
    db = sqlite3.connect(f"file:{store}?{how}", uri=True, isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(SO)
    assert_replays(db)
    assert claim(db, "done")["response"] == "answer"
    assert one(db, "SELECT state FROM idem_records WHERE scope='t' AND key='done'") == "completed"
    with pytest.raises(sqlite3.OperationalError, match="^idem_claim: .*read-only") as e:
        one(db, "SELECT idem_claim('t', 'new', 'fp')")
    assert e.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_READONLY
    with pytest.raises(sqlite3.OperationalError, match="^idem_claim: .*read-only"):
        claim(db, "new")
    assert_replays(db)
    db.close()


def test_read_only_file_without_a_store(path):
    sqlite3.connect(str(path)).execute("CREATE TABLE t(a)").connection.close()
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(SO)
    with pytest.raises(sqlite3.OperationalError, match="run SELECT idem_init"):
        one(db, "SELECT idem_claim('t', 'k', 'fp')")
    with pytest.raises(sqlite3.OperationalError, match="^idem_init: ") as e:
        one(db, "SELECT idem_init()")
    assert e.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_READONLY
    db.close()


def test_query_only(store):
    db = raw(store)
    db.execute("PRAGMA query_only = ON")
    db.load_extension(SO)                         # the temp table cannot be made
    assert_replays(db)
    assert not has_claim_table(db)
    with pytest.raises(sqlite3.OperationalError, match="^idem_claim: ") as e:
        one(db, "SELECT idem_claim('t', 'new', 'fp')")
    assert e.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_READONLY
    db.execute("PRAGMA query_only = OFF")
    assert_replays(db)                            # any call makes it
    assert has_claim_table(db)
    assert claim(db, "new")["outcome"] == "claimed"
    db.execute("PRAGMA query_only = ON")
    assert claim(db, "done")["outcome"] == "replay"
    assert claim(db, "new")["outcome"] == "in_progress"
    db.close()


def test_under_anothers_exclusive_lock(path):
    holder = connect(path)
    claim(holder, "done", token=TOKEN)
    one(holder, "SELECT idem_complete('t', 'done', ?, 'answer')", TOKEN)
    holder.execute("BEGIN EXCLUSIVE")
    db = raw(path, timeout=0)
    db.load_extension(SO)                         # the schema cannot be read, loading succeeds
    db.load_extension(SO)
    speaking = speaks(db)
    if speaking:
        assert one(db, "SELECT idem_version()").startswith("idem ")
    with pytest.raises(sqlite3.OperationalError, match="^idem_claim: " if speaking else "locked") as e:
        one(db, "SELECT idem_claim('t', 'done', 'fp')")
    assert e.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_BUSY
    holder.execute("ROLLBACK")
    assert_replays(db)
    assert has_claim_table(db)
    assert claim(db, "done")["outcome"] == "replay"
    db.close()
    holder.close()


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "SAVEPOINT s"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_inside_a_transaction(store, begin, end):
    db = raw(store)
    db.execute(begin)
    db.load_extension(SO)
    assert claim(db, "new")["outcome"] == "claimed"
    if end == "commit":
        db.execute("RELEASE s" if begin.startswith("SAVE") else "COMMIT")
    else:
        db.execute("ROLLBACK")
    assert not db.in_transaction
    # A rollback takes the temp table along: the next call of any function makes it again.
    assert ('"in_progress"' if end == "commit" else '"claimed"') in one(
        db, "SELECT idem_claim('t', 'new', 'fp')")
    assert has_claim_table(db)
    assert claim(db, "done")["outcome"] == "replay"
    db.close()


def test_through_sql_inside_a_transaction(store):
    db = raw(store)
    db.execute("BEGIN")
    one(db, "SELECT load_extension(?)", SO)
    assert claim(db, "new")["outcome"] == "claimed"
    db.execute("COMMIT")
    db.close()


@needs_authorizer
def test_authorizer_that_forbids_the_temp_table(store):
    db = raw(store)
    deny = {sqlite3.SQLITE_CREATE_VTABLE}
    db.set_authorizer(lambda action, *a: sqlite3.SQLITE_DENY if action in deny else sqlite3.SQLITE_OK)
    db.load_extension(SO)
    assert_replays(db)
    assert '"claimed"' in one(db, "SELECT idem_claim('t', 'new', 'fp')")
    assert not has_claim_table(db)
    db.set_authorizer(None)
    assert_replays(db)
    assert claim(db, "done")["outcome"] == "replay"
    db.close()


@pytest.mark.parametrize("table", ["idem_store", "idem_policy"])
@needs_authorizer
def test_authorizer_that_forbids_the_store(store, table):
    db = raw(store)
    db.load_extension(SO)
    db.set_authorizer(lambda action, a, *rest: sqlite3.SQLITE_DENY
                      if action == sqlite3.SQLITE_READ and a == table else sqlite3.SQLITE_OK)
    for call in ("SELECT idem_claim('t', 'done', 'fp')", "SELECT * FROM idem_claim('t', 'done', 'fp')",
                 "SELECT * FROM idem_records"):
        with pytest.raises(sqlite3.DatabaseError, match=f"^idem_(claim|records): .*{table}") as e:
            db.execute(call).fetchall()
        assert e.value.sqlite_errorcode == sqlite3.SQLITE_AUTH
    db.set_authorizer(None)
    assert_replays(db)
    assert claim(db, "done")["outcome"] == "replay"
    db.close()


@needs_authorizer
def test_every_denial_of_an_authorizer_is_an_error_or_harmless(store):
    """Denies the n-th question of one call, n = 1, 2, 3 ...: an error or the right answer, never a
    half-done claim; afterwards the connection works."""
    n = 0
    while True:
        n += 1
        assert n < 400
        db = raw(store)
        db.load_extension(SO)
        asked = 0

        def authorize(*a):
            nonlocal asked
            asked += 1
            return sqlite3.SQLITE_DENY if asked == n else sqlite3.SQLITE_OK

        db.set_authorizer(authorize)
        key = f"key-{n}"
        try:
            outcome = claim(db, key)["outcome"]
        except sqlite3.DatabaseError:
            outcome = None
        reached = asked >= n
        db.set_authorizer(None)
        after = claim(db, key)["outcome"]
        assert (outcome, after) in ((None, "claimed"), ("claimed", "in_progress")), n
        db.close()
        if not reached:
            return


@needs_authorizer
def test_every_denial_while_the_store_is_made(path):
    """The same while idem_init() runs: the store is there as a whole, or not at all."""
    whole = one(connect(":memory:"), "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'idem%'")
    n = 2
    while True:
        n += 1 if DEEP else 11                    # the script asks several hundred questions
        file = path.with_name(f"init-{n}.db")
        db = raw(file)
        db.load_extension(SO)
        asked = 0

        def authorize(*a):
            nonlocal asked
            asked += 1
            return sqlite3.SQLITE_DENY if asked == n else sqlite3.SQLITE_OK

        db.set_authorizer(authorize)
        try:
            db.execute("SELECT idem_init()").fetchall()
            made = True
        except sqlite3.DatabaseError:
            made = False
        db.set_authorizer(None)
        assert not db.in_transaction
        objects = one(db, "SELECT count(*) FROM main.sqlite_schema WHERE name LIKE 'idem%'")
        assert objects == whole if made else objects in (0, whole), n  # the last look may be denied
        assert one(db, "SELECT idem_init()") == 1
        assert claim(db, "k")["outcome"] == "claimed"
        db.close()
        if asked < n:
            return


@needs_authorizer
def test_an_init_that_loses_the_race_keeps_the_winners_store(path):
    """Another connection makes the store after this one has seen an empty file, and before it writes.

    SQLite 3.40.1 then takes the file for initially empty: ROLLBACK TO would empty it.
    """
    db = raw(path, timeout=5)
    db.load_extension(SO)
    winners = []

    def authorize(action, table, *a):
        if action == sqlite3.SQLITE_INSERT and table == "idem_call" and not winners:
            winner = connect(path)
            claim(winner, "first")
            winner.close()
            winners.append(1)
        return sqlite3.SQLITE_OK

    db.set_authorizer(authorize)
    assert one(db, "SELECT idem_init()") == 1
    db.set_authorizer(None)
    assert winners
    assert claim(db, "first")["outcome"] == "in_progress"
    db.close()


def test_processes_make_the_store_at_once(path, journal):
    db = sqlite3.connect(str(path))
    db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
    db.close()
    code = ("import sqlite3, sys\n"
            "db = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)\n"
            "db.enable_load_extension(True)\n"
            "db.load_extension(sys.argv[2])\n"
            "sys.stdin.read()\n"
            "print(db.execute('SELECT idem_init()').fetchone()[0])\n"
            "print(db.execute(\"SELECT idem_claim('t', 'k', 'fp')\").fetchone()[0])\n"
            "db.close()\n")
    procs = [subprocess.Popen([sys.executable, "-c", code, str(path), SO], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for _ in range(6)]
    for p in procs:
        p.stdin.close()
        p.stdin = None
    outs = [p.communicate(timeout=60) for p in procs]
    assert [e for _, e in outs] == [""] * 6
    assert [o.splitlines()[0] for o, _ in outs] == ["1"] * 6
    assert sum('"claimed"' in o for o, _ in outs) == 1


def test_a_file_that_is_no_database(path):
    path.write_bytes(b"this is not a database, and never was one" * 100)
    db = raw(path)
    db.load_extension(SO)
    speaking = speaks(db)
    with pytest.raises(sqlite3.DatabaseError, match="^idem_claim: " if speaking else "not a database") as e:
        one(db, "SELECT idem_claim('t', 'k', 'fp')")
    assert e.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_NOTADB
    if speaking:
        assert one(db, "SELECT idem_fingerprint_raw('x')").startswith("idemr1:")
    db.close()


def test_many_connections_in_one_process(store):
    dbs = [raw(store) for _ in range(50)]
    for db in dbs:
        db.load_extension(SO)
    one(dbs[0], "SELECT idem_clock(777)")         # the clock belongs to one connection
    assert one(dbs[1], "SELECT idem_clock() > 1000000")
    for i, db in enumerate(dbs):
        assert claim(db, f"k{i // 2}")["outcome"] == ("claimed" if i % 2 == 0 else "in_progress"
                                                      if i != 1 else "unknown")
    for db in dbs:
        db.close()
    assert not store.with_name(store.name + "-wal").exists()


def test_memory_and_temp_databases():
    for name in (":memory:", ""):
        db = connect(name)
        assert claim(db, "k")["outcome"] == "claimed"
        assert claim(db, "k")["outcome"] == "in_progress"
        db.close()

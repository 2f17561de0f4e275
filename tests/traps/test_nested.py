"""Calls below other statements, what they do to the connection, and how often they run.

Contract, section 8, traps 2, 3, 4, 9 and 12.
"""
import json
import sqlite3
import time

import pytest

from conftest import claim, connect, one, policy, record

TOKEN = "token-0123456789"


@pytest.fixture
def work(db):
    db.execute("CREATE TABLE business(id INTEGER PRIMARY KEY, answer TEXT, extra UNIQUE)")
    return db


def can_write(path):
    """Another connection can write at once: nothing is locked."""
    other = connect(path, init=False, load=False, timeout=0)
    other.execute("BEGIN IMMEDIATE")
    other.execute("ROLLBACK")
    other.close()
    return True


WRITES = [
    ("claim", "idem_claim('t','new','fp')"),
    ("claim audited", "idem_claim('t','new','fp','audited')"),
    ("retry", "idem_claim('t','released','fp')"),
    ("complete", f"idem_complete('t','live','{TOKEN}','r',200)"),
    ("release", f"idem_release('t','live','{TOKEN}')"),
    ("suspend", f"idem_suspend('t','live','{TOKEN}')"),
    ("renew", f"idem_renew('t','live','{TOKEN}')"),
    ("checkpoint", f"idem_checkpoint('t','live','{TOKEN}','p','d')"),
    ("resolve", "idem_resolve('t','dark','completed','r')"),
    ("seen", "idem_seen('s','e')"),
    ("purge", "idem_purge()"),
]


@pytest.fixture
def states(work):
    db = work
    policy(db, "audited", audit="all")
    for key in ("live", "dark", "released", "old"):
        claim(db, key, token=TOKEN)
    one(db, "SELECT idem_suspend('t','dark',?)", TOKEN)
    one(db, "SELECT idem_release('t','released',?)", TOKEN)
    one(db, "SELECT idem_clock(1000)")
    claim(db, "expired", token=TOKEN)
    one(db, "SELECT idem_complete('t','expired',?,'x')", TOKEN)
    one(db, "SELECT idem_clock(NULL)")
    return db


@pytest.mark.parametrize("name,call", WRITES, ids=[n for n, _ in WRITES])
def test_last_insert_rowid_is_the_callers(states, name, call):
    db = states
    db.execute("INSERT INTO business(id) VALUES(77)")
    for sql in (f"SELECT {call}", f"INSERT INTO idem_call DEFAULT VALUES RETURNING {call}"):
        try:
            db.execute(sql).fetchall()
        except sqlite3.IntegrityError:
            pass                                  # the second time some have lost their claim
        assert one(db, "SELECT last_insert_rowid()") == 77
    db.execute(f"INSERT INTO business(id, answer) SELECT 78, {call.replace('live', 'old')}")
    assert one(db, "SELECT last_insert_rowid()") == 78


@pytest.mark.parametrize("sql", [
    "SELECT * FROM idem_claim('t','new','fp')",
    f"INSERT INTO idem_records(scope,key,fingerprint,token) VALUES('t','new','fp','{TOKEN}')",
    f"INSERT OR IGNORE INTO idem_records(scope,key,fingerprint,token) VALUES('t','live','fp','{TOKEN}-')",
    f"UPDATE idem_records SET state='completed' WHERE scope='t' AND key='live' AND token='{TOKEN}'",
    f"UPDATE idem_records SET recovery_point='p' WHERE scope='t' AND key='live' AND token='{TOKEN}'",
    "DELETE FROM idem_records WHERE scope='t' AND key='released'",
    "INSERT INTO idem_call DEFAULT VALUES",
    "INSERT INTO idem_call(rowid, result) VALUES(5, 1)",
])
def test_last_insert_rowid_through_the_tables(states, sql):
    db = states
    db.execute("INSERT INTO business(id) VALUES(77)")
    cur = db.execute(sql)
    cur.fetchall()
    assert one(db, "SELECT last_insert_rowid()") == 77
    if sql.startswith("INSERT"):
        assert cur.lastrowid == 77
    assert db.execute("INSERT INTO business(answer) VALUES('next')").lastrowid == 78


@pytest.mark.parametrize("name,call", WRITES, ids=[n for n, _ in WRITES])
@pytest.mark.parametrize("form", ["SELECT {}", "INSERT INTO idem_call DEFAULT VALUES RETURNING {}"])
def test_no_lock_is_left(states, path, name, call, form):
    states.execute(form.format(call)).fetchall()
    assert not states.in_transaction
    assert can_write(path)


def test_a_select_commits_before_its_row_is_read(work, path):
    cur = work.execute("SELECT idem_claim('t','k','fp')")
    assert can_write(path)                        # the row is not fetched yet
    assert '"claimed"' in cur.fetchone()[0]
    cur = work.execute("SELECT outcome FROM idem_claim('t','k2','fp')")
    assert can_write(path)
    other = connect(path)
    assert claim(other, "k2")["outcome"] == "in_progress"
    other.close()
    assert cur.fetchone()[0] == "claimed"


def test_the_carrier_commits_when_it_is_finished(work, path):
    cur = work.execute("INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','k','fp')")
    other = connect(path, init=False, timeout=0)
    assert record(other, "k") is None             # at the first row nobody sees it yet
    assert '"claimed"' in cur.fetchone()[0]
    cur.fetchall()
    assert record(other, "k")["state"] == "processing"
    other.close()


@pytest.mark.parametrize("sql", [
    "INSERT INTO business(answer) VALUES(idem_claim('t','new','fp'))",
    "INSERT INTO business(answer) SELECT idem_claim('t','new','fp')",
    "UPDATE business SET answer = idem_claim('t','new','fp') WHERE id = 1",
    "INSERT INTO business(answer) VALUES('x') RETURNING idem_claim('t','new','fp')",
    "INSERT INTO business(answer) SELECT outcome FROM idem_claim('t','new','fp')",
    "CREATE TABLE made AS SELECT idem_claim('t','new','fp') AS answer",
    "INSERT INTO business(answer) VALUES('x') ON CONFLICT DO UPDATE SET answer = idem_key() "
    "RETURNING idem_claim('t','new','fp')",
    "DELETE FROM business WHERE id = 1 RETURNING idem_claim('t','new','fp')",
    "REPLACE INTO business(id, answer) VALUES(1, idem_claim('t','new','fp'))",
])
@pytest.mark.parametrize("begin", ["", "BEGIN", "BEGIN IMMEDIATE"])
def test_below_a_write(work, path, sql, begin):
    db = work
    db.execute("INSERT INTO business(id, answer) VALUES(1, 'one')")
    if begin:
        db.execute(begin)
    db.execute(sql).fetchall()
    if begin:
        db.execute("COMMIT")
    assert not db.in_transaction
    assert record(db, "new")["attempt"] == 1
    assert claim(db, "new")["outcome"] == "in_progress"
    assert can_write(path)


def test_every_verb_below_a_write(work):
    db = work
    db.execute("INSERT INTO business(id, answer) VALUES(1, idem_init())")
    db.execute(f"INSERT INTO business(id, answer) VALUES(2, idem_claim('t','k','fp','','{TOKEN}'))")
    db.execute(f"UPDATE business SET answer = idem_checkpoint('t','k','{TOKEN}','p') WHERE id = 2")
    db.execute(f"UPDATE business SET answer = idem_renew('t','k','{TOKEN}') WHERE id = 2")
    db.execute(f"UPDATE business SET answer = idem_complete('t','k','{TOKEN}','r') WHERE id = 2")
    db.execute("INSERT INTO business(id, answer) SELECT 3, idem_seen('s','e')")
    db.execute("INSERT INTO business(id, answer) SELECT 4, idem_purge()")
    assert one(db, "SELECT group_concat(answer, '|') FROM business WHERE id IN (1, 2, 3, 4)") == "1|1|1|0"
    assert claim(db, "k")["response"] == "r"


def test_the_store_can_be_made_below_a_write(path):
    db = connect(path, init=False)
    db.execute("CREATE TABLE t(a)")
    db.execute("INSERT INTO t VALUES(idem_init())")
    assert not db.in_transaction
    assert claim(db, "k")["outcome"] == "claimed"
    db.close()


def test_a_failed_insert_takes_the_new_store_along(path):
    db = connect(path, init=False)
    db.execute("CREATE TABLE t(a NOT NULL)")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("INSERT INTO t SELECT nullif(idem_init(), 1)")
    assert not db.in_transaction
    assert one(db, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'idem%'") == 0
    assert one(db, "SELECT idem_init()") == 1
    db.close()


def test_a_rollback_takes_the_new_store_along(path):
    db = connect(path, init=False)
    db.execute("BEGIN")
    one(db, "SELECT idem_init()")
    assert claim(db, "k")["outcome"] == "claimed"
    db.execute("ROLLBACK")
    for sql in ("SELECT idem_claim('t','k','fp')", "SELECT * FROM idem_records"):
        with pytest.raises(sqlite3.OperationalError, match="run SELECT idem_init"):
            db.execute(sql).fetchall()
    assert one(db, "SELECT idem_init()") == 1
    assert claim(db, "k")["outcome"] == "claimed"
    db.close()


# -- how often: pins, so that what the README says stays true ----------------------------------------

@pytest.mark.parametrize("sql,calls", [
    ("SELECT idem_claim('t', 'k', 'fp')", 1),
    ("SELECT a FROM five WHERE idem_seen('s', a) = 1", 5),
    ("WITH w AS MATERIALIZED (SELECT idem_seen('s', 'e') s) SELECT s FROM w WHERE s = 1 OR s = 0", 1),
    ("SELECT EXISTS(SELECT idem_claim('t', 'k', 'fp'))", 0),
    ("SELECT coalesce(1, idem_claim('t', 'k', 'fp'))", 0),
    ("EXPLAIN SELECT idem_claim('t', 'k', 'fp')", 0),
    ("EXPLAIN QUERY PLAN SELECT * FROM idem_claim('t', 'k', 'fp')", 0),
    ("SELECT count(*) FROM idem_claim('t', 'k', 'fp')", 1),
    ("SELECT 1 FROM idem_claim('t', 'k', 'fp') WHERE outcome = 'replay'", 1),
])
def test_evaluation_counts(db, sql, calls):
    db.execute("CREATE TABLE five AS SELECT column1 AS a FROM (VALUES('1'),('2'),('3'),('4'),('5'))")
    db.execute(sql).fetchall()
    rows = one(db, "SELECT (SELECT count(*) FROM idem_store) + (SELECT count(*) FROM idem_inbox)")
    assert rows == calls


def test_an_own_token_makes_a_second_evaluation_harmless(db):
    rows = db.execute(
        "WITH w AS (SELECT json_extract(idem_claim('t','k','fp','',?), '$.outcome') s) "
        "SELECT s FROM w WHERE s = 'claimed' OR s = 'in_progress'", (TOKEN,)).fetchall()
    assert rows == [("claimed",)]
    assert record(db, "k")["attempt"] == 1


def test_a_join_claims_each_row(db):
    db.execute("CREATE TABLE want(k)")
    db.execute("INSERT INTO want VALUES('a'), ('b'), ('c')")
    rows = db.execute("SELECT k, outcome FROM want, idem_claim('t', k, 'fp') ORDER BY k").fetchall()
    assert rows == [("a", "claimed"), ("b", "claimed"), ("c", "claimed")]
    assert one(db, "SELECT count(*) FROM idem_store") == 3


def test_arguments_that_cannot_be_had_are_an_error(db):
    for sql in ("SELECT * FROM idem_claim", "SELECT * FROM idem_claim('t')",
                "SELECT * FROM idem_claim WHERE scope > 't' AND key = 'k' AND fingerprint = 'fp'"):
        with pytest.raises(sqlite3.OperationalError, match="^idem_claim: "):
            db.execute(sql).fetchall()
    assert one(db, "SELECT count(*) FROM idem_store") == 0


def test_the_json_has_its_subtype(db):
    got = one(db, "SELECT json_object('answer', idem_claim('t','k','fp'))")
    assert json.loads(got)["answer"]["outcome"] == "claimed"


def test_readonly_as_statements_say(db, tmp_path):
    """What read/write splitting drivers see; the carrier and idem_records are honest writes."""
    assert one(db, "SELECT count(*) FROM idem_store") == 0
    read = sqlite3.connect(f"file:{tmp_path}/test.db?mode=ro", uri=True)
    read.close()
    legacy = connect(tmp_path / "test.db", isolation_level="")
    legacy.execute("SELECT idem_claim('t','a','fp')").fetchall()
    assert not legacy.in_transaction              # Python takes it for a read
    legacy.execute("INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','b','fp')").fetchall()
    assert legacy.in_transaction
    legacy.rollback()
    legacy.execute("INSERT INTO idem_records(scope,key,fingerprint,token) VALUES('t','c','fp',?)",
                   (TOKEN,))
    assert legacy.in_transaction
    legacy.rollback()
    assert record(legacy, "a") and not record(legacy, "b") and not record(legacy, "c")
    legacy.close()


def test_two_calls_in_one_carrier_are_one(db):
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','k','fp'), "
                   f"idem_complete('t','other','{TOKEN}','r')").fetchall()
    assert record(db, "k") is None
    db.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','k','fp'), "
                   f"idem_complete('t','other','{TOKEN}','r')").fetchall()
    db.execute("COMMIT")
    assert record(db, "k") is None
    db.execute(f"INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','k','fp','','{TOKEN}'), "
               f"idem_complete('t','k','{TOKEN}','r')").fetchall()
    assert claim(db, "k")["response"] == "r"


def test_vacuum_and_attach_between_calls(db, tmp_path):
    claim(db, "a")
    db.execute("VACUUM")
    assert claim(db, "a")["outcome"] == "in_progress"
    db.execute("ATTACH ? AS aux", (str(tmp_path / "aux.db"),))
    assert claim(db, "b")["outcome"] == "claimed"
    db.execute("DETACH aux")
    assert claim(db, "b")["outcome"] == "in_progress"
    db.execute("CREATE TABLE later(a)")
    assert '"in_progress"' in one(db, "SELECT idem_claim('t','b','fp')")
    db.execute("DROP TABLE later")
    assert claim(db, "c")["outcome"] == "claimed"


def test_ddl_is_not_blocked_by_kept_statements(db):
    for key in "abc":
        claim(db, key, token=TOKEN + key)
        one(db, "SELECT idem_complete('t',?,?,'x')", key, TOKEN + key)
    db.execute("DROP VIEW idem_health")
    db.execute("DROP TABLE idem_meta")
    with pytest.raises(sqlite3.OperationalError, match="^idem_claim: "):
        one(db, "SELECT idem_claim('t','a','fp')")


def test_a_snapshot_error_keeps_its_code_and_says_what_helps(work, path):
    work.execute("BEGIN")
    one(work, "SELECT count(*) FROM business")    # reads first
    other = connect(path)
    other.execute("INSERT INTO business(answer) VALUES('other')")
    other.close()
    for sql in ("SELECT idem_claim('t','k','fp')", "SELECT * FROM idem_claim('t','k','fp')",
                "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t','k','fp')"):
        with pytest.raises(sqlite3.OperationalError) as e:
            work.execute(sql).fetchall()
        assert e.value.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT
        if sql.startswith("SELECT"):
            assert str(e.value).startswith("idem_claim: ") and "BEGIN IMMEDIATE" in str(e.value)
    work.execute("ROLLBACK")
    assert claim(work, "k")["outcome"] == "claimed"


def test_a_replay_takes_no_write_lock(work, path):
    claim(work, "k", token=TOKEN)
    one(work, "SELECT idem_complete('t','k',?,'x')", TOKEN)
    work.close()
    holder = connect(path, load=False, init=False)
    holder.execute("BEGIN IMMEDIATE")
    db = connect(path, init=False, timeout=5)
    began = time.monotonic()
    assert '"replay"' in one(db, "SELECT idem_claim('t','k','fp')")
    assert '"mismatch"' in one(db, "SELECT idem_claim('t','k','other')")
    assert one(db, "SELECT state FROM idem_records WHERE scope='t' AND key='k'") == "completed"
    assert time.monotonic() - began < 2, "it waited for the write lock"
    # The table-valued form has to try for the lock (a read under its SELECT could not be upgraded): it
    # waits as long as busy_timeout says, and answers without it.
    db.execute("PRAGMA busy_timeout = 50").fetchall()
    assert claim(db, "k")["outcome"] == "replay"
    db.close()
    holder.close()


RECURSIONS = {
    "renew": ("AFTER UPDATE ON main.idem_store BEGIN SELECT idem_renew(new.scope, new.key, new.token); END",
              "SELECT idem_renew('t', 'k', ?1)"),
    "claim": ("BEFORE INSERT ON main.idem_store BEGIN SELECT idem_claim(new.scope, new.key || 'x', 'fp'); END",
              "SELECT idem_claim('t', 'j', 'fp', '', ?1)"),
    "seen": ("AFTER INSERT ON main.idem_inbox BEGIN SELECT idem_seen(new.source, new.event_id || 'x'); END",
             "SELECT idem_seen('s', ?1)"),
}


@pytest.mark.parametrize("form", ["{}", "INSERT INTO idem_call {}"])
@pytest.mark.parametrize("trigger, call", RECURSIONS.values(), ids=RECURSIONS.keys())
def test_a_trigger_that_calls_itself_through_idem_ends(db, trigger, call, form):
    """SQLite's limit of trigger recursion does not see through a function: the stack ran out."""
    token = claim(db, "k")["token"]
    db.execute(f"CREATE TEMP TRIGGER again {trigger}")
    before = db.execute("SELECT * FROM idem_store, idem_meta").fetchall()
    with pytest.raises(sqlite3.DatabaseError, match="called inside itself, by a trigger of this connection: at most 8"):
        db.execute(form.format(call), (token,)).fetchall()
    assert db.execute("SELECT * FROM idem_store, idem_meta").fetchall() == before
    db.execute("DROP TRIGGER again")
    assert one(db, "SELECT idem_complete('t', 'k', ?, 'x')", token) == 1

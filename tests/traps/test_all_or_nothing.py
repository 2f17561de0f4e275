"""Every write is one statement with its triggers: in autocommit, in a transaction, under a savepoint that
is rolled back, and under an outer write statement that fails afterwards, the store's rows and the audit
rows agree: both are there, or neither.

What SQLite undoes when the outer statement fails is pinned here as measured on 3.40.1: below a SELECT, and
in a single-row INSERT ... VALUES inside a transaction, a nested write stays.
"""
import sqlite3

import pytest

from conftest import DEEP, claim, connect, one, policy

TOKEN = "token-0123456789"
AUDITED = "audited"

# name, the call, the audit events that go with it (level 'all'), None if the function is not audited
CALLS = [
    ("claim", f"idem_claim('t','new','fp','{AUDITED}')", ["claim"]),
    ("retry", f"idem_claim('t','free','fp','{AUDITED}')", ["claim"]),
    ("take-over", "idem_claim('t','stale','fp','again')", ["take-over"]),
    ("exhausted", "idem_claim('t','spent','fp','once')", ["exhausted"]),
    ("restart", f"idem_claim('t','gone','fp','{AUDITED}')", ["claim"]),
    ("replay", f"idem_claim('t','done','fp','{AUDITED}')", ["replay"]),
    ("refused", f"idem_claim('t','live','fp','{AUDITED}')", ["refused"]),
    ("complete", f"idem_complete('t','live','{TOKEN}','r',200,'h')", ["complete"]),
    ("release", f"idem_release('t','live','{TOKEN}','why')", ["release"]),
    ("suspend", f"idem_suspend('t','live','{TOKEN}','why')", ["suspend"]),
    ("renew", f"idem_renew('t','live','{TOKEN}')", []),
    ("checkpoint", f"idem_checkpoint('t','live','{TOKEN}','p','d')", []),
    ("resolve-completed", "idem_resolve('t','dark','completed','r')", ["resolve-completed"]),
    ("resolve-retry", "idem_resolve('t','dark','retry','why')", ["resolve-retry"]),
    ("seen", "idem_seen('s','e','fp')", []),
    ("purge", "idem_purge()", []),
    ("unaudited claim", "idem_claim('t','new','fp')", []),
    ("unaudited complete", f"idem_complete('t','plain','{TOKEN}','r')", []),
]
TABLE_CALLS = [
    ("insert", f"INSERT INTO idem_records(scope,key,fingerprint,operation,token) "
               f"VALUES('t','new','fp','{AUDITED}','{TOKEN}')", ["claim"]),
    ("insert many", "INSERT INTO idem_records(scope,key,fingerprint,operation,token) "
                    f"VALUES('t','new1','fp','{AUDITED}','{TOKEN}'),('t','new2','fp','{AUDITED}','{TOKEN}')",
     ["claim", "claim"]),
    ("update", f"UPDATE idem_records SET state='completed', response='r' "
               f"WHERE scope='t' AND key='live' AND token='{TOKEN}'", ["complete"]),
    ("update many", f"UPDATE idem_records SET state='released' "
                    f"WHERE scope='t' AND key IN ('live','plain') AND token='{TOKEN}'",
     ["release", "release"]),
    ("delete", "DELETE FROM idem_records WHERE scope='t' AND key='done'", ["erase"]),
]


NOW = 1800000000000


@pytest.fixture(scope="module")
def image():
    """A store with a record for each call, as bytes."""
    db = connect(":memory:")
    policy(db, AUDITED, audit="all", tombstone_ms=1000, retention_ms=1000)
    policy(db, "again", on_stale="retry", lease_ms=1)
    policy(db, "once", on_stale="retry", lease_ms=1, max_attempts=1)
    one(db, "SELECT idem_clock(?)", NOW - 10**9)
    claim(db, "stale", operation="again", token=TOKEN)
    claim(db, "spent", operation="once", token=TOKEN)
    claim(db, "gone", operation=AUDITED, token=TOKEN)
    one(db, "SELECT idem_complete('t','gone',?,'x')", TOKEN)
    one(db, "SELECT idem_clock(?)", NOW)
    for key in ("live", "free", "dark", "done"):
        claim(db, key, operation=AUDITED, token=TOKEN)
    claim(db, "plain", token=TOKEN)
    one(db, "SELECT idem_release('t','free',?)", TOKEN)
    one(db, "SELECT idem_suspend('t','dark',?)", TOKEN)
    one(db, "SELECT idem_complete('t','done',?,'x')", TOKEN)
    db.execute("CREATE TABLE t(answer, must NOT NULL)")
    data = db.serialize()
    db.close()
    return data


@pytest.fixture
def db(image, path):
    if DEEP:
        path.write_bytes(image)
        db = connect(path)
    else:
        db = connect(":memory:", init=False)
        db.deserialize(image)
    one(db, "SELECT idem_clock(?)", NOW + 10)
    yield db
    assert one(db, "SELECT idem_audit_verify()") is None
    assert one(db, "PRAGMA integrity_check") == "ok"
    db.close()


def rows(db):
    return (db.execute("SELECT * FROM idem_store ORDER BY id").fetchall(),
            db.execute("SELECT * FROM idem_inbox").fetchall())


def events(db):
    return [e for e, in db.execute("SELECT event FROM idem_audit ORDER BY id").fetchall()]


def check(db, before, stays, name, audit):
    """The call's rows and its audit rows are there (stays) or not; never one without the other."""
    rows_before, events_before = before
    changed = rows(db) != rows_before
    if name not in ("replay", "refused"):
        assert changed == stays, "the store's rows"
    new = events(db)[len(events_before):]
    assert events(db)[:len(events_before)] == events_before
    assert new == (audit if stays else []), "the audit's rows"


def before(db):
    return rows(db), events(db)


ids = [name for name, _, _ in CALLS]
FORMS = ["SELECT {}", "INSERT INTO idem_call DEFAULT VALUES RETURNING {}", "INSERT INTO t VALUES({}, 1)",
         "UPDATE t SET answer = {} WHERE must = 0"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name,call,audit", CALLS, ids=ids)
def test_autocommit(db, name, call, audit, form):
    db.execute("INSERT INTO t VALUES(NULL, 0)")
    state = before(db)
    db.execute(form.format(call)).fetchall()
    assert not db.in_transaction
    check(db, state, True, name, audit)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("form", FORMS[:3])
@pytest.mark.parametrize("name,call,audit", CALLS, ids=ids)
def test_transaction(db, name, call, audit, form, end):
    state = before(db)
    db.execute("BEGIN")
    db.execute(form.format(call)).fetchall()
    check(db, state, True, name, audit)
    db.execute(end)
    check(db, state, end == "COMMIT", name, audit)


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("form", FORMS[:3])
@pytest.mark.parametrize("name,call,audit", CALLS, ids=ids)
def test_savepoint_rolled_back(db, name, call, audit, form, begin):
    if begin:
        db.execute(begin)
        db.execute("INSERT INTO t VALUES('before', 1)")
    state = before(db)
    db.execute("SAVEPOINT s")
    db.execute(form.format(call)).fetchall()
    check(db, state, True, name, audit)
    db.execute("ROLLBACK TO s")
    check(db, state, False, name, audit)
    db.execute(form.format(call)).fetchall()      # and again, after what is remembered was undone
    check(db, state, True, name, audit)
    db.execute("ROLLBACK TO s")
    db.execute("RELEASE s")
    check(db, state, False, name, audit)
    if begin:
        db.execute("COMMIT")
        assert one(db, "SELECT count(*) FROM t WHERE answer = 'before'") == 1
    db.execute(form.format(call)).fetchall()
    check(db, state, True, name, audit)


# the outer statement, whether the nested write stays in autocommit, and in a transaction
OUTER = [
    ("SELECT {}, abs(-9223372036854775808)", True, True),
    ("INSERT INTO t VALUES({}, NULL)", False, True),
    ("INSERT INTO t SELECT {}, NULL", False, False),
    ("INSERT INTO t VALUES(1, 1), ({}, NULL)", False, False),
    ("INSERT INTO idem_call DEFAULT VALUES RETURNING {}, abs(-9223372036854775808)", False, False),
    ("UPDATE t SET answer = {}, must = NULL WHERE must = 0", False, None),
    ("INSERT INTO t VALUES(1, 1) RETURNING {}, abs(-9223372036854775808)", False, False),
]


@pytest.mark.parametrize("begin", ["", "BEGIN", "BEGIN IMMEDIATE"])
@pytest.mark.parametrize("outer,stays_alone,stays_inside", OUTER, ids=[f"outer{i}" for i in range(len(OUTER))])
@pytest.mark.parametrize("name,call,audit", CALLS, ids=ids)
def test_outer_statement_fails_afterwards(db, name, call, audit, outer, stays_alone, stays_inside, begin):
    db.execute("INSERT INTO t VALUES(NULL, 0)")
    state = before(db)
    if begin:
        db.execute(begin)
    with pytest.raises(sqlite3.DatabaseError):
        db.execute(outer.format(call)).fetchall()
    stays = stays_inside if begin else stays_alone
    if stays is None:                             # differs with the statement's journal: either, but whole
        stays = events(db) != state[1] if audit else rows(db) != state[0]
    check(db, state, stays, name, audit)
    if begin:
        assert db.in_transaction
        db.execute("COMMIT")
        check(db, state, stays, name, audit)
    assert not db.in_transaction
    assert one(db, "SELECT count(*) FROM t") == 1


@pytest.mark.parametrize("name,sql,audit", TABLE_CALLS, ids=[n for n, _, _ in TABLE_CALLS])
@pytest.mark.parametrize("how", ["autocommit", "commit", "rollback", "savepoint"])
def test_through_the_table(db, name, sql, audit, how):
    if "many" in name and "update" in name:
        audit = ["release", "release"]
    state = before(db)
    if how in ("commit", "rollback"):
        db.execute("BEGIN")
    if how == "savepoint":
        db.execute("SAVEPOINT s")
    db.execute(sql).fetchall()
    check(db, state, True, name, audit)
    if how in ("commit", "rollback"):
        db.execute(how)
    if how == "savepoint":
        db.execute("ROLLBACK TO s")
        db.execute("RELEASE s")
    check(db, state, how in ("autocommit", "commit"), name, audit)


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("sql", [
    # the second row is refused: the first goes with it
    "INSERT INTO idem_records(scope,key,fingerprint,operation,token) "
    f"VALUES('t','new','fp','{AUDITED}','{TOKEN}'),('t','done','fp','{AUDITED}','{TOKEN}')",
    # 'done' may be erased, 'live' may not
    "DELETE FROM idem_records WHERE scope = 't' AND key IN ('done', 'live')",
    f"UPDATE idem_records SET state='processing' WHERE key IN ('live', 'plain', 'dark') AND token='{TOKEN}'",
])
def test_many_rows_of_which_one_is_refused(db, sql, begin):
    state = before(db)
    if begin:
        db.execute(begin)
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(sql)
    check(db, state, False, "many", [])
    if begin:
        db.execute("COMMIT")
    check(db, state, False, "many", [])


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_or_ignore_leaves_nothing_of_a_refused_row(db, begin):
    """Trap 12: under OR IGNORE nothing would be undone, so every error comes before the write."""
    state = before(db)
    if begin:
        db.execute(begin)
    cur = db.execute("INSERT OR IGNORE INTO idem_records(scope,key,fingerprint,operation,token) VALUES"
                     f"('t','plain','fp',NULL,'{TOKEN}-2'),('t','new','fp','{AUDITED}','{TOKEN}'),"
                     f"('t','dark','other','{AUDITED}','{TOKEN}')")
    assert cur.rowcount == 1
    new = events(db)[len(state[1]):]
    assert sorted(new) == ["claim", "refused"]    # the mismatch is audited, level 'all', and stays so
    if begin:
        db.execute("COMMIT")
    assert one(db, "SELECT count(*) FROM idem_store WHERE key = 'new'") == 1
    cur = db.execute("UPDATE OR IGNORE idem_records SET state='processing' "
                     f"WHERE key = 'dark' AND token = '{TOKEN}'")
    assert one(db, "SELECT state FROM idem_store WHERE key = 'dark'") == "unknown"


def test_init_below_statements_that_fail(path):
    for n, (sql, stays) in enumerate([("SELECT idem_init(), abs(-9223372036854775808)", True),
                                      ("INSERT INTO t VALUES(nullif(idem_init(), 1))", False),
                                      ("INSERT INTO t SELECT nullif(idem_init(), 1)", False)]):
        file = path.with_name(f"{n}.db")
        db = connect(file, init=False)
        db.execute("CREATE TABLE t(a NOT NULL)")
        with pytest.raises(sqlite3.DatabaseError):
            db.execute(sql).fetchall()
        assert (one(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'idem_store'") == 1) == stays
        assert not db.in_transaction
        assert one(db, "SELECT idem_init()") == 1
        assert claim(db, "k")["outcome"] == "claimed"
        db.close()


def test_memory_after_a_rollback(db):
    """What the connection remembers of its last claim must not outlive the claim's rollback."""
    for undo in ("ROLLBACK", "ROLLBACK TO s"):
        db.execute("SAVEPOINT s")
        first = claim(db, "m", token=TOKEN)
        db.execute(undo)
        if undo != "ROLLBACK":
            db.execute("RELEASE s")
        with pytest.raises(sqlite3.IntegrityError, match="there is no record"):
            one(db, "SELECT idem_complete('t','m',?,'x')", first["token"])
        second = claim(db, "m2", token=TOKEN + "2")   # takes the same rowid
        with pytest.raises(sqlite3.IntegrityError):
            one(db, "SELECT idem_complete('t','m',?,'x')", second["token"])
        with pytest.raises(sqlite3.IntegrityError):
            one(db, "SELECT idem_complete('t','m2',?,'x')", first["token"])
        assert one(db, "SELECT idem_complete('t','m2',?,'x')", second["token"]) == 1
        db.execute("DELETE FROM idem_records WHERE key = 'm2'")


def test_memory_of_a_policy_after_a_rollback(db):
    claim(db, "a")
    db.execute("BEGIN")
    policy(db, "*", lease_ms=5)
    assert claim(db, "b")["lease_until"] - one(db, "SELECT idem_clock()") <= 5
    db.execute("ROLLBACK")
    assert claim(db, "c")["lease_until"] - one(db, "SELECT idem_clock()") > 50000
    db.execute("BEGIN")
    policy(db, "*", lease_ms=7)
    assert claim(db, "d")["lease_until"] - one(db, "SELECT idem_clock()") <= 7
    db.execute("COMMIT")
    assert claim(db, "e")["lease_until"] - one(db, "SELECT idem_clock()") <= 7

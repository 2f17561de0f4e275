"""idem_records against the store itself: the same rows for every combination of constraints and order,
and no statement behind a call that reads a whole table.
"""
import itertools
import random
import re

import pytest

from conftest import DEEP, claim, connect, needs_progress, needs_trace, one, policy

TOKEN = "token-0123456789"
NOW = 2000000


@pytest.fixture(scope="module")
def db():
    """Records in every state, at every side of every deadline; the clock stands at NOW."""
    db = connect(":memory:")
    policy(db, "*", lease_ms=1000, retention_ms=10000, tombstone_ms=100000)
    policy(db, "retry", on_stale="retry", lease_ms=1000)
    policy(db, "short", lease_ms=500, retention_ms=1000, tombstone_ms=2000)
    dice = random.Random(1)
    n = 0
    for age in (0, 1, 499, 500, 501, 999, 1000, 1001, 2999, 3000, 3001, 9999, 10000, 10001, 109999, 110000, 110001):
        for operation in ("", "retry", "short"):
            for do in ("", "complete", "release", "suspend", "checkpoint", "resolve"):
                if dice.random() < 0.5:
                    continue
                n += 1
                scope, key = dice.choice(["t", "T", "", "u"]), f"k{n}"
                one(db, "SELECT idem_clock(?)", NOW - age)
                claim(db, key, operation=operation, token=TOKEN, scope=scope, fingerprint=f"fp{n % 3}")
                if do == "complete":
                    one(db, "SELECT idem_complete(?,?,?,?,?,?)", scope, key, TOKEN, dice.choice(["x", b"\x00", None]),
                        dice.choice([200, 402, None]), dice.choice([None, "h: v"]))
                elif do in ("release", "suspend"):
                    one(db, f"SELECT idem_{do}(?,?,?,'why')", scope, key, TOKEN)
                elif do == "checkpoint":
                    one(db, "SELECT idem_checkpoint(?,?,?,'p','d')", scope, key, TOKEN)
                elif do == "resolve":
                    one(db, "SELECT idem_suspend(?,?,?)", scope, key, TOKEN)
                    one(db, "SELECT idem_resolve(?,?,'completed','found')", scope, key)
    one(db, "SELECT idem_clock(?)", NOW - 3000)
    one(db, "SELECT idem_purge(20)")              # some answers have become tombstones
    one(db, "SELECT idem_clock(?)", NOW)
    # The same records by plain SQL on the store, written independently of the library.
    db.execute(f"""
        CREATE TEMP TABLE expected AS SELECT * FROM (
          SELECT s.id, scope, key, s.operation, fingerprint,
            CASE WHEN state = 'processing' AND due_at <= {NOW} AND p.on_stale = 'unknown' THEN 'unknown'
                 WHEN state = 'completed' AND due_at <= {NOW} THEN 'expired'
                 WHEN state = 'tombstone' THEN 'expired' ELSE state END AS state,
            attempt, CASE WHEN state = 'processing' THEN due_at END AS lease_until,
            CASE state WHEN 'completed' THEN due_at WHEN 'tombstone' THEN due_at - s.tombstone_ms END AS expires_at,
            CASE state WHEN 'completed' THEN due_at + s.tombstone_ms WHEN 'tombstone' THEN due_at END AS tombstone_until,
            CASE WHEN state = 'processing' THEN max(0, due_at - {NOW}) END AS lease_remaining_ms,
            {NOW} - created_at AS age_ms, created_at, completed_at, code, headers, response, recovery_point,
            checkpoint, reason
          FROM main.idem_store s JOIN main.idem_policy p ON p.operation =
            coalesce((SELECT operation FROM main.idem_policy WHERE operation = s.operation), '*'))
        WHERE tombstone_until IS NULL OR tombstone_until > {NOW}""")
    db.execute("UPDATE expected SET headers = NULL, response = NULL, recovery_point = NULL, "
               "checkpoint = NULL, reason = NULL WHERE state = 'expired'")
    yield db
    db.close()


PLAIN = ("scope", "key", "operation", "fingerprint", "state", "attempt", "lease_until", "expires_at",
         "tombstone_until", "lease_remaining_ms", "age_ms", "created_at", "completed_at", "code", "headers", "response",
         "recovery_point", "checkpoint", "reason")


def test_the_whole_listing(db):
    columns = ", ".join(PLAIN)
    listed = db.execute(f"SELECT rowid, {columns} FROM idem_records ORDER BY rowid").fetchall()
    expected = db.execute(f"SELECT id, {columns} FROM expected ORDER BY id").fetchall()
    assert listed == expected
    states = {row[5] for row in listed}
    assert states == {"processing", "completed", "released", "unknown", "expired"}, "the fixture is too poor"
    assert one(db, "SELECT count(*) FROM idem_store") > len(listed) > 30, "nothing is over: too poor as well"


CONSTRAINTS = [
    ["scope = 't'", "scope = 'T'", "scope = ''", "scope = 'nobody'", "scope = NULL", "scope = 5", "scope IN ('t', 'u')",
     "scope > 'S'", "scope IS 't'", "scope = 't' COLLATE NOCASE", "scope <> 't'", "scope = x'74'"],
    ["key = 'k5'", "key = 'K5' COLLATE NOCASE", "key IN ('k1','k2','k3','k40')", "key LIKE 'k1%'", "key = NULL",
     "key = 5", "key >= 'k3'", "key BETWEEN 'k1' AND 'k4'"],
    ["state = 'unknown'", "state = 'processing'", "state = 'completed'", "state = 'released'", "state = 'expired'",
     "state = 'nonsense'", "state = NULL", "state = 'tombstone'", "state IN ('unknown','expired')",
     "state = 'UNKNOWN' COLLATE NOCASE", "state <> 'completed'", "state = 7", "state IS NOT NULL"],
    ["lease_until > 2000000", "lease_until >= 2000000", "lease_until > 1999999.5", "lease_until > 'x'",
     "lease_until > NULL", "lease_until > -1e300", "lease_until > 9223372036854775807", "lease_until = 2000500"],
    ["lease_until < 2000500", "lease_until <= 2000500", "lease_until <= 2000000.5", "lease_until < 'x'",
     "lease_until < 1e300", "lease_until < -9223372036854775808", "lease_until IS NULL"],
    ["expires_at > 2000000", "expires_at >= 2000000", "expires_at > 1990000.25", "expires_at > '5'",
     "expires_at > x'00'", "expires_at BETWEEN 1995000 AND 2009000"],
    ["expires_at < 2009500", "expires_at <= 2000000", "expires_at <= 1999999.75", "expires_at < NULL",
     "expires_at < 9.3e18"],
    ["rowid = 7", "rowid IN (1, 2, 30)", "rowid = 7.0", "rowid = '7'", "rowid = 7.5", "rowid = NULL", "rowid > 20",
     "rowid = x'37'"],
    ["code IS NULL", "reason = 'why'", "age_ms < 2000", "operation = 'short'", "recovery_point IS NOT NULL"],
]
ORDERS = ["id", "scope, key", "key DESC", "state, id DESC", "lease_until, id", "expires_at DESC, id", "age_ms, id"]


def same(db, where, order, limit=""):
    where_records = where.replace("rowid", "r.rowid")
    where_expected = where.replace("rowid", "CAST(r.id AS INTEGER)") if "rowid" in where else where
    got = db.execute(f"SELECT r.rowid AS id, scope, key, state FROM idem_records r WHERE {where_records} "
                     f"ORDER BY {order} {limit}").fetchall()
    wanted = db.execute(f"SELECT id, scope, key, state FROM expected r WHERE {where_expected} "
                        f"ORDER BY {order} {limit}").fetchall()
    assert got == wanted, where
    return len(got)


@pytest.fixture(scope="module")
def typed(db):
    """The oracle's table must compare as the virtual table does: with its column types."""
    rows = db.execute("SELECT * FROM expected").fetchall()
    names = [d[0] for d in db.execute("SELECT * FROM expected").description]
    integer = {"id", "attempt", "lease_until", "expires_at", "tombstone_until", "lease_remaining_ms", "age_ms",
               "created_at", "completed_at", "code"}
    anything = {"fingerprint", "response", "checkpoint"}
    db.execute("DROP TABLE expected")
    columns = ", ".join("id INTEGER PRIMARY KEY" if n == "id" else n + (
        " INTEGER" if n in integer else "" if n in anything else " TEXT") for n in names)
    db.execute(f"CREATE TEMP TABLE expected({columns})")
    db.executemany(f"INSERT INTO expected VALUES({','.join('?' * len(names))})", rows)
    return db


def test_every_subset_of_constraints(typed):
    """All 512 subsets of the nine kinds of constraints, several values and orders each."""
    dice = random.Random(2)
    found = 0
    for subset in itertools.product([0, 1], repeat=len(CONSTRAINTS)):
        for _ in range(20 if DEEP else 3):
            terms = [dice.choice(group) for group, bit in zip(CONSTRAINTS, subset) if bit]
            dice.shuffle(terms)
            where = " AND ".join(terms) or "1"
            order = dice.choice(ORDERS)
            found += same(typed, where, order, dice.choice(["", "", "LIMIT 3", "LIMIT 5 OFFSET 2"])) > 0
    assert found > 80, "the subsets find too little to compare"


def test_every_single_constraint_in_every_order(typed):
    for group in CONSTRAINTS:
        for term in group:
            for order in ORDERS:
                same(typed, term, order)


def test_or_and_not(typed):
    dice = random.Random(3)
    # SQLite 3.40.1 makes an IN of two equalities on one column and forgets the COLLATE, on tables as well.
    flat = [term for group in CONSTRAINTS for term in group if "COLLATE" not in term]
    for _ in range(3000 if DEEP else 300):
        a, b, c = dice.sample(flat, 3)
        where = dice.choice([f"({a}) OR ({b})", f"({a}) AND NOT ({b})", f"(({a}) OR ({b})) AND ({c})",
                             f"({a}) AND (({b}) OR ({c}))", f"NOT (({a}) OR ({b}))"])
        same(typed, where, dice.choice(ORDERS))


def test_joins(typed):
    for on in ("r.scope = e.scope AND r.key = e.key", "r.rowid = e.id", "r.key = e.key", "r.state = e.state",
               "r.scope = e.scope AND r.state = e.state", "r.expires_at = e.expires_at"):
        got = typed.execute(f"SELECT e.id, r.rowid FROM expected e JOIN idem_records r ON {on} ORDER BY 1, 2").fetchall()
        wanted = typed.execute(f"SELECT e.id, r.id FROM expected e JOIN expected r ON {on} ORDER BY 1, 2").fetchall()
        assert got == wanted and got, on
        got = typed.execute(f"SELECT count(*) FROM expected e LEFT JOIN idem_records r ON {on}").fetchall()
        wanted = typed.execute(f"SELECT count(*) FROM expected e LEFT JOIN expected r ON {on}").fetchall()
        assert got == wanted, on


def test_the_token_is_shown_to_who_has_it(typed):
    assert one(typed, "SELECT count(token) FROM idem_records") == 0
    assert one(typed, "SELECT count(*) FROM idem_records WHERE token = 'token-9999999999'") == 0
    assert one(typed, "SELECT count(*) FROM idem_records WHERE token IS NULL") == one(typed, "SELECT count(*) FROM expected")
    n = one(typed, "SELECT count(*) FROM idem_records WHERE token = ?", TOKEN)
    assert n > 10
    assert one(typed, "SELECT count(*) FROM idem_records WHERE token = ? AND scope = 't'", TOKEN) == \
        one(typed, "SELECT count(*) FROM idem_store s JOIN expected USING(id) WHERE s.token = ? AND s.scope = 't'", TOKEN)


@needs_progress
def test_a_listing_streams(typed):
    """The first row comes before the others are read: LIMIT 1 costs the same on a large store."""
    db = connect(":memory:")
    db.execute("""WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
        INSERT INTO idem_store(scope, key, operation, fingerprint, state, attempt, due_at, created_at, updated_at)
        SELECT 't', 'k' || i, '', 'fp', 'processing', 1, 9000000000000, 1, 1 FROM n""")
    steps = 0

    def progress():
        nonlocal steps
        steps += 1
        return 0

    db.set_progress_handler(progress, 10)
    db.execute("SELECT key FROM idem_records LIMIT 1").fetchall()
    first = steps
    assert one(db, "SELECT count(*) FROM idem_records") == 20000
    assert first < 500 < steps - first
    db.close()


# -- the statements behind a call ----------------------------------------------------------------------

CALLS = [
    "SELECT idem_claim('t','k1','fp')", "SELECT idem_claim('t','k1','fp')", "SELECT idem_claim('t','a1','fp','all')",
    f"SELECT idem_claim('t','k2','fp','','{TOKEN}')", f"SELECT idem_complete('t','k2','{TOKEN}','r')",
    "SELECT * FROM idem_claim('t','k3','fp')", f"SELECT idem_claim('t','k4','fp','','{TOKEN}')",
    f"SELECT idem_checkpoint('t','k4','{TOKEN}','p')", f"SELECT idem_renew('t','k4','{TOKEN}')",
    f"SELECT idem_release('t','k4','{TOKEN}')", "SELECT idem_claim('t','k4','fp')",
    f"SELECT idem_claim('t','k5','fp','','{TOKEN}')", f"SELECT idem_suspend('t','k5','{TOKEN}')",
    "SELECT idem_resolve('t','k5','retry')", "SELECT idem_seen('s','e')", "SELECT idem_seen('s','e')",
    "SELECT * FROM idem_records WHERE scope='t' AND key='k1'", "DELETE FROM idem_records WHERE scope='t' AND key='k2'",
    "SELECT * FROM idem_records WHERE state='unknown'", "SELECT * FROM idem_records WHERE expires_at < 5",
    "SELECT idem_clock(9000000000000)", "SELECT idem_purge()",
]


@needs_trace
def test_no_call_reads_a_whole_table(db):
    db = connect(":memory:")
    policy(db, "all", audit="all")
    seen = set()
    db.set_trace_callback(seen.add)
    for call in CALLS:
        db.execute(call).fetchall()
    db.set_trace_callback(None)
    nested = {re.sub(r"\?\d*", "1", re.sub("(?m)^-- ", "", s)) for s in seen if s.startswith("-- ")}
    nested = [s for s in nested if "main.idem_" in s and "sqlite_schema" not in s]
    assert len(nested) > 15, "the trace shows too little"
    for sql in nested:
        if "idem_audit_entry" in sql or "idem_claim_audited" in sql or "idem_purge_batch" in sql:
            continue                              # views: their triggers are looked at below
        for *_, detail in db.execute("EXPLAIN QUERY PLAN " + sql).fetchall():
            assert not re.match(r"SCAN (idem_store|idem_inbox|idem_audit|r|i)\b", detail), (sql, detail)
    db.close()


def test_the_triggers_plans(db):
    """EXPLAIN QUERY PLAN does not show what a trigger runs: its statements are explained one by one."""
    checked = 0
    for name in ("idem_purge_batch_run", "idem_claim_audited_insert", "idem_audit_chain", "idem_store_audit"):
        body = one(db, "SELECT sql FROM sqlite_schema WHERE name = ?", name)
        body = re.sub(r"--.*", "", body)
        body = body[body.index("BEGIN") + 5:body.rindex("END")]
        for statement in body.split(";"):
            statement = re.sub(r"\bnew\.\w+", "1", statement.strip())
            if not statement:
                continue
            plan = [row[3] for row in db.execute("EXPLAIN QUERY PLAN " + statement).fetchall()]
            checked += 1
            for detail in plan:
                assert not re.match(r"SCAN (idem_store|idem_inbox)\b", detail), (name, statement, detail)
                if name == "idem_purge_batch_run":
                    assert "TEMP B-TREE" not in detail, (statement, detail)
            if name == "idem_purge_batch_run":
                assert any("idem_store_due (state=? AND due_at<?)" in d or "idem_inbox_expires (expires_at<?)" in d
                           for d in plan), (statement, plan)
    assert checked >= 6


@needs_progress
@pytest.mark.parametrize("kind", ["tombstones", "answers", "events"])
def test_a_purge_costs_the_same_whatever_the_size(kind):
    """Instructions for purging 100 rows out of 500 and out of 10,000: the same but for tree depth."""
    cost = []
    for size in (500, 10000):
        db = connect(":memory:")
        if kind == "events":
            db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                       "INSERT INTO idem_inbox SELECT 's', 'e' || i, NULL, 1, i FROM n", (size,))
        else:
            db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                       "INSERT INTO idem_store(scope, key, operation, fingerprint, state, attempt, due_at, "
                       "tombstone_ms, created_at, updated_at, completed_at) "
                       "SELECT 't', 'k' || i, '', 'fp', ?, 1, i, 100, 1, 1, 1 FROM n",
                       (size, "tombstone" if kind == "tombstones" else "completed"))
        one(db, "SELECT idem_clock(1000000)")
        one(db, "SELECT idem_purge(1)")
        steps = 0

        def progress():
            nonlocal steps
            steps += 1
            return 0

        db.set_progress_handler(progress, 1)
        assert one(db, "SELECT idem_purge(100)") == 100
        cost.append(steps)
        db.close()
    assert cost[1] < cost[0] * 1.1, cost

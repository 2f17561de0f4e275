"""Random WHERE, ORDER BY and LIMIT on idem_records, against the same query on a plain table.

The plain table is filled from main.idem_store by the rules of the README, written down here once
more. A difference is a plan that reads too little, a bound that is off by one, an order that is
not kept. A failure prints the seed and the query. IDEM_DEEP=1 goes on for IDEM_DEEP_SECONDS.
"""
import os
import random
import re
import sqlite3
import time

import pytest

from conftest import DEEP, claim, connect, deep_seed, one, policy

NOW = 1_700_000_000_000
COLUMNS = """scope TEXT, key TEXT, operation TEXT, fingerprint, state TEXT, outcome TEXT,
 http_status INTEGER, token TEXT, attempt INTEGER, lease_until INTEGER, retry_after_ms INTEGER,
 replayed INTEGER, code INTEGER, headers TEXT, response, response_omitted INTEGER,
 recovery_point TEXT, checkpoint, created_at INTEGER, completed_at INTEGER,
 lease_remaining_ms INTEGER, expires_at INTEGER, tombstone_until INTEGER, age_ms INTEGER,
 reason TEXT"""
NAMES = [column.split()[0] for column in COLUMNS.split(",")]
# the token is shown to nobody but its holder
SHOWN = [name for name in NAMES if name != "token"]
OPERATIONS = {None: "*", "pay": "pay", "note": "note", "once": "once"}


def fill(db, rng):
    """Records in every state, with the clock running through their lives."""
    policy(db, "pay", lease_ms=500, retention_ms=3000, tombstone_ms=4000)
    policy(db, "note", lease_ms=300, on_stale="retry", retention_ms=1000)
    policy(db, "once", lease_ms=200, on_stale="retry", max_attempts=1, max_response_bytes=3)
    policy(db, "*", retention_ms=2000, tombstone_ms=1500)
    now = NOW
    for i in range(150):
        now += rng.choice([0, 1, 40, 90])
        one(db, "SELECT idem_clock(?)", now)
        scope, key, operation = rng.choice("tuT"), f"k{i % 120}", rng.choice(list(OPERATIONS))
        token = f"token-{i:012}"
        got = claim(db, key, rng.choice(["fp", b"fp"]), operation, token, scope)
        if got["outcome"] != "claimed":
            continue
        for verb in rng.choice(["", "", "suspend", "release", "checkpoint", "complete", "complete",
                                "checkpoint complete", "checkpoint suspend", "renew"]).split():
            more = {"complete": [rng.choice([None, "", "r", b"\x00", "long one"]),
                                 rng.choice([None, 200, 402])],
                    "checkpoint": [rng.choice("pq"), rng.choice([None, "c", b"c"])],
                    "release": [rng.choice([None, "why"])],
                    "suspend": [rng.choice([None, "Why"])]}.get(verb, [])
            marks = ",".join("?" * (3 + len(more)))
            one(db, f"SELECT idem_{verb}({marks})", scope, key, token, *more)
        if rng.random() < 0.02:
            one(db, "SELECT idem_purge(5)")
    return now


def shown(row, rules, now):
    """What idem_records says of a row of the store; None if its time is over."""
    rule, state, due = rules.get(row["operation"], rules["*"]), row["state"], row["due_at"]
    until = due + \
        row["tombstone_ms"] if state == "completed" else due if state == "tombstone" else None
    if until is not None and now >= until:
        return None
    live = state == "processing" and now < due
    if state == "processing" and not live and rule["on_stale"] == "unknown":
        seen = "unknown"
    elif state == "tombstone" or state == "completed" and now >= due:
        seen = "expired"
    else:
        seen = state
    used_up = 0 < rule["max_attempts"] <= row["attempt"] - row["granted"]
    outcome = {"completed": "replay", "expired": "expired", "unknown": "unknown"}.get(
        seen, "in_progress" if live else "exhausted" if used_up else "claimed")
    done, gone, omitted = until is not None, seen == "expired", row["response_omitted"]
    status = {"in_progress": 409, "unknown": 409, "expired": 410, "exhausted": 409}.get(
        outcome, row["code"] if outcome == "replay" else None)

    def kept(value):
        return None if gone else value
    return dict(
        scope=row["scope"], key=row["key"], operation=row["operation"],
        fingerprint=row["fingerprint"],
        state=seen, outcome=outcome, http_status=status, token=row["token"], attempt=row["attempt"],
        lease_until=due if state == "processing" else None,
        retry_after_ms=min(due - now, rule["lease_ms"]) if live else None,
        replayed=int(outcome == "replay"), code=row["code"], headers=kept(row["headers"]),
        response=kept(None if omitted else row["response"]),
        response_omitted=kept(omitted) or 0, recovery_point=kept(row["recovery_point"]),
        checkpoint=kept(row["checkpoint"]), created_at=row["created_at"],
        completed_at=row["completed_at"] if done else None,
        lease_remaining_ms=max(due - now, 0) if state == "processing" else None,
        expires_at=until - row["tombstone_ms"] if done else None, tombstone_until=until,
        age_ms=now - row["created_at"], reason=kept(row["reason"]))


def copy(db, now):
    """The plain table."""
    def dicts(sql):
        cursor = db.execute(sql)
        names = [d[0] for d in cursor.description]
        return [dict(zip(names, row)) for row in cursor]
    rules = {p["operation"]: p for p in dicts("SELECT * FROM idem_policy")}
    db.execute("DROP TABLE IF EXISTS temp.copy")
    db.execute(f"CREATE TEMP TABLE copy(id INTEGER PRIMARY KEY, {COLUMNS})")
    for row in dicts("SELECT * FROM main.idem_store"):
        seen = shown(row, rules, now)
        if seen:
            db.execute(f"INSERT INTO temp.copy VALUES ({','.join('?' * (len(NAMES) + 1))})",
                       [row["id"], *(seen[name] for name in NAMES)])


class Queries:
    """Draws the text of a query with the table's name left open, and its values."""

    def __init__(self, db, rng, now):
        self.rng, self.now = rng, now
        self.pool = {name: [r[0] for r in db.execute(f"SELECT DISTINCT {name} FROM temp.copy")]
                     for name in NAMES}
        self.values = []

    def value(self, name):
        rng = self.rng
        v = rng.choice(self.pool[name]) if rng.random() < 0.8 and self.pool[name] else rng.choice(
            [None, 0, -1, 5, 1.5, "", "x", b"x", self.now, self.now + 0.5, 2**63 - 1, -2**63,
             1e300])
        if isinstance(v, int):
            v = rng.choice([v, v, v, v - 1, v + 1, v + 0.5, float(v), str(v)]
                           ) if abs(v) < 2**62 else v
        elif isinstance(v, str) and rng.random() < 0.1:
            v = rng.choice([v.upper(), v + " ", v.encode()])
        self.values.append(v)
        return "?"

    def joined(self):
        """Two tables, or a question within a question: values come from a row of the other."""
        rng = self.rng
        self.values = []
        left, right = rng.choice([("{}", "{}"), ("{}", "temp.few"), ("temp.few", "{}")])
        names = ["scope", "key", "state", "lease_until", "expires_at", "created_at", "outcome"]
        a = f"a.{'value' if left == 'temp.few' else rng.choice([*names, 'rowid'])}"
        b = f"b.{'value' if right == 'temp.few' else rng.choice([*names, 'rowid'])}"
        on = f"{a} {rng.choice(['=', '=', '=', 'IS', '<', '>='])} {b}"
        if "few" not in left + right and rng.random() < 0.7:
            on += f" AND a.{rng.choice(names)} = b.{rng.choice(names)}"
        if rng.random() < 0.5:
            table, side = rng.choice([(left, "a"), (right, "b")])
            name = "value" if table == "temp.few" else rng.choice(names)
            known = name if name in self.pool else "key"
            on += f" AND {side}.{name} {rng.choice(['=', '<', '>', 'IS NOT'])} {self.value(known)}"
        if rng.random() < 0.3:
            return (f"SELECT a.rowid FROM {left} AS a WHERE {rng.choice(['', 'NOT '])}EXISTS"
                    f" (SELECT 1 FROM {right} AS b WHERE {on}) ORDER BY a.rowid", self.values)
        return (f"SELECT a.rowid, b.rowid, {a}, {b} FROM {left} AS a {rng.choice(['', 'LEFT '])}JOIN"
                f" {right} AS b ON {on} ORDER BY a.rowid, b.rowid LIMIT 3000", self.values)

    def term(self):
        # The columns that have plans of their own come up more often.
        rng = self.rng
        name = rng.choice(["scope", "key", "state", "lease_until", "expires_at", *SHOWN])
        kind = rng.choice(["=", "=", "=", "IS", "<", "<=", ">", ">=", "<>", "IN",
                          "BETWEEN", "NULL", "LIKE", "COLLATE", "rowid", "IS NOT", "join"])
        if kind == "IN":
            return f"{name} IN ({', '.join(self.value(name) for _ in range(rng.randrange(4)))})"
        if kind == "BETWEEN":
            return f"{name} BETWEEN {self.value(name)} AND {self.value(name)}"
        if kind == "NULL":
            return f"{name} {rng.choice(['IS NULL', 'NOTNULL'])}"
        if kind == "LIKE":
            return f"{name} LIKE {self.value(name)}"
        if kind == "COLLATE":
            return f"{name} {rng.choice('=<>')} {self.value(name)} COLLATE NOCASE"
        if kind == "rowid":
            self.values.append(rng.choice([1, 7, 50, 9999, "3", 2.0, 2.5, None, -1, "x"]))
            return f"rowid {rng.choice(['=', '=', 'IN (3, 4)  OR rowid =', '<'])} ?"
        if kind == "join":
            return f"{name} IN (SELECT value FROM temp.few)"
        return f"{name} {kind} {self.value(name)}"

    def where(self, depth=0):
        rng = self.rng
        terms = []
        for _ in range(rng.choice([1, 1, 2, 2, 3])):
            if depth < 2 and rng.random() < 0.15:
                terms.append(f"{rng.choice(['', 'NOT '])}({self.where(depth + 1)})")
            else:
                terms.append(self.term())
        return rng.choice([" AND ", " AND ", " OR "]).join(terms)

    def condition(self):
        where = self.where()
        if " OR " in where:
            # SQLite makes an IN of x = ? OR x = ? COLLATE NOCASE where x has an index, and forgets
            # the collation: an indexed table has other rows then than one without. Not if it is
            # written like this.
            where = re.sub(r"(\w+) = \? COLLATE NOCASE", r"NOT (\1 <> ? COLLATE NOCASE)", where)
        return where

    def draw(self):
        rng = self.rng
        if rng.random() < 0.1:
            return self.joined()
        self.values = []
        columns = rng.sample(SHOWN, rng.randrange(1, 6))
        if rng.random() < 0.15:
            columns = ["count(*)", "min(age_ms)", "max(key)"]
            where = f" WHERE {self.condition()}"
            return f"SELECT {', '.join(columns)} FROM {{}}{where}", self.values
        where = f" WHERE {self.condition()}" if rng.random() < 0.93 else ""
        if where and rng.random() < 0.1:
            where = f" WHERE ({where[7:]}) AND token = {self.value('token')}"
        chosen = rng.sample(SHOWN, rng.choice([0, 1, 2]))
        order = [f"{c} {rng.choice(['ASC', 'DESC'])}" for c in chosen]
        order.append(rng.choice(["rowid", "rowid DESC"]))
        limit = f" LIMIT {rng.choice([0, 1, 3, 10, -1])} OFFSET {rng.choice([0, 1, 4])}" \
            if rng.random() < 0.3 else ""
        return (f"SELECT rowid, {', '.join(columns)} FROM {{}}{where}"
                f" ORDER BY {', '.join(order)}{limit}", self.values)


def compare(db, sql, values, seed):
    """sql asks of {}, once of the plain table and once of idem's."""
    asked = sql.replace("{}", "idem_records")
    wanted = db.execute(sql.replace("{}", "temp.copy"), values).fetchall()
    try:
        got = db.execute(asked, values).fetchall()
    except sqlite3.Error as e:
        pytest.fail(f"seed {seed}: {asked} {values}: {e}", pytrace=False)
    if got != wanted:
        pytest.fail(f"seed {seed}: {asked} {values}\ngot    {got[:5]}\nwanted {wanted[:5]}",
                    pytrace=False)
    return bool(wanted)


def explore(path, seed, queries, until=None):
    """Compares so many queries on one store, or until the time; how many of them had rows."""
    rng = random.Random(seed)
    db = connect(path)
    db.execute("PRAGMA synchronous = OFF")
    now = fill(db, rng) + rng.choice([0, 1, 100, 700, 3000])
    one(db, "SELECT idem_clock(?)", now)
    copy(db, now)
    db.execute("CREATE TEMP TABLE few(value)")
    for value in ("t", "k1", "unknown", "expired", None, now):
        db.execute("INSERT INTO few VALUES (?)", (value,))
    compare(db, f"SELECT rowid, {', '.join(SHOWN)} FROM {{}} ORDER BY rowid", [], seed)
    draw, rows = Queries(db, rng, now), 0
    for _ in range(queries):
        rows += compare(db, *draw.draw(), seed)
        if until and time.monotonic() > until:
            break
    db.close()
    return rows


@pytest.mark.parametrize("seed", [int(os.environ.get("IDEM_SEED", 1)), 2])
def test_queries(path, seed):
    assert explore(path, seed, 1500) > 300, "most queries found nothing"


@pytest.mark.skipif(not DEEP, reason="IDEM_DEEP=1 runs it")
def test_many_queries(tmp_path):
    until = time.monotonic() + float(os.environ.get("IDEM_DEEP_SECONDS", "300"))
    seed = first = deep_seed()
    while time.monotonic() < until:
        explore(tmp_path / f"{seed}.db", seed, 3000, until)
        (tmp_path / f"{seed}.db").unlink()
        seed += 1
    print(f"{seed - first} stores from seed {first}, 3000 queries each")


def test_a_difference_is_found(path, monkeypatch):
    """With rules that are wrong about one thing."""
    right = shown

    def wrong(row, rules, now):
        seen = right(row, rules, now)
        return seen and {**seen, "age_ms": seen["age_ms"] + (seen["state"] == "released")}

    monkeypatch.setattr("test_records_queries.shown" if __name__ == "test_records_queries"
                        else f"{__name__}.shown", wrong)
    with pytest.raises(pytest.fail.Exception, match="seed 1: "):
        explore(path, 1, 10)

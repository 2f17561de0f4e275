"""Runs schedules of steps on a database and on the model at once, and shrinks one that disagrees.

A schedule is a list of steps: tuples of an operation, a connection's number and plain values. It is
drawn from a seed before anything runs. A step that makes no sense where it stands (a COMMIT outside a
transaction) is left out, so that any part of a schedule is a schedule: that is what makes shrinking
simple.

Several connections, one thread: where SQLite would wait for another connection's lock it fails at once,
and the model knows when. A transaction is NONE until it touches the database, then READ (a snapshot)
or WRITE.
"""
import base64
import json
import pathlib
import random
import shutil
import sqlite3
import time

from conftest import connect
from model import ERRORS, Effect, State

START = 1_700_000_000_000
CONNECTIONS = 3
KEYS = [("t", "order-1"), ("t", "order-2"), ("u", "order-1")]
OPERATIONS = [None, "pay", "notify"]
OWN_TOKENS = ["own-token-number-1", "own-token-number-2"]
UNKNOWN_TOKEN = "nobody-has-this-one"


class Disagreement(AssertionError):
    pass


# ---- schedules -----------------------------------------------------------------------------------

def draw(seed, length=40):
    """A schedule of about so many steps."""
    rng = random.Random(seed)
    steps, depth = [], [0] * CONNECTIONS     # depth: as if every step succeeded
    conn = 0

    def step(op, *args):
        steps.append((op, conn, *args))

    def token():
        return rng.choices([("won", 0), ("won", 1), ("own", 0), ("own", 1), ("none",)],
                           [75, 8, 8, 4, 5])[0]

    # Each seed has its own temper: few or many keys, connections, transactions.
    keys = rng.sample(KEYS, rng.choice([1, 1, 2, 3]))
    conns = rng.choice([1, 2, 2, 3])
    transactions = rng.choice([0, 1, 1, 3])
    # Which operation a key is used for: mostly its own, so that mismatches are the exception.
    home = {k: rng.choice(OPERATIONS) for k in KEYS}
    for operation in ("*", "pay", "notify", "inbox"):
        for column, values in POLICY_VALUES.items():
            if rng.random() < 0.6:
                step("policy", operation, column, rng.choice(values))
    if rng.random() < 0.1:                      # old rows of every kind at once, and purges of a few
        for key in rng.sample(KEYS, 2):
            step("claim", "scalar", *key, "idem1:aa", home[key], None)
            step("finish", "scalar", "complete", *key, ("won", 0), draw_details(rng, "complete"))
            step("seen", "scalar", "stripe", rng.choice(["evt_1", "evt_2"]), None)
            step("clock", True, ("late",))
            step("purge", rng.choice([None, 1, 1, 2]))
    while len(steps) < length + 8:
        conn = rng.randrange(conns)
        key = rng.choice(keys)
        kind = rng.choices(
            ["claim", "finish", "resolve", "clock", "transaction", "policy", "purge", "erase", "seen",
             "read", "vacuum", "reopen"],
            [30, 26, 8, 14, 8 * transactions, 4, 4, 2, 6, 4, 1, 1])[0]
        if kind == "claim":
            own = rng.choices([None, ("own", 0), ("own", 1), ("won", 0), ("won", 1)],
                              [60, 15, 10, 10, 5])[0]
            form = rng.choice(["scalar", "table", "carrier", "insert", "ignore"])
            if form in ("insert", "ignore"):
                own = own or ("own", rng.randrange(2))
            fp = rng.choices(["idem1:aa", "idem1:bb", "idem0:aa", b"idem1:aa"], [90, 4, 3, 3])[0]
            operation = home[key] if rng.random() < 0.95 else rng.choice(OPERATIONS)
            name = rng.choices([key, (key[0], key[0]), (key[0], "idem1:aa")], [96, 2, 2])[0]
            step("claim", form, *name, fp, operation, own)
        elif kind == "finish":
            verb = rng.choices(["complete", "release", "suspend", "renew", "checkpoint"],
                               [40, 20, 14, 12, 14])[0]
            step("finish", rng.choice(["scalar", "carrier", "update"]), verb, *key, token(),
                 draw_details(rng, verb))
        elif kind == "resolve":
            verb = rng.choice(["resolve-completed", "resolve-retry"])
            step("resolve", rng.choice(["scalar", "carrier"]), verb, *key, draw_details(rng, verb))
        elif kind == "clock":
            everybody = rng.random() < 0.8
            if rng.random() < 0.5:
                to = ("edge", *rng.choices([key, ("inbox", None)], [5, 1])[0], rng.choice([-1, 0, 0, 1]))
            else:
                to = ("jump", rng.choice([1, 50, 99, 1000, 5000, 70_000, -1, -100, -5000]))
            step("clock", everybody, to)
        elif kind == "transaction":
            if depth[conn] == 0:
                what = rng.choice(["begin", "immediate", "savepoint"])
            else:
                what = rng.choice(["commit", "rollback", "savepoint", "rollback to", "release"])
            depth[conn] += {"commit": -depth[conn], "rollback": -depth[conn], "rollback to": 0,
                            "release": -1}.get(what, 1)
            step("transaction", what)
        elif kind == "policy":
            column = rng.choice(list(POLICY_VALUES))
            step("policy", rng.choice(["*", "pay", "notify", "inbox"]), column,
                 rng.choice(POLICY_VALUES[column]))
        elif kind == "purge":
            if rng.random() < 0.5:      # when much of all kinds is over, so that the limit matters
                step("clock", True, ("late",))
            step("purge", rng.choice([None, 1, 2]))
            step("purge", rng.choice([None, 1, 2]))
        elif kind == "erase":
            step("erase", *key)
        elif kind == "seen":
            step("seen", rng.choice(["scalar", "carrier"]), rng.choice(["stripe", "github"]),
                 rng.choice(["evt_1", "evt_2"]), rng.choice([None, "idem1:aa", "idem1:aa", "idem1:bb"]))
        else:
            step(kind)
    return steps


POLICY_VALUES = dict(lease_ms=[100, 1000, 60_000], retention_ms=[200, 5000], tombstone_ms=[300, 4000],
                     on_stale=["unknown", "retry"], max_attempts=[0, 0, 1, 2, 3],
                     max_response_bytes=[1, 1_048_576, 1_048_576], allow_content_key=[0, 0, 1],
                     audit=["off", "exceptions", "all"])


def draw_details(rng, verb):
    if verb in ("complete", "resolve-completed"):
        return dict(response=rng.choice(["done", "done", "", None, b"\x00\xff", "other"]),
                    code=rng.choice([201, 201, None]), headers=rng.choice([None, None, '{"a": 1}']))
    if verb in ("release", "suspend", "resolve-retry"):
        return dict(reason=rng.choice([None, "why's that"]))
    if verb == "checkpoint":
        return dict(point=rng.choice(["charged", "shipped"]),
                    checkpoint=rng.choice([None, "", "c1", b"\x01"]))
    return {}


# ---- one connection as the model sees it ---------------------------------------------------------

class Conn:
    def __init__(self, db):
        self.db = db
        self.now = START
        self.end()

    def end(self):
        self.open = False       # inside BEGIN or SAVEPOINT
        self.lock = "none"      # none, read, write
        self.state = None       # of the transaction, once it has touched the database
        self.base = None        # the versions of the database it began at
        self.saves = []         # [name, state or None if it had touched nothing]


class Run:
    """Runs steps until one disagrees."""

    def __init__(self, directory, template):
        self.path = pathlib.Path(directory) / "simulation.db"
        for suffix in ("", "-wal", "-shm"):
            pathlib.Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        shutil.copy(template, self.path)
        self.committed = State.new()
        self.version = self.maybe = 0       # commits that changed something; that perhaps did
        self.conns = [Conn(None) for _ in range(CONNECTIONS)]
        self.won = {}                       # (scope, key) -> tokens told to winners
        self.script = []                    # what was run: (connection, SQL with literals)
        self.counts = {}                    # (operation, result) -> how often
        for number in range(CONNECTIONS):
            self.connect(number)

    def connect(self, number):
        conn = self.conns[number]
        conn.db = connect(self.path, init=False, timeout=0, cached_statements=64)
        conn.db.execute("PRAGMA synchronous = OFF")
        self.script.append((number, None))
        self.set_clock(number, conn.now)

    def close(self):
        for conn in self.conns:
            if conn.db is not None:
                conn.db.close()
                conn.db = None

    # ---- locks -----------------------------------------------------------------------------------

    def other_writer(self, conn):
        return any(c is not conn and c.lock == "write" for c in self.conns)

    def view(self, conn):
        return conn.state if conn.lock != "none" else self.committed

    def enter(self, conn, lock):
        """An untouched transaction takes its snapshot."""
        conn.lock, conn.state, conn.base = lock, self.committed, (self.version, self.maybe)
        for save in conn.saves:
            save[1] = self.committed

    def lock_for(self, conn, writes):
        """Before a statement: writes is True if SQLite takes it for a write, None if it is a call under
        SELECT. The names of the errors it may fail with, most certain first; [] if none."""
        if not conn.open:
            return ["BUSY"] if writes and self.other_writer(conn) else []
        if conn.lock == "none":
            if writes is False:
                self.enter(conn, "read")
            elif self.other_writer(conn):
                return ["BUSY"]
            else:
                self.enter(conn, "write")
        return self.upgrade(conn) if writes else []

    def upgrade(self, conn):
        """Before a write."""
        if not conn.open or conn.lock == "write":
            return ["BUSY"] if self.other_writer(conn) else []
        if self.other_writer(conn):
            return ["BUSY"]
        if self.version > conn.base[0]:
            return ["BUSY_SNAPSHOT"]
        # Commits that left everything as it was may or may not have written pages.
        return ["BUSY_SNAPSHOT", None] if self.maybe > conn.base[1] else []

    def wrote(self, conn, state):
        """A write has happened."""
        if conn.open:
            conn.lock, conn.state = "write", state
        else:
            self.commit(state)

    def commit(self, state):
        if state != self.committed:
            self.version += 1
        self.maybe += 1
        self.committed = state

    # ---- running ---------------------------------------------------------------------------------

    def sql(self, number, sql, *values):
        """Runs a statement: rows (and changes), or the error as (name, message)."""
        self.script.append((number, inline(sql, values)))
        db = self.conns[number].db
        try:
            cursor = db.execute(sql, values)
            rows = cursor.fetchall()
            return rows, cursor.rowcount, None
        except sqlite3.Error as e:
            return None, None, (getattr(e, "sqlite_errorname", "?"), str(e))

    def expect(self, condition, *what):
        if not condition:
            raise Disagreement(" ".join(str(w) for w in what))

    def count(self, op, result):
        self.counts[op, result] = self.counts.get((op, result), 0) + 1

    def locked(self):
        """Whether anybody holds the write lock."""
        probe = sqlite3.connect(str(self.path), timeout=0, isolation_level=None)
        try:
            probe.execute("BEGIN IMMEDIATE")
            return False
        except sqlite3.OperationalError:
            return True
        finally:
            probe.close()

    def failed(self, error, allowed):
        """True if the statement failed with one of the lock errors it may fail with; raises if it had
        to fail and did not."""
        names = [f"SQLITE_{n}" for n in allowed if n]
        if error and error[0] in names:
            return True
        self.expect(not names or None in allowed, "expected", allowed, "got", error)
        return False

    def call(self, number, op, effect, writes, sql, values):
        """Runs a call of idem whose effect the model knows. effect: a function of the state that the
        call sees. Returns (effect, rows, changes, error) unless it failed for a lock."""
        conn = self.conns[number]
        untouched = conn.open and conn.lock == "none"
        allowed = self.lock_for(conn, writes)
        expected = effect(self.view(conn))
        # A completion may try its write before it finds out that there is nothing to complete.
        eager = op == "complete" and not allowed and not expected.needs
        note = not allowed and expected.needs == "note"
        if not allowed and (expected.needs or eager):
            allowed = self.upgrade(conn) + [None] * eager
        blocked, allowed = note and allowed, [] if note else allowed
        rows, changes, error = self.sql(number, sql, *values)
        if blocked and self.audit_rows(conn) < len(expected.state.audit):
            expected = expected._replace(state=self.view(conn), needs=False)
        if eager and conn.lock == "read" and not self.other_writer(conn) and self.locked():
            conn.lock = "write"
        if self.failed(error, allowed):
            if untouched and conn.lock == "none":
                self.count(op, "busy at first")
            self.count(op, "busy")
            return None
        if writes and conn.open:
            conn.lock = "write"
        return expected, rows, changes, error

    def audit_rows(self, conn):
        """How many the connection sees."""
        return conn.db.execute("SELECT count(*) FROM idem_audit").fetchone()[0]

    def settle(self, number, op, expected, error):
        """Checks an error, or takes over the new state. True if the call succeeded."""
        conn = self.conns[number]
        if expected.error:
            kind, words = ERRORS[expected.error]
            self.expect(error and error[0].startswith(f"SQLITE_{kind}") and words in error[1],
                        "expected error", expected.error, "got", error)
            self.count(op, expected.error)
            return False
        self.expect(error is None, "unexpected", error, "model says", expected.answer)
        if expected.needs:
            self.wrote(conn, expected.state)
        return True

    def run(self, steps):
        for step in steps:
            self.step(step)
        self.finish()

    def step(self, step):
        op, number, *args = step
        conn = self.conns[number]
        getattr(self, "do_" + op)(number, conn, *args)
        self.expect(conn.db.in_transaction == conn.open, "transaction open:", conn.db.in_transaction,
                    "model says", conn.open)

    # ---- steps -----------------------------------------------------------------------------------

    def token(self, ref, name):
        """A token by reference: the latest ones won, the caller's own, or none that exists."""
        if ref is None:
            return None
        if ref[0] == "won":
            won = self.won.get(name, [])
            return won[-1 - ref[1]] if len(won) > ref[1] else UNKNOWN_TOKEN
        return OWN_TOKENS[ref[1]] if ref[0] == "own" else UNKNOWN_TOKEN

    def do_claim(self, number, conn, form, scope, key, fp, operation, ref):
        name = (scope, key)
        token = self.token(ref, name)
        if form in ("insert", "ignore"):
            return self.claim_by_insert(number, conn, form, name, fp, operation, token)
        sql = {"scalar": "SELECT idem_claim(?, ?, ?, ?, ?)",
               "table": "SELECT * FROM idem_claim(?, ?, ?, ?, ?)",
               "carrier": "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim(?, ?, ?, ?, ?)"}
        result = self.call(number, "claim", lambda s: s.claim(conn.now, scope, key, fp, operation, token,
                                                              token or "new"),
                           True if form == "carrier" else None, sql[form],
                           (scope, key, fp, operation, token))
        if result is None:
            return None
        expected, rows, _, error = result
        if expected.error or error:
            return self.settle(number, "claim", expected, error)
        self.expect(len(rows) == 1, "rows:", rows)
        got = dict(zip(ANSWER, rows[0])) if form == "table" else from_json(rows[0][0])
        if expected.answer["outcome"] == "claimed" and token is None:
            # The token is idem's to choose: take it over.
            made = got.get("token")
            self.expect(isinstance(made, str) and len(made) == 32, "token:", made)
            expected = self.view(conn).claim(conn.now, scope, key, fp, operation, None, made)
        self.compare_answer(got, expected.answer)
        self.settle(number, "claim", expected, error)
        self.count("claim", got["outcome"])
        if got["outcome"] == "claimed":
            self.won.setdefault(name, []).append(got["token"])

    def compare_answer(self, got, expected):
        for column in ANSWER:
            want, have = expected.get(column), got.get(column)
            if column == "retry_after_ms" and want is not None:
                left, lease = want
                good = isinstance(have, int) and 0 < have <= min(left, lease)
            elif column == "message" and want == "any":
                good = isinstance(have, str) and have
            else:
                good = type(want) is type(have) and want == have
            self.expect(good, "column", column, "is", repr(have), "expected", repr(want), "in", got)

    def claim_by_insert(self, number, conn, form, name, fp, operation, token):
        clause = "INSERT OR IGNORE" if form == "ignore" else "INSERT"
        before = self.view(conn)
        result = self.call(number, "insert", lambda s: s.claim(conn.now, *name, fp, operation, token,
                                                               token), True,
                           f"{clause} INTO idem_records(scope, key, fingerprint, operation, token) "
                           "VALUES (?, ?, ?, ?, ?)", (*name, fp, operation, token))
        if result is None:
            return
        expected, _, changes, error = result
        if expected.error is None and expected.answer["outcome"] == "claimed":
            self.expect(changes == 1, "changes:", changes, "error", error)
            self.settle(number, "insert", expected, error)
            self.won.setdefault(name, []).append(token)
            self.count("insert", "claimed")
            return
        # Refused: a constraint error with the outcome's message, or with OR IGNORE no change.
        outcome = expected.error or expected.answer["outcome"]
        self.count("insert", outcome)
        plain = expected.error and ERRORS[expected.error][0] == "ERROR"
        if form == "ignore" and not plain:
            self.expect(error is None and changes == 0, "changes:", changes, "error", error)
        elif expected.error:
            self.settle(number, "insert", expected, error)
        else:
            self.expect(error and error[0].startswith("SQLITE_CONSTRAINT"), "refused:", outcome, error)
            message = expected.answer["message"]
            if message not in (None, "any"):
                self.expect(message in error[1], message, error)
        # The audit's note of a refusal is undone with a statement that fails in autocommit.
        if expected.error is None and expected.needs and (conn.open or form == "ignore"):
            self.wrote(conn, expected.state)
        elif conn.open:
            conn.state = before

    def do_finish(self, number, conn, form, verb, scope, key, ref, details):
        name = (scope, key)
        token = self.token(ref, name)

        def effect(s):
            return s.finish(conn.now, verb, scope, key, token, **details)

        if form == "update":
            return self.update(number, conn, verb, name, token, effect, details)
        values = [scope, key, token, *details.values()]
        self.scalar(number, conn, form, f"idem_{verb}", verb, effect, values)

    def do_resolve(self, number, conn, form, verb, scope, key, details):
        values = [scope, key, verb.split("-")[1], *details.values()]
        self.scalar(number, conn, form, "idem_resolve", verb,
                    lambda s: s.finish(conn.now, verb, scope, key, **details), values)

    def do_seen(self, number, conn, form, source, event, fp):
        self.scalar(number, conn, form, "idem_seen", "seen",
                    lambda s: s.see(conn.now, source, event, fp), [source, event, fp])

    def scalar(self, number, conn, form, function, op, effect, values):
        """A function of one value under SELECT or in the carrier."""
        call = f"{function}({', '.join('?' * len(values))})"
        carrier = form == "carrier"
        sql = f"INSERT INTO idem_call DEFAULT VALUES RETURNING {call}" if carrier else f"SELECT {call}"
        result = self.call(number, op, effect, True if carrier else None, sql, values)
        if result is None:
            return
        expected, rows, _, error = result
        if self.settle(number, op, expected, error):
            self.expect(rows == [(expected.answer,)], "answer", rows, "expected", expected.answer)
            self.count(op, "done" if expected.needs else "no change")

    def update(self, number, conn, verb, name, token, effect, details):
        """The same through idem_records: no row matched means that the claim is lost."""
        columns = {"complete": {"state": "completed"}, "release": {"state": "released"},
                   "suspend": {"state": "unknown"}, "renew": {"state": "processing"},
                   "checkpoint": {}}[verb] | {
                       {"point": "recovery_point"}.get(k, k): v for k, v in details.items()}

        def matched(s):
            record = s.records.get(name)
            return s.seen_state(record, conn.now) is not None and record.token == token

        def changed(s):
            return effect(s) if matched(s) else s.fail(None)

        result = self.call(number, "update", changed, True,
                           f"UPDATE idem_records SET {', '.join(c + ' = ?' for c in columns)} "
                           "WHERE scope = ? AND key = ? AND token = ?",
                           (*columns.values(), *name, token))
        if result is None:
            return
        found = int(matched(self.view(conn)))
        expected, _, changes, error = result
        if self.settle(number, "update", expected, error):
            self.expect(changes == found, "changes", changes, "expected", found)
            self.count("update", verb if found else "lost")

    def do_erase(self, number, conn, scope, key):
        def effect(s):
            e = s.finish(conn.now, "erase", scope, key)
            return s.fail(None) if e.error == "no record" else e  # a DELETE that finds no row

        result = self.call(number, "erase", effect, True,
                           "DELETE FROM idem_records WHERE scope = ? AND key = ?", (scope, key))
        if result is None:
            return
        expected, _, changes, error = result
        if self.settle(number, "erase", expected, error):
            self.expect(changes == int(expected.needs), "changes", changes)
            self.count("erase", "done" if expected.needs else "no row")

    def do_purge(self, number, conn, limit):
        def tie(kind, candidates, n):
            """The store's choice among equally old ones, if it is one of the oldest."""
            return [name for _, name in candidates[:n]]

        result = self.call(number, "purge", lambda s: s.purge(conn.now, limit or 1000, tie), None,
                           "SELECT idem_purge(?)" if limit else "SELECT idem_purge()",
                           (limit,) if limit else ())
        if result is None:
            return
        expected, rows, _, error = result
        self.expect(error is None and rows == [(expected.answer,)], "purged", rows, "expected",
                    expected.answer, error)

        def actual(kind, candidates, n):
            chosen = []
            for due, name in candidates:
                if kind == "event":
                    gone = not self.fetch(conn, "SELECT 1 FROM idem_inbox WHERE source = ? AND "
                                                "event_id = ?", name)
                else:
                    state = self.fetch(conn, "SELECT state FROM idem_store WHERE scope = ? AND key = ?",
                                       name)
                    gone = not state or state[0][0] != kind
                if gone:
                    chosen.append((due, name))
            self.expect(len(chosen) == n and [d for d, _ in chosen] == [d for d, _ in candidates[:n]],
                        kind, "purged", chosen, "of", candidates, "limit", n)
            return [name for _, name in chosen]

        if expected.needs:
            self.wrote(conn, self.view(conn).purge(conn.now, limit or 1000, actual).state)
        self.count("purge", "done" if expected.needs else "nothing")

    def fetch(self, conn, sql, values=()):
        return conn.db.execute(sql, values).fetchall()

    def do_policy(self, number, conn, operation, column, value):
        def effect(s):
            return Effect(s.set_policy(operation, column, value), None, None, True)

        result = self.call(number, "policy", effect, True,
                           f"INSERT INTO idem_policy(operation, {column}) VALUES (?, ?) "
                           f"ON CONFLICT(operation) DO UPDATE SET {column} = excluded.{column}",
                           (operation, value))
        if result:
            self.settle(number, "policy", result[0], result[3])

    def do_clock(self, number, conn, everybody, to):
        state = self.view(conn)
        finished = [r.due for r in state.records.values() if r.state in ("completed", "tombstone")]
        events = [event[2] for event in state.inbox.values()]
        if to[0] == "jump":
            now = conn.now + to[1]
        elif to[0] == "late":
            # To the end of the last retention or tombstone, or of the last event.
            now = max(finished + [e for e in events if e < START + 100_000], default=conn.now)
        elif to[1] == "inbox":
            now = max(events, default=conn.now) + to[3]
        else:
            # To an end of a record's lease, retention or tombstone, or 1 ms beside it.
            record = state.records.get((to[1], to[2]))
            if record is None or record.due is None:
                return
            now = record.due + to[3]
            if record.state == "completed" and conn.now >= record.due:
                now += record.tombstone_ms
        for i in range(CONNECTIONS) if everybody else [number]:
            self.set_clock(i, now)

    def set_clock(self, number, now):
        rows, _, error = self.sql(number, "SELECT idem_clock(?)", now)
        self.expect(rows == [(now,)], "idem_clock", rows, error)
        self.conns[number].now = now

    def do_transaction(self, number, conn, what):
        sql = {"begin": "BEGIN", "immediate": "BEGIN IMMEDIATE", "commit": "COMMIT",
               "rollback": "ROLLBACK", "savepoint": f"SAVEPOINT s{len(conn.saves)}",
               "rollback to": f"ROLLBACK TO s{len(conn.saves) - 1}",
               "release": f"RELEASE s{len(conn.saves) - 1}"}[what]
        if (what in ("begin", "immediate")) == conn.open and what != "savepoint":
            return                                      # BEGIN inside, COMMIT outside
        if what in ("rollback to", "release") and not conn.saves:
            return
        busy = ["BUSY"] if what == "immediate" and self.other_writer(conn) else []
        _, _, error = self.sql(number, sql)
        if self.failed(error, busy):
            self.count("transaction", "busy")
            return
        self.expect(error is None, sql, error)
        self.count("transaction", what)
        if what == "begin":
            conn.open, conn.outer = True, "begin"
        elif what == "immediate":
            conn.open, conn.outer = True, "begin"
            self.enter(conn, "write")
        elif what == "savepoint":
            if not conn.open:
                conn.open, conn.outer = True, "savepoint"
            conn.saves.append([len(conn.saves), conn.state])
        elif what == "rollback to":
            conn.state = conn.saves[-1][1]
        elif what == "release" and (len(conn.saves) > 1 or conn.outer == "begin"):
            conn.saves.pop()
        else:                                           # commit, rollback, release of the outermost
            if what != "rollback" and conn.lock == "write":
                self.commit(conn.state)
            conn.end()

    def do_read(self, number, conn):
        """Every record as idem_records shows it; it never writes."""
        self.lock_for(conn, False)
        rows, _, error = self.sql(number, f"SELECT {State.LISTING} FROM idem_records")
        self.expect(error is None, "idem_records", error)
        self.expect(sorted(rows, key=repr) == self.view(conn).listing(conn.now), "idem_records shows",
                    rows, "expected", self.view(conn).listing(conn.now))
        for state in ("processing", "unknown", "released", "completed", "expired"):
            rows, _, error = self.sql(number, "SELECT scope, key FROM idem_records WHERE state = ?", state)
            want = [r[:2] for r in self.view(conn).listing(conn.now) if r[2] == state]
            self.expect(error is None and sorted(rows) == sorted(want), state, rows, want, error)
        self.count("read", "done")

    def do_vacuum(self, number, conn):
        if any(c.open for c in self.conns):
            return
        _, _, error = self.sql(number, "VACUUM")
        self.expect(error is None, "VACUUM", error)
        self.count("vacuum", "done")

    def do_reopen(self, number, conn):
        """What was not committed is gone."""
        conn.db.close()
        conn.end()
        self.connect(number)
        self.count("reopen", "done")

    # ---- the end ---------------------------------------------------------------------------------

    def finish(self):
        """Ends all transactions and looks at the whole store."""
        for number, conn in enumerate(self.conns):
            if conn.open:
                self.do_transaction(number, conn, "commit")
        for number, conn in enumerate(self.conns):
            stored = self.fetch(conn, f"SELECT {State.STORED} FROM idem_store")
            self.expect(sorted(stored, key=repr) == self.committed.stored(), "idem_store holds",
                        sorted(stored, key=repr), "expected", self.committed.stored())
        conn = self.conns[0]
        audit = self.fetch(conn, "SELECT at, event, scope, key, operation, attempt, detail "
                                 "FROM idem_audit ORDER BY id")
        self.expect(tuple(audit) == self.committed.audit, "idem_audit holds",
                    "\n".join(map(str, audit)), "expected", "\n".join(map(str, self.committed.audit)))
        inbox = self.fetch(conn, "SELECT source, event_id, fingerprint, seen_at, expires_at "
                                 "FROM idem_inbox")
        self.expect(sorted(inbox) == sorted((*n, *e) for n, e in self.committed.inbox.items()),
                    "idem_inbox holds", inbox, "expected", self.committed.inbox)
        self.expect(self.fetch(conn, "PRAGMA integrity_check") == [("ok",)], "integrity_check")
        self.expect(self.fetch(conn, "SELECT idem_audit_verify()") == [(None,)], "idem_audit_verify")
        for invariant, sql in INVARIANTS.items():
            self.expect(not self.fetch(conn, sql), "broken:", invariant)


ANSWER = ("outcome message http_status token attempt lease_until retry_after_ms replayed code headers "
          "response response_omitted recovery_point checkpoint created_at completed_at").split()

# Rows of these are faults whatever the model says.
INVARIANTS = {
    "a due time where there is one, and only there":
        "SELECT * FROM idem_store WHERE (due_at IS NULL) <> (state IN ('released', 'unknown'))",
    "a live claim has a token": "SELECT * FROM idem_store WHERE state = 'processing' AND token IS NULL",
    "what is completed has an end": "SELECT * FROM idem_store WHERE state IN ('completed', 'tombstone') "
                                    "AND (completed_at IS NULL OR tombstone_ms IS NULL)",
    "attempts are counted": "SELECT * FROM idem_store WHERE attempt < 1 OR granted > attempt",
    "a tombstone holds no answer": "SELECT * FROM idem_store WHERE state = 'tombstone' AND "
        "(response IS NOT NULL OR headers IS NOT NULL OR token IS NOT NULL OR checkpoint IS NOT NULL)",
    "no token is current and spent": "SELECT * FROM idem_store WHERE token IS NOT NULL AND "
        "instr(char(10) || ifnull(spent, ''), char(10) || token || char(10))",
    "audit ids have no gaps": "SELECT 1 WHERE "
        "(SELECT count(*) FROM idem_audit) <> (SELECT ifnull(max(id), 0) FROM idem_audit)",
}


def from_json(text):
    """The JSON answer with its NULLs and BLOBs put back."""
    answer = dict.fromkeys(ANSWER)
    for name, value in json.loads(text).items():
        if name.endswith("_base64"):
            name, value = name[:-len("_base64")], base64.b64decode(value)
        answer[name] = value
    return answer


def literal(value):
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def inline(sql, values):
    parts = sql.split("?")
    return "".join(p + (literal(v) if i < len(values) else "")
                   for i, (p, v) in enumerate(zip(parts, [*values, None])))


# ---- failures ------------------------------------------------------------------------------------

def outcome(steps, directory, template, counts=None):
    """None if the schedule agrees with the model, else (what was wrong, the script that was run)."""
    run = Run(directory, template)
    try:
        run.run(steps)
    except Disagreement as e:
        return str(e), run.script
    finally:
        run.close()
        if counts is not None:
            for name, n in run.counts.items():
                counts[name] = counts.get(name, 0) + n
    return None


def shrink(steps, directory, template, until=None):
    """Leaves out steps as long as what is left still disagrees, larger pieces first; and as long as
    there is time."""
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            if until and time.monotonic() > until:
                return steps
            rest = steps[:at] + steps[at + size:]
            if outcome(rest, directory, template):
                steps = rest
            else:
                at += size
        size = size // 2 if size > 1 else 0
    # Tokens that idem made cannot be repeated: where the caller's own show the same, use them.
    for i, step in enumerate(steps):
        if step[0] == "claim" and step[-1] is None:
            for own in (("own", 0), ("own", 1)):
                swapped = steps[:i] + [(*step[:-1], own)] + steps[i + 1:]
                if outcome(swapped, directory, template):
                    steps = swapped
                    break
    return steps


def explain(seed, steps, directory, template, until=None):
    """The report of a failure: seed, what was wrong, and a script for the sqlite3 shell."""
    steps = shrink(steps, directory, template, until)
    wrong, script = outcome(steps, directory, template)
    lines, last = [".shell rm -f simulation.db simulation.db-wal simulation.db-shm"], None
    used = {number for number, sql in script if sql and not sql.startswith("SELECT idem_clock")} | {0}
    for number, sql in script:
        if number not in used:
            continue
        if number != last:
            lines.append(f".connection {number}")
        if sql is None:
            lines += [".open simulation.db", ".load ./idem"]
            if last is None:
                lines += ["PRAGMA journal_mode = WAL;", "SELECT idem_init();"]
        else:
            lines.append(sql + ";")
        last = number
    script = "\n".join(lines)
    return f"seed {seed}: {wrong}\n\n-- sqlite3 < this\n{script}"

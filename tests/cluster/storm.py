#!/usr/bin/env python3
"""Clients on a cluster whose nodes are killed, stopped and cut off; then everything is counted.

    /usr/bin/python3 tests/cluster/storm.py [SECONDS] [--clients 4] [--latency 20] [--seed N]
                                            [--net]

Clients work off keys, 400 at a time, eight of them wanted by all at once, in four ways:

  transaction  BEGIN IMMEDIATE; claim; effect row; complete; COMMIT
  records      INSERT INTO idem_records; an effect outside the database; UPDATE ... completed
  carrier      REPLACE INTO carrier SELECT token, idem_claim(); effect outside; idem_complete
  invoice      the recipe sql/recipes/ledger-invoice.sql; each order is wanted under two keys

Every claim brings its own token. An answer that is lost (the connection breaks, an I/O error, no
answer in time) is ambiguous: the client asks again with the same token until it is told. One claim
in fifty is abandoned, as by a worker that dies: nobody may ever execute it.

Faults: every other time the leader is killed (SIGKILL) and restarted; else, in turn, a follower is
stopped (SIGSTOP) and continued; both followers; the leader; all are killed; the leader is stopped
with SIGTERM and started again. With --net each node has a network namespace of its own (the program
is started below `unshare --net`, as root), and the leader is cut from the others but not from its
clients, the leader's cable is pulled, a follower's cable is pulled.

Prints the report as JSON; exit code 0 if nothing was lost and nothing happened twice.
"""
import argparse
import collections
import json
import pathlib
import random
import re
import signal
import sqlite3
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cluster.nodes import Cluster, Namespaces, ROOT  # noqa: E402
from cluster.wire import BUSY, NOT_LEADER, Client, Refused  # noqa: E402
from ledger.ledger_book import MASTER, OUTPUT, RECEIVABLE, REVENUE, SCHEMA  # noqa: E402

DATABASE = "storm.db"
CONSTRAINT = 19
# The lease outlasts every outage: after it a claim reads as unknown, to its own client as well.
SETUP = [
    "INSERT INTO idem_call SELECT idem_init()",
    "UPDATE idem_policy SET lease_ms = 3600000 WHERE operation = '*'",
    "CREATE TABLE effect(scope TEXT, key TEXT, token TEXT)",
    "CREATE TABLE carrier(id TEXT PRIMARY KEY, result TEXT)",
    "BEGIN IMMEDIATE;" + SCHEMA + MASTER + "COMMIT",
]


def libraries_of(frames):
    """Where a node crashed: the libraries of its stack, innermost first."""
    return [pathlib.Path(f.split("(")[0]).name.split(".so")[0] for f in frames]


def is_known_crash(frames):
    """A crash in the thread of Debian's libraft and libdqlite, with no frame of SQLite or ours."""
    libraries = set(libraries_of(frames))
    return "libraft" in libraries and libraries <= {"libc", "libraft", "libuv", "libdqlite"}


class Keys:
    """400 keys at a time; eight of them are wanted at once."""

    def __init__(self, n=400):
        self.n, self.round, self.lock = n, 0, threading.Lock()
        self.wanted = []

    def any(self):
        with self.lock:
            if not self.wanted:
                self.round += 1
                self.wanted = [(f"round-{self.round}", f"key-{i}") for i in range(self.n)]
            return random.choice(self.wanted[:8])

    def done(self, key):
        with self.lock:
            if key in self.wanted:
                self.wanted.remove(key)


class Worker(threading.Thread):
    """One client. What it was told is in its lists; what it was not told is nowhere."""

    def __init__(self, cluster, keys, number, stop, seed):
        super().__init__(daemon=True)
        self.cluster, self.keys, self.number, self.stop = cluster, keys, number, stop
        self.random = random.Random(seed * 1000 + number)
        self.db = None
        self.serial = 0
        self.claims, self.completions, self.executed, self.invoices = {}, {}, [], []
        self.abandoned = set()
        self.counts = collections.Counter()
        self.resolved = collections.Counter()
        self.latency = []
        self.error = None

    def run(self):
        shapes = [self.transaction, self.records, self.carrier] * 3 + [self.invoice]
        try:
            while not self.stop.is_set():
                self.until_told(self.random.choice(shapes))
        except Exception as e:  # the report shows it: a worker must not die unseen
            self.error = repr(e)
        if self.db:
            self.db.close()

    # Talking to the cluster -----------------------------------------------------------------------

    def connection(self):
        while self.db is None:
            try:
                self.db = self.cluster.client(DATABASE, self.random)
                self.db.execute("PRAGMA recursive_triggers = ON")
            except (OSError, Refused):
                self.hang_up()
                time.sleep(0.02)
        return self.db

    def hang_up(self):
        if self.db:
            self.db.close()
        self.db = None

    def until_told(self, shape):
        """One operation: asked again, with the same key and token, until its answer is known."""
        self.serial += 1
        key = self.keys.any()
        token = f"token-{self.number}-{self.serial}-" + "%016x" % self.random.getrandbits(64)
        ambiguous = False
        since = time.monotonic()
        while True:
            try:
                shape(key, token)
                break
            except Refused as e:
                self.counts["busy" if e.code == BUSY else f"refused {e}"] += 1
                if e.code == BUSY:
                    time.sleep(self.random.uniform(0.0005, 0.004))
                    continue
                if e.code not in (BUSY, NOT_LEADER):
                    ambiguous = True
            except OSError:
                ambiguous = True
            self.hang_up()
            time.sleep(0.01)
        self.latency.append(time.monotonic() - since)
        self.counts[shape.__name__] += 1
        if ambiguous:
            self.counts["ambiguous"] += 1
            self.resolved["was mine" if token in self.claims else "was another's"] += 1

    def in_transaction(self, body):
        db = self.connection()
        db.execute("BEGIN IMMEDIATE")
        try:
            commit = body(db)
        except Refused:
            self.hang_up()  # and with it the transaction
            raise
        db.execute("COMMIT" if commit else "ROLLBACK")

    # The four ways --------------------------------------------------------------------------------

    def won(self, key, token):
        self.claims[token] = key

    def completed(self, key, token, answer):
        self.completions[token] = (key, answer)
        self.keys.done(key)

    def transaction(self, key, token):
        told = []

        def body(db):
            rows = db.query(
                "SELECT outcome, response FROM idem_claim(?, ?, 'fp', 'op', ?)", *key, token
            )
            told.append(rows[0])
            if rows[0][0] != "claimed":
                return False
            db.execute("INSERT INTO effect VALUES (?, ?, ?)", *key, token)
            db.query("SELECT idem_complete(?, ?, ?, ?, 201)", *key, token, "answer of " + token)
            return True

        self.in_transaction(body)
        outcome, response = told[-1]
        if outcome == "claimed" or response == "answer of " + token:
            self.won(key, token)
            self.completed(key, token, "answer of " + token)
        else:
            self.settle(key, outcome)

    def records(self, key, token):
        db = self.connection()
        try:
            if token not in self.claims:
                db.execute(
                    "INSERT INTO idem_records(scope, key, fingerprint, operation, token)"
                    " VALUES (?, ?, 'fp', 'op', ?)",
                    *key,
                    token,
                )
        except Refused as e:
            if e.code & 255 != CONSTRAINT:
                raise
            state = db.query("SELECT state FROM idem_records WHERE scope = ? AND key = ?", *key)[0][
                0
            ]
            return self.settle(key, "replay" if state == "completed" else "in_progress")
        if not self.effect_outside(key, token):
            return None
        _, changed = db.execute(
            "UPDATE idem_records SET state = 'completed', response = ?, code = 201"
            " WHERE scope = ? AND key = ? AND token = ?",
            "answer of " + token,
            *key,
            token,
        )
        if changed != 1:
            raise AssertionError(f"the claim {token} of {key} is lost: {changed} rows")
        return self.completed(key, token, "answer of " + token)

    def carrier(self, key, token):
        db = self.connection()
        if token not in self.claims:
            db.execute(
                "REPLACE INTO carrier SELECT ?1, idem_claim(?2, ?3, 'fp', 'op', ?1)", token, *key
            )
            answer = json.loads(db.query("SELECT result FROM carrier WHERE id = ?", token)[0][0])
            if answer["outcome"] != "claimed":
                return self.settle(key, answer["outcome"])
        if not self.effect_outside(key, token):
            return None
        db.execute(
            "INSERT INTO idem_call SELECT idem_complete(?, ?, ?, ?, 201)",
            *key,
            token,
            "answer of " + token,
        )
        return self.completed(key, token, "answer of " + token)

    def effect_outside(self, key, token):
        """Executes, once per claim that was won. False if the worker dies of it."""
        if token not in self.claims:
            self.won(key, token)
            self.executed.append((key, token))
            if self.random.random() < 0.02:
                self.abandoned.add(token)
                self.keys.done(key)
        return token not in self.abandoned

    def settle(self, key, outcome):
        """Somebody else has the key."""
        self.counts["told " + outcome] += 1
        if outcome == "replay":
            self.keys.done(key)
        elif outcome != "in_progress":
            raise AssertionError(f"{outcome} for {key}")

    def invoice(self, key, token):
        order = "-".join(key)
        told = []
        self.in_transaction(lambda db: issue(db, order, order + self.random.choice("AB"), told))
        self.counts["invoice " + told[-1][0]] += 1
        if told[-1][0] in ("issued", "replayed"):
            self.invoices.append((order, told[-1][1]))


# The invoice, by its recipe -----------------------------------------------------------------------


def recipe():
    """{step: [statement]}. Writes lose their RETURNING: a node executes it in a transaction, but
    its errors reach the client without their text."""
    text = (ROOT / "sql" / "recipes" / "ledger-invoice.sql").read_text()
    found = {}
    for part in re.split(r"^-- step: ", text, flags=re.M)[1:]:
        head, body = part.split("\n", 1)
        body = re.sub(r"^--.*\n", "", body, flags=re.M)
        found[head.split()[0]] = [
            re.sub(r"\nRETURNING (id|id, number.*)$", "", s)
            for s in re.split(r";\s*(?:\n|$)", body)
            if s.strip()
        ]
    return found


STEPS = recipe()
LINES = json.dumps(
    [
        {
            "description": "Widget",
            "quantity_milli": 2000,
            "unit_price_minor": 1500,
            "net_minor": 3000,
            "tax_code": "V21",
        },
        {
            "description": "Book",
            "quantity_milli": 1000,
            "unit_price_minor": 500,
            "net_minor": 500,
            "tax_code": "V9",
        },
    ]
)
INVOICE = dict(
    company=1,
    customer=1,
    channel="web",
    part="1",
    currency="EUR",
    lines=LINES,
    series=1,
    issue_date="2026-03-10",
    due_date="2026-03-24",
    receivable=RECEIVABLE,
    revenue=REVENUE,
    vat=OUTPUT,
)


def bound(statement, given):
    """The values of its :names, in the order SQLite numbers them."""
    names = re.findall(r":([a-z_]\w*)", re.sub(r"'[^']*'", "", statement))
    return [given.get(n) for n in dict.fromkeys(names)]


def issue(db, order, key, told):
    """The recipe's steps inside a transaction; appends (what, full number). True: commit."""
    given = {**INVOICE, "order_ref": order, "key": key, "body": json.dumps({"order": order})}

    def run(step):
        last = 0
        for s in STEPS[step]:
            last, _ = db.execute(s, *bound(s, given))
        return last

    def rows(step):
        return db.query(STEPS[step][0], *bound(STEPS[step][0], given))

    answer = json.loads(rows("claim")[0][0])
    if answer["outcome"] == "replay":
        told.append(("replayed" if answer["code"] == 201 else "refused", answer["response"]))
        return False
    given["token"] = answer["token"]
    run("work")
    given["document"] = run("draft")
    run("lines")
    given["entry"] = run("entry")
    run("postings")
    try:
        run("issue")
    except Refused as e:
        if not e.message.startswith("ORDER_ALREADY_INVOICED"):
            raise
        given["code"] = e.message.split(":")[0]
        given["status"], _, given["response"] = rows("why")[0]
        for s in STEPS["refused"][:2]:
            db.execute(s)
        db.query(STEPS["refused"][2], *bound(STEPS["refused"][2], given))
        told.append(("refused", None))
        return True
    given["response"] = db.query(
        "SELECT full_number FROM sales_document WHERE id = ?", given["document"]
    )[0][0]
    db.execute(STEPS["answer"][0])
    db.query(STEPS["answer"][1], *bound(STEPS["answer"][1], given))
    told.append(("issued", given["response"]))
    return True


# The faults ---------------------------------------------------------------------------------------


class Faults:
    def __init__(self, cluster, seed):
        self.cluster, self.random = cluster, random.Random(seed)
        self.counts = collections.Counter()
        self.crashes = []
        kinds = [
            self.kill_leader,
            self.stop_follower,
            self.lose_quorum,
            self.stop_leader,
            self.kill_all,
            self.restart_leader,
        ]
        if cluster.namespaces:
            kinds += [self.cut_leader_from_nodes, self.pull_leader, self.pull_follower]
        self.kinds = kinds

    def rage(self, seconds):
        deadline = time.monotonic() + seconds
        turn = 0
        while time.monotonic() < deadline:
            kind = self.kinds[turn % len(self.kinds)] if turn % 2 else self.kill_leader
            turn += 1
            time.sleep(self.random.uniform(0.8, 1.6))
            try:
                kind()
            except (OSError, Refused, TimeoutError):
                self.counts["did not come about"] += 1
                continue
            self.counts[kind.__name__.replace("_", " ")] += 1
            self.look_for_crashes()

    def look_for_crashes(self):
        """A node may die of libraft 0.15, now and then: of canonical/raft issue 350 (a follower
        answers to a leader that it has just forgotten), or while SIGTERM stops a leader that is
        writing. It is restarted, as a service manager would. Of anything else, not.
        """
        for node in self.cluster.nodes:
            if node.running():
                continue
            self.judge_death(node)
            node.start()

    def judge_death(self, node):
        where = node.log().rpartition("crashed in\n")[2].splitlines()[1:]
        code = node.process.returncode
        if code == -signal.SIGSEGV and is_known_crash(where):
            self.counts["a node crashed in libraft"] += 1
        else:  # counted all the same, and a failure
            self.crashes.append(f"node {node.number}: {code}; {node.log()[-3000:]}")

    def a_while(self):
        time.sleep(self.random.uniform(0.3, 1.5))

    def kill_leader(self):
        node = self.cluster.leader(5)
        node.kill()
        self.a_while()
        node.start()

    def kill_all(self):
        for node in self.cluster.nodes:
            node.kill()
        for node in self.cluster.nodes:
            node.start()

    def stopped(self, nodes):
        for node in nodes:
            node.signal(signal.SIGSTOP)
        try:
            self.a_while()
        finally:
            for node in nodes:
                node.signal(signal.SIGCONT)

    def stop_follower(self):
        self.stopped(self.cluster.followers()[:1])

    def lose_quorum(self):
        self.stopped(self.cluster.followers())

    def stop_leader(self):
        self.stopped([self.cluster.leader(5)])

    def restart_leader(self):
        """As an operator does. TRANSFER is not for use (test_node.py)."""
        node = self.cluster.leader(5)
        if node.stop() != 0:
            self.judge_death(node)
        node.start()

    def without(self, cut, mend, node):
        cut(node)
        try:
            self.a_while()
            self.a_while()
        finally:
            mend(node)

    def cut_leader_from_nodes(self):
        net = self.cluster.namespaces
        self.without(net.cut, net.mend, self.cluster.leader(5))

    def pull_leader(self):
        net = self.cluster.namespaces
        self.without(net.pull, net.plug, self.cluster.leader(5))

    def pull_follower(self):
        net = self.cluster.namespaces
        self.without(net.pull, net.plug, self.cluster.followers()[0])


# The count ----------------------------------------------------------------------------------------


def read_database(files, folder, name):
    """A node's files as an ordinary SQLite database; the extension is not needed to read it."""
    folder.mkdir()
    for file, data in files.items():
        (folder / file).write_bytes(data)
    return sqlite3.connect(folder / name)


def contents_of_nodes(cluster, folder):
    """One connection to each node's own copy, and whether all have the same contents. A follower
    may lag behind."""
    for attempt in range(50):
        copies, texts = [], []
        try:
            for node in cluster.nodes:
                with Client(node.address, timeout=30) as c:
                    files = c.dump(DATABASE)
                here = folder / f"copy-{node.number}-{attempt}"
                copies.append(read_database(files, here, DATABASE))
                texts.append(list(copies[-1].iterdump()))
        except (OSError, Refused, sqlite3.Error) as e:
            print(f"node {node.number}, copy {attempt}: {e!r}", file=sys.stderr)
            time.sleep(1)
            continue
        if all(t == texts[0] for t in texts):
            return copies, True
        time.sleep(0.5)
    return copies, False


def doubles(pairs):
    """How many of (key, token) share their key with another token."""
    tokens = collections.defaultdict(set)
    for key, token in pairs:
        tokens[key].add(token)
    return sum(len(t) - 1 for t in tokens.values())


def count(db, workers):
    """What was told against what is there."""
    store = {
        token: (scope, key, state, response)
        for token, scope, key, state, response in db.execute(
            "SELECT token, scope, key, state, response FROM idem_store" " WHERE token IS NOT NULL"
        )
    }
    claims = {t: k for w in workers for t, k in w.claims.items()}
    completions = {t: c for w in workers for t, c in w.completions.items()}
    abandoned = set().union(*(w.abandoned for w in workers))
    effects = [((s, k), t) for s, k, t in db.execute("SELECT scope, key, token FROM effect")]
    outside = [e for w in workers for e in w.executed]
    told = {order: number for w in workers for order, number in w.invoices}
    issued = dict(
        db.execute("SELECT order_ref, full_number FROM sales_document WHERE status = 'issued'")
    )
    return {
        "acknowledged claims": len(claims),
        "acknowledged claims lost": sum(
            t not in store or store[t][:2] != tuple(k) for t, k in claims.items()
        ),
        "acknowledged completions": len(completions),
        "acknowledged completions lost": sum(
            t not in store or store[t][2:] != ("completed", a) for t, (_, a) in completions.items()
        ),
        "executions": len(effects) + len(outside),
        "double executions": doubles(effects + outside),
        "executions without a claim": sum(t not in store for _, t in effects + outside),
        "claims nobody was told of": sum(
            s[2] == "processing" and t not in abandoned for t, s in store.items()
        ),
        "abandoned claims executed again": sum(store[t][2] != "processing" for t in abandoned),
        "invoices issued": len(issued),
        "invoices whose number differs from the answer": sum(
            issued.get(o) != n for o, n in told.items()
        ),
        "orders invoiced twice": db.execute(
            "SELECT count(*) FROM (SELECT 1 FROM sales_document WHERE status = 'issued'"
            " GROUP BY order_ref HAVING count(*) > 1)"
        ).fetchone()[0],
        "numbers missing": db.execute(
            "SELECT coalesce(max(number), 0) - count(*) FROM sales_document WHERE series_id = 1"
            " AND status = 'issued'"
        ).fetchone()[0],
        "rules of the ledger broken": db.execute(
            "SELECT count(*) FROM integrity_report"
        ).fetchone()[0],
    }


MUST_BE_ZERO = [
    "acknowledged claims lost",
    "acknowledged completions lost",
    "double executions",
    "executions without a claim",
    "claims nobody was told of",
    "abandoned claims executed again",
    "invoices whose number differs from the answer",
    "orders invoiced twice",
    "numbers missing",
    "rules of the ledger broken",
]


def settle_down(cluster, faults, workers, stop):
    """Ends the faults and the work: everything runs, every operation has its answer."""
    faults.look_for_crashes()
    stop.set()
    for worker in workers:
        worker.join(60)
    with cluster.connect(DATABASE, seconds=30) as db:
        db.execute("INSERT INTO effect VALUES ('the', 'end', 'of-it')")
        db.execute("DELETE FROM effect WHERE scope = 'the'")


def percentile(values, p):
    return round(1000 * sorted(values)[int(len(values) * p)], 1) if values else None


def storm(folder, seconds, clients=4, seed=1, namespaces=None, latency=20):
    folder, began = pathlib.Path(folder), time.monotonic()
    with Cluster(folder, namespaces=namespaces, latency=latency) as cluster:
        cluster.prepare(SETUP, DATABASE)
        stop, keys, faults = threading.Event(), Keys(), Faults(cluster, seed)
        workers = [Worker(cluster, keys, i, stop, seed) for i in range(clients)]
        for worker in workers:
            worker.start()
        try:
            faults.rage(seconds)
            cluster.wait(
                lambda: any(w.completions for w in workers) and any(w.invoices for w in workers),
                "a completion and an invoice",
                120,
            )
        finally:
            settle_down(cluster, faults, workers, stop)
        copies, same = contents_of_nodes(cluster, folder)
        report = {
            "seconds": seconds,
            "nodes": len(cluster.nodes),
            "clients": clients,
            "keys": keys.n,
            "rounds": keys.round,
            "faults": dict(faults.counts),
            "operations": dict(sum((w.counts for w in workers), collections.Counter())),
            "ambiguous answers": dict(sum((w.resolved for w in workers), collections.Counter())),
            "clients that did not finish": sum(w.is_alive() for w in workers),
            "errors": [w.error for w in workers if w.error],
            "nodes that died": faults.crashes + list(cluster.dead()),
            "contents of all nodes equal": same,
            "integrity_check": [c.execute("PRAGMA integrity_check").fetchone()[0] for c in copies],
            **count(copies[0], workers),
        }
        latency = [x for w in workers for x in w.latency]
        report["latency ms"] = {"p50": percentile(latency, 0.5), "p99": percentile(latency, 0.99)}
        with cluster.connect(DATABASE) as db:
            report["audit chain"] = db.query("SELECT idem_audit_verify()")[0][0]
        report["seconds in all"] = round(time.monotonic() - began, 1)
        report["exit codes of SIGTERM"] = [n.stop() for n in cluster.nodes]
    return report


def failures(report):
    """What must not be: a list, empty if all is well."""
    bad = [name for name in MUST_BE_ZERO if report[name] != 0]
    bad += [
        name
        for name in ("errors", "nodes that died", "clients that did not finish")
        if report[name]
    ]
    if report["faults"].get("a node crashed in libraft", 0) > 1 + report["seconds"] / 60:
        bad.append("nodes crash too often")
    if not report["contents of all nodes equal"]:
        bad.append("contents differ")
    if set(report["integrity_check"]) != {"ok"} or report["audit chain"] is not None:
        bad.append("integrity")
    if set(report["exit codes of SIGTERM"]) != {0}:
        bad.append("a node did not stop cleanly")
    if not report["acknowledged completions"] or not report["invoices issued"]:
        bad.append("nothing was done")
    return bad


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("seconds", type=float, nargs="?", default=20)
    words.add_argument("--clients", type=int, default=4)
    words.add_argument("--latency", type=int, default=20)
    words.add_argument("--seed", type=int, default=int(time.time()))
    words.add_argument("--net", action="store_true")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        namespaces = Namespaces(3) if given.net else None
        try:
            report = storm(
                folder, given.seconds, given.clients, given.seed, namespaces, given.latency
            )
        finally:
            if namespaces:
                namespaces.close()
    report["seed"] = given.seed
    report["failures"] = failures(report)
    print(json.dumps(report, indent=1))
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())

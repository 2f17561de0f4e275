#!/usr/bin/python3
"""What idem does, shown on a payment service, with real output. Run by `make demo`.

Every figure printed is counted, not assumed: the script exits non-zero if one of them is wrong.
"""
import json
import multiprocessing
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SO = str(ROOT / "idem.so")
DATA = ROOT.parent / "shared" / "data"
FAILED = []


def title(text):
    print(f"\n{'=' * 92}\n{text}\n{'=' * 92}")


def say(text):
    print(f"\n  {text}\n")


def check(ok, what):
    print(f"  [{'ok' if ok else 'WRONG'}] {what}")
    if not ok:
        FAILED.append(what)


def shell(path, script):
    """Runs SQL in the sqlite3 shell, as a reader would, and prints both sides."""
    for line in script.strip().splitlines():
        print(f"    sqlite> {line.strip()}")
    out = subprocess.run(["sqlite3", str(path)], cwd=ROOT, text=True, capture_output=True,
                         input=".load ./idem\n.mode column --wrap 80\n.headers on\n" + script, timeout=60)
    for line in (out.stdout + out.stderr).rstrip().splitlines():
        print(f"    {line}")
    return out.stdout + out.stderr


def connect(path):
    db = sqlite3.connect(str(path), timeout=10, isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(SO)
    db.execute("SELECT idem_init()").fetchall()
    return db


def claim(db, key, fingerprint, operation):
    cur = db.execute("SELECT outcome, token, attempt, response FROM idem_claim('acct_1', ?, ?, ?)",
                     (key, fingerprint, operation))
    return cur.fetchall()[0]


def part_payment(path):
    title("1. A payment of 1200 (ILS, minor units) for order-123: done once, answered from the store")
    say("The client sends POST /payments with Idempotency-Key: order-123. The server claims the key.")
    token = "server-7-request-000001"
    out = shell(path, f"""
PRAGMA journal_mode = WAL;
SELECT idem_init();
SELECT outcome, attempt FROM idem_claim('acct_1', 'order-123', idem_fingerprint('{{"amount":1200,"currency":"ILS"}}'), 'POST /payments', '{token}');
""")
    check("claimed" in out, "the first request is told to execute")
    say("It charges the card, then stores the answer: this is what every retry will get.")
    shell(path, f"""
SELECT idem_complete('acct_1', 'order-123', '{token}', '{{"payment":"pay_1","status":"paid"}}', 201) AS completed;
""")
    say("The connection broke; the client retries. Member order, spacing and 1200.0 make no difference.")
    out = shell(path, """
SELECT outcome, code, response FROM idem_claim('acct_1', 'order-123', idem_fingerprint('{ "currency": "ILS", "amount": 1200.0 }'), 'POST /payments');
""")
    check("replay" in out and "pay_1" in out, "the retry is answered from the store")
    say("The same key with another amount is somebody's mistake: refused, not executed.")
    out = shell(path, """
SELECT outcome, http_status, message FROM idem_claim('acct_1', 'order-123', idem_fingerprint('{"amount":9900,"currency":"ILS"}'), 'POST /payments');
""")
    check("mismatch" in out and "422" in out, "another amount under the same key is refused")


def racer(path, barrier, queue, name):
    db = connect(path)
    barrier.wait(10)
    outcome, token, _, _ = claim(db, "order-124", "fp", "POST /payments")
    queue.put((name, outcome, token))
    db.close()


def part_race(path):
    title("2. Two processes, one key, the same moment")
    barrier, queue = multiprocessing.Barrier(2), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=racer, args=(path, barrier, queue, name))
               for name in ("process A", "process B")]
    for worker in workers:
        worker.start()
    results = sorted(queue.get(timeout=20) for _ in workers)
    for worker in workers:
        worker.join(10)
    for name, outcome, _ in results:
        print(f"    {name}: {outcome}")
    check(sorted(o for _, o, _ in results) == ["claimed", "in_progress"], "exactly one of them won")
    token, = [t for _, outcome, t in results if outcome == "claimed"]
    db = connect(path)
    done = db.execute("SELECT idem_complete('acct_1', 'order-124', ?, '{\"payment\":\"pay_2\"}', 201)",
                      (token,)).fetchall()
    check(done == [(1,)], "the winner finishes")
    db.close()


def doomed(path, key, operation):
    """Claims, and dies before it can complete."""
    db = connect(path)
    claim(db, key, "fp", operation)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_between(path, key, operation):
    worker = multiprocessing.Process(target=doomed, args=(path, key, operation))
    worker.start()
    worker.join(20)
    return worker.exitcode == -signal.SIGKILL


def part_crash(path):
    title("3. A process killed with SIGKILL between claim and complete")
    db = connect(path)
    db.execute("INSERT INTO idem_policy(operation, lease_ms, on_stale, description) VALUES "
               "('POST /payments', 60000, 'unknown', 'money: never run twice by itself'), "
               "('POST /reminders', 60000, 'retry', 'may safely run twice')")
    check(kill_between(path, "order-125", "POST /payments"), "the process is dead")
    say("Was the card charged? Nobody knows. While the lease of 60 s lasts, the key is in progress:")
    out = shell(path, "SELECT key, state, lease_remaining_ms > 0 AS leased FROM idem_records "
                      "WHERE key = 'order-125';")
    check("processing" in out, "the durable record is there")
    say("A minute later (the clock of this connection is set forward) nobody may execute it:")
    later = int(time.time() * 1000) + 61000
    out = shell(path, f"""
SELECT idem_clock({later}) > 0 AS clock_is_set;
SELECT key, state FROM idem_records WHERE state = 'unknown';
SELECT outcome, http_status FROM idem_claim('acct_1', 'order-125', 'fp', 'POST /payments');
""")
    check(out.count("unknown") >= 2, "the record reads as unknown and blocks a second execution")
    say("The operator asks the payment provider: it was charged. That is recorded, and replayed.")
    out = shell(path, f"""
SELECT idem_clock({later}) > 0 AS clock_is_set;
SELECT idem_resolve('acct_1', 'order-125', 'completed', '{{"payment":"pay_7"}}', 201) AS resolved;
SELECT outcome, code, response FROM idem_claim('acct_1', 'order-125', 'fp', 'POST /payments');
SELECT id, event, key FROM idem_audit WHERE key = 'order-125';
""")
    check("replay" in out and "resolve-completed" in out, "resolved, replayed, and in the audit")
    say("Another operation may safely run twice: its policy says retry, and the next claim takes over.")
    kill_between(path, "reminder-9", "POST /reminders")
    out = shell(path, f"""
SELECT idem_clock({later}) > 0 AS clock_is_set;
SELECT outcome, attempt FROM idem_claim('acct_1', 'reminder-9', 'fp', 'POST /reminders');
""")
    check("claimed  2" in " ".join(out.split("\n")).replace("   ", "  "), "attempt 2 took over")
    db.close()


def part_invoice(path):
    title("4. An invoice in one transaction: claim, rows and answer commit or vanish together")
    out = shell(path, """
CREATE TABLE invoice(number INTEGER PRIMARY KEY, order_id TEXT, amount INTEGER) STRICT;
BEGIN IMMEDIATE;
SELECT outcome FROM idem_claim('acct_1', 'inv-1', 'fp', 'POST /invoices', 'server-7-request-000002');
INSERT INTO invoice(order_id, amount) VALUES ('order-123', 1200);
ROLLBACK;
SELECT (SELECT count(*) FROM invoice) AS invoices, (SELECT count(*) FROM idem_records WHERE key = 'inv-1') AS records;
BEGIN IMMEDIATE;
SELECT outcome FROM idem_claim('acct_1', 'inv-1', 'fp', 'POST /invoices', 'server-7-request-000003');
INSERT INTO invoice(order_id, amount) VALUES ('order-123', 1200);
SELECT idem_complete('acct_1', 'inv-1', 'server-7-request-000003', '{"number":1}', 201) AS completed;
COMMIT;
SELECT outcome, response FROM idem_claim('acct_1', 'inv-1', 'fp', 'POST /invoices');
""")
    check("replay" in out, "after the rollback nothing was left; after the commit everything is there")
    count = connect(path).execute("SELECT count(*) FROM invoice").fetchone()[0]
    check(count == 1, "one invoice, number 1")


def bodies():
    """Real request bodies, or, where that folder is missing, bodies made here."""
    found = []
    stripe = DATA / "stripe-fixtures" / "fixtures3.json"
    if stripe.exists():
        resources = json.loads(stripe.read_text())["resources"]
        found += [("stripe", name, json.dumps(body)) for name, body in resources.items()]
        for file in sorted((DATA / "github-webhooks").glob("*/*.json")):
            found.append(("github", f"{file.parent.name}/{file.stem}", file.read_text()))
    if found:
        return found, "real Stripe resources and GitHub webhook bodies"
    rng = random.Random(7)
    for i in range(200):
        body = {"id": f"evt_{i}", "amount": rng.randrange(1, 10**6), "currency": "EUR",
                "lines": [{"sku": f"s{n}", "qty": rng.randrange(1, 9)} for n in range(rng.randrange(9))]}
        found.append(("made", f"evt_{i}", json.dumps(body)))
    return found, "bodies made by this script (the folder with real ones is not here)"


def respell(rng, text):
    """The same JSON value as another client might send it: members shuffled, other white space."""
    def shuffle(value):
        if isinstance(value, dict):
            items = [(k, shuffle(v)) for k, v in value.items()]
            rng.shuffle(items)
            return dict(items)
        return [shuffle(v) for v in value] if isinstance(value, list) else value
    return json.dumps(shuffle(json.loads(text)), indent=rng.choice([None, 1, 2]),
                      ensure_ascii=rng.choice([True, False]))


def tamper(text):
    """Another value under the same key."""
    value = json.loads(text)
    return json.dumps({**value, "tampered": True} if isinstance(value, dict) else [value, 1])


def worker(path, deliveries, queue):
    db = connect(path)
    counts = {"claimed": 0, "replay": 0, "mismatch": 0, "in_progress": 0}
    for source, name, body in deliveries:
        db.execute("BEGIN IMMEDIATE")
        (fingerprint,), = db.execute("SELECT idem_fingerprint(?)", (body,)).fetchall()
        outcome, token, _, _ = db.execute(
            "SELECT outcome, token, attempt, response FROM idem_claim(?, ?, ?, 'webhook')",
            (source, name, fingerprint)).fetchall()[0]
        counts[outcome] += 1
        if outcome == "claimed":
            db.execute("INSERT INTO effect(source, name) VALUES (?, ?)", (source, name))
            db.execute("SELECT idem_complete(?, ?, ?, ?, 200)",
                       (source, name, token, f"handled {name}")).fetchall()
        db.execute("COMMIT")
    db.close()
    queue.put(counts)


def part_stream(path):
    title("5. A stream of request bodies, delivered at least once, shuffled, by four processes")
    found, what = bodies()
    rng = random.Random(2026)
    deliveries, tampered = [], 0
    for source, name, body in found:
        deliveries.append((source, name, body))
        for _ in range(rng.randrange(4)):
            deliveries.append((source, name, respell(rng, body)))
    rng.shuffle(deliveries)
    db = connect(path)
    db.execute("CREATE TABLE effect(source TEXT, name TEXT) STRICT")
    # Forged repeats come last, so that each finds a finished record.
    forged = [(s, n, tamper(b)) for s, n, b in rng.sample(found, len(found) // 10)]
    tampered = len(forged)
    started, totals = time.monotonic(), {}
    queue = multiprocessing.Queue()
    for batch in (deliveries, forged):
        workers = [multiprocessing.Process(target=worker, args=(path, batch[i::4], queue))
                   for i in range(4)]
        for w in workers:
            w.start()
        for _ in workers:
            for outcome, n in queue.get(timeout=120).items():
                totals[outcome] = totals.get(outcome, 0) + n
        for w in workers:
            w.join(10)
    seconds = time.monotonic() - started
    effects, distinct = db.execute(
        "SELECT count(*), (SELECT count(*) FROM (SELECT DISTINCT source, name FROM effect)) "
        "FROM effect").fetchone()
    db.close()
    delivered = len(deliveries) + tampered
    say(f"{what}: {len(found)} requests, {delivered} deliveries in {seconds:.1f} s")
    print(f"    {'delivered':>12} {'executed':>10} {'replayed':>10} {'refused':>10} {'in progress':>12}")
    print(f"    {delivered:>12} {totals['claimed']:>10} {totals['replay']:>10} "
          f"{totals['mismatch']:>10} {totals['in_progress']:>12}\n")
    check(totals["claimed"] == len(found) == effects == distinct, "every request had one effect")
    check(totals["mismatch"] == tampered, "every forged repeat was refused")
    check(sum(totals.values()) == delivered, "the numbers add up")


def main():
    with tempfile.TemporaryDirectory(prefix="idem-demo-") as folder:
        path = pathlib.Path(folder) / "shop.db"
        part_payment(path)
        part_race(path)
        part_crash(path)
        part_invoice(path)
        part_stream(path)
    title("All as promised." if not FAILED else f"WRONG: {', '.join(FAILED)}")
    return 1 if FAILED else 0


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    sys.exit(main())

#!/usr/bin/env python3
"""bench/peer.py KIND TARGET durable|relaxed FIRST_KEY: what bench/peer.c does, from Python.

    python-hand   sqlite3 as it is written by hand: select, insert, the row, update
    python-idem   idem through the same module

The target is "EXTENSION,FILE".
"""
import collections
import math
import sqlite3
import sys
import time

SCOPE, OPERATION = "acct_1", "POST /v1/payments"
PRINT = "idem1:e8602798346d5df40959a7817eee6f4376e351150f87dfd8287a4cbc868e69cc"
PAYMENT = ('{"id":"pay_3NqK8s2eZvKYlo2C","amount":129900,"currency":"ILS","customer":{"id":'
           '"cus_9s6XKzkNRiz8i3","name":"Dana Levi","email":"dana@example.com"},'
           '"description":"Invoice 2024-00317","metadata":{"order":"10048823","channel":'
           '"web"},"capture":true,"created":1718900123,"livemode":true,"items":[{"sku":'
           '"A-100","qty":2}]}')
ANSWER = (PAYMENT * 2)[:400]
REPLAYED = 100

SCHEMA = """
CREATE TABLE IF NOT EXISTS business(id INTEGER PRIMARY KEY, account TEXT, amount INTEGER);
CREATE TABLE IF NOT EXISTS idempotency(id INTEGER PRIMARY KEY, scope TEXT NOT NULL,
  key TEXT NOT NULL, operation TEXT NOT NULL, fingerprint TEXT NOT NULL, state TEXT NOT NULL,
  token TEXT, due_at REAL, created_at REAL NOT NULL, completed_at REAL, code INTEGER, response TEXT,
  UNIQUE(scope, key));
CREATE INDEX IF NOT EXISTS idempotency_due ON idempotency(state, due_at);
"""


def must(condition):
    if not condition:
        raise SystemExit("peer.py: not the outcome expected")


def key_of(number):
    x = (number + 1) * 0x9E3779B97F4A7C15 % (1 << 64)
    x ^= x >> 31
    return "%08x-%04x-4%03x-8%03x-%012x" % (
        x >> 32, x >> 16 & 0xFFFF, x >> 4 & 0xFFF, x & 0xFFF, number)


class Store:
    def __init__(self, target, durable):
        extension, _, path = target.partition(",")
        self.db = sqlite3.connect(path, isolation_level=None, timeout=30)
        self.db.execute("PRAGMA journal_mode = WAL").fetchall()
        self.db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self.db.execute("PRAGMA cache_size = -65536")
        self.db.executescript("BEGIN IMMEDIATE;" + SCHEMA + "COMMIT;")
        self.db.enable_load_extension(True)
        self.db.load_extension(extension)

    def business(self):
        self.db.execute("INSERT INTO business(account, amount) VALUES (?, 1200)", (SCOPE,))

    def one(self, number):
        self.db.execute("BEGIN IMMEDIATE")
        self.claim(number)
        self.business()
        self.complete(number)
        self.db.execute("COMMIT")

    def two(self, number):
        self.claim_alone(number)
        self.db.execute("BEGIN IMMEDIATE")
        self.business()
        self.complete(number)
        self.db.execute("COMMIT")


class Hand(Store):
    def claim(self, number):
        row = self.db.execute("SELECT state FROM idempotency WHERE scope = ? AND key = ?",
                              (SCOPE, key_of(number))).fetchone()
        must(row is None)
        now = time.time()
        self.db.execute("INSERT INTO idempotency(scope, key, operation, fingerprint, state, token,"
                        " due_at, created_at) VALUES (?, ?, ?, ?, 'processing', ?, ?, ?)",
                        (SCOPE, key_of(number), OPERATION, PRINT, "%032d" % number, now + 60, now))

    def claim_alone(self, number):
        self.db.execute("BEGIN IMMEDIATE")
        self.claim(number)
        self.db.execute("COMMIT")

    def complete(self, number):
        now = time.time()
        done = self.db.execute(
            "UPDATE idempotency SET state = 'completed', code = 201, response = ?, due_at = ?,"
            " completed_at = ? WHERE scope = ? AND key = ? AND token = ? AND state = 'processing'",
            (ANSWER, now + 86400, now, SCOPE, key_of(number), "%032d" % number))
        must(done.rowcount == 1)

    def replay(self, number):
        row = self.db.execute("SELECT state, code, response, operation, fingerprint, due_at"
                              " FROM idempotency WHERE scope = ? AND key = ?",
                              (SCOPE, key_of(number))).fetchone()
        must(row[0] == "completed" and row[3] == OPERATION and row[4] == PRINT)
        must(row[5] > time.time() and len(row[2]) == len(ANSWER))


class Idem(Store):
    def __init__(self, target, durable):
        super().__init__(target, durable)
        self.db.execute("SELECT idem_init()").fetchall()

    def ask(self, number):
        return self.db.execute(
            "SELECT outcome, code, response FROM idem_claim(?, ?, ?, ?, ?)",
            (SCOPE, key_of(number), PRINT, OPERATION, "%032d" % number)).fetchall()[0]

    def claim(self, number):
        must(self.ask(number)[0] == "claimed")

    claim_alone = claim

    def complete(self, number):
        self.db.execute("SELECT idem_complete(?, ?, ?, ?, 201)",
                        (SCOPE, key_of(number), "%032d" % number, ANSWER)).fetchall()

    def replay(self, number):
        outcome, _, response = self.ask(number)
        must(outcome == "replay" and len(response) == len(ANSWER))


def obey(work, numbers, seconds):
    """Works until the time is up, and prints the answer to the order."""
    buckets, count = collections.Counter(), 0
    start = now = time.perf_counter_ns()
    while now - start < seconds * 1e9:
        before = now
        work(next(numbers))
        now = time.perf_counter_ns()
        buckets[round(16 * math.log2(now - before))] += 1
        count += 1
    print(count, (now - start) / 1e9, ",".join("%d:%d" % pair for pair in buckets.items()),
          sep="\t", flush=True)


def main():
    kind, target, durability, first = sys.argv[1:]
    store = {"python-hand": Hand, "python-idem": Idem}[kind](target, durability == "durable")
    number = int(first)

    def fresh():
        nonlocal number
        while True:
            number += 1
            yield number

    def old():
        while True:
            yield from range(int(first) + 1, int(first) + REPLAYED)

    numbers, replayed = fresh(), old()
    for _ in range(REPLAYED):
        store.two(next(numbers))
    print("ready", flush=True)
    for line in sys.stdin:
        order, seconds = line.split()
        obey(getattr(store, order), replayed if order == "replay" else numbers, float(seconds))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Claim and complete on three local nodes: throughput and latency per shape and batch.

    /usr/bin/python3 bench/cluster.py [--seconds 2] [--folder path] [--clients 1] [--latency 20]

shapes  transaction   BEGIN IMMEDIATE; n times SELECT idem_claim, SELECT idem_complete; COMMIT
        one request   the same n times in the text of one EXEC: no round trips in between
        records       INSERT INTO idem_records of n keys; UPDATE of n keys: two commits
        carrier       INSERT INTO carrier SELECT idem_claim(); read back; INSERT INTO idem_call
                      SELECT idem_complete(): two commits
        read          a replay, for comparison: no commit
batch   n = 1, 10, 100 keys per transaction (or per statement, where a commit follows each)

At the end: what a client's writes cost. A request that goes out in two (header, body), without
TCP_NODELAY, waits for a delayed acknowledgement of 40 ms.

--folder says where the nodes' data lie: /dev/shm shows what the disk costs. The first line is the
time of a synchronous write of 4 KiB there, which every node makes for every commit.
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from cluster import wire  # noqa: E402
from cluster.nodes import Cluster  # noqa: E402
from cluster.wire import BUSY, Refused  # noqa: E402

SETUP = [
    "INSERT INTO idem_call SELECT idem_init()",
    "CREATE TABLE carrier(id TEXT PRIMARY KEY, result TEXT)",
]
ANSWER = json.dumps({"payment": "pay_1", "status": "succeeded", "padding": "x" * 350})
KEYS = (
    "WITH k(key, token) AS"
    " (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?1)) "
)


def transaction(db, keys):
    db.execute("BEGIN IMMEDIATE")
    for key, token in keys:
        db.query("SELECT idem_claim('acct', ?, 'fp', 'op', ?)", key, token)
        db.query("SELECT idem_complete('acct', ?, ?, ?, 201)", key, token, ANSWER)
    db.execute("COMMIT")


def one_request(db, keys):
    text = ["BEGIN IMMEDIATE"]
    for key, token in keys:
        text.append(
            f"INSERT INTO idem_call SELECT idem_claim('acct', '{key}', 'fp', 'op', '{token}')"
        )
        text.append(
            "INSERT INTO idem_call SELECT"
            f" idem_complete('acct', '{key}', '{token}', '{ANSWER}', 201)"
        )
    db.execute("; ".join(text + ["COMMIT"]))


def records(db, keys):
    db.execute(
        "INSERT INTO idem_records(scope, key, fingerprint, operation, token) "
        + KEYS
        + "SELECT 'acct', key, 'fp', 'op', token FROM k",
        json.dumps(keys),
    )
    if len(keys) == 1:
        db.execute(
            "UPDATE idem_records SET state = 'completed', response = ?, code = 201"
            " WHERE scope = 'acct' AND key = ? AND token = ?",
            ANSWER,
            *keys[0],
        )
    else:
        complete(db, keys)


def complete(db, keys):
    db.execute(
        "INSERT INTO idem_call "
        + KEYS
        + "SELECT count(idem_complete('acct', key, token, ?2, 201)) FROM k",
        json.dumps(keys),
        ANSWER,
    )


def carrier(db, keys):
    db.execute(
        "INSERT INTO carrier "
        + KEYS
        + "SELECT token, idem_claim('acct', key, 'fp', 'op', token) FROM k",
        json.dumps(keys),
    )
    rows = db.query(
        "SELECT count(*) FROM carrier WHERE result ->> '$.outcome' = 'claimed' AND id IN"
        " (SELECT json_extract(value, '$[1]') FROM json_each(?))",
        json.dumps(keys),
    )
    assert rows == [(len(keys),)]
    complete(db, keys)


def read(db, keys):
    for _ in keys:
        rows = db.query("SELECT outcome FROM idem_claim('acct', 'done', 'fp', 'op')")
        assert rows == [("replay",)]


SHAPES = [transaction, one_request, records, carrier, read]


class Client(threading.Thread):
    def __init__(self, cluster, shape, batch, seconds, name):
        super().__init__()
        self.db, self.shape, self.batch = cluster.connect(timeout=30), shape, batch
        self.seconds, self.prefix = seconds, f"{shape.__name__}-{batch}-{name}"
        self.times, self.busy = [], 0

    def run(self):
        n, end = 0, time.monotonic() + self.seconds
        while time.monotonic() < end:
            keys = [
                [f"{self.prefix}-{n + i}", f"token-{self.prefix}-{n + i}"]
                for i in range(self.batch)
            ]
            n += self.batch
            since = time.monotonic()
            while not self.attempt(keys):
                time.sleep(0.001)
            self.times.append(time.monotonic() - since)
        self.db.close()

    def attempt(self, keys):
        try:
            self.shape(self.db, keys)
            return True
        except Refused as e:
            if e.code != BUSY:
                raise
            self.busy += 1
            return False


def measure(cluster, shape, batch, seconds, clients):
    workers = [Client(cluster, shape, batch, seconds, i) for i in range(clients)]
    since = time.monotonic()
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    spent = time.monotonic() - since
    times = sorted(t for w in workers for t in w.times)
    rate, p50, p99 = (
        batch * len(times) / spent,
        times[len(times) // 2],
        times[len(times) * 99 // 100],
    )
    print(
        f"{shape.__name__:12} {batch:5} {rate:9.0f} {p50 * 1e3:9.1f} {p99 * 1e3:9.1f}"
        f" {sum(w.busy for w in workers):7}",
        flush=True,
    )


def in_two_writes(client, kind, body, expected):
    client.socket.sendall(struct.pack("<IBBH", len(body) // 8, kind, 0, 0))
    client.socket.sendall(body)
    return client._answer(expected)


def measure_writes(cluster):
    """A read by a client that sends each request in one write or in two."""
    in_one = wire.Client.ask
    for name, ask in (("one write", in_one), ("two writes", in_two_writes)):
        for nodelay in (True, False):
            times = []
            with wire.Client(cluster.find_leader(), "test.db", 30, nodelay) as db:
                wire.Client.ask = ask
                end = time.monotonic() + 1
                while time.monotonic() < end:
                    since = time.monotonic()
                    db.query("SELECT 1")
                    times.append(time.monotonic() - since)
                wire.Client.ask = in_one
            p50 = sorted(times)[len(times) // 2] * 1e3
            print(f"{name}, TCP_NODELAY {'on' if nodelay else 'off'}: p50 {p50:.2f} ms")


def sync_time(folder):
    """Median of synchronous writes of one page, ms."""
    path = os.path.join(folder, "sync")
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
    times = []
    for i in range(100):
        since = time.monotonic()
        os.pwrite(fd, b"x" * 4096, i * 4096)
        times.append(time.monotonic() - since)
    os.close(fd)
    os.unlink(path)
    return sorted(times)[50] * 1e3


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--seconds", type=float, default=2)
    words.add_argument("--folder", default=None)
    words.add_argument("--clients", type=int, default=1)
    words.add_argument("--latency", type=int, default=20)
    words.add_argument("--shape", action="append")
    given = words.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        print(f"synchronous write of 4 KiB: {sync_time(folder):.2f} ms; clients: {given.clients}")
        print("shape        batch    keys/s    p50 ms    p99 ms    busy")
        with Cluster(folder, latency=given.latency) as cluster:
            cluster.prepare(SETUP)
            with cluster.connect() as db:
                transaction(db, [["done", "token-of-the-done-one"]])
            for shape in SHAPES:
                if given.shape and shape.__name__ not in given.shape:
                    continue
                for batch in (1, 10, 100):
                    measure(cluster, shape, batch, given.seconds, given.clients)
            measure_writes(cluster)


if __name__ == "__main__":
    subprocess.run(["make", "-s", "idem-node"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    main()

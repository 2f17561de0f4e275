"""The example server under attack: killed with SIGKILL at random moments, clients that never give up.

Clients send payments and invoices, some of them asynchronously, with time-outs that are sometimes far too
short; they repeat a request with the same key until it is answered. Meanwhile the server is killed again
and again, and started again on the same port. In the end: every key's effect happened exactly once, at the
provider and in the database, and every answer to one key is the same, byte for byte.

IDEM_DEEP=1 kills 200 times instead of 40.
"""
import collections
import http.client
import random
import sqlite3
import threading
import time

import pytest
from server_kit import Provider, Server, post, send, shared

ROUNDS = 200 if shared.DEEP else 40
CLIENTS = 6
SECRETS = {"acct_1": ("secret-1", "secret-1-new"), "acct_2": ("secret-2",)}


class Client(threading.Thread):
    """Makes one request after another, each with a new key, and repeats it until it is answered."""

    def __init__(self, server, seed, stop):
        super().__init__()
        self.server, self.stop, self.rng = server, stop, random.Random(seed)
        self.done = {}                     # (account, key) -> (path, body, [answers])
        self.seen = collections.Counter()
        self.failure = None

    def run(self):
        try:
            while not self.stop.is_set():
                self.one_operation()
        except BaseException as error:     # shown by the test
            self.failure = error

    def one_operation(self):
        key, account = shared.new_key(), self.rng.choice(sorted(SECRETS))
        if self.rng.random() < 0.6:
            path, body = "/payments", {"amount": self.rng.randrange(1, 10_000)}
        else:
            path, body = "/invoices", {"customer": f"c{self.rng.randrange(100)}", "total": self.rng.randrange(1, 10_000)}
        answers = [self.insist(path, body, key, account) for _ in range(self.rng.choice((1, 1, 2)))]
        self.done[account, key] = path, body, answers

    def insist(self, path, body, key, account, seconds=60):
        """Repeats a request until its final answer."""
        prefer = [("Prefer", "respond-async")] if path == "/payments" and self.rng.random() < 0.3 else []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            timeout = self.rng.choice((0.01, 0.05, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0))
            secret = self.rng.choice(SECRETS[account])
            try:
                reply = post(self.server.port, path, body, key, secret=secret, timeout=timeout, headers=prefer)
                if reply.status == 202:
                    send(self.server.port, "GET", reply.header("Location"), secret=secret, timeout=timeout)
            except (OSError, http.client.HTTPException) as error:
                self.seen[type(error).__name__] += 1
                time.sleep(0.03)
                continue
            self.seen[reply.status, reply.replayed] += 1
            if reply.status in (201, 402):
                return reply
            assert reply.status in (202, 409, 503), (reply.status, reply.body)
            time.sleep(0.02)               # Retry-After says a second: this client is not polite
        raise AssertionError(f"no answer to {path} {key} in {seconds} s")


@pytest.fixture
def provider():
    provider = Provider()
    provider.delay = 0.02
    yield provider
    provider.stop()


def test_attack(tmp_path, provider, record_property):
    database = tmp_path / "shop.db"
    server = Server(database, provider.address, "--lease-ms", 250, "--reconcile-ms", 40, seconds=600)
    rng, stop = random.Random(20260101), threading.Event()
    clients = [Client(server, seed, stop) for seed in range(CLIENTS)]
    open_at_kill = 0
    began = time.monotonic()
    try:
        server.start(prepare_next=True)
        for client in clients:
            client.start()
        for _ in range(ROUNDS):
            time.sleep(0.05 + rng.random() * 0.45)
            server.kill()
            open_at_kill += in_progress(database)
            server.start(prepare_next=True)
        stop.set()
        for client in clients:
            client.join(90)
            assert not client.is_alive()
        verify = clients[0]
        for client in clients:
            if client.failure:
                raise client.failure
            for (account, key), (path, body, answers) in client.done.items():
                answers.append(verify.insist(path, body, key, account))
                assert answers[-1].replayed
    finally:
        stop.set()
        server.stop()
    seconds = time.monotonic() - began
    done = {name: what for client in clients for name, what in client.done.items()}
    events = check(database, provider, done)
    seen = sum((client.seen for client in clients), collections.Counter())
    figures = {
        "kills": ROUNDS, "seconds": round(seconds, 1), "keys": len(done), "provider calls": provider.requests,
        "charges": len(provider.charges), "records in progress at a kill": open_at_kill,
        "lost connections": sum(n for what, n in seen.items() if isinstance(what, str)),
        "replays": sum(n for what, n in seen.items() if what[-1] is True),
        "resolved completed": events["resolve-completed"], "resolved retry": events["resolve-retry"]}
    print(figures)
    record_property("figures", figures)
    # The attack did hit: otherwise it has shown nothing.
    assert len(done) > ROUNDS and figures["lost connections"] > ROUNDS
    assert open_at_kill > ROUNDS / 8 and figures["replays"] > ROUNDS / 4
    assert figures["resolved completed"] + figures["resolved retry"] > ROUNDS / 8


def in_progress(database):
    """Read without idem, as it lies on the disk after a kill."""
    db = sqlite3.connect(database, timeout=10)
    n = db.execute("SELECT count(*) FROM idem_store WHERE state = 'processing'").fetchone()[0]
    db.close()
    return n


def check(database, provider, done):
    db = shared.connect(database, init=False)
    rows = collections.defaultdict(list)
    for table, columns in (("payment", "account, key, amount, charge"), ("invoice", "account, key, total, number")):
        for row in db.execute(f"SELECT {columns} FROM {table}"):
            rows[row[:2]].append((f"/{table}s", *row[2:]))
    charges = dict(provider.charges)
    for (account, key), (path, body, answers) in done.items():
        # Every answer to one key is the same, byte for byte.
        assert len({repr(answer.lasting) for answer in answers}) == 1, (path, key)
        status, _, _ = answers[0].lasting
        mine = rows.pop((account, key), [])
        charge = charges.pop(shared.one(db, "SELECT idem_derive_key(?, ?, 'charge')", key, account), None)
        if status == 402:
            assert mine == [] and charge is None and body["amount"] % 10 == 3
        elif path == "/payments":
            # Every effect exactly once: one charge, one row, both of this amount.
            assert mine == [(path, body["amount"], charge["id"])] and charge["amount"] == body["amount"]
            assert answers[0].json["charge"] == charge["id"]
        else:
            assert mine == [(path, body["total"], answers[0].json["invoice"])] and charge is None
    assert rows == {} and charges == {}                    # and nothing that nobody asked for
    numbers = [row[0] for row in db.execute("SELECT number FROM invoice ORDER BY number")]
    assert numbers == list(range(1, len(numbers) + 1))     # without a gap
    assert db.execute("SELECT state, count(*) FROM idem_store GROUP BY 1").fetchall() == [
        ("completed", len(done))]
    assert shared.one(db, "SELECT idem_audit_verify()") is None
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    events = collections.Counter(row[0] for row in db.execute("SELECT event FROM idem_audit"))
    db.close()
    return events

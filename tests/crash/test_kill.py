"""Workers are killed at random; whatever they were told must be true. See kill.c.

Forty kills by default, with IDEM_DEEP=1 a thousand, or as many as there is time for.
"""
import collections
import pathlib
import random
import sqlite3
import subprocess
import time

import pytest

from conftest import DEEP, SO, connect, one
from test_crash import FLAGS, SECONDS

HERE = pathlib.Path(__file__).resolve().parent
WORKERS = 4
KILLS = min(500, max(20, 2 * SECONDS)) if DEEP else 20      # in each journal mode


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    program = tmp_path_factory.mktemp("kill") / "kill"
    subprocess.run(["cc", *FLAGS, "-o", str(program), str(HERE / "kill.c"), "-lsqlite3"],
                   check=True)
    return program


def prepare(path, journal):
    db = connect(path)
    db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
    db.execute("INSERT INTO idem_policy(operation, on_stale, lease_ms) VALUES('op', 'retry', 25)")
    db.execute("CREATE TABLE business(id INTEGER PRIMARY KEY, key TEXT, body TEXT)")
    db.close()


def slaughter(program, path, logs, kills, *mistake):
    """Keeps workers running and kills them one by one. How many were in the middle of something."""
    rng, running, born = random.Random(5), [], 0

    def start():
        nonlocal born
        born += 1
        running.append(subprocess.Popen(
            [str(program), SO, str(path), str(logs / f"{born}.log"), f"w{born:05}", *mistake]))
    try:
        for _ in range(WORKERS):
            start()
        time.sleep(0.1)
        for _ in range(kills):
            time.sleep(rng.uniform(0.002, 0.06))
            victim = running.pop(rng.randrange(WORKERS))
            assert victim.poll() is None, "a worker ended by itself"
            victim.kill()
            victim.wait()
            start()
    finally:
        for p in running:
            p.kill()
            p.wait()
    last = [f.read_text().strip().split("\n")[-1].split(" ")[0] for f in logs.iterdir()]
    return sum(word in ("ask", "claimed", "finish") for word in last)


class Story:
    """What the logs say."""

    def __init__(self, logs):
        self.asked, self.winners = set(), collections.defaultdict(set)
        self.finished, self.intended, self.released, self.replays = {}, set(), [], []
        self.counts = collections.Counter()
        for log in logs.iterdir():
            for line in log.read_text().splitlines():
                word, *rest = line.split(" ")
                self.counts[word] += 1
                getattr(self, "on_" + word)(*rest)

    def on_ready(self):
        pass

    def on_busy(self):
        pass

    def on_lost(self, key, attempt):
        pass

    def on_error(self, *text):
        raise AssertionError(" ".join(text))

    def on_ask(self, key, token):
        self.asked.add((key, token))

    def on_claimed(self, key, attempt, token):
        self.winners[key, int(attempt)].add(token)

    def on_replay(self, key, response):
        self.replays.append((key, response))

    def on_finish(self, key, attempt, response):
        self.intended.add((key, int(attempt), response))

    def on_finished(self, key, attempt, response):
        assert key not in self.finished, "completed twice"
        self.finished[key] = (int(attempt), response)

    def on_released(self, key, attempt, token):
        self.released.append((key, int(attempt), token))


def check_records(db, story):
    """The file against the logs. The records by key."""
    cur = db.execute("SELECT key, state, attempt, token, spent, response FROM idem_store")
    found = {row[0]: row[1:] for row in cur.fetchall()}
    business = dict(db.execute("SELECT key, body FROM business").fetchall())
    assert len(business) == one(db, "SELECT count(*) FROM business"), "an effect happened twice"
    assert business == {k: r[4] for k, r in found.items() if r[0] == "completed"}
    for key, (state, attempt, token, spent, response) in found.items():
        tokens = [token] + (spent or "").split()  # the latest first
        assert len(tokens) == len(set(tokens)) == attempt
        assert all((key, t) in story.asked for t in tokens), "a claim that nobody asked for"
        if state == "completed":
            assert (key, attempt, response) in story.intended
    for key, answer in story.finished.items():
        state, attempt, _, _, response = found[key]
        assert (state, (attempt, response)) == ("completed", answer), "an answer is lost"
    for key, response in story.replays:
        assert found[key][4] == response, "a replayed answer is another now"
    for (key, attempt), tokens in story.winners.items():
        assert len(tokens) == 1, "two winners of one attempt"
        assert found[key][1] >= attempt, "an attempt is forgotten"
        assert ([found[key][2]] + (found[key][3] or "").split())[-attempt] in tokens
    for key, attempt, token in story.released:
        assert token in (found[key][3] or "").split() or found[key][0] == "released"
        assert found[key][0] != "completed" or found[key][1] > attempt
    return found


def check_tokens(db, found):
    """No old token completes anything; whatever is open can be finished."""
    time.sleep(0.05)                              # every lease is over
    for key, (state, attempt, token, spent, _) in found.items():
        old = (spent or "").split()[-20:] + ([token] if state in ("completed", "released") else [])
        for t in old:
            with pytest.raises(sqlite3.IntegrityError):
                db.execute("SELECT idem_complete('t', ?, ?, 'stolen')", (key, t)).fetchall()
        if state != "completed":
            fresh = "token-of-the-last-" + key
            won = db.execute("SELECT outcome, attempt FROM idem_claim('t', ?, 'fp', 'op', ?)",
                             (key, fresh)).fetchall()[0]
            assert won == ("claimed", attempt + 1)
            db.execute("SELECT idem_complete('t', ?, ?, 'x')", (key, fresh)).fetchall()


def check_all(path, logs):
    story = Story(logs)
    db = connect(path)
    assert one(db, "PRAGMA integrity_check") == "ok"
    assert one(db, "SELECT idem_audit_verify()") is None
    db.execute("PRAGMA synchronous = OFF")
    found = check_records(db, story)
    check_tokens(db, found)
    assert one(db, "SELECT idem_audit_verify()") is None
    db.close()
    return story, found


def test_killed_workers(worker, tmp_path, path, journal):
    prepare(path, journal)
    logs = tmp_path / "logs"
    logs.mkdir()
    middle = slaughter(worker, path, logs, KILLS)
    story, found = check_all(path, logs)
    again = sum(attempt > 1 for _, attempt, *_ in found.values())
    print(f"{journal}: {KILLS} kills, {middle} logs end inside a request, {len(found)} keys,"
          f" {again} with more than one attempt, {dict(story.counts)}")
    assert middle >= KILLS / 5, "the kills hit nothing"
    assert story.counts["finished"] >= KILLS / 2 and story.counts["replay"] > 0 and again > 0


def test_mistakes_are_noticed(worker, tmp_path, path):
    prepare(path, "WAL")
    logs = tmp_path / "logs"
    logs.mkdir()
    slaughter(worker, path, logs, 20, "apart")
    with pytest.raises((AssertionError, sqlite3.Error)):
        check_all(path, logs)

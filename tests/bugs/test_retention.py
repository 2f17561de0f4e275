"""F. Retention, tombstones, purge (43-49)."""
import shutil
import sqlite3
import subprocess
import time

import pytest

from conftest import needs_progress
from bug_words import (CALL, D, DEEP, F, LEASE, RETENTION, SO, T, TOMBSTONE, claim_once, everything, fails, one, policy,
                       record, refused)

LAST = 253402300799999  # the clock ends with the year 9999


def test_43_a_life_after_the_tombstone_protects_again(pair):
    """pulse (source): INSERT OR IGNORE after expiry never refreshes it: afterwards every caller wins."""
    pair.complete(pair.c1, "k", pair.claim(pair.c1, "k")["token"])
    pair.at(RETENTION + TOMBSTONE)
    assert [claim_once(db, pair.form, "k")["outcome"] for db in (pair.c1, pair.c2, pair.c1)] == [
        "claimed", "in_progress", "in_progress"]
    assert record(pair.c1, "k")["due_at"] == T + RETENTION + TOMBSTONE + LEASE


def test_44_expiry_is_exact_everywhere(pair):
    """zeek/zeek#4616: the SQLite backend serves expired rows."""
    pair.complete(pair.c1, "k", pair.claim(pair.c1, "k")["token"])
    assert pair.visible("k", "expires_at", "tombstone_until") == (T + RETENTION, T + RETENTION + TOMBSTONE)
    pair.at(RETENTION - 1)
    assert pair.outcome(pair.c2, "k") == "replay"
    assert pair.state("k") == "completed"
    assert one(pair.c1, "SELECT idem_purge(10)") == 0
    assert record(pair.c1, "k")["state"] == "completed"
    pair.at(RETENTION)
    assert pair.outcome(pair.c2, "k") == "expired"
    assert pair.state("k") == "expired"
    assert one(pair.c1, "SELECT idem_purge(10)") == 1
    assert (record(pair.c1, "k")["state"], record(pair.c1, "k")["response"]) == ("tombstone", None)
    assert (pair.outcome(pair.c2, "k"), pair.state("k")) == ("expired", "expired")
    pair.at(RETENTION + TOMBSTONE - 1)
    assert (pair.outcome(pair.c2, "k"), pair.state("k")) == ("expired", "expired")
    assert one(pair.c1, "SELECT idem_purge(10)") == 0
    pair.at(RETENTION + TOMBSTONE)
    assert pair.state("k") is None
    assert one(pair.c1, "SELECT idem_purge(10)") == 1
    assert pair.count() == 0


def test_45_the_purge_never_touches_open_work(pair):
    """rocket-rides-atomic reaper (by age in any state, source), idempot-js (purges on every read, source),
    arun0009 clean-up (source): the purge deletes running work."""
    # idem_health uses the machine's clock, so the records are made in its past.
    age = int(time.time() * 1000) - (RETENTION + TOMBSTONE + D)
    for db in (pair.c1, pair.c2):
        one(db, "SELECT idem_clock(?)", age)
    tokens = {key: pair.claim(pair.c1, key)["token"] for key in ("processing", "released", "unknown", "completed")}
    one(pair.c1, "SELECT idem_release('t', 'released', ?)", tokens["released"])
    one(pair.c1, "SELECT idem_suspend('t', 'unknown', ?)", tokens["unknown"])
    pair.complete(pair.c1, "completed", tokens["completed"])
    before = {key: record(pair.c1, key) for key in ("processing", "released", "unknown")}
    one(pair.c1, "SELECT idem_clock(NULL)")
    assert sum(one(pair.c1, "SELECT idem_purge(1000)") for _ in range(5)) == 2  # answer, then tombstone
    assert {key: record(pair.c1, key) for key in tokens} == dict(before, completed=None)
    health = pair.c1.execute("SELECT processing, stale, released, unknown, completed, purgeable FROM idem_health")
    assert health.fetchall() == [(0, 1, 1, 1, 0, 0)]


INTEGERS = {"lease_ms": 30 * D, "retention_ms": 315360000000, "tombstone_ms": 3153600000000, "wait_ms": 60000,
            "max_attempts": 1000000, "max_response_bytes": 1000000000, "allow_content_key": 1}
ZERO_IS_FINE = {"wait_ms", "max_attempts", "max_response_bytes", "allow_content_key"}


def test_46_absurd_times_are_refused(pair):
    """nestarc 0.1.3 (release notes), proteanhq/protean#1072 (batch <= 0 loops for ever, negative retention deletes
    all): zero, negative, fractional or huge times behave per backend."""
    for column, most in INTEGERS.items():
        for value in (0, -1, 1.5, "abc", 2**63 - 1, most + 1, None):
            if value == 0 and column in ZERO_IS_FINE:
                continue
            fails(pair.c1, sqlite3.SQLITE_CONSTRAINT, f"UPDATE idem_policy SET {column} = ? WHERE operation = '*'", value)
            fails(pair.c1, sqlite3.SQLITE_CONSTRAINT, f"INSERT INTO idem_policy(operation, {column}) VALUES ('o', ?)", value)
    for column in "on_stale", "audit":
        for value in (0, -1, 1.5, "abc", 2**63 - 1, "", None):
            fails(pair.c1, sqlite3.SQLITE_CONSTRAINT, f"UPDATE idem_policy SET {column} = ? WHERE operation = '*'", value)
            fails(pair.c1, sqlite3.SQLITE_CONSTRAINT, f"INSERT INTO idem_policy(operation, {column}) VALUES ('o', ?)", value)
    for value in (0, -1, 1.5, "abc", 2**63 - 1, -2**63, None):
        refused(pair.c1, "SELECT idem_purge(?)", value, says=["max_rows"])
        refused(pair.c1, CALL + "idem_purge(?)", value, says=["max_rows"])


def test_46_the_largest_times_do_not_overflow(pair):
    """As above: the largest permitted values, at the end of the clock."""
    policy(pair.c1, "pay", on_stale="retry", **INTEGERS)
    for db in (pair.c1, pair.c2):
        assert one(db, "SELECT idem_clock(?)", LAST) == LAST
    refused(pair.c1, "SELECT idem_clock(?)", LAST + 1, says=["out of range"])
    answer = pair.claim(pair.c1, "k")
    assert answer["lease_until"] == LAST + INTEGERS["lease_ms"]
    assert pair.claim(pair.c2, "k")["retry_after_ms"] == INTEGERS["lease_ms"]
    assert one(pair.c1, "SELECT idem_renew('t', 'k', ?)", answer["token"]) == LAST + INTEGERS["lease_ms"]
    pair.complete(pair.c1, "k", answer["token"])
    over = LAST + INTEGERS["retention_ms"]
    assert pair.visible("k", "expires_at", "tombstone_until") == (over, over + INTEGERS["tombstone_ms"])
    assert pair.outcome(pair.c2, "k") == "replay"
    assert one(pair.c1, "SELECT idem_purge(1000000)") == 0


def fill(pair, n):
    """Adds n expired answers, as idem would have written them."""
    pair.c1.execute(
        "WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < ?)"
        " INSERT INTO idem_store(scope, key, operation, fingerprint, state, attempt, token, due_at, tombstone_ms,"
        " created_at, updated_at, completed_at, response)"
        " SELECT 't', 'k' || (n + (SELECT count(*) FROM idem_store)), 'pay', 'f', 'completed', 1, 'token-' || n,"
        " ?2 + n, ?3, ?2, ?2, ?2, 'answer' FROM i", (n, T, TOMBSTONE))


def steps(db, sql):
    """What a statement returns, and how often SQLite's machine jumped until then."""
    count = [0]

    def tick():
        count[0] += 1

    db.set_progress_handler(tick, 1)
    value = one(db, sql)
    db.set_progress_handler(None, 0)
    return value, count[0]


@needs_progress
def test_47_the_purge_is_bounded(pair):
    """Jagadeeshftw/grainlify#1797, Pulsefy/Soter#1137: an unbounded purge blocks writers."""
    fill(pair, 300)
    pair.at(RETENTION)
    few = steps(pair.c1, "SELECT idem_purge(100)")
    assert few[0] == 100 and pair.count("state = 'tombstone'") == 100
    fill(pair, 100_000 if DEEP else 20_000)
    much = steps(pair.c1, "SELECT idem_purge(100)")
    assert much[0] == 100 and pair.count("state = 'tombstone'") == 200
    assert few[1] > 100 and much[1] < few[1] * 1.1  # the same cost at any table size
    # Tombstones and answers together are as many as asked for, not as many of each.
    pair.at(RETENTION + TOMBSTONE)
    before = pair.count()
    assert one(pair.c1, CALL + "idem_purge(250)") == 250
    assert before - pair.count() + pair.count("state = 'tombstone'") == 250


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="needs sqlite3, the shell")
def test_47_the_purge_searches_by_index(pair):
    """As above: the plan of its statements, triggers included, which only the shell shows."""
    fill(pair, 1000)
    shell = subprocess.run(["sqlite3", str(pair.path)], capture_output=True, text=True, input=(
        f".load {SO}\n.eqp trigger\nINSERT INTO idem_purge_batch VALUES ({T + RETENTION}, 9, 9, 9);\n"))
    assert shell.stderr == ""
    plan = [line for line in shell.stdout.splitlines() if "SEARCH" in line or "SCAN" in line]
    assert len(plan) >= 6  # three statements, each with its search
    # Only the list of row numbers of the batch may be gone through.
    assert [line for line in plan if "SCAN" in line and "CONSTANT ROW" not in line] == []


def test_48_the_answer_does_not_hang_on_the_resource(pair):
    """adcontextprotocol/adcp#7575: deleting the resource ends the replay window."""
    pair.c1.execute("PRAGMA foreign_keys = ON")
    pair.c1.execute("CREATE TABLE orders(id PRIMARY KEY)")
    pair.c1.execute("INSERT INTO orders VALUES (1)")
    pair.complete(pair.c1, "k", pair.claim(pair.c1, "k")["token"], "order 1")
    pair.c1.execute("DELETE FROM orders")
    assert pair.claim(pair.c2, "k")["response"] == "order 1"
    tables = [name for name, in pair.c1.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()]
    assert "idem_store" in tables
    for table in tables:
        assert pair.c1.execute(f"PRAGMA foreign_key_list({table})").fetchall() == []


@pytest.mark.parametrize("explicit", [False, True], ids=["autocommit", "transaction"])
def test_49_a_batch_of_claims(pair, explicit):
    """LFDT-Panurus/panurus#2313: a batch stops after the first existing row and leaves the rest unwritten."""
    for key in "k3", "k5", "k9":
        pair.claim(pair.c1, key)
    pair.c1.execute("CREATE TEMP TABLE batch(key)")
    pair.c1.executemany("INSERT INTO batch VALUES (?)", [(f"k{i}",) for i in range(1, 11)])
    insert = ("INTO idem_records(scope, key, fingerprint, operation, token)"
              f" SELECT 't', key, '{F}', 'pay', 'token-of-batch-' || key FROM batch ORDER BY key")
    before = everything(pair.c1)
    if explicit:
        pair.c1.execute("BEGIN")
    text = fails(pair.c1, sqlite3.SQLITE_CONSTRAINT, "INSERT " + insert)
    assert "still being processed" in text
    assert everything(pair.c1) == before
    pair.c1.execute("INSERT OR IGNORE " + insert)
    assert one(pair.c1, "SELECT changes()") == 7
    if explicit:
        pair.c1.execute("COMMIT")
    after = everything(pair.c2)
    assert after[0][:3] == before[0]
    assert [(row[2], row[8]) for row in after[0][3:]] == [
        (f"k{i}", f"token-of-batch-k{i}") for i in (1, 10, 2, 4, 6, 7, 8)]

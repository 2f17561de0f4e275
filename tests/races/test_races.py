"""N processes race for the same M keys: every key is claimed exactly once, in every form, in every kind
of transaction, in both journal modes; in WAL without a single "database is locked".

Naive forms fail up to 97 % of the time here (contract, section 8, traps 10 and 11).
"""
import json
import sqlite3

import pytest

from conftest import DEEP, connect, one
from crowd import FORMS, crowd, is_busy

PROCESSES = 8 if DEEP else 4
KEYS = 1000 if DEEP else 120


def do_key(db, claims, begin, key, number):
    """One process's go at one key, with a business row for the winner. True if it won."""
    token = f"token-of-{number:03}-{key}"
    if begin:
        db.execute(begin)
    won = claims(db, key, token)
    if won:
        db.execute("INSERT INTO business(key, worker) VALUES(?, ?)", (key, number))
        db.execute("SELECT idem_complete('t', ?, ?, ?)", (key, token, f"by {number}")).fetchall()
    if begin:
        db.execute("COMMIT")
    return won


def race(db, number, start, form, begin):
    won, busy = [], 0
    claims = FORMS[form]
    start.wait()
    for i in range(KEYS):
        key = f"key-{i:05}"
        while True:
            try:
                if do_key(db, claims, begin, key, number):
                    won.append(key)
                break
            except sqlite3.OperationalError as e:
                assert is_busy(e), e
                busy += 1
                if db.in_transaction:
                    db.execute("ROLLBACK")
                elif not begin:
                    raise                         # half a unit of work is done: no retry
    return won, busy


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("begin", ["", "BEGIN", "BEGIN IMMEDIATE"], ids=["autocommit", "plain", "immediate"])
def test_every_key_once(path, journal, form, begin):
    db = connect(path)
    db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
    db.execute("CREATE TABLE business(id INTEGER PRIMARY KEY, key TEXT, worker INTEGER)")
    db.close()
    results = crowd(PROCESSES, race, path, form, begin)
    db = connect(path)
    won = sorted(key for keys, _ in results for key in keys)
    assert won == [f"key-{i:05}" for i in range(KEYS)]
    assert one(db, "SELECT count(*) FROM business") == KEYS
    assert one(db, "SELECT count(DISTINCT key) FROM business") == KEYS
    assert one(db, "SELECT count(*) FROM idem_store WHERE state = 'completed' AND attempt = 1") == KEYS
    assert one(db, "SELECT count(*) FROM idem_store s JOIN business b USING(key) "
                   "WHERE s.response = 'by ' || b.worker") == KEYS
    if journal == "WAL":
        assert [busy for _, busy in results] == [0] * PROCESSES
    db.close()


def new_connections(db, number, start, form, begin):
    """As above, with a fresh connection for every key: nothing is prepared, nothing is verified."""
    path = db.execute("PRAGMA database_list").fetchall()[0][2]
    won = 0
    start.wait()
    for i in range(KEYS // 5):
        fresh = connect(path, init=False)
        fresh.execute("PRAGMA synchronous = OFF")
        won += do_key(fresh, FORMS[form], begin, f"key-{i:05}", number)
        fresh.close()
    return won


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("begin", ["", "BEGIN"], ids=["autocommit", "plain"])
def test_the_first_call_of_a_connection_does_not_fail_either(path, form, begin):
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("CREATE TABLE business(id INTEGER PRIMARY KEY, key TEXT, worker INTEGER)")
    db.execute("SELECT idem_claim('t', 'x', 'fp')").fetchall()
    results = crowd_after_close(db, PROCESSES, new_connections, path, form, begin)
    assert sum(results) == KEYS // 5


def crowd_after_close(db, size, function, path, *args):
    db.close()
    keep = sqlite3.connect(str(path))             # the WAL file stays while connections come and go
    keep.close()
    return crowd(size, function, path, *args)


def see(db, number, start):
    won = 0
    start.wait()
    for i in range(KEYS):
        db.execute("BEGIN")
        if db.execute("SELECT idem_seen('source', ?, 'fp')", (f"event-{i}",)).fetchall()[0][0]:
            db.execute("INSERT INTO business(key, worker) VALUES(?, ?)", (f"event-{i}", number))
            won += 1
        db.execute("COMMIT")
    return won


def test_every_event_once(path):
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("CREATE TABLE business(id INTEGER PRIMARY KEY, key TEXT UNIQUE, worker INTEGER)")
    db.close()
    assert sum(crowd(PROCESSES, see, path)) == KEYS


def claim_audited(db, number, start):
    won = 0
    start.wait()
    for i in range(KEYS // 2):
        won += by_scalar_audited(db, f"key-{i}", f"token-of-{number:03}-{i:05}")
    return won


def by_scalar_audited(db, key, token):
    cur = db.execute("SELECT idem_claim('t', ?, 'fp', 'audited', ?)", (key, token))
    return json.loads(cur.fetchall()[0][0])["outcome"] == "claimed"


def test_the_chain_survives_a_crowd(path):
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("INSERT INTO idem_policy(operation, audit) VALUES('audited', 'all')")
    db.close()
    assert sum(crowd(PROCESSES, claim_audited, path)) == KEYS // 2
    db = connect(path)
    assert one(db, "SELECT idem_audit_verify()") is None
    assert one(db, "SELECT count(*) FROM idem_audit") == PROCESSES * (KEYS // 2)
    assert one(db, "SELECT count(*) FROM idem_audit WHERE event = 'claim'") == KEYS // 2
    db.close()


def purge_and_claim(db, number, start):
    """One process purges while the others claim keys whose tombstones run out under their hands."""
    won = 0
    start.wait()
    for i in range(KEYS):
        db.execute("SELECT idem_clock(?)", (i * 100,)).fetchall()
        if number == 0:
            db.execute("SELECT idem_purge(50)").fetchall()
            continue
        key, token = f"key-{i % 5}", f"token-of-{number:03}-{i:05}"
        if by_table_op(db, key, token, "short"):
            try:
                db.execute("SELECT idem_complete('t', ?, ?, 'x')", (key, token)).fetchall()
            except sqlite3.IntegrityError:
                pass                              # another one's clock was ahead: superseded
            won += 1
    return won


def by_table_op(db, key, token, operation):
    cur = db.execute("SELECT outcome FROM idem_claim('t', ?, 'fp', ?, ?)", (key, operation, token))
    return cur.fetchall()[0][0] == "claimed"


def test_purge_among_claims(path):
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("INSERT INTO idem_policy(operation, lease_ms, retention_ms, tombstone_ms, on_stale) "
               "VALUES('short', 50, 50, 50, 'retry')")
    db.close()
    assert sum(crowd(PROCESSES, purge_and_claim, path)) >= KEYS
    db = connect(path)
    assert one(db, "SELECT count(*) FROM idem_store") <= 5
    assert one(db, "PRAGMA integrity_check") == "ok"
    db.close()

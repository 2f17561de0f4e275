"""Races for what somebody else held: one winner per attempt, and never two truths about one record."""
import json
import sqlite3

import pytest

from conftest import DEEP, connect, one
from crowd import FORMS, crowd

PROCESSES = 6 if DEEP else 4
KEYS = 50 if DEEP else 12
ROUNDS = 20 if DEEP else 6


def prepare(path, journal="WAL"):
    db = connect(path)
    db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
    db.execute("INSERT INTO idem_policy(operation, on_stale, lease_ms) VALUES('op', 'retry', 500)")
    return db


def take_over(db, number, start, form):
    """In every round each lease has run out for everybody; all want each key."""
    won = []
    for r in range(ROUNDS):
        db.execute("SELECT idem_clock(?)", (1000 * (r + 1),)).fetchall()
        start.wait()
        for i in range(KEYS):
            token = f"token-{number:03}-{r:03}-{i:03}"
            if FORMS[form](db, f"key-{i}", token):
                won.append((i, r, token))
    start.wait()
    late = 0
    for i, r, token in won:                       # all but the last winners are superseded
        try:
            db.execute("SELECT idem_complete('t', ?, ?, ?)", (f"key-{i}", token, token)).fetchall()
            late += 1
            assert r == ROUNDS - 1
        except sqlite3.IntegrityError as e:
            assert "claim lost" in str(e) and token not in str(e)
            assert r < ROUNDS - 1
    return [(i, r) for i, r, _ in won], late


@pytest.mark.parametrize("form", FORMS)
def test_one_winner_per_attempt(path, journal, form):
    prepare(path, journal).close()
    results = crowd(PROCESSES, take_over, path, form)
    won = sorted(pair for pairs, _ in results for pair in pairs)
    assert won == [(i, r) for i in range(KEYS) for r in range(ROUNDS)]
    assert sum(late for _, late in results) == KEYS
    db = connect(path)
    assert one(db, "SELECT count(*) FROM idem_store WHERE attempt = ? AND state = 'completed'",
               ROUNDS) == KEYS
    assert one(db, "SELECT count(*) FROM idem_audit WHERE event = 'take-over'") == KEYS * (ROUNDS - 1)
    assert one(db, "SELECT idem_audit_verify()") is None
    db.close()


def late_or_new(db, number, start, keys):
    """Process 0 completes late what the others take over."""
    db.execute("SELECT idem_clock(10000)").fetchall()
    done = []
    for i in range(keys):
        start.wait()
        key, token = f"key-{i}", f"token-{number:03}-{i:06}"
        if number == 0:
            try:
                db.execute("SELECT idem_complete('t', ?, ?, 'late')", (key, token)).fetchall()
                done.append((i, "completed"))
            except sqlite3.IntegrityError as e:
                assert "claim lost" in str(e)
        else:
            cur = db.execute("SELECT outcome, response FROM idem_claim('t', ?, 'fp', 'op', ?)", (key, token))
            outcome, response = cur.fetchall()[0]
            assert outcome in ("claimed", "in_progress", "replay")
            assert (outcome == "replay") == (response == "late")
            if outcome == "claimed":
                done.append((i, "claimed"))
    return done


def test_late_completion_or_take_over_never_both(path):
    keys = 300 if DEEP else 80
    db = prepare(path)
    db.execute("SELECT idem_clock(1000)").fetchall()
    for i in range(keys):
        db.execute("SELECT idem_claim('t', ?, 'fp', 'op', ?)", (f"key-{i}", f"token-000-{i:06}")).fetchall()
    db.close()
    results = crowd(PROCESSES, late_or_new, path, keys)
    done = sorted(x for r in results for x in r)
    assert [i for i, _ in done] == list(range(keys)), "each key has one fate"
    assert len({fate for _, fate in done}) == 2, "the race was no race: make it closer"


def resolve(db, number, start, keys):
    won = []
    for i in range(keys):
        start.wait()
        try:
            if number % 2:
                db.execute("SELECT idem_resolve('t', ?, 'retry')", (f"key-{i}",)).fetchall()
            else:
                db.execute("SELECT idem_resolve('t', ?, 'completed', ?)",
                           (f"key-{i}", f"by {number}")).fetchall()
            won.append(i)
        except sqlite3.IntegrityError as e:
            assert "nothing to resolve" in str(e)
    return won


def test_one_decision_per_unknown_record(path):
    keys = 200 if DEEP else 60
    db = prepare(path)
    for i in range(keys):
        token = f"token-{i:010}"
        db.execute("SELECT idem_claim('t', ?, 'fp', 'op', ?)", (f"key-{i}", token)).fetchall()
        db.execute("SELECT idem_suspend('t', ?, ?)", (f"key-{i}", token)).fetchall()
    db.close()
    won = sorted(i for r in crowd(PROCESSES, resolve, path, keys) for i in r)
    assert won == list(range(keys))
    db = connect(path)
    assert one(db, "SELECT count(*) FROM idem_audit WHERE event LIKE 'resolve%'") == keys
    assert one(db, "SELECT count(*) FROM idem_store WHERE state IN ('released', 'completed')") == keys
    db.close()


def same_token(db, number, start):
    """All present the same token: a claim is idempotent, so all are told 'claimed', attempt 1."""
    start.wait()
    answers = []
    for i in range(KEYS):
        cur = db.execute("SELECT idem_claim('t', ?, 'fp', 'op', 'token-that-all-share')", (f"key-{i}",))
        answer = json.loads(cur.fetchall()[0][0])
        answers.append((answer["outcome"], answer["attempt"]))
    return answers


def test_one_token_in_many_hands(path):
    prepare(path).close()
    for answers in crowd(PROCESSES, same_token, path):
        assert answers == [("claimed", 1)] * KEYS


def release_and_claim(db, number, start):
    """Whoever holds a key releases it; attempts must count up without a gap or a double."""
    won = []
    start.wait()
    for n in range(ROUNDS * 5):
        token = f"token-{number:03}-{n:06}"
        cur = db.execute("SELECT outcome, attempt FROM idem_claim('t', 'key', 'fp', 'op', ?)", (token,))
        outcome, attempt = cur.fetchall()[0]
        if outcome == "claimed":
            won.append(attempt)
            db.execute("SELECT idem_release('t', 'key', ?)", (token,)).fetchall()
    return won


def test_attempts_count_up(path):
    db = prepare(path)
    db.execute("UPDATE idem_policy SET lease_ms = 600000 WHERE operation = 'op'")
    db.close()
    won = sorted(a for r in crowd(PROCESSES, release_and_claim, path) for a in r)
    assert won == list(range(1, len(won) + 1))

"""A. Races and claiming (1-11). IDEM_DEEP=1: more keys, see many()."""
import random
import threading
import time

import pytest

import bug_words as words
from bug_words import CLAIM, F, F2, LEASE, T, claim_once, in_processes, many, one, policy, record, together


@pytest.fixture(params=["table", "carrier", "scalar"])
def form(request):
    """The first two claim below a lock that SQLite takes. The scalar reads without one, so that it can lose a race
    between its read and its conditional write."""
    return request.param


def keys(n):
    return [f"key-{i}" for i in range(n)]


def race(pair, names, then=None):
    """Both connections claim every key at the same moment; the two answers of each key."""
    gate = threading.Barrier(2)

    def claim_all(db):
        answers = []
        try:
            for key in names:
                gate.wait()
                answers.append(claim_once(db, pair.form, key))
                if then and answers[-1]["outcome"] == "claimed":
                    then(db, key, answers[-1])
        except BaseException:
            gate.abort()  # or the other would wait for ever
            raise
        return answers

    return list(zip(*together(lambda: claim_all(pair.c1), lambda: claim_all(pair.c2))))


def test_01_two_claims_at_once(pair):
    """mastodon/mastodon#37879, square1-io/laravel-idempotency#1, mitos-run/mitos#240, thesongzhu/Friday#403:
    a second request that arrives before the first is finished runs as well."""
    for answers in race(pair, keys(many())):
        assert sorted(a["outcome"] for a in answers) == ["claimed", "in_progress"]


def claim_all_forms(path, names, read_first):
    """In a process of its own: claims every key in every form; the keys it won, with their tokens."""
    db = words.connect(path, init=False)
    db.execute("PRAGMA synchronous = OFF")
    won = []
    for form in CLAIM:
        for name in names:
            key = f"{form} {name}"
            if read_first:
                db.execute("SELECT state FROM idem_records WHERE scope = 't' AND key = ?", (key,)).fetchall()
            answer = claim_once(db, form, key)
            assert answer["outcome"] in ("claimed", "in_progress"), answer
            if answer["outcome"] == "claimed":
                won.append((key, answer["token"]))
    db.close()
    return won


@pytest.mark.parametrize("form", ["table"])  # the processes go through all forms by themselves
def test_02_read_before_the_claim_decides_nothing(pair):
    """pulse, SQLite repository (source): "exists?" then INSERT OR IGNORE whose row count nobody reads:
    both callers believe they won."""
    names = keys(many(100))
    job = (str(pair.path), names, True)
    a, b = in_processes(claim_all_forms, job, job)
    assert sorted(key for key, _ in a + b) == sorted(f"{form} {name}" for form in CLAIM for name in names)
    for key, token in a + b:
        assert record(pair.c1, key)["token"] == token


def test_03_stale_record_is_taken_over_once(pair):
    """Aureliolo/synthorg#1624: the read happens before the write lock; two connections see the same stale row
    and both start afresh."""
    policy(pair.c1, "pay", on_stale="retry")
    names = keys(many())
    for key in names:
        assert claim_once(pair.c1, pair.form, key)["attempt"] == 1
    pair.at(LEASE)
    for answers in race(pair, names):
        winner, loser = sorted(answers, key=lambda a: a["outcome"])
        assert (winner["outcome"], winner["attempt"]) == ("claimed", 2)
        assert loser["outcome"] == "in_progress"


def test_04_claimed_means_a_row_with_that_token(pair):
    """Aureliolo/synthorg#1624 (its PostgreSQL half), node-idempotency (source), granit-fx/granit-dotnet#1151,
    margince/margince#423: the row vanishes between conflict and read; the caller is told "new" although nothing
    is stored."""
    policy(pair.c1, "pay", retention_ms=1, tombstone_ms=1)
    names, rounds = keys(5), many()
    done = threading.Event()

    def live():
        try:
            for i in range(rounds):
                key = names[i % len(names)]
                # Before it comes round again, retention and tombstone are over.
                one(pair.c1, "SELECT idem_clock(?)", T + i)
                answer = claim_once(pair.c1, pair.form, key)
                assert (answer["outcome"], answer["attempt"]) == ("claimed", 1)
                rows = pair.c1.execute("SELECT state, token FROM idem_store WHERE key = ?", (key,)).fetchall()
                assert rows == [("processing", answer["token"])]
                pair.complete(pair.c1, key, answer["token"])
        finally:
            done.set()

    def purge():
        touched = 0
        one(pair.c2, "SELECT idem_clock(?)", T + rounds + 2)  # ahead: whatever is completed is over
        while not done.is_set() or touched == 0:
            touched += one(pair.c2, "SELECT idem_purge(1000)")
        return touched

    assert together(live, purge)[1] > 0


@pytest.mark.parametrize("form", ["table"])
def test_05_two_processes_win_each_key_once(pair):
    """dbos-inc/dbos-transact-py#541: two runners execute the same queued item on SQLite only (PostgreSQL is
    right)."""
    job = (str(pair.path), keys(many(100)), False)
    wins = sum(len(won) for won in in_processes(claim_all_forms, job, job))
    assert wins == len(CLAIM) * many(100)
    assert pair.count("state = 'processing' AND attempt = 1") == wins


def test_06_the_loser_gets_an_answer_not_an_error(pair):
    """idempot-dev/idempot-js#181 and #186, LFDT-Paladin/paladin#1001, accept-io/midas#14: the loser of the
    unique-key race surfaces as 500 or 503."""
    def complete(db, key, answer):
        pair.complete(db, key, answer["token"], "answer of " + key)

    names = keys(many())
    for key, answers in zip(names, race(pair, names, complete)):
        winner, loser = sorted(answers, key=lambda a: a["outcome"])
        assert winner["outcome"] == "claimed"
        # Had the loser met an error, race() would have raised it.
        if loser["outcome"] == "replay":
            assert loser["response"] == "answer of " + key
        else:
            assert (loser["outcome"], loser["http_status"]) == ("in_progress", 409)


def test_07_mismatch_beats_in_progress(pair):
    """idempot-dev/idempot-js#183 and #191: another body while the first is running is reported as "in
    progress"."""
    assert pair.outcome(pair.c1, "k") == "claimed"
    for other in (pair.claim(pair.c2, "k", F2), pair.claim(pair.c2, "k", F, "refund")):
        assert (other["outcome"], other["http_status"]) == ("mismatch", 422)
        assert other["message"] == "Idempotency-Key was already used with a different request payload."
        assert "retry_after_ms" not in other


def test_08_waiter_reads_the_answer_again(pair):
    """KanishJebaMathewM/Truxify#6898: a waiter sees the lock gone, takes it and runs without reading the result
    again.

    Below the forms of the other tests SQLite keeps a lock, so they never wait: the scalar in autocommit does."""
    policy(pair.c1, "pay", wait_ms=2000)
    for db in (pair.c1, pair.c2):
        one(db, "SELECT idem_clock(NULL)")
    token = claim_once(pair.c1, pair.form, "k")["token"]
    completed_at = []

    def complete():
        time.sleep(0.2)
        completed_at.append(time.monotonic())
        pair.complete(pair.c1, "k", token, "the answer", 201)

    def wait():
        asked = time.monotonic()
        row = pair.c2.execute("SELECT json_extract(a, '$.outcome'), json_extract(a, '$.response'),"
                              " json_extract(a, '$.code') FROM (SELECT idem_claim('t', 'k', ?, 'pay') AS a)", (F,)).fetchone()
        return asked, row, time.monotonic()

    asked, row, answered = together(complete, wait)[1]
    assert row == ("replay", "the answer", 201)
    assert asked < completed_at[0] < answered  # it did wait
    assert answered - completed_at[0] < 1.5    # and not until the end of wait_ms


def test_09_nothing_between_in_progress_and_replay(pair):
    """KanishJebaMathewM/Truxify#12542: the lock is freed before the result is stored."""
    # A tight loop starves the other connection where readers and writers exclude each other.
    names = keys(many() if pair.journal == "WAL" else many(20))
    tokens = {key: claim_once(pair.c1, pair.form, key)["token"] for key in names}
    asked = threading.Semaphore(0)

    def complete():
        for key in names:
            assert asked.acquire(timeout=60)  # the other has seen it running, and asks on
            pair.complete(pair.c1, key, tokens[key], key)

    def ask():
        for key in names:
            assert claim_once(pair.c2, pair.form, key)["outcome"] == "in_progress"
            asked.release()
            while (answer := claim_once(pair.c2, pair.form, key))["outcome"] == "in_progress":
                pass
            assert (answer["outcome"], answer["response"]) == ("replay", key)

    together(complete, ask)


def test_10_no_lock_lives_in_the_process(pair):
    """gofiber/fiber#3058: an in-process mutex per key deadlocks under load."""
    names, threads, calls = keys(100), 16, many(25, 500)
    slowest, left = [], {}
    # Connected beforehand: Python's load_extension() waits for locks while it holds Python's own lock, so
    # a thread that connects can stop the others from giving up theirs.
    connections = [pair.open(init=False, timeout=10) for _ in range(threads)]
    pair.at(0)

    def worker(seed, db):
        rng = random.Random(seed)
        longest = 0
        for _ in range(calls):
            key = rng.choice(names)
            began = time.monotonic()
            answer = claim_once(db, pair.form, key)
            longest = max(longest, time.monotonic() - began)
            if answer["outcome"] != "claimed":
                continue
            began = time.monotonic()
            what = rng.choice(["complete", "release", "leave"])
            if what == "complete":
                pair.complete(db, key, answer["token"])
            elif what == "release":
                assert one(db, "SELECT idem_release('t', ?, ?)", key, answer["token"]) == 1
            else:
                left[key] = answer["token"]
            longest = max(longest, time.monotonic() - began)
        slowest.append(longest)

    together(*[lambda item=item: worker(*item) for item in enumerate(connections)])
    assert len(slowest) == threads and max(slowest) < 10
    # What a worker left behind is held by its row alone: whoever has the token goes on with it.
    assert left
    for key, token in left.items():
        pair.complete(pair.c2, key, token)
    assert pair.count("state = 'processing'") == 0


def test_11_keys_do_not_wait_for_each_other(pair):
    """yoyowallet/django-idempotency-key#60: one lock for all keys."""
    policy(pair.c1, "pay", wait_ms=5000)
    assert pair.outcome(pair.c1, "A") == "claimed"
    began = time.monotonic()
    assert pair.outcome(pair.c2, "B") == "claimed"
    assert '"claimed"' in one(pair.c2, "SELECT idem_claim('t', 'C', ?, 'pay')", F)  # the form that can wait
    assert time.monotonic() - began < 2

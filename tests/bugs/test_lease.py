"""B. Lease, crash, late completion (12-20)."""
import sqlite3

import pytest

from bug_words import (CALL, F, H, LEASE, RETENTION, S, T, TOK1, TOMBSTONE, claim_once, connect, everything, killed,
                       lost, one, policy, record)

CRASH = {"table": f"SELECT outcome FROM idem_claim('t', 'k', '{F}', 'pay', '{TOK1}')",
         "carrier": CALL + f"json_extract(idem_claim('t', 'k', '{F}', 'pay', '{TOK1}'), '$.outcome')"}


@pytest.mark.parametrize("on_stale", ["unknown", "retry"])
def test_12_a_crash_holds_the_key_for_its_lease_only(pair, on_stale):
    """aws-powertools/powertools-lambda-python#1387, aws-powertools/powertools-lambda#53,
    VilledeMontreal/express-idempotency#32 (three days of outage), ikyriak/IdempotentAPI#37, runvendo/vendo#1312,
    pathosDev/actor-ts#984, benhendayoussef/idempotency-spring-boot-starter#11: a crash leaves the key locked for
    the whole retention."""
    policy(pair.c1, "pay", lease_ms=30 * S, retention_ms=24 * H, on_stale=on_stale)
    assert killed(pair.path, CRASH[pair.form]) == ["[('claimed',)]"]
    pair.at(29 * S)
    assert pair.claim(pair.c1, "k")["retry_after_ms"] == 1 * S
    pair.at(31 * S)
    if on_stale == "unknown":
        assert pair.outcome(pair.c1, "k") == "unknown"
        assert pair.state("k") == "unknown"
    else:
        answer = pair.claim(pair.c1, "k")
        assert (answer["outcome"], answer["attempt"]) == ("claimed", 2)


@pytest.mark.parametrize("on_stale", ["unknown", "retry"])
def test_13_one_unit_of_time(pair, on_stale):
    """aws-powertools/powertools-lambda-java#1281; powertools-lambda-typescript compares epoch milliseconds with a
    0-999 value (source): seconds compared with milliseconds."""
    policy(pair.c1, "pay", lease_ms=1500, on_stale=on_stale)
    assert pair.claim(pair.c1, "k")["lease_until"] == T + 1500
    for x, left in (1000, 500), (1499, 1):
        pair.at(x)
        answer = pair.claim(pair.c2, "k")
        assert (answer["outcome"], answer["retry_after_ms"]) == ("in_progress", left)
        assert pair.visible("k", "lease_remaining_ms", "retry_after_ms") == (left, left)
    pair.at(1500)
    assert pair.visible("k", "lease_remaining_ms") == (0,)
    assert pair.outcome(pair.c2, "k") == ("unknown" if on_stale == "unknown" else "claimed")


def test_14_no_record_without_a_lease(pair):
    """aws-powertools/powertools-lambda-python#8386 and #8387: a live row without a lease is taken for an orphan;
    double run."""
    assert pair.claim(pair.c1, "k", operation="nobody's")["lease_until"] == T + 60 * S
    answer = pair.claim(pair.c2, "k", operation="nobody's")
    assert (answer["outcome"], answer["retry_after_ms"]) == ("in_progress", 60 * S)
    assert pair.visible("k", "state", "lease_until", "lease_remaining_ms") == ("processing", T + 60 * S, 60 * S)
    # Neither does a file that somebody damaged so let anybody run.
    pair.c1.execute("UPDATE idem_store SET due_at = NULL WHERE key = 'k'")
    with pytest.raises(sqlite3.DatabaseError) as error:
        claim_once(pair.c1, pair.form, "k", operation="nobody's")
    assert error.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_CORRUPT


def test_15_a_superseded_worker_can_write_nothing(pair):
    """KanishJebaMathewM/Truxify#4623, powertools update/delete by key (source), rocket-rides-atomic unlock by id
    (source), idempotency4j release/extend by key (source), eastreams/loong#1088, camunda/camunda#57335: a
    superseded worker releases, extends or overwrites the new owner's record."""
    policy(pair.c1, "pay", on_stale="retry")
    tok1 = pair.claim(pair.c1, "k")["token"]
    pair.at(LEASE)
    tok2 = pair.claim(pair.c2, "k")["token"]
    assert tok2 != tok1
    for call in ("idem_complete('t', 'k', ?, 'late')", "idem_renew('t', 'k', ?)",
                 "idem_checkpoint('t', 'k', ?, 'charged')", "idem_release('t', 'k', ?)", "idem_suspend('t', 'k', ?)"):
        assert "claim lost" in lost(pair.c1, "SELECT " + call, tok1)
        assert "claim lost" in lost(pair.c1, CALL + call, tok1)
    before = everything(pair.c1)
    for change in ("state = 'completed', response = 'late'", "state = 'processing'", "recovery_point = 'charged'",
                   "state = 'released'", "state = 'unknown'"):
        update = f"UPDATE idem_records SET {change} WHERE scope = 't' AND key = 'k' AND token = ?"
        assert pair.c1.execute(update, (tok1,)).rowcount == 0
        assert one(pair.c1, "SELECT changes()") == 0
    assert everything(pair.c1) == before
    pair.complete(pair.c2, "k", tok2, "the answer")
    assert pair.claim(pair.c1, "k")["response"] == "the answer"


def test_16_a_waiter_writes_nothing(pair):
    """arun0009/idempotent (source): a *waiter* that gives up deletes the runner's row."""
    policy(pair.c1, "pay", wait_ms=30)
    pair.claim(pair.c1, "k")
    before = everything(pair.c1)
    for _ in range(50):
        assert pair.outcome(pair.c2, "k") == "in_progress"
    reader = connect(f"file:{pair.path}?mode=ro", init=False, uri=True)
    one(reader, "SELECT idem_clock(?)", T)
    for _ in range(50):
        assert claim_once(reader, "table", "k")["outcome"] == "in_progress"
    for db in (pair.c2, reader):
        for _ in range(5):
            assert one(db, "SELECT json_extract(idem_claim('t', 'k', ?, 'pay'), '$.outcome')", F) == "in_progress"
    reader.close()
    assert everything(pair.c1) == before


def test_17_an_answer_that_cannot_be_stored_frees_nothing(pair):
    """nestarc/idempotency 0.1.3 (release notes), arun0009/idempotent (source), idempotency4j (its documentation):
    storing the answer fails after the effect; the record is deleted; the retry repeats the effect."""
    pair.c1.execute("CREATE TABLE orders(id)")
    token = pair.claim(pair.c1, "k")["token"]
    before = record(pair.c1, "k")
    pair.c1.execute("BEGIN IMMEDIATE")
    pair.c1.execute("INSERT INTO orders VALUES (1)")
    pages = one(pair.c1, "PRAGMA page_count")
    one(pair.c1, f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(sqlite3.OperationalError) as error:
        pair.c1.execute("SELECT idem_complete('t', 'k', ?, ?)", (token, "x" * 500_000)).fetchall()
    assert error.value.sqlite_errorcode == sqlite3.SQLITE_FULL
    assert str(error.value).startswith("idem_complete: ")
    if pair.c1.in_transaction:  # SQLite may have rolled back by itself
        pair.c1.execute("ROLLBACK")
    assert record(pair.c1, "k") == before
    assert (before["state"], before["token"]) == ("processing", token)
    assert one(pair.c1, "SELECT count(*) FROM orders") == 0
    assert pair.outcome(pair.c2, "k") == "in_progress"


def test_18_no_lock_without_an_end(pair):
    """nensii21/devlink#1195, KanishJebaMathewM/Truxify#4622, square1 middleware (source): the error path forgets
    the unlock, the lock has no end."""
    pair.c1.execute("BEGIN IMMEDIATE")
    assert pair.outcome(pair.c1, "k") == "claimed"
    pair.c1.execute("ROLLBACK")
    assert pair.count() == 0
    # The same when the process dies within the transaction.
    assert killed(pair.path, "BEGIN IMMEDIATE", CRASH[pair.form]) == ["[]", "[('claimed',)]"]
    assert pair.count() == 0
    # A claim committed by itself outlives its process, until the lease is over.
    assert killed(pair.path, CRASH[pair.form]) == ["[('claimed',)]"]
    assert pair.outcome(pair.c2, "k") == "in_progress"
    pair.at(LEASE)
    assert pair.outcome(pair.c2, "k") == "unknown"


def test_19_attempts_are_counted_at_the_claim(pair):
    """vectorize-io/hindsight#2675 (54 re-claims), dbos-inc/dbos-transact-py#759, xorbitsai/xagent#1530: a job that
    crashes is re-run for ever because attempts are not counted at claim."""
    policy(pair.c1, "pay", max_attempts=3, on_stale="retry")
    for attempt in (1, 2, 3):
        answer = pair.claim(pair.c1, "k")
        assert (answer["outcome"], answer["attempt"]) == ("claimed", attempt)
        pair.at(attempt * LEASE)
    answer = pair.claim(pair.c2, "k")
    assert (answer["outcome"], answer["attempt"], answer["http_status"]) == ("exhausted", 3, 409)
    pair.at(3 * LEASE + RETENTION + TOMBSTONE)
    assert one(pair.c1, "SELECT idem_purge(1000)") == 0
    assert pair.outcome(pair.c1, "k") == "exhausted"
    assert record(pair.c1, "k")["attempt"] == 3


def test_20_a_zombie_learns_that_it_lost(pair):
    """pikkujs/pikku#1545, Altinn/altinn-studio#18507: the heartbeat is not fenced, so a zombie never learns that it
    lost."""
    policy(pair.c1, "pay", on_stale="retry")
    tok1 = pair.claim(pair.c1, "k")["token"]
    pair.at(40 * S)
    assert one(pair.c1, "SELECT idem_renew('t', 'k', ?)", tok1) == T + 100 * S
    pair.at(99 * S)
    assert pair.outcome(pair.c2, "k") == "in_progress"
    pair.at(100 * S)
    assert pair.claim(pair.c2, "k")["attempt"] == 2
    lost(pair.c1, "SELECT idem_renew('t', 'k', ?)", tok1)

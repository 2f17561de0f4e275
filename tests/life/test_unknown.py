"""Outcomes that nobody knows: suspended or stale records block until somebody decides."""
import pytest
from life_kit import (LEASE, RETENTION, T, TOKENS, TOMBSTONE, audit, claim, clock, complete, connect,
                      fresh, one, policy, record, refused, won)


@pytest.fixture
def db(path):
    db = fresh(path)
    yield db
    db.close()


def suspended(db, key="k"):
    token = won(db, key)
    assert one(db, "SELECT idem_suspend('t', ?, ?, 'provider timed out')", key, token) == 1
    return token


def stale(db, key="k"):
    token = won(db, key)
    clock(db, T + LEASE)
    return token


@pytest.mark.parametrize("make", [suspended, stale])
def test_blocks_every_claim_however_late(db, make):
    make(db)
    before = record(db, "k")
    for later in (LEASE, RETENTION, 400 * RETENTION):
        clock(db, T + later)
        got = claim(db, "k")
        assert (got["outcome"], got["http_status"], got["attempt"]) == ("unknown", 409, 1)
        assert "must be resolved first" in got["message"]
        assert got["token"] is None and got["replayed"] == 0 and got["response"] is None
    assert record(db, "k") == before
    assert one(db, "SELECT state FROM idem_records WHERE scope = 't' AND key = 'k'") == "unknown"


def test_stale_begins_exactly_at_the_lease_end(db):
    won(db, "k")
    clock(db, T + LEASE - 1)
    got = claim(db, "k")
    assert (got["outcome"], got["retry_after_ms"]) == ("in_progress", 1)
    clock(db, T + LEASE)
    assert claim(db, "k")["outcome"] == "unknown"


@pytest.mark.parametrize("make", [suspended, stale])
def test_a_mismatch_stays_a_mismatch(db, make):
    make(db)
    assert claim(db, "k", "other")["outcome"] == "mismatch"
    assert claim(db, "k", operation="other")["outcome"] == "mismatch"


@pytest.mark.parametrize("make", [suspended, stale])
def test_the_recovery_point_is_shown(db, make):
    token = won(db, "k")
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'reserved', 'secret')", token)
    if make is suspended:
        one(db, "SELECT idem_suspend('t', 'k', ?)", token)
    clock(db, T + LEASE)
    got = claim(db, "k")
    assert (got["outcome"], got["recovery_point"]) == ("unknown", "reserved")
    assert got["checkpoint"] is None


@pytest.mark.parametrize("make", [suspended, stale])
def test_resolved_completed_replays_what_the_operator_gave(db, make):
    token = make(db)
    clock(db, T + 2 * LEASE)
    assert one(db, "SELECT idem_resolve('t', 'k', 'completed', ?, 201, ?)",
               b"\x00\xffpaid", '{"X-By": "operator"}') == 1
    got = claim(db, "k")
    assert got["outcome"] == "replay" and got["attempt"] == 1
    assert (got["code"], got["http_status"], got["response"], got["headers"]) == (
        201, 201, b"\x00\xffpaid", '{"X-By": "operator"}')
    assert got["completed_at"] == T + 2 * LEASE and got["created_at"] == T
    # The worker comes back: whatever it knows, the decision stands.
    before = record(db, "k")
    for verb, sql in TOKENS.items():
        refused(db, sql, "k", token, text="claim lost", begins=f"idem_{verb}:")
    assert record(db, "k") == before
    # Retention counts from the decision.
    clock(db, T + 2 * LEASE + RETENTION - 1)
    assert claim(db, "k")["outcome"] == "replay"
    clock(db, T + 2 * LEASE + RETENTION)
    assert claim(db, "k")["outcome"] == "expired"


@pytest.mark.parametrize("make", [suspended, stale])
def test_resolved_retry_is_claimable_as_the_next_attempt(db, make):
    token = make(db)
    clock(db, T + 2 * LEASE)
    assert one(db, "SELECT idem_resolve('t', 'k', 'retry', 'provider has no such charge')") == 1
    row = record(db, "k")
    assert (row["state"], row["token"], row["reason"]) == (
        "released", None, "provider has no such charge")
    for verb, sql in TOKENS.items():
        refused(db, sql, "k", token, text="claim lost", begins=f"idem_{verb}:")
    assert claim(db, "k", "other")["outcome"] == "mismatch"
    refused(db, "SELECT * FROM idem_claim('t', 'k', 'fp', NULL, ?)", token,
            text="used by an earlier attempt")
    got = claim(db, "k")
    assert (got["outcome"], got["attempt"], got["created_at"]) == ("claimed", 2, T)
    assert got["token"] != token
    refused(db, TOKENS["complete"], "k", token, text="claim lost")
    complete(db, "k", got["token"], "second")
    assert claim(db, "k")["response"] == "second"
    assert audit(db, "k")[-1] == "resolve-retry"


def test_the_owner_may_still_speak_while_nobody_decided(db):
    """Late is not lost: a token is good until it is superseded (rule 6)."""
    token = stale(db, "late")
    clock(db, T + 100 * LEASE)
    complete(db, "late", token, "done after all")
    assert claim(db, "late")["response"] == "done after all"
    clock(db, T)
    token = suspended(db, "asked")
    complete(db, "asked", token, "the provider said yes")
    assert claim(db, "asked")["response"] == "the provider said yes"
    token = suspended(db, "failed")
    assert one(db, "SELECT idem_release('t', 'failed', ?)", token) == 1
    assert claim(db, "failed")["attempt"] == 2


def test_a_suspended_record_is_not_renewed_or_continued(db):
    token = suspended(db)
    before = record(db, "k")
    refused(db, TOKENS["renew"], "k", token, text="suspended", begins="idem_renew:")
    refused(db, TOKENS["checkpoint"], "k", token, text="suspended", begins="idem_checkpoint:")
    assert one(db, TOKENS["suspend"], "k", token) == 1     # said before: nothing changes
    assert record(db, "k") == before
    assert audit(db, "k") == ["suspend"]


def test_resolve_is_refused_where_somebody_knows_better(db):
    resolve = "SELECT idem_resolve('t', ?, 'completed', 'x')"
    retry = "SELECT idem_resolve('t', ?, 'retry')"
    refused(db, resolve, "absent", text="no record")
    refused(db, retry, "absent", text="no record")
    token = won(db, "live")
    refused(db, resolve, "live", text="live lease")
    refused(db, retry, "live", text="live lease")
    one(db, TOKENS["release"], "live", token)
    refused(db, resolve, "live", text="next claim may execute")
    refused(db, retry, "live", text="next claim may execute")
    complete(db, "done", won(db, "done"))
    refused(db, retry, "done", text="already completed")
    refused(db, resolve, "done", text="already completed")
    assert claim(db, "done")["response"] == "answer"
    clock(db, T + RETENTION)
    refused(db, retry, "done", text="expired")


def test_resolve_repeated_with_the_same_answer_is_fine(db):
    suspended(db)
    sql = "SELECT idem_resolve('t', 'k', 'completed', 'paid', 201)"
    assert one(db, sql) == 1
    before, rows = record(db, "k"), one(db, "SELECT count(*) FROM idem_audit")
    clock(db, T + 5)
    assert one(db, sql) == 1
    assert record(db, "k") == before and one(db, "SELECT count(*) FROM idem_audit") == rows
    refused(db, "SELECT idem_resolve('t', 'k', 'completed', 'paid', 200)", text="already completed")


def test_resolve_checks_its_arguments(db):
    suspended(db)
    before = record(db, "k")
    for sql in ("SELECT idem_resolve('t', 'k', 'done')", "SELECT idem_resolve('t', 'k', NULL)",
                "SELECT idem_resolve('t', 'k', 'COMPLETED', 'x')",
                "SELECT idem_resolve('t', 'k', 'completed')",
                "SELECT idem_resolve('t', 'k', 'retry', 'why', 1)",
                "SELECT idem_resolve('t', 'k', 'completed', 7)",
                "SELECT idem_resolve('t', 'k', 'completed', 'x', 1.5)"):
        refused(db, sql, text="idem_resolve:", code="SQLITE_ERROR", begins="idem_resolve:")
    assert record(db, "k") == before


def test_exhausted_is_resolved_too(db):
    policy(db, on_stale="retry", max_attempts=2)
    won(db, "k")
    clock(db, T + LEASE)
    assert won(db, "k")
    clock(db, T + 2 * LEASE)
    got = claim(db, "k")
    assert (got["outcome"], got["http_status"], got["attempt"]) == ("exhausted", 409, 2)
    assert one(db, "SELECT idem_resolve('t', 'k', 'retry', 'try twice more')") == 1
    assert claim(db, "k")["attempt"] == 3                  # attempts go on counting
    clock(db, T + 3 * LEASE)
    assert claim(db, "k")["attempt"] == 4
    clock(db, T + 4 * LEASE)
    assert claim(db, "k")["outcome"] == "exhausted"
    assert one(db, "SELECT idem_resolve('t', 'k', 'completed', 'written off')") == 1
    assert claim(db, "k")["response"] == "written off"
    assert audit(db, "k") == ["take-over", "exhausted", "resolve-retry", "take-over", "exhausted",
                              "resolve-completed"]


def test_exhausted_by_releases_is_resolved_too(db):
    policy(db, max_attempts=1)
    one(db, TOKENS["release"], "k", won(db, "k"))
    assert claim(db, "k")["outcome"] == "exhausted"
    assert one(db, "SELECT idem_resolve('t', 'k', 'retry')") == 1
    assert claim(db, "k")["attempt"] == 2


def test_stale_under_retry_is_taken_over_or_resolved(db):
    policy(db, on_stale="retry")
    first = stale(db)
    second = won(db, "k")
    for verb, sql in TOKENS.items():
        refused(db, sql, "k", first, text="claim lost", begins=f"idem_{verb}:")
    assert record(db, "k")["token"] == second
    clock(db, T + 2 * LEASE)
    assert one(db, "SELECT idem_resolve('t', 'k', 'completed', 'known')") == 1
    assert claim(db, "k")["response"] == "known"
    assert audit(db, "k") == ["take-over", "resolve-completed"]


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_what_is_not_finished_survives_every_purge(db, rows):
    """processing, released and unknown rows are never purged, whatever their age (rule 5)."""
    won(db, "processing")
    one(db, TOKENS["release"], "released", won(db, "released"))
    suspended(db, "unknown")
    for i in range(9):
        complete(db, f"done{i}", won(db, f"done{i}"))
    before = {key: record(db, key) for key in ("processing", "released", "unknown")}
    clock(db, T + 100 * (RETENTION + TOMBSTONE))
    total = 0
    for _ in range(40):
        total += one(db, "SELECT idem_purge(?)", rows)
    assert total == 18                                     # nine answers, then nine tombstones
    assert one(db, "SELECT count(*) FROM idem_store") == 3
    assert {key: record(db, key) for key in before} == before
    assert claim(db, "processing")["outcome"] == "unknown"
    assert claim(db, "unknown")["outcome"] == "unknown"
    got = claim(db, "released")
    assert (got["outcome"], got["attempt"]) == ("claimed", 2)


def test_decisions_reach_other_connections(db, path):
    suspended(db)
    other = connect(path, init=False)
    clock(other, T)
    one(other, "SELECT idem_resolve('t', 'k', 'retry')")
    assert claim(db, "k")["attempt"] == 2
    other.close()


def test_unknown_on_a_read_only_connection(db, path):
    suspended(db)
    reader = connect(f"file:{path}?mode=ro", init=False, uri=True)
    assert claim(reader, "k")["outcome"] == "unknown"
    refused(reader, "SELECT idem_resolve('t', 'k', 'retry')", text="read-only", code="SQLITE_READONLY")
    reader.close()

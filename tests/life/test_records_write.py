"""Writing through idem_records: the spelling of ORMs, and of programs that know tables only."""
import sqlite3

import pytest
from life_kit import (LEASE, RETENTION, T, TOMBSTONE, audit, claim, clock, complete, connect, fresh,
                      one, policy, record, refused, won)

TOKEN, OTHER = "my-token-0123456789", "another-token-98765"
INSERT = "INTO idem_records(scope, key, fingerprint, operation, token) VALUES ('t', ?, ?, ?, ?)"
WHERE = " WHERE scope = 't' AND key = ? AND token = ?"


@pytest.fixture
def db(path):
    db = fresh(path)
    yield db
    db.close()


def insert(db, key="k", fingerprint="fp", operation="pay", token=TOKEN, how="INSERT"):
    return db.execute(f"{how} {INSERT}", (key, fingerprint, operation, token)).rowcount


def update(db, columns, key="k", token=TOKEN, values=()):
    return db.execute(f"UPDATE idem_records SET {columns}{WHERE}", (*values, key, token)).rowcount


# INSERT

def test_insert_claims(db):
    assert insert(db) == 1 and one(db, "SELECT changes()") == 1
    row = record(db, "k")
    assert (row["scope"], row["key"], row["operation"], row["fingerprint"], row["state"], row["attempt"],
            row["token"], row["due_at"], row["created_at"]) == (
        "t", "k", "pay", "fp", "processing", 1, TOKEN, T + LEASE, T)
    assert claim(db, "k", operation="pay")["outcome"] == "in_progress"


def test_insert_without_an_operation(db):
    db.execute("INSERT INTO idem_records(scope, key, fingerprint, token) VALUES ('t', 'k', 'fp', ?)",
               (TOKEN,))
    assert record(db, "k")["operation"] == ""


def test_inserting_again_with_the_same_token_is_the_same_claim(db):
    insert(db)
    before = record(db, "k")
    assert insert(db) == 1                                 # "did my claim get through?" yes
    assert record(db, "k") == before


def make_in_progress(db):
    insert(db)


def make_replay(db):
    insert(db)
    complete(db, "k", TOKEN)


def make_mismatch(db):
    insert(db, fingerprint="other")


def make_unknown(db):
    insert(db)
    clock(db, T + LEASE)


def make_expired(db):
    make_replay(db)
    clock(db, T + RETENTION)


def make_exhausted(db):
    policy(db, max_attempts=1)
    insert(db)
    one(db, "SELECT idem_release('t', 'k', ?)", TOKEN)


NOT_WON = {"in_progress": make_in_progress, "replay": make_replay, "mismatch": make_mismatch,
           "unknown": make_unknown, "expired": make_expired, "exhausted": make_exhausted}
MESSAGES = {
    "in_progress": "A request with this Idempotency-Key is still being processed, retry shortly.",
    "mismatch": "Idempotency-Key was already used with a different request payload.",
    "replay": "was completed before, its answer is stored", "unknown": "must be resolved first",
    "expired": "its answer is no longer stored", "exhausted": "All attempts",
}


@pytest.mark.parametrize("outcome", NOT_WON)
def test_insert_that_does_not_win_is_a_constraint_error(db, outcome):
    NOT_WON[outcome](db)
    before = record(db, "k")
    refused(db, "INSERT " + INSERT, "k", "fp", "pay", OTHER, text=MESSAGES[outcome])
    assert record(db, "k") == before


@pytest.mark.parametrize("outcome", NOT_WON)
def test_insert_or_ignore_leaves_changes_0(db, outcome):
    NOT_WON[outcome](db)
    before = record(db, "k")
    assert insert(db, token=OTHER, how="INSERT OR IGNORE") == 0
    assert one(db, "SELECT changes()") == 0
    after = record(db, "k")
    assert (after["token"], after["state"], after["attempt"]) == (
        before["token"], before["state"], before["attempt"])
    shown = db.execute("SELECT outcome FROM idem_records WHERE scope = 't' AND key = 'k'").fetchall()
    if outcome != "mismatch":                              # a listing has no other request to compare
        assert shown == [(outcome,)]


def test_insert_or_ignore_that_wins_counts(db):
    assert insert(db, how="INSERT OR IGNORE") == 1 and one(db, "SELECT changes()") == 1


@pytest.mark.parametrize("how", ["INSERT OR REPLACE", "REPLACE"])
@pytest.mark.parametrize("exists", [False, True])
def test_or_replace_is_refused_with_the_reason(db, how, exists):
    if exists:
        insert(db)
    before = record(db, "k")
    refused(db, f"{how} {INSERT}", "k", "fp", "pay", OTHER, text="OR REPLACE would forget",
            code="SQLITE_ERROR")
    assert record(db, "k") == before


def test_insert_takes_over_and_the_row_tells_the_attempt(db):
    policy(db, "pay", on_stale="retry")
    insert(db)
    db.execute("UPDATE idem_records SET recovery_point = 'charged', checkpoint = x'00ff'" + WHERE,
               ("k", TOKEN))
    clock(db, T + LEASE)
    assert insert(db, token=OTHER) == 1
    assert db.execute("SELECT attempt, recovery_point, checkpoint, token FROM idem_records" + WHERE,
                      ("k", OTHER)).fetchall() == [(2, "charged", b"\x00\xff", OTHER)]
    clock(db, T + 2 * LEASE)
    refused(db, "INSERT " + INSERT, "k", "fp", "pay", TOKEN, text="used by an earlier attempt")


@pytest.mark.parametrize("column", [
    "state", "outcome", "message", "http_status", "attempt", "lease_until", "retry_after_ms", "replayed", "code",
    "headers", "response", "response_omitted", "recovery_point", "checkpoint", "created_at",
    "completed_at", "lease_remaining_ms", "expires_at", "tombstone_until", "age_ms", "reason"])
def test_columns_that_an_insert_cannot_bring(db, column):
    refused(db, f"INSERT INTO idem_records(scope, key, fingerprint, token, {column}) "
                "VALUES ('t', 'k', 'fp', ?, 1)", TOKEN, text=f"column {column} cannot be inserted",
            code="SQLITE_ERROR")
    assert record(db, "k") is None
    # NULL is no value: ORMs name every column.
    db.execute(f"INSERT INTO idem_records(scope, key, fingerprint, token, {column}) "
               "VALUES ('t', 'k', 'fp', ?, NULL)", (TOKEN,))
    assert record(db, "k")["token"] == TOKEN


@pytest.mark.parametrize("values, text, code", [
    (("k", "fp", "pay", None), "token is NULL", "SQLITE_ERROR"),
    (("k", "fp", "pay", "short"), "16 to 128", "SQLITE_ERROR"),
    (("", "fp", "pay", TOKEN), "key is empty", "SQLITE_ERROR"),
    ((None, "fp", "pay", TOKEN), "key is NULL", "SQLITE_ERROR"),
    (("k" * 256, "fp", "pay", TOKEN), "256 characters, the limit is 255", "SQLITE_ERROR"),
    (("k", None, "pay", TOKEN), "fingerprint is NULL", "SQLITE_ERROR"),
    (("k", "k", "pay", TOKEN), "key equals the fingerprint", "SQLITE_ERROR"),
    (("k", "fp", "*", TOKEN), "default policy", "SQLITE_ERROR")])
def test_bad_inserts_are_refused(db, values, text, code):
    refused(db, "INSERT " + INSERT, *values, text=text, code=code, begins="idem_records:")
    assert one(db, "SELECT count(*) FROM idem_store") == 0


@pytest.mark.parametrize("sql, text", [
    ("INSERT OR IGNORE INTO idem_records(scope, key, fingerprint, token) VALUES ('t', '', 'fp', ?)",
     "key is empty"),
    ("INSERT OR IGNORE INTO idem_records(scope, key, fingerprint, token) VALUES ('t', 'n', 'fp', 'short' || ?)",
     "16 to 128"),
    ("INSERT OR IGNORE INTO idem_records(scope, key, fingerprint, reason) VALUES ('t', 'n', 'fp', ?)",
     "reason cannot be inserted"),
    ("INSERT OR IGNORE INTO idem_records(scope, key, fingerprint, operation) VALUES ('t', 'n', 'fp', ?)",
     "token is NULL"),
    ("UPDATE OR IGNORE idem_records SET state = 'released' WHERE key = 'k' AND token IS NOT ?",
     "name the token"),
    ("UPDATE OR IGNORE idem_records SET state = 'done' WHERE key = 'k' AND token = ?", "state can be set to"),
    ("UPDATE OR IGNORE idem_records SET code = 5 WHERE key = 'k' AND token = ?", "set state"),
    ("UPDATE OR IGNORE idem_records SET state = 'released', attempt = 5 WHERE key = 'k' AND token = ?",
     "attempt cannot be written")], ids=range(8))
def test_a_mistake_is_an_error_under_or_ignore_too(db, sql, text):
    """OR IGNORE is for lost claims. A program's own mistake that looked like one would look so for ever."""
    insert(db)
    before = record(db, "k")
    value = TOKEN if "short" not in sql else "\n" * 20
    refused(db, sql, value, text=text, code="SQLITE_ERROR", begins="idem_records:")
    assert record(db, "k") == before and one(db, "SELECT count(*) FROM idem_store") == 1


@pytest.mark.parametrize("how", ["INSERT OR ROLLBACK", "INSERT OR FAIL", "INSERT OR ABORT"])
def test_the_other_conflict_words_mean_what_they_mean(db, how):
    insert(db, "k2")
    db.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(f"{how} INTO idem_records(scope, key, fingerprint, operation, token) "
                   "SELECT 't', 'k' || value, 'fp', 'pay', ? FROM json_each('[1, 2, 3]')", (OTHER,))
    assert db.in_transaction == (how != "INSERT OR ROLLBACK")
    if db.in_transaction:
        db.execute("COMMIT")
    kept = [row[0] for row in db.execute("SELECT key FROM idem_store ORDER BY key")]
    assert kept == (["k1", "k2"] if how == "INSERT OR FAIL" else ["k2"])


def test_a_batch_goes_on_after_existing_rows(db):
    """LFDT-Panurus/panurus#2313: a batch stops after the first existing row."""
    for i in (0, 4, 9):
        insert(db, f"k{i}", token=f"{TOKEN}-old-{i}")
    before = {i: record(db, f"k{i}") for i in (0, 4, 9)}
    batch = ("INTO idem_records(scope, key, fingerprint, operation, token) "
             "SELECT 't', 'k' || value, 'fp', 'pay', ? || value FROM json_each('[0,1,2,3,4,5,6,7,8,9]')")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("INSERT " + batch, (TOKEN,))
    assert one(db, "SELECT count(*) FROM idem_store") == 3
    assert db.execute("INSERT OR IGNORE " + batch, (TOKEN,)).rowcount == 7
    assert one(db, "SELECT count(*) FROM idem_store WHERE token = ? || substr(key, 2)", TOKEN) == 7
    assert {i: record(db, f"k{i}") for i in (0, 4, 9)} == before


# UPDATE

@pytest.mark.parametrize("response", ["text", "", b"\x00\xff", b"", None, "\u00e9\u0000z"])
def test_update_completes(db, response):
    insert(db)
    assert update(db, "state = 'completed', response = ?, code = ?, headers = ?",
                  values=(response, 201, "X-A: 1")) == 1
    got = claim(db, "k", operation="pay")
    assert (got["outcome"], got["code"], got["headers"]) == ("replay", 201, "X-A: 1")
    assert got["response"] == response and type(got["response"]) is type(response)


def test_update_completes_without_a_body(db):
    insert(db)
    assert update(db, "state = 'completed'") == 1
    got = claim(db, "k", operation="pay")
    assert (got["outcome"], got["code"], got["response"], got["headers"]) == ("replay", None, None, None)


def test_update_completes_again_with_the_same_answer_only(db):
    insert(db)
    columns = "state = 'completed', response = 'a', code = 1"
    assert update(db, columns) == 1
    before = record(db, "k")
    assert update(db, columns) == 1 and record(db, "k") == before
    refused(db, "UPDATE idem_records SET state = 'completed', response = 'b', code = 1" + WHERE, "k", TOKEN,
            text="another answer")
    assert record(db, "k") == before


def test_update_releases(db):
    insert(db)
    assert update(db, "state = 'released', reason = 'card declined'") == 1
    row = record(db, "k")
    assert (row["state"], row["reason"], row["due_at"]) == ("released", "card declined", None)
    assert claim(db, "k", operation="pay")["attempt"] == 2


def test_update_suspends(db):
    insert(db)
    assert update(db, "state = 'unknown', reason = 'timeout'") == 1
    assert claim(db, "k", operation="pay")["outcome"] == "unknown"
    assert record(db, "k")["reason"] == "timeout"


def test_update_renews(db):
    insert(db)
    clock(db, T + 30_000)
    assert update(db, "state = 'processing'") == 1
    assert record(db, "k")["due_at"] == T + 30_000 + LEASE


@pytest.mark.parametrize("columns", ["recovery_point = ?, checkpoint = ?",
                                     "state = 'processing', recovery_point = ?, checkpoint = ?"])
@pytest.mark.parametrize("data", ["d", b"\x00", "", b"", None])
def test_update_checkpoints(db, columns, data):
    insert(db)
    clock(db, T + 30_000)
    assert update(db, columns, values=("charged", data)) == 1
    row = record(db, "k")
    assert (row["recovery_point"], row["due_at"]) == ("charged", T + 30_000 + LEASE)
    assert row["checkpoint"] == data and type(row["checkpoint"]) is type(data)


def test_update_may_read_other_columns(db):
    insert(db)
    assert update(db, "state = 'completed', response = scope || '/' || key, code = attempt + 200") == 1
    got = claim(db, "k", operation="pay")
    assert (got["response"], got["code"]) == ("t/k", 201)


UPDATES = ["state = 'completed', response = 'x'", "state = 'released'", "state = 'unknown'",
           "state = 'processing'", "recovery_point = 'p'"]


@pytest.mark.parametrize("columns", UPDATES)
def test_a_wrong_token_finds_no_row(db, columns):
    insert(db)
    before = record(db, "k")
    for token in (OTHER, TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "", None, "x" * 5000, b"blob", 7):
        assert update(db, columns, token=token) == 0, token
        assert one(db, "SELECT changes()") == 0
    assert record(db, "k") == before


@pytest.mark.parametrize("columns", UPDATES)
def test_a_superseded_token_finds_no_row(db, columns):
    policy(db, "pay", on_stale="retry")
    insert(db)
    clock(db, T + LEASE)
    insert(db, token=OTHER)
    before = record(db, "k")
    assert update(db, columns) == 0
    assert record(db, "k") == before
    assert update(db, columns, token=OTHER) == 1


@pytest.mark.parametrize("columns", UPDATES)
def test_without_the_token_there_is_no_update(db, columns):
    insert(db)
    before = record(db, "k")
    for where in (" WHERE scope = 't' AND key = 'k'", "", " WHERE token LIKE '%'", " WHERE token IS NULL"):
        try:
            changed = db.execute(f"UPDATE idem_records SET {columns}{where}").rowcount
            assert changed == 0
        except sqlite3.OperationalError as error:
            assert "name the token" in str(error)
    assert record(db, "k") == before


def test_setting_the_token_proves_nothing(db):
    """The token must be in the WHERE clause: in the SET clause it would be whatever one likes."""
    insert(db)
    before = record(db, "k")
    with pytest.raises(sqlite3.Error):
        db.execute("UPDATE idem_records SET state = 'released', token = ? WHERE scope = 't' AND key = 'k'",
                   (OTHER,))
    assert record(db, "k") == before


@pytest.mark.parametrize("column", [
    "scope", "key", "operation", "fingerprint", "outcome", "message", "http_status", "attempt",
    "lease_until", "retry_after_ms", "replayed", "response_omitted", "created_at", "completed_at",
    "lease_remaining_ms", "expires_at", "tombstone_until", "age_ms"])
@pytest.mark.parametrize("verb", ["state = 'completed', ", "recovery_point = 'p', "])
def test_columns_that_cannot_be_written(db, column, verb):
    insert(db)
    before = record(db, "k")
    refused(db, f"UPDATE idem_records SET {verb}{column} = 1" + WHERE, "k", TOKEN,
            text=f"column {column} cannot be written", code="SQLITE_ERROR")
    assert record(db, "k") == before


@pytest.mark.parametrize("columns, text", [
    ("response = 'x'", "set state"), ("code = 1", "set state"), ("reason = 'x'", "set state"),
    ("checkpoint = 'x'", "set state"), ("state = 'expired'", "state can be set to"),
    ("state = 'done'", "state can be set to"), ("state = NULL", "state can be set to"),
    ("state = 'COMPLETED'", "state can be set to"), ("state = 1", "state can be set to"),
    ("state = 'released', response = 'x'", "column response cannot be written"),
    ("state = 'released', recovery_point = 'x'", "column recovery_point cannot be written"),
    ("state = 'completed', reason = 'x'", "column reason cannot be written"),
    ("state = 'completed', recovery_point = 'x'", "column recovery_point cannot be written"),
    ("state = 'unknown', code = 1", "column code cannot be written"),
    ("state = 'processing', code = 1", "column code cannot be written"),
    ("rowid = 77, state = 'released'", "column rowid cannot be written")])
def test_updates_that_make_no_sense(db, columns, text):
    insert(db)
    before = record(db, "k")
    refused(db, f"UPDATE idem_records SET {columns}" + WHERE, "k", TOKEN, text=text,
            code="SQLITE_ERROR")
    assert record(db, "k") == before


@pytest.mark.parametrize("columns, text", [
    ("state = 'completed', response = 7", "response is a number"),
    ("state = 'completed', code = 'x'", "code is not an integer"),
    ("state = 'completed', code = 1.5", "code is not an integer"),
    ("state = 'completed', headers = x'00'", "headers is not TEXT"),
    ("recovery_point = ''", "recovery point is empty"),
    ("recovery_point = NULL", "recovery point is NULL"),
    ("recovery_point = 'p', checkpoint = 1", "data is a number"),
    ("state = 'released', reason = x'00'", "reason is not TEXT")])
def test_updates_with_bad_values(db, columns, text):
    insert(db)
    before = record(db, "k")
    refused(db, f"UPDATE idem_records SET {columns}" + WHERE, "k", TOKEN, text=text, code="SQLITE_ERROR",
            begins="idem_records:")
    assert record(db, "k") == before


def test_update_of_a_completed_record_is_refused(db):
    insert(db)
    update(db, "state = 'completed', response = 'x'")
    before = record(db, "k")
    for columns in UPDATES[1:]:
        refused(db, f"UPDATE idem_records SET {columns}" + WHERE, "k", TOKEN, text="already completed")
    assert record(db, "k") == before


def test_an_upsert_is_not_supported_and_says_so(db):
    insert(db)
    before = record(db, "k")
    with pytest.raises(sqlite3.Error):
        db.execute(f"INSERT {INSERT} ON CONFLICT DO NOTHING", ("k", "fp", "pay", OTHER))
    assert record(db, "k") == before


def test_the_token_may_come_from_another_table(db):
    """It proves the claim wherever it comes from: a plan that reads the token first would find no row."""
    insert(db)
    db.execute("CREATE TABLE job(name TEXT, token TEXT)")
    db.execute("INSERT INTO job VALUES ('a', ?), ('b', ?)", (TOKEN, OTHER))
    for source in ("job JOIN idem_records r ON r.token = job.token",
                   "idem_records r JOIN job ON r.token = job.token",
                   "idem_records r, job WHERE job.token = r.token",
                   "job LEFT JOIN idem_records r ON r.token = job.token WHERE r.key IS NOT NULL",
                   "(SELECT 'a' AS name, token FROM job) job JOIN idem_records r USING (token)"):
        assert db.execute(f"SELECT r.key, job.name FROM {source}").fetchall() == [("k", "a")], source
    assert update(db, "recovery_point = 'p'", token=TOKEN) == 1
    assert db.execute("UPDATE idem_records SET state = 'released' WHERE token IN (SELECT token FROM job)"
                      ).rowcount == 1
    assert record(db, "k")["state"] == "released"


def test_update_from_does_all_or_nothing(db):
    """An older SQLite hands a virtual table all columns as changed then: it is refused. A newer one says
    which are not, and it works."""
    insert(db)
    before = record(db, "k")
    try:
        db.execute("UPDATE idem_records SET state = 'released' FROM (SELECT ? AS t) WHERE token = t", (TOKEN,))
    except sqlite3.OperationalError as e:
        assert "cannot be written" in str(e)
        assert sqlite3.sqlite_version_info < (3, 44), "this version is known to say it"
        assert record(db, "k") == before
    else:
        assert sqlite3.sqlite_version_info > (3, 40, 1), "this version is known not to say it"
        after = {**before, "state": "released", "due_at": None, "audit_event": "release"}
        assert {**record(db, "k"), "updated_at": before["updated_at"]} == after


def test_returning(db):
    rows = db.execute(f"INSERT {INSERT} RETURNING scope, key, token", ("k", "fp", "pay", TOKEN)).fetchall()
    assert rows == [("t", "k", TOKEN)]
    # SQLite itself offers no more than that for a virtual table.
    refused(db, "UPDATE idem_records SET state = 'completed'" + WHERE + " RETURNING key", "k", TOKEN,
            text="UPDATE RETURNING is not available on virtual tables", code="SQLITE_ERROR")


def test_last_insert_rowid_stays(db):
    db.execute("CREATE TABLE business(id INTEGER PRIMARY KEY)")
    db.execute("INSERT INTO business VALUES (4711)")
    insert(db)
    update(db, "recovery_point = 'p'")
    update(db, "state = 'completed'")
    db.execute("DELETE FROM idem_records")
    assert one(db, "SELECT last_insert_rowid()") == 4711


# DELETE

def test_delete_erases_finished_rows(db):
    policy(db, on_stale="retry")
    one(db, "SELECT idem_release('t', 'released', ?)", won(db, "released"))
    for key in ("completed", "expired", "tombstone"):
        complete(db, key, won(db, key))
    assert db.execute("DELETE FROM idem_records WHERE scope = 't' AND key = 'completed'").rowcount == 1
    assert record(db, "completed") is None
    clock(db, T + RETENTION)
    assert one(db, "SELECT idem_purge(1)") == 1
    assert db.execute("DELETE FROM idem_records WHERE scope = 't'").rowcount == 3
    assert one(db, "SELECT count(*) FROM idem_store") == 0
    assert sorted(audit(db)) == ["erase"] * 4 + ["release"]
    assert claim(db, "completed")["attempt"] == 1          # nothing is known of it any more


@pytest.mark.parametrize("state", ["processing", "stale", "unknown"])
def test_delete_refuses_what_is_not_finished(db, state):
    token = won(db, "k")
    if state == "stale":
        clock(db, T + LEASE)
    if state == "unknown":
        one(db, "SELECT idem_suspend('t', 'k', ?)", token)
    before = record(db, "k")
    for where in (" WHERE scope = 't' AND key = 'k'", "", " WHERE scope = 't'"):
        refused(db, "DELETE FROM idem_records" + where, text="only finished records can be erased")
    assert record(db, "k") == before


def test_a_delete_that_meets_a_live_row_deletes_nothing(db):
    for i in range(5):
        complete(db, f"done{i}", won(db, f"done{i}"))
    won(db, "live")
    for i in range(5, 9):
        complete(db, f"done{i}", won(db, f"done{i}"))
    refused(db, "DELETE FROM idem_records WHERE scope = 't'", text="only finished records can be erased")
    assert one(db, "SELECT count(*) FROM idem_store") == 10 and audit(db) == []
    assert db.execute("DELETE FROM idem_records WHERE scope = 't' AND state = 'completed'").rowcount == 9
    assert one(db, "SELECT count(*) FROM idem_store") == 1


def test_delete_of_what_is_over_is_none_of_its_business(db):
    complete(db, "k", won(db, "k"))
    clock(db, T + RETENTION + TOMBSTONE)                   # over: not shown, the purge will take it
    assert db.execute("DELETE FROM idem_records").rowcount == 0
    assert one(db, "SELECT idem_purge()") == 1


def test_rollback_of_every_kind_of_write(db):
    insert(db, "done")
    update(db, "state = 'completed', response = 'x'", "done")
    insert(db, "open")
    before = db.execute("SELECT * FROM idem_store ORDER BY id").fetchall()
    events = audit(db)
    db.execute("BEGIN")
    insert(db, "new")
    update(db, "state = 'released'", "open")
    db.execute("DELETE FROM idem_records WHERE key = 'done'")
    assert one(db, "SELECT count(*) FROM idem_store") == 2
    db.execute("ROLLBACK")
    assert db.execute("SELECT * FROM idem_store ORDER BY id").fetchall() == before
    assert audit(db) == events


def test_pythons_default_mode_opens_its_transaction(path, db):
    """The write is undone with the business rows, since the driver sees that it is one."""
    other = connect(path, init=False, isolation_level="")
    for end in (other.rollback, other.commit):
        insert(other)
        assert other.in_transaction
        update(other, "state = 'completed', response = 'x'")
        end()
        assert (record(db, "k") is None) == (end == other.rollback)
    other.close()


def test_a_longer_token_is_another_token(db):
    """128 characters are the limit: what is longer is not cut to it."""
    token = "t" * 128
    claim(db, "k", token=token)
    for longer in (token + "t", token + "\0", token * 2):
        found = db.execute("SELECT count(*) FROM idem_records WHERE key = 'k' AND token = ?",
                           (longer,)).fetchall()
        assert found == [(0,)]
        db.execute("UPDATE idem_records SET state = 'completed', response = 'x'"
                   " WHERE scope = 't' AND key = 'k' AND token = ?", (longer,))
        assert one(db, "SELECT changes()") == 0
    assert record(db, "k")["state"] == "processing"


def test_a_blob_is_no_token(db):
    """As in SQL: a blob equals no text. A driver that binds bytes finds no row, and is not believed."""
    claim(db, "k", token="token-of-its-own")
    for rows in (db.execute("SELECT key FROM idem_records WHERE token = ?", (b"token-of-its-own",)),
                 db.execute("UPDATE idem_records SET state = 'released' WHERE scope = 't'"
                            " AND key = 'k' AND token = ?", (b"token-of-its-own",))):
        assert rows.fetchall() == []
    assert record(db, "k")["state"] == "processing"
    assert db.execute("SELECT key FROM idem_records WHERE token = ?",
                      ("token-of-its-own",)).fetchall() == [("k",)]


@pytest.mark.parametrize("spelled", [int, float, str])
def test_a_rowid_however_it_is_bound(db, spelled):
    """JavaScript binds 2.0, Perl '2'. What equals no rowid touches nothing."""
    for key in "ab":
        complete(db, key, won(db, key))
    rowid = one(db, "SELECT rowid FROM idem_records WHERE key = 'b'")
    for other in (rowid + 0.5, f"{rowid}x", "", b"2", None, 1e300, -1.0):
        assert db.execute("DELETE FROM idem_records WHERE rowid = ?", (other,)).rowcount == 0
        assert db.execute("SELECT key FROM idem_records WHERE rowid = ?", (other,)).fetchall() == []
    assert one(db, "SELECT key FROM idem_records WHERE rowid = ?", spelled(rowid)) == "b"
    assert db.execute("DELETE FROM idem_records WHERE rowid = ?", (spelled(rowid),)).rowcount == 1
    assert one(db, "SELECT group_concat(key) FROM idem_records") == "a"


def test_token_is_proves_as_token_equals(db):
    insert(db)
    sql = "UPDATE idem_records SET state = 'completed', response = 'r' WHERE scope = 't' AND key = 'k' AND token IS ?"
    for nobodys in (None, OTHER, TOKEN.upper(), TOKEN.encode()):
        assert db.execute(sql, (nobodys,)).rowcount == 0
    assert record(db, "k")["state"] == "processing"
    assert db.execute(sql, (TOKEN,)).rowcount == 1 and record(db, "k")["response"] == "r"
    assert db.execute("SELECT key FROM idem_records WHERE token IS ?", (TOKEN,)).fetchall() == [("k",)]


@pytest.mark.parametrize("column", ["scope", "key", "fingerprint", "attempt", "outcome"])
def test_a_column_that_no_verb_sets_is_named(db, column):
    insert(db)
    refused(db, f"UPDATE idem_records SET {column} = 'z' WHERE key = 'k' AND token = ?", TOKEN, text=f"column {column}",
            code="SQLITE_ERROR")


def test_another_schemas_name_is_mains_table(db, tmp_path):
    """README says so: SQLite does not tell a table that is in every schema which one was meant."""
    fresh(tmp_path / "other.db").close()
    db.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    insert(db)
    assert db.execute("SELECT key FROM other.idem_records").fetchall() == [("k",)]
    assert one(db, "SELECT count(*) FROM other.idem_store") == 0

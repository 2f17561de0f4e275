"""sql/ops/after_restore.sql: after a backup is restored, nothing of the time before goes on by
itself. The restored file is a copy made by VACUUM INTO while work was going on; the original lives
on and does what the copy will have forgotten.
"""
import sqlite3
import subprocess

import pytest

from conftest import claim, connect, one, policy, record
from ops.ops_kit import run, shell, statements, text

REASON = "restored on 2026-11-30, backup of 14:05: an operator's word"
TOKEN = "token-0123456789-"
KEYS = ("running", "running-retry", "done", "released", "released-retry", "unknown",
        "unknown-retry")


def everything(db):
    return [db.execute(f"SELECT * FROM {name}").fetchall() for name in ("idem_store", "idem_audit")]


def operation(key):
    return "may run twice" if key.endswith("retry") else "pay"


@pytest.fixture
def restored(tmp_path, path):
    """A restored file: records of every kind at the moment of the backup. The original went on."""
    live = connect(path)
    policy(live, "may run twice", on_stale="retry", max_attempts=2)
    for key in KEYS:
        assert claim(live, key, operation=operation(key), token=TOKEN + key)["outcome"] == "claimed"
    one(live, "SELECT idem_checkpoint('t', 'running', ?, 'reserved', 'order 7')", TOKEN + "running")
    one(live, "SELECT idem_complete('t', 'done', ?, 'the answer', 201)", TOKEN + "done")
    for key in KEYS:
        if key.startswith("released"):
            one(live, "SELECT idem_release('t', ?, ?)", key, TOKEN + key)
        if key.startswith("unknown"):
            one(live, "SELECT idem_suspend('t', ?, ?, 'timeout')", key, TOKEN + key)
    copy = tmp_path / "restored.db"
    live.execute("VACUUM INTO ?", (str(copy),))
    one(live, "SELECT idem_complete('t', 'running', ?, 'lost answer')", TOKEN + "running")
    one(live, "SELECT idem_complete('t', 'running-retry', ?, 'lost')", TOKEN + "running-retry")
    again = claim(live, "released", operation="pay", token=TOKEN + "again")
    assert (again["outcome"], again["attempt"]) == ("claimed", 2)
    live.close()
    return copy


def test_every_kind_of_record(restored):
    db = connect(restored)
    shown = run(db, "after_restore", reason=REASON)[-1]
    unknown = {"running", "released", "unknown", "unknown-retry"}
    assert {(row[1], row[3]) for row in shown} == (
        {(key, "unknown") for key in unknown}
        | {("running-retry", "released"), ("released-retry", "released")})
    assert one(db, "SELECT recovery_point FROM idem_records WHERE key = 'running'") == "reserved"

    answer = claim(db, "done", operation="pay")
    assert (answer["outcome"], answer["response"], answer["code"]) == ("replay", "the answer", 201)
    for key in KEYS:
        if key == "done":
            continue
        for call in ("SELECT idem_complete('t', ?, ?, 'late')", "SELECT idem_release('t', ?, ?)",
                     "SELECT idem_renew('t', ?, ?)", "SELECT idem_suspend('t', ?, ?)"):
            with pytest.raises(sqlite3.IntegrityError, match="claim lost"):
                one(db, call, key, TOKEN + key)
        answer = claim(db, key, operation=operation(key))
        if key in unknown:
            assert (answer["outcome"], answer["attempt"]) == ("unknown", 1001)
        else:
            assert (answer["outcome"], answer["attempt"]) == ("claimed", 1002)
    # An old token is no token for a new attempt either, and somebody can decide.
    one(db, "SELECT idem_resolve('t', 'running', 'retry', 'the provider knows nothing')")
    with pytest.raises(sqlite3.Error, match="token"):
        claim(db, "running", operation="pay", token=TOKEN + "running")
    assert claim(db, "running", operation="pay")["attempt"] == 1002
    db.close()


def test_attempts_left_do_not_change(restored):
    """max_attempts is 2 and one was used: one more, then exhausted."""
    db = connect(restored)
    run(db, "after_restore", reason=REASON)
    row = claim(db, "released-retry", operation="may run twice", token=TOKEN + "second")
    assert row["outcome"] == "claimed"
    one(db, "SELECT idem_release('t', 'released-retry', ?)", TOKEN + "second")
    assert claim(db, "released-retry", operation="may run twice")["outcome"] == "exhausted"
    db.close()


def test_the_audit_tells_it_and_twice_is_once(restored):
    db = connect(restored)
    before = one(db, "SELECT max(id) FROM idem_audit")
    run(db, "after_restore", reason=REASON)
    rows = db.execute("SELECT event, key, detail FROM idem_audit WHERE id > ?",
                      (before,)).fetchall()
    assert rows[-1] == ("restore", REASON, "records fenced: 6")
    assert sorted(rows[:-1]) == sorted(
        [("suspend", key, REASON)
         for key in ("running", "released", "unknown", "unknown-retry")]
        + [("release", key, REASON) for key in ("running-retry", "released-retry")])
    assert one(db, "SELECT idem_audit_verify()") is None
    state = everything(db)
    run(db, "after_restore", reason=REASON)
    assert everything(db) == state
    run(db, "after_restore", reason="another restore")
    assert record(db, "running")["attempt"] == 2001
    db.close()


@pytest.mark.parametrize("reason", [None, "", "x" * 1001])
def test_without_a_reason_nothing_happens(restored, reason):
    db = connect(restored)
    before = db.execute("SELECT * FROM idem_store").fetchall()
    with pytest.raises(sqlite3.OperationalError, match=":reason is required, 1 to 1000 characters"):
        run(db, "after_restore", reason=reason)
    # Even for somebody who goes on after the errors.
    errors = []
    for part in statements(text("after_restore")):
        try:
            db.execute(part, {"reason": reason}).fetchall()
        except sqlite3.Error as error:
            errors.append(str(error))
    assert errors[1:] == ["NOT NULL constraint failed: idem_audit.key"]
    assert db.execute("SELECT * FROM idem_store").fetchall() == before
    db.close()


def test_from_the_shell(restored):
    lines = shell(restored, "after_restore", reason=REASON)
    assert lines[0] == "schema version 1"
    assert lines[1:] == ["t|unknown-retry|may run twice|unknown|1001|",
                         "t|released|pay|unknown|1001|",
                         "t|running|pay|unknown|1001|reserved", "t|unknown|pay|unknown|1001|",
                         "t|released-retry|may run twice|released|1001|",
                         "t|running-retry|may run twice|released|1001|"]
    with pytest.raises(subprocess.CalledProcessError) as failure:
        shell(restored, "after_restore")
    assert ":reason is required, 1 to 1000 characters" in failure.value.stderr


def test_a_store_that_poses_is_refused(restored):
    db = connect(restored)
    db.execute("CREATE TRIGGER evil AFTER UPDATE ON idem_store BEGIN SELECT 1; END")
    with pytest.raises(sqlite3.Error, match="evil"):
        run(db, "after_restore", reason=REASON)
    assert record(db, "running")["state"] == "processing"
    db.close()

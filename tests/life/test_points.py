"""Recovery points: a named step with its data, that a later attempt continues from."""
import json

import pytest
from life_kit import LEASE, T, claim, clock, complete, connect, fresh, one, policy, record, refused, won

VALUES = [
    "text", "", "a\u0000b", "\u00e9\U0001f600", '{"n": 1.50, "a":  [1 ,2]}', b"bytes", b"", b"\x00\xff\x80", None,
    "x" * 1_048_576, b"\x00" * 1_048_576,
]


@pytest.fixture
def db(path):
    db = fresh(path)
    policy(db, on_stale="retry")
    yield db
    db.close()


def same(got, want):
    assert type(got) is type(want) and got == want


@pytest.mark.parametrize("data", VALUES, ids=lambda v: f"{type(v).__name__}-{len(v) if v else v!r}")
@pytest.mark.parametrize("how", ["stale", "released", "resolved"])
def test_a_later_attempt_gets_point_and_data_back(db, path, data, how):
    token = won(db, "k")
    assert one(db, "SELECT idem_checkpoint('t', 'k', ?, 'charged', ?)", token, data) == 1
    if how == "stale":
        clock(db, T + LEASE)
    elif how == "released":
        one(db, "SELECT idem_release('t', 'k', ?)", token)
    else:
        one(db, "SELECT idem_suspend('t', 'k', ?)", token)
        one(db, "SELECT idem_resolve('t', 'k', 'retry')")
    other = connect(path, init=False)                      # another worker, as after a crash
    clock(other, T + LEASE)
    got = claim(other, "k")
    assert (got["outcome"], got["attempt"], got["recovery_point"]) == ("claimed", 2, "charged")
    same(got["checkpoint"], data)
    rows = other.execute("SELECT recovery_point, checkpoint FROM idem_records WHERE scope = 't' "
                         "AND key = 'k'").fetchall()
    same(rows[0][1], data)
    other.close()


@pytest.mark.parametrize("data", [v for v in VALUES if v is None or len(v) < 100])
def test_the_json_answer_carries_the_data(db, data):
    import base64
    token = won(db, "k")
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'p', ?)", token, data)
    one(db, "SELECT idem_release('t', 'k', ?)", token)
    got = json.loads(one(db, "SELECT idem_claim('t', 'k', 'fp')"))
    assert got["recovery_point"] == "p"
    if isinstance(data, bytes):
        assert base64.b64decode(got["checkpoint_base64"]) == data and "checkpoint" not in got
    else:
        assert got.get("checkpoint") == data


def test_without_data_the_data_is_null(db):
    token = won(db, "k")
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'one', 'data')", token)
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'two')", token)
    one(db, "SELECT idem_release('t', 'k', ?)", token)
    got = claim(db, "k")
    assert (got["recovery_point"], got["checkpoint"]) == ("two", None)


def test_points_survive_many_attempts_until_replaced(db):
    token = won(db, "k")
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'reserved', 'r')", token)
    for attempt in range(2, 6):
        clock(db, T + attempt * LEASE)
        got = claim(db, "k")
        assert (got["attempt"], got["recovery_point"], got["checkpoint"]) == (attempt, "reserved", "r")
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'charged', 'c')", got["token"])
    clock(db, T + 9 * LEASE)
    got = claim(db, "k")
    assert (got["recovery_point"], got["checkpoint"]) == ("charged", "c")


def test_a_checkpoint_renews_the_lease(db):
    token = won(db, "k")
    clock(db, T + 40_000)
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'p')", token)
    clock(db, T + 40_000 + LEASE - 1)
    assert claim(db, "k")["retry_after_ms"] == 1
    clock(db, T + 40_000 + LEASE)
    assert claim(db, "k")["attempt"] == 2


def test_a_superseded_worker_cannot_set_a_point(db):
    first = won(db, "k")
    clock(db, T + LEASE)
    second = won(db, "k")
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'second', 's')", second)
    before = record(db, "k")
    refused(db, "SELECT idem_checkpoint('t', 'k', ?, 'first', 'f')", first, text="claim lost",
            begins="idem_checkpoint:")
    assert record(db, "k") == before


def test_a_checkpoint_and_its_step_are_one_transaction(db):
    db.execute("CREATE TABLE stock(sku TEXT PRIMARY KEY, free INTEGER) STRICT")
    db.execute("INSERT INTO stock VALUES ('s', 5)")
    token = won(db, "k")
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE stock SET free = free - 1")
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'reserved')", token)
    db.execute("ROLLBACK")
    assert one(db, "SELECT free FROM stock") == 5 and record(db, "k")["recovery_point"] is None
    # The other way round: a lost claim takes the step back with it.
    clock(db, T + LEASE)
    won(db, "k")
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE stock SET free = free - 1")
    refused(db, "SELECT idem_checkpoint('t', 'k', ?, 'reserved')", token, text="claim lost")
    db.execute("ROLLBACK")
    assert one(db, "SELECT free FROM stock") == 5


def test_a_new_life_begins_without_a_point(db):
    policy(db, retention_ms=1000, tombstone_ms=1000)
    token = won(db, "k")
    one(db, "SELECT idem_checkpoint('t', 'k', ?, 'old', 'life')", token)
    complete(db, "k", token)
    clock(db, T + 2000)
    got = claim(db, "k")
    assert (got["outcome"], got["attempt"]) == ("claimed", 1)
    assert got["recovery_point"] is None and got["checkpoint"] is None
    one(db, "SELECT idem_release('t', 'k', ?)", got["token"])
    got = claim(db, "k")
    assert (got["attempt"], got["recovery_point"], got["checkpoint"]) == (2, None, None)


@pytest.mark.parametrize("point, text", [
    (None, "NULL"), ("", "empty"), ("p" * 256, "256 characters, the limit is 255"), ("a\nb", "control"),
    (b"blob", "not TEXT"), (7, "not TEXT"), ("a\u0000b", "control")], ids=range(7))
def test_bad_points_are_refused(db, point, text):
    token = won(db, "k")
    before = record(db, "k")
    refused(db, "SELECT idem_checkpoint('t', 'k', ?, ?)", token, point, text=text, code="SQLITE_ERROR",
            begins="idem_checkpoint: recovery point")
    assert record(db, "k") == before


@pytest.mark.parametrize("data, text", [
    (1, "a number"), (1.5, "a number"), ("x" * 1_048_577, "1048577 bytes, the limit is 1048576")],
                         ids=["integer", "real", "too large"])
def test_bad_data_is_refused(db, data, text):
    token = won(db, "k")
    before = record(db, "k")
    refused(db, "SELECT idem_checkpoint('t', 'k', ?, 'p', ?)", token, data, text=text,
            code="SQLITE_ERROR", begins="idem_checkpoint: data")
    assert record(db, "k") == before


def test_the_longest_point_round_trips(db):
    token = won(db, "k")
    one(db, "SELECT idem_checkpoint('t', 'k', ?, ?)", token, "\u00e9" * 255)
    one(db, "SELECT idem_release('t', 'k', ?)", token)
    assert claim(db, "k")["recovery_point"] == "\u00e9" * 255

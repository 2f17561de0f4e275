"""idem_seen: events of at-least-once senders are handled once."""
import pytest
from life_kit import (CHILD, DAY, SO, T, child, clock, connect, fresh, one, policy, refused)


@pytest.fixture
def db(path):
    db = fresh(path)
    yield db
    db.close()


def seen(db, event, source="stripe", *fingerprint):
    marks = ", ?" * len(fingerprint)
    return one(db, f"SELECT idem_seen(?, ?{marks})", source, event, *fingerprint)


def rows(db):
    return db.execute("SELECT * FROM idem_inbox ORDER BY source, event_id").fetchall()


def test_the_first_time_and_never_again(db):
    assert [seen(db, "evt_1") for _ in range(4)] == [1, 0, 0, 0]
    assert rows(db) == [("stripe", "evt_1", None, T, T + 30 * DAY)]


def test_a_repeat_writes_nothing_and_works_read_only(db, path):
    seen(db, "evt_1")
    before = rows(db)
    reader = connect(f"file:{path}?mode=ro", init=False, uri=True)
    clock(reader, T + 1)
    assert seen(reader, "evt_1") == 0
    refused(reader, "SELECT idem_seen('stripe', 'evt_2')", text="read-only", code="SQLITE_READONLY",
            begins="idem_seen:")
    reader.close()
    clock(db, T + 1)
    assert seen(db, "evt_1") == 0 and rows(db) == before


def test_rollback_makes_the_redelivery_new_again(db):
    db.execute("CREATE TABLE effect(event TEXT)")
    for end in ("ROLLBACK", "COMMIT"):
        db.execute("BEGIN IMMEDIATE")
        assert seen(db, "evt_1") == 1
        db.execute("INSERT INTO effect VALUES ('evt_1')")
        db.execute(end)
    db.execute("BEGIN IMMEDIATE")
    assert seen(db, "evt_1") == 0
    db.execute("COMMIT")
    assert one(db, "SELECT count(*) FROM effect") == 1


def test_rollback_through_the_carrier_in_pythons_default_mode(path, db):
    other = connect(path, init=False, isolation_level="")
    clock(other, T)
    sql = "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_seen('stripe', 'evt_1')"
    assert other.execute(sql).fetchall() == [(1,)] and other.in_transaction
    other.rollback()
    assert other.execute(sql).fetchall() == [(1,)]
    other.commit()
    assert other.execute(sql).fetchall() == [(0,)]
    other.close()
    assert seen(db, "evt_1") == 0


def test_savepoint_rollback(db):
    db.execute("BEGIN")
    db.execute("SAVEPOINT s")
    assert seen(db, "evt_1") == 1
    db.execute("ROLLBACK TO s")
    assert seen(db, "evt_1") == 1
    db.execute("COMMIT")
    assert seen(db, "evt_1") == 0


def test_source_and_event_are_two_columns(db):
    pairs = [("a", "b:c"), ("a:b", "c"), ("a", "b"), ("A", "b"), ("a", "B"), ("a ", "b"), ("a", " b"),
             ("a", "b%"), ("\u00e9", "e"), ("e\u0301", "e")]
    assert [seen(db, event, source) for source, event in pairs] == [1] * len(pairs)
    assert [seen(db, event, source) for source, event in pairs] == [0] * len(pairs)


@pytest.mark.parametrize("first, other", [
    ("fp", "fp2"), ("fp", b"fp"), (b"\x00\x01", b"\x00\x02"), ("idem1:" + "0" * 64, "idem1:" + "1" * 64)])
def test_the_same_event_with_other_content_is_an_error(db, first, other):
    assert seen(db, "evt_1", "stripe", first) == 1
    before = rows(db)
    refused(db, "SELECT idem_seen('stripe', 'evt_1', ?)", other, text="another fingerprint",
            begins="idem_seen:")
    assert rows(db) == before
    assert seen(db, "evt_1", "stripe", first) == 0
    assert seen(db, "evt_1") == 0                          # one that says nothing of content
    assert seen(db, "evt_1", "stripe", None) == 0


@pytest.mark.parametrize("first, later", [
    ("idem1:" + "0" * 64, "idemh1:" + "0" * 64), ("idem1:" + "0" * 64, "idem2:" + "0" * 64),
    ("idemr1:" + "0" * 64, b"idem1:" + b"0" * 64)])
def test_fingerprints_of_two_forms_are_no_forgery(db, first, later):
    """As in a claim: what cannot be compared is not called different content."""
    assert seen(db, "evt_1", "stripe", first) == 1
    error = refused(db, "SELECT idem_seen('stripe', 'evt_1', ?)", later, text="cannot be compared",
                    code="SQLITE_ERROR", begins="idem_seen:")
    assert first[:first.index(":") + 1] in str(error) and "0000" not in str(error)
    assert seen(db, "evt_1", "stripe", first) == 0


def test_a_first_delivery_without_content_fits_any(db):
    assert seen(db, "evt_1") == 1
    assert seen(db, "evt_1", "stripe", "fp") == 0
    assert seen(db, "evt_1", "stripe", "other") == 0


def test_retention_of_the_source_else_of_inbox_else_default(db):
    policy(db, "inbox:bank", retention_ms=1000)
    policy(db, "inbox", retention_ms=5000)
    policy(db, "*", retention_ms=9000)
    assert seen(db, "e", "bank") == 1 and seen(db, "e", "stripe") == 1
    db.execute("DELETE FROM idem_policy WHERE operation = 'inbox'")
    assert seen(db, "e", "third") == 1
    assert dict(db.execute("SELECT source, expires_at - seen_at FROM idem_inbox")) == {
        "bank": 1000, "stripe": 5000, "third": 9000}
    clock(db, T + 999)
    assert seen(db, "e", "bank") == 0
    clock(db, T + 1000)                                    # now >= t is over, purged or not
    assert seen(db, "e", "bank") == 1
    assert seen(db, "e", "bank") == 0
    assert seen(db, "e", "stripe") == 0
    clock(db, T + 5000)
    assert seen(db, "e", "stripe") == 1


def test_after_its_time_an_event_may_come_with_other_content(db):
    policy(db, "inbox", retention_ms=1000)
    assert seen(db, "e", "s", "fp") == 1
    clock(db, T + 1000)
    assert seen(db, "e", "s", "other") == 1
    refused(db, "SELECT idem_seen('s', 'e', 'fp')", text="another fingerprint")


def test_purge_removes_events_that_are_over(db):
    policy(db, "inbox", retention_ms=1000)
    for i in range(10):
        seen(db, f"e{i}")
    clock(db, T + 500)
    seen(db, "young")
    clock(db, T + 1499)
    assert one(db, "SELECT idem_purge(4)") == 4
    assert one(db, "SELECT idem_purge(100)") == 6
    assert one(db, "SELECT idem_purge(100)") == 0
    assert [row[1] for row in rows(db)] == ["young"]
    assert seen(db, "young") == 0


@pytest.mark.parametrize("source, event, fingerprint, text", [
    (None, "e", "f", "source is NULL"), ("", "e", "f", "source is empty"),
    ("s" * 256, "e", "f", "source is 256 characters, the limit is 255"),
    ("a\u0000b", "e", "f", "source holds a NUL"), (b"s", "e", "f", "source is not TEXT"),
    ("s", None, "f", "event id is NULL"), ("s", "", "f", "event id is empty"),
    ("s", "e" * 256, "f", "event id is 256 characters, the limit is 255"),
    ("s", "e\n", "f", "event id holds a NUL or another control character"),
    ("s", 7, "f", "event id is not TEXT"), ("s", "e", "", "fingerprint is empty"),
    ("s", "e", 7, "fingerprint is a number"), ("s", "e", "f" * 129, "129 bytes, the limit is 128")],
    ids=range(13))
def test_bad_arguments_are_refused(db, source, event, fingerprint, text):
    refused(db, "SELECT idem_seen(?, ?, ?)", source, event, fingerprint, text=text, code="SQLITE_ERROR",
            begins="idem_seen:")
    assert rows(db) == []


@pytest.mark.parametrize("begin, commit", [("BEGIN IMMEDIATE", "COMMIT"), ("BEGIN", "COMMIT"), ("", "")])
def test_two_processes_see_each_event_once_between_them(db, path, journal, begin, commit):
    db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
    script = CHILD + """
db.execute("PRAGMA synchronous = OFF")
n = 0
for i in range(300):
    db.execute(sys.argv[3])
    n += db.execute("SELECT idem_seen('s', ?)", (f"e{i}",)).fetchone()[0]
    db.execute(sys.argv[4])
print(n)
"""
    db.execute("PRAGMA synchronous = OFF")
    children = [child(script, path, SO, begin, commit) for _ in range(2)]
    counts = [int(c.communicate(timeout=60)[0]) for c in children]
    assert sum(counts) == 300 and one(db, "SELECT count(*) FROM idem_inbox") == 300

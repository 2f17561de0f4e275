"""The operator's recipes under sql/ops/, each run through Python's driver and by the shell."""
import json
import re
import sqlite3
import subprocess

import pytest

from conftest import ROOT, SO, claim, connect, one, policy, record
from ledger_book import Book
from ops.ops_kit import quoted, run, shell, shell_says, statements, text

TOKEN = "token-0123456789"
HOUR = 3600000
HEAD = "SELECT id, digest FROM idem_audit ORDER BY id DESC LIMIT 1"


def files():
    return sorted(p.stem for p in (ROOT / "sql" / "ops").glob("*.sql"))


@pytest.fixture
def busy(path):
    """A store in which something of every kind is stuck, all of it two hours old."""
    db = connect(path)
    policy(db, "again", on_stale="retry")
    policy(db, "thrice", max_attempts=1)
    policy(db, "long", lease_ms=24 * HOUR)
    now = one(db, "SELECT idem_clock()")
    one(db, "SELECT idem_clock(?)", now - 2 * HOUR)
    for key, operation in (("dead", "pay"), ("silent", "again"), ("asked", "pay"), ("slow", "long"),
                           ("given back", "pay"), ("worn out", "thrice"), ("done", "pay")):
        assert claim(db, key, operation=operation, token=TOKEN)["outcome"] == "claimed"
    one(db, "SELECT idem_checkpoint('t', 'dead', ?, 'charged')", TOKEN)
    one(db, "SELECT idem_suspend('t', 'asked', ?, 'the bank timed out')", TOKEN)
    one(db, "SELECT idem_release('t', 'given back', ?, 'no stock')", TOKEN)
    one(db, "SELECT idem_release('t', 'worn out', ?, 'no stock')", TOKEN)
    one(db, "SELECT idem_complete('t', 'done', ?, 'the answer', 201)", TOKEN)
    assert claim(db, "other tenant's", scope="u", token=TOKEN)["outcome"] == "claimed"
    one(db, "SELECT idem_clock(NULL)")
    assert claim(db, "fresh", operation="pay", token=TOKEN)["outcome"] == "claimed"
    yield db
    db.close()


def test_every_recipe_is_bundled_tested_and_in_the_table():
    db = connect(":memory:")
    for name in files():
        assert one(db, "SELECT idem_schema(?)", f"ops/{name}") == text(name)
    readme = (ROOT / "sql" / "README.md").read_text()
    tests = "".join(p.read_text() for p in (ROOT / "tests" / "ops").glob("test_*.py"))
    assert [n for n in files() if f"(ops/{n}.sql)" not in readme] == []
    assert [n for n in files() if f'"{n}"' not in tests] == []


def test_every_parameter_is_explained():
    for name in files():
        comments = "".join(line for line in text(name).splitlines(True) if line.startswith("--"))
        code = "".join(line for line in text(name).splitlines(True) if not line.startswith("--"))
        asked = set(re.findall(r"(?<![\w:]):([a-z]\w*)", code))
        assert asked <= set(re.findall(r":([a-z]\w*)", comments)), name


@pytest.mark.parametrize("file", sorted((ROOT / "sql").rglob("*.sql")), ids=lambda p: p.stem)
def test_no_having_without_group_by(file):
    """SQLite 3.37 and 3.38 refuse it, the SQLite of these tests may not."""
    left = re.sub(r"'[^']*'|\"[^\"]*\"|--[^\n]*", "", file.read_text())
    while left:
        inner = re.search(r"\([^()]*\)", left)        # from the innermost brackets outwards
        part, left = (inner[0], left.replace(inner[0], "")) if inner else (left, "")
        for select in re.split(r"\bSELECT\b|;", part):
            assert "HAVING" not in select or "GROUP BY" in select, select


def test_stuck(busy, path):
    rows = run(busy, "stuck", scope="t", slow_ms=None)[0]
    assert {(row[1], row[3], row[4], row[6]) for row in rows} == {
        ("dead", "lease over", 1, 1), ("silent", "not taken over", 0, 1),
        ("asked", "suspended", 1, 1), ("slow", "slow", 0, 1), ("given back", "not retried", 0, 1),
        ("worn out", "exhausted", 1, 1)}
    assert [row[4] for row in rows] == [1, 1, 1, 0, 0, 0], "what blocks comes first"
    one_row = {row[1]: row for row in rows}
    assert one_row["dead"][7] == "charged" and one_row["asked"][8] == "the bank timed out"
    assert abs(one_row["dead"][10] - 7200) < 60
    assert len(run(busy, "stuck", scope=None, slow_ms=None)[0]) == 7
    assert "slow" not in {row[1] for row in run(busy, "stuck", scope="t", slow_ms=3 * HOUR)[0]}
    assert len(shell(path, "stuck", "-readonly")) == 7
    assert len(shell(path, "stuck", "-readonly", scope="u")) == 1


def test_history(busy, path):
    state, events = run(busy, "history", scope="t", key="asked")
    assert state[0][:3] == ("pay", "unknown", "unknown") and state[0][6] == "the bank timed out"
    assert [row[2:] for row in events] == [("suspend", 1, "the bank timed out")]
    assert run(busy, "history", scope="t", key="aksed") == [[("no record of this scope and key",)]]
    lines = shell(path, "history", "-readonly", scope="t", key="asked")
    assert len(lines) == 2 and lines[0].startswith("pay|unknown|unknown|1|")


def test_resolve_completed(busy, path):
    shown = run(busy, "resolve_completed", scope="t", key="dead", response='{"charge":1}', code=201,
                no_response=None, headers=None)
    assert shown == [[(1,)], [("dead", "completed", 201, '{"charge":1}')]]
    assert claim(busy, "dead", operation="pay")["outcome"] == "replay"
    with pytest.raises(sqlite3.IntegrityError, match="claim lost"):
        one(busy, "SELECT idem_complete('t', 'dead', ?, 'late')", TOKEN)
    assert shell(path, "resolve_completed", scope="t", key="asked", response="it's done",
                 code=200) == ["1", "asked|completed|200|it's done"]
    with pytest.raises(sqlite3.IntegrityError, match="live"):
        run(busy, "resolve_completed", scope="t", key="fresh", response="x", code=200, headers=None,
            no_response=None)


def test_an_answer_is_never_empty_by_mistake(busy, path):
    """A newcomer's quotes: .param prints its help, sets nothing, and -bail goes on."""
    wrong, right = '{"payment": "pay_9"}', '"\'{\\"payment\\":\\"pay_1\\"}\'"'
    key = """.param set :scope "'t'"\n.param set :key "'asked'"\n"""
    script = f".load {SO.removesuffix('.so')}\n{key}.param set :response {{}}\n" \
             f".read {ROOT}/sql/ops/resolve_completed.sql\n"
    before = busy.execute("SELECT * FROM idem_store").fetchall()
    done = shell_says(path, script.format(wrong), "-bail")
    assert done.stdout.startswith(".parameter CMD") and done.returncode == 1
    assert "NOTHING DONE: :response is NULL or not set" in done.stderr
    for name in ("resolve_completed", "adopt"):
        values = {**dict.fromkeys(("response", "no_response", "code", "headers")), "scope": "t",
                  "key": "asked", "fingerprint": "fp", "operation": "pay", "token": TOKEN}
        with pytest.raises(sqlite3.OperationalError, match="NOTHING DONE: :response"):
            run(busy, name, **values)
        if busy.in_transaction:
            busy.execute("ROLLBACK")
    # Without a token of one's own the claim would stay, and could not be completed.
    with pytest.raises(sqlite3.OperationalError, match="NOTHING DONE: :token is not set"):
        run(busy, "adopt", **{**values, "response": "x", "token": None})
    busy.execute("ROLLBACK")
    assert busy.execute("SELECT * FROM idem_store").fetchall() == before
    # As the header of the file writes it.
    assert f".param set :response {right}" in text("resolve_completed")
    assert shell_says(path, script.format(right), "-bail").returncode == 0
    assert claim(busy, "asked", operation="pay")["response"] == '{"payment":"pay_1"}'
    # No body is an answer too, if somebody says so.
    assert shell(path, "resolve_completed", scope="t", key="dead", no_response=1, code=204) == [
        "1", "dead|completed|204|"]
    assert shell(path, "adopt", scope="t", key="lost", no_response=1, code=204, fingerprint="fp",
                 operation="pay", token=TOKEN) == ["claimed", "1"]


def test_a_retry_that_was_a_mistake(busy, path):
    """resolve_retry said that it did not happen. It did, and nobody has retried yet."""
    run(busy, "resolve_retry", scope="t", key="dead", reason="never charged")
    with pytest.raises(sqlite3.IntegrityError, match="nothing to resolve"):
        run(busy, "resolve_completed", scope="t", key="dead", response="x", no_response=None,
            code=201, headers=None)
    found = "(SELECT fingerprint FROM idem_records WHERE scope = 't' AND key = 'dead')"
    assert found.replace("'t'", "'a'").replace("dead", "p1") in text("adopt")
    values = {"scope": "t", "key": "dead", "operation": "pay", "response": "it was charged",
              "code": 201, "token": "adopted-2026-11-30"}
    with pytest.raises(subprocess.CalledProcessError) as failure:
        shell(path, "adopt", fingerprint="lost", **values)
    assert "claim lost" in failure.value.stderr
    assert record(busy, "dead")["state"] == "released"
    script = [f".load {SO.removesuffix('.so')}", f'.param set :fingerprint "{found}"',
              *(f'.param set :{k} "{quoted(v)}"' for k, v in values.items()),
              f".read {ROOT}/sql/ops/adopt.sql"]
    done = shell_says(path, "\n".join(script) + "\n", "-bail")
    assert (done.stdout, done.stderr) == ("claimed\n1\n", "")
    assert claim(busy, "dead", operation="pay")["response"] == "it was charged"


def test_resolve_retry(busy, path):
    shown = run(busy, "resolve_retry", scope="t", key="worn out", reason="the stock is here")
    assert shown[1] == [("worn out", "released", 1, "the stock is here")]
    assert claim(busy, "worn out", operation="thrice")["attempt"] == 2
    assert shell(path, "resolve_retry", scope="t", key="dead", reason="never charged") == [
        "1", "dead|released|1|never charged"]
    with pytest.raises(subprocess.CalledProcessError) as failure:
        shell(path, "resolve_retry", scope="t", key="done", reason="why not")
    assert "completed" in failure.value.stderr


def test_adopt(busy, path):
    values = {"scope": "t", "operation": "pay", "response": "as it was", "no_response": None,
              "code": 201, "headers": None, "token": "adopted-2026-11-30"}
    assert run(busy, "adopt", key="lost 1", fingerprint="fp", **values) == [[("claimed",)], [(1,)]]
    assert claim(busy, "lost 1", operation="pay")["response"] == "as it was"
    assert shell(path, "adopt", key="lost 2", fingerprint="lost", **values) == ["claimed", "1"]
    assert claim(busy, "lost 2", operation="pay")["outcome"] == "mismatch"
    before = record(busy, "dead")
    with pytest.raises(sqlite3.Error):
        run(busy, "adopt", key="dead", fingerprint="fp", **values)
    busy.execute("ROLLBACK")
    assert record(busy, "dead") == before


@pytest.mark.parametrize("how", ["driver", "shell"])
def test_erase(tmp_path, how):
    path = tmp_path / "erase.db"
    db = connect(path)
    one(db, "PRAGMA journal_mode = WAL")
    secret = "Vardenis Pavardenis, Vilnius"
    now = one(db, "SELECT idem_clock()")
    for key, age in (("new", 0), ("answer over", 30 * HOUR), ("all over", 1000 * HOUR)):
        one(db, "SELECT idem_clock(?)", now - age)
        claim(db, key, scope="person", token=TOKEN, fingerprint=secret)
        one(db, "SELECT idem_complete('person', ?, ?, ?)", key, TOKEN, secret)
    one(db, "SELECT idem_clock(NULL)")
    claim(db, "runs", scope="person", token=TOKEN)
    claim(db, "another's", scope="other", token=TOKEN)
    one(db, "SELECT idem_complete('other', 'another''s', ?, 'kept')", TOKEN)
    if how == "driver":
        shown = run(db, "erase", scope="person", key=None)
        lines = ["|".join(map(str, row)) for rows in shown for row in rows]
        assert lines[-1] == "not erased|runs||processing|None"
        db.close()
    else:
        db.close()
        lines = shell(path, "erase", scope="person")
        assert lines[-1] == "not erased|runs||processing|"
    assert lines[:-1] == [
        "secure_delete, 1 is on:", "1", "erased: 2", "purged, of any scope: 1",
        "purged again, of any scope: 1",
        "checkpoint, 0 first is good: blocked, frames in the -wal, frames copied:", "0|0|0"]
    left = b"".join(p.read_bytes() for p in tmp_path.glob("erase.db*"))
    assert secret.encode() not in left and b"another's" in left
    db = connect(path)
    assert claim(db, "another's", scope="other")["response"] == "kept"
    assert one(db, "SELECT count(*) FROM idem_store WHERE scope = 'person'") == 1
    db.close()


def test_erase_is_short_and_says_if_more_is_to_do(path):
    """The purge takes everybody's records: with many due, others must be able to write meanwhile."""
    db = connect(path)
    now = one(db, "SELECT idem_clock()")
    db.execute("BEGIN")
    for scope, age in (("others", 1100 * HOUR), ("person", 1000 * HOUR)):
        one(db, "SELECT idem_clock(?)", now - age)
        n = 20_000 if scope == "others" else 1
        db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
                   " INSERT INTO idem_call SELECT idem_complete(?2, cast(i AS TEXT), json_extract(idem_claim("
                   "?2, cast(i AS TEXT), 'fp'), '$.token'), 'x') FROM n", (n, scope)).fetchall()
    db.execute("COMMIT")
    one(db, "SELECT idem_clock(NULL)")
    again, runs = ("not purged yet, run this again", 1), 0
    while [again] in run(db, "erase", scope="person", key=None):
        runs += 1
    assert runs == 2 and one(db, "SELECT count(*) FROM idem_store") < 20_000


def test_erase_says_if_bytes_are_left_in_the_wal(tmp_path):
    path = tmp_path / "erase.db"
    db, reader = connect(path), connect(path)
    one(db, "PRAGMA journal_mode = WAL")
    claim(db, "k", scope="person", token=TOKEN)
    one(db, "SELECT idem_complete('person', 'k', ?, 'Vardenis, Vilnius')", TOKEN)
    reader.execute("BEGIN")
    one(reader, "SELECT count(*) FROM idem_store")
    one(db, "PRAGMA busy_timeout = 0")
    shown = run(db, "erase", scope="person", key=None)
    assert ("erased: 1",) in shown[2] and shown[6][0][0] == 1
    left = (tmp_path / "erase.db-wal").read_bytes()
    assert b"Vardenis" in left
    reader.execute("COMMIT")
    assert run(db, "erase", scope="person", key=None)[6][0][0] == 0
    assert b"Vardenis" not in b"".join(p.read_bytes() for p in tmp_path.glob("erase.db*"))
    reader.close()
    db.close()


def test_policy(db, path):
    names = ("operation", "lease_ms", "retention_ms", "tombstone_ms", "wait_ms", "on_stale",
             "max_attempts", "max_response_bytes", "allow_content_key", "audit", "description")

    def change(**values):
        return json.loads(run(db, "policy", **{**dict.fromkeys(names), **values})[0][0][0])

    def row():
        return db.execute("SELECT * FROM idem_policy WHERE operation = 'pay'").fetchall()[0]

    policy(db, "*", retention_ms=HOUR)
    assert change(operation="pay", lease_ms=5000, on_stale="retry")["replay"]["for_seconds"] == 3600
    assert row() == ("pay", 5000, HOUR, 2592000000, 0, "retry", 0, 1048576, 0, "exceptions", None)
    change(operation="pay", max_attempts=3, description="a card payment")
    assert row() == ("pay", 5000, HOUR, 2592000000, 0, "retry", 3, 1048576, 0, "exceptions",
                     "a card payment")
    hint = "no record has this operation yet: is it spelt as it is claimed?"
    assert shell(path, "policy", load=False, operation="pay", audit="all", wait_ms=10)[1:] == [hint]
    assert row()[4] == 10 and row()[9] == "all" and row()[1] == 5000
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        change(operation="pay", lease_ms=0)
    db.execute("ROLLBACK")
    claim(db, "k", operation="pay")
    for known in ("pay", "*"):
        assert hint not in shell(path, "policy", load=False, operation=known, wait_ms=11)


def test_rotate_secret(db, path):
    old, new, body = "the old secret, 123", "the new secret, 456", '{"amount":1200}'
    ask = {"old_secret": old, "new_secret": new, "scope": "t", "body": body, "operation": "pay",
           "token": None}

    def outcome(**values):
        return json.loads(run(db, "rotate_secret_claim", **{**ask, **values})[0][0][0])["outcome"]

    def check(at):
        return run(db, "rotate_secret_check", rotated_at=at)[0][0]

    for key in ("done before", "in work"):
        one(db, "SELECT idem_claim('t', ?, idem_hmac_fingerprint(?, ?), 'pay', ?)", key, old, body,
            TOKEN)
    one(db, "SELECT idem_complete('t', 'done before', ?, 'x')", TOKEN)
    rotated = one(db, "SELECT idem_clock()")
    one(db, "SELECT idem_clock(?)", rotated + 1)
    assert outcome(key="done before") == "replay" and outcome(key="in work") == "in_progress"
    assert outcome(key="done before", body='{"amount":1}') == "mismatch"
    assert outcome(key="after") == "claimed" and outcome(key="after") == "in_progress"
    assert one(db, "SELECT fingerprint FROM idem_records WHERE key = 'after'") == one(
        db, "SELECT idem_hmac_fingerprint(?, ?)", new, body)
    assert "in_progress" in shell(path, "rotate_secret_claim", key="after", **ask)[0]

    assert check(rotated)[:2] == (2, 1) and check(rotated)[2]
    one(db, "SELECT idem_complete('t', 'in work', ?, 'x')", TOKEN)
    assert check(rotated)[:2] == (2, 0)
    one(db, "SELECT idem_clock(?)", rotated + 32 * 24 * HOUR)
    assert check(rotated) == (0, 0, None)
    assert shell(path, "rotate_secret_check", rotated_at=1000000000000) == ["0|0|"]
    # Seconds, a text, nothing: 0 records would destroy a secret that still serves.
    for mistake in (rotated // 1000, str(rotated), None):
        with pytest.raises(sqlite3.OperationalError, match="NOT KNOWN: :rotated_at is millisec"):
            check(mistake)


def test_audit_export(busy, path):
    lines = [row[0] for rows in run(busy, "audit_export", after_id=0, after_digest="idem-audit")
             for row in rows]
    assert lines[0] == "whole"
    rows = [json.loads(line) for line in lines[1:]]
    assert [row["event"] for row in rows] == ["suspend", "release", "release"]
    assert all(a["digest"] == b["prev"] for a, b in zip(rows, rows[1:]))
    last = {"after_id": rows[-1]["id"], "after_digest": rows[-1]["digest"]}
    one(busy, "SELECT idem_resolve('t', 'asked', 'retry', 'never charged')")
    more = shell(path, "audit_export", "-readonly", **last)
    assert more[0] == "whole" and json.loads(more[1])["detail"] == "never charged"
    assert len(more) == 2
    with pytest.raises(sqlite3.OperationalError, match="NOTHING EXPORTED: :after_id and :after_di"):
        run(busy, "audit_export", after_id=None, after_digest=None)
    # Another chain of the same length, and a shorter one, are both found out.
    for after in (3, 99):
        said = run(busy, "audit_export", after_id=after, after_digest="0" * 64)[0][0][0]
        assert said == f"BROKEN: row {after} is not the one that was exported"


def test_backup_and_restore_check(busy, path, tmp_path):
    copy, second = tmp_path / "copy.db", tmp_path / "second.db"
    reader = connect(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM idem_store").fetchall()      # others are at work
    lines = [row[0] for rows in run(busy, "backup", file=str(copy)) for row in rows]
    reader.execute("COMMIT")
    reader.close()
    head = busy.execute(HEAD).fetchall()[0]
    assert lines == ["audit: whole", "ok", f"audit head: {head[0]} {head[1]}"]
    assert shell(path, "backup", file=str(second)) == lines
    with pytest.raises(subprocess.CalledProcessError) as failure:
        shell(path, "backup", file=str(second))
    assert "exists" in failure.value.stderr

    def check(file, audit_id, audit_digest):
        return shell(file, "restore_check", audit_id=audit_id, audit_digest=audit_digest)

    whole = check(copy, *head)
    assert [line.rsplit(": ")[-1] for line in whole[:-1]] == ["ok"] * 5
    assert re.fullmatch(r"remembers until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC", whole[-1])
    assert check(copy, None, None)[4] == "audit head: not compared: ok"
    one(busy, "SELECT idem_resolve('t', 'asked', 'retry')")
    assert check(copy, *busy.execute(HEAD).fetchall()[0])[4] == "audit head: 1 rows are MISSING"
    assert check(copy, head[0], "0" * 64)[4] == "audit head: ANOTHER chain"


def test_restore_check_sees_damage(busy, path):
    busy.execute("PRAGMA writable_schema = ON")
    busy.execute("DROP TRIGGER idem_audit_no_update")
    busy.execute("UPDATE idem_audit SET detail = 'all was well' WHERE id = 1")
    busy.execute("CREATE TRIGGER idem_audit_no_update BEFORE UPDATE ON idem_audit\nBEGIN\n  SELECT "
                 "RAISE(ABORT, 'idem_audit is append-only: rows are never changed');\nEND")
    busy.execute("CREATE TABLE parent(id INTEGER PRIMARY KEY)")
    busy.execute("CREATE TABLE child(parent_id INTEGER REFERENCES parent)")
    busy.execute("INSERT INTO child VALUES (7)")
    lines = [row[0] for rows in run(busy, "restore_check", audit_id=None, audit_digest=None)
             for row in rows]
    assert lines[2] == "foreign keys: 1 rows without their parent"
    assert lines[3] == "audit: BROKEN at id 1"


def test_ledger_floor(tmp_path):
    """Invoices 1 and 2 are in the backup; 3 to 5 were sent out after it, and are lost."""
    book = Book(str(tmp_path / "book.db"))
    for order in ("A", "B"):
        book.invoice(order)
    kind, series, period = book.all(
        "SELECT s.doc_kind, s.code, n.period FROM next_number n JOIN series s ON s.id = n.series_id"
        " JOIN sales_document d ON d.series_id = s.id AND d.period = n.period LIMIT 1")[0]
    values = {"company_id": 1, "doc_kind": kind, "series": series, "period": period,
              "reason": "restored; 3 to 5 were sent and are lost", "actor": "ops"}

    def floor(last_sent, **other):
        params = {**values, "last_sent": last_sent, **other}
        return [row for part in statements(text("ledger_floor"))
                for row in book.db.execute(part, params).fetchall()]

    assert floor(2)[0][0] == 3 and book.one("SELECT count(*) FROM series_floor") == 0
    assert floor(5)[0][0] == 6 and floor(5)[0][0] == 6, "again it does nothing"
    assert book.one("SELECT count(*) FROM series_floor") == 1
    book.invoice("C")
    assert book.one("SELECT max(number) FROM sales_document") == 6
    assert book.all("SELECT first_missing, last_missing, reason FROM number_gap") == [
        (3, 5, values["reason"])]
    book.healthy()
    for mistake in ({"series": "NONE"}, {"period": "1999"}, {"period": None}, {"company_id": 9}):
        with pytest.raises(sqlite3.Error, match="NOTHING DONE: no such series or period"):
            floor(9, **mistake)
    for mistake in (None, "9"):
        with pytest.raises(sqlite3.Error, match="NOTHING DONE: :last_sent is not set, or no whole"):
            floor(mistake)
    with pytest.raises(sqlite3.Error, match="NOTHING DONE: :reason is required"):
        floor(9, reason=" ")
    assert book.one("SELECT count(*) FROM series_floor") == 1
    assert floor(7, period=int(period))[0][0] == 8, "a year is a number to whoever types it"
    assert book.one("SELECT count(*) FROM series_floor") == 2
    book.db.close()
    assert shell(tmp_path / "book.db", "ledger_floor", load=False, last_sent=8,
                 **values)[0].startswith("9|")


METRIC = re.compile(r"# HELP (idem_[a-z_]+) (\S.*)\n# TYPE \1 (gauge|counter)\n"
                    r"\1 (\d+(?:\.\d+)?)\n")


def test_metrics(busy, path):
    """Exactly the text format, and the numbers of idem_health; without the extension, read only."""
    lines = shell(path, "metrics", "-readonly", "-noheader", "-list", load=False)
    document = "\n".join(lines) + "\n"
    found = METRIC.findall(document)
    assert METRIC.sub("", document) == ""
    value = {name: float(number) for name, _, _, number in found}
    assert len(value) == len(found) == 12
    names = ("processing", "stale", "unknown", "released", "completed", "expired", "purgeable",
             "inbox", "audit_rows")
    health = busy.execute(f"SELECT {', '.join(names)} FROM idem_health").fetchall()[0]
    assert tuple(value["idem_" + name] for name in names) == health
    assert (value["idem_processing"], value["idem_stale"], value["idem_unknown"]) == (2, 3, 1)
    assert 7190 < value["idem_oldest_processing_seconds"] < 7300
    assert 7190 < value["idem_oldest_unknown_seconds"] < 7300
    now = one(busy, "SELECT idem_clock()") / 1000
    assert abs(value["idem_scrape_timestamp_seconds"] - now) < 60


def test_metrics_of_an_empty_store(db, path):
    document = "\n".join(row[0] for row in run(db, "metrics")[0]) + "\n"
    assert METRIC.sub("", document) == "" and "idem_oldest_processing_seconds 0.0\n" in document

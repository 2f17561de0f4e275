"""The schema as text: loads anywhere, calls nothing of the extension, documents every error."""
import glob
import os
import re
import subprocess

import pytest
from ledger_book import ROOT, SCHEMA, Book

FILES = sorted(glob.glob(os.path.join(ROOT, "sql", "ledger", "*.sql")))
BARE = re.sub(r"--[^\n]*", "", SCHEMA)


def test_loads_in_a_plain_shell_in_one_transaction(tmp_path):
    script = "BEGIN;\n" + "".join(open(f, encoding="utf-8").read() for f in FILES) + "\nCOMMIT;\nSELECT count(*) FROM integrity_report;\n"
    for mode in ([], ["-cmd", "PRAGMA foreign_keys = ON", "-cmd", "PRAGMA recursive_triggers = ON"]):
        book = tmp_path / ("book%d.db" % len(mode))
        done = subprocess.run(["sqlite3", "-bail", *mode, str(book)], input=script, capture_output=True, text=True)
        assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", "0")
        check = subprocess.run(["sqlite3", str(book), "PRAGMA integrity_check; PRAGMA foreign_key_check;"], capture_output=True, text=True)
        assert check.stdout.strip() == "ok"


def test_a_failed_load_leaves_nothing():
    import sqlite3
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE webhook_event (x)")                     # the name is taken: the load must fail as a whole
    with pytest.raises(sqlite3.OperationalError):
        db.executescript("BEGIN;" + SCHEMA + "COMMIT;")
    db.execute("ROLLBACK")
    assert [r[0] for r in db.execute("SELECT name FROM sqlite_schema")] == ["webhook_event"]


def test_nothing_calls_the_extension():
    assert not re.search(r"\bidem_(?!key\b)\w+", BARE)
    assert "idem_" in open(os.path.join(ROOT, "sql", "recipes", "ledger-invoice.sql"), encoding="utf-8").read()


def test_conventions():
    book = Book()
    for name, sql in book.all("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"):
        assert re.search(r"\) STRICT(, WITHOUT ROWID)?$", sql), name
        columns = {r[1]: r[2] for r in book.all("PRAGMA table_xinfo(%s)" % name)}
        if name not in ("currency", "company", "report_as_of", "journal_seal"):
            assert "company_id" in columns, name
        for column, kind in columns.items():
            if column.endswith("_minor"):
                assert kind == "INTEGER", (name, column)
            if column.endswith(("_date", "_on")):
                assert re.search(r"%s IS date\(%s, '\+0 days'\)" % (column, column), sql), (name, column)
        # No unmirrored rowid: either the row id is a guarded column, or there is none.
        assert "WITHOUT ROWID" in sql or re.search(r"(\bid|_id)\s+INTEGER PRIMARY KEY", sql), name
    assert " REAL" not in BARE and "FLOAT" not in BARE.upper()


def test_a_long_check_has_a_name():
    """SQLite names an anonymous CHECK by its text, and nobody reads 300 characters of SQL to find a blank too many."""
    for name, sql in Book().all("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"):
        sql = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", sql))
        for found in re.finditer(r"\bCHECK \(", sql):
            depth = end = 0
            for end, sign in enumerate(sql[found.end() - 1:], found.end()):
                depth += (sign == "(") - (sign == ")")
                if depth == 0:
                    break
            named = re.search(r'CONSTRAINT "\w+: [^"]+"\s+$', sql[:found.start()])
            assert named or end - found.end() < 150, (name, sql[found.start():end])


def test_the_invisible_characters_are_the_same_in_all_tables():
    """A CHECK cannot look them up, so each carries the list."""
    lists = re.findall(r"NOT GLOB '\*\[' \|\| char\(([0-9,\s]+)\) \|\| '\]\*'", BARE)
    assert len(lists) == BARE.count("no control or invisible characters") == 19
    assert len({re.sub(r"\s", "", one) for one in lists}) == 1


def test_every_unique_key_is_refused_by_a_trigger_before_replace_could_act():
    """Each table has BEFORE INSERT, BEFORE UPDATE and, but for evidence, BEFORE DELETE triggers."""
    book = Book()
    triggers = book.all("SELECT tbl_name, sql FROM sqlite_schema WHERE type = 'trigger'")
    for table, in book.all("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"):
        for event in ("INSERT", "UPDATE", "DELETE"):
            if (table, event) in (("report_as_of", "INSERT"), ("report_as_of", "UPDATE"), ("webhook_conflict", "DELETE")):
                continue
            assert any(t == table and "BEFORE %s ON %s" % (event, table) in s for t, s in triggers), (table, event)


def test_same_order_of_parts_in_each_file():
    order = ["Tables", "Keys", "Guards", "Views"]
    for file in FILES:
        text = open(file, encoding="utf-8").read()
        assert re.match(r"-- idem ledger · \d\d · ", text), file
        parts = [p for p in re.findall(r"^-- (\w+)[^\n]*-----$", text, re.M)]
        seen = [p for n, p in enumerate(parts) if p in order and (n == 0 or parts[n - 1] != p)]
        assert seen == [p for p in order if p in seen] and seen, (file, parts)


def test_every_error_has_a_code_and_is_documented():
    messages = re.findall(r"RAISE\((?:ABORT|FAIL|ROLLBACK), '((?:[^']|'')*)'", BARE)
    assert len(messages) > 150 and "RAISE(FAIL" not in BARE and "RAISE(ROLLBACK" not in BARE
    for message in messages:
        assert re.match(r"[A-Z][A-Z_]+: \S.{10,}", message), message
    raised = {m.split(":")[0] for m in messages}
    book = Book()
    documented = {r[0]: r[1:] for r in book.all("SELECT code, http_status, store_answer, meaning FROM ledger_error")}
    assert raised == set(documented)
    readme = open(os.path.join(ROOT, "sql", "README.md"), encoding="utf-8").read()
    table = {code: (int(status), int(store == "yes"), meaning) for code, status, store, meaning
             in re.findall(r"^\| `([A-Z_]+)` \| (\d+) \| (yes|no) \| (.*) \|$", readme, re.M)}
    assert table == documented


def test_every_error_is_met_by_a_test():
    """A code that no test expects is a code that nobody has seen."""
    tests = "".join(open(f, encoding="utf-8").read() for f in glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "test_*.py"))
                    if not f.endswith("test_ledger_schema.py"))
    codes = [r[0] for r in Book().all("SELECT code FROM ledger_error")]
    assert [c for c in codes if '"%s' % c not in tests and "|%s" % c not in tests] == []


def test_the_readme_names_every_view_and_file():
    readme = open(os.path.join(ROOT, "sql", "README.md"), encoding="utf-8").read()
    internal = {"report_day", "issued_number", "invoice_credit", "live_allocation", "live_depreciation", "bill_identity", "bill_vat_due",
               "bill_soft_number", "settlement_unmatched", "ledger_error", "invoice_left"}
    views = {r[0] for r in Book().all("SELECT name FROM sqlite_schema WHERE type = 'view' AND name NOT LIKE 'integrity_%'")}
    assert [v for v in views - internal if "`%s`" % v not in readme] == []
    for path in re.findall(r"\]\(([^)]+\.sql)\)", readme):
        assert os.path.exists(os.path.join(ROOT, "sql", path)), path

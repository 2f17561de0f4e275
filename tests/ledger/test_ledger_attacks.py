"""Attacks on the schema: whatever SQL is thrown at the book, it stays healthy and final rows stay as they are."""
import os
import random
import sqlite3

import pytest
from ledger_book import BANK, EQUITY, TABLES, Book, code_of
from ledger_story import tell

FINAL = {
    "sales_document": "status = 'issued'", "received_bill": "status = 'registered'", "payment": "status = 'posted'",
    "depreciation_run": "status = 'posted'", "settlement_batch": "status = 'posted'", "journal_seal": "1", "annulment": "1", "bill_void": "1",
    "allocation": "1", "settlement_reversal": "1", "override_log": "1",
    "journal_entry": "id IN (SELECT entry_id FROM journal_seal)", "journal_line": "entry_id IN (SELECT entry_id FROM journal_seal)",
    "sales_line": "document_id IN (SELECT id FROM sales_document WHERE status = 'issued')",
    "sales_tax": "document_id IN (SELECT id FROM sales_document WHERE status = 'issued')",
    "bill_line": "bill_id IN (SELECT id FROM received_bill WHERE status = 'registered')",
    "bill_tax": "bill_id IN (SELECT id FROM received_bill WHERE status = 'registered')",
}


def final(book):
    return {t: set(book.all("SELECT * FROM %s WHERE %s" % (t, w))) for t, w in FINAL.items()}


class Attacker:
    """Random statements over all tables, with values that are already in the book, neighbours of them, or junk."""

    def __init__(self, book, seed):
        self.book, self.rng = book, random.Random(seed)
        self.columns = {t: [(r[1], r[2]) for r in book.all("PRAGMA table_xinfo(%s)" % t) if r[6] < 2] for t in TABLES}

    def value(self, table, column):
        draw, kind = self.rng.random(), dict(self.columns[table])[column]
        if draw < 0.5:
            return "(SELECT %s FROM %s ORDER BY random() LIMIT 1)" % (column, table)
        if kind == "INTEGER":
            return self.rng.choice(["NULL", "0", "1", "2", "-1", "999", "1.0", "9e9", column + " + 1", column + " - 1", "-" + column])
        return self.rng.choice(["NULL", "''", "'draft'", "'issued'", "'registered'", "'posted'", "'recorded'", "'processed'", "'credit_note'", "'invoice'",
                                "'2026-03-10'", "'2026'", "'V9'", "'1001'", "'x'", "1", "'2026-01-01'", "'filed'", "'year'", column + " || 'x'"])

    def statement(self):
        rng = self.rng
        table = rng.choice(TABLES)
        names = [c for c, _ in self.columns[table]]
        some = rng.sample(names, min(len(names), rng.randint(1, 3)))
        where = rng.choice(["1", "rowid = 1" if table_has_rowid(table) else "1", "%s = %s" % (some[0], self.value(table, some[0])),
                            "%s = %s" % (names[0], self.value(table, names[0]))])
        kind = rng.random()
        if kind < 0.5:
            policy = rng.choice(["", "OR REPLACE ", "OR IGNORE ", "OR FAIL ", "OR ABORT "])
            return "UPDATE %s%s SET %s WHERE %s" % (policy, table, ", ".join("%s = %s" % (c, self.value(table, c)) for c in some), where)
        if kind < 0.65:
            return "DELETE FROM %s WHERE %s" % (table, where)
        policy = rng.choice(["", "OR REPLACE ", "OR IGNORE ", "OR FAIL "])
        picks = ", ".join(self.value(table, c) if c in some else c for c in names)
        tail = rng.choice(["", "", " ON CONFLICT DO NOTHING"]) if not policy else ""
        return "INSERT %sINTO %s (%s) SELECT %s FROM %s WHERE %s%s" % (policy, table, ", ".join(names), picks, table, where, tail)


DRAFT = {
    "sales_document": ("sales_document", "id"), "sales_line": ("sales_document", "document_id"), "sales_tax": ("sales_document", "document_id"),
    "received_bill": ("received_bill", "id"), "bill_line": ("received_bill", "bill_id"), "bill_tax": ("received_bill", "bill_id"),
}


@pytest.mark.parametrize("seed", range(8 if os.environ.get("IDEM_DEEP") == "1" else 1))
@pytest.mark.parametrize("mode", [(1, 1), (0, 0)], ids=["pragmas on", "pragmas off"])
def test_spoilt_drafts_are_refused_or_right(seed, mode):
    """Drafts with random faults in header, lines, tax, posting and issuing statement: what is issued is right."""
    book = Book(foreign_keys=mode[0], recursive_triggers=mode[1])
    tell(book)
    attacker = Attacker(book, 100 + seed)
    rng, final_count = attacker.rng, 0
    for n in range(400):
        sale = rng.random() < 0.6
        table = "sales_document" if sale else "received_bill"
        try:
            with book.transaction():
                if sale:
                    credits = rng.choice([None, None, rng.choice(book.all("SELECT id FROM sales_document WHERE status = 'issued'"))[0]])
                    doc = book.draft(None if credits else "R-%d" % rng.randint(1, 60), rng.randint(0, 500), kind="credit_note" if credits else "invoice",
                                     credits=credits, date="2026-03-%02d" % rng.randint(9, 30), tax_code=rng.choice(["V21", "V9", "EX", "RC21"]))
                else:
                    doc = book.bill_draft("R-%d" % rng.randint(1, 60), net=rng.randint(0, 500), tax_code=rng.choice(["V21", "RC21", "ND21", "EX"]))
                entry = (book.sales_entry if sale else book.bill_entry)(doc)
                for _ in range(rng.randint(0, 2)):                     # spoil the draft
                    child = rng.choice([t for t, (parent, _) in DRAFT.items() if parent == table])
                    column = rng.choice(attacker.columns[child])[0]
                    book("UPDATE OR IGNORE %s SET %s = %s WHERE %s = %d" % (child, column, attacker.value(child, column), DRAFT[child][1], doc))
                if rng.random() < 0.3:                                 # spoil the posting
                    column = rng.choice([c for c, _ in attacker.columns["journal_line"]])
                    names = [c for c, _ in attacker.columns["journal_line"]]
                    rows = book.all("SELECT %s FROM journal_line WHERE entry_id = ? AND line_no = 1" % ", ".join(
                        attacker.value("journal_line", c) if c == column else c for c in names), entry)
                    book("DELETE FROM journal_line WHERE entry_id = ? AND line_no = 1", entry)
                    for row in rows:
                        book("INSERT INTO journal_line VALUES (%s)" % ", ".join("?" * len(row)), *row)
                verb = rng.choice(["UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE", "UPDATE OR FAIL"])
                sql, args = book.issue_statement(doc, entry, verb) if sale else (book.REGISTER.format(verb=verb), {"entry": entry, "bill": doc})
                if rng.random() < 0.5:                                 # spoil the issuing statement
                    column = rng.choice([c for c, _ in attacker.columns[table] if c + " =" not in sql and c not in sql])
                    sql = sql.replace("SET status =", "SET %s = %s, status =" % (column, attacker.value(table, column)))
                book.db.execute(sql, args)
                if book.one("SELECT status FROM %s WHERE id = ?" % table, doc) == "draft":
                    raise sqlite3.IntegrityError("ignored")
        except sqlite3.Error:
            continue
        final_count += 1
        broken = book.all("SELECT * FROM integrity_violation")
        assert not broken, (sql, args, broken, book.all("SELECT * FROM %s WHERE id = ?" % table, doc))
    assert final_count > 50
    book.healthy()


def table_has_rowid(table):
    return "WITHOUT ROWID" not in SQL[table]


SQL = dict(Book().all("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"))
ROUNDS = 12 if os.environ.get("IDEM_DEEP") == "1" else 2


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("mode", [(1, 1), (0, 0)], ids=["pragmas on", "pragmas off"])
def test_random_statements_break_nothing(seed, mode):
    book = Book(foreign_keys=mode[0], recursive_triggers=mode[1])
    tell(book)
    before, attacker, done = final(book), Attacker(book, seed * 7 + mode[0]), 0
    for n in range(1500):
        sql = attacker.statement()
        try:
            book("BEGIN")
            changed = book.db.execute(sql).rowcount
            if mode[0] and book.all("PRAGMA foreign_key_check"):      # could not be committed either
                raise sqlite3.IntegrityError("FOREIGN KEY")
            unsealed = book.one("SELECT count(*) FROM journal_entry WHERE id NOT IN (SELECT entry_id FROM journal_seal)")
            if changed <= 0 or unsealed:
                book("ROLLBACK")
                continue
            book("COMMIT")
            done += 1
        except sqlite3.Error:
            if book.db.in_transaction:
                book("ROLLBACK")
            continue
        after = final(book)
        for table in FINAL:
            lost = before[table] - after[table]
            assert not lost, (sql, table, lost)
        before = after
        broken = book.all("SELECT DISTINCT rule FROM integrity_violation")
        assert not broken, (sql, broken)
    assert done > 20                                                    # the attacker got somewhere
    assert book.one("PRAGMA integrity_check") == "ok"


def test_codes_met_only_by_force(book):
    annulled = book.invoice("1")
    book.annul(annulled)
    for verb in ("INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE"):
        book.refused("ALREADY_ANNULLED", verb + " INTO annulment (invoice_id, company_id, annulled_on, reason) VALUES (?, 1, '2026-03-12', 'x')", annulled)
    voided = book.bill("1")
    book.void(voided)
    for verb in ("INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE"):
        book.refused("ALREADY_VOIDED", verb + " INTO bill_void (bill_id, company_id, voided_on, reason) VALUES (?, 1, '2026-03-12', 'x')", voided)
    book.bill("2")
    draft = book.bill_draft("2")
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            book.db.execute(book.REGISTER.format(verb="UPDATE").replace("SET status", "SET dup_seq = 1, status"), {"entry": book.bill_entry(draft), "bill": draft})
    assert code_of(error.value) == "OVERRIDE_WITHOUT_REASON"
    batch = book.post_batch(book.batch("po_1", [("t1", "charge", 100, 0)]))
    other = book.post_batch(book.batch("po_2", [("t2", "charge", 100, 0)]))
    book.fail_batch(batch, "f1")
    with pytest.raises(sqlite3.IntegrityError) as error:
        book.fail_batch(other, "f1")
    assert code_of(error.value) == "SETTLEMENT_ALREADY_REVERSED"
    for verb in ("INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE"):
        book.refused("SETTLEMENT_ALREADY_REVERSED", verb + " INTO settlement_reversal (batch_id, company_id, provider, account, external_id, reversed_on, reason,"
                     " entry_id) VALUES (%d, 1, 'stripe', 'acct_1', 'f2', '2026-03-25', 'x', 1)" % batch)
    book.healthy()


def test_temporary_tables_do_not_stand_in_for_the_real_ones(book):
    """Triggers of the main schema see the main schema: a temp table of the same name frees nothing."""
    book.invoice("1001")
    draft, other = book.draft("1001"), book.draft("1002")
    for table in ("order_claim", "journal_seal", "series", "journal_line", "account", "company", "party"):
        book("CREATE TEMP TABLE %s AS SELECT * FROM main.%s WHERE 0" % (table, table))
    book("CREATE TEMP VIEW next_number AS SELECT 1 AS company_id, 1 AS series_id, '2026' AS period, 1 AS number, 'INV-2026-00001' AS full_number")
    with pytest.raises(sqlite3.Error) as error:
        book.db.execute(book.ISSUE.format(verb="UPDATE"), {"entry": 1, "doc": draft, "series": 1})
    assert code_of(error.value) == "ORDER_ALREADY_INVOICED"
    with pytest.raises(sqlite3.Error) as error:
        book.db.execute(book.ISSUE.format(verb="UPDATE"), {"entry": 1, "doc": other, "series": 1})
    assert code_of(error.value) == "NUMBER_NOT_NEXT"


def test_checks_switched_off_do_not_open_the_natural_keys(book):
    book.invoice("1001")
    book.bill("X-1")
    book("PRAGMA ignore_check_constraints = ON")
    for change in ("order_channel = NULL", "order_channel = 'web', order_part = '1'"):
        draft = book.draft("1001")
        book("UPDATE sales_document SET %s WHERE id = %d" % (change, draft))
        with pytest.raises(sqlite3.IntegrityError):
            book.issue(draft, "UPDATE OR IGNORE")
    draft = book.draft("1002")
    for status in ("'ISSUED'", "'final'", "''", "NULL"):
        with pytest.raises(sqlite3.IntegrityError):
            with book.transaction():
                sql, args = book.issue_statement(draft, book.sales_entry(draft), "UPDATE OR IGNORE")
                book.db.execute(sql.replace("'issued'", status), args)
                if book.one("SELECT status FROM sales_document WHERE id = ?", draft) == "draft":
                    raise sqlite3.IntegrityError("ignored")
    with pytest.raises(sqlite3.IntegrityError):
        bill = book.bill_draft("X-1")
        book("UPDATE received_bill SET doc_no_absent = 1 WHERE id = ?", bill)       # both a number and "absent"
        book.register(bill, "UPDATE OR IGNORE")
    book("PRAGMA ignore_check_constraints = OFF")
    book("DELETE FROM sales_document WHERE status = 'draft'")
    book("DELETE FROM received_bill WHERE status = 'draft'")
    book.healthy()


def test_a_deleted_draft_leaves_no_entry_for_its_successor(book):
    doc = book.draft("1")
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            book.sales_entry(doc)
            book("DELETE FROM sales_document WHERE id = ?", doc)
    assert code_of(error.value) == "IMMUTABLE"
    book("DELETE FROM sales_document WHERE id = ?", doc)
    again = book.draft("2", 55)
    assert again == doc                                                             # SQLite gives the id out again
    book.issue(again)
    assert book.all("SELECT net_minor FROM sales_line WHERE document_id = ?", again) == [(55,)]
    book.healthy()


def test_keys_outlive_their_rows_corrections(book):
    """A reversed payment, a reversed payout and a voided event id are not taken a second time."""
    pay = book.payment("pi_1", 100)
    book.payment("pi_1r", 100, direction="out", reverses=pay)
    book.refused("PAYMENT_ALREADY_RECORDED", "INSERT INTO payment (company_id, direction, provider, account, external_id, value_date, currency, amount_minor,"
                 " base_amount_minor) VALUES (1, 'in', 'bank', 'LT01', 'pi_1', '2026-03-01', 'EUR', 100, 100)")


def test_a_manual_entry_does_not_pose_as_a_document(book):
    """No sealed entry under a document's name without that document, in any order of statements."""
    for kind in ("sales_document", "received_bill", "payment", "depreciation_run", "settlement_batch"):
        with pytest.raises(sqlite3.IntegrityError) as error:
            with book.transaction():
                entry = book.entry(kind, 4711, "issue", "2026-03-01", [(BANK, 5), (EQUITY, -5)])
                book("INSERT OR IGNORE INTO journal_seal (entry_id) VALUES (?)", entry)
        assert code_of(error.value) == "SOURCE_NOT_POSTED"
    with pytest.raises(sqlite3.IntegrityError):
        book.entry("anything", 1, "issue", "2026-03-01", [(BANK, 5), (EQUITY, -5)])
    if book.db.in_transaction:
        book("ROLLBACK")


def test_two_open_connections_see_one_truth(file_book):
    """The loser reads before the winner commits, and still loses."""
    other = Book(file_book.path, create=False)
    draft = other.draft("1001")
    other("BEGIN")
    assert other.one("SELECT count(*) FROM order_claim") == 0                       # an old snapshot
    file_book.invoice("1001")
    with pytest.raises(sqlite3.OperationalError) as error:
        other.sales_entry(draft)
    assert error.value.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"
    other("ROLLBACK")
    other.issue_refused("ORDER_ALREADY_INVOICED", draft)
    other.healthy()

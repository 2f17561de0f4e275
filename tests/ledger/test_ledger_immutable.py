"""Final rows do not change: not by UPDATE, DELETE or REPLACE, not through parents or children."""
import sqlite3

import pytest
from ledger_book import TABLES, Book, code_of
from ledger_story import tell

# What may change on the rows of the story, on purpose. Everything else may not.
OPEN = {
    "account": {"code", "name", "opened_on", "closed_on"},
    "asset": {"name", "disposed_on"},
    "company": {"name", "country", "vat_id", "time_zone", "locked_through", "allows_annulment"},
    "fiscal_year": {"status"},
    "order_total": {"total_minor"},
    "party": {"name", "country", "vat_id", "address", "number_reset", "merged_into"},
    "payment": set(),
    "report_as_of": {"as_of"},
    "series": {"active"},
    "settlement_line": {"payment_id"},
    "tax_code": {"name", "isaf_code", "valid_to"},
    "vat_period": {"status"},
    "webhook_event": {"body", "attempts", "next_attempt_at", "last_error", "effect_kind", "effect_id"},
}
# Rows that are still open, and unused master data: excluded from the tables' rows.
FINAL = {
    "account": "id IN (SELECT account_id FROM journal_line)",
    "asset": "id IN (SELECT asset_id FROM depreciation_line)",
    "party": "id IN (11, 1)",
    "payment": "status = 'posted'",
    "received_bill": "status = 'registered'",
    "bill_line": "bill_id IN (SELECT id FROM received_bill WHERE status = 'registered')",
    "bill_tax": "bill_id IN (SELECT id FROM received_bill WHERE status = 'registered')",
    "sales_document": "status = 'issued'",
    "sales_line": "document_id IN (SELECT id FROM sales_document WHERE status = 'issued')",
    "sales_tax": "document_id IN (SELECT id FROM sales_document WHERE status = 'issued')",
    "series": "id IN (1, 2, 3, 9)",
    "settlement_batch": "status = 'posted'",
    "settlement_line": "batch_id IN (SELECT id FROM settlement_batch WHERE status = 'posted')",
    "webhook_event": "status = 'processed'",
}
NOT_DELETABLE = set(TABLES) - {"webhook_conflict"}
VERBS = ("UPDATE", "UPDATE OR IGNORE", "UPDATE OR REPLACE", "UPDATE OR FAIL")


@pytest.fixture(scope="module", params=[(0, 0), (1, 1)], ids=["fk0-rt0", "fk1-rt1"])
def told(request):
    book = Book(foreign_keys=request.param[0], recursive_triggers=request.param[1])
    book.ids = tell(book)
    book.healthy()
    yield book
    book.healthy()
    book.db.close()


def columns(book, table):
    """(name, type, generated) of all columns; the generated ones cannot be written."""
    return [(r[1], r[2], r[6] > 1) for r in book.all("PRAGMA table_xinfo(%s)" % table)]


def final_rows(book, table):
    return book.all("SELECT * FROM %s WHERE %s" % (table, FINAL.get(table, "1")))


def attempt(book, sql, args=()):
    """Run sql in a savepoint; a refusal is fine. Roll back after the caller has looked."""
    if not book.db.in_transaction:
        book("SAVEPOINT attack")
    try:
        book.db.execute(sql, args).fetchall()
    except sqlite3.Error:
        pass


def undo(book):
    if book.db.in_transaction:
        book("ROLLBACK TO attack")
        book("RELEASE attack")


def values(kind):
    return ("1", "2", "999", "NULL", "-1") if kind == "INTEGER" else ("'x'", "'2026-03-12'", "NULL", "'posted'", "''")


@pytest.mark.parametrize("table", TABLES)
def test_no_column_of_a_final_row_changes(told, table):
    before = final_rows(told, table)
    assert before, "the story must have a final row in " + table
    for name, kind, generated in columns(told, table):
        if generated or name in OPEN.get(table, ()):
            continue
        for verb in VERBS:
            for value in values(kind)[:2]:
                attempt(told, "%s %s SET %s = %s WHERE %s" % (verb, table, name, value, FINAL.get(table, "1")))
                after = final_rows(told, table)
                undo(told)
                assert after == before, (verb, table, name, value)


@pytest.mark.parametrize("table", TABLES)
def test_no_single_row_changes(told, table):
    """Row by row: above, the first refused row hides the others."""
    before = final_rows(told, table)
    key = [r[1] for r in told.all("PRAGMA table_xinfo(%s)" % table) if r[5]]
    where = " AND ".join("%s = ?" % k for k in key)
    for pk in told.all("SELECT %s FROM %s WHERE %s" % (", ".join(key), table, FINAL.get(table, "1"))):
        for name, kind, generated in columns(told, table):
            if generated or name in OPEN.get(table, ()):
                continue
            for value in values(kind)[:2]:
                attempt(told, "UPDATE OR REPLACE %s SET %s = %s WHERE %s" % (table, name, value, where), pk)
        after = final_rows(told, table)
        undo(told)
        assert after == before, (table, pk)


@pytest.mark.parametrize("table", [t for t in TABLES if t != "report_as_of"])
def test_no_final_row_is_replaced(told, table):
    """REPLACE with the same keys and one other column, and with a key that hits another row."""
    before = set(final_rows(told, table))
    names = [n for n, _, generated in columns(told, table) if not generated]
    for name, kind, generated in columns(told, table):
        if generated:
            continue
        for value in values(kind)[:3] + (name,):
            picks = ", ".join(value if n == name else n for n in names)
            for verb in ("INSERT OR REPLACE", "INSERT OR FAIL"):
                attempt(told, "%s INTO %s (%s) SELECT %s FROM %s LIMIT 1" % (verb, table, ", ".join(names), picks, table))
                after = set(final_rows(told, table))
                undo(told)
                assert before <= after, (verb, table, name, value)


@pytest.mark.parametrize("table", TABLES)
def test_no_final_row_is_deleted(told, table):
    if table not in NOT_DELETABLE:
        pytest.skip("evidence may be cleared away")
    before = final_rows(told, table)
    attempt(told, "DELETE FROM " + table)
    after = final_rows(told, table)
    undo(told)
    assert after == before
    for row_id in told.all("SELECT rowid FROM %s WHERE %s" % (table, FINAL.get(table, "1"))) if has_rowid(told, table) else ():
        attempt(told, "DELETE FROM %s WHERE rowid = %d" % (table, row_id[0]))
        after = final_rows(told, table)
        undo(told)
        assert after == before


def has_rowid(book, table):
    return "WITHOUT ROWID" not in book.one("SELECT sql FROM sqlite_schema WHERE name = ?", table)


@pytest.mark.parametrize("table", TABLES)
def test_rowid_under_any_name_does_not_move(told, table):
    if not has_rowid(told, table):
        with pytest.raises(sqlite3.OperationalError):
            told("SELECT rowid FROM " + table)
        return
    before = final_rows(told, table)
    for name in ("rowid", "_rowid_", "oid"):
        for verb in VERBS:
            for target in (1, 2, 5000):
                attempt(told, "%s %s SET %s = %d WHERE %s" % (verb, table, name, target, FINAL.get(table, "1")))
                after = final_rows(told, table)
                undo(told)
                assert after == before, (verb, table, name)


def test_upsert_does_not_change_a_final_row(told):
    row = told.ids["invoice"]
    for tail in ("ON CONFLICT (id) DO UPDATE SET net_minor = 1", "ON CONFLICT DO UPDATE SET customer_name = 'x'", "ON CONFLICT DO NOTHING"):
        told.rejected("INSERT INTO sales_document (id, company_id, kind, customer_id, customer_name, currency, net_minor, tax_minor,"
                      " gross_minor, base_net_minor, base_tax_minor, base_gross_minor)"
                      " VALUES (%d, 1, 'invoice', 1, 'x', 'EUR', 1, 0, 1, 1, 0, 1) %s" % (row, tail))


def test_children_of_final_documents_are_closed(told):
    i, b, r, s = told.ids["invoice"], told.ids["bill"], told.ids["run"], told.ids["batch"]
    for verb in ("INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE", "INSERT OR FAIL"):
        for number in (1, 2):
            told.refused("IMMUTABLE", verb + " INTO sales_line VALUES (%d, %d, 1, 'more', 1000, 1, 1, 'V21')" % (i, number))
            told.refused("IMMUTABLE", verb + " INTO bill_line VALUES (%d, %d, 1, 'more', 1, 'V21')" % (b, number))
        for code in ("V21", "V9"):
            told.refused("IMMUTABLE", verb + " INTO sales_tax VALUES (%d, '%s', 1, 1, 1, 1, 1)" % (i, code))
            told.refused("IMMUTABLE", verb + " INTO bill_tax VALUES (%d, '%s', 1, 1, 1, 1, 1)" % (b, code))
        told.refused("IMMUTABLE", verb + " INTO depreciation_line (run_id, company_id, asset_id, period_start, period_end, amount_minor)"
                     " VALUES (%d, 1, %d, '2026-02-01', '2026-02-28', 1)" % (r, told.ids["asset"]))
        told.refused("IMMUTABLE", verb + " INTO settlement_line (batch_id, company_id, provider, account, txn_id, category, gross_minor, net_minor)"
                     " VALUES (%d, 1, 'stripe', 'acct_1', 'new', 'charge', 1, 1)" % s)
        entry = told.one("SELECT entry_id FROM sales_document WHERE id = ?", i)
        for number in (1, 9):
            told.refused("ENTRY_SEALED", verb + " INTO journal_line VALUES (%d, %d, 1, 3, 'EUR', 1, 1, NULL, NULL)" % (entry, number))


def test_children_do_not_move_between_documents(told):
    """From a draft to an issued document, from an issued one to a draft, and to another company."""
    i, d = told.ids["invoice"], told.ids["draft"]
    told.rejected("UPDATE sales_line SET document_id = %d, line_no = 9 WHERE document_id = %d" % (i, d))
    told.rejected("UPDATE sales_line SET document_id = %d, line_no = 9 WHERE document_id = %d" % (d, i))
    told.rejected("UPDATE OR REPLACE sales_line SET document_id = %d WHERE document_id = %d" % (i, d))
    told.rejected("UPDATE OR REPLACE sales_tax SET document_id = %d WHERE document_id = %d" % (i, d))
    told.rejected("UPDATE sales_line SET company_id = 2 WHERE document_id = %d" % d)
    b, x = told.ids["bill"], told.ids["bill draft"]
    told.rejected("UPDATE OR REPLACE bill_line SET bill_id = %d WHERE bill_id = %d" % (b, x))
    told.rejected("UPDATE OR REPLACE bill_tax SET bill_id = %d WHERE bill_id = %d" % (b, x))
    told.rejected("UPDATE OR REPLACE settlement_line SET batch_id = %d WHERE batch_id = %d" % (told.ids["batch"], told.ids["imported"]))


def test_a_draft_does_not_move_to_another_company_or_id(told):
    for table, row in (("sales_document", "draft"), ("received_bill", "bill draft"), ("payment", "recorded"), ("settlement_batch", "imported")):
        for change in ("company_id = 2", "id = 4711", "id = 1", "rowid = 1"):
            for verb in VERBS:
                told.rejected("%s %s SET %s WHERE id = %d" % (verb, table, change, told.ids[row]))


def test_an_issued_invoice_cannot_return_to_draft(told):
    for verb in VERBS:
        told.refused("IMMUTABLE", verb + " sales_document SET status = 'draft', number = NULL, full_number = NULL WHERE id = ?", told.ids["invoice"])
        told.refused("IMMUTABLE", verb + " sales_document SET status = status WHERE id = ?", told.ids["invoice"])


def test_masters_used_by_documents_stay(told):
    for table in ("company", "party", "tax_code", "vat_period", "fiscal_year", "series", "currency", "account", "asset"):
        told.rejected("DELETE FROM " + table)


def test_drafts_are_open_and_leave_nothing_behind(told):
    told("SAVEPOINT attack")
    d, b = told.ids["draft"], told.ids["bill draft"]
    told("UPDATE sales_document SET customer_name = 'New' WHERE id = ?", d)
    told("UPDATE sales_line SET description = 'New' WHERE document_id = ?", d)
    told("DELETE FROM sales_document WHERE id = ?", d)
    told("DELETE FROM received_bill WHERE id = ?", b)
    told("DELETE FROM settlement_batch WHERE id = ?", told.ids["imported"])
    assert told.all("SELECT 1 FROM sales_line WHERE document_id = ? UNION ALL SELECT 1 FROM sales_tax WHERE document_id = ?", d, d) == []
    assert told.all("SELECT 1 FROM bill_line WHERE bill_id = ? UNION ALL SELECT 1 FROM bill_tax WHERE bill_id = ?", b, b) == []
    assert told.all("SELECT 1 FROM settlement_line WHERE txn_id = 't4'") == []
    undo(told)


def test_the_body_of_a_finished_event_may_go_its_id_may_not(told):
    told("SAVEPOINT attack")
    told("UPDATE webhook_event SET body = NULL WHERE id = ?", told.ids["event"])
    assert told.event("evt_1") is None
    undo(told)
    told.rejected("UPDATE webhook_event SET body = NULL WHERE id = %d" % told.ids["new event"])
    told.rejected("UPDATE webhook_event SET body = x'00' WHERE id = %d" % told.ids["event"])
    told.rejected("DELETE FROM webhook_event")


def test_columns_open_on_purpose_are_really_open(told):
    """Guards against an OPEN list that hides a check which is simply not reached."""
    told("SAVEPOINT attack")
    for sql in ("UPDATE account SET name = 'x', code = 'y', closed_on = '2099-01-01' WHERE id = 1",
                "UPDATE asset SET disposed_on = '2026-12-31' WHERE code = 'A1'",
                "UPDATE party SET name = 'x', address = 'y' WHERE id = 11",
                "UPDATE series SET active = 0 WHERE id = 1",
                "UPDATE tax_code SET valid_to = '2099-01-01', name = 'x' WHERE code = 'V21'",
                "INSERT INTO payment (id, company_id, direction, provider, account, value_date, currency, amount_minor, base_amount_minor)"
                " VALUES (900, 1, 'in', 'stripe', 'acct_1', '2026-03-15', 'EUR', 10000, 10000)",
                "UPDATE settlement_line SET payment_id = 900 WHERE txn_id = 't1'",
                "UPDATE order_total SET total_minor = 60000",
                "UPDATE company SET name = 'x', locked_through = '2026-02-28' WHERE id = 1"):
        assert told(sql).rowcount >= 1, sql
    undo(told)


def test_codes_start_the_message(told):
    with pytest.raises(sqlite3.IntegrityError) as error:
        told("DELETE FROM journal_seal")
    assert code_of(error.value) == "IMMUTABLE"
    assert error.value.sqlite_errorname == "SQLITE_CONSTRAINT_TRIGGER"

"""Business rules: orders, credit notes, postings, periods, tax, money, payments, reversals."""
import os
import re
import sqlite3

import pytest
from ledger_book import (ACCUMULATED, BANK, CLEARING, DEPRECIATION, EQUITY, EXPENSE, FEES, INPUT, OUTPUT, PAYABLE, RECEIVABLE,
                      REVENUE, ROOT, Book, code_of)


@pytest.fixture(params=[(0, 1), (1, 0)], ids=["fk0-rt1", "fk1-rt0"])
def book(request):
    """Half of the combinations: rules are triggers, and the keys are tested under all four."""
    b = Book(foreign_keys=request.param[0], recursive_triggers=request.param[1])
    yield b
    b.db.close()


def raises(code, action, *args, **named):
    """code may name several: SQLite promises no order between two triggers of one event."""
    with pytest.raises(sqlite3.Error) as error:
        action(*args, **named)
    assert code_of(error.value) in code.split("|"), str(error.value)


# Orders and credit notes ------------------------------------------------------------------------

def test_credit_then_reissue(book):
    first = book.invoice("1001", 1000)
    book.issue(book.credit(first, 400))
    book.issue_refused("ORDER_ALREADY_INVOICED", book.draft("1001", 900))
    book.issue_refused("CREDIT_EXCEEDS_INVOICE", book.credit(first, 700))
    note = book.issue(book.credit(first, 600))
    assert book.all("SELECT invoice_id, released_by FROM order_claim") == [(first, note)]
    again = book.invoice("1001", 900)
    assert book.one("SELECT number FROM sales_document WHERE id = ?", again) == 2
    book.issue_refused("ORDER_ALREADY_INVOICED", book.draft("1001", 900))
    book.issue_refused("CREDIT_EXCEEDS_INVOICE", book.credit(first, 1))
    assert [r[0] for r in book.all("SELECT state FROM order_invoice_status ORDER BY invoice_id")] == ["credited", "invoiced"]
    book.healthy()


def test_credit_is_limited_per_tax_code(book):
    doc = book.invoice("1", lines=[(1000, "V21"), (1000, "V9")])
    book.issue_refused("CREDIT_EXCEEDS_INVOICE", book.credit(doc, 0, lines=[(1001, "V21")]))
    book.issue_refused("CREDIT_EXCEEDS_INVOICE", book.credit(doc, 0, lines=[(1, "EX")]))
    book.issue(book.credit(doc, 0, lines=[(1000, "V21"), (500, "V9")]))
    book.issue_refused("CREDIT_EXCEEDS_INVOICE", book.credit(doc, 0, lines=[(1, "V21"), (1, "V9")]))
    book.issue(book.credit(doc, 0, lines=[(500, "V9")]))
    assert book.one("SELECT released_by <> 0 FROM order_claim") == 1
    book.healthy()


def test_what_a_credit_note_may_correct(book):
    invoice, draft = book.invoice("1"), book.draft("2")
    note = book.issue(book.credit(invoice, 100))
    for target in (note, draft, 4711):
        doc = book.credit(invoice, 10)
        if target == 4711:
            book("PRAGMA foreign_keys = 0")
        book("UPDATE sales_document SET credits_id = ? WHERE id = ?", target, doc)
        book.issue_refused("CREDITED_NOT_ISSUED", doc)
    doc = book.credit(invoice, 10)
    book("UPDATE sales_document SET customer_id = 2 WHERE id = ?", doc)
    book.issue_refused("CREDIT_MISMATCH", doc)
    book.issue_refused("CREDIT_MISMATCH", book.credit(invoice, 10, date="2026-03-09"))
    other = book.draft(None, 10, kind="credit_note", credits=invoice, company=2, customer=101)
    book.issue_refused("CREDIT_MISMATCH", other)
    book.annul(book.invoice("3"))
    annulled = book.one("SELECT invoice_id FROM annulment")
    book.issue_refused("CREDITED_NOT_ISSUED", book.credit(annulled, 10))


def test_one_refund_makes_one_note(book):
    invoice = book.invoice("1")
    book.issue(book.credit(invoice, 100, refund="re_1"))
    book.issue_refused("REFUND_ALREADY_CREDITED", book.credit(invoice, 100, refund="re_1"))
    book.issue(book.credit(invoice, 100, refund="re_2"))
    book.issue(book.credit(invoice, 100))
    book.issue(book.credit(invoice, 100))
    book.healthy()


def test_order_total_counts_the_invoice_being_issued(book):
    # frappe/erpnext#28218: the document being issued was not counted
    book("INSERT INTO order_total VALUES (1, 'web', '7', 'EUR', 12100)")
    book.issue_refused("ORDER_TOTAL_EXCEEDED", book.draft("7", 10001))
    first = book.invoice("7", 6000)
    book.issue_refused("ORDER_TOTAL_EXCEEDED", book.draft("7", 4001, part="2"))
    book.invoice("7", 4000, part="2")
    book.issue(book.credit(first, 6000))
    book.invoice("7", 6000)
    book.refused("ORDER_TOTAL_EXCEEDED", "UPDATE order_total SET total_minor = 12099")
    book.refused("IMMUTABLE", "DELETE FROM order_total")
    book.invoice("8", 100)
    book.refused("ORDER_TOTAL_EXCEEDED", "INSERT INTO order_total VALUES (1, 'web', '8', 'EUR', 120)")
    book.refused("ORDER_TOTAL_EXCEEDED", "INSERT INTO order_total VALUES (1, 'web', '8', 'USD', 99999)")
    book.healthy()


@pytest.mark.parametrize("way_out", ["annul", "credit"])
def test_an_order_invoiced_in_another_currency_is_freed(book, way_out):
    """Once the mistake is annulled or credited in full, the order's total may be known in its own currency."""
    order = "INSERT INTO order_total VALUES (1, 'web', '7', 'USD', 99999)"
    invoice = book.invoice("7", 10000)
    half = book.credit(invoice, 5000)
    with pytest.raises(sqlite3.Error, match="^ORDER_TOTAL_EXCEEDED: .* in another currency"):
        book(order)
    if way_out == "annul":
        book.annul(invoice)
    else:
        book.issue(half)
        book.refused("ORDER_TOTAL_EXCEEDED", order)
        book.issue(book.credit(invoice, 5000))
    book(order)
    with pytest.raises(sqlite3.Error, match="^ORDER_TOTAL_EXCEEDED: .* in another currency"):
        book.invoice("7", 100)
    book.healthy()


def test_annulment(book):
    invoice = book.invoice("1001", 500)
    book.annul(invoice)
    raises("ENTRY_ALREADY_POSTED", book.annul, invoice)
    register = book.all("SELECT invoice_type, taxable_minor, tax_minor FROM vat_register_sales")
    assert register == [("AN", 0, 0)]
    again = book.invoice("1001", 500)
    assert book.one("SELECT number FROM sales_document WHERE id = ?", again) == 2       # the number stays used
    pay = book.payment("p", 100)
    book.allocate(pay, 100, invoice=again)
    raises("ANNULMENT_NOT_ALLOWED", book.annul, again)
    raises("ALLOCATION_MISMATCH", book.allocate, pay, 100, invoice=invoice)
    credited = book.invoice("1002", 500)
    book.issue(book.credit(credited, 1))
    raises("ANNULMENT_NOT_ALLOWED", book.annul, credited)
    note = book.one("SELECT id FROM sales_document WHERE kind = 'credit_note'")
    raises("ANNULMENT_NOT_ALLOWED", book.annul, note)
    foreign = book.invoice("1", 500, company=2)                                        # that company may not
    raises("ANNULMENT_NOT_ALLOWED", book.annul, foreign)
    late = book.invoice("1003", 500)
    book("UPDATE vat_period SET status = 'filed' WHERE period = '2026-03'")
    raises("ANNULMENT_NOT_ALLOWED", book.annul, late)
    for table in ("UPDATE annulment SET reason = 'x'", "DELETE FROM annulment"):
        book.refused("IMMUTABLE", table)
    book.healthy()


# The issuing statement --------------------------------------------------------------------------

@pytest.mark.parametrize("change, code", [
    ("net_minor = 9999, gross_minor = 12099, base_net_minor = 9999, base_gross_minor = 12099", "TOTALS_MISMATCH"),
    ("tax_minor = 2101, gross_minor = 12101, base_tax_minor = 2101, base_gross_minor = 12101", "TOTALS_MISMATCH"),
    ("base_net_minor = 10001, base_gross_minor = 12101", "TOTALS_MISMATCH"),
    ("issue_date = '2028-01-01'", "PERIOD_LOCKED"),
    ("issue_date = NULL", "PERIOD_LOCKED"),
    ("issue_date = '2026-03-11'", "ENTRY_MISMATCH"),
    ("customer_id = 2", "ENTRY_MISMATCH"),
    ("supply_date = '2026-07-01'", None),
    ("rate_num = 2", "RATE_MISMATCH"),
    ("currency = 'USD', rate_num = 2", "RATE_MISMATCH"),
])
def test_a_document_that_is_not_right_is_not_issued(book, change, code):
    doc = book.draft("1")
    with book.transaction():
        entry = book.sales_entry(doc)
        book("SAVEPOINT s")
        book("UPDATE sales_document SET %s WHERE id = %d" % (change, doc))
        if code is None:
            book.db.execute(*book.issue_statement(doc, entry))
            return
        sql, args = book.issue_statement(doc, entry)
        if "NULL" in change or "2028" in change:
            sql = sql.replace("substr(sales_document.issue_date, 1, 4)", "'2026'")
        with pytest.raises(sqlite3.IntegrityError) as error:
            book.db.execute(sql, args)
        assert code_of(error.value) == code
        book("ROLLBACK TO s")
        book.db.execute(*book.issue_statement(doc, entry))
    book.healthy()


@pytest.mark.parametrize("replace, code", [
    ("number = number + 1", "NUMBER_NOT_NEXT"), ("number = 1 - number", None), ("full_number = 'X'", "NUMBER_NOT_NEXT"),
    ("period = ''", "WRONG_PERIOD"), ("period = '2025'", "WRONG_PERIOD"), ("series_id = 2", "SERIES_MISMATCH"),
    ("series_id = 101", "SERIES_MISMATCH"), ("series_id = NULL", "SERIES_MISMATCH"), ("number = NULL", "NUMBER_NOT_NEXT"),
    ("vat_period = '2026-04'", "WRONG_VAT_PERIOD"), ("vat_period = NULL", "WRONG_VAT_PERIOD"), ("vat_period = '2026-02'", "WRONG_VAT_PERIOD"),
    ("entry_id = NULL", "ENTRY_MISMATCH"), ("entry_id = 1", "ENTRY_MISMATCH"), ("status = 'sent'", "IMMUTABLE"),
])
@pytest.mark.parametrize("verb", ["UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"])
def test_numbers_and_links_of_the_issuing_statement(book, replace, code, verb):
    book.invoice("0")
    doc = book.draft("1")
    given = {"series_id": "1", "period": "'2026'", "number": "2", "full_number": "'INV-2026-00002'", "vat_period": "'2026-03'",
             "entry_id": ":entry", "status": "'issued'"}
    column, value = replace.split(" = ")
    given[column] = value.replace("number", "2")
    sql = "%s sales_document SET %s WHERE id = :doc" % (verb, ", ".join("%s = %s" % kv for kv in given.items()))
    before = book.digest()
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            book.db.execute(sql, {"entry": book.sales_entry(doc), "doc": doc})
    assert code_of(error.value) in (code or "NUMBER_NOT_NEXT", "ENTRY_MISMATCH")
    assert book.digest() == before


def test_documents_start_as_drafts(book):
    for columns, values in (("status", "'issued'"), ("number, full_number, series_id, period, issue_date, status", "1, 'X', 1, '2026', '2026-03-01', 'issued'"),
                            ("number", "1"), ("full_number", "'INV-2026-00001'"), ("status", "'void'")):
        for form in ("INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE"):
            book.refused("MUST_START_AS_DRAFT", form + " INTO sales_document (company_id, kind, customer_id, customer_name, currency, net_minor, tax_minor,"
                         " gross_minor, base_net_minor, base_tax_minor, base_gross_minor, %s)"
                         " VALUES (1, 'invoice', 1, 'x', 'EUR', 0, 0, 0, 0, 0, 0, %s)" % (columns, values))
    book.refused("MUST_START_AS_DRAFT", "INSERT INTO received_bill (company_id, supplier_id, supplier_name, doc_no, currency, net_minor, tax_minor, gross_minor,"
                 " base_net_minor, base_tax_minor, base_gross_minor, status, document_date, registration_date)"
                 " VALUES (1, 11, 'x', 'A', 'EUR', 0, 0, 0, 0, 0, 0, 'registered', '2026-01-01', '2026-01-01')")
    book.refused("MUST_START_AS_DRAFT", "INSERT INTO payment (company_id, direction, provider, account, value_date, currency, amount_minor, base_amount_minor,"
                 " status, entry_id) VALUES (1, 'in', 'p', 'a', '2026-01-01', 'EUR', 1, 1, 'posted', 1)")
    book.refused("MUST_START_AS_DRAFT", "INSERT INTO depreciation_run (company_id, period_start, period_end, status, entry_id)"
                 " VALUES (1, '2026-01-01', '2026-01-31', 'posted', 1)")
    book.refused("MUST_START_AS_DRAFT", "INSERT INTO settlement_batch (company_id, provider, account, payout_id, payout_date, currency, gross_minor, fee_minor,"
                 " net_minor, status, entry_id) VALUES (1, 'p', 'a', 'x', '2026-01-01', 'EUR', 1, 0, 1, 'posted', 1)")


@pytest.mark.parametrize("lines", [
    lambda g, n, t: [(RECEIVABLE, g - 1, 1), (REVENUE, -n + 1), (OUTPUT, -t, None, "V21")],          # receivable too small
    lambda g, n, t: [(RECEIVABLE, g, 2), (REVENUE, -n), (OUTPUT, -t, None, "V21")],                  # another customer's
    lambda g, n, t: [(RECEIVABLE, g, 1), (REVENUE, -n - 1), (OUTPUT, -t + 1, None, "V21")],          # tax too small
    lambda g, n, t: [(RECEIVABLE, g, 1), (REVENUE, -n), (OUTPUT, -t, None, "V9")],                   # other tax code
    lambda g, n, t: [(RECEIVABLE, g, 1), (REVENUE, -n), (OUTPUT, -t)],                               # no tax code
    lambda g, n, t: [(RECEIVABLE, g, 1), (REVENUE, -n), (INPUT, -t, None, "V21")],                   # wrong side
    lambda g, n, t: [(RECEIVABLE, -g, 1), (REVENUE, n), (OUTPUT, t, None, "V21")],                   # wrong sign
    lambda g, n, t: [(RECEIVABLE, g, 1), (RECEIVABLE, 5, 2), (REVENUE, -n - 5), (OUTPUT, -t, None, "V21")],
    lambda g, n, t: [(BANK, g), (REVENUE, -n), (OUTPUT, -t, None, "V21")],
])
def test_the_posting_mirrors_the_document(book, lines):
    doc = book.draft("1")
    gross, net, tax = book.all("SELECT gross_minor, net_minor, tax_minor FROM sales_document WHERE id = ?", doc)[0]
    before = book.digest()
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            entry = book.entry("sales_document", doc, "issue", "2026-03-10", lines(gross, net, tax))
            book.db.execute(*book.issue_statement(doc, entry))
    assert code_of(error.value) == "ENTRY_MISMATCH"
    assert book.digest() == before


def test_an_entry_of_another_document_does_not_serve(book):
    a, b = book.draft("1"), book.draft("2")
    with book.transaction():
        entry = book.sales_entry(a)
        raises("ENTRY_MISMATCH", book.db.execute, *book.issue_statement(b, entry))
        book.db.execute(*book.issue_statement(a, entry))
        raises("ENTRY_MISMATCH", book.db.execute, *book.issue_statement(b, entry))


def test_a_document_of_zero_needs_no_entry(book):
    doc = book.issue(book.draft("1", 0, tax_code="EX"))
    assert book.one("SELECT status FROM sales_document WHERE id = ?", doc) == "issued"
    book.issue_refused("ORDER_ALREADY_INVOICED", book.draft("1", 0, tax_code="EX"))
    book.issue(book.credit(doc, 0, tax_code="EX"))
    book.issue(book.draft("1", 0, tax_code="EX"))
    book.healthy()


def test_a_document_of_zero_is_taken_back_on_an_open_day(book):
    """It has no entry, whose seal would look at the date."""
    invoice, bill = book.issue(book.draft("1", 0, tax_code="EX")), book.bill_draft("1", net=0, tax_code="EX", registered="2026-03-10")
    book(book.REGISTER.format(verb="UPDATE").replace(":entry", "NULL").replace(":bill", "?"), bill)
    annul = "INSERT INTO annulment (invoice_id, company_id, annulled_on, reason) VALUES (?, 1, ?, 'x')"
    void = "INSERT INTO bill_void (bill_id, company_id, voided_on, reason) VALUES (?, 1, ?, 'x')"
    raises("ANNULMENT_NOT_ALLOWED", book, annul, invoice, "2026-03-09")
    raises("REVERSAL_MISMATCH", book, void, bill, "2026-03-09")
    book("UPDATE company SET locked_through = '2026-03-31' WHERE id = 1")
    book("UPDATE fiscal_year SET status = 'closed' WHERE company_id = 1 AND label = '2027'")
    for day in ("2026-03-31", "2027-01-01", "2030-01-01"):
        raises("PERIOD_LOCKED", book, annul, invoice, day)
        raises("PERIOD_LOCKED", book, void, bill, day)
    book(annul, invoice, "2026-04-01")
    book(void, bill, "2026-04-01")
    book.healthy()


def test_foreign_currency_invoice(book):
    doc = book.draft("1", 10000)
    book("UPDATE sales_document SET currency = 'USD', rate_num = 9, rate_den = 10, base_net_minor = 9000, base_tax_minor = 1890, base_gross_minor = 10890 WHERE id = ?", doc)
    book("UPDATE sales_tax SET base_taxable_minor = 9000, base_tax_minor = 1890 WHERE document_id = ?", doc)
    with book.transaction():
        entry = book.one("INSERT INTO journal_entry (company_id, entry_date, source_kind, source_id, purpose)"
                         " VALUES (1, '2026-03-10', 'sales_document', ?, 'issue') RETURNING id", doc)
        for n, (account, amount, base, party, tax) in enumerate([(RECEIVABLE, 12100, 10890, 1, None), (REVENUE, -10000, -9000, None, None),
                                                                 (OUTPUT, -2100, -1890, None, "V21")], 1):
            book("INSERT INTO journal_line VALUES (?, ?, 1, ?, 'USD', ?, ?, ?, ?)", entry, n, account, amount, base, party, tax)
        book.db.execute(*book.issue_statement(doc, entry))
    assert book.all("SELECT taxable_minor, tax_minor FROM vat_register_sales") == [(9000, 1890)]
    note = book.credit(doc, 10000)
    book("UPDATE sales_document SET currency = 'USD' WHERE id = ?", note)            # at another rate than the invoice
    book.issue_refused("CREDIT_MISMATCH", note)
    book.healthy()


def in_dollars(book, doc, rows):
    """A draft turned into dollars at 0.9 and posted with these base amounts: {tax code: (taxable, tax)}."""
    for code, base in rows.items():
        book("UPDATE sales_tax SET base_taxable_minor = ?, base_tax_minor = ? WHERE document_id = ? AND tax_code = ?", *base, doc, code)
    book("UPDATE sales_document SET currency = 'USD', rate_num = 9, rate_den = 10, (base_net_minor, base_tax_minor, base_gross_minor) ="
         " (SELECT sum(base_taxable_minor), sum(base_tax_minor), sum(base_taxable_minor + base_tax_minor) FROM sales_tax"
         "   WHERE document_id = sales_document.id) WHERE id = ?", doc)
    kind, date, net, gross, base_net, base_gross = book.all("SELECT kind, issue_date, net_minor, gross_minor, base_net_minor, base_gross_minor"
                                                            "  FROM sales_document WHERE id = ?", doc)[0]
    sign = -1 if kind == "credit_note" else 1
    with book.transaction():
        entry = book.one("INSERT INTO journal_entry (company_id, entry_date, source_kind, source_id, purpose)"
                         " VALUES (1, ?, 'sales_document', ?, 'issue') RETURNING id", date, doc)
        lines = [(RECEIVABLE, gross, base_gross, 1, None), (REVENUE, -net, -base_net, None, None)]
        lines += [(OUTPUT, -tax, -base, None, code) for code, tax, base in book.all(
            "SELECT tax_code, tax_minor, base_tax_minor FROM sales_tax WHERE document_id = ?", doc)]
        for n, (account, amount, base, party, code) in enumerate([x for x in lines if x[1] or x[2]], 1):
            book("INSERT INTO journal_line VALUES (?, ?, 1, ?, 'USD', ?, ?, ?, ?)", entry, n, account, sign * amount, sign * base, party, code)
        book.db.execute(*book.issue_statement(doc, entry))
    return doc


@pytest.mark.parametrize("rows", [
    {"V21": (1, 0), "EX": (19999, 2100)},                               # the tax under the exempt code
    {"V21": (10001, 2100), "EX": (9999, 0)}, {"V21": (10000, 2099), "EX": (10000, 1)},
])
def test_in_the_base_currency_the_register_reports_the_document(book, rows):
    doc = book.draft("1", lines=[(10000, "V21"), (10000, "EX")])
    for code, base in rows.items():
        book("UPDATE sales_tax SET base_taxable_minor = ?, base_tax_minor = ? WHERE document_id = ? AND tax_code = ?", *base, doc, code)
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            entry = book.entry("sales_document", doc, "issue", "2026-03-10",
                               [(RECEIVABLE, 22100, 1), (REVENUE, -20000)] + [(OUTPUT, -tax, None, code) for code, (_, tax) in rows.items()])
            book.db.execute(*book.issue_statement(doc, entry))
    assert code_of(error.value) == "RATE_MISMATCH"


@pytest.mark.parametrize("base, code", [
    ((9000, 1890), None), ((9001, 1890), None), ((9000, 1889), None), ((9002, 1890), "RATE_MISMATCH"), ((9000, 1892), "RATE_MISMATCH"),
    ((10890, 0), "RATE_MISMATCH"), ((8790, 2100), "RATE_MISMATCH"),     # the gross amount is right, the split is not
])
def test_base_amounts_of_a_tax_row_follow_the_rate(book, base, code):
    doc = book.draft("1", 10000)
    if code:
        raises(code, in_dollars, book, doc, {"V21": base})
    else:
        in_dollars(book, doc, {"V21": base})
    book.healthy()


def test_many_small_notes_credit_no_more_in_the_base_currency(book):
    doc = in_dollars(book, book.draft("1", 100), {"V21": (90, 19)})    # 121.00 at 0.9
    for _ in range(16):
        in_dollars(book, book.credit(doc, 5), {"V21": (5, 1)})         # 4.5 rounded up, each within its tolerance
    assert book.all("SELECT taxable_minor, tax_minor, base_taxable_minor, base_tax_minor FROM invoice_left") == [(20, 5, 10, 3)]
    raises("CREDIT_EXCEEDS_INVOICE", in_dollars, book, book.credit(doc, 12), {"V21": (11, 3)})
    raises("CREDIT_EXCEEDS_INVOICE", in_dollars, book, book.credit(doc, 12), {"V21": (10, 4)})
    rest = book.credit(doc, 20)                                        # 18 at the rate, but 10 are left
    book("UPDATE sales_tax SET tax_minor = 5 WHERE document_id = ?", rest)
    book("UPDATE sales_document SET tax_minor = 5, gross_minor = 25 WHERE id = ?", rest)
    raises("CREDIT_EXCEEDS_INVOICE", in_dollars, book, rest, {"V21": (18, 3)})
    raises("RATE_MISMATCH", in_dollars, book, rest, {"V21": (9, 3)})
    in_dollars(book, rest, {"V21": (10, 3)})                           # all that is left
    assert book.one("SELECT state FROM order_invoice_status") == "credited"
    assert book.all("SELECT sum(taxable_minor), sum(tax_minor) FROM vat_register_sales") == [(0, 0)]
    book.healthy()


def test_a_note_in_the_base_currency_gives_back_what_it_says(book):
    doc = book.invoice("1", 10000)
    note = book.credit(doc, 10000)
    book("UPDATE sales_tax SET base_taxable_minor = 12100, base_tax_minor = 0 WHERE document_id = ?", note)
    book("UPDATE sales_document SET base_net_minor = 12100, base_tax_minor = 0 WHERE id = ?", note)
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            entry = book.entry("sales_document", note, "issue", "2026-03-10", [(RECEIVABLE, -12100, 1), (REVENUE, 12100)])
            book.db.execute(*book.issue_statement(note, entry))
    assert code_of(error.value) in ("RATE_MISMATCH", "CREDIT_EXCEEDS_INVOICE")


@pytest.mark.parametrize("rows", [{"RC21": (10000, 7)}, {"V21": (10000, 900), "V9": (10000, 2100)}])
def test_the_register_of_purchases_reports_the_bill(book, rows):
    bill = book.bill_draft("R1", net=10000, tax_code=list(rows)[0])
    if "V9" in rows:
        book("INSERT INTO bill_line VALUES (?, 2, 1, 'more', 10000, 'V9')", bill)
        book("INSERT INTO bill_tax VALUES (?, 'V9', 1, 10000, 900, 10000, 900)", bill)
        book("UPDATE received_bill SET net_minor = 20000, tax_minor = 3000, gross_minor = 23000, base_net_minor = 20000,"
             " base_tax_minor = 3000, base_gross_minor = 23000 WHERE id = ?", bill)
    for code, base in rows.items():
        book("UPDATE bill_tax SET base_taxable_minor = ?, base_tax_minor = ? WHERE bill_id = ? AND tax_code = ?", *base, bill, code)
    gross = book.one("SELECT gross_minor FROM received_bill WHERE id = ?", bill)
    vat = [(INPUT, tax, None, code) for code, (_, tax) in rows.items()] + [(OUTPUT, -7, None, "RC21")] * ("RC21" in rows)
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            entry = book.entry("received_bill", bill, "register", "2026-03-06",
                               [(PAYABLE, -gross, 11), (EXPENSE, gross - sum(v[1] for v in vat))] + vat)
            book.db.execute(book.REGISTER.format(verb="UPDATE"), {"entry": entry, "bill": bill})
    assert code_of(error.value) == "RATE_MISMATCH"


@pytest.mark.parametrize("base, code", [((4500, 945), None), ((4501, 944), None), ((5445, 0), "RATE_MISMATCH")])
def test_base_amounts_of_a_foreign_bill_follow_the_rate(book, base, code):
    bill = book.bill_draft("R1", net=5000)
    book("UPDATE bill_tax SET base_taxable_minor = ?, base_tax_minor = ? WHERE bill_id = ?", *base, bill)
    book("UPDATE received_bill SET currency = 'USD', rate_num = 9, rate_den = 10, base_net_minor = ?, base_tax_minor = ?,"
         " base_gross_minor = 5445 WHERE id = ?", *base, bill)

    def register():
        with book.transaction():
            entry = book.one("INSERT INTO journal_entry (company_id, entry_date, source_kind, source_id, purpose)"
                             " VALUES (1, '2026-03-06', 'received_bill', ?, 'register') RETURNING id", bill)
            for n, line in enumerate([(PAYABLE, -6050, -5445, 11, None), (EXPENSE, 5000, base[0], None, None),
                                      (INPUT, 1050, base[1], None, "V21")], 1):
                book("INSERT INTO journal_line VALUES (?, ?, 1, ?, 'USD', ?, ?, ?, ?)", entry, n, *line)
            book.db.execute(book.REGISTER.format(verb="UPDATE"), {"entry": entry, "bill": bill})

    raises(code, register) if code else register()
    book.healthy()


def test_the_open_item_is_in_the_currency_of_the_document(book):
    """A line of 5000 dollars and no euro would change no sum that is compared."""
    invoice, bill = book.draft("1"), book.bill_draft("R1")
    for entry, issue in ((lambda: book.sales_entry(invoice), lambda e: book.issue_statement(invoice, e)),
                         (lambda: book.bill_entry(bill), lambda e: (book.REGISTER.format(verb="UPDATE"), {"entry": e, "bill": bill}))):
        with pytest.raises(sqlite3.IntegrityError) as error:
            with book.transaction():
                e = entry()
                book("INSERT INTO journal_line SELECT entry_id, 9, company_id, account_id, 'USD', 500000, 0, party_id, NULL"
                     "  FROM journal_line WHERE entry_id = ? AND party_id IS NOT NULL", e)
                book.db.execute(*issue(e))
        assert code_of(error.value) == "ENTRY_MISMATCH"
    book.healthy()


def test_a_company_without_vat_periods(one_book):
    one_book("INSERT INTO company (id, name, country, base_currency) VALUES (3, 'Association', 'LT', 'EUR')")
    one_book("INSERT INTO fiscal_year VALUES (3, '2026', '2026-01-01', '2026-12-31', 'open')")
    one_book("INSERT INTO tax_code (company_id, code, kind, rate_bp) VALUES (3, 'EX', 'exempt', 0)")
    one_book("INSERT INTO party (id, company_id, name) VALUES (301, 3, 'Member')")
    one_book("INSERT INTO account (id, company_id, code, name, type, role) VALUES (201, 3, '1', 'R', 'asset', 'receivable'), (207, 3, '2', 'S', 'income', NULL)")
    one_book("INSERT INTO series (id, company_id, doc_kind, code, template) VALUES (201, 3, 'invoice', 'I', 'I-{period}-{number}')")
    doc = one_book.issue(one_book.draft("1", company=3, customer=301, tax_code="EX"))
    assert one_book.all("SELECT full_number, vat_period FROM sales_document WHERE id = ?", doc) == [("I-2026-00001", None)]
    one_book.healthy()


def test_review_lists_name_likely_duplicates_and_never_block(one_book):
    a = one_book.bill("A-10", net=1000, date="2026-03-01", sha="a" * 64)
    amount = one_book.bill("B-20", net=1000, date="2026-03-06")
    file = one_book.bill_draft("C-30", net=2, date="2026-03-20", sha="a" * 64)
    sign = one_book.bill("A 10", net=1000, date="2026-03-01", kind="credit_note")
    company = one_book.bill("a10", net=7, company=2)
    soft = [one_book.bill(n, net=10 + k, date="2026-02-%02d" % (1 + 7 * k)) for k, n in enumerate(("Nr. 0077-O5", "7705", "N\u00b0 77-005"))]
    voided = one_book.bill("Z-1", net=1000, date="2026-03-02")
    one_book.void(voided)
    found = {(x, y, why) for _, x, y, why in one_book.all("SELECT * FROM possible_duplicate_bill")}
    assert (a, amount, "same amount within five days") in found
    assert (a, file, "same file") in found
    assert (a, sign, "same number and amount, other sign") in found
    assert (a, company, "same supplier and number in another company") in found
    assert not [f for f in found if voided in f[:2]]
    similar = {f[:2] for f in found if f[2] == "similar number"}
    assert similar == {(soft[0], soft[1])}
    one_book.bill("770-5", net=50, dup_seq=1, dup_reason="another paper", date="2026-01-01")
    one_book.bill("0770005", net=51, date="2026-01-20")
    one_book.bill("INV-77005", net=52, date="2026-01-28")
    similar = {tuple(one_book.one("SELECT doc_no FROM received_bill WHERE id = ?", i) for i in f[1:3])
               for f in one_book.all("SELECT * FROM possible_duplicate_bill WHERE why = 'similar number'")}
    assert similar == {("Nr. 0077-O5", "7705"), ("Nr. 0077-O5", "770-5"), ("7705", "770-5"), ("N\u00b0 77-005", "INV-77005")}
    twin = one_book.invoice(None, 300), one_book.invoice(None, 300, date="2026-03-16")
    one_book.invoice(None, 300, date="2026-03-25")
    assert one_book.all("SELECT first_id, second_id FROM possible_duplicate_invoice WHERE first_id = ?", twin[0]) == [twin]
    one_book.payment("x1", 44)
    one_book.payment("x2", 44, date="2026-03-17")
    one_book.payment("x3", 44, date="2026-03-25")
    assert one_book.one("SELECT count(*) FROM possible_duplicate_payment") == 1
    assert one_book.one("SELECT unallocated_minor FROM payment_unallocated LIMIT 1") == 44
    one_book.healthy()


def test_stuck_webhooks(one_book):
    old, new = one_book.event("old"), one_book.event("new")
    one_book("UPDATE webhook_event SET status = 'failed', attempts = 1 WHERE id = ?", new)
    assert [r[0] for r in one_book.all("SELECT event_id FROM webhook_stuck")] == ["new"]
    one_book("INSERT INTO webhook_event (company_id, provider, account, event_id, body, body_sha256, signature_ok, received_at)"
             " VALUES (1, 'p', 'a', 'older', x'00', ?, 1, '2026-01-01T00:00:00Z')", "b" * 64)
    assert [r[0] for r in one_book.all("SELECT event_id FROM webhook_stuck ORDER BY 1")] == ["new", "older"]
    assert old


def test_tax_codes_are_judged_at_the_tax_point(book):
    book("UPDATE tax_code SET valid_to = '2026-02-28' WHERE company_id = 1 AND code = 'V9'")
    book.issue_refused("TAX_CODE_MISMATCH", book.draft("1", tax_code="V9"))
    old = book.invoice("2", tax_code="V9", supply="2026-02-20")
    book.issue(book.credit(old, 10, tax_code="V9"))                 # the old code stays good for corrections
    doc = book.draft("3", tax_code="EX")
    book("UPDATE sales_tax SET tax_minor = 1, base_tax_minor = 1 WHERE document_id = ?", doc)
    book("UPDATE sales_document SET tax_minor = 1, gross_minor = 10001, base_tax_minor = 1, base_gross_minor = 10001 WHERE id = ?", doc)
    book.issue_refused("TAX_CODE_MISMATCH", doc)
    book.healthy()


# Periods ----------------------------------------------------------------------------------------

def test_locked_and_filed_periods(book):
    book("UPDATE company SET locked_through = '2026-01-31' WHERE id = 1")
    book.issue_refused("PERIOD_LOCKED", book.draft("1", date="2026-01-31"))
    book.invoice("1", date="2026-02-01")
    book.register_refused("PERIOD_LOCKED", book.bill_draft("1", registered="2026-01-31"))
    raises("PERIOD_LOCKED", book.manual, 1, "2026-01-31", [(BANK, 1), (EQUITY, -1)])
    raises("PERIOD_LOCKED", book.payment, "p", date="2026-01-15")
    book.invoice("1", date="2026-01-01", company=2)
    book("UPDATE vat_period SET status = 'filed' WHERE company_id = 1 AND period = '2026-02'")
    late = book.invoice("2", date="2026-02-15")
    assert book.one("SELECT vat_period FROM sales_document WHERE id = ?", late) == "2026-03"
    bill = book.bill("9", registered="2026-02-10")
    assert book.one("SELECT vat_period FROM received_bill WHERE id = ?", bill) == "2026-03"
    book("UPDATE fiscal_year SET status = 'closed' WHERE label = '2025'")
    book.issue_refused("PERIOD_LOCKED", book.draft("3", date="2025-12-31", company=2))
    book.refused("PERIOD_LOCKED", "UPDATE company SET locked_through = '2026-01-30' WHERE id = 1")
    book.refused("PERIOD_LOCKED", "UPDATE company SET locked_through = NULL WHERE id = 1")
    book("INSERT INTO override_log (company_id, kind, detail, reason) VALUES (1, 'unlock', '2026-01-31', 'auditor asked')")
    book("UPDATE company SET locked_through = '2026-01-15' WHERE id = 1")
    book.refused("PERIOD_LOCKED", "UPDATE company SET locked_through = '2026-01-01' WHERE id = 1")
    book.healthy()


def test_a_date_before_the_year_is_opened_is_told_so(book):
    # next_number has no row for such a date, so the issuing statement knows no series: that is not what is wrong
    doc = book.draft("1", date="2028-01-01")
    with pytest.raises(sqlite3.IntegrityError, match="^PERIOD_LOCKED: the issue date .* no open fiscal year, .* insert the fiscal year"):
        book.issue(doc)
    bill = book.bill_draft("1", registered="2028-01-01")
    with pytest.raises(sqlite3.IntegrityError, match="^PERIOD_LOCKED: .* no open fiscal year, .* insert the fiscal year"):
        book.register(bill)
    book("INSERT INTO fiscal_year (company_id, label, starts_on, ends_on) VALUES (1, '2028', '2028-01-01', '2028-12-31')")
    with pytest.raises(sqlite3.IntegrityError, match="^WRONG_VAT_PERIOD: .* there is none: insert it into vat_period"):
        book.issue(doc)
    with pytest.raises(sqlite3.IntegrityError, match="^WRONG_VAT_PERIOD: .* there is none: insert it into vat_period"):
        book.register(bill)
    book("INSERT INTO vat_period (company_id, period, starts_on, ends_on) VALUES (1, '2028-01', '2028-01-01', '2028-01-31')")
    book.issue(doc)
    book.register(bill)
    book.healthy()


@pytest.mark.parametrize("verb", ["UPDATE", "UPDATE OR IGNORE", "UPDATE OR REPLACE"])
def test_a_reason_to_unlock_serves_once(book, verb):
    reason = "INSERT INTO override_log (company_id, kind, detail, reason) VALUES (%d, 'unlock', '2026-10-31', 'auditor asked')"
    lock = "UPDATE company SET locked_through = '2026-10-31' WHERE id = 1"
    book(lock)
    book(reason % 2)                                                # another company's
    for back in ("'2026-09-30'", "NULL"):
        unlock = verb + " company SET locked_through = %s WHERE id = 1" % back
        book.refused("PERIOD_LOCKED", unlock)
        book(reason % 1)
        book(unlock)
        book(lock)
        book.refused("PERIOD_LOCKED", unlock)
    assert book.all("SELECT kind, detail, reason FROM override_log WHERE company_id = 1 ORDER BY id") == [
        ("unlock", "2026-10-31", "auditor asked"), ("unlocked", "2026-10-31", "moved back to 2026-09-30"),
        ("unlock", "2026-10-31", "auditor asked"), ("unlocked", "2026-10-31", "moved back to no lock")]


def test_closing_a_month_as_the_readme_says(book):
    readme = open(os.path.join(ROOT, "sql", "README.md"), encoding="utf-8").read()
    section = readme.split("\n## Closing a month\n")[1].split("\n## ")[0]
    close, unlock = re.findall(r"```sql\n(.*?)```", section, re.S)
    for view in ("integrity_report", "unbalanced_or_unsealed_entry", "vat_register_check", "depreciation_missing_period",
                 "webhook_stuck", "settlement_unmatched", "payment_unallocated"):
        assert "`%s`" % view in section
        book.all("SELECT * FROM %s" % view)
    file, lock = close.split("\n", 1)
    book(file)
    late = book.invoice("1", date="2026-03-31")
    assert book.one("SELECT vat_period FROM sales_document WHERE id = ?", late) == "2026-04"
    book(lock)
    book.issue_refused("PERIOD_LOCKED", book.draft("2", date="2026-03-31"))
    reason, move = unlock.split(";\n", 1)
    book.refused("PERIOD_LOCKED", move)
    book(reason)
    book(move)
    book.invoice("2", date="2026-03-31")
    book.refused("IMMUTABLE", "UPDATE vat_period SET status = 'open' WHERE period = '2026-03'")
    book.healthy()


@pytest.mark.parametrize("code, difference", [(None, []), ("V21", [("output", 2100), ("input", 1050)])])
def test_a_vat_line_without_tax_code_settles(book, code, difference):
    book.invoice("1", 10000)                                        # tax 2100
    book.bill("B-1", net=5000)                                      # tax 1050
    book.manual(1, "2026-03-31", [(OUTPUT, 2100, None, code), (INPUT, -1050, None, code), (BANK, -1050)])
    assert book.all("SELECT side, difference_minor FROM vat_register_check WHERE vat_period = '2026-03'"
                    " AND difference_minor <> 0 ORDER BY side DESC") == difference
    assert {r[0] for r in book.all("SELECT net_minor FROM trial_balance WHERE account IN ('4492', '2441')")} == {0}


@pytest.mark.parametrize("kind", ["invoice", "bill"])
def test_the_tax_of_a_document_names_its_code(book, kind):
    """What vat_register_check leaves out cannot be tax of a document."""
    doc = book.draft("1") if kind == "invoice" else book.bill_draft("B-1")
    written = {"invoice": book.sales_entry, "bill": book.bill_entry}[kind]

    def without_code(document):
        entry = written(document)
        book("INSERT INTO journal_line SELECT entry_id, 9, company_id, account_id, currency, amount_minor, base_amount_minor, party_id, NULL"
             " FROM journal_line WHERE entry_id = ? AND tax_code IS NOT NULL", entry)
        book("DELETE FROM journal_line WHERE entry_id = ? AND tax_code IS NOT NULL", entry)
        return entry

    book.sales_entry = book.bill_entry = without_code
    raises("ENTRY_MISMATCH", book.issue if kind == "invoice" else book.register, doc)


@pytest.mark.parametrize("make, day", [
    (lambda book: book.invoice("1", date="2026-03-10"), "2026-03-10"),
    (lambda book: book.invoice("1", date="2026-03-10", supply="2026-02-20"), "2026-02-20"),
    (lambda book: book.bill("B-1", registered="2026-03-06"), "2026-03-06"),
])
def test_no_vat_period_over_documents_without_one(book, make, day):
    """A company registers for VAT in June: what it issued before is in no period, and never will be."""
    guard = book.one("SELECT sql FROM sqlite_schema WHERE name = 'vat_period_delete'")
    book("DROP TRIGGER vat_period_delete")
    book("DELETE FROM vat_period WHERE company_id = 1")
    book(guard)
    insert = "INSERT INTO vat_period (company_id, period, starts_on, ends_on) VALUES (1, ?, ?, ?)"
    make(book)
    book.refused("VAT_PERIOD_MISMATCH", insert, "2026", "2026-01-01", "2026-12-31")
    book.refused("VAT_PERIOD_MISMATCH", insert, "day", day, day)
    book(insert, "2026-06", "2026-06-01", "2026-06-30")
    book.refused("VAT_PERIOD_MISMATCH", insert, "day", day, day)
    # Days without documents, also late and close to the others; drafts and another company have no say.
    book.draft("2", date="2026-04-01")
    book.bill_draft("B-2", registered="2026-04-01")
    for late in ("2026-01-01", "2026-02-19", "2026-02-21", "2026-03-05", "2026-03-07", "2026-03-09", "2026-03-11", "2026-04-01"):
        book(insert, late, late, late)
    # A document whose day had no period yet, and which took a later one, is in the right one for good.
    book.invoice("3", date="2026-05-10")
    book(insert, "2026-05", "2026-05-01", "2026-05-31")
    book.healthy()


@pytest.mark.parametrize("make, code", [
    (lambda book, code: book.invoice("1", tax_code=code), "V21"),
    (lambda book, code: book.bill("B-1", tax_code=code), "ND21")])
def test_the_classifier_of_a_filed_period_stays(book, make, code):
    change = "UPDATE tax_code SET isaf_code = ? WHERE company_id = ? AND code = ?"
    make(book, code)
    book(change, "PVM15", 1, code)                                  # used, and nothing filed yet
    book("UPDATE vat_period SET status = 'filed' WHERE company_id = 1 AND period <= '2026-03'")
    for new in ("PVM16", None):
        book.refused("IMMUTABLE", change, new, 1, code)
    book("UPDATE tax_code SET name = 'as before', valid_to = '2026-12-31', isaf_code = isaf_code WHERE company_id = 1")
    book(change, "PVM16", 1, "V9")                                  # not in the filed period
    book(change, "PVM16", 2, code)                                  # another company's
    book.healthy()


def test_a_missing_classifier_is_added_when_the_period_is_filed(book):
    book("UPDATE tax_code SET isaf_code = NULL")
    book.invoice("1")
    book("UPDATE vat_period SET status = 'filed' WHERE company_id = 1 AND period <= '2026-03'")
    book("UPDATE tax_code SET isaf_code = 'PVM1'")
    book.refused("IMMUTABLE", "UPDATE tax_code SET isaf_code = 'PVM2' WHERE company_id = 1 AND code = 'V21'")


def test_year_change_needs_no_counter_row(book):
    old = [book.invoice(None, date="2026-12-31"), book.invoice(None, date="2027-01-01"), book.invoice(None, date="2026-12-31")]
    assert [book.one("SELECT full_number FROM sales_document WHERE id = ?", d) for d in old] == ["INV-2026-00001", "INV-2027-00001", "INV-2026-00002"]
    assert book.all("SELECT * FROM number_gap") == []


def test_strict_dates(book):
    book("INSERT INTO series (id, company_id, doc_kind, code, template, strict_dates) VALUES (7, 1, 'invoice', 'S', 'S-{period}-{number}', 1)")
    book.issue(book.draft("1", date="2026-03-10"), series=7)
    book.issue_refused("DATE_BEFORE_PREVIOUS", book.draft("2", date="2026-03-09"), series=7)
    book.issue(book.draft("2", date="2026-03-10"), series=7)
    book.invoice("3", date="2026-03-09")
    book.invoice("4", date="2026-03-08")
    assert book.all("SELECT full_number FROM number_out_of_date_order") == [("INV-2026-00002",)]
    book.healthy()


def test_templates_that_collide(book):
    book("INSERT INTO series (id, company_id, doc_kind, code, template) VALUES (7, 1, 'advance', 'S', 'INV-{period}-{number}')")
    book.invoice("1")
    book.issue_refused("FULL_NUMBER_TAKEN", book.draft("2", kind="advance"), series=7)
    for sql in ("INSERT INTO series (company_id, doc_kind, code, template) VALUES (1, 'invoice', 'Z', 'Z-{number}')",
                "INSERT INTO series (company_id, doc_kind, code, reset, template) VALUES (1, 'invoice', 'Z', 'never', 'Z-{period}-{number}')",
                "INSERT INTO series (company_id, doc_kind, code, reset, template) VALUES (1, 'invoice', 'Z', 'never', 'Z')"):
        with pytest.raises(sqlite3.IntegrityError):
            book(sql)


@pytest.mark.parametrize("date", ["2026-02-30", "2026-2-3", "2026-02-03 00:00", "2026-02-03T00:00:00Z", "now", "2461000", "", "03.02.2026", "2026-13-01", 20260203])
def test_dates_are_dates(one_book, date):
    for sql in ("UPDATE sales_document SET issue_date = ?", "UPDATE company SET locked_through = ?", "UPDATE report_as_of SET as_of = ?"):
        one_book.draft("1")
        with pytest.raises(sqlite3.Error):
            one_book(sql, date)
        one_book(sql, "2026-02-28")
        one_book("DELETE FROM sales_document")
        one_book("INSERT INTO override_log (company_id, kind, detail, reason) SELECT id, 'unlock', '2026-02-28', 'test' FROM company")
        one_book("UPDATE company SET locked_through = NULL")


def test_money_is_integer_and_bounded(one_book):
    pay = ("INSERT INTO payment (company_id, direction, provider, account, value_date, currency, amount_minor, base_amount_minor)"
           " VALUES (1, 'in', 'p', 'a', '2026-01-01', 'USD', ?, 1)")
    for bad in (10.10, "12.5", "abc", None, 0, -5, 10 ** 15, b"1"):
        with pytest.raises(sqlite3.Error):
            one_book(pay, bad)
    for good in (10, 10.0, "12", 999999999999999):
        one_book(pay, good)
    assert one_book.one("SELECT group_concat(DISTINCT typeof(amount_minor)) FROM payment") == "integer"


# The journal ------------------------------------------------------------------------------------

def test_seal_rules(book):
    raises("ENTRY_TOO_SMALL", book.manual, 1, "2026-03-01", [])
    raises("ENTRY_TOO_SMALL", book.manual, 1, "2026-03-01", [(BANK, 5)])
    raises("ENTRY_UNBALANCED", book.manual, 1, "2026-03-01", [(BANK, 5), (EQUITY, -4)])
    raises("ENTRY_UNBALANCED", book.manual, 1, "2026-03-01", [(BANK, 5), (EQUITY, -5), (FEES, 1)])
    raises("ACCOUNT_NOT_USABLE", book.manual, 1, "2026-03-01", [(RECEIVABLE, 5), (EQUITY, -5)])      # no party
    raises("PERIOD_LOCKED", book.manual, 1, "2031-03-01", [(BANK, 5), (EQUITY, -5)])
    book.refused("ENTRY_MISSING", "INSERT INTO journal_seal (entry_id) VALUES (4711)")
    book("UPDATE account SET closed_on = '2026-02-28' WHERE id = ?", EQUITY)
    raises("ACCOUNT_NOT_USABLE", book.manual, 1, "2026-03-01", [(BANK, 5), (EQUITY, -5)])
    book.manual(1, "2026-02-28", [(BANK, 5), (EQUITY, -5)])
    book("UPDATE account SET is_group = 1 WHERE id = ?", FEES)
    raises("ACCOUNT_NOT_USABLE", book.manual, 2, "2026-03-01", [(BANK, 5), (FEES, -5)])
    book("UPDATE account SET currency = 'USD' WHERE id = ?", EXPENSE)
    raises("ACCOUNT_NOT_USABLE", book.manual, 2, "2026-03-01", [(BANK, 5), (EXPENSE, -5)])
    for change in ("type = 'income'", "role = 'clearing'", "currency = 'USD'", "is_group = 1"):
        book.refused("IMMUTABLE", "UPDATE account SET %s WHERE id = %d" % (change, BANK))
    assert book.one("SELECT count(*) FROM journal_entry") == 1
    book.healthy()


def test_what_a_foreign_key_error_means(one_book):
    """SQLite names nothing in it, so sql/README.md does: what a row refers to is missing, or an entry has no seal."""
    book, entry = one_book, "INSERT INTO journal_entry (company_id, entry_date, source_kind, source_id, purpose) VALUES (%s, '2026-03-01', 'manual', 1, 'm')"
    nothing = "^FOREIGN KEY constraint failed$"
    book("BEGIN")
    book(entry % 1)
    for account, currency, party, tax in ((999, "EUR", None, None), (BANK, "XXX", None, None), (BANK, "EUR", 999, None), (BANK, "EUR", None, "NO")):
        with pytest.raises(sqlite3.IntegrityError, match=nothing):
            book("INSERT INTO journal_line VALUES (1, 1, 1, ?, ?, 5, 5, ?, ?)", account, currency, party, tax)
    with pytest.raises(sqlite3.IntegrityError, match=nothing):
        book("COMMIT")
    assert book.all("SELECT entry_id, sealed FROM unbalanced_or_unsealed_entry") == [(1, 0)]
    book("ROLLBACK")
    with pytest.raises(sqlite3.IntegrityError, match=nothing):
        book(entry % 1)                                             # outside a transaction
    with pytest.raises(sqlite3.IntegrityError, match=nothing):
        book("INSERT INTO party (company_id, name) VALUES (99, 'x')")
    with pytest.raises(sqlite3.IntegrityError, match=r"^NOT NULL constraint failed: party\.name$"):
        book("INSERT INTO party (company_id) VALUES (1)")


def test_lines_stay_inside_their_company(book):
    with pytest.raises(sqlite3.IntegrityError):
        with book.transaction():
            entry = book.entry("manual", 1, "manual", "2026-03-01", [(BANK, 5)])
            book("INSERT INTO journal_line VALUES (?, 2, 1, 103, 'EUR', -5, -5, NULL, NULL)", entry)     # account of company 2
            book("INSERT INTO journal_seal (entry_id) VALUES (?)", entry)
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            entry = book.entry("manual", 1, "manual", "2026-03-01", [(BANK, 5)])
            book("INSERT INTO journal_line VALUES (?, 2, 2, 103, 'EUR', -5, -5, NULL, NULL)", entry)
    assert code_of(error.value) == "WRONG_COMPANY"
    with pytest.raises(sqlite3.IntegrityError):
        with book.transaction():
            entry = book.entry("manual", 1, "manual", "2026-03-01", [(BANK, 5), (RECEIVABLE, -5, 101)])  # party of company 2
            book("INSERT INTO journal_seal (entry_id) VALUES (?)", entry)
    assert book.one("SELECT count(*) FROM journal_entry") == 0


def test_commit_fails_while_an_entry_is_unsealed():
    book = Book(foreign_keys=True)
    book("BEGIN IMMEDIATE")
    entry = book.entry("manual", 1, "manual", "2026-03-01", [(BANK, 5), (EQUITY, -5)])
    raises("FOREIGN KEY constraint failed", book, "COMMIT")
    assert book.db.in_transaction                       # may be mended ...
    book("INSERT INTO journal_seal (entry_id) VALUES (?)", entry)
    book("COMMIT")
    book.healthy()
    book("BEGIN IMMEDIATE")
    doc = book.draft("1")
    book.sales_entry(doc)                               # ... and a document's entry only by its document
    raises("SOURCE_NOT_POSTED", book, "INSERT INTO journal_seal (entry_id) SELECT max(id) FROM journal_entry")
    raises("FOREIGN KEY constraint failed", book, "COMMIT")
    book("ROLLBACK")
    book.healthy()


def test_without_foreign_keys_the_proof_still_finds_it():
    book = Book(foreign_keys=False)
    with book.transaction():
        book.entry("manual", 1, "manual", "2026-03-01", [(BANK, 5), (EQUITY, -5)])
    assert book.one("SELECT count(*) FROM trial_balance") == 0
    assert [r[0] for r in book.all("SELECT rule FROM integrity_report")] == ["ENTRY_UNSEALED"]
    with book.transaction():
        book.entry("manual", 2, "manual", "2026-03-01", [(BANK, 5)])
    assert book.all("SELECT * FROM foreign_imbalance") == []            # a report shows sealed entries only


def test_reversals(book):
    entry = book.manual(1, "2026-03-01", [(BANK, 5), (FEES, 3), (EQUITY, -8)])
    for lines in ([(BANK, -5), (EQUITY, 5)], [(BANK, 5), (FEES, 3), (EQUITY, -8)], [(BANK, -8), (EQUITY, 8)]):
        raises("REVERSAL_MISMATCH", book.manual, 2, "2026-03-02", lines, reverses=entry)
    raises("REVERSAL_MISMATCH", book.manual, 2, "2026-02-27", book.reversal_lines(entry), reverses=entry)
    back = book.manual(2, "2026-03-02", book.reversal_lines(entry), reverses=entry)
    raises("ENTRY_ALREADY_REVERSED", book.manual, 3, "2026-03-03", book.reversal_lines(entry), reverses=entry)
    raises("REVERSAL_MISMATCH", book.manual, 3, "2026-03-03", book.reversal_lines(back), reverses=back)
    invoice = book.invoice("1")
    posted = book.one("SELECT entry_id FROM sales_document WHERE id = ?", invoice)
    raises("REVERSAL_MISMATCH", book.manual, 4, "2026-03-20", book.reversal_lines(posted), reverses=posted)
    with pytest.raises(sqlite3.IntegrityError) as error:             # nor under the document's own name
        with book.transaction():
            back = book.entry("sales_document", invoice, "undo", "2026-03-20", book.reversal_lines(posted), reverses=posted)
            book("INSERT INTO journal_seal (entry_id) VALUES (?)", back)
    assert code_of(error.value) == "SOURCE_NOT_POSTED"
    book.healthy()


# Payments ---------------------------------------------------------------------------------------

def test_allocations_stay_within_payment_and_document(book):
    invoice, pay = book.invoice("1", 10000), book.payment("p1", 20000)         # gross 12100
    raises("ALLOCATION_EXCEEDS_DOCUMENT", book.allocate, pay, 12101, invoice=invoice)
    first = book.allocate(pay, 5000, invoice=invoice)
    raises("ALLOCATION_EXISTS", book.allocate, pay, 5000, invoice=invoice)
    second = book.payment("p2", 7101)
    raises("ALLOCATION_EXCEEDS_DOCUMENT", book.allocate, second, 7101, invoice=invoice)
    book.issue(book.credit(invoice, 1000))                                     # 1210
    raises("ALLOCATION_EXCEEDS_DOCUMENT", book.allocate, second, 7100, invoice=invoice)
    book.allocate(second, 5890, invoice=invoice)
    assert book.all("SELECT * FROM receivable_open") == []
    other = book.invoice("2", 20000)
    raises("ALLOCATION_EXCEEDS_PAYMENT", book.allocate, pay, 15001, invoice=other)
    book.allocate(pay, 15000, invoice=other)
    back = book.allocate(pay, 5000, invoice=invoice, reverses=first)
    raises("REVERSAL_MISMATCH", book.allocate, pay, 5000, invoice=invoice, reverses=first)
    raises("REVERSAL_MISMATCH", book.allocate, pay, 5000, invoice=invoice, reverses=back)
    raises("REVERSAL_MISMATCH", book.allocate, pay, 4999, invoice=invoice, reverses=first)
    book.allocate(pay, 5000, invoice=invoice)
    book.healthy()


def test_the_day_of_an_allocation(book):
    """What was open at the end of a locked period stays as it was reported."""
    invoice, pay = book.invoice("1", 10000, date="2026-01-10"), book.payment("p", 12100, date="2026-03-15")
    raises("ALLOCATION_MISMATCH", book.allocate, pay, 12100, invoice=invoice, date="2026-03-14")
    raises("PERIOD_LOCKED", book.allocate, pay, 12100, invoice=invoice, date="2028-01-01")
    first = book.allocate(pay, 12100, invoice=invoice, date="2026-03-15")
    book("UPDATE company SET locked_through = '2026-03-31' WHERE id = 1")
    book("UPDATE report_as_of SET as_of = '2026-03-31'")
    raises("PERIOD_LOCKED", book.allocate, pay, 12100, invoice=invoice, date="2026-03-31", reverses=first)
    book.allocate(pay, 12100, invoice=invoice, date="2026-04-01", reverses=first)
    assert book.all("SELECT * FROM receivable_open") == []
    raises("PERIOD_LOCKED", book.allocate, pay, 100, invoice=invoice, date="2026-03-31")
    book.allocate(pay, 100, invoice=invoice, date="2026-04-01")
    other = book.invoice("2", 100, date="2026-12-31")
    book("UPDATE fiscal_year SET status = 'closed' WHERE label = '2026'")
    raises("PERIOD_LOCKED", book.allocate, pay, 100, invoice=other, date="2026-12-31")
    book.healthy()


def test_open_items_of_every_day_are_the_ledgers(book):
    """An invoice paid in advance, its payment bounced, then annulled: what the reports call open is what the ledger has."""
    def agree():
        for day in ("02-28", "03-01", "03-10", "03-15", "03-20", "03-31", "04-19", "04-20", "04-21"):
            book("UPDATE report_as_of SET as_of = '2026-' || ?", day)
            ledger = book.one("SELECT coalesce(sum(base_amount_minor), 0) FROM general_ledger WHERE account IN ('2410', '4430')"
                              " AND entry_date <= '2026-' || ?", day)
            listed = book.one("SELECT (SELECT coalesce(sum(open_minor), 0) FROM receivable_open) - (SELECT coalesce(sum(open_minor), 0)"
                              " FROM payable_open) - (SELECT coalesce(sum(iif(direction = 'in', unallocated_minor, -unallocated_minor)), 0)"
                              " FROM payment_unallocated)")
            assert listed == ledger, day

    invoice, pay = book.invoice("1", 10000, date="2026-03-15"), book.payment("p", 12100, date="2026-03-01")
    raises("ALLOCATION_MISMATCH", book.allocate, pay, 12100, invoice=invoice, date="2026-03-14")
    first = book.allocate(pay, 12100, invoice=invoice, date="2026-03-15")
    agree()
    book.allocate(pay, 12100, invoice=invoice, date="2026-04-20", reverses=first)
    raises("REVERSAL_MISMATCH", book.payment, "r", 12100, direction="out", date="2026-04-19", reverses=pay)
    raises("REVERSAL_MISMATCH", book.annul, invoice, "2026-04-19")
    book.payment("r", 12100, direction="out", date="2026-04-20", reverses=pay)
    agree()
    book.annul(invoice, "2026-04-20")
    agree()

    bill, paid = book.bill("1", date="2026-03-20", registered="2026-03-20"), book.payment("o", 6050, "out", "2026-03-10", party=11)
    raises("ALLOCATION_MISMATCH", book.allocate, paid, 6050, bill=bill, date="2026-03-19")
    first = book.allocate(paid, 6050, bill=bill, date="2026-03-20")
    agree()
    book.allocate(paid, 6050, bill=bill, date="2026-04-20", reverses=first)
    raises("REVERSAL_MISMATCH", book.void, bill, "2026-04-19")
    note = book.register(book.bill_draft("2", kind="credit_note", net=600, credits=bill, registered="2026-03-21"))
    book.void(note, "2026-04-21")
    raises("REVERSAL_MISMATCH", book.void, bill, "2026-04-20")
    book.void(bill, "2026-04-21")
    agree()
    book.healthy()


def test_a_bill_is_not_voided_before_it_was_registered(book):
    """Also where its entry is of an earlier day."""
    bill = book.bill_draft("1", registered="2026-03-06")
    with book.transaction():
        entry = book.bill_entry(bill)
        book("UPDATE received_bill SET registration_date = '2026-03-10' WHERE id = ?", bill)
        book.db.execute(book.REGISTER.format(verb="UPDATE"), {"entry": entry, "bill": bill})
    raises("REVERSAL_MISMATCH", book.void, bill, "2026-03-09")
    book.void(bill, "2026-03-10")
    book.healthy()


def test_unallocated_payments_are_those_of_the_report_day(book):
    invoice, pay = book.invoice("1", 10000, date="2026-01-10"), book.payment("p", 12100, date="2026-03-15")
    first = book.allocate(pay, 100, invoice=invoice, date="2026-03-20")
    book.allocate(pay, 100, invoice=invoice, date="2026-04-02", reverses=first)
    book.payment("r", 12100, direction="out", date="2026-04-05", reverses=pay)
    for day, left in (("2026-03-14", []), ("2026-03-15", [12100]), ("2026-04-01", [12000]), ("2026-04-02", [12100]), ("2026-04-05", [])):
        book("UPDATE report_as_of SET as_of = ?", day)
        assert [r[0] for r in book.all("SELECT unallocated_minor FROM payment_unallocated")] == left, day


def test_who_may_pay_what(book):
    invoice, bill = book.invoice("1"), book.bill("1", net=1000)
    money_in, money_out = book.payment("i", 9999), book.payment("o", 9999, direction="out", party=11)
    raises("ALLOCATION_MISMATCH", book.allocate, money_out, 5, invoice=invoice)
    raises("ALLOCATION_MISMATCH", book.allocate, money_in, 5, bill=bill)
    raises("ALLOCATION_MISMATCH", book.allocate, money_in, 5, invoice=book.draft("2"))
    raises("ALLOCATION_MISMATCH", book.allocate, money_out, 5, bill=book.bill_draft("2"))
    raises("WRONG_COMPANY|ALLOCATION_MISMATCH", book.allocate, money_in, 5, invoice=book.invoice("1", company=2))
    raises("WRONG_COMPANY|ALLOCATION_MISMATCH", book.allocate, money_in, 5)
    raises("WRONG_COMPANY|ALLOCATION_MISMATCH", book.allocate, money_in, 5, invoice=invoice, bill=bill)
    raises("PAYMENT_NOT_POSTED", book.allocate, book.payment("r", 5, post=False), 5, invoice=invoice)
    for verb in ("INSERT OR IGNORE", "INSERT OR REPLACE", "INSERT OR FAIL"):
        book.refused("ALLOCATION_MISMATCH", verb + " INTO allocation (company_id, payment_id, invoice_id, allocated_on, amount_minor, payment_amount_minor)"
                     " VALUES (1, %d, %d, '2026-03-20', 5, 6)" % (money_in, invoice))
    book.allocate(money_out, 1210, bill=bill)
    raises("ALLOCATION_EXCEEDS_DOCUMENT", book.allocate, book.payment("o2", 5, direction="out", party=11), 1, bill=bill)
    raises("VOID_NOT_ALLOWED", book.void, bill)
    book.healthy()


def test_refunds_give_back_what_was_overpaid(book):
    invoice = book.invoice("1", 10000)                                          # 12100
    book.allocate(book.payment("p", 8000), 8000, invoice=invoice)
    note = book.issue(book.credit(invoice, 5000))                               # 6050: overpaid by 1950
    refund = book.payment("r", 6050, direction="out", counter=RECEIVABLE)
    raises("ALLOCATION_EXCEEDS_DOCUMENT", book.allocate, refund, 1951, invoice=note)
    book.allocate(refund, 1950, invoice=note)
    assert book.all("SELECT * FROM receivable_open") == []
    book.healthy()


def test_payment_reversal(book):
    pay = book.payment("p", 500)
    raises("REVERSAL_MISMATCH", book.payment, "r", 499, direction="out", reverses=pay)
    raises("REVERSAL_MISMATCH", book.payment, "r", 500, direction="in", reverses=pay)
    allocation = book.allocate(pay, 500, invoice=book.invoice("1"))
    raises("PAYMENT_ALLOCATED", book.payment, "r", 500, direction="out", reverses=pay)
    book.allocate(pay, 500, invoice=1, reverses=allocation)
    back = book.payment("r", 500, direction="out", reverses=pay)
    raises("REVERSAL_MISMATCH", book.payment, "r2", 500, direction="out", reverses=pay)
    raises("REVERSAL_MISMATCH", book.payment, "r2", 500, direction="in", reverses=back)
    raises("PAYMENT_NOT_POSTED", book.allocate, pay, 500, invoice=1)
    raises("PAYMENT_NOT_POSTED", book.allocate, back, 500, invoice=1)
    assert book.all("SELECT * FROM payment_unallocated") == []
    book.healthy()


@pytest.mark.parametrize("account", [BANK, CLEARING])
def test_a_payment_moves_money_of_its_own_currency_only(book, account):
    """At base 0 the entry balances, so the sums alone do not see it."""
    pay = book.payment("p", 100, post=False)
    with book.transaction():
        entry = book.entry("payment", pay, "payment", "2026-03-15", [(BANK, 100), (RECEIVABLE, -100, 1)])
        book("INSERT INTO journal_line VALUES (?, 3, 1, ?, 'USD', -5000, 0, NULL, NULL)", entry, account)
        raises("ENTRY_MISMATCH", book, "UPDATE payment SET status = 'posted', entry_id = ? WHERE id = ?", entry, pay)
        book("DELETE FROM journal_line WHERE line_no = 3")
        book("UPDATE payment SET status = 'posted', entry_id = ? WHERE id = ?", entry, pay)
    book.healthy()


def test_a_mistyped_payment(book):
    """Until it is posted it is deleted, and its id is free again; after that it is reversed, and the id stays taken."""
    pay = book.payment("B-77", 50000, post=False)
    for verb in ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"):
        book.refused("IMMUTABLE", verb + " payment SET amount_minor = 5000, base_amount_minor = 5000 WHERE id = ?", pay)
    with pytest.raises(sqlite3.IntegrityError, match="recorded payment only changes by being posted; delete it"):
        book("UPDATE payment SET memo = 'x' WHERE id = ?", pay)
    with book.transaction():
        entry = book.entry("payment", pay, "payment", "2026-03-15", [(BANK, 50000), (RECEIVABLE, -50000, 1)])
        with pytest.raises(sqlite3.IntegrityError, match="delete the entry first"):
            book("DELETE FROM payment WHERE id = ?", pay)
        book("DELETE FROM journal_entry WHERE id = ?", entry)
    book("DELETE FROM payment WHERE id = ?", pay)
    wrong = book.payment("B-77", 5000)
    back = book.payment(None, 5000, direction="out", reverses=wrong)
    for posted in (wrong, back):
        book.refused("IMMUTABLE", "DELETE FROM payment WHERE id = ?", posted)
        with pytest.raises(sqlite3.IntegrityError, match="posted payment is never changed; reverse it"):
            book("UPDATE payment SET memo = 'x' WHERE id = ?", posted)
    raises("PAYMENT_ALREADY_RECORDED", book.payment, "B-77", 500)
    book.allocate(book.payment("B-77#2", 500), 500, invoice=book.invoice("1"))
    raises("PAYMENT_ALREADY_RECORDED", book.payment, "B-77#2", 500)
    book.healthy()


def test_a_payment_that_is_matched_is_not_deleted(book):
    pay = book.payment("ch_1", 100, provider="stripe", account="acct_1", post=False)
    batch = book.batch("po_1", [("t1", "charge", 100, 3)])
    book("UPDATE settlement_line SET payment_id = ?", pay)
    book.refused("IMMUTABLE", "DELETE FROM payment WHERE id = ?", pay)
    book("DELETE FROM settlement_batch WHERE id = ?", batch)
    book("DELETE FROM payment WHERE id = ?", pay)
    assert book.one("SELECT count(*) FROM payment") == 0
    book.healthy()


# Bills, depreciation, settlements ---------------------------------------------------------------

def test_supplier_credit_notes(book):
    bill = book.bill("1", net=1000)
    book.bill("1", kind="credit_note", net=300)                                 # may carry the invoice's number
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("1", kind="credit_note", net=300))
    note = book.register(book.bill_draft("2", kind="credit_note", net=600, credits=bill))
    book.register_refused("CREDIT_EXCEEDS_INVOICE", book.bill_draft("3", kind="credit_note", net=401, credits=bill))
    book.register_refused("CREDIT_MISMATCH", book.bill_draft("3", kind="credit_note", net=1, credits=bill, supplier=12))
    book.register_refused("CREDITED_NOT_ISSUED", book.bill_draft("3", kind="credit_note", net=1, credits=note))
    raises("VOID_NOT_ALLOWED", book.void, bill)
    book.void(note)
    book.void(bill)
    raises("ENTRY_ALREADY_POSTED", book.void, bill)
    book.healthy()


def test_bills_after_filing_are_credited_not_voided(book):
    bill = book.bill("1")
    book("UPDATE vat_period SET status = 'filed' WHERE period = '2026-03'")
    raises("VOID_NOT_ALLOWED", book.void, bill, "2026-04-02")
    book.healthy()


def test_own_register_numbers_of_bills(book):
    for doc_no in ("1", "2"):
        bill = book.bill_draft(doc_no)
        with book.transaction():
            book.db.execute(book.REGISTER.format(verb="UPDATE").replace("SET status", "SET (series_id, period, number, full_number) ="
                            " (SELECT series_id, period, number, full_number FROM next_number WHERE series_id = 4 AND period = '2026'), status"),
                            {"entry": book.bill_entry(bill), "bill": bill})
    assert book.all("SELECT full_number FROM received_bill") == [("B-2026-00001",), ("B-2026-00002",)]
    for change, code in (("series_id = 4, period = '2026', number = 4, full_number = 'B-2026-00004'", "NUMBER_NOT_NEXT"),
                         ("series_id = 1, period = '2026', number = 3, full_number = 'B-2026-00003'", "SERIES_MISMATCH"),
                         ("series_id = 4, period = '2025', number = 1, full_number = 'B-2025-00001'", "WRONG_PERIOD"),
                         ("series_id = NULL, number = 3", "SERIES_MISMATCH"), ("full_number = 'X'", "SERIES_MISMATCH")):
        bill = book.bill_draft("3")
        with pytest.raises(sqlite3.IntegrityError) as error:
            with book.transaction():
                book.db.execute(book.REGISTER.format(verb="UPDATE OR REPLACE").replace("SET status", "SET %s, status" % change),
                                {"entry": book.bill_entry(bill), "bill": bill})
        assert code_of(error.value) == code
    book.healthy()


def test_depreciation_runs(book):
    a, b = book.asset("A"), book.asset("B")
    run = book.depreciate({a: 100, b: 200}, "2026-01-01", "2026-01-31")
    for start, end in (("2026-01-31", "2026-02-28"), ("2026-01-10", "2026-01-10"), ("2026-01-01", "2026-12-31")):
        raises("DEPRECIATION_PERIOD_ALREADY_POSTED", book.depreciate, {b: 1}, start, end)
    book.depreciate({a: 100}, "2026-01-01", "2026-01-31", book="tax")
    book.depreciate({a: 7}, "2026-01-15", "2026-01-15", kind="impairment")
    raises("DEPRECIATION_PERIOD_ALREADY_POSTED", book.depreciate, {a: 7}, "2026-01-15", "2026-01-15", kind="impairment")
    raises("DEPRECIATION_OUT_OF_SERVICE", book.depreciate, {a: 1}, "2025-12-31", "2025-12-31")
    with book.transaction():
        draft = book.run_draft("2026-02-01", "2026-02-28")
        book.run_line(draft, a, 5)
        raises("DEPRECIATION_PERIOD_ALREADY_POSTED", book.run_line, draft, a, 5)
        entry = book.entry("depreciation_run", draft, "post", "2026-02-28", [(DEPRECIATION, 6), (ACCUMULATED, -6)])
        raises("ENTRY_MISMATCH", book, "UPDATE depreciation_run SET status = 'posted', entry_id = ? WHERE id = ?", entry, draft)
        book("DELETE FROM journal_entry WHERE id = ?", entry)
        book.run_post(draft)
    back = book.reverse_run(run)
    raises("REVERSAL_MISMATCH", book.reverse_run, run)
    raises("REVERSAL_MISMATCH", book.reverse_run, back)
    book.depreciate({a: 150, b: 250}, "2026-01-01", "2026-01-31")
    raises("DEPRECIATION_OUT_OF_SERVICE", book, "UPDATE asset SET disposed_on = '2026-02-27' WHERE id = ?", a)
    raises("IMMUTABLE", book, "UPDATE asset SET cost_minor = 1 WHERE id = ?", a)
    book("UPDATE report_as_of SET as_of = '2026-04-15'")
    missing = book.all("SELECT asset_id, period_start FROM depreciation_missing_period WHERE book = 'main' ORDER BY 1, 2")
    assert missing == [(a, "2026-03-01"), (b, "2026-02-01"), (b, "2026-03-01")]
    book.healthy()


def test_every_missing_period_can_be_posted(book):
    """An asset put into service and disposed of within a month: the periods are those the guards accept."""
    a, b, c = book.asset("A", in_service="2026-01-15"), book.asset("B"), book.asset("C", in_service="2026-02-10")
    book("UPDATE asset SET disposed_on = '2026-03-10' WHERE id = ?", b)
    book("UPDATE asset SET disposed_on = '2026-02-20' WHERE id = ?", c)
    book("UPDATE report_as_of SET as_of = '2026-04-15'")
    missing = book.all("SELECT asset_id, period_start, period_end FROM depreciation_missing_period ORDER BY 1, 2")
    assert missing == [(a, "2026-01-15", "2026-01-31"), (a, "2026-02-01", "2026-02-28"), (a, "2026-03-01", "2026-03-31"),
                       (b, "2026-01-01", "2026-01-31"), (b, "2026-02-01", "2026-02-28"), (b, "2026-03-01", "2026-03-10"),
                       (c, "2026-02-10", "2026-02-20")]
    for asset, start, end in missing:
        book.depreciate({asset: 100}, start, end)
    assert book.all("SELECT * FROM depreciation_missing_period") == []
    book.healthy()


def test_a_draft_of_a_run_that_bars_another_is_deleted(book):
    """It cannot be reversed, as the error for a posted run advises."""
    asset = book.asset("A")
    draft, run = book.run_draft("2026-01-01", "2026-01-31"), book.run_draft("2026-01-01", "2026-01-31")
    book.run_line(draft, asset, 100)
    with pytest.raises(sqlite3.IntegrityError, match="DEPRECIATION_PERIOD_ALREADY_POSTED: .* delete that draft, or post it"):
        book.run_line(run, asset, 100)
    book("DELETE FROM depreciation_run WHERE id = ?", draft)
    book.run_line(run, asset, 100)
    with book.transaction():
        book.run_post(run)
    with pytest.raises(sqlite3.IntegrityError, match="DEPRECIATION_PERIOD_ALREADY_POSTED: .* reverse that run first"):
        book.depreciate({asset: 100}, "2026-01-01", "2026-01-31")
    book.healthy()


def test_an_overpayment_sent_back_is_listed_with_its_payment(book):
    """README says where to look: no guard sets one against the other."""
    invoice, paid = book.invoice("1"), book.payment("p", 15000, date="2026-03-11")
    book.allocate(paid, 12100, invoice=invoice)
    back = book.payment("r", 2900, direction="out", counter=RECEIVABLE)
    raises("ALLOCATION_MISMATCH", book.allocate, back, 2900, invoice=invoice)
    assert book.all("SELECT payment_id, direction, unallocated_minor FROM payment_unallocated") == [(paid, "in", 2900), (back, "out", 2900)]
    book.healthy()


def test_a_reversal_in_draft_frees_nothing(book):
    a = book.asset("A")
    run = book.depreciate({a: 100}, "2026-01-01", "2026-01-31")
    back = book.run_draft("2026-01-01", "2026-01-31", reverses=run)
    line = book.one("SELECT id FROM depreciation_line WHERE run_id = ?", run)
    raises("REVERSAL_MISMATCH", book.run_line, back, a, 99, line)
    raises("REVERSAL_MISMATCH", book.run_line, back, a, 100)
    book.run_line(back, a, 100, line)
    raises("DEPRECIATION_PERIOD_ALREADY_POSTED", book.depreciate, {a: 1}, "2026-01-01", "2026-01-31")
    with book.transaction():
        book.run_post(back)
    book.depreciate({a: 1}, "2026-01-01", "2026-01-31")
    book.healthy()


def test_settlements(book):
    raises("SETTLEMENT_DOES_NOT_ADD_UP", book.post_batch, book.batch("po_1", [("t1", "charge", 100, 3)], gross=101))
    raises("SETTLEMENT_DOES_NOT_ADD_UP", book.post_batch, book.batch("po_2", [("t2", "charge", 100, 3)], fee=4))
    raises("SETTLEMENT_DOES_NOT_ADD_UP", book.post_batch, book.batch("po_3", []))
    raises("SETTLEMENT_DOES_NOT_ADD_UP", book.post_batch, book.batch("po_4", [("t4", "charge", 100, 0)], manual=1))
    book.post_batch(book.batch("po_5", [("t5", "clearing", 100, 0)], manual=1))
    batch = book.post_batch(book.batch("po_6", [("t6", "charge", 100, 3), ("t7", "refund", -20, 0), ("t8", "fee", 0, 1)]))
    assert [r[0] for r in book.all("SELECT txn_id FROM settlement_unmatched WHERE batch_id = ? ORDER BY 1", batch)] == ["t6", "t7"]
    pay = book.payment("ch_1", 100, provider="stripe", account="acct_1", money=CLEARING)
    back = book.payment("re_1", 20, direction="out", provider="stripe", account="acct_1", money=CLEARING, counter=RECEIVABLE)
    for verb in ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"):
        book.refused("SETTLEMENT_MISMATCH", verb + " settlement_line SET payment_id = ? WHERE txn_id = 't7'", pay)
        book.refused("SETTLEMENT_MISMATCH", verb + " settlement_line SET payment_id = ? WHERE txn_id = 't6'", back)
    imported = book.batch("po_7", [])
    for verb in ("INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE"):
        book.refused("SETTLEMENT_MISMATCH", verb + " INTO settlement_line (batch_id, company_id, provider, account, txn_id, category, gross_minor,"
                     " net_minor, payment_id) VALUES (?, 1, 'stripe', 'acct_1', 't9', 'refund', -20, -20, ?)", imported, pay)
    book("UPDATE settlement_line SET payment_id = ? WHERE txn_id = 't6'", pay)
    for verb in ("UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE"):
        book.refused("PAYMENT_ALREADY_SETTLED", verb + " settlement_line SET payment_id = ? WHERE txn_id = 't7'", pay)
        book.refused("IMMUTABLE", verb + " settlement_line SET payment_id = NULL WHERE txn_id = 't6'")
    book.refused("IMMUTABLE", "DELETE FROM settlement_batch WHERE id = ?", batch)
    book("DELETE FROM settlement_batch WHERE payout_id = 'po_1'")               # a faulty import may be done again
    book.post_batch(book.batch("po_1", [("t1", "charge", 100, 3)]))
    book.healthy()


@pytest.mark.parametrize("other", [dict(provider="bank"), dict(account="acct_2"), dict(currency="USD")])
def test_a_line_is_matched_within_its_provider_account_and_currency(book, other):
    batch = book.batch("po_1", [("t1", "charge", 100, 3)])
    pays = [book.payment(n, 90, provider="stripe", account="acct_1", post=False) for n in ("ch_1", "ch_2")]
    given = dict(dict(provider="stripe", account="acct_1", currency="EUR"), **other)
    alien = book.one("INSERT INTO payment (company_id, direction, provider, account, value_date, currency, amount_minor, base_amount_minor)"
                     " VALUES (1, 'in', ?, ?, '2026-03-15', ?, 100, 100) RETURNING id", *given.values())
    line = (" INTO settlement_line (batch_id, company_id, provider, account, txn_id, category, gross_minor, net_minor, payment_id)"
            " VALUES (?, 1, 'stripe', 'acct_1', 't2', 'charge', 100, 100, ?)")
    for verb in ("", " OR REPLACE", " OR IGNORE"):
        book.refused("SETTLEMENT_MISMATCH", "UPDATE" + verb + " settlement_line SET payment_id = ?", alien)
        book.refused("SETTLEMENT_MISMATCH", "INSERT" + verb + line, batch, alien)
    book("UPDATE settlement_line SET payment_id = ?", pays[0])                 # amounts may differ
    book("INSERT" + line, batch, pays[1])
    book.healthy()


def test_a_payout_that_failed_is_paid_again(book):
    """The net amount comes back and is paid out again under a transaction of its own; the fee was taken once."""
    book.payment("ch_1", 1000, provider="stripe", account="acct_1", money=CLEARING, date="2026-03-10")
    batch = book.post_batch(book.batch("po_1", [("t1", "charge", 1000, 30)]))
    payout = book.one("SELECT entry_id FROM settlement_batch WHERE id = ?", batch)
    for lines, reverses in ((book.reversal_lines(payout), payout),              # would take back fee and gross amount
                            (book.reversal_lines(payout), None), (None, payout),
                            ([(BANK, -970), (CLEARING, 1000), (FEES, -30)], None), ([(BANK, -969), (CLEARING, 969)], None)):
        raises("ENTRY_MISMATCH", book.fail_batch, batch, "fpo_1", lines=lines, reverses=reverses)
    raises("REVERSAL_MISMATCH", book.fail_batch, batch, "fpo_1", "2026-03-19")
    raises("REVERSAL_MISMATCH", book.fail_batch, book.batch("po_0", []), "fpo_1", lines=[(BANK, -1), (CLEARING, 1)])
    book.fail_batch(batch, "fpo_1")
    raises("ENTRY_ALREADY_POSTED", book.fail_batch, batch, "fpo_2")
    book.post_batch(book.batch("po_2", [("t2", "payout_failure", 970, 0)], date="2026-03-28"))
    balance = dict(book.all("SELECT account, sum(net_minor) FROM trial_balance GROUP BY account"))
    assert (balance["2710"], balance["2720"], balance["6300"]) == (970, 0, 30)
    book.healthy()


def test_integer_sums_do_not_wrap(one_book):
    """Sums are 64-bit and fail loudly; the largest legal amounts stay far below."""
    with pytest.raises(sqlite3.OperationalError):
        one_book("SELECT sum(x) FROM (SELECT 9223372036854775807 AS x UNION ALL SELECT 1)").fetchall()
    one_book.manual(1, "2026-03-01", [(BANK, 999999999999999)] * 3 + [(EQUITY, -999999999999999)] * 3)
    one_book.healthy()

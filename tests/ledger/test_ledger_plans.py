"""No statement inside a trigger, and no lookup a recipe makes, may scan a table that grows with the book."""
import re

import pytest
from ledger_book import Book

# Changing or deleting an account or a tax code asks whether it is used, a new VAT period whether its
# days are. An index for that would cost every posting and every document.
RARE = {"account_update": "an account is changed by hand", "account_delete": "an account is deleted by hand",
        "tax_code_update": "a tax code is changed by hand", "vat_period_insert": "VAT periods are inserted once a year"}
GROWING = {"sales_document", "sales_line", "sales_tax", "order_claim", "order_total", "annulment", "received_bill", "bill_line", "bill_tax",
           "bill_claim", "bill_void", "payment", "allocation", "settlement_batch", "settlement_line", "settlement_reversal", "webhook_event",
           "webhook_conflict", "journal_entry", "journal_line", "journal_seal", "depreciation_run", "depreciation_line", "asset", "party",
           "override_log", "series_floor"}


def statements(sql):
    """The statements of a CREATE TRIGGER, with RAISE and NEW/OLD replaced so that they can be explained alone."""
    condition = re.search(r"^WHEN (.*?)^BEGIN", sql, re.S | re.M)
    body = sql[re.search(r"^BEGIN", sql, re.M).end():sql.rindex("END")]
    parts = [s for s in re.split(r";\s*\n", body) if s.strip()]
    if condition:
        parts.append("SELECT 1 WHERE " + condition.group(1))
    for part in parts:
        part = re.sub(r"--[^\n]*", "", part)
        part = re.sub(r"RAISE\(ABORT, '(?:[^']|'')*'\)", "1", part).replace("RAISE(IGNORE)", "1")
        yield re.sub(r"\b(NEW|OLD)\.(\w+)", r":\1_\2", part)


def scans(book, sql):
    """The growing tables that the statement scans without an index constraint, foreign-key work included."""
    names = set(re.findall(r":(\w+)", sql))
    plan = [r[3] for r in book.db.execute("EXPLAIN QUERY PLAN " + sql, {n: 1 for n in names}).fetchall()]
    scanned = [m.group(1) for m in (re.match(r"SCAN (\w+)", line) for line in plan) if m]
    return [name for name in scanned if table_of(sql, name) in GROWING]


def table_of(sql, name):
    """What an alias stands for, first in the statement itself, then in the views it uses."""
    if name in GROWING:
        return name
    pattern = r"(?:FROM|JOIN|,)\s+(\w+)(?: AS)? %s\b" % name
    own = re.search(pattern, sql)
    if own:
        return own.group(1)
    meanings = [m for view in VIEWS for m in re.findall(pattern, view)]
    return next((m for m in meanings if m in GROWING), name)


BOOK = Book()
TRIGGERS = BOOK.all("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY name")
VIEWS = [r[0] for r in BOOK.all("SELECT sql FROM sqlite_schema WHERE type = 'view'")]


@pytest.mark.parametrize("name, sql", TRIGGERS, ids=[t[0] for t in TRIGGERS])
def test_no_trigger_scans(name, sql):
    if name in RARE:
        pytest.skip(RARE[name])
    for statement in statements(sql):
        assert scans(BOOK, statement) == [], statement


def test_the_detector_detects():
    assert scans(BOOK, "SELECT 1 FROM sales_document d WHERE d.reason = :x") == ["d"]
    assert scans(BOOK, "SELECT * FROM live_allocation WHERE amount_minor = 1") != []
    assert scans(BOOK, "SELECT 1 FROM sales_document WHERE id = :x") == []


@pytest.mark.parametrize("sql", [
    "DELETE FROM sales_document WHERE id = :i",
    "DELETE FROM received_bill WHERE id = :i",
    "DELETE FROM settlement_batch WHERE id = :i",
    "DELETE FROM depreciation_run WHERE id = :i",
    "SELECT number, full_number FROM next_number WHERE series_id = :s AND period = :p",
    "SELECT period FROM vat_period WHERE company_id = :c AND status = 'open' AND ends_on >= :d ORDER BY ends_on LIMIT 1",
    "SELECT invoice_id FROM order_claim WHERE company_id = :c AND channel = :h AND order_ref = :o AND part = :p AND released_by IS NULL",
    "SELECT bill_id FROM bill_claim WHERE company_id = :c AND supplier_root = :s AND kind = 'invoice' AND doc_no_norm = :n",
    "SELECT id FROM payment WHERE company_id = :c AND provider = :p AND account = :a AND external_id = :e",
    "SELECT id FROM settlement_batch WHERE company_id = :c AND provider = :p AND account = :a AND livemode = 1 AND payout_id = :x",
    "SELECT id FROM webhook_event WHERE provider = :p AND account = :a AND event_id = :e",
    "SELECT open_minor FROM allocatable WHERE invoice_id IS :i AND bill_id IS :b",
    "SELECT * FROM receivable_open WHERE invoice_id = :i",
    "SELECT * FROM order_invoice_status WHERE invoice_id = :i",
    "SELECT * FROM general_ledger WHERE entry_id = :e",
])
def test_lookups_of_an_application_use_an_index(sql):
    assert scans(BOOK, sql) == []


"""Public bug reports as small tests. The source of each is in its comment."""
import sqlite3

import pytest
from ledger_book import BANK, CLEARING, EQUITY, FEES, Book, code_of


def issued(book):
    return [r[0] for r in book.all("SELECT number FROM sales_document WHERE kind = 'invoice' AND status = 'issued' ORDER BY number")]


def test_01_two_notifications_one_order(book):
    # MultiSafepay/magento2#74: two payment notifications at once, both read "can invoice": two invoices
    a, b = book.draft("1001"), book.draft("1001")
    book.issue(a)
    book.issue_refused("ORDER_ALREADY_INVOICED", b)
    assert issued(book) == [1]
    book.invoice("1002")
    assert issued(book) == [1, 2]


@pytest.mark.parametrize("verb", ["UPDATE", "UPDATE OR IGNORE", "UPDATE OR REPLACE", "UPDATE OR FAIL"])
def test_02_the_code_path_without_the_check(book, verb):
    # mollie/magento2#978: one of two code paths lacked the already-invoiced check
    book.invoice("1001")
    book.issue_refused("ORDER_ALREADY_INVOICED", book.draft("1001"), verb)


# 03 magento/magento2#10396 (parallel calls for one order) is in test_ledger_numbers.py.


def test_04_parts_of_an_order_are_declared(book):
    # Dolibarr/dolibarr#5356: order billed again and again, at most a warning
    book.invoice("1001", part="1")
    book.invoice("1001", part="2")
    book.issue_refused("ORDER_ALREADY_INVOICED", book.draft("1001", part="1"))
    book.invoice("1001", part="1", channel="marketplace")        # another shop's order 1001
    book.invoice("1001", part="1", company=2)
    book.healthy()


# 05 frappe/erpnext#12971 (twins at a busy till, with keys) is in test_ledger_recipes.py.


def test_06_vendor_invoice_posted_twice(book):
    # ledgersmb/LedgerSMB#8435: same vendor invoice posted twice, no reversal between
    first = book.bill("INV-001/26")
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("INV-001/26"))
    book.void(first)
    book.bill("INV-001/26")
    book.healthy()


def test_07_spellings_of_a_bill_number(book):
    # frappe/erpnext#2412: same bill entered twice; 003411 / 3411 conceded; "NA" breaks the check
    book.bill("inv 001.26")
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("INV-001/26"))
    a, b = book.bill("3411", net=100), book.bill("003411", net=200)
    assert (1, a, b, "similar number") in book.all("SELECT * FROM possible_duplicate_bill")
    book.bill(None)
    book.bill(None)
    book.healthy()


def test_08_wrong_bill_reversed_number_free_again(book):
    # OCA/account-invoicing#347: wrong bill reversed, but its number stays blocked
    book.void(book.bill("77"))
    book.bill("77")
    book.healthy()


def test_09_suppliers_that_restart_yearly(book):
    # odoo/odoo#68367: a year rule lets duplicates in; odoo/odoo#33690: needed by suppliers that restart
    book.bill("1", supplier=11, date="2026-02-01")
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("1", supplier=11, date="2027-02-01", registered="2027-02-01"))
    book("UPDATE party SET number_reset = 'year' WHERE id = 12")
    book.bill("1", supplier=12, date="2026-02-01")
    book.bill("1", supplier=12, date="2027-02-01", registered="2027-02-02")
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("1", supplier=12, date="2027-03-01", registered="2027-03-01"))
    book.healthy()


def test_09b_decembers_bill_keyed_again_in_january(book):
    # frappe/erpnext#36385: a rule on the posting year lets December's bill in again
    book("UPDATE party SET number_reset = 'year' WHERE id = 12")
    book.bill("55", supplier=12, date="2025-12-30", registered="2025-12-31")
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("55", supplier=12, date="2025-12-30", registered="2026-01-04"))


def test_10_depreciation_posted_daily(book):
    # frappe/erpnext#56964: scheduler posts again daily, since amounts are matched by float (25701.202 <> 25701.20)
    asset = book.asset("A", cost=10_000_000)
    book.depreciate({asset: 2570120}, "2026-01-01", "2026-01-31")
    for amount in (100, 99, 2570120):
        with pytest.raises(sqlite3.IntegrityError) as error:
            book.depreciate({asset: amount}, "2026-01-01", "2026-01-31")
        assert code_of(error.value) == "DEPRECIATION_PERIOD_ALREADY_POSTED"
    assert book.one("SELECT count(*) FROM journal_entry") == 1
    book.healthy()


def test_11_fully_depreciated_asset(book):
    # frappe/erpnext#43723: selling a fully depreciated asset posts depreciation again
    asset = book.asset("A", cost=1000, residual=100)
    book.depreciate({asset: 900}, "2026-01-01", "2026-01-31")
    with pytest.raises(sqlite3.IntegrityError) as error:
        book.depreciate({asset: 1}, "2026-02-01", "2026-02-28")
    assert code_of(error.value) == "DEPRECIATION_EXCEEDS_BASE"
    with pytest.raises(sqlite3.IntegrityError) as error:
        book.depreciate({asset: 1}, "2026-01-01", "2026-03-31")             # first quarter over January
    assert code_of(error.value) == "DEPRECIATION_PERIOD_ALREADY_POSTED"
    book("UPDATE asset SET disposed_on = '2026-02-10' WHERE id = ?", asset)
    other = book.asset("B", cost=1000)
    book("UPDATE asset SET disposed_on = '2026-02-10' WHERE id = ?", other)
    with pytest.raises(sqlite3.IntegrityError) as error:
        book.depreciate({other: 1}, "2026-02-01", "2026-02-28")
    assert code_of(error.value) == "DEPRECIATION_OUT_OF_SERVICE"
    book.healthy()


RECORD = """
    INSERT INTO payment (company_id, direction, provider, account, external_id, value_date, currency, amount_minor, base_amount_minor, method)
    SELECT 1, 'in', 'stripe', 'acct_1', :id, :date, 'EUR', :amount, :amount, :method
     WHERE NOT EXISTS (SELECT 1 FROM payment WHERE company_id = 1 AND provider = 'stripe' AND account = 'acct_1'
                         AND external_id = :id AND currency = 'EUR' AND amount_minor = :amount)
    RETURNING id"""


def test_12_one_charge_seen_by_return_page_and_webhook(book):
    # invoiceninja/invoiceninja#10079, FOSSBilling/FOSSBilling#3967: one gateway charge stored as two payments
    first = book.db.execute(RECORD, {"id": "pi_1", "date": "2026-03-01", "amount": 500, "method": "return page"}).fetchall()
    again = book.db.execute(RECORD, {"id": "pi_1", "date": "2026-03-02", "amount": 500, "method": "webhook"}).fetchall()
    assert len(first) == 1 and again == []
    assert book.all("SELECT id FROM payment WHERE external_id = 'pi_1'") == first
    book.refused("PAYMENT_ALREADY_RECORDED", RECORD.replace(":id", "'pi_1'").replace(":date", "'2026-03-01'")
                 .replace(":amount", "501").replace(":method", "''"))         # other content is not waved through


def test_13_same_external_id_on_two_accounts(book):
    # firefly-iii/firefly-iii#10914: a true second transaction dropped because the id is compared across accounts
    book.payment("tx-1", account="LT01")
    book.payment("tx-1", account="LT02")
    book.batch("po_1", [("t1", "charge", 5, 0)], account="acct_1")
    book.batch("po_1", [("t1", "charge", 5, 0)], account="acct_2")
    book.batch("po_1", [("t1", "charge", 5, 0)], account="acct_1", livemode=0)
    book.event("evt_1", account="acct_1")
    assert book.event("evt_1", account="acct_2")
    book.healthy()


def test_14_event_delivered_again_and_as_another_event(book):
    # Pinelab-studio/pinelab-vendure-plugins#620, VivaPayments/API#2553: event handled 3 times at once / an hour later
    ids = [book.event("evt_1", b'{"payout":"po_1"}', tail=tail) for tail in ("", "ON CONFLICT DO NOTHING", "ON CONFLICT DO NOTHING", "")]
    assert ids[0] and ids[1:] == [None] * 3
    book.batch("po_1", [("t1", "charge", 5, 0)])
    assert book.event("evt_2", b'{"payout":"po_1"}')                        # the sender made two events of one change
    with pytest.raises(sqlite3.IntegrityError) as error:
        book.batch("po_1", [("t1", "charge", 5, 0)])
    assert code_of(error.value) == "SETTLEMENT_ALREADY_IMPORTED"


# 15 PrestaShop/PrestaShop#28757, #42821 and 19 hitobito/hitobito#4005 (twin numbers) are in test_ledger_numbers.py.


def test_16_trashed_drafts_and_swallowed_errors_leave_no_hole(book):
    # invoiceninja/invoiceninja#2395: trashed drafts keep the counter going; odoo/odoo#81869: numbered drafts can be deleted
    book.invoice("1")
    book("DELETE FROM sales_document WHERE id = ?", book.draft("2"))
    book("BEGIN")
    book.issue(book.draft("3"))
    book("ROLLBACK")
    with book.transaction():
        doc = book.draft("1")
        entry = book.sales_entry(doc)
        with pytest.raises(sqlite3.IntegrityError):
            book.db.execute(*book.issue_statement(doc, entry))              # swallowed, the program goes on
        book("DELETE FROM journal_entry WHERE id = ?", entry)
    with book.transaction():
        book("SAVEPOINT s")
        book.issue(book.draft("4"))
        book("ROLLBACK TO s")
        book.issue(book.draft("5"))
    book.invoice("6")
    assert issued(book) == [1, 2, 3]
    assert book.all("SELECT * FROM number_gap") == []
    book.healthy()


def test_17_credit_notes_do_not_restart_the_invoices(book):
    # Dolibarr/dolibarr#29667: after a credit note the invoice series restarts at 1 and collides
    docs = [book.invoice(str(n)) for n in range(3)]
    note = book.issue(book.credit(docs[0], 10000))
    last = book.invoice("9")
    assert book.one("SELECT full_number FROM sales_document WHERE id = ?", note) == "CN-2026-00001"
    assert book.one("SELECT full_number FROM sales_document WHERE id = ?", last) == "INV-2026-00004"


def test_18_one_document_posted_twice(book):
    # GnuCash wiki, Dolibarr/dolibarr#13642: one bill posted twice / counted double in the sales journal
    bill, invoice = book.bill("1"), book.invoice("1")
    for kind, doc, purpose in (("received_bill", bill, "register"), ("sales_document", invoice, "issue")):
        with pytest.raises(sqlite3.IntegrityError) as error:
            with book.transaction():
                book.entry(kind, doc, purpose, "2026-03-12", [(BANK, 1), (EQUITY, -1)])
        assert code_of(error.value) == "ENTRY_ALREADY_POSTED"
        # Nor under another purpose: an entry of a document is sealed by that document alone.
        with pytest.raises(sqlite3.IntegrityError) as error:
            with book.transaction():
                entry = book.entry(kind, doc, purpose + " 2", "2026-03-12", [(BANK, 1), (EQUITY, -1)])
                book("INSERT INTO journal_seal (entry_id) VALUES (?)", entry)
        assert code_of(error.value) == "SOURCE_NOT_POSTED"
    book.healthy()


def test_20_settlement_line_booked_twice(book):
    # OCA/agreement#55, OCA/commission#110: settlement lines invoiced twice
    book.batch("po_1", [("t1", "charge", 5, 0), ("t2", "charge", 6, 0)])
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            book.batch("po_2", [("t3", "charge", 5, 0), ("t2", "charge", 6, 0)])
    assert code_of(error.value) == "TRANSACTION_ALREADY_SETTLED"
    assert book.one("SELECT count(*) FROM settlement_batch") == 1


def test_21_equal_content_is_no_duplicate(book):
    # actualbudget/actual#8221, we-promise/sure#3497: a content match drops a real second purchase
    book.payment("p1", 300)
    book.payment("p2", 300)
    book.payment(None, 300)
    book.payment(None, 300)
    book.invoice("1", 300)
    book.invoice("2", 300)
    book.invoice(None, 300)
    book.invoice(None, 300)
    assert book.one("SELECT count(*) FROM possible_duplicate_payment") == 6
    assert book.one("SELECT count(*) FROM possible_duplicate_invoice") == 5     # all pairs but the two orders
    book.healthy()


# 22 InvoiceNinja StorePaymentRequest (a fresh key per attempt) is in test_ledger_recipes.py.

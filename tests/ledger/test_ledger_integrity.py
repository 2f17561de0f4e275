"""integrity_report finds what a broken or forced book holds: triggers dropped, keys dropped, every rule broken once.

The plants are SQL on the story's book. {name} stands for an id of the story.
"""
import re
import sqlite3

import pytest
from ledger_book import Book
from ledger_story import tell


def copy(table, where, **change):
    """A second row of a table, with other values in some columns."""
    return ("COPY", table, where, change)


PLANTS = [
    # rule, statements
    ("PARTY_VAT_ID_TWICE", "UPDATE party SET vat_id = 'LT900' WHERE id = 1"),
    ("PARTY_VAT_ID_TWICE", "UPDATE party SET vat_id = '900' WHERE id = 1"),
    ("PARTY_MERGE_NOT_ONE_LEVEL", "UPDATE party SET merged_into = 12 WHERE id = 11"),
    ("PARTY_MERGE_NOT_ONE_LEVEL", "UPDATE party SET merged_into = 101 WHERE id = 13"),
    ("PARTY_MERGE_NOT_ONE_LEVEL", "DELETE FROM party WHERE id = 11"),
    ("FISCAL_YEARS_OVERLAP", "INSERT INTO fiscal_year VALUES (1, 'X', '2026-12-31', '2027-01-01', 'open')"),
    ("LINE_ON_UNUSABLE_ACCOUNT", "UPDATE account SET is_group = 1 WHERE id = 3"),
    ("LINE_ON_UNUSABLE_ACCOUNT", "UPDATE account SET currency = 'USD' WHERE id = 3"),
    ("LINE_ON_UNUSABLE_ACCOUNT", "UPDATE account SET role = 'payable' WHERE id = 3"),
    ("LINE_ON_UNUSABLE_ACCOUNT", "DELETE FROM account WHERE id = 3"),
    ("LINE_ON_UNUSABLE_ACCOUNT", "UPDATE journal_line SET account_id = 103 WHERE entry_id = {manual} AND line_no = 1"),
    ("ENTRY_UNSEALED", "DELETE FROM journal_seal WHERE entry_id = {manual}"),
    ("ENTRY_UNSEALED", "INSERT INTO journal_entry (company_id, entry_date, source_kind, source_id, purpose) VALUES (1, '2026-01-01', 'manual', 99, 'x')"),
    ("ENTRY_UNBALANCED", "UPDATE journal_line SET base_amount_minor = base_amount_minor + 1 WHERE entry_id = {manual} AND line_no = 1"),
    ("ENTRY_UNBALANCED", "DELETE FROM journal_line WHERE entry_id = {manual} AND line_no = 1"),
    ("ENTRY_TOO_SMALL", "DELETE FROM journal_line WHERE entry_id = {manual}"),
    ("ENTRY_TWICE", "UPDATE journal_entry SET purpose = 'manual' WHERE source_kind = 'manual'"),
    ("ENTRY_REVERSED_TWICE", copy("journal_entry", "reverses_id = {manual}", id=900, purpose="again")),
    ("REVERSAL_MISMATCH", "UPDATE journal_line SET amount_minor = 99, base_amount_minor = 99 WHERE entry_id = {manual} AND line_no = 1",
     "UPDATE journal_line SET amount_minor = -99, base_amount_minor = -99 WHERE entry_id = {manual} AND line_no = 2"),
    ("REVERSAL_MISMATCH", "UPDATE journal_entry SET entry_date = '2026-01-01' WHERE reverses_id = {manual}"),
    ("REVERSAL_MISMATCH", "DELETE FROM journal_entry WHERE id = {manual}"),
    ("LINE_OF_OTHER_COMPANY", "UPDATE journal_line SET company_id = 2 WHERE entry_id = {manual} AND line_no = 1"),
    ("LINE_OF_OTHER_COMPANY", "UPDATE journal_line SET party_id = 101 WHERE entry_id = {manual} AND line_no = 1"),
    ("LINE_OF_OTHER_COMPANY", "DELETE FROM journal_entry WHERE id = {manual}"),
    ("BASE_AMOUNT_DIFFERS", "UPDATE journal_line SET amount_minor = amount_minor * 2 WHERE entry_id = {manual}"),
    ("SEAL_WITHOUT_ENTRY", "INSERT INTO journal_seal (entry_id) VALUES (4711)"),
    ("ENTRY_IN_NO_FISCAL_YEAR", "UPDATE journal_entry SET entry_date = '2031-01-01' WHERE id = {manual}"),
    ("VAT_PERIODS_OVERLAP", "UPDATE vat_period SET ends_on = '2026-02-15' WHERE company_id = 1 AND period = '2026-01'"),
    ("NUMBER_GAP", "UPDATE sales_document SET number = 90 WHERE id = {plain}"),
    ("NUMBER_GAP", "DELETE FROM sales_document WHERE id = {annulled}"),
    ("NUMBER_GAP", "DELETE FROM sales_document WHERE id = {credited}"),
    ("NUMBER_GAP", "DELETE FROM series_floor"),
    ("NUMBER_TWICE", "UPDATE sales_document SET number = 2 WHERE id = {plain}"),
    ("FULL_NUMBER_TWICE", "UPDATE sales_document SET full_number = 'INV-2026-00001' WHERE id = {plain}"),
    ("NUMBER_OF_OTHER_SERIES", "UPDATE sales_document SET full_number = 'INV-2026-77777' WHERE id = {plain}"),
    ("NUMBER_OF_OTHER_SERIES", "UPDATE sales_document SET series_id = 101 WHERE id = {plain}"),
    ("NUMBER_OF_OTHER_SERIES", "UPDATE series SET first_no = 3 WHERE id = 1"),
    ("DATE_BEFORE_PREVIOUS", "UPDATE series SET strict_dates = 1 WHERE id = 1", "UPDATE sales_document SET issue_date = '2026-03-01' WHERE id = {plain}"),
    ("ORDER_INVOICED_TWICE", "UPDATE order_claim SET released_by = 0"),
    ("ORDER_CLAIM_MISSING", "DELETE FROM order_claim WHERE invoice_id = {invoice}"),
    ("ORDER_CLAIM_MISSING", "UPDATE order_claim SET part = '2' WHERE invoice_id = {invoice}"),
    ("ORDER_CLAIM_WITHOUT_INVOICE", "UPDATE sales_document SET order_ref = NULL WHERE id = {invoice}"),
    ("ORDER_CLAIM_WITHOUT_INVOICE", "DELETE FROM sales_document WHERE id = {invoice}"),
    ("ORDER_CLAIM_RELEASE_WRONG", "UPDATE order_claim SET released_by = 1 WHERE invoice_id = {invoice}"),
    ("ORDER_CLAIM_RELEASE_WRONG", "UPDATE order_claim SET released_by = 0 WHERE invoice_id = {annulled}"),
    ("ORDER_TOTAL_EXCEEDED", "UPDATE order_total SET total_minor = 13309"),
    ("REFUND_CREDITED_TWICE", "UPDATE sales_document SET refund_ref = 're_1' WHERE kind = 'credit_note'"),
    ("SALES_STATUS_WRONG", "UPDATE sales_document SET number = 99 WHERE id = {draft}"),
    ("SALES_STATUS_WRONG", "UPDATE sales_document SET status = 'draft' WHERE id = {plain}"),
    ("SALES_STATUS_WRONG", "UPDATE sales_document SET credits_id = NULL WHERE kind = 'credit_note'"),
    ("SALES_STATUS_WRONG", "UPDATE sales_document SET status = 'void' WHERE id = {plain}"),
    ("SALES_TOTALS_MISMATCH", "UPDATE sales_document SET gross_minor = gross_minor + 1 WHERE id = {plain}"),
    ("SALES_TOTALS_MISMATCH", "UPDATE sales_line SET net_minor = net_minor + 1 WHERE document_id = {plain} AND line_no = 1"),
    ("SALES_TOTALS_MISMATCH", "UPDATE sales_line SET tax_code = 'V9' WHERE document_id = {plain} AND line_no = 1"),
    ("SALES_TOTALS_MISMATCH", "DELETE FROM sales_line WHERE document_id = {plain}"),
    ("SALES_TOTALS_MISMATCH", "INSERT INTO sales_line VALUES ({plain}, 9, 1, 'later', 1000, 0, 5, 'V21')"),
    ("SALES_TOTALS_MISMATCH", "UPDATE sales_tax SET tax_minor = tax_minor + 1 WHERE document_id = {plain} AND tax_code = 'V21'"),
    ("SALES_TOTALS_MISMATCH", "UPDATE sales_document SET base_net_minor = base_net_minor + 1, base_gross_minor = base_gross_minor + 1 WHERE id = {plain}"),
    ("RATE_MISMATCH", "UPDATE sales_tax SET base_tax_minor = base_tax_minor + 1 WHERE document_id = {plain} AND tax_code = 'V21'"),
    ("RATE_MISMATCH", "UPDATE sales_tax SET base_taxable_minor = base_taxable_minor + 1 WHERE document_id = {plain} AND tax_code = 'EX'"),
    ("RATE_MISMATCH", "UPDATE sales_document SET currency = 'USD', rate_num = 102, rate_den = 100 WHERE id = {plain}"),
    ("RATE_MISMATCH", "UPDATE bill_tax SET base_tax_minor = 7 WHERE bill_id = {bill RC21}"),
    ("RATE_MISMATCH", "UPDATE received_bill SET rate_num = 2 WHERE id = {bill}"),
    ("RATE_MISMATCH", "UPDATE received_bill SET currency = 'USD', rate_den = 2 WHERE id = {bill}"),
    ("CREDIT_EXCEEDS_INVOICE", "UPDATE sales_tax SET base_taxable_minor = base_taxable_minor + 1 WHERE document_id = (SELECT max(id) FROM sales_document WHERE kind = 'credit_note')"),
    ("CREDIT_EXCEEDS_INVOICE", "UPDATE sales_tax SET base_tax_minor = base_tax_minor + 1 WHERE document_id = (SELECT max(id) FROM sales_document WHERE kind = 'credit_note')"),
    ("SALES_ENTRY_MISMATCH", "UPDATE sales_document SET entry_id = NULL WHERE id = {plain}"),
    ("SALES_ENTRY_MISMATCH", "UPDATE sales_document SET entry_id = {manual} WHERE id = {plain}"),
    ("SALES_ENTRY_MISMATCH", "UPDATE sales_document SET customer_id = 2 WHERE id = {plain}"),
    ("SALES_ENTRY_MISMATCH", "UPDATE sales_document SET issue_date = '2026-03-11' WHERE id = {plain}"),
    ("SALES_ENTRY_MISMATCH", "UPDATE journal_line SET tax_code = 'V9' WHERE tax_code = 'V21' AND entry_id = (SELECT entry_id FROM sales_document WHERE id = {invoice})"),
    ("SALES_ENTRY_MISMATCH", "UPDATE journal_line SET account_id = 3 WHERE account_id = 1 AND entry_id = (SELECT entry_id FROM sales_document WHERE id = {invoice})"),
    ("SALES_ENTRY_MISMATCH", "DELETE FROM journal_seal WHERE entry_id = (SELECT entry_id FROM sales_document WHERE id = {invoice})"),
    ("SALES_ENTRY_MISMATCH", "INSERT INTO journal_line SELECT entry_id, 9, 1, 1, 'USD', 500000, 0, 1, NULL FROM sales_document WHERE id = {invoice}"),
    ("BILL_ENTRY_MISMATCH", "INSERT INTO journal_line SELECT entry_id, 9, 1, 2, 'USD', 500000, 0, 11, NULL FROM received_bill WHERE id = {bill}"),
    ("ENTRY_WITHOUT_DOCUMENT", "UPDATE sales_document SET status = 'draft' WHERE id = {plain}"),
    ("ENTRY_WITHOUT_DOCUMENT", "DELETE FROM sales_document WHERE id = {plain}"),
    ("ENTRY_WITHOUT_DOCUMENT", "DELETE FROM received_bill WHERE id = {bill}"),
    ("ENTRY_WITHOUT_DOCUMENT", "DELETE FROM payment WHERE id = {payment}"),
    ("ENTRY_WITHOUT_DOCUMENT", "DELETE FROM depreciation_run WHERE id = {run}"),
    ("ENTRY_WITHOUT_DOCUMENT", "DELETE FROM settlement_batch WHERE id = {batch}"),
    ("ENTRY_WITHOUT_DOCUMENT", "DELETE FROM annulment"),
    ("ENTRY_WITHOUT_DOCUMENT", "DELETE FROM bill_void"),
    ("ENTRY_WITHOUT_DOCUMENT", "DELETE FROM settlement_reversal"),
    ("CREDIT_EXCEEDS_INVOICE", "UPDATE sales_document SET credits_id = {plain} WHERE kind = 'credit_note'"),
    ("CREDIT_EXCEEDS_INVOICE", "UPDATE sales_tax SET taxable_minor = 999999 WHERE document_id = (SELECT max(id) FROM sales_document WHERE kind = 'credit_note')"),
    ("CREDIT_MISMATCH", "UPDATE sales_document SET customer_id = 2 WHERE kind = 'credit_note'"),
    ("CREDIT_MISMATCH", "UPDATE sales_document SET credits_id = {draft} WHERE kind = 'credit_note'"),
    ("CREDIT_MISMATCH", "UPDATE sales_document SET issue_date = '2026-01-01' WHERE kind = 'credit_note'"),
    ("CREDIT_MISMATCH", "DELETE FROM sales_document WHERE id = {credited}"),
    ("ANNULMENT_NOT_ALLOWED", "INSERT INTO annulment (invoice_id, company_id, annulled_on, reason) VALUES ({credited}, 1, '2026-03-12', 'x')"),
    ("ANNULMENT_NOT_ALLOWED", "INSERT INTO annulment (invoice_id, company_id, annulled_on, reason) VALUES ({draft}, 1, '2026-03-12', 'x')"),
    ("ANNULMENT_NOT_ALLOWED", "INSERT INTO annulment (invoice_id, company_id, annulled_on, reason) VALUES ({invoice}, 1, '2026-03-12', 'x')"),
    ("ANNULMENT_NOT_ALLOWED", "UPDATE annulment SET entry_id = NULL"),
    ("SALES_VAT_PERIOD_WRONG", "UPDATE sales_document SET vat_period = NULL WHERE id = {plain}"),
    ("SALES_VAT_PERIOD_WRONG", "UPDATE sales_document SET vat_period = '2026-02' WHERE id = {plain}"),
    ("SALES_VAT_PERIOD_WRONG", "UPDATE sales_document SET vat_period = 'none' WHERE id = {plain}"),
    ("SALES_CHILD_OF_OTHER_COMPANY", "UPDATE sales_line SET company_id = 2 WHERE document_id = {plain}"),
    ("SALES_CHILD_OF_OTHER_COMPANY", "UPDATE sales_tax SET company_id = 2 WHERE document_id = {plain}"),
    ("BILL_TWICE", "UPDATE received_bill SET doc_no = 'V1' WHERE id = {bill EX}"),
    ("BILL_TWICE", "UPDATE received_bill SET dup_seq = 0 WHERE dup_seq = 1"),
    ("BILL_TWICE", "DELETE FROM bill_void"),
    ("BILL_CLAIM_WRONG", "DELETE FROM bill_claim WHERE bill_id = {bill}"),
    ("BILL_CLAIM_WRONG", "UPDATE bill_claim SET doc_no_norm = 'OTHER' WHERE bill_id = {bill}"),
    ("BILL_CLAIM_WRONG", "UPDATE bill_claim SET supplier_root = 12 WHERE bill_id = {bill}"),
    ("BILL_CLAIM_WRONG", "UPDATE party SET number_reset = 'year' WHERE id = 11"),
    ("BILL_CLAIM_WRONG", "UPDATE party SET merged_into = NULL WHERE id = 13"),
    ("BILL_CLAIM_WRONG", "INSERT INTO bill_claim SELECT 1, 11, 'invoice', 'D1', 0, 0, {bill draft}"),
    ("BILL_CLAIM_WRONG", "DELETE FROM received_bill WHERE id = {bill}"),
    ("BILL_OVERRIDE_NOT_LOGGED", "DELETE FROM override_log"),
    ("BILL_OVERRIDE_NOT_LOGGED", "UPDATE received_bill SET dup_reason = NULL WHERE dup_seq = 1"),
    ("BILL_STATUS_WRONG", "UPDATE received_bill SET doc_no = NULL WHERE id = {bill}"),
    ("BILL_STATUS_WRONG", "UPDATE received_bill SET document_date = NULL WHERE id = {bill}"),
    ("BILL_STATUS_WRONG", "UPDATE received_bill SET number = 1 WHERE id = {bill draft}"),
    ("BILL_STATUS_WRONG", "UPDATE received_bill SET status = 'voided' WHERE id = {bill}"),
    ("BILL_TOTALS_MISMATCH", "UPDATE received_bill SET net_minor = net_minor + 1 WHERE id = {bill}"),
    ("BILL_TOTALS_MISMATCH", "UPDATE bill_line SET net_minor = net_minor + 1 WHERE bill_id = {bill}"),
    ("BILL_TOTALS_MISMATCH", "UPDATE bill_line SET tax_code = 'V9' WHERE bill_id = {bill}"),
    ("BILL_TOTALS_MISMATCH", "DELETE FROM bill_tax WHERE bill_id = {bill}"),
    ("BILL_ENTRY_MISMATCH", "UPDATE received_bill SET entry_id = NULL WHERE id = {bill}"),
    ("BILL_ENTRY_MISMATCH", "UPDATE received_bill SET supplier_id = 12 WHERE id = {bill}"),
    ("BILL_ENTRY_MISMATCH", "UPDATE bill_tax SET base_tax_minor = base_tax_minor + 1 WHERE bill_id = {bill RC21}"),
    ("BILL_ENTRY_MISMATCH", "UPDATE bill_tax SET tax_code = 'V21' WHERE bill_id = {bill ND21}"),
    ("BILL_CREDIT_EXCEEDS_BILL", "UPDATE received_bill SET gross_minor = 5 WHERE id = {bill}"),
    ("BILL_CREDIT_MISMATCH", "UPDATE received_bill SET supplier_id = 12 WHERE credits_id = {bill}"),
    ("BILL_CREDIT_MISMATCH", "UPDATE received_bill SET credits_id = {bill draft} WHERE credits_id = {bill}"),
    ("BILL_CREDIT_MISMATCH", "DELETE FROM received_bill WHERE id = {bill}"),
    ("BILL_VOID_NOT_ALLOWED", "INSERT INTO bill_void (bill_id, company_id, voided_on, reason) VALUES ({bill EX}, 1, '2026-03-12', 'x')"),
    ("BILL_VOID_NOT_ALLOWED", "INSERT INTO bill_void (bill_id, company_id, voided_on, reason) VALUES ({bill draft}, 1, '2026-03-12', 'x')"),
    ("BILL_VOID_NOT_ALLOWED", "UPDATE bill_void SET entry_id = NULL"),
    ("BILL_VAT_PERIOD_WRONG", "UPDATE received_bill SET vat_period = NULL WHERE id = {bill}"),
    ("BILL_VAT_PERIOD_WRONG", "UPDATE received_bill SET vat_period = '2026-01' WHERE id = {bill}"),
    ("BILL_CHILD_OF_OTHER_COMPANY", "UPDATE bill_line SET company_id = 2 WHERE bill_id = {bill}"),
    ("DEPRECIATION_OVERLAPS", copy("depreciation_line", "run_id = {run}", id=900)),
    ("DEPRECIATION_OVERLAPS", "UPDATE depreciation_line SET reverses_id = NULL"),
    ("DEPRECIATION_EXCEEDS_BASE", "UPDATE asset SET cost_minor = 8999"),
    ("DEPRECIATION_OUT_OF_SERVICE", "UPDATE asset SET in_service_on = '2026-01-02'"),
    ("DEPRECIATION_OUT_OF_SERVICE", "UPDATE asset SET disposed_on = '2026-01-30'"),
    ("DEPRECIATION_REVERSAL_WRONG", "UPDATE depreciation_line SET amount_minor = 1 WHERE reverses_id IS NOT NULL"),
    ("DEPRECIATION_REVERSAL_WRONG", "UPDATE depreciation_line SET reverses_id = 4711 WHERE reverses_id IS NOT NULL"),
    ("DEPRECIATION_REVERSED_TWICE", copy("depreciation_line", "reverses_id IS NOT NULL", id=900)),
    ("DEPRECIATION_LINE_OF_OTHER_RUN", "UPDATE depreciation_line SET run_id = {reversed run} WHERE run_id = {run}", "UPDATE depreciation_run SET book = 'tax' WHERE id = {reversed run}"),
    ("DEPRECIATION_LINE_OF_OTHER_RUN", "UPDATE depreciation_line SET period_end = '2026-02-02' WHERE run_id = {run}"),
    ("DEPRECIATION_ENTRY_MISMATCH", "UPDATE depreciation_line SET amount_minor = amount_minor + 1 WHERE run_id = {run}"),
    ("DEPRECIATION_ENTRY_MISMATCH", "UPDATE depreciation_run SET entry_id = {manual} WHERE id = {run}"),
    ("DEPRECIATION_ENTRY_MISMATCH", "UPDATE depreciation_run SET entry_id = NULL WHERE id = {run}"),
    ("PAYMENT_TWICE", copy("payment", "id = {payment}", id=900)),
    ("PAYMENT_TWICE", "UPDATE payment SET external_id = 'p1' WHERE id = {recorded}"),
    ("PAYMENT_REVERSED_TWICE", copy("payment", "reverses_id IS NOT NULL", id=900, external_id="other")),
    ("PAYMENT_REVERSAL_WRONG", "UPDATE payment SET amount_minor = 1 WHERE reverses_id IS NOT NULL"),
    ("PAYMENT_REVERSAL_WRONG", "UPDATE payment SET direction = 'in' WHERE reverses_id IS NOT NULL"),
    ("PAYMENT_REVERSAL_WRONG", "UPDATE payment SET reverses_id = {payment} WHERE reverses_id IS NOT NULL"),
    ("PAYMENT_ENTRY_MISMATCH", "UPDATE payment SET base_amount_minor = base_amount_minor + 1 WHERE id = {payment}"),
    ("PAYMENT_ENTRY_MISMATCH", "UPDATE payment SET entry_id = NULL WHERE id = {payment}"),
    ("PAYMENT_ENTRY_MISMATCH", "INSERT INTO journal_line SELECT entry_id, 9, 1, 3, 'USD', -5000, 0, NULL, NULL FROM payment WHERE id = {payment}"),
    ("PAYMENT_ENTRY_MISMATCH", "UPDATE payment SET entry_id = {manual} WHERE id = {payment}"),
    ("ALLOCATION_TWICE", copy("allocation", "payment_id = {payment}", id=900)),
    ("ALLOCATION_REVERSED_TWICE", copy("allocation", "reverses_id IS NOT NULL", id=900)),
    ("ALLOCATION_EXCEEDS_PAYMENT", "UPDATE allocation SET payment_amount_minor = 13311 WHERE payment_id = {payment}"),
    ("ALLOCATION_EXCEEDS_DOCUMENT", "UPDATE allocation SET amount_minor = 999999 WHERE invoice_id IS NOT NULL"),
    ("ALLOCATION_EXCEEDS_DOCUMENT", "UPDATE allocation SET amount_minor = 999999 WHERE bill_id IS NOT NULL"),
    ("ALLOCATION_MISMATCH", "UPDATE allocation SET company_id = 2"),
    ("ALLOCATION_MISMATCH", "UPDATE allocation SET invoice_id = {draft} WHERE payment_id = {payment}"),
    ("ALLOCATION_MISMATCH", "UPDATE allocation SET payment_id = {recorded} WHERE payment_id = {payment}"),
    ("ALLOCATION_MISMATCH", "UPDATE payment SET direction = 'out' WHERE id = {payment}"),
    ("ALLOCATION_MISMATCH", "UPDATE allocation SET payment_amount_minor = 1 WHERE payment_id = {payment}"),
    ("ALLOCATION_MISMATCH", "UPDATE allocation SET allocated_on = '2026-03-14' WHERE payment_id = {payment}"),
    ("ALLOCATION_MISMATCH", "UPDATE sales_document SET issue_date = '2026-03-16' WHERE id = {invoice}"),
    ("ALLOCATION_MISMATCH", "UPDATE received_bill SET registration_date = '2026-03-16' WHERE id = {bill EX}"),
    ("PAYMENT_REVERSAL_WRONG", "UPDATE payment SET value_date = '2026-03-16' WHERE id = (SELECT reverses_id FROM payment WHERE reverses_id IS NOT NULL)"),
    ("PAYMENT_REVERSAL_WRONG", "UPDATE allocation SET allocated_on = '2026-03-16' WHERE reverses_id IS NOT NULL"),
    ("ANNULMENT_NOT_ALLOWED", "UPDATE annulment SET annulled_on = '2026-03-09'"),
    ("ANNULMENT_NOT_ALLOWED", "UPDATE allocation SET invoice_id = {annulled}, allocated_on = '2026-03-12' WHERE payment_id ="
     " (SELECT reverses_id FROM payment WHERE reverses_id IS NOT NULL)"),
    ("BILL_VOID_NOT_ALLOWED", "UPDATE bill_void SET voided_on = '2026-03-05'"),
    ("BILL_VOID_NOT_ALLOWED", "UPDATE bill_void SET voided_on = '2026-03-19' WHERE bill_id = {voided}"),
    ("BILL_VOID_NOT_ALLOWED", "UPDATE allocation SET bill_id = {voided}, invoice_id = NULL, allocated_on = '2026-03-21'"
     " WHERE payment_id = (SELECT reverses_id FROM payment WHERE reverses_id IS NOT NULL)"),
    ("ALLOCATION_IN_NO_FISCAL_YEAR", "UPDATE allocation SET allocated_on = '2031-01-01' WHERE payment_id = {payment}"),
    ("ALLOCATION_REVERSAL_WRONG", "UPDATE allocation SET amount_minor = 1 WHERE reverses_id IS NOT NULL"),
    ("ALLOCATION_REVERSAL_WRONG", "UPDATE allocation SET reverses_id = 4711 WHERE reverses_id IS NOT NULL"),
    ("SETTLEMENT_TWICE", copy("settlement_batch", "id = {batch}", id=900)),
    ("TRANSACTION_SETTLED_TWICE", "UPDATE settlement_line SET txn_id = 't1'"),
    ("PAYMENT_SETTLED_TWICE", "UPDATE settlement_line SET payment_id = {payment}"),
    ("SETTLEMENT_DOES_NOT_ADD_UP", "UPDATE settlement_line SET gross_minor = 1 WHERE txn_id = 't1'"),
    ("SETTLEMENT_DOES_NOT_ADD_UP", "DELETE FROM settlement_line"),
    ("SETTLEMENT_DOES_NOT_ADD_UP", "UPDATE settlement_batch SET net_minor = 0 WHERE id = {imported}"),
    ("SETTLEMENT_ENTRY_MISMATCH", "UPDATE settlement_batch SET entry_id = {manual} WHERE id = {batch}"),
    ("SETTLEMENT_ENTRY_MISMATCH", "UPDATE settlement_batch SET entry_id = NULL WHERE id = {batch}"),
    ("SETTLEMENT_ENTRY_MISMATCH", "UPDATE settlement_batch SET gross_minor = gross_minor + 1, fee_minor = fee_minor + 1 WHERE id = {batch}"),
    ("SETTLEMENT_LINE_OF_OTHER_BATCH", "UPDATE settlement_line SET account = 'acct_2' WHERE txn_id = 't1'"),
    ("SETTLEMENT_LINE_OF_OTHER_BATCH", "UPDATE settlement_line SET batch_id = 4711 WHERE txn_id = 't1'"),
    ("SETTLEMENT_REVERSAL_WRONG", "UPDATE settlement_reversal SET batch_id = {batch}"),
    ("SETTLEMENT_REVERSAL_WRONG", "UPDATE settlement_reversal SET entry_id = {manual}"),
    ("SETTLEMENT_REVERSAL_WRONG", "UPDATE settlement_reversal SET reversed_on = '2026-03-19'"),
    ("SETTLEMENT_REVERSAL_WRONG", "UPDATE journal_entry SET reverses_id = {manual} WHERE purpose = 'payout_reversal'"),
    ("SETTLEMENT_REVERSAL_WRONG", "UPDATE journal_entry SET entry_date = '2026-03-26' WHERE purpose = 'payout'"),
    ("SETTLEMENT_REVERSAL_WRONG", "UPDATE journal_line SET amount_minor = 2 * amount_minor"
     " WHERE entry_id = (SELECT entry_id FROM settlement_reversal)"),
    ("SETTLEMENT_MISMATCH", "UPDATE settlement_line SET payment_id = {payment} WHERE txn_id = 't2'"),
    ("SETTLEMENT_MISMATCH", "UPDATE settlement_line SET payment_id = {payment} WHERE txn_id = 't1'"),
    ("EVENT_TWICE", "UPDATE webhook_event SET event_id = 'evt_1'"),
    ("EVENT_STATUS_WRONG", "UPDATE webhook_event SET processed_at = NULL"),
    ("EVENT_STATUS_WRONG", "UPDATE webhook_event SET body = NULL WHERE id = {new event}"),
    ("SETTLEMENT_LINE_OF_OTHER_BATCH", "DELETE FROM settlement_batch WHERE id = {imported}"),
    ("SETTLEMENT_DOES_NOT_ADD_UP", "UPDATE settlement_batch SET is_manual = 1 WHERE id = {batch}"),
    ("DEPRECIATION_OUT_OF_SERVICE", "DELETE FROM asset"),
    ("FLOOR_WITHOUT_SERIES", "INSERT INTO series_floor VALUES (4711, 1, '2026', 5, 'x', '')"),
    ("NUMBER_OF_OTHER_SERIES", "UPDATE sales_document SET kind = 'advance' WHERE id = {plain}"),
    ("NUMBER_OF_OTHER_SERIES", "UPDATE sales_document SET period = '2025', full_number = replace(full_number, '2026', '2025') WHERE id = {plain}"),
    ("PARTNER_OF_OTHER_COMPANY", "UPDATE sales_document SET customer_id = 101 WHERE id = {draft}"),
    ("PARTNER_OF_OTHER_COMPANY", "UPDATE received_bill SET supplier_id = 111 WHERE id = {bill draft}"),
    ("PARTNER_OF_OTHER_COMPANY", "UPDATE payment SET party_id = 101 WHERE id = {recorded}"),
    ("TAX_CODE_WRONG", "DELETE FROM tax_code WHERE code = 'V9'"),
    ("TAX_CODE_WRONG", "UPDATE tax_code SET rate_bp = 0 WHERE code = 'V21'"),
    ("TAX_CODE_WRONG", "UPDATE sales_tax SET tax_minor = 5 WHERE tax_code = 'RC21'"),
    ("TAX_CODE_WRONG", "UPDATE bill_tax SET tax_code = 'GONE' WHERE bill_id = {bill}"),
]


VIEWS = dict(Book().all("SELECT name, sql FROM sqlite_schema WHERE type = 'view' AND name LIKE 'integrity_%'"
                        " AND name NOT IN ('integrity_report', 'integrity_violation')"))


def test_the_report_has_all_proofs():
    union = Book().one("SELECT sql FROM sqlite_schema WHERE name = 'integrity_violation'")
    assert set(re.findall(r"FROM (\w+)", union)) == set(VIEWS) and len(VIEWS) == 11


@pytest.fixture(scope="module")
def forced():
    """The story in tables of the same columns without keys, checks or triggers, under the same views."""
    book = Book(foreign_keys=False)
    book.ids = tell(book)
    book.healthy()
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("PRAGMA ignore_check_constraints = ON")
    for table, in book.all("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"):
        columns = book.all("PRAGMA table_xinfo(%s)" % table)
        if table == "received_bill":
            sql = book.one("SELECT sql FROM sqlite_schema WHERE name = 'received_bill'")
            db.execute(sql)
        elif table == "party":
            db.execute(re.sub(r"UNIQUE \(company_id, id\),\s*", "", book.one("SELECT sql FROM sqlite_schema WHERE name = 'party'"))
                       .replace("FOREIGN KEY (company_id, merged_into) REFERENCES party (company_id, id)", "CHECK (1)"))
        else:
            db.execute("CREATE TABLE %s (%s)" % (table, ", ".join("%s %s" % (c[1], c[2]) for c in columns)))
        names = [c[1] for c in columns if c[6] < 2]
        rows = book.all("SELECT %s FROM %s" % (", ".join(names), table))
        db.executemany("INSERT INTO %s (%s) VALUES (%s)" % (table, ", ".join(names), ", ".join("?" * len(names))), rows)
    for sql, in book.all("SELECT sql FROM sqlite_schema WHERE type = 'view'"):
        db.execute(sql)
    bare = Book.__new__(Book)
    bare.db, bare.ids = db, book.ids
    assert bare.all("SELECT * FROM integrity_report") == []
    return bare


def plant(book, statement):
    if isinstance(statement, tuple):
        _, table, where, change = statement
        names = [c[1] for c in book.all("PRAGMA table_xinfo(%s)" % table) if c[6] < 2]
        picks = ", ".join(repr(change[n]) if n in change else n for n in names)
        statement = "INSERT INTO %s (%s) SELECT %s FROM %s WHERE %s LIMIT 1" % (table, ", ".join(names), picks, table, where)
    sql = re.sub(r"\{([^}]+)\}", lambda m: str(book.ids[m.group(1)]), statement)
    assert book(sql).rowcount > 0, sql


@pytest.mark.parametrize("planted", PLANTS, ids=lambda p: p[0])
def test_planted_violation_is_found(forced, planted):
    rule, *statements = planted
    forced("SAVEPOINT s")
    try:
        for statement in statements:
            plant(forced, statement)
        found = [r for view in VIEWS if "'%s'" % rule in VIEWS[view] for r in forced.all("SELECT rule FROM " + view)]
        assert (rule,) in found
    finally:
        forced("ROLLBACK TO s")
        forced("RELEASE s")


def test_every_rule_is_planted_at_least_once():
    rules = {rule for sql in VIEWS.values() for rule in re.findall(r"'([A-Z][A-Z_]{5,})'", sql)}
    assert rules == {p[0] for p in PLANTS}


def test_the_report_says_how_many_and_where(forced):
    forced("SAVEPOINT s")
    forced("DELETE FROM journal_seal WHERE entry_id IN (SELECT entry_id FROM journal_seal ORDER BY 1 LIMIT 3)")
    rule = forced.all("SELECT rule, violations, subject FROM integrity_report WHERE rule = 'ENTRY_UNSEALED'")
    forced("ROLLBACK TO s")
    forced("RELEASE s")
    assert rule == [("ENTRY_UNSEALED", 3, "journal_entry")]

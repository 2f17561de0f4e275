"""Every natural key against every spelling of a write, with both pragmas off and on (fixture book)."""
import sqlite3

import pytest
from ledger_book import BANK, EQUITY, EXPENSE, Book, code_of

FORMS = ("INSERT", "INSERT OR ABORT", "INSERT OR FAIL", "INSERT OR IGNORE", "INSERT OR REPLACE", "INSERT OR ROLLBACK", "REPLACE")
UPDATES = ("UPDATE", "UPDATE OR ABORT", "UPDATE OR FAIL", "UPDATE OR IGNORE", "UPDATE OR REPLACE", "UPDATE OR ROLLBACK")
SHA = "a" * 64

# table, columns, values of a row whose key is taken in make(), values with a free key, code, a column to upsert
CASES = [
    ("payment", "company_id, direction, provider, account, external_id, value_date, currency, amount_minor, base_amount_minor",
     "1, 'in', 'stripe', 'acct_1', 'pi_1', '2026-03-01', 'EUR', 999, 999",
     "1, 'in', 'stripe', 'acct_1', 'pi_9', '2026-03-01', 'EUR', 999, 999", "PAYMENT_ALREADY_RECORDED", "amount_minor"),
    ("settlement_batch", "company_id, provider, account, livemode, payout_id, payout_date, currency, gross_minor, fee_minor, net_minor",
     "1, 'stripe', 'acct_1', 1, 'po_1', '2026-04-01', 'EUR', 7, 0, 7",
     "1, 'stripe', 'acct_1', 1, 'po_9', '2026-04-01', 'EUR', 7, 0, 7", "SETTLEMENT_ALREADY_IMPORTED", "payout_date"),
    ("settlement_line", "batch_id, company_id, provider, account, livemode, txn_id, category, gross_minor, fee_minor, net_minor",
     "2, 1, 'stripe', 'acct_1', 1, 't1', 'charge', 7, 0, 7",
     "2, 1, 'stripe', 'acct_1', 1, 't9', 'charge', 7, 0, 7", "TRANSACTION_ALREADY_SETTLED", "gross_minor"),
    ("depreciation_line", "run_id, company_id, asset_id, book, kind, period_start, period_end, amount_minor",
     "2, 1, 1, 'main', 'scheduled', '2026-01-31', '2026-02-05', 1",
     "2, 1, 1, 'main', 'scheduled', '2026-02-01', '2026-02-05', 1", "DEPRECIATION_PERIOD_ALREADY_POSTED", "amount_minor"),
    ("journal_entry", "company_id, entry_date, source_kind, source_id, purpose",
     "1, '2026-05-05', 'manual', 1, 'manual'", None, "ENTRY_ALREADY_POSTED", "memo"),
    ("journal_entry", "company_id, entry_date, source_kind, source_id, purpose, reverses_id",
     "1, '2026-05-05', 'manual', 77, 'manual', 1", None, "ENTRY_ALREADY_REVERSED", "memo"),
    ("party", "company_id, name, country, vat_id", "1, 'Twin', 'LT', 'LT900'", "1, 'Twin', 'LT', 'LT909'", "PARTY_EXISTS", "name"),
    ("party", "company_id, name, country, vat_id", "1, 'Twin', 'LT', '900'", "1, 'Twin', 'LT', '909'", "PARTY_EXISTS", "name"),
    ("account", "company_id, code, name, type", "1, '2410', 'Twin', 'asset'", "1, '9999', 'New', 'asset'", "ACCOUNT_EXISTS", "name"),
    ("tax_code", "company_id, code, rate_bp", "1, 'V21', 2200", "1, 'V22', 2200", "TAX_CODE_EXISTS", "rate_bp"),
    ("series", "company_id, doc_kind, code, template", "1, 'invoice', 'INV', 'Z-{period}-{number}'",
     "1, 'invoice', 'NEW', 'Z-{period}-{number}'", "SERIES_EXISTS", "template"),
    ("fiscal_year", "company_id, label, starts_on, ends_on", "1, 'X', '2026-12-31', '2027-01-01'",
     "1, 'X', '2031-01-01', '2031-12-31'", "FISCAL_YEAR_OVERLAP", "ends_on"),
    ("vat_period", "company_id, period, starts_on, ends_on", "1, 'X', '2026-12-31', '2028-01-01'",
     "1, 'X', '2031-01-01', '2031-01-31'", "VAT_PERIOD_OVERLAP", "ends_on"),
    ("asset", "company_id, code, name, in_service_on, cost_minor", "1, 'A1', 'Twin', '2026-01-01', 5",
     "1, 'A9', 'New', '2026-01-01', 5", "ASSET_EXISTS", "cost_minor"),
    ("order_claim", "company_id, channel, order_ref, part, invoice_id", "1, 'web', '1001', '1', 2", None, "ORDER_ALREADY_INVOICED", "part"),
    ("bill_claim", "company_id, supplier_root, kind, doc_no_norm, reset_year, dup_seq, bill_id",
     "1, 11, 'invoice', 'INV1', 0, 0, 2", None, "DUPLICATE_SUPPLIER_DOCUMENT", "dup_seq"),
    ("order_total", "company_id, channel, order_ref, currency, total_minor", "1, 'web', '1001', 'EUR', 999999",
     "1, 'web', '1999', 'EUR', 999999", "IMMUTABLE", "total_minor"),
    ("journal_seal", "entry_id", "1", None, "ENTRY_SEALED", "sealed_at"),
]


def make(book):
    """The rows that hold the keys of CASES."""
    first = book.manual(1, "2026-02-01", [(BANK, 100), (EQUITY, -100)])
    assert first == 1
    book.manual(2, "2026-02-02", book.reversal_lines(1), reverses=1)
    book.payment("pi_1", provider="stripe", account="acct_1")
    book.batch("po_1", [("t1", "charge", 100, 0)])
    assert book.batch("po_2", [("t2", "charge", 100, 0)]) == 2
    asset = book.asset("A1")
    book.depreciate({asset: 100}, "2026-01-01", "2026-01-31")
    book.run_draft("2026-01-01", "2026-02-28")
    book.invoice("1001")
    book.draft("1001")
    book.bill("inv-1")
    book.bill_draft("INV 1")
    book("INSERT INTO order_total VALUES (1, 'web', '1001', 'EUR', 500000)")
    return book


def spellings(table, columns, values, upsert):
    for form in FORMS:
        yield "%s INTO %s (%s) VALUES (%s)" % (form, table, columns, values)
        yield "%s INTO %s (%s) SELECT %s" % (form, table, columns, values)
    yield "INSERT INTO %s (%s) VALUES (%s) ON CONFLICT DO NOTHING" % (table, columns, values)
    yield "INSERT INTO %s (%s) VALUES (%s) ON CONFLICT DO UPDATE SET %s = excluded.%s" % (table, columns, values, upsert, upsert)
    yield "INSERT INTO %s (%s) SELECT %s WHERE 1 ON CONFLICT DO UPDATE SET %s = excluded.%s" % (table, columns, values, upsert, upsert)
    yield "INSERT INTO %s (%s) VALUES (%s), (%s)" % (table, columns, values, values)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0] + "-" + c[4])
def test_taken_key_is_refused_in_every_spelling(book, case):
    table, columns, taken, free, code, upsert = case
    make(book)
    for sql in spellings(table, columns, taken, upsert):
        book.refused(code, sql)
    if free is None:
        return
    # Two equal new rows in one statement, and a new row beside a taken one: nothing is stored.
    for form in FORMS:
        book.refused(code, "%s INTO %s (%s) VALUES (%s), (%s)" % (form, table, columns, free, free))
        book.refused(code, "%s INTO %s (%s) VALUES (%s), (%s)" % (form, table, columns, free, taken))
        book.refused(code, "%s INTO %s (%s) SELECT %s UNION ALL SELECT %s" % (form, table, columns, free, free))
    # The free key is really free, else the tests above prove nothing.
    book("INSERT INTO %s (%s) VALUES (%s)" % (table, columns, free))


@pytest.mark.parametrize("table, where, change", [
    ("payment", "external_id = 'pi_2'", "external_id = 'pi_1'"),
    ("settlement_batch", "payout_id = 'po_2'", "payout_id = 'po_1'"),
    ("settlement_line", "txn_id = 't2'", "txn_id = 't1'"),
    ("account", "company_id = 1 AND code = '2710'", "code = '2410'"),
    ("party", "id = 12", "country = 'LT', vat_id = 'LT900'"),
    ("party", "id = 12", "id = 11"),
    ("series", "code = 'B'", "doc_kind = 'invoice', code = 'INV'"),
    ("asset", "code = 'A2'", "code = 'A1'"),
    ("vat_period", "company_id = 1 AND period = '2026-05'", "period = '2026-04'"),
    ("fiscal_year", "company_id = 1 AND label = '2027'", "label = '2026'"),
    ("journal_entry", "source_id = 2", "source_id = 1"),
])
def test_no_update_reaches_a_taken_key(book, table, where, change):
    make(book)
    book.payment("pi_2", provider="stripe", account="acct_1", post=False)
    book.asset("A2")
    assert book.one("SELECT count(*) FROM %s WHERE %s" % (table, where)) == 1
    for form in UPDATES:
        book.rejected("%s %s SET %s WHERE %s" % (form, table, change, where))


# Order claims -----------------------------------------------------------------------------------

@pytest.mark.parametrize("form", UPDATES)
def test_second_invoice_of_an_order_in_every_spelling(book, form):
    book.invoice("1001")
    book.issue_refused("ORDER_ALREADY_INVOICED", book.draft("1001", 777), form)
    assert book.one("SELECT max(number) FROM sales_document") == 1
    book.healthy()


@pytest.mark.parametrize("form", UPDATES)
def test_two_invoices_of_one_order_in_one_statement(book, form):
    """With correct numbers for both rows, so that only the order can stop it."""
    def both(a, b):
        entries = {a: book.sales_entry(a), b: book.sales_entry(b)}
        book("%s sales_document SET status = 'issued', series_id = 1, period = '2026', vat_period = '2026-03',"
             " entry_id = CASE id WHEN %d THEN %d ELSE %d END,"
             " number = CASE id WHEN %d THEN 1 ELSE 2 END,"
             " full_number = CASE id WHEN %d THEN 'INV-2026-00001' ELSE 'INV-2026-00002' END"
             " WHERE id IN (%d, %d)" % (form, a, entries[a], entries[b], a, a, a, b))

    a, b, c = book.draft("1001"), book.draft("1001"), book.draft("1002")
    before = book.digest()
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            both(a, b)
    assert code_of(error.value) == "ORDER_ALREADY_INVOICED"
    assert book.digest() == before
    with book.transaction():
        both(a, c)                       # two orders in one statement are fine
    assert book.all("SELECT number FROM sales_document WHERE status = 'issued' ORDER BY 1") == [(1,), (2,)]
    book.healthy()


def test_one_number_for_two_rows_in_one_statement(book):
    a, b = book.draft("1"), book.draft("2")
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            ea, eb = book.sales_entry(a), book.sales_entry(b)
            book("UPDATE sales_document SET status = 'issued', vat_period = '2026-03', entry_id = iif(id = ?, ?, ?),"
                 " (series_id, period, number, full_number) = (SELECT series_id, period, number, full_number FROM next_number"
                 " WHERE series_id = 1 AND period = '2026') WHERE id IN (?, ?)", a, ea, eb, a, b)
    assert code_of(error.value) == "NUMBER_NOT_NEXT"
    assert book.one("SELECT count(*) FROM sales_document WHERE status = 'issued'") == 0


def test_invisible_differences_make_no_second_order(book):
    book.invoice("1001")
    for ref in ("", " ", "1001 ", " 1001", "1001\t", "1001\n", "1001\r\n", "1001\u00a0", "1001\u200b", "\ufeff1001", "10\u200d01",
                "1001\x00", "1001\x00b", "10\x0001", "1001\x7f", "1001\u3000", "1001\u2028", "1001\u202e"):
        with pytest.raises(sqlite3.IntegrityError) as error:
            book.draft(ref) if ref else book("INSERT INTO sales_document (company_id, kind, customer_id, customer_name, currency, net_minor,"
                                             " tax_minor, gross_minor, base_net_minor, base_tax_minor, base_gross_minor, order_channel,"
                                             " order_ref, order_part) VALUES (1, 'invoice', 1, 'x', 'EUR', 0, 0, 0, 0, 0, 0, 'web', '', '1')")
        assert str(error.value) == ("CHECK constraint failed: order_ref: not empty, no blanks around it,"
                                    " no control or invisible characters"), repr(ref)
    with pytest.raises(sqlite3.IntegrityError):
        book.draft(b"1001")
    book.issue_refused("ORDER_ALREADY_INVOICED", book.draft(1001))      # a number is the same text
    book.invoice("1001a")
    book.invoice("1001A")                                               # references are machine ids: case counts
    book.invoice("order 7")


# Default ignorable by Unicode, or drawn as a blank.
INVISIBLE = [0xa0, 0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x1680, 0x17b4, 0x17b5, *range(0x180b, 0x1810), *range(0x2000, 0x2010), *range(0x2028, 0x2030),
             *range(0x205f, 0x2070), 0x2800, 0x3000, 0x3164, *range(0xfe00, 0xfe10), 0xfeff, 0xffa0, *range(0xfff0, 0xfff9),
             *range(0x1bca0, 0x1bca4), *range(0x1d173, 0x1d17b), 0xe0000, 0xe0020, 0xe007f, 0xe0100, 0xe01ef, 0xe0fff]


def test_no_invisible_character_makes_a_second_identity(one_book):
    one_book.invoice("1001")
    one_book.payment("pi_1")
    one_book.bill("B-1")
    one_book.manual(1, "2026-03-01", [(3, 5), (12, -5)])
    for c in map(chr, INVISIBLE):
        for text in (c, "1001" + c, c + "1001", "10" + c + "01"):
            for insert, named in ((lambda: one_book.draft(text), "order_ref"), (lambda: one_book.draft("1001", channel=text), "order_channel"),
                                  (lambda: one_book.payment(text), "external_id"),
                                  (lambda: one_book("INSERT INTO order_total VALUES (1, 'web', ?, 'EUR', 1)", text), "order_ref"),
                                  (lambda: one_book("INSERT INTO order_total VALUES (1, ?, '1001', 'EUR', 1)", text), "channel"),
                                  (lambda: one_book.run_draft("2026-01-01", "2026-01-31", book=text), "book"),
                                  (lambda: one_book.entry("manual", 1, text, "2026-03-01", []), "purpose")):
                with pytest.raises(sqlite3.IntegrityError) as error:
                    insert()
                assert str(error.value).startswith("CHECK constraint failed: %s: not empty" % named), hex(ord(c))
            with pytest.raises(sqlite3.IntegrityError) as error:        # dropped from a document number, or refused
                one_book.bill(text.replace("10", "B").replace("01", "1"))
            assert code_of(error.value) in ("DUPLICATE_SUPPLIER_DOCUMENT", "DOCUMENT_NUMBER_UNREADABLE"), hex(ord(c))
    one_book.healthy()


def test_half_an_order_key_is_refused(book):
    d = book.draft("1001")
    for change in ("order_channel = NULL", "order_part = NULL", "order_ref = NULL", "order_channel = ''", "order_part = ' '"):
        book.rejected("UPDATE sales_document SET %s WHERE id = %d" % (change, d))
        book.rejected("UPDATE OR IGNORE sales_document SET %s WHERE id = %d" % (change, d))


def test_key_changed_in_the_issuing_statement_counts(book):
    """The claim is judged by the values being written, not by those of the draft."""
    book.invoice("1001")
    draft = book.draft("1002")
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            sql, args = book.issue_statement(draft, book.sales_entry(draft))
            book.db.execute(sql.replace("SET status = 'issued'", "SET order_ref = '1001', status = 'issued'"), args)
    assert code_of(error.value) == "ORDER_ALREADY_INVOICED"


def test_a_claim_is_not_given_away(book):
    book.invoice("1001")
    draft = book.draft("1001")
    for form in UPDATES:
        book.rejected(form + " order_claim SET released_by = invoice_id")
        book.rejected(form + " order_claim SET released_by = %d" % draft)
        book.rejected(form + " order_claim SET part = '2'")
        book.rejected(form + " order_claim SET invoice_id = %d" % draft)
        book.rejected(form + " order_claim SET company_id = 2")
    book.rejected("DELETE FROM order_claim")
    book.refused("CLAIM_MISMATCH", "INSERT INTO order_claim VALUES (1, 'web', '1002', '1', 0, %d)" % draft)
    book.issue_refused("ORDER_ALREADY_INVOICED", draft)


# Bill claims ------------------------------------------------------------------------------------

@pytest.mark.parametrize("form", UPDATES)
def test_second_registration_in_every_spelling(book, form):
    book.bill("INV-001/26")
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("inv 001.26", net=1), form)
    book.healthy()


@pytest.mark.parametrize("form", UPDATES)
def test_two_bills_in_one_statement(book, form):
    a, b = book.bill_draft("X-1"), book.bill_draft("X1")
    before = book.digest()
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            ea, eb = book.bill_entry(a), book.bill_entry(b)
            book(form + " received_bill SET status = 'registered', vat_period = '2026-03', entry_id = iif(id = ?, ?, ?)"
                 " WHERE id IN (?, ?)", a, ea, eb, a, b)
    assert code_of(error.value) == "DUPLICATE_SUPPLIER_DOCUMENT"
    assert book.digest() == before


def test_number_changed_in_the_registering_statement_counts(book):
    book.bill("A-1")
    draft = book.bill_draft("B-1")
    with pytest.raises(sqlite3.IntegrityError) as error:
        with book.transaction():
            book.db.execute(book.REGISTER.format(verb="UPDATE").replace("SET status", "SET doc_no = 'a 1', status"),
                            {"entry": book.bill_entry(draft), "bill": draft})
    assert code_of(error.value) == "DUPLICATE_SUPPLIER_DOCUMENT"


@pytest.mark.parametrize("typed", [
    "INV-001/26", "inv 001.26", "Inv\u00a0001\u201326", "INV001\u200b26", "\uff29\uff2e\uff36\uff10\uff10\uff11\uff12\uff16",
    "INV_001_26", "(INV) 001:26", "INV \u2116 001\\26", "inv'001\"26", "INV\u2009001\u221226", "\ufeffINV00126", "INV\uff0d001\uff0f26",
    "INV#001;26!", "inv\t001\n26", "\u201eINV\u201c 001\u202626", "INV.001.26.", "\uff49\uff4e\uff56\uff0e\uff10\uff10\uff11 26"])
def test_normal_form_of_the_tax_office(one_book, typed):
    one_book.bill("INV00126")
    one_book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", one_book.bill_draft(typed))


@pytest.mark.parametrize("other", ["INV0126", "INV000126", "INVV00126", "INV001260", "1NV00126", "INVOO126", "INV00126A", "\u017dINV00126"])
def test_zeros_and_repeated_letters_count(one_book, other):
    one_book.bill("INV00126")
    one_book.bill(other)


@pytest.mark.parametrize("typed", ["---", "...", " - ", "\u2116", "\u20ac5", "A\u2192B", "Z\u030c-1", "\u2460", "\U0001f600", "5\u00bd", "\ufe0f1", "A\u00d71"])
def test_unreadable_numbers_are_refused_not_guessed(one_book, typed):
    one_book.register_refused("DOCUMENT_NUMBER_UNREADABLE", one_book.bill_draft(typed))


def test_the_normal_form_against_a_model(one_book):
    """Random numbers made of letters, digits and junk: the stored form is the model's, drafts may collide."""
    import random
    rng = random.Random(5)
    junk = " \t.-/\\_,:;()[]'\"#&+*\u00a0\u2009\u200b\u3000\ufeff\u2010\u2011\u2013\u2014\u2212\uff0d\u2044\uff0f\u00b7\u2116"
    letters = "abcxyzABCXYZ0123456789\u017d\u0161\uff21\uff5a\uff10\uff19"
    fold = {ord("\uff21"): "A", ord("\uff5a"): "Z", ord("\uff10"): "0", ord("\uff19"): "9"}
    for _ in range(400):
        text = "".join(rng.choice(letters if rng.random() < 0.6 else junk) for _ in range(rng.randint(1, 30)))
        model = "".join(c.upper() if c.isascii() else c for c in "".join(c for c in text if c not in junk).translate(fold))
        draft = one_book.bill_draft(text)
        assert one_book.one("SELECT doc_no_norm FROM received_bill WHERE id = ?", draft) == model, repr(text)


def test_a_bill_claim_is_not_given_away(book):
    bill = book.bill("A-1")
    draft = book.bill_draft("A-1")
    for form in UPDATES:
        for change in ("dup_seq = 1", "doc_no_norm = 'B'", "supplier_root = 12", "reset_year = 2026", "kind = 'credit_note'",
                       "bill_id = %d" % draft, "company_id = 2"):
            book.rejected("%s bill_claim SET %s" % (form, change))
    book.rejected("DELETE FROM bill_claim")
    book.rejected("DELETE FROM bill_claim WHERE bill_id = %d" % bill)
    book.refused("CLAIM_MISMATCH", "INSERT INTO bill_claim VALUES (1, 11, 'invoice', 'ZZZ', 0, 0, %d)" % draft)


def test_identity_of_a_supplier_does_not_leak_duplicates(book):
    """Changing the supplier's habit or merging suppliers is judged with all their bills."""
    book.bill("7", supplier=11, date="2026-01-10")
    book("UPDATE party SET number_reset = 'year' WHERE id = 11")
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("7", date="2026-12-31"))
    book.bill("7", supplier=11, date="2025-12-31")
    for form in UPDATES:
        book.refused("MERGE_WOULD_DUPLICATE", form + " party SET number_reset = 'never' WHERE id = 11")
    book.bill("7", supplier=12, date="2026-02-10")
    for form in UPDATES:
        book.refused("MERGE_WOULD_DUPLICATE", form + " party SET merged_into = 11 WHERE id = 12")
    book.void(book.one("SELECT bill_id FROM bill_claim WHERE supplier_root = 12"))
    book.bill("8", supplier=12, date="2026-02-10")
    book("UPDATE party SET merged_into = 11 WHERE id = 12")
    assert book.all("SELECT supplier_root, doc_no_norm, reset_year FROM bill_claim ORDER BY 2, 3") == [(11, "7", 2025), (11, "7", 2026), (11, "8", 2026)]
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("8", supplier=12))
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("8", supplier=11))
    book.healthy()


def test_two_papers_with_one_normal_form_are_merged_as_the_error_says(book):
    """Void one, merge, register it again with the next dup_seq and a reason. In a filed VAT period nothing can be voided."""
    first, other = book.bill("1-12", supplier=11), book.bill("11-2", supplier=12)
    with pytest.raises(sqlite3.IntegrityError, match="void one, change the party, then register it again with the next dup_seq"):
        book("UPDATE party SET merged_into = 11 WHERE id = 12")
    book.void(other)
    book("UPDATE party SET merged_into = 11 WHERE id = 12")
    again = book.bill("11-2", supplier=12, dup_seq=1, dup_reason="another paper of the same supplier")
    assert book.all("SELECT supplier_root, doc_no_norm, dup_seq, bill_id FROM bill_claim ORDER BY dup_seq") == [(11, "112", 0, first), (11, "112", 1, again)]
    book("INSERT INTO party (id, company_id, name) VALUES (21, 1, 'A'), (22, 1, 'B')")
    book.bill("7", supplier=21)
    filed = book.bill("7", supplier=22)
    book("UPDATE vat_period SET status = 'filed' WHERE company_id = 1 AND period = '2026-03'")
    book.refused("MERGE_WOULD_DUPLICATE", "UPDATE party SET merged_into = 21 WHERE id = 22")
    with pytest.raises(sqlite3.IntegrityError, match="VOID_NOT_ALLOWED"):
        book.void(filed, "2026-04-02")
    book.healthy()


def test_merges_are_one_level_final_and_inside_the_company(book):
    book("INSERT INTO party (id, company_id, name) VALUES (21, 1, 'A'), (22, 1, 'B'), (23, 1, 'C')")
    book("UPDATE party SET merged_into = 22 WHERE id = 21")
    for target in ("21", "NULL", "23", "999"):
        book.refused("MERGE_INVALID", "UPDATE party SET merged_into = %s WHERE id = 21" % target)
    book.refused("MERGE_INVALID", "UPDATE party SET merged_into = 21 WHERE id = 23")
    book.refused("MERGE_INVALID", "UPDATE party SET merged_into = 101 WHERE id = 23")
    book.refused("MERGE_INVALID", "INSERT INTO party (company_id, name, merged_into) VALUES (1, 'D', 22)")
    book.bill("5", supplier=21)
    book("UPDATE party SET merged_into = 23 WHERE id = 22")
    assert book.all("SELECT id, merged_into FROM party WHERE id > 20 AND id < 30") == [(21, 23), (22, 23), (23, None)]
    assert book.one("SELECT supplier_root FROM bill_claim") == 23
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("5", supplier=22))
    book.healthy()


def test_override_needs_a_reason_and_something_to_override(book):
    book.refused("CHECK constraint failed", "UPDATE received_bill SET dup_seq = 1 WHERE id = %d" % book.bill_draft("N-1"))
    book.register_refused("OVERRIDE_NOT_NEEDED", book.bill_draft("1-12", dup_seq=1, dup_reason="why not"))
    first = book.bill("1-12")
    book.register_refused("OVERRIDE_NOT_NEEDED", book.bill_draft("11-2", dup_seq=2, dup_reason="two ahead"))
    other = book.bill("11-2", dup_seq=1, dup_reason="false hit: another paper")
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("112", dup_seq=1, dup_reason="again"))
    assert book.all("SELECT kind, subject_id, reason FROM override_log") == [("duplicate_bill", other, "false hit: another paper")]
    book.void(first)                                                # does not open the number that is overridden
    for doc_no in ("11-2", "1-12"):
        book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft(doc_no))
        book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft(doc_no, dup_seq=1, dup_reason="again"))
    again = book.bill("1-12", dup_seq=2, dup_reason="the first, entered anew")
    book.void(other)
    book.register_refused("DUPLICATE_SUPPLIER_DOCUMENT", book.bill_draft("11-2"))
    book.void(again)
    book.bill("11-2")
    book.healthy()


# Webhooks ---------------------------------------------------------------------------------------

WEBHOOK = "INTO webhook_event (company_id, provider, account, event_id, body, body_sha256, signature_ok)"


def test_an_event_is_taken_once_in_every_spelling(book):
    first = book.event("evt_1")
    before = book.digest()
    row = "(1, 'stripe', 'acct_1', 'evt_1', x'7b7d', '%s', 1)" % book.one("SELECT body_sha256 FROM webhook_event")
    for form in FORMS:
        assert book.all("%s %s VALUES %s RETURNING id" % (form, WEBHOOK, row)) == []
        assert book.one("SELECT changes()") == 0
        assert book.all("%s %s VALUES %s, %s RETURNING id" % (form, WEBHOOK, row, row)) == []
    assert book.all("INSERT %s VALUES %s ON CONFLICT DO NOTHING RETURNING id" % (WEBHOOK, row)) == []
    assert book.all("INSERT %s VALUES %s ON CONFLICT DO UPDATE SET status = 'received' RETURNING id" % (WEBHOOK, row)) == []
    assert book.digest() == before
    other = row.replace("x'7b7d'", "x'7b207d'").replace("evt_1", "evt_1")
    for form in FORMS:
        book.refused("EVENT_ID_REUSED_WITH_OTHER_BODY", "%s %s VALUES %s" % (form, WEBHOOK, other))
        book.refused("EVENT_ID_REUSED_WITH_OTHER_BODY", "%s %s VALUES %s" % (form, WEBHOOK, row.replace("(1,", "(2,")))
        book.refused("EVENT_ID_REUSED_WITH_OTHER_BODY", "%s %s VALUES (1, 'stripe', 'acct_1', 'evt_1', x'7b7d', '%s', 1)" % (form, WEBHOOK, SHA))
    assert book.event("evt_1", account="acct_2") != first        # ids are unique only inside their account


def test_an_event_is_finished_once(book):
    event = book.event("evt_1")
    book("UPDATE webhook_event SET status = 'processing', attempts = 1 WHERE id = ?", event)
    book("UPDATE webhook_event SET status = 'failed', last_error = 'no' WHERE id = ?", event)
    book.refused("IMMUTABLE", "UPDATE webhook_event SET status = 'received' WHERE id = ?", event)
    book("UPDATE webhook_event SET status = 'processing', attempts = 2 WHERE id = ?", event)
    book("UPDATE webhook_event SET status = 'processed', processed_at = 'now', effect_kind = 'payment', effect_id = 1 WHERE id = ?", event)
    for form in UPDATES:
        for change in ("status = 'processing', processed_at = NULL", "status = 'processed'", "attempts = 3", "effect_id = 2",
                       "body = NULL, effect_id = 2", "status = status"):
            book.refused("EVENT_ALREADY_PROCESSED", "%s webhook_event SET %s WHERE id = %d" % (form, change, event))
    for _ in range(2):                                                  # a purge of bodies runs again and again
        book("UPDATE webhook_event SET body = NULL WHERE status = 'processed'")
    book.refused("EVENT_ALREADY_PROCESSED", "UPDATE webhook_event SET status = 'processed' WHERE id = %d" % event)
    book.refused("IMMUTABLE", "UPDATE webhook_event SET body = x'7b7d' WHERE id = %d" % event)
    assert book.all("SELECT * FROM webhook_stuck") == []


# External ids -----------------------------------------------------------------------------------

@pytest.mark.parametrize("junk", ["''", "' x'", "'x '", "'x' || char(9)", "'x' || char(0)", "char(0) || 'x'", "'x' || char(160)", "'x' || char(8203)",
                                  "'x' || char(10)", "x'78'", "NULL"])
@pytest.mark.parametrize("table, column, sql", [
    ("payment", "provider", "INSERT OR IGNORE INTO payment (company_id, direction, provider, account, external_id, value_date, currency, amount_minor,"
     " base_amount_minor) VALUES (1, 'in', {}, 'a', 'e', '2026-01-01', 'EUR', 1, 1)"),
    ("payment", "account", "INSERT OR IGNORE INTO payment (company_id, direction, provider, account, external_id, value_date, currency, amount_minor,"
     " base_amount_minor) VALUES (1, 'in', 'p', {}, 'e', '2026-01-01', 'EUR', 1, 1)"),
    ("payment", "external_id", "INSERT OR IGNORE INTO payment (company_id, direction, provider, account, external_id, value_date, currency, amount_minor,"
     " base_amount_minor) VALUES (1, 'in', 'p', 'a', {}, '2026-01-01', 'EUR', 1, 1)"),
    ("settlement_batch", "payout_id", "INSERT OR IGNORE INTO settlement_batch (company_id, provider, account, payout_id, payout_date, currency, gross_minor,"
     " fee_minor, net_minor) VALUES (1, 'p', 'a', {}, '2026-01-01', 'EUR', 1, 0, 1)"),
    ("settlement_batch", "account", "INSERT OR IGNORE INTO settlement_batch (company_id, provider, account, payout_id, payout_date, currency, gross_minor,"
     " fee_minor, net_minor) VALUES (1, 'p', {}, 'x', '2026-01-01', 'EUR', 1, 0, 1)"),
    ("settlement_line", "txn_id", "INSERT OR IGNORE INTO settlement_line (batch_id, company_id, provider, account, txn_id, category, gross_minor, net_minor)"
     " VALUES (1, 1, 'stripe', 'acct_1', {}, 'charge', 1, 1)"),
    ("webhook_event", "event_id", "INSERT OR IGNORE " + WEBHOOK + " VALUES (1, 'p', 'a', {}, x'00', '" + SHA + "', 1)"),
    ("webhook_event", "account", "INSERT OR IGNORE " + WEBHOOK + " VALUES (1, 'p', {}, 'e', x'00', '" + SHA + "', 1)"),
], ids=lambda v: v if isinstance(v, str) and len(v) < 20 else "")
def test_identifiers_hold_nothing_invisible(one_book, table, column, sql, junk):
    one_book.batch("po_1", [("t1", "charge", 1, 0)])
    count = one_book.one("SELECT count(*) FROM " + table)
    try:
        one_book(sql.format(junk))
    except sqlite3.Error:
        pass
    allowed = column == "external_id" and junk == "NULL"         # cash has no id, and no key
    assert one_book.one("SELECT count(*) FROM " + table) - count == (1 if allowed else 0)
    one_book(sql.format("'ok 1'"))
    assert one_book.one("SELECT count(*) FROM " + table) - count == (2 if allowed else 1)

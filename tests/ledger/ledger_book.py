"""A small book and the moves an application makes on it, in plain SQL."""
import glob
import os
import sqlite3

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXTENSION = os.environ.get("IDEM_SO", os.path.join(ROOT, "idem.so"))
SCHEMA = "".join(open(f, encoding="utf-8").read()
                 for f in sorted(glob.glob(os.path.join(ROOT, "sql", "ledger", "*.sql"))))

MASTER = """
INSERT INTO currency VALUES ('EUR', 2), ('USD', 2), ('JPY', 0);
INSERT INTO company (id, name, country, base_currency, time_zone, allows_annulment)
VALUES (1, 'Shop', 'LT', 'EUR', 'Europe/Vilnius', 1), (2, 'Other', 'LT', 'EUR', 'Europe/Vilnius', 0);
INSERT INTO fiscal_year (company_id, label, starts_on, ends_on)
SELECT c.id, y.label, y.label || '-01-01', y.label || '-12-31'
  FROM company c, (SELECT '2025' AS label UNION ALL SELECT '2026' UNION ALL SELECT '2027') y;
INSERT INTO vat_period (company_id, period, starts_on, ends_on)
WITH RECURSIVE m(d) AS (SELECT '2025-01-01' UNION ALL SELECT date(d, '+1 month') FROM m WHERE d < '2027-12-01')
SELECT c.id, substr(d, 1, 7), d, date(d, '+1 month', '-1 day') FROM company c, m;
INSERT INTO tax_code (company_id, code, kind, rate_bp, isaf_code)
SELECT id, 'V21', 'standard', 2100, 'PVM1' FROM company
UNION ALL SELECT id, 'V9', 'standard', 900, 'PVM2' FROM company
UNION ALL SELECT id, 'RC21', 'reverse_charge', 2100, 'PVM25' FROM company
UNION ALL SELECT id, 'ND21', 'non_deductible', 2100, 'PVM1' FROM company
UNION ALL SELECT id, 'EX', 'exempt', 0, 'PVM5' FROM company;
INSERT INTO account (id, company_id, code, name, type, role)
SELECT (c.id - 1) * 100 + a.n, c.id, a.code, a.name, a.type, a.role
  FROM company c, (
  SELECT 1 AS n, '2410' AS code, 'Receivables' AS name, 'asset' AS type, 'receivable' AS role
  UNION ALL SELECT 2, '4430', 'Payables', 'liability', 'payable'
  UNION ALL SELECT 3, '2710', 'Bank', 'asset', 'money'
  UNION ALL SELECT 4, '2720', 'Provider clearing', 'asset', 'clearing'
  UNION ALL SELECT 5, '4492', 'Output VAT', 'liability', 'output_vat'
  UNION ALL SELECT 6, '2441', 'Input VAT', 'asset', 'input_vat'
  UNION ALL SELECT 7, '5000', 'Revenue', 'income', NULL
  UNION ALL SELECT 8, '6000', 'Expenses', 'expense', NULL
  UNION ALL SELECT 9, '1208', 'Accumulated depreciation', 'asset', 'accumulated_depreciation'
  UNION ALL SELECT 10, '6115', 'Depreciation', 'expense', NULL
  UNION ALL SELECT 11, '6300', 'Provider fees', 'expense', NULL
  UNION ALL SELECT 12, '3000', 'Equity', 'equity', NULL) a;
INSERT INTO party (id, company_id, name, country, vat_id)
VALUES (1, 1, 'Customer One', 'LT', 'LT100'), (2, 1, 'Customer Two', NULL, NULL),
       (11, 1, 'Supplier One', 'LT', 'LT900'), (12, 1, 'Supplier Two', 'DE', 'DE901'),
       (101, 2, 'Customer Of Other', 'LT', 'LT100'), (111, 2, 'Supplier Of Other', 'LT', 'LT900');
INSERT INTO series (id, company_id, doc_kind, code, template)
VALUES (1, 1, 'invoice', 'INV', 'INV-{period}-{number}'), (2, 1, 'credit_note', 'CN', 'CN-{period}-{number}'),
       (3, 1, 'advance', 'ADV', 'ADV-{period}-{number}'), (4, 1, 'bill', 'B', 'B-{period}-{number}'),
       (101, 2, 'invoice', 'INV', 'INV-{period}-{number}'), (102, 2, 'credit_note', 'CN', 'CN-{period}-{number}');
"""

RECEIVABLE, PAYABLE, BANK, CLEARING, OUTPUT, INPUT, REVENUE, EXPENSE, ACCUMULATED, DEPRECIATION, FEES, EQUITY = range(1, 13)
RATE = {"V21": 2100, "V9": 900, "RC21": 2100, "ND21": 2100, "EX": 0}
SERIES = {"invoice": 1, "credit_note": 2, "advance": 3}


def code_of(error):
    """The stable code: all text before the first colon."""
    return str(error).split(":", 1)[0]


class Book:
    """One connection to a book, with the steps of the recipes as methods."""

    def __init__(self, path=":memory:", foreign_keys=True, recursive_triggers=False, create=True):
        self.db = sqlite3.connect(path, isolation_level=None, timeout=20, check_same_thread=False)
        if create:
            TEMPLATE.backup(self.db)
        self.db.execute("PRAGMA foreign_keys = %d" % foreign_keys)
        self.db.execute("PRAGMA recursive_triggers = %d" % recursive_triggers)

    def __call__(self, sql, *args):
        return self.db.execute(sql, args)

    def one(self, sql, *args):
        row = self.db.execute(sql, args).fetchone()
        return row[0] if row else None

    def all(self, sql, *args):
        return self.db.execute(sql, args).fetchall()

    def refused(self, code, sql, *args):
        """The statement is refused with this code and changes nothing."""
        before = self.digest()
        with pytest.raises(sqlite3.Error) as error:
            self.db.execute(sql, args).fetchall()
        assert code_of(error.value) == code, str(error.value)
        assert self.digest() == before

    def rejected(self, sql, *args):
        """Refused for whatever reason, or ignored: in any case nothing changes."""
        before = self.digest()
        try:
            self.db.execute(sql, args).fetchall()
        except sqlite3.Error:
            pass
        assert self.digest() == before, sql

    def digest(self):
        """The database image without the change counters of its header."""
        image = bytearray(self.db.serialize())
        image[24:28] = image[92:100] = b""
        return bytes(image)

    # Entries ----------------------------------------------------------------------------------------

    def entry(self, source_kind, source_id, purpose, date, lines, company=1, reverses=None):
        """lines: (account, amount[, party[, tax_code]]) in the base currency."""
        entry = self.one("INSERT INTO journal_entry (company_id, entry_date, source_kind, source_id, purpose, reverses_id)"
                         " VALUES (?, ?, ?, ?, ?, ?) RETURNING id", company, date, source_kind, source_id, purpose, reverses)
        for n, line in enumerate([x for x in lines if x[1] != 0], 1):
            account, amount, party, tax = (tuple(line) + (None, None))[:4]
            self("INSERT INTO journal_line (entry_id, line_no, company_id, account_id, currency, amount_minor,"
                 " base_amount_minor, party_id, tax_code) VALUES (?, ?, ?, ?, 'EUR', ?, ?, ?, ?)",
                 entry, n, company, (company - 1) * 100 + account, amount, amount, party, tax)
        return entry

    def manual(self, voucher, date, lines, company=1, reverses=None, purpose="manual"):
        with self.transaction():
            entry = self.entry("manual", voucher, purpose, date, lines, company, reverses)
            self("INSERT INTO journal_seal (entry_id) VALUES (?)", entry)
        return entry

    def reversal_lines(self, entry):
        return [((a - 1) % 100 + 1, -x, p, t) for a, x, p, t in self.all(
            "SELECT account_id, amount_minor, party_id, tax_code FROM journal_line WHERE entry_id = ?", entry)]

    def transaction(self):
        return Transaction(self.db)

    # Sales ------------------------------------------------------------------------------------------

    def draft(self, order=None, net=10000, date="2026-03-10", kind="invoice", credits=None, channel="web", part="1",
              company=1, customer=None, tax_code="V21", lines=None, refund=None, supply=None, due=None):
        """lines: (net, tax_code); default one line."""
        customer = customer or (101 if company == 2 else 1)
        lines = lines or [(net, tax_code)]
        taxes = {}
        for amount, code in lines:
            taxes[code] = taxes.get(code, 0) + amount
        taxes = {c: (b, (b * (0 if c == "RC21" else RATE[c]) + 5000) // 10000) for c, b in taxes.items()}
        net, tax = sum(b for b, _ in taxes.values()), sum(t for _, t in taxes.values())
        doc = self.one(
            "INSERT INTO sales_document (company_id, kind, customer_id, customer_name, customer_vat_id, customer_country,"
            " order_channel, order_ref, order_part, currency, net_minor, tax_minor, gross_minor, base_net_minor,"
            " base_tax_minor, base_gross_minor, credits_id, refund_ref, issue_date, supply_date, due_date)"
            " SELECT ?, ?, id, name, vat_id, country, ?, ?, ?, 'EUR', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM party WHERE id = ?"
            " RETURNING id", company, kind, channel if order else None, order, part,
            net, tax, net + tax, net, tax, net + tax, credits, refund, date, supply, due, customer)
        for n, (amount, code) in enumerate(lines, 1):
            self("INSERT INTO sales_line (document_id, line_no, company_id, description, unit_price_minor, net_minor, tax_code)"
                 " VALUES (?, ?, ?, 'goods', ?, ?, ?)", doc, n, company, amount, amount, code)
        for code, (base, tax) in taxes.items():
            self("INSERT INTO sales_tax (document_id, tax_code, company_id, taxable_minor, tax_minor, base_taxable_minor,"
                 " base_tax_minor) VALUES (?, ?, ?, ?, ?, ?, ?)", doc, code, company, base, tax, base, tax)
        return doc

    def sales_entry(self, doc):
        company, kind, date, customer, net, gross = self.all(
            "SELECT company_id, kind, issue_date, customer_id, net_minor, gross_minor FROM sales_document WHERE id = ?", doc)[0]
        sign = -1 if kind == "credit_note" else 1
        taxes = self.all("SELECT tax_code, tax_minor FROM sales_tax WHERE document_id = ?", doc)
        return self.entry("sales_document", doc, "issue", date,
                          [(RECEIVABLE, sign * gross, customer), (REVENUE, -sign * net)]
                          + [(OUTPUT, -sign * t, None, c) for c, t in taxes], company)

    ISSUE = """
        {verb} sales_document
           SET status = 'issued', entry_id = :entry, issued_at = '2026-03-10T10:00:00Z',
               (series_id, period, number, full_number) =
                 (SELECT series_id, period, number, full_number FROM next_number
                   WHERE series_id = :series AND period = substr(sales_document.issue_date, 1, 4)),
               vat_period = (SELECT period FROM vat_period v
                              WHERE v.company_id = sales_document.company_id AND v.status = 'open'
                                AND v.ends_on >= coalesce(sales_document.supply_date, sales_document.issue_date)
                              ORDER BY v.ends_on LIMIT 1)
         WHERE id = :doc AND status = 'draft'"""

    def issue_statement(self, doc, entry, verb="UPDATE", series=None):
        company, kind = self.all("SELECT company_id, kind FROM sales_document WHERE id = ?", doc)[0]
        series = series or (company - 1) * 100 + SERIES[kind]
        return self.ISSUE.format(verb=verb), {"entry": entry, "doc": doc, "series": series}

    def issue(self, doc, verb="UPDATE", series=None):
        with self.transaction():
            entry = self.sales_entry(doc) if self.one("SELECT gross_minor FROM sales_document WHERE id = ?", doc) else None
            self.db.execute(*self.issue_statement(doc, entry, verb, series))
        return doc

    def issue_refused(self, code, doc, verb="UPDATE", series=None):
        """Issuing is refused with this code; draft and numbers stay as they were."""
        before = self.digest()
        with pytest.raises(sqlite3.Error) as error:
            self.issue(doc, verb, series)
        assert code_of(error.value) == code, str(error.value)
        assert self.digest() == before

    def invoice(self, order=None, net=10000, **more):
        return self.issue(self.draft(order, net, **more))

    def credit(self, invoice, net, **more):
        customer, company, date = self.all("SELECT customer_id, company_id, issue_date FROM sales_document WHERE id = ?", invoice)[0]
        more.setdefault("date", date)
        return self.draft(None, net, kind="credit_note", credits=invoice, customer=customer, company=company, **more)

    def annul(self, invoice, date="2026-03-11"):
        with self.transaction():
            company, entry = self.all("SELECT company_id, entry_id FROM sales_document WHERE id = ?", invoice)[0]
            back = self.entry("sales_document", invoice, "annul", date, self.reversal_lines(entry), company, entry)
            self("INSERT INTO annulment (invoice_id, company_id, annulled_on, reason, entry_id) VALUES (?, ?, ?, 'mistake', ?)",
                 invoice, company, date, back)

    # Bills ------------------------------------------------------------------------------------------

    def bill_draft(self, doc_no, supplier=None, net=5000, date="2026-03-05", registered="2026-03-06", kind="invoice",
                   tax_code="V21", company=1, dup_seq=0, dup_reason=None, credits=None, sha=None, due=None):
        supplier = supplier or (111 if company == 2 else 11)
        full_tax = (net * RATE[tax_code] + 5000) // 10000
        tax = 0 if tax_code == "RC21" else full_tax
        bill = self.one(
            "INSERT INTO received_bill (company_id, kind, supplier_id, supplier_name, supplier_vat_id, supplier_country, doc_no,"
            " doc_no_absent, dup_seq, dup_reason, document_date, received_date, registration_date, due_date, currency,"
            " net_minor, tax_minor, gross_minor, base_net_minor, base_tax_minor, base_gross_minor, credits_id, source_sha256)"
            " SELECT ?, ?, id, name, vat_id, country, ?, ?, ?, ?, ?, ?, ?, ?, 'EUR', ?, ?, ?, ?, ?, ?, ?, ? FROM party WHERE id = ?"
            " RETURNING id", company, kind, doc_no, int(doc_no is None), dup_seq, dup_reason, date, date, registered, due,
            net, tax, net + tax, net, tax, net + tax, credits, sha, supplier)
        self("INSERT INTO bill_line (bill_id, line_no, company_id, description, net_minor, tax_code) VALUES (?, 1, ?, 'things', ?, ?)",
             bill, company, net, tax_code)
        self("INSERT INTO bill_tax (bill_id, tax_code, company_id, taxable_minor, tax_minor, base_taxable_minor, base_tax_minor)"
             " VALUES (?, ?, ?, ?, ?, ?, ?)", bill, tax_code, company, net, full_tax, net, full_tax)
        return bill

    def bill_entry(self, bill):
        company, kind, date, supplier, net, gross = self.all(
            "SELECT company_id, kind, registration_date, supplier_id, net_minor, gross_minor FROM received_bill WHERE id = ?", bill)[0]
        sign = -1 if kind == "credit_note" else 1
        code, tax = self.all("SELECT tax_code, tax_minor FROM bill_tax WHERE bill_id = ?", bill)[0]
        lines = [(PAYABLE, -sign * gross, supplier)]
        if code == "ND21":
            lines += [(EXPENSE, sign * gross)]
        elif code == "RC21":
            lines += [(EXPENSE, sign * net), (INPUT, sign * tax, None, code), (OUTPUT, -sign * tax, None, code)]
        else:
            lines += [(EXPENSE, sign * net), (INPUT, sign * tax, None, code)]
        return self.entry("received_bill", bill, "register", date, lines, company)

    REGISTER = """
        {verb} received_bill
           SET status = 'registered', entry_id = :entry,
               vat_period = (SELECT period FROM vat_period v
                              WHERE v.company_id = received_bill.company_id AND v.status = 'open'
                                AND v.ends_on >= received_bill.registration_date ORDER BY v.ends_on LIMIT 1)
         WHERE id = :bill AND status = 'draft'"""

    def register(self, bill, verb="UPDATE"):
        with self.transaction():
            self.db.execute(self.REGISTER.format(verb=verb), {"entry": self.bill_entry(bill), "bill": bill})
        return bill

    def register_refused(self, code, bill, verb="UPDATE"):
        before = self.digest()
        with pytest.raises(sqlite3.Error) as error:
            self.register(bill, verb)
        assert code_of(error.value) == code, str(error.value)
        assert self.digest() == before

    def bill(self, doc_no, **more):
        return self.register(self.bill_draft(doc_no, **more))

    def void(self, bill, date="2026-03-20"):
        with self.transaction():
            company, entry = self.all("SELECT company_id, entry_id FROM received_bill WHERE id = ?", bill)[0]
            back = self.entry("received_bill", bill, "void", date, self.reversal_lines(entry), company, entry)
            self("INSERT INTO bill_void (bill_id, company_id, voided_on, reason, entry_id) VALUES (?, ?, ?, 'mistake', ?)",
                 bill, company, date, back)

    # Payments ---------------------------------------------------------------------------------------

    def payment(self, external_id, amount=12100, direction="in", date="2026-03-15", party=1, company=1, provider="bank",
                account="LT01", money=BANK, post=True, counter=None, reverses=None):
        with self.transaction():
            pay = self.one("INSERT INTO payment (company_id, direction, provider, account, external_id, value_date, currency,"
                           " amount_minor, base_amount_minor, party_id, reverses_id) VALUES (?, ?, ?, ?, ?, ?, 'EUR', ?, ?, ?, ?)"
                           " RETURNING id", company, direction, provider, account, external_id, date, amount, amount, party, reverses)
            if post:
                sign = 1 if direction == "in" else -1
                counter = counter or (RECEIVABLE if direction == "in" else PAYABLE)
                back = reverses and self.one("SELECT entry_id FROM payment WHERE id = ?", reverses)
                lines = self.reversal_lines(back) if back else [(money, sign * amount), (counter, -sign * amount, party)]
                entry = self.entry("payment", pay, "payment", date, lines, company, back)
                self("UPDATE payment SET status = 'posted', entry_id = ? WHERE id = ?", entry, pay)
        return pay

    def allocate(self, payment, amount, invoice=None, bill=None, date="2026-03-15", company=1, reverses=None):
        return self.one("INSERT INTO allocation (company_id, payment_id, invoice_id, bill_id, allocated_on, amount_minor,"
                        " payment_amount_minor, reverses_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
                        company, payment, invoice, bill, date, amount, amount, reverses)

    # Depreciation -----------------------------------------------------------------------------------

    def asset(self, code, cost=120000, residual=0, in_service="2026-01-01", company=1):
        return self.one("INSERT INTO asset (company_id, code, name, in_service_on, cost_minor, residual_minor)"
                        " VALUES (?, ?, ?, ?, ?, ?) RETURNING id", company, code, "Asset " + code, in_service, cost, residual)

    def run_draft(self, start, end, book="main", kind="scheduled", company=1, reverses=None):
        return self.one("INSERT INTO depreciation_run (company_id, book, kind, period_start, period_end, reverses_id)"
                        " VALUES (?, ?, ?, ?, ?, ?) RETURNING id", company, book, kind, start, end, reverses)

    def run_line(self, run, asset, amount, reverses=None, verb="INSERT"):
        self(verb + " INTO depreciation_line (run_id, company_id, asset_id, book, kind, period_start, period_end, amount_minor,"
             " reverses_id) SELECT id, company_id, ?, book, kind, period_start, period_end, ?, ? FROM depreciation_run WHERE id = ?",
             asset, amount, reverses, run)

    def run_post(self, run):
        company, end, reverses = self.all("SELECT company_id, period_end, reverses_id FROM depreciation_run WHERE id = ?", run)[0]
        total = self.one("SELECT sum(amount_minor) FROM depreciation_line WHERE run_id = ?", run)
        sign = -1 if reverses else 1
        entry = self.entry("depreciation_run", run, "post", end, [(DEPRECIATION, sign * total), (ACCUMULATED, -sign * total)],
                           company, reverses and self.one("SELECT entry_id FROM depreciation_run WHERE id = ?", reverses))
        self("UPDATE depreciation_run SET status = 'posted', entry_id = ? WHERE id = ?", entry, run)

    def depreciate(self, assets, start, end, book="main", kind="scheduled"):
        """assets: {asset: amount}"""
        with self.transaction():
            run = self.run_draft(start, end, book, kind)
            for asset, amount in assets.items():
                self.run_line(run, asset, amount)
            self.run_post(run)
        return run

    def reverse_run(self, run):
        with self.transaction():
            start, end, book, kind = self.all("SELECT period_start, period_end, book, kind FROM depreciation_run WHERE id = ?", run)[0]
            back = self.run_draft(start, end, book, kind, reverses=run)
            for line, asset, amount in self.all("SELECT id, asset_id, amount_minor FROM depreciation_line WHERE run_id = ?", run):
                self.run_line(back, asset, amount, reverses=line)
            self.run_post(back)
        return back

    # Settlements and webhooks -----------------------------------------------------------------------

    def batch(self, payout, lines, account="acct_1", date="2026-03-20", provider="stripe", company=1, livemode=1, manual=0,
              gross=None, fee=None):
        """lines: (txn_id, category, gross, fee)"""
        gross = sum(l[2] for l in lines) if gross is None else gross
        fee = sum(l[3] for l in lines) if fee is None else fee
        batch = self.one("INSERT INTO settlement_batch (company_id, provider, account, livemode, payout_id, payout_date, currency,"
                         " gross_minor, fee_minor, net_minor, is_manual) VALUES (?, ?, ?, ?, ?, ?, 'EUR', ?, ?, ?, ?) RETURNING id",
                         company, provider, account, livemode, payout, date, gross, fee, gross - fee, manual)
        for txn, category, g, f in lines:
            self("INSERT INTO settlement_line (batch_id, company_id, provider, account, livemode, txn_id, category, gross_minor,"
                 " fee_minor, net_minor) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                 batch, company, provider, account, livemode, txn, category, g, f, g - f)
        return batch

    def post_batch(self, batch):
        with self.transaction():
            company, date, gross, fee = self.all(
                "SELECT company_id, payout_date, gross_minor, fee_minor FROM settlement_batch WHERE id = ?", batch)[0]
            entry = self.entry("settlement_batch", batch, "payout", date,
                               [(BANK, gross - fee), (FEES, fee), (CLEARING, -gross)], company)
            self("UPDATE settlement_batch SET status = 'posted', entry_id = ? WHERE id = ?", entry, batch)
        return batch

    def fail_batch(self, batch, external, date="2026-03-25", lines=None, reverses=None):
        with self.transaction():
            company, provider, account, net = self.all(
                "SELECT company_id, provider, account, net_minor FROM settlement_batch WHERE id = ?", batch)[0]
            entry = self.entry("settlement_batch", batch, "payout_reversal", date, lines or [(BANK, -net), (CLEARING, net)],
                               company, reverses)
            self("INSERT INTO settlement_reversal (batch_id, company_id, provider, account, external_id, reversed_on, reason, entry_id)"
                 " VALUES (?, ?, ?, ?, ?, ?, 'account closed', ?)", batch, company, provider, account, external, date, entry)

    def event(self, event_id, body=b"{}", account="acct_1", verb="INSERT", tail="", company=1, sha=None):
        import hashlib
        return self.one(verb + " INTO webhook_event (company_id, provider, account, event_id, body, body_sha256, signature_ok)"
                        " VALUES (?, 'stripe', ?, ?, ?, ?, 1) " + tail + " RETURNING id",
                        company, account, event_id, body, sha or hashlib.sha256(body).hexdigest())

    def healthy(self):
        assert self.all("SELECT * FROM integrity_violation") == []
        assert self.one("SELECT coalesce(sum(net_minor), 0) FROM trial_balance") == 0
        assert self.all("SELECT * FROM vat_register_check WHERE difference_minor <> 0") == []
        assert self.all("PRAGMA foreign_key_check") == []


class Transaction:
    """BEGIN IMMEDIATE, then COMMIT or ROLLBACK. Inside another transaction: a savepoint."""

    def __init__(self, db):
        self.db = db

    def __enter__(self):
        self.nested = self.db.in_transaction
        self.db.execute("SAVEPOINT move" if self.nested else "BEGIN IMMEDIATE")

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.db.execute("RELEASE move" if self.nested else "COMMIT")
        elif self.nested:
            self.db.execute("ROLLBACK TO move")
            self.db.execute("RELEASE move")
        elif self.db.in_transaction:
            self.db.execute("ROLLBACK")


TEMPLATE = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
for pragma in filter(None, os.environ.get("IDEM_PRAGMAS", "").split(";")):   # as tests/conftest.py
    TEMPLATE.execute(f"PRAGMA {pragma}")
TEMPLATE.executescript("BEGIN;" + SCHEMA + MASTER + "COMMIT;")
TABLES = [r[0] for r in TEMPLATE.execute(
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name")]

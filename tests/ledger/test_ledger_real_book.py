"""A small real book: a shop over two months, some 400 documents of all kinds from a seeded script.

The expected trial balance, VAT registers and aging are computed here from the list of events alone, in plain
Python, without a look at the database.
"""
import datetime
import random
from collections import defaultdict

import pytest
from ledger_book import (ACCUMULATED, BANK, CLEARING, DEPRECIATION, EQUITY, EXPENSE, FEES, INPUT, OUTPUT, PAYABLE, RATE, RECEIVABLE,
                         REVENUE, Book)

AS_OF = "2026-03-31"
CODE = {RECEIVABLE: "2410", PAYABLE: "4430", BANK: "2710", CLEARING: "2720", OUTPUT: "4492", INPUT: "2441", REVENUE: "5000", EXPENSE: "6000",
        ACCUMULATED: "1208", DEPRECIATION: "6115", FEES: "6300", EQUITY: "3000"}


def day(date, plus=0):
    return str(datetime.date.fromisoformat(date) + datetime.timedelta(days=plus))


def half_up(base, code):
    return (base * (0 if code == "RC21" else RATE[code]) * 2 + 10000) // 20000


class Expected:
    """The accountant with a pencil: balances by account and month, registers, open items."""

    def __init__(self):
        self.balance = defaultdict(int)
        self.sales, self.purchases = [], []
        self.invoices, self.bills = {}, {}
        self.count = defaultdict(int)

    def post(self, date, *lines):
        assert sum(amount for _, amount in lines) == 0
        for account, amount in lines:
            self.balance[CODE[account], date[:7]] += amount

    def sale(self, number, kind, date, party, lines, sign, due, reference=None):
        taxes = defaultdict(int)
        for amount, code in lines:
            taxes[code] += amount
        for code, base in taxes.items():
            self.sales.append((date[:7], number, kind, date, party, code, sign * base, sign * half_up(base, code), reference))
        net, tax = sum(taxes.values()), sum(half_up(b, c) for c, b in taxes.items())
        self.post(date, (RECEIVABLE, sign * (net + tax)), (REVENUE, -sign * net), (OUTPUT, -sign * tax))
        return net + tax


def build(seed=2026):
    rng, book, want = random.Random(seed), Book(recursive_triggers=True), Expected()
    number, cn = 0, 0
    start = "2026-02-01"
    book.manual(1, "2026-02-01", [(BANK, 5_000_000), (EQUITY, -5_000_000)])
    want.post("2026-02-01", (BANK, 5_000_000), (EQUITY, -5_000_000))
    for n in range(3, 11):
        book("INSERT INTO party (id, company_id, name, country, vat_id) VALUES (?, 1, ?, 'LT', ?)", n, "Customer %d" % n, "LT%d" % (1000 + n))
    lathe = book.asset("LATHE", 480_000, 30_000, "2026-02-01")
    order, charges, payments = 0, [], 0

    for offset in range(59):
        date = day(start, offset)
        # Invoices: several a day; card sales are paid at once, others on terms.
        for _ in range(rng.randint(2, 5)):
            order += 1
            lines = [(rng.randint(100, 90_000), rng.choice(["V21", "V21", "V21", "V9", "EX", "RC21"])) for _ in range(rng.randint(1, 4))]
            party, card, due = rng.randint(1, 10), rng.random() < 0.5, day(date, rng.choice([7, 14, 30]))
            doc = book.invoice("SO-%d" % order, lines=lines, date=date, customer=party, due=due)
            number += 1
            name = "INV-2026-%05d" % number
            gross = want.sale(name, "SF", date, party, lines, 1, due)
            want.invoices[name] = {"doc": doc, "party": party, "due": due, "date": date, "open": gross, "gross": gross, "lines": lines}
            want.count["invoice"] += 1
            if card and gross:
                payments += 1
                pay = book.payment("ch_%d" % payments, gross, date=date, party=party, provider="stripe", account="acct_1", money=CLEARING)
                book.allocate(pay, gross, invoice=doc, date=date)
                want.post(date, (CLEARING, gross), (RECEIVABLE, -gross))
                want.invoices[name]["open"] = 0
                want.count["payment"] += 1
                charges.append((payments, pay, gross))
        # Bank transfers for older invoices: some in part, some in two.
        for name, item in list(want.invoices.items()):
            if item["open"] > 0 and item["date"] < date and rng.random() < 0.05:
                amount = item["open"] if rng.random() < 0.7 else rng.randint(1, item["open"])
                payments += 1
                pay = book.payment("bank_%d" % payments, amount, date=date, party=item["party"])
                book.allocate(pay, amount, invoice=item["doc"], date=date)
                want.post(date, (BANK, amount), (RECEIVABLE, -amount))
                item["open"] -= amount
                want.count["payment"] += 1
        # Credit notes: full and by line; of paid ones the money goes back.
        if rng.random() < 0.35:
            name = rng.choice(list(want.invoices))
            item = want.invoices[name]
            if not item.get("credited") and item["gross"]:
                lines = item["lines"] if rng.random() < 0.5 else item["lines"][:1]
                note = book.issue(book.credit(item["doc"], 0, lines=lines, date=date, refund="re_%d" % cn))
                cn += 1
                gross = want.sale("CN-2026-%05d" % cn, "KS", date, item["party"], lines, -1, None, name)
                item["credited"] = True
                item["open"] -= gross
                want.count["credit note"] += 1
                if item["open"] < 0:
                    back = -item["open"]
                    payments += 1
                    pay = book.payment("refund_%d" % payments, back, "out", date, item["party"], counter=RECEIVABLE)
                    book.allocate(pay, back, invoice=note, date=date)
                    want.post(date, (BANK, -back), (RECEIVABLE, back))
                    item["open"] = 0
                    want.count["payment"] += 1
        # Bills, with credit notes and voids, and their payment.
        for _ in range(rng.randint(0, 3)):
            n = len(want.bills) + 1
            supplier, code, net = rng.choice([11, 12]), rng.choice(["V21", "V21", "EX", "RC21", "ND21"]), rng.randint(500, 60_000)
            due, written = day(date, rng.choice([10, 30])), day(date, -rng.randint(0, 9))
            bill = book.bill("B/%d-2026" % n, supplier=supplier, net=net, date=written, registered=date, tax_code=code, due=due)
            tax = (net * RATE[code] + 5000) // 10000
            gross = net + (0 if code == "RC21" else tax)
            row = (date[:7], "B/%d-2026" % n, "SF", written, date, supplier, code, net, tax, None)
            want.count["bill"] += 1

            def post(sign, when):
                deductible, owed = (0 if code == "ND21" else tax), (tax if code == "RC21" else 0)
                want.post(when, (PAYABLE, -sign * gross), (INPUT, sign * deductible), (OUTPUT, -sign * owed),
                          (EXPENSE, sign * (gross - deductible + owed)))

            post(1, date)
            if rng.random() < 0.08:
                book.void(bill, date)
                post(-1, date)
                want.count["void"] += 1
                continue
            want.purchases.append(row)
            want.bills[row[1]] = item = {"party": supplier, "due": due, "open": gross}
            if rng.random() < 0.1:
                part = net // 3
                ptax = (part * RATE[code] + 5000) // 10000
                book.register(book.bill_draft("K/%d" % n, supplier=supplier, net=part, date=date, registered=date, kind="credit_note",
                                              credits=bill, tax_code=code))
                pgross = part + (0 if code == "RC21" else ptax)
                deductible, owed = (0 if code == "ND21" else ptax), (ptax if code == "RC21" else 0)
                want.post(date, (PAYABLE, pgross), (INPUT, -deductible), (OUTPUT, owed), (EXPENSE, deductible - pgross - owed))
                want.purchases.append((date[:7], "K/%d" % n, "KS", date, date, supplier, code, -part, -ptax, row[1]))
                item["open"] -= pgross
                want.count["bill"] += 1
            if rng.random() < 0.5:
                payments += 1
                pay = book.payment("out_%d" % payments, item["open"], "out", date, supplier)
                book.allocate(pay, item["open"], bill=bill, date=date)
                want.post(date, (PAYABLE, item["open"]), (BANK, -item["open"]))
                item["open"] = 0
                want.count["payment"] += 1
        # A payout each Friday with all charges since the last.
        if datetime.date.fromisoformat(date).weekday() == 4 and charges:
            gross, fee = sum(c[2] for c in charges), sum(c[2] * 29 // 1000 + 25 for c in charges)
            batch = book.batch("po_%d" % offset, [("txn_%d" % c[0], "charge", c[2], c[2] * 29 // 1000 + 25) for c in charges], date=date)
            for c in charges:
                book("UPDATE settlement_line SET payment_id = ? WHERE txn_id = ?", c[1], "txn_%d" % c[0])
            book.post_batch(batch)
            want.post(date, (BANK, gross - fee), (FEES, fee), (CLEARING, -gross))
            want.count["settlement"] += 1
            charges = []
        event = book.event("evt_%d" % offset, b"%d" % offset)
        book("UPDATE webhook_event SET status = 'processed', processed_at = 'now' WHERE id = ?", event)
        want.count["event"] += 1

    # February was depreciated with a wrong amount, reversed, and done again.
    book.reverse_run(book.depreciate({lathe: 13_000}, "2026-02-01", "2026-02-28"))
    for first, last in (("2026-02-01", "2026-02-28"), ("2026-03-01", "2026-03-31")):
        book.depreciate({lathe: 12_500}, first, last)
        want.post(last, (DEPRECIATION, 12_500), (ACCUMULATED, -12_500))
    # Mistakes: an invoice annulled, a transfer that bounced.
    doc = book.invoice("SO-wrong", 7_777, date="2026-03-31", customer=1)
    number += 1
    book.annul(doc, "2026-03-31")
    want.sales.append(("2026-03", "INV-2026-%05d" % number, "AN", "2026-03-31", 1, "V21", 0, 0, None))
    pay = book.payment("bounced", 999, date="2026-03-30")
    book.payment("bounced back", 999, "out", "2026-03-31", reverses=pay)
    want.count["depreciation"], want.count["annulment"] = 4, 1
    book("UPDATE report_as_of SET as_of = ?", AS_OF)
    return book, want


@pytest.fixture(scope="module")
def made():
    book, want = build()
    yield book, want
    book.db.close()


def test_the_book_is_large_enough_and_healthy(made):
    book, want = made
    assert sum(want.count.values()) >= 200 and all(want.count[k] for k in
           ("invoice", "credit note", "bill", "void", "payment", "settlement", "event", "depreciation", "annulment")), dict(want.count)
    book.healthy()
    assert book.all("SELECT * FROM number_gap") == []
    assert book.all("SELECT * FROM depreciation_missing_period") == []
    assert book.all("SELECT * FROM unbalanced_or_unsealed_entry") == []
    assert book.all("SELECT * FROM settlement_unmatched") == []
    assert book.all("SELECT * FROM webhook_stuck") == []


def test_trial_balance(made):
    book, want = made
    got = {(account, month): net for account, month, net in book.all("SELECT account, month, net_minor FROM trial_balance WHERE company_id = 1")}
    assert {k: v for k, v in got.items() if v} == {k: v for k, v in want.balance.items() if v}
    assert sum(got.values()) == 0
    debit, credit = book.all("SELECT sum(debit_minor), sum(credit_minor) FROM trial_balance")[0]
    assert debit == credit > 0


def test_trial_balance_is_the_general_ledger(made):
    book, _ = made
    assert book.all("SELECT account, sum(base_amount_minor) FROM general_ledger GROUP BY account ORDER BY 1") == \
        book.all("SELECT account, sum(net_minor) FROM trial_balance GROUP BY account ORDER BY 1")


def test_sales_register(made):
    book, want = made
    got = book.all("SELECT r.vat_period, r.invoice_no, r.invoice_type, r.invoice_date, d.customer_id, r.tax_code, r.taxable_minor, r.tax_minor, r.reference_no"
                   " FROM vat_register_sales r JOIN sales_document d ON d.id = r.document_id")
    assert sorted(got, key=str) == sorted(want.sales, key=str)
    fields = dict(zip(("name", "vat", "country", "isaf"), book.all(
        "SELECT party_name, party_vat_id, party_country, isaf_code FROM vat_register_sales WHERE party_name = 'Customer 5' LIMIT 1")[0]))
    assert fields["vat"] == "LT1005" and fields["country"] == "LT" and fields["isaf"].startswith("PVM")
    assert book.all("SELECT DISTINCT party_vat_id, party_country FROM vat_register_sales WHERE party_name = 'Customer Two'") == [("ND", "ND")]


def test_purchase_register(made):
    book, want = made
    got = book.all("SELECT r.vat_period, r.invoice_no, r.invoice_type, r.invoice_date, r.registration_date, b.supplier_id, r.tax_code, r.taxable_minor,"
                   " r.tax_minor, r.reference_no FROM vat_register_purchases r JOIN received_bill b ON b.id = r.bill_id")
    assert sorted(got, key=str) == sorted(want.purchases, key=str)


def test_registers_agree_with_the_ledger(made):
    book, want = made
    rows = book.all("SELECT vat_period, side, register_minor, ledger_minor, difference_minor FROM vat_register_check WHERE company_id = 1")
    assert {r[4] for r in rows} == {0} and len(rows) == 4
    for month in ("2026-02", "2026-03"):
        assert -want.balance["4492", month] == next(r[3] for r in rows if r[:2] == (month, "output"))
        assert want.balance["2441", month] == next(r[3] for r in rows if r[:2] == (month, "input"))


def bucket(due):
    days = (datetime.date.fromisoformat(AS_OF) - datetime.date.fromisoformat(due)).days
    return 0 if days <= 0 else 1 if days <= 30 else 2 if days <= 60 else 3 if days <= 90 else 4


@pytest.mark.parametrize("view, items", [("receivable_aging", "invoices"), ("payable_aging", "bills")])
def test_aging(made, view, items):
    book, want = made
    aged = defaultdict(lambda: [0] * 5)
    for item in getattr(want, items).values():
        if item["open"]:
            aged[item["party"]][bucket(item["due"])] += item["open"]
    got = {r[0]: list(r[1:]) for r in book.all("SELECT party_id, not_due_minor, days_1_30_minor, days_31_60_minor, days_61_90_minor, over_90_minor,"
                                               " total_minor FROM " + view)}
    assert got == {party: b + [sum(b)] for party, b in aged.items()}
    assert sum(1 for b in aged.values() for x in b if x) > 3


def test_open_items_are_the_control_accounts(made):
    book, _ = made
    for view, code, sign in (("receivable_open", "2410", 1), ("payable_open", "4430", -1)):
        assert book.one("SELECT sum(open_minor) FROM " + view) == sign * book.one("SELECT sum(net_minor) FROM trial_balance WHERE account = ?", code)


def test_open_items_as_of_an_earlier_day(made):
    """What was open at the end of February does not change with what March brought."""
    book, _ = made
    book("UPDATE report_as_of SET as_of = '2026-02-28'")
    for view, code, sign in (("receivable_open", "2410", 1), ("payable_open", "4430", -1)):
        assert book.one("SELECT sum(open_minor) FROM " + view) == \
            sign * book.one("SELECT sum(base_amount_minor) FROM general_ledger WHERE account = ? AND entry_date <= '2026-02-28'", code)
    book("UPDATE report_as_of SET as_of = ?", AS_OF)


def test_another_seed_gives_another_healthy_book():
    book, want = build(seed=7)
    book.healthy()
    got = {(a, m): n for a, m, n in book.all("SELECT account, month, net_minor FROM trial_balance WHERE net_minor <> 0")}
    assert got == {k: v for k, v in want.balance.items() if v}

"""The recipes of sql/recipes, executed: what a retry gets with the same key, a new key, another payload, after a purge."""
import hashlib
import json
import os
import re
import sqlite3
import subprocess

import pytest
from ledger_book import (ACCUMULATED, BANK, CLEARING, DEPRECIATION, EXPENSE, EXTENSION, FEES, INPUT, OUTPUT, PAYABLE, RECEIVABLE,
                         REVENUE, ROOT, SCHEMA, Book, code_of)

pytestmark = pytest.mark.skipif(not os.path.exists(EXTENSION), reason="the extension is not built")


def steps(name):
    """{step: [statements]} of a recipe file."""
    text = open(os.path.join(ROOT, "sql", "recipes", "ledger-%s.sql" % name), encoding="utf-8").read()
    found = {}
    for part in re.split(r"^-- step: ", text, flags=re.M)[1:]:
        head, body = part.split("\n", 1)
        body = re.sub(r"^--.*\n", "", body, flags=re.M)
        found[head.split()[0]] = [s for s in re.split(r";\s*(?:\n|$)", body) if s.strip()]
    return found


COMMON = steps("invoice")


class Shop(Book):
    """A program that follows the recipes to the letter."""

    def __init__(self, path=":memory:", create=True):
        super().__init__(path, create=create)
        self.db.enable_load_extension(True)
        self.db.load_extension(EXTENSION)
        self.db.enable_load_extension(False)
        for statement in COMMON["connect"]:
            self(statement)
        self("SELECT idem_init()").fetchall()

    def run(self, step, given):
        rows = []
        for statement in step:
            names = set(re.findall(r":([a-z_]\w*)", re.sub(r"'[^']*'", "", statement)))
            rows = self.db.execute(statement, {n: given.get(n) for n in names}).fetchall()
        return rows

    def request(self, recipe, operation, before_commit=None, **given):
        """(status, response, replayed) as the client sees them."""
        own = {**COMMON, **steps(recipe)}
        given.setdefault("body", json.dumps({k: v for k, v in given.items() if k != "key"}))
        self.run(own["begin"], given)
        claim = own["claim"][0].replace("POST /v1/invoices", operation)
        answer = json.loads(self.run([claim], given)[0][0])
        if answer["outcome"] == "replay":
            self.run(own["commit"], given)
            return answer["code"], json.loads(answer["response"]), True
        if answer["outcome"] != "claimed":
            self("ROLLBACK")
            return answer["http_status"], answer["message"], False
        given["token"] = answer["token"]
        self.run(own["work"], given)
        try:
            drafts = self.run(own["draft"], given)
            if not drafts:
                return self.refuse(own, given, "DOCUMENT_MISSING")
            given["document"] = drafts[0][0]
            self.run(own["lines"], given)
            entry = self.run(own["entry"], given)
            given["entry"] = entry[0][0] if entry else None
            self.run(own["postings"], given)
            given["response"] = json.dumps(self.run(own["issue"], given)[0])
            self.run(own["answer"], given)
        except sqlite3.IntegrityError as error:
            return self.refuse(own, given, code_of(error))
        if before_commit:
            before_commit()
        self.run(own["commit"], given)
        return 201, json.loads(given["response"]), False

    def refuse(self, own, given, code):
        given["code"] = code
        rows = self.run(own["why"], given)
        if not rows:                                    # any other SQLITE_CONSTRAINT
            self("ROLLBACK")
            return 422, code, False
        status, store, response = rows[0]
        if not store:
            self("ROLLBACK")
            return status, json.loads(response), False
        given["response"], given["status"] = response, status
        self.run(own["refused"], given)
        self.run(own["commit"], given)
        return status, json.loads(response), False


class Doubles(Shop):
    """With a driver that binds every number as REAL, as most of JavaScript's do."""

    def run(self, step, given):
        return super().run(step, {name: float(value) if type(value) is int else value for name, value in given.items()})


class NewShop(Shop):
    """A book with the schema and nothing else."""

    def __init__(self, path=":memory:"):
        super().__init__(path, create=False)
        self.db.executescript("BEGIN;" + SCHEMA + "COMMIT;")


@pytest.fixture
def shop():
    shop = Shop()
    yield shop
    shop.healthy()
    shop.db.close()


LINES = [{"description": "Widget", "quantity_milli": 2000, "unit_price_minor": 1500, "net_minor": 3000, "tax_code": "V21"},
         {"description": "Book", "quantity_milli": 1000, "unit_price_minor": 500, "net_minor": 500, "tax_code": "V9"},
         {"description": "Discount", "quantity_milli": 1000, "unit_price_minor": -100, "net_minor": -100, "tax_code": "V21"}]
INVOICE = dict(company=1, customer=1, channel="web", order_ref="1001", part="1", currency="EUR", issue_date="2026-03-10",
               due_date="2026-03-24", lines=json.dumps(LINES), series=1, receivable=RECEIVABLE, revenue=REVENUE, vat=OUTPUT)


def invoice(shop, key, **more):
    return shop.request("invoice", "POST /v1/invoices", key=key, **{**INVOICE, **more})


def credit(shop, key, document, lines=LINES, **more):
    given = {**INVOICE, "invoice": document, "refund_ref": None, "reason": "returned", "series": 2, "lines": json.dumps(lines), **more}
    return shop.request("credit-note", "POST /v1/credit-notes", key=key, **given)


def numbers(shop):
    return [r[0] for r in shop.all("SELECT full_number FROM sales_document WHERE status = 'issued' AND kind = 'invoice' ORDER BY number")]


def purge(shop):
    """All keys are forgotten: retention and tombstones are over."""
    shop("SELECT idem_clock(idem_clock() + 400 * 86400000)").fetchall()
    for _ in range(10):
        shop("INSERT INTO idem_call DEFAULT VALUES RETURNING idem_purge(1000)").fetchall()
    assert shop.one("SELECT count(*) FROM idem_records") == 0


def test_invoice(shop):
    status, first, replayed = invoice(shop, "key-000001")
    assert (status, first[2], replayed) == (201, "INV-2026-00001", False)
    assert invoice(shop, "key-000001") == (201, first, True)                              # same key: same answer
    assert invoice(shop, "key-000001", due_date="2026-12-31")[0] == 422                   # same key, other payload
    status, refusal, _ = invoice(shop, "key-000002")                                      # new key, same order
    assert status == 409 and refusal["error"] == "ORDER_ALREADY_INVOICED" and refusal["invoice"] == "INV-2026-00001"
    assert invoice(shop, "key-000002") == (409, refusal, True)                            # and the refusal is replayed
    assert invoice(shop, "key-000003", order_ref="1002")[1][2] == "INV-2026-00002"        # no number was burnt
    assert shop.all("SELECT line_no, net_minor FROM sales_line WHERE document_id = ?", first[0]) == [(1, 3000), (2, 500), (3, -100)]
    assert shop.all("SELECT tax_code, taxable_minor, tax_minor FROM sales_tax WHERE document_id = ?", first[0]) == [("V21", 2900, 609), ("V9", 500, 45)]


def test_setup_then_every_recipe():
    shop = NewShop()
    setup = shop.one("SELECT idem_schema('recipes/ledger-setup')")
    shop.db.executescript(setup)
    cursor = shop(steps("setup")["settings"][0])
    given = dict(zip([c[0] for c in cursor.description], cursor.fetchone()))
    assert len(given) == 14 and None not in given.values()
    customer = shop.one("SELECT id FROM party WHERE vat_id = 'LT100000000111'")
    lines = json.dumps([dict(LINES[0], net_minor=1000), dict(LINES[0], net_minor=200, tax_code="EX")])
    sale = {**given, "vat": given["output_vat"], "customer": customer, "lines": lines}
    status, answer, _ = invoice(shop, "key-000001", **sale)
    assert (status, answer[2:]) == (201, ["INV-2026-00001", 1410])                        # 21 % of 1000 are 210, not 2
    status, note, _ = credit(shop, "credit-001", answer[0], [dict(LINES[0], net_minor=100)],
                             **{**given, "vat": given["output_vat"], "series": given["credit_series"]})
    assert (status, note[2:]) == (201, ["CN-2026-00001", 121])
    assert bill(shop, "bill-0001", "A-1", **{**given, "vat": given["input_vat"], "supplier": customer, "lines": json.dumps(
        [{"description": "Paper", "net_minor": 1000, "tax_minor": 210, "tax_code": "RC21"}])})[0] == 201
    assert webhook(shop, "evt_1", **{**given, "party": customer, "invoice": answer[0], "amount_minor": 1289}) == (200, "recorded")
    assert shop.all("SELECT * FROM receivable_open") == []
    assert payout(shop, "payout-001", **given)[0] == 201
    shop.healthy()
    before = shop.digest()
    with pytest.raises(sqlite3.IntegrityError, match="^IMMUTABLE: this currency exists"):
        shop.db.executescript(setup)
    shop("ROLLBACK")
    assert shop.digest() == before
    shop.db.close()


def test_setup_in_the_shell(tmp_path):
    book = str(tmp_path / "book.db")
    script = "BEGIN;" + SCHEMA + "COMMIT;" + open(os.path.join(ROOT, "sql", "recipes", "ledger-setup.sql"), encoding="utf-8").read()
    done = subprocess.run(["sqlite3", "-bail", book], input=script, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and re.fullmatch(r"1(\|\d+){13}\n", done.stdout)
    check = subprocess.run(["sqlite3", book, "SELECT rate_bp FROM tax_code WHERE code = 'V21'; SELECT count(*) FROM vat_period;"
                            " SELECT * FROM integrity_report; PRAGMA foreign_key_check"], capture_output=True, text=True)
    assert check.stdout.split() == ["2100", "12"]


def test_twins_at_a_busy_till(shop):
    # frappe/erpnext#12971: a busy point of sale posts twins within seconds
    a = invoice(shop, "till-1-00001")
    assert invoice(shop, "till-1-00001") == (201, a[1], True)
    assert invoice(shop, "till-1-00002")[0] == 409
    assert invoice(shop, "till-1-00003", order_ref="1002")[1][1] == a[1][1] + 1


def test_fresh_keys_per_attempt_and_purged_keys(shop):
    # InvoiceNinja StorePaymentRequest and Stripe drivers: a fresh key per attempt; and keys expire, natural keys do not
    invoice(shop, "attempt-1")
    assert invoice(shop, "attempt-2")[0] == 409
    purge(shop)
    status, refusal, replayed = invoice(shop, "attempt-1")
    assert (status, refusal["invoice"], replayed) == (409, "INV-2026-00001", False)
    assert numbers(shop) == ["INV-2026-00001"]


def test_credit_note(shop):
    document = invoice(shop, "key-000001")[1][0]
    part = [dict(LINES[1], net_minor=200)]
    status, note, _ = credit(shop, "credit-001", document, part, refund_ref="re_1")
    assert (status, note[2]) == (201, "CN-2026-00001")
    assert credit(shop, "credit-001", document, part, refund_ref="re_1") == (201, note, True)
    assert credit(shop, "credit-001", document, part, refund_ref="re_9")[0] == 422
    assert credit(shop, "credit-002", document, part, refund_ref="re_1")[1]["error"] == "REFUND_ALREADY_CREDITED"
    assert invoice(shop, "key-000002")[0] == 409                                          # a part does not free the order
    assert credit(shop, "credit-003", document)[1]["error"] == "CREDIT_EXCEEDS_INVOICE"
    rest = [dict(LINES[0], net_minor=2900), dict(LINES[1], net_minor=300)]
    assert credit(shop, "credit-004", document, rest)[0] == 201
    assert invoice(shop, "key-000002")[0] == 409                                          # a key keeps its answer ...
    assert invoice(shop, "key-000003")[1][2] == "INV-2026-00002"                          # ... a new key succeeds
    purge(shop)
    assert credit(shop, "credit-001", document, part, refund_ref="re_1")[1]["error"] == "REFUND_ALREADY_CREDITED"
    assert shop.one("SELECT count(*) FROM sales_document WHERE kind = 'credit_note' AND status = 'issued'") == 2


@pytest.mark.parametrize("whole, part, taxes", [(5000, 1250, [263, 263, 263, 261]), (1004, 502, [105, 106]), (300, 50, [11, 11, 11, 11, 11, 8]),
                                               (7, 1, [0, 0, 0, 0, 0, 0, 1])])
def test_partial_notes_finish_the_credit(shop, whole, part, taxes):
    """Each rounded alone they would credit more or less than the invoice's tax, and the order would never be free."""
    line = dict(LINES[0], unit_price_minor=0)
    document = invoice(shop, "key-000001", lines=json.dumps([dict(line, net_minor=whole), dict(LINES[1], net_minor=0)]))[1][0]
    for n in range(whole // part):
        assert shop.one("SELECT state FROM order_invoice_status") in ("invoiced", "partly credited")
        status, answer, _ = credit(shop, "credit-%03d" % n, document, [dict(line, net_minor=part)])
        assert status == 201, answer
    assert shop.one("SELECT state FROM order_invoice_status") == "credited"
    assert [r[0] for r in shop.all("SELECT tax_minor FROM sales_document WHERE kind = 'credit_note' ORDER BY id")] == taxes
    assert credit(shop, "credit-over", document, [dict(line, net_minor=1)])[1]["error"] == "CREDIT_EXCEEDS_INVOICE"
    assert credit(shop, "credit-code", document, [dict(line, net_minor=1, tax_code="EX")])[1]["error"] == "CREDIT_EXCEEDS_INVOICE"
    assert invoice(shop, "key-000002")[0] == 201


def bill(shop, key, doc_no, **more):
    given = dict(company=1, supplier=11, document_date="2026-03-01", registration_date="2026-03-02", due_date="2026-04-01", currency="EUR",
                 sha256=None, dup_seq=0, dup_reason=None, payable=PAYABLE, expense=EXPENSE, vat=INPUT, output_vat=OUTPUT,
                 lines=json.dumps([{"description": "Paper", "net_minor": 1000, "tax_minor": 210, "tax_code": "V21"},
                                   {"description": "Service from abroad", "net_minor": 500, "tax_minor": 105, "tax_code": "RC21"},
                                   {"description": "Car", "net_minor": 300, "tax_minor": 63, "tax_code": "ND21"}]))
    return shop.request("bill", "POST /v1/bills", key=key, doc_no=doc_no, **{**given, **more})


def test_bill(shop):
    status, first, _ = bill(shop, "bill-0001", "INV-001/26")
    assert (status, first[2], first[3]) == (201, "INV00126", 2073)
    assert bill(shop, "bill-0001", "INV-001/26") == (201, first, True)
    assert bill(shop, "bill-0001", "INV-001/27")[0] == 422
    status, refusal, _ = bill(shop, "bill-0002", "inv 001.26")
    assert (status, refusal["error"], refusal["bill_id"]) == (409, "DUPLICATE_SUPPLIER_DOCUMENT", first[0])
    assert bill(shop, "bill-0003", "INV-00126", dup_seq=1, dup_reason="other paper, same form")[0] == 201
    purge(shop)
    assert bill(shop, "bill-0001", "INV-001/26")[0] == 409
    other = shop.one("SELECT id FROM received_bill WHERE dup_seq = 1")
    shop.void(first[0])
    status, refusal, _ = bill(shop, "bill-0004", "INV-001/26")                            # the override lives
    assert (status, refusal["error"], refusal["bill_id"]) == (409, "DUPLICATE_SUPPLIER_DOCUMENT", other)
    assert bill(shop, "bill-0005", "INV-001/26", dup_seq=2, dup_reason="entered anew")[0] == 201
    assert bill(shop, "bill-0006", "INV-9")[0] == 201
    shop.void(shop.one("SELECT id FROM received_bill WHERE doc_no = 'INV-9'"))
    assert bill(shop, "bill-0007", "INV-9")[0] == 201                                     # no override: free again
    assert bill(shop, "bill-0008", None)[0] == 201


def test_depreciation(shop):
    assets = [shop.asset("A"), shop.asset("B")]

    def run(key, amount=1000, start="2026-01-01", end="2026-01-31"):
        return shop.request("depreciation", "depreciation", key=key, company=1, book="main", period_start=start, period_end=end,
                            lines=json.dumps([{"asset": a, "amount_minor": amount} for a in assets]), expense=DEPRECIATION, accumulated=ACCUMULATED)

    status, first, _ = run("run-000001")
    assert status == 201
    assert run("run-000001") == (201, first, True)
    assert run("run-000001", 999)[0] == 422
    for amount in (1000, 999):
        status, refusal, _ = run("run-by-hand-%d" % amount, amount)
        assert (status, refusal["error"]) == (409, "DEPRECIATION_PERIOD_ALREADY_POSTED")
    assert run("run-quarter", 1000, "2026-01-01", "2026-03-31")[0] == 409
    purge(shop)
    assert run("run-000001")[0] == 409
    shop.reverse_run(first[0])
    assert run("run-000002", 999)[0] == 201


PAYOUT = [{"txn_id": "txn_1", "category": "charge", "gross_minor": 5000, "fee_minor": 150, "source_ref": "ch_1"},
          {"txn_id": "txn_2", "category": "refund", "gross_minor": -1000, "fee_minor": 0, "source_ref": "re_1"}]


def payout(shop, key, payout_id="po_1", lines=PAYOUT, sent=None, **more):
    given = dict(company=1, provider="stripe", account="acct_1", livemode=1, payout_id=payout_id, payout_date="2026-03-12", currency="EUR",
                 gross_minor=sum(l["gross_minor"] for l in lines), fee_minor=sum(l["fee_minor"] for l in lines), lines=json.dumps(sent or lines),
                 bank=BANK, fees=FEES, clearing=CLEARING)
    return shop.request("payout", "payout", key=key, **{**given, **more})


def test_payout(shop):
    charge = shop.payment("ch_1", 5000, provider="stripe", account="acct_1", money=CLEARING)
    status, first, _ = payout(shop, "payout-001")
    assert (status, first) == (201, [1, "po_1", 3850])
    assert payout(shop, "payout-001") == (201, first, True)
    assert payout(shop, "payout-001", payout_date="2026-03-13")[0] == 422
    status, refusal, _ = payout(shop, "payout-002")
    assert (status, refusal["error"], refusal["batch_id"]) == (409, "SETTLEMENT_ALREADY_IMPORTED", 1)
    assert payout(shop, "payout-003", "po_2")[1]["error"] == "TRANSACTION_ALREADY_SETTLED"
    other = [{"txn_id": "txn_3", "category": "charge", "gross_minor": 10, "fee_minor": 0, "source_ref": None}]
    assert payout(shop, "payout-004", "po_2", other, gross_minor=11)[1]["error"] == "SETTLEMENT_DOES_NOT_ADD_UP"
    assert payout(shop, "payout-005", "po_2", other)[0] == 201
    purge(shop)
    assert payout(shop, "payout-001")[0] == 409
    assert shop.all("SELECT txn_id, payment_id FROM settlement_line ORDER BY 1") == [("txn_1", charge), ("txn_2", None), ("txn_3", None)]
    assert [r[0] for r in shop.all("SELECT txn_id FROM settlement_unmatched ORDER BY 1")] == ["txn_2", "txn_3"]


def everything(shop):
    """All rows but times and tokens."""
    tables = [r[0] for r in shop.all("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'idem%' ORDER BY name")]
    wanted = {}
    for table in [*tables, "idem_records"]:
        names = [r[0] for r in shop.all("SELECT name FROM pragma_table_info(?)", table)]
        names = [n for n in names if not n.endswith(("_at", "_ms", "_until", "token"))]
        wanted[table] = sorted(shop.all("SELECT %s FROM %s" % (", ".join(names), table)), key=repr)
    return wanted


def test_numbers_bound_as_real_make_no_difference():
    books = []
    for kind in (Shop, Doubles):
        shop = kind()
        document = invoice(shop, "key-000001")[1][0]
        asset = shop.asset("A")
        answers = [invoice(shop, "key-000002"), credit(shop, "credit-001", document, [dict(LINES[1], net_minor=200)], refund_ref="re_1"),
                   bill(shop, "bill-0001", "INV-001/26"), payout(shop, "payout-001"), webhook(shop, "evt_1"),
                   shop.request("depreciation", "depreciation", key="run-000001", company=1, book="main", period_start="2026-01-01",
                                period_end="2026-01-31", lines=json.dumps([{"asset": asset, "amount_minor": 1000}]),
                                expense=DEPRECIATION, accumulated=ACCUMULATED)]
        books.append((answers, everything(shop)))
        shop.healthy()
    assert [a[0] for a in books[0][0]] == [409, 201, 201, 201, 200, 201]
    assert books[0] == books[1]


def test_a_retry_through_another_driver_is_a_retry(tmp_path):
    first = invoice(Doubles(str(tmp_path / "book.db")), "key-000001", order_ref=None)
    assert first[0] == 201
    shop = Shop(str(tmp_path / "book.db"), create=False)
    assert invoice(shop, "key-000001", order_ref=None) == (*first[:2], True)
    assert shop.all("SELECT scope FROM idem_records") == [("company:1",)]


CHARGE = {"txn_id": "txn_1", "category": "charge", "gross_minor": 12100, "fee_minor": 200, "source_ref": "ch_1"}
REFUND = {"txn_id": "txn_2", "category": "refund", "gross_minor": -2100, "fee_minor": 0, "source_ref": "ch_1"}
AGAIN = {"txn_id": "txn_3", "category": "charge", "gross_minor": 5, "fee_minor": 0, "source_ref": "ch_1"}


@pytest.mark.parametrize("payouts", [[[CHARGE, REFUND]], [[REFUND, CHARGE]], [[CHARGE], [REFUND]], [[REFUND], [CHARGE]], [[REFUND, CHARGE, AGAIN]]])
def test_a_charge_and_its_refund_under_one_reference(shop, payouts):
    charge = shop.payment("ch_1", 12100, provider="stripe", account="acct_1", money=CLEARING)
    for n, lines in enumerate(payouts):
        assert payout(shop, "payout-%03d" % n, "po_%d" % n, lines)[0] == 201
    assert shop.all("SELECT txn_id FROM settlement_line WHERE payment_id = ?", charge) == [("txn_1",)]
    assert ("txn_2",) in shop.all("SELECT txn_id FROM settlement_unmatched")


def test_lines_are_matched_to_payments_that_come_later(shop):
    refund = dict(REFUND, source_ref="re_1")
    batch = payout(shop, "payout-001", lines=[CHARGE, refund])[1][0]
    pays = [shop.payment("ch_1", 12100, provider="stripe", account="acct_1", money=CLEARING),
            shop.payment("re_1", 2100, direction="out", provider="stripe", account="acct_1", money=CLEARING, counter=RECEIVABLE)]
    match = steps("payout")["lines"][1]
    for _ in range(2):
        shop.run([match], {"document": batch})
        assert [r[0] for r in shop.all("SELECT payment_id FROM settlement_line ORDER BY txn_id")] == pays
    assert shop.all("SELECT * FROM settlement_unmatched") == []


def test_a_line_is_not_matched_to_a_payment_in_another_currency(shop):
    shop("INSERT INTO payment (company_id, direction, provider, account, external_id, value_date, currency, amount_minor, base_amount_minor)"
         " VALUES (1, 'in', 'stripe', 'acct_1', 'ch_1', '2026-03-10', 'USD', 12100, 11000)")
    assert payout(shop, "payout-001", lines=[CHARGE])[0] == 201
    assert shop.all("SELECT txn_id FROM settlement_unmatched") == [("txn_1",)]


def test_documents_of_zero(shop):
    """A discount of 100 %, a bill for a free sample, a payout in which charge and refund cancel out."""
    gift = [dict(LINES[0], net_minor=1000), dict(LINES[0], net_minor=-1000), dict(LINES[1], net_minor=0)]
    status, answer, _ = invoice(shop, "key-000001", lines=json.dumps(gift))
    assert (status, answer[2:]) == (201, ["INV-2026-00001", 0])
    assert credit(shop, "credit-001", answer[0], gift)[0] == 201
    assert shop.one("SELECT state FROM order_invoice_status") == "credited"
    free = json.dumps([{"description": "Sample", "net_minor": 0, "tax_minor": 0, "tax_code": "V21"}])
    assert bill(shop, "bill-0001", "FREE-1", lines=free)[0] == 201
    assert bill(shop, "bill-0002", "FREE 1", lines=free)[1]["error"] == "DUPLICATE_SUPPLIER_DOCUMENT"
    assert shop.one("SELECT count(*) FROM journal_entry") == 0
    lines = [{"txn_id": "txn_1", "category": "charge", "gross_minor": 100, "fee_minor": 0, "source_ref": "a"},
             {"txn_id": "txn_2", "category": "refund", "gross_minor": -100, "fee_minor": 0, "source_ref": "b"}]
    status, answer, _ = payout(shop, "payout-001", lines=lines)
    assert (status, answer[1:]) == (201, ["po_1", 0])
    assert shop.all("SELECT account_id, amount_minor FROM journal_line ORDER BY amount_minor") == [(CLEARING, -100), (CLEARING, 100)]


def test_reverse_charge_on_a_bill_of_zero_is_posted(shop):
    lines = [{"description": "Service from abroad", "net_minor": 0, "tax_minor": 5, "tax_code": "RC21"}]
    status, answer, _ = bill(shop, "bill-0001", "RC-1", lines=json.dumps(lines))
    assert (status, answer[3]) == (201, 0)
    assert shop.all("SELECT account_id, amount_minor FROM journal_line ORDER BY amount_minor") == [(OUTPUT, -5), (INPUT, 5)]


def webhook(shop, event_id, body=b'{"charge":"ch_1"}', retry=False, **more):
    """The recipe for a charge; answers (status, what happened)."""
    own = steps("webhook")
    given = dict(company=1, provider="stripe", account="acct_1", event_id=event_id, event_type="charge.succeeded", body=body,
                 sha256=hashlib.sha256(body).hexdigest(), external_id="ch_1", value_date="2026-03-10", currency="EUR", amount_minor=5000, party=1,
                 clearing=CLEARING, receivable=RECEIVABLE)
    given.update(more)
    shop.run(own["begin"], given)
    try:
        rows = shop.run(own["receive"], given)
    except sqlite3.IntegrityError as error:
        assert code_of(error) == "EVENT_ID_REUSED_WITH_OTHER_BODY"
        shop.run(own["conflict"], given)
        shop.run(own["commit"], given)
        return 400, "conflict"
    if not rows and retry:
        rows = shop.run(own["resume"], given)
    if not rows:
        shop.run(own["commit"], given)
        return 200, "seen"
    given["event"] = rows[0][0]
    shop.run(own["work"], given)
    try:
        done = "nothing to do"
        payment = shop.run(own["effect"], given)
        if payment:
            given["payment"] = payment[0][0]
            given["entry"] = shop.run(own["entry"], given)[0][0]
            shop.run(own["postings"], given)
            shop.run(own["allocate"], given)
            done = "recorded"
        shop.run(own["finish"], given)
    except sqlite3.IntegrityError as error:
        given["error"] = done = code_of(error)
        shop.run(own["failed"], given)
    shop.run(own["commit"], given)
    return 200, done


def test_webhook(shop):
    assert webhook(shop, "evt_1") == (200, "recorded")
    assert webhook(shop, "evt_1") == (200, "seen")
    assert webhook(shop, "evt_1", b'{"charge": "ch_1"}') == (400, "conflict")
    assert webhook(shop, "evt_2") == (200, "nothing to do")                               # two events about one charge
    assert webhook(shop, "evt_3", amount_minor=6000) == (200, "PAYMENT_ALREADY_RECORDED")
    assert webhook(shop, "evt_3", amount_minor=6000) == (200, "seen")
    assert [r[0] for r in shop.all("SELECT event_id FROM webhook_stuck")] == ["evt_3"]
    purge(shop)
    assert webhook(shop, "evt_1") == (200, "seen")
    assert shop.all("SELECT amount_minor, status FROM payment") == [(5000, "posted")]
    assert shop.all("SELECT event_id, status, effect_id FROM webhook_event") == [("evt_1", "processed", 1), ("evt_2", "processed", 1), ("evt_3", "failed", None)]
    assert shop.one("SELECT count(*) FROM webhook_conflict") == 1


def test_webhook_that_failed_is_tried_again(shop):
    shop("UPDATE company SET locked_through = '2026-03-31' WHERE id = 1")
    assert webhook(shop, "evt_1") == (200, "PERIOD_LOCKED")
    assert shop.one("SELECT count(*) FROM payment") == 0
    assert webhook(shop, "evt_1", retry=True, value_date="2026-04-01") == (200, "recorded")
    assert webhook(shop, "evt_1", retry=True) == (200, "seen")


def test_webhook_pays_its_invoice(shop):
    document = invoice(shop, "key-000001")[1][0]                                          # asks for 4054
    assert webhook(shop, "evt_1", external_id="ch_1", amount_minor=4000, invoice=document) == (200, "recorded")
    assert shop.all("SELECT invoice_id, open_minor FROM receivable_open") == [(document, 54)]
    assert webhook(shop, "evt_2", external_id="ch_2", amount_minor=100, invoice=document) == (200, "recorded")
    assert webhook(shop, "evt_3", external_id="ch_3", amount_minor=7, invoice=document) == (200, "recorded")
    assert shop.all("SELECT * FROM receivable_open") == []
    assert shop.all("SELECT payment_id, unallocated_minor FROM payment_unallocated") == [(2, 46), (3, 7)]


def test_webhook_of_a_payment_in_advance(shop):
    """It pays the invoice from the day of the invoice on; the reports of the days between show a payment that waits."""
    document = invoice(shop, "key-000001", issue_date="2026-03-10")[1][0]
    assert webhook(shop, "evt_1", amount_minor=4054, invoice=document, value_date="2026-03-01") == (200, "recorded")
    assert webhook(shop, "evt_2", external_id="ch_2", amount_minor=10, invoice=document, value_date="2026-03-12") == (200, "recorded")
    assert shop.all("SELECT allocated_on FROM allocation") == [("2026-03-10",)]
    shop("UPDATE report_as_of SET as_of = '2026-03-05'")
    assert shop.all("SELECT unallocated_minor FROM payment_unallocated") == [(4054,)]
    assert shop.all("SELECT * FROM receivable_open") == []


@pytest.mark.parametrize("foreign_keys", [0, 1])
@pytest.mark.parametrize("currency", ["USD", "XXX", None])
def test_another_currency_is_not_booked_as_the_companys_own(shop, currency, foreign_keys):
    shop("PRAGMA foreign_keys = %d" % foreign_keys)
    document = invoice(shop, "key-000001")[1][0]
    before = shop.one("SELECT count(*) FROM journal_entry")
    for status, answer, _ in (invoice(shop, "key-000002", order_ref="2", currency=currency), bill(shop, "bill-0001", "1", currency=currency),
                              payout(shop, "payout-001", currency=currency)):
        assert (status, answer["error"]) == (422, "DOCUMENT_MISSING") and "currency is not its own" in answer["meaning"]
    assert webhook(shop, "evt_1", currency=currency)[1].startswith("NOT NULL constraint failed")
    assert shop.one("SELECT last_error FROM webhook_stuck") == webhook(shop, "evt_1", currency=currency, retry=True)[1]
    assert credit(shop, "credit-001", document, currency=currency)[0] == 201              # the invoice's currency counts
    assert shop.one("SELECT count(*) FROM journal_entry") == before + 1
    assert invoice(shop, "key-000002", order_ref="2")[0] == 201                           # nothing was stored under the key


def test_an_invoice_in_another_currency_is_not_credited_one_to_one(shop):
    with shop.transaction():
        document = shop.draft("7", 10000)
        shop("UPDATE sales_document SET currency = 'USD', rate_num = 2 WHERE id = ?", document)
    assert credit(shop, "credit-001", document)[1]["error"] == "DOCUMENT_MISSING"


# What goes wrong around the recipe ----------------------------------------------------------------

def test_what_the_company_does_not_have_is_not_stored(shop):
    document = invoice(shop, "key-000001")[1][0]
    calls = [lambda **more: invoice(shop, "key-000002", order_ref="2", **{"customer": 3, **more}),
             lambda **more: credit(shop, "credit-001", **{"document": document + 1, **more}),
             lambda **more: bill(shop, "bill-0001", "1", **{"supplier": 3, **more})]
    for call in calls:
        for more in ({}, {"company": 9}, {"company": 2}):
            status, answer, _ = call(**more)
            assert (status, answer["error"]) == (422, "DOCUMENT_MISSING")
    assert shop.one("SELECT count(*) FROM idem_records") == 1
    shop("INSERT INTO party (id, company_id, name) VALUES (3, 1, 'Came later')")
    assert [call()[0] for call in calls[::2]] == [201, 201]
    assert calls[1]()[0] == 201                                                           # the invoice came meanwhile
    assert payout(shop, "payout-001", company=9)[1]["error"] == "DOCUMENT_MISSING"


def test_a_program_that_forgets_to_look_is_told_by_the_next_step(shop):
    for recipe in ("invoice", "bill", "depreciation", "payout"):
        with pytest.raises(sqlite3.IntegrityError, match="^DOCUMENT_MISSING: there is no such "):
            shop.run(steps(recipe)["lines"][:1], {**INVOICE, "document": None})
    for table in ("sales_tax", "bill_tax"):
        with pytest.raises(sqlite3.IntegrityError, match="^DOCUMENT_MISSING: there is no such draft"):
            shop("INSERT INTO %s VALUES (99, 'V21', 1, 1, 0, 1, 0)" % table)


def test_lines_are_told_what_is_wrong_with_them(shop):
    nowhere = [dict(LINES[0], tax_code="V99")]
    bills = [{"description": "Paper", "net_minor": 1000, "tax_minor": 210, "tax_code": code} for code in ("V99", "V21")]
    document = invoice(shop, "key-000001")[1][0]
    for foreign_keys in (0, 1):
        shop("PRAGMA foreign_keys = %d" % foreign_keys)
        n = "%06d" % foreign_keys
        for status, answer, _ in (invoice(shop, "all-" + n, order_ref="2", lines=json.dumps(nowhere)),
                                  invoice(shop, "one-" + n, order_ref="2", lines=json.dumps(nowhere + LINES)),
                                  credit(shop, "credit-all-" + n, document, nowhere), credit(shop, "credit-one-" + n, document, LINES + nowhere),
                                  bill(shop, "bill-all-" + n, "1", lines=json.dumps(bills[:1])),
                                  bill(shop, "bill-one-" + n, "1", lines=json.dumps(bills))):
            assert (status, answer["error"]) == (422, "TAX_CODE_MISMATCH")
        for status, answer, _ in (invoice(shop, "none-" + n, order_ref="2", lines="[]"), bill(shop, "bill-none-" + n, "1", lines="[]"),
                                  credit(shop, "credit-none-" + n, document, []),
                                  shop.request("depreciation", "depreciation", key="run-none-" + n, company=1, book="main",
                                               period_start="2026-01-01", period_end="2026-01-31", lines="[]", expense=DEPRECIATION,
                                               accumulated=ACCUMULATED)):
            assert (status, answer["error"]) == (422, "LINES_MISSING")


@pytest.mark.parametrize("amount", ["50.00", "50", 50.0, 50.5, True, None, [50]])
@pytest.mark.parametrize("code", ["V21", "RC21"])
def test_an_amount_that_is_no_integer_is_refused(shop, amount, code):
    # 50.00 is 5000 cents; STRICT takes it as 50, and the tax of some such amounts comes out whole
    document = invoice(shop, "key-000001", lines=json.dumps([dict(LINES[0], tax_code=code)]))[1][0]
    line = dict(LINES[0], net_minor=amount, tax_code=code)
    paper = {"description": "Paper", "net_minor": 100, "tax_minor": 21, "tax_code": code}
    asset = shop.asset("A")
    answers = [invoice(shop, "key-000002", order_ref="2", lines=json.dumps([line])),
               invoice(shop, "key-000003", order_ref="2", lines=json.dumps([dict(LINES[0], unit_price_minor=amount)])),
               credit(shop, "credit-001", document, [line]),
               bill(shop, "bill-0001", "1", lines=json.dumps([dict(paper, net_minor=amount)])),
               bill(shop, "bill-0002", "2", lines=json.dumps([dict(paper, tax_minor=amount)])),
               payout(shop, "payout-001", gross_minor=50, fee_minor=0, sent=[dict(PAYOUT[0], gross_minor=amount, fee_minor=0)]),
               shop.request("depreciation", "depreciation", key="run-000001", company=1, book="main", period_start="2026-01-01",
                            period_end="2026-01-31", lines=json.dumps([{"asset": asset, "amount_minor": amount}]),
                            expense=DEPRECIATION, accumulated=ACCUMULATED)]
    assert [status for status, _, _ in answers] == [422] * len(answers)
    assert {code for _, code, _ in answers[:5]} == {"NOT NULL constraint failed"}         # names the line's column, not a sum
    half = invoice(shop, "key-000004", order_ref="2", lines=json.dumps([dict(LINES[0], quantity_milli=0.5)]))
    assert half[:2] == (422, "cannot store REAL value in INTEGER column sales_line.quantity_milli")
    assert shop.one("SELECT count(*) FROM idem_records") == 1                             # malformed: nothing is stored


def test_settings_that_are_missing_are_named(shop):
    status, answer, _ = invoice(shop, "key-000001", issue_date="2028-01-01")
    assert (status, answer["error"]) == (422, "PERIOD_LOCKED")                            # not SERIES_MISMATCH
    shop("INSERT INTO fiscal_year (company_id, label, starts_on, ends_on) VALUES (1, '2028', '2028-01-01', '2028-12-31')")
    status, answer, _ = invoice(shop, "key-000002", issue_date="2028-01-01")
    assert (status, answer["error"]) == (422, "WRONG_VAT_PERIOD")
    shop("INSERT INTO vat_period (company_id, period, starts_on, ends_on) VALUES (1, '2028-01', '2028-01-01', '2028-01-31')")
    shop("UPDATE account SET opened_on = '2028-01-02' WHERE id = ?", REVENUE)
    status, answer, _ = invoice(shop, "key-000002", issue_date="2028-01-01")
    assert (status, answer["error"]) == (422, "ACCOUNT_NOT_USABLE")
    shop("UPDATE account SET opened_on = NULL WHERE id = ?", REVENUE)
    assert invoice(shop, "key-000002", issue_date="2028-01-01")[0] == 201                 # nothing was stored: the key runs again
    assert invoice(shop, "key-000001", issue_date="2028-01-01")[0] == 422                 # a stored refusal stays

def test_a_fault_rolls_everything_back_and_the_key_may_run_again(shop):
    status, answer, _ = invoice(shop, "key-000001", vat=REVENUE)                          # posts VAT to the wrong account
    assert (status, answer["error"]) == (500, "ENTRY_MISMATCH")
    assert shop.one("SELECT count(*) FROM idem_records") == 0
    assert shop.one("SELECT count(*) FROM sales_document") == 0
    status, answer, replayed = invoice(shop, "key-000001")
    assert (status, answer[2], replayed) == (201, "INV-2026-00001", False)


def crash(path, ready):
    shop = Shop(path, create=False)

    def die():
        ready.set()
        os.kill(os.getpid(), 9)

    invoice(shop, "key-000001", before_commit=die if ready else None)
    os.kill(os.getpid(), 9)                                                               # the reply is lost


@pytest.mark.parametrize("before", [True, False], ids=["before commit", "after commit"])
def test_killed(tmp_path, before):
    import multiprocessing
    fork = multiprocessing.get_context("fork")
    path = str(tmp_path / "book.db")
    shop = Shop(path)
    shop("PRAGMA journal_mode = WAL")
    shop.db.close()
    worker = fork.Process(target=crash, args=(path, fork.Event() if before else None))
    worker.start()
    worker.join()
    assert worker.exitcode == -9
    shop = Shop(path, create=False)
    assert shop.one("SELECT count(*) FROM idem_records") == (0 if before else 1)
    assert numbers(shop) == ([] if before else ["INV-2026-00001"])
    status, answer, replayed = invoice(shop, "key-000001")
    assert (status, answer[2], replayed) == (201, "INV-2026-00001", not before)
    assert numbers(shop) == ["INV-2026-00001"]
    shop.healthy()


def pay_day(path, key, go, results):
    shop = Shop(path, create=False)
    go.wait()
    results.put(invoice(shop, key)[0])


def test_many_clients_with_one_key_and_with_many_keys(tmp_path):
    import multiprocessing
    fork = multiprocessing.get_context("fork")
    path = str(tmp_path / "book.db")
    shop = Shop(path)
    shop("PRAGMA journal_mode = WAL")
    shop.db.close()
    go, results = fork.Event(), fork.Queue()
    workers = [fork.Process(target=pay_day, args=(path, key, go, results)) for key in ["one-key-00"] * 4 + ["key-%06d" % n for n in range(4)]]
    for worker in workers:
        worker.start()
    go.set()
    answers = sorted(results.get(timeout=60) for _ in workers)
    for worker in workers:
        worker.join()
    shop = Shop(path, create=False)
    assert numbers(shop) == ["INV-2026-00001"]
    assert answers in ([201] * 4 + [409] * 4, [201] + [409] * 7)      # the one key won and is replayed, or one of the others did
    shop.healthy()


def test_the_schema_in_the_library_is_the_schema_in_the_files():
    """Built from these files; a stale build is told apart from a wrong one by its own message."""
    shop = Shop()
    text = shop.one("SELECT idem_schema('ledger')")
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript("BEGIN;" + text + "COMMIT;")
    assert db.execute("SELECT count(*) FROM integrity_report").fetchone() == (0,)
    names = [r[0] for r in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    assert {"sales_document", "received_bill", "journal_seal"} <= set(names)
    for recipe in ("setup", "invoice", "credit-note", "bill", "depreciation", "payout", "webhook"):
        assert shop.one("SELECT idem_schema(?)", "recipes/ledger-" + recipe)

"""sql/ops/close_month.sql: a month is closed when nothing of it is missing, and then for good."""
import shutil
import sqlite3
import subprocess

import pytest

from ledger_book import BANK, EQUITY, EXPENSE, INPUT, OUTPUT, REVENUE, Book
from ops.ops_kit import shell, shell_says, statements, text, typed

MARCH = {"company": 1, "until": "2026-03-31"}
REFUSED = "NOT CLOSED, nothing was changed: the counts above must be 0"
CLOSED = "closed: company 1 is locked through 2026-03-31, VAT period 2026-03 is filed"


@pytest.fixture(scope="module")
def march(tmp_path_factory):
    """March 2026 of a small company, looked at in April; everything before it is closed."""
    file = tmp_path_factory.mktemp("march") / "book.db"
    book = Book(str(file))
    book("UPDATE report_as_of SET as_of = '2026-04-02'")
    book("UPDATE vat_period SET status = 'filed' WHERE company_id = 1 AND period < '2026-03'")
    book.invoice("A")
    book.bill("B-1")
    book.post_batch(book.batch("po_1", [("txn_1", "charge", 5000, 200)]))
    book.payment("in 1")
    asset = book.asset("VAN", in_service="2026-03-01")
    book.depreciate({asset: 2000}, "2026-03-01", "2026-03-31")
    book.draft("next month", date="2026-04-01")
    book.db.close()
    return file


@pytest.fixture
def book(march, tmp_path):
    shutil.copy(march, tmp_path)
    book = Book(str(tmp_path / "book.db"), create=False)
    yield book
    book.db.close()


def close(book, **values):
    """The counts that are not 0, and what is said last: a line or an error."""
    counts = last = None
    try:
        for part in statements(text("close_month")):
            rows = book.db.execute(part, {**MARCH, **values}).fetchall()
            if len(rows) > 1:
                counts = {label: found for label, found in rows if found}
            elif rows:
                last = rows[0][0]
    except sqlite3.OperationalError as error:
        assert REFUSED in str(error) and not book.db.in_transaction
        last = REFUSED
    return counts, last


def state(book):
    return book.all("SELECT id, locked_through FROM company"), book.all("SELECT * FROM vat_period")


def not_closed(book, **values):
    """Refused, and nothing is written: what was counted."""
    before = state(book)
    counts, last = close(book, **values)
    assert last == REFUSED and state(book) == before
    return counts


def test_a_clean_month_is_closed_once_and_for_good(book):
    before = state(book)
    assert close(book) == ({}, CLOSED)
    lock, periods = state(book)
    assert lock == [(1, "2026-03-31"), (2, None)], "the other company is not touched"
    assert [p for p in periods if p not in before[1]] == [
        (1, "2026-03", "2026-03-01", "2026-03-31", "filed")]
    book.issue_refused("PERIOD_LOCKED", book.draft("late", date="2026-03-31"))
    book.invoice("B", date="2026-04-01")
    book.healthy()
    # Again, when counts are not 0 any more: it is closed, and nothing is changed.
    closed = state(book)
    assert close(book) == ({"sales_document, draft": 1}, CLOSED)
    assert state(book) == closed


def test_the_next_month_follows(book):
    assert close(book)[1] == CLOSED
    book("UPDATE report_as_of SET as_of = '2026-05-01'")
    assert not_closed(book, until="2026-04-30") == {
        "sales_document, draft": 1, "depreciation_missing_period": 1}
    book("DELETE FROM sales_document WHERE status = 'draft'")
    book.depreciate({book.one("SELECT id FROM asset"): 2000}, "2026-04-01", "2026-04-30")
    assert close(book, until="2026-04-30")[0] == {}
    # A month before it is closed as well; it does not move the lock back.
    assert close(book)[1] == CLOSED.replace("through 2026-03-31", "through 2026-04-30")
    assert not_closed(book, until="2026-06-30") == {
        "earlier VAT period open": 1, "month not over": 1}


def stuck_event(book):
    event = book.event("evt_1")
    book("UPDATE webhook_event SET status = 'failed' WHERE id = ?", event)


def unsealed_entry(book):
    book("PRAGMA foreign_keys = OFF")
    book.entry("manual", 1, "manual", "2026-03-05", [(BANK, 5), (EQUITY, -5)])


def missing_depreciation(book):
    book.asset("DESK", in_service="2026-03-01")


def tampered_bill(book):
    book("PRAGMA ignore_check_constraints = ON")
    book("DROP TRIGGER received_bill_update")
    book("UPDATE received_bill SET net_minor = net_minor + 1, gross_minor = gross_minor + 1")


def vat_by_hand(book):
    book.manual(1, "2026-03-05", [(EXPENSE, 100), (OUTPUT, -100, None, "V21")])


def no_next_period(book):
    book("DROP TRIGGER vat_period_delete")
    book("DELETE FROM vat_period WHERE company_id = 1 AND period = '2026-04'")


@pytest.mark.parametrize("label, spoil", [
    ("webhook_stuck", stuck_event),
    ("unbalanced_or_unsealed_entry", unsealed_entry),
    ("depreciation_missing_period", missing_depreciation),
    ("sales_document, draft", lambda book: book.draft("B", date="2026-03-31")),
    ("sales_document, draft", lambda book: book.draft("B", date=None, supply="2026-03-31")),
    ("received_bill, draft", lambda book: book.bill_draft("B-2")),
    ("received_bill, draft", lambda book: book.bill_draft("B-2", registered=None)),
    ("payment, recorded", lambda book: book.payment("in 2", post=False)),
    ("depreciation_run, draft", lambda book: book.run_draft("2026-03-01", "2026-03-31", "tax")),
    ("settlement_batch, imported", lambda book: book.batch("po_2", [("t2", "charge", 9, 1)])),
    ("integrity_violation", tampered_bill),
    ("vat_register_check, difference", vat_by_hand),
    ("next VAT period missing", no_next_period),
    ("month not over",
     lambda book: book("UPDATE report_as_of SET as_of = '2026-03-31'")),
])
def test_what_is_missing_is_counted_and_refused(book, label, spoil):
    spoil(book)
    found = not_closed(book)
    assert found.pop(label) > 0
    assert set(found) <= {"integrity_violation"}, "nothing else is missing"


@pytest.mark.parametrize("date, since", [("2026-03-05", 1), ("2026-04-01", 0)])
def test_others_write_during_the_proof(book, tmp_path, date, since):
    """The proof takes seconds in a large book: it holds up nobody, and misses nothing of the month."""
    book("PRAGMA journal_mode = WAL")
    other, met = Book(str(tmp_path / "book.db"), create=False), []
    other("PRAGMA busy_timeout = 0")

    def meanwhile():
        if not met:
            met.append(book.db.in_transaction)
            other.manual(2, date, [(EXPENSE, 100), (OUTPUT, -100, None, "V21")])
        return 0

    book.db.set_progress_handler(meanwhile, 1000)
    counts, last = close(book)
    book.db.set_progress_handler(None, 0)
    other.db.close()
    assert met == [False]
    assert (counts, last) == (
        ({"entry since the proof": 1}, REFUSED) if since else ({}, CLOSED))
    if since:
        assert not_closed(book) == {"vat_register_check, difference": 1}


@pytest.mark.parametrize("values", [
    {"company": None}, {"company": 9}, {"company": "1"}, {"until": None}, {"until": 20260331},
    {"until": 2026}, {"until": "2026-03-15"}, {"until": "2026-02-30"}, {"until": "March"},
    {"company": None, "until": None}])
def test_a_wrong_parameter_closes_nothing(book, values):
    stuck_event(book)
    assert not_closed(book, **values)


def test_vat_is_paid_in_the_month(book):
    book.manual(1, "2026-03-31", [(OUTPUT, 2100), (INPUT, -1050), (BANK, -1050)])
    assert close(book) == ({}, CLOSED)


@pytest.mark.parametrize("filed", ["2026-02", "2026-03"])
def test_a_period_filed_by_hand_is_told_too(book, filed):
    """To file and to lock are two things: an entry may still come between them, or before."""
    book("UPDATE vat_period SET status = 'filed' WHERE period = ? AND status = 'open'", filed)
    tax = [(EXPENSE, 100), (OUTPUT, -100, None, "V21")]
    book.manual(1, filed + "-10", tax)
    assert not_closed(book) == {"vat_register_check, difference": 1}
    book.manual(2, filed + "-10", [(a, -x, *more) for a, x, *more in tax])
    assert close(book) == ({}, CLOSED)


def test_a_difference_of_a_closed_year_holds_up_nothing(book):
    """Nothing can be posted there any more: it would be refused for good."""
    book.manual(1, "2025-12-10", [(EXPENSE, 100), (OUTPUT, -100, None, "V21")])
    assert not_closed(book) == {"vat_register_check, difference": 1}
    book("UPDATE fiscal_year SET status = 'closed' WHERE label = '2025'")
    assert close(book) == ({}, CLOSED)


def test_a_look_into_the_future_ends_no_month(book):
    book("UPDATE report_as_of SET as_of = '2199-01-01'")
    assert not_closed(book, until="2198-12-31")["month not over"] == 1
    assert close(book) == ({}, CLOSED), "what is over is over"


def test_what_concerns_others_does_not_matter(book):
    book.draft("C", company=2, date="2026-03-15")
    book.event("evt_2", company=2)
    book("UPDATE webhook_event SET status = 'failed'")
    book.manual(1, "2026-04-01", [(EXPENSE, 100), (OUTPUT, -100, None, "V21")])
    book.manual(2, "2026-03-31", [(BANK, 100), (REVENUE, -100)])
    assert close(book) == ({}, CLOSED)


def test_a_quarter_is_filed_with_its_last_month(tmp_path):
    book = Book(str(tmp_path / "book.db"))
    book("UPDATE report_as_of SET as_of = '2026-04-02'")
    book("DROP TRIGGER vat_period_delete")
    book("DELETE FROM vat_period WHERE company_id = 1")
    assert close(book, until="2026-01-31")[1] == "closed: company 1 is locked through 2026-01-31"
    book("INSERT INTO vat_period(company_id, period, starts_on, ends_on)"
         " VALUES (1, 'Q1', '2026-01-01', '2026-03-31'), (1, 'Q2', '2026-04-01', '2026-06-30')")
    assert close(book, until="2026-02-28")[0] == {}
    assert book.one("SELECT count(*) FROM vat_period WHERE status = 'filed'") == 0
    assert close(book)[1] == CLOSED.replace("2026-03 is", "Q1 is")
    assert book.all("SELECT period FROM vat_period WHERE status = 'filed'") == [("Q1",)]
    book.db.close()


def test_from_the_shell(book, tmp_path):
    draft = book.draft("B", date="2026-03-31")
    with pytest.raises(subprocess.CalledProcessError) as failure:
        shell(tmp_path / "book.db", "close_month", load=False, **MARCH)
    assert "sales_document, draft|1\n" in failure.value.output and REFUSED in failure.value.stderr
    # Without -bail it goes on, and still writes nothing.
    before = state(book)
    said = shell_says(tmp_path / "book.db", typed("close_month", load=False, **MARCH))
    assert REFUSED in said.stderr and state(book) == before
    book("DELETE FROM sales_document WHERE id = ?", draft)
    lines = shell(tmp_path / "book.db", "close_month", load=False, **MARCH)
    assert lines[-1] == CLOSED and all(line.endswith("|0") for line in lines[:-1])

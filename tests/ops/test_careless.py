"""Every recipe in careless hands, in a shell without -bail: with no parameter set, with numbers
where texts belong, and run twice. None may do harm, and none may be silent about it.
"""
import collections
import os
import re
import shutil

import pytest

from conftest import ROOT, claim, connect, one
from ledger_book import Book
from ops.ops_kit import shell_says, typed

TOKEN = "token-0123456789"
TABLES = ("idem_store", "idem_audit", "idem_policy", "series_floor", "override_log", "company",
          "vat_period")
NO_ANSWER = "NOTHING DONE: :response is NULL or not set, see .param list."
NOT_TEXT = "scope is not TEXT: bind it as a string"

# What is set in order, and what is said with nothing set, with numbers for texts, the second time.
Case = collections.namedtuple("Case", "values unset numbers twice")
CASES = {
    "adopt": Case(
        {"scope": "t", "key": "lost", "fingerprint": "fp", "operation": "pay", "response": "x",
         "code": 201, "token": "adopted-2026-11-30"},
        NO_ANSWER, NOT_TEXT, "replay\n1\n"),
    "after_restore": Case(
        {"reason": "restored on 2026-11-30"},
        ":reason is required, 1 to 1000 characters", "t|stuck|pay|unknown|1001|",
        "t|stuck|pay|unknown|1001|"),
    "audit_export": Case(
        {"after_id": 0, "after_digest": "idem-audit"},
        "NOTHING EXPORTED: :after_id and :after_digest are not set",
        "BROKEN: row 0 is not the one that was exported", "whole\n"),
    "backup": Case({"file": "{}/copy.db"}, "NOTHING DONE: :file is not set",
                   "NOTHING DONE: :file is not set, or no text", "output file already exists"),
    "close_month": Case(
        {"company": 1, "until": "2025-01-31"},
        "NOT CLOSED, nothing was changed", ":until is not the last day of a month, a text|1",
        "closed: company 1 is locked through 2025-01-31, VAT period 2025-01 is filed"),
    "erase": Case({"scope": "t", "key": "done"}, "NOTHING ERASED: :scope is not set", "erased: 0",
                  "erased: 0"),
    "history": Case({"scope": "t", "key": "stuck"}, "no record of this scope and key: not set",
                    "no record of this scope and key", "pay|unknown|"),
    "ledger_floor": Case(
        {"company_id": 1, "doc_kind": "invoice", "series": "INV", "period": "2026", "last_sent": 5,
         "reason": "5 was sent", "actor": "ops"},
        "NOTHING DONE: :last_sent is not set", "NOTHING DONE: no such series or period",
        "6|INV-2026-00006"),
    "metrics": Case({}, "idem_unknown 1", "idem_unknown 1", "idem_unknown 1"),
    "policy": Case(
        {"operation": "pay", "description": "a payment"},
        "NOT NULL constraint failed: idem_policy.operation",
        "no record has this operation yet", '"operation":"pay"'),
    "resolve_completed": Case({"scope": "t", "key": "stuck", "response": "x", "code": 201},
                              NO_ANSWER, NOT_TEXT, "1\nstuck|completed|201|x"),
    "resolve_retry": Case({"scope": "t", "key": "stuck", "reason": "the bank has no such charge"},
                          "scope is NULL, a value is required", NOT_TEXT, "nothing to resolve"),
    "restore_check": Case({"audit_id": 0, "audit_digest": "idem-audit"},
                          "audit head: not compared: ok", "audit head: ANOTHER chain",
                          "audit head: ok"),
    "rotate_secret_check": Case({"rotated_at": 1800000000000},
                                "NOT KNOWN: :rotated_at is milliseconds", "0|0|", "0|0|"),
    "rotate_secret_claim": Case(
        {"old_secret": "the old secret, 123", "new_secret": "the new secret, 456", "scope": "t",
         "key": "k", "body": "{}", "operation": "pay", "token": TOKEN},
        "the secret must be TEXT or BLOB", "the secret must be TEXT or BLOB", '"claimed"'),
    "stuck": Case({"slow_ms": 1}, "t|stuck|pay|suspended|1|", "t|stuck|pay|", "t|stuck|pay|"),
}
# A number is a good name there: what is done is shown.
DONE_WITH_NUMBERS = ("after_restore", "policy")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    file = tmp_path_factory.mktemp("careless") / "shop.db"
    book = Book(str(file))
    book("UPDATE report_as_of SET as_of = '2025-02-02'")
    book.db.close()
    db = connect(file)
    for key in ("stuck", "done"):
        assert claim(db, key, operation="pay", token=TOKEN)["outcome"] == "claimed"
    one(db, "SELECT idem_suspend('t', 'stuck', ?)", TOKEN)
    one(db, "SELECT idem_complete('t', 'done', ?, 'the answer', 201)", TOKEN)
    db.close()
    return file


@pytest.fixture
def db(shop, tmp_path):
    shutil.copy(shop, tmp_path)
    db = connect(tmp_path / "shop.db", init=False)
    yield db
    db.close()


def state(db):
    return {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}


def said(folder, name, values):
    values = {k: v.format(folder) if k == "file" and isinstance(v, str) else v
              for k, v in values.items()}
    done = shell_says(folder / "shop.db", typed(name, **values))
    return done.stdout + done.stderr


def test_every_recipe_has_its_case():
    assert sorted(CASES) == sorted(p.stem for p in (ROOT / "sql" / "ops").glob("*.sql"))


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_set(db, tmp_path, name):
    before = state(db)
    assert CASES[name].unset in said(tmp_path, name, {})
    assert state(db) == before and os.listdir(tmp_path) == ["shop.db"]


@pytest.mark.parametrize("name", CASES)
def test_numbers_where_texts_belong(db, tmp_path, name):
    before = state(db)
    values = {k: 2026 if isinstance(v, str) else v for k, v in CASES[name].values.items()}
    assert CASES[name].numbers in said(tmp_path, name, values)
    assert (state(db) == before) == (name not in DONE_WITH_NUMBERS)
    assert os.listdir(tmp_path) == ["shop.db"]


@pytest.mark.parametrize("name", CASES)
def test_twice_is_once(db, tmp_path, name):
    first = said(tmp_path, name, CASES[name].values)
    once = state(db)
    assert CASES[name].twice in said(tmp_path, name, CASES[name].values), first
    assert state(db) == once


@pytest.mark.parametrize("name", [n for n, c in CASES.items()
                                  if any(isinstance(v, int) for v in c.values.values())])
def test_a_driver_that_binds_numbers_as_real(shop, tmp_path, name):
    """Most of JavaScript's do."""
    results = []
    for kind in int, float:
        folder = tmp_path / kind.__name__
        folder.mkdir()
        shutil.copy(shop, folder)
        output = said(folder, name, {k: kind(v) if isinstance(v, int) else v
                                     for k, v in CASES[name].values.items()})
        output = re.sub(r"\d+$", "", output) if name == "stuck" else output     # its age
        db = connect(folder / "shop.db", init=False)
        rows = {table: [[c for c in row if not (isinstance(c, int) and c > 10**12)   # a time
                         and not str(c).startswith("idemr1:")] for row in rows]
                for table, rows in state(db).items()}
        db.close()
        results.append((output, rows))
    assert results[0] == results[1]


@pytest.mark.parametrize("value", [5.5, "5"])
def test_a_number_that_is_no_whole_one(db, tmp_path, value):
    before = state(db)
    values = {**CASES["ledger_floor"].values, "last_sent": value}
    assert CASES["ledger_floor"].unset in said(tmp_path, "ledger_floor", values)
    assert state(db) == before

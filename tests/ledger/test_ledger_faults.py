"""The ledger's recipes with a fault at the N-th step: interrupted, or denied by an authorizer.

A program that is told an error rolls back. Then all of the request is there or nothing of it, the book is
whole, and the same request goes through. A sample of the places; with IDEM_DEEP=1 a larger one, another one
each time. Power cuts under the recipe of the invoice are in tests/crash.
"""
import json
import os
import random
import sqlite3

import pytest
from ledger_book import ACCUMULATED, DEPRECIATION, EXTENSION
from test_ledger_recipes import Shop, bill, invoice, payout, webhook

from conftest import DEEP, needs_authorizer

pytestmark = pytest.mark.skipif(not os.path.exists(EXTENSION), reason="the extension is not built")

PLACES = 40 if DEEP else 6


def depreciation(shop):
    lines = [{"asset": a, "amount_minor": 1000} for (a,) in shop.all("SELECT id FROM asset ORDER BY id")]
    return shop.request("depreciation", "depreciation", key="run-000001", company=1, book="main", period_start="2026-01-01",
                        period_end="2026-01-31", lines=json.dumps(lines), expense=DEPRECIATION, accumulated=ACCUMULATED)


RECIPES = {
    "invoice": lambda shop: invoice(shop, "key-000001"),
    "bill": lambda shop: bill(shop, "bill-0001", "INV-001/26"),
    "depreciation": depreciation,
    "payout": lambda shop: payout(shop, "payout-001"),
    "webhook": lambda shop: webhook(shop, "evt_1"),
}
DONE = {"webhook": 200}                                                                   # the others answer 201


class Desk:
    """The same book again and again, and what a recipe does to it when nothing goes wrong."""

    def __init__(self, folder, recipe):
        self.path, self.recipe = str(folder / "book.db"), recipe
        shop = Shop(self.path)
        shop.asset("A")
        shop.asset("B")
        self.before = self.rows(shop)
        shop.db.close()
        self.image = open(self.path, "rb").read()
        shop = self.open()
        self.done = RECIPES[recipe](shop)
        assert self.done[0] == DONE.get(recipe, 201)
        self.after = self.rows(shop)
        assert self.after != self.before
        shop.db.close()

    def open(self):
        with open(self.path, "wb") as file:
            file.write(self.image)
        return Shop(self.path, create=False)

    @staticmethod
    def rows(shop):
        tables = shop.all("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        return {name: shop.one('SELECT count(*) FROM "%s"' % name) for (name,) in tables}

    def fault(self, arm, disarm):
        """The request with a fault under it, and once more without. The error, if there was one."""
        shop, error = self.open(), None
        arm(shop)
        try:
            first = RECIPES[self.recipe](shop)
        except sqlite3.Error as e:
            error = e
        disarm(shop)
        if shop.db.in_transaction:
            shop("ROLLBACK")
        left = self.rows(shop)
        assert left in (self.before, self.after), error
        if error is None:
            assert first[:2] == self.done[:2] and left == self.after
        again = RECIPES[self.recipe](shop)
        if left == self.before or self.recipe != "webhook":
            assert again[:2] == self.done[:2]
        else:
            assert again == (200, "seen")
        assert self.rows(shop) == self.after
        shop.healthy()
        assert shop.one("PRAGMA integrity_check") == "ok" and shop.one("SELECT idem_audit_verify()") is None
        shop.db.close()
        return error


@pytest.fixture(params=RECIPES)
def desk(request, tmp_path):
    return Desk(tmp_path, request.param)


class Countdown:
    """0 each time it is called, but what is wanted at the N-th."""

    def __init__(self, n, then):
        self.n, self.then = n, then

    def __call__(self, *args):
        self.n -= 1
        return self.then if self.n == 0 else 0


def strike(desk, switch, then, code):
    """A fault of this kind at places spread over the request; each must be an error with this code."""
    whole = Countdown(0, 0)
    assert desk.fault(lambda shop: switch(shop.db, whole), lambda shop: switch(shop.db, None)) is None
    total = -whole.n
    step = total // PLACES
    first = random.randrange(step) if DEEP else step // 2
    for n in range(1 + first, total + 1, step):
        error = desk.fault(lambda shop: switch(shop.db, Countdown(n, then)), lambda shop: switch(shop.db, None))
        assert error is not None and code(error), (n, error)


def test_interrupted(desk):
    strike(desk, lambda db, handler: db.set_progress_handler(handler, 1), 1,
           lambda e: e.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT)


@needs_authorizer
def test_denied(desk):
    strike(desk, lambda db, handler: db.set_authorizer(handler), sqlite3.SQLITE_DENY,
           lambda e: e.sqlite_errorcode in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_ERROR))

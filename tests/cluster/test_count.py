"""What the storm counts it would also find: each loss, done by hand, is named, and nothing else."""
import sqlite3
import types

import pytest

from cluster.storm import MUST_BE_ZERO, count, failures

# What count() reads, and no more.
TABLES = """
CREATE TABLE idem_store(token, scope, key, state, response);
CREATE TABLE effect(scope, key, token);
CREATE TABLE sales_document(series_id, status, order_ref, number, full_number);
CREATE TABLE integrity_report(rule);
INSERT INTO idem_store VALUES
  ('t-1', 's', 'k-1', 'completed', 'a-1'), ('t-2', 's', 'k-2', 'completed', 'a-2'),
  ('t-3', 's', 'k-3', 'processing', NULL);
INSERT INTO effect VALUES ('s', 'k-1', 't-1');
INSERT INTO sales_document VALUES (1, 'issued', 'o-1', 1, 'INV-1'), (1, 'issued', 'o-2', 2, 'INV-2');
"""
K1, K2, K3 = ("s", "k-1"), ("s", "k-2"), ("s", "k-3")


def told():
    """What the clients of this database were told, and did."""
    return types.SimpleNamespace(
        claims={"t-1": K1, "t-2": K2, "t-3": K3},
        completions={"t-1": (K1, "a-1"), "t-2": (K2, "a-2")},
        abandoned={"t-3"},
        executed=[(K2, "t-2")],
        invoices=[("o-1", "INV-1"), ("o-2", "INV-2")],
    )


def counted(sql="", change=lambda worker: None):
    db, worker = sqlite3.connect(":memory:"), told()
    db.executescript(TABLES + sql)
    change(worker)
    return {name: n for name, n in count(db, [worker]).items() if name in MUST_BE_ZERO and n}


def test_nothing_is_lost():
    assert counted() == {}


@pytest.mark.parametrize(
    "sql, change, names",
    [
        (
            "DELETE FROM idem_store WHERE token = 't-2'",
            lambda w: w.executed.clear(),
            ["acknowledged claims lost", "acknowledged completions lost"],
        ),
        ("UPDATE idem_store SET key = 'k' WHERE token = 't-2'", None, ["acknowledged claims lost"]),
        (
            "UPDATE idem_store SET response = 'b' WHERE token = 't-1'",
            None,
            ["acknowledged completions lost"],
        ),
        (
            "INSERT INTO idem_store VALUES ('t-4', 's', 'k-1', 'completed', 'b')",
            lambda w: w.executed.append((K1, "t-4")),
            ["double executions"],
        ),
        ("", lambda w: w.executed.append((("s", "k"), "t")), ["executions without a claim"]),
        (
            "INSERT INTO idem_store VALUES ('t-4', 's', 'k-4', 'processing', NULL)",
            None,
            ["claims nobody was told of"],
        ),
        (
            "UPDATE idem_store SET state = 'completed' WHERE token = 't-3'",
            None,
            ["abandoned claims executed again"],
        ),
        (
            "",
            lambda w: w.invoices.append(("o-1", "INV-7")),
            ["invoices whose number differs from the answer"],
        ),
        (
            "INSERT INTO sales_document VALUES (2, 'issued', 'o-1', 1, 'INV-1')",
            None,
            ["orders invoiced twice"],
        ),
        ("UPDATE sales_document SET number = 3 WHERE number = 2", None, ["numbers missing"]),
        ("INSERT INTO integrity_report VALUES ('x')", None, ["rules of the ledger broken"]),
    ],
)
def test_a_loss_is_named(sql, change, names):
    assert list(counted(sql, change or (lambda worker: None))) == names


def test_every_count_is_shown_to_count():
    """The list above has each of them."""
    shown = test_a_loss_is_named.pytestmark[0].args[1]
    assert {name for _, _, names in shown for name in names} == set(MUST_BE_ZERO)


GOOD = {
    **dict.fromkeys(MUST_BE_ZERO, 0),
    "seconds": 60,
    "faults": {"a node crashed in libraft": 2},
    "errors": [],
    "nodes that died": [],
    "clients that did not finish": 0,
    "contents of all nodes equal": True,
    "integrity_check": ["ok", "ok", "ok"],
    "audit chain": None,
    "exit codes of SIGTERM": [0, 0, 0],
    "acknowledged completions": 9,
    "invoices issued": 9,
}


def test_a_good_report():
    assert failures(GOOD) == []


@pytest.mark.parametrize(
    "name, value",
    [(name, 1) for name in MUST_BE_ZERO]
    + [
        ("errors", ["x"]),
        ("faults", {"a node crashed in libraft": 3}),
        ("nodes that died", [1]),
        ("clients that did not finish", 1),
        ("contents of all nodes equal", False),
        ("integrity_check", ["ok", "row 1 missing", "ok"]),
        ("audit chain", 7),
        ("exit codes of SIGTERM", [0, -11, 0]),
        ("acknowledged completions", 0),
        ("invoices issued", 0),
    ],
)
def test_a_bad_report(name, value):
    assert len(failures({**GOOD, name: value})) == 1

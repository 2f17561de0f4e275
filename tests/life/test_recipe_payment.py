"""The recipe sql/recipes/payment.sql, run as it stands: killed at every point, and continued.

Every attempt is a process of its own, which kills itself with SIGKILL at a given point: after each
statement of the recipe, before the call to the provider, and after the provider has charged but before
its answer arrives. The next attempt is another process, after the lease. Whatever happens, the
provider charges once, one order is shipped, and the client gets one answer.

The provider is another SQLite file. It knows idempotency keys of its own, and counts the requests.
"""
import itertools
import json
import os
import pathlib
import random
import re
import signal
import sqlite3
import sys
import traceback

import pytest
from life_kit import DEEP, ROOT, T, connect, one

RECIPE = pathlib.Path(ROOT) / "sql" / "recipes" / "payment.sql"
LEASE = 30_000
BODY = {"sku": "lamp", "quantity": 2, "amount": 4990}


def sections():
    """The recipe as {section: [statements]}."""
    found = {}
    for part in re.split(r"^-- section: ", RECIPE.read_text(encoding="utf-8"), flags=re.M)[1:]:
        name, text = part.split("\n", 1)
        statements, rest = [], ""
        for line in text.splitlines(keepends=True):
            if line.startswith("--"):
                continue
            rest += line
            if sqlite3.complete_statement(rest):
                statements.append(rest.strip())
                rest = ""
        assert not rest.strip(), rest
        found[name] = statements
    return found


SECTIONS = sections()


class Provider:
    """Charges cards, once per key of its own."""

    def __init__(self, path):
        self.db = sqlite3.connect(path, isolation_level=None, timeout=10)
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute("CREATE TABLE IF NOT EXISTS request(key TEXT, amount INTEGER)")
        self.db.execute("CREATE TABLE IF NOT EXISTS charge(id INTEGER PRIMARY KEY, key TEXT UNIQUE, "
                        "amount INTEGER)")

    def charge(self, key, amount, declines=False):
        self.db.execute("INSERT INTO request VALUES (?, ?)", (key, amount))
        if declines:
            return None
        self.db.execute("INSERT OR IGNORE INTO charge(key, amount) VALUES (?, ?)", (key, amount))
        return "ch_%d" % self.db.execute("SELECT id FROM charge WHERE key = ?", (key,)).fetchone()[0]


def attempt(folder, now, **kw):
    """One attempt in a connection of its own. Returns what the claim answered."""
    db = connect(folder / "shop.db", init=False)
    db.execute("PRAGMA synchronous = OFF")
    one(db, "SELECT idem_clock(?)", now)
    try:
        return work(db, folder, **kw)
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
        db.close()


def work(db, folder, key="key-1", account="acct", body=BODY, declines=False, at=lambda point: None, bind=int):
    """As an application would write it around the recipe; "at" is told every point that is reached, "bind"
    is how the driver binds a number."""
    values = {"account": account, "key": key, "body": json.dumps(body), **body}

    def run(name):
        last = None
        for i, sql in enumerate(SECTIONS[name]):
            cursor = db.execute(sql, values)
            rows = cursor.fetchall()
            last = rows[0][0] if rows else last
            at(f"{name} {i}")
            if name == "reserve" and sql.startswith("UPDATE") and cursor.rowcount == 0:
                db.execute("ROLLBACK")
                return None
        return last

    got = json.loads(run("claim"))
    if got["outcome"] != "claimed":
        return got
    values["token"], point = got["token"], got.get("recovery_point")
    if point is None:
        if run("reserve") is None:
            run("sold_out")
            return got
        point = "reserved"
        order = db.execute("SELECT checkpoint FROM idem_records WHERE scope = ? AND key = ?",
                           (account, key)).fetchone()[0]
    else:
        order = got["checkpoint"]
    values["order"] = bind(json.loads(order)["order"])
    if point == "reserved":
        provider_key = run("charge_key")
        at("before the provider")
        values["charge"] = Provider(folder / "provider.db").charge(provider_key, body["amount"], declines)
        at("after the provider")
        if values["charge"] is None:
            run("declined")
            return got
        run("charged")
    run("ship")
    return got


# Every point of a first attempt, in order, as found by running one.
def points(folder):
    seen = []
    prepare(folder)
    attempt(folder, T, at=seen.append)
    return seen


def prepare(folder, free=10):
    db = connect(folder / "shop.db", init=False)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("BEGIN")
    one(db, "SELECT idem_init()")
    for sql in SECTIONS["setup"]:
        db.execute(sql)
    db.execute("INSERT INTO stock VALUES ('lamp', ?)", (free,))
    db.execute("COMMIT")
    db.close()
    Provider(folder / "provider.db").db.close()


def in_child(folder, now, kill_at=None, **kw):
    """Runs an attempt in a child process. True if it came to its end, False if it was killed."""
    def at(point):
        if point == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        try:
            attempt(folder, now, at=at, **kw)
            os._exit(0)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


def check_done(folder, now, orders=1):
    db = connect(folder / "shop.db", init=False)
    assert one(db, "SELECT count(*) FROM orders") == orders
    assert one(db, "SELECT count(*) FROM orders WHERE status = 'shipped' AND charge IS NOT NULL") == orders
    assert one(db, "SELECT count(*) FROM shipment") == orders
    assert one(db, "SELECT free FROM stock") == 10 - 2 * orders
    db.close()
    provider = Provider(folder / "provider.db")
    assert one(provider.db, "SELECT count(*) FROM charge") == orders     # never twice
    assert one(provider.db, "SELECT sum(amount) FROM charge") == 4990 * orders
    requests = one(provider.db, "SELECT count(*) FROM request")
    provider.db.close()
    got = attempt(folder, now)
    assert (got["outcome"], got["code"]) == ("replay", 201)
    assert json.loads(got["response"]) == {"order": 1, "status": "shipped"}
    assert json.loads(got["headers"])["Location"] == "/orders/1"
    return requests


@pytest.fixture(scope="module")
def all_points(tmp_path_factory):
    seen = points(tmp_path_factory.mktemp("points"))
    assert len(seen) == len(set(seen)) == sum(len(SECTIONS[s]) for s in (
        "claim", "reserve", "charge_key", "charged", "ship")) + 2
    return seen


def test_without_a_crash(tmp_path):
    prepare(tmp_path)
    assert in_child(tmp_path, T)
    assert check_done(tmp_path, T) == 1
    assert in_child(tmp_path, T + 1)
    assert check_done(tmp_path, T + 1) == 1


def test_killed_at_every_point_and_continued(tmp_path, all_points):
    asked_twice = 0
    for i, point in enumerate(all_points):
        folder = tmp_path / str(i)
        folder.mkdir()
        prepare(folder)
        assert not in_child(folder, T, kill_at=point)
        got = attempt(folder, T + LEASE - 1)
        if point == all_points[-1]:
            assert got["outcome"] == "replay"              # killed after the last COMMIT
        else:
            assert got["outcome"] == "in_progress", point  # the dead one is trusted until its lease ends
            assert in_child(folder, T + LEASE), point
        requests = check_done(folder, T + LEASE)
        assert requests in (1, 2)
        asked_twice += requests == 2
    assert asked_twice >= 4        # the provider was asked again wherever its answer was not yet noted


def test_killed_again_and_again(tmp_path, all_points):
    """Two crashes at any two points, and three at random ones."""
    rng = random.Random(20260101)
    plans = list(itertools.product(all_points, repeat=2))
    if not DEEP:
        plans = rng.sample(plans, 14)
    plans += [tuple(rng.choice(all_points) for _ in range(3)) for _ in range(200 if DEEP else 6)]
    killed = 0
    for i, plan in enumerate(plans):
        folder = tmp_path / str(i)
        folder.mkdir()
        prepare(folder)
        now = T
        for point in plan:                                 # a point that is behind is not reached again
            killed += not in_child(folder, now, kill_at=point)
            now += LEASE
        assert in_child(folder, now), plan
        check_done(folder, now)
    assert killed > len(plans)


def test_a_crash_loop_that_never_gets_on(tmp_path, all_points):
    prepare(tmp_path)
    for i in range(15):
        assert not in_child(tmp_path, T + i * LEASE, kill_at="after the provider")
    assert in_child(tmp_path, T + 15 * LEASE)
    assert check_done(tmp_path, T + 15 * LEASE) == 16


def test_a_slow_worker_that_was_taken_over_changes_nothing(tmp_path):
    """Not dead, only slow: it comes back between any two statements, and must not ship a second time."""
    prepare(tmp_path)
    stopped = []

    def at(point):
        if point == "after the provider" and not stopped:
            stopped.append(point)
            attempt(tmp_path, T + LEASE)                   # somebody else finishes the work

    with pytest.raises(sqlite3.IntegrityError, match="claim lost"):
        attempt(tmp_path, T, at=at)
    assert stopped
    check_done(tmp_path, T + LEASE)


def test_accounts_with_the_same_key_are_charged_each(tmp_path):
    prepare(tmp_path)
    for account in ("acct", "other"):
        assert attempt(tmp_path, T, account=account)["outcome"] == "claimed"
    check_done(tmp_path, T, orders=2)


@pytest.mark.parametrize("declines", [False, True])
def test_a_driver_that_binds_numbers_as_real(tmp_path, declines):
    prepare(tmp_path)
    attempt(tmp_path, T, bind=float, declines=declines)
    got = attempt(tmp_path, T)
    assert json.loads(got["response"])["order"] == 1 and ".0" not in got["response"] + got["headers"]
    assert declines or json.loads(got["headers"])["Location"] == "/orders/1"


def test_sold_out_is_an_answer(tmp_path):
    prepare(tmp_path, free=1)
    assert in_child(tmp_path, T)
    db = connect(tmp_path / "shop.db", init=False)
    db.execute("UPDATE stock SET free = 100")
    assert one(db, "SELECT count(*) FROM orders") == 0
    db.close()
    got = attempt(tmp_path, T)
    assert (got["outcome"], got["code"], got["response"]) == ("replay", 409, '{"error":"sold out"}')
    assert attempt(tmp_path, T, key="key-2")["outcome"] == "claimed"


def test_declined_gives_the_goods_back(tmp_path):
    prepare(tmp_path)
    assert in_child(tmp_path, T, declines=True)
    got = attempt(tmp_path, T)
    assert (got["outcome"], got["code"]) == ("replay", 402)
    db = connect(tmp_path / "shop.db", init=False)
    assert one(db, "SELECT free FROM stock") == 10
    assert one(db, "SELECT status FROM orders") == "declined"
    db.close()


def test_another_request_under_the_key_is_refused(tmp_path):
    prepare(tmp_path)
    assert in_child(tmp_path, T)
    got = attempt(tmp_path, T, body={**BODY, "amount": 1})
    assert (got["outcome"], got["http_status"]) == ("mismatch", 422)
    same = {"amount": 4990.0, "quantity": 2, "sku": "lamp"}
    assert attempt(tmp_path, T, body=same)["outcome"] == "replay"        # spelled another way
    check_done(tmp_path, T)


def test_the_recipe_is_in_the_library():
    db = connect(":memory:", init=False)
    assert one(db, "SELECT idem_schema('recipes/payment')") == RECIPE.read_text(encoding="utf-8")
    db.close()

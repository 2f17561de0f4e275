"""One scenario in every SQLite driver: each program prints the lines of expected.txt, and the file
that it leaves behind holds what it said.

A driver that is not installed is skipped, and so are those that take long to build; under
IDEM_DRIVERS=1 (`make test-drivers`) a skip is a failure.
"""
import os
import re
import shutil
import sqlite3
import subprocess

import pytest

from conftest import SO, connect
from driver_list import DRIVERS, ENV, HERE, OUT
from regions import row

ALL = os.environ.get("IDEM_DRIVERS") == "1"
EXPECTED = (HERE / "expected.txt").read_text()
ORDERS, STOCK = [(1, 3), (2, 5)], 2
RECORDS = [("blob", "completed", 1, 200, "blob"), ("empty", "completed", 1, 200, "text"),
           ("job", "processing", 1, None, "null"), ("k-1", "completed", 1, 201, "text"),
           ("k-2", "completed", 1, 201, "text"), ("null", "completed", 1, 204, "null"),
           ("text", "completed", 1, 200, "text")]


@pytest.fixture
def shop(tmp_path):
    """A folder with the extension and the shop's own tables."""
    shutil.copy(SO, tmp_path / "idem.so")
    db = sqlite3.connect(str(tmp_path / "shop.db"))
    db.executescript((HERE / "tables.sql").read_text())
    db.close()
    return tmp_path


def run(command, cwd):
    return subprocess.run(command, cwd=cwd, env=ENV, text=True, capture_output=True, timeout=120)


def skip(why):
    (pytest.fail if ALL else pytest.skip)(why)


def note(driver, versions):
    """The line of what was proven, for the table of `make test-drivers`. The README's table says
    what CI proves: there it must be so, but for a driver's third number, which Debian may raise.
    """
    with open(OUT / "proven.tsv", "a", encoding="utf-8") as f:
        version = re.search(r"\d[\w.+~-]*", driver.version().stdout)[0]
        f.write("\t".join([driver.name, version, *versions]) + "\n")
    said = row(driver)[2]
    if ALL and os.environ.get("CI"):
        assert versions[1] in said, f"the README has '{said}', this is SQLite {versions[1]}"
        if driver.name != "c":                          # its probe tells of the compiler
            assert ".".join(version.split(".")[:2]) in said, f"{said}: this is {version}"


@pytest.fixture(scope="module", autouse=True)
def proven():
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "proven.tsv").unlink(missing_ok=True)


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda d: d.name)
def test_scenario(driver, shop):
    if driver.slow and not ALL:
        pytest.skip("built by make test-drivers")
    missing = driver.missing()
    if missing:
        skip(f"{driver.name} is not installed: {missing}")
    driver.make()
    ran = run(driver.words(driver.run, cwd=shop), shop)
    version, _, lines = ran.stdout.partition("\n")
    assert (ran.returncode, ran.stderr, lines) == (0, "", EXPECTED)
    note(driver, re.fullmatch(r"# idem (\S+), SQLite (\S+), OpenSSL .*", version).groups())

    assert {p.name for p in shop.iterdir()} == {"idem.so", "shop.db"}
    db = connect(shop / "shop.db", init=False)
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert db.execute("SELECT id, pieces FROM orders ORDER BY id").fetchall() == ORDERS
    assert db.execute("SELECT pieces FROM stock").fetchall() == [(STOCK,)]
    assert db.execute("SELECT key, state, attempt, code, typeof(response) FROM idem_records"
                      " ORDER BY key").fetchall() == RECORDS
    db.close()


@pytest.mark.parametrize("right, wrong, line", [
    ('"ROLLBACK"', '"COMMIT"', "rolled back"),
    ("SELECT idem_complete('shop', ?, ?, ?, ?)", "SELECT ?, ?, ?, ?", "retry"),
    ('outcome == "claimed"', "True", "retry"),
    ("pieces - ?", "pieces - 0 * ?", "sold out")])
def test_the_scenario_notices_a_wrong_program(right, wrong, line, shop):
    """The scenario can fail: Python's program with a fault in it."""
    text = (HERE / "python" / "shop.py").read_text()
    assert right in text
    (shop / "shop.py").write_text(text.replace(right, wrong))
    shutil.copy(HERE / "python" / "scenario.py", shop)
    ran = run(["/usr/bin/python3", "shop.py"], shop)
    lines = ran.stdout.splitlines()[1:] + [""] * 20
    first = next(a for a, b in zip(EXPECTED.splitlines(), lines) if a != b)
    assert first.startswith(line), ran.stdout + ran.stderr


def test_every_program_is_in_the_list():
    assert set(HERE.glob("*/[sS]hop.*")) == {d.path for d in DRIVERS}

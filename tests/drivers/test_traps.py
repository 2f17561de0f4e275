"""Habits of drivers that a program with effects must know, pinned so that the README stays true."""
import pytest

from driver_list import DRIVERS, HERE
from test_drivers import run, shop, skip  # noqa: F401

BY_NAME = {d.name: d for d in DRIVERS}


def driver(name):
    missing = BY_NAME[name].missing()
    if missing:
        skip(f"{name} is not installed: {missing}")


def test_php_runs_a_select_twice(shop):  # noqa: F811
    driver("php")
    ran = run(["php", "-d", f"sqlite3.extension_dir={shop}", str(HERE / "php" / "twice.php")], shop)
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == ["execute 0", "query 0", "querySingle 1", "INSERT 1"]

"""Below the oldest supported SQLite loading is refused, and says why."""
import pathlib
import sqlite3
import subprocess

import pytest

from conftest import SO, connect, one

HERE = pathlib.Path(__file__).resolve().parent
OLD = sqlite3.sqlite_version_info < (3, 37)


@pytest.mark.skipif(OLD, reason="the next test has a real one")
def test_a_version_that_is_too_old(tmp_path):
    program = tmp_path / "too_old"
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", str(program),
                    str(HERE / "too_old.c"), "-lsqlite3", "-ldl"], check=True)
    done = subprocess.run([str(program), SO], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)


@pytest.mark.skipif(not OLD, reason="runs on a SQLite that is too old (versions.py run refused)")
def test_a_real_one():
    db = connect(":memory:", load=False, init=False)
    db.enable_load_extension(True)
    with pytest.raises(sqlite3.OperationalError, match="idem needs SQLite 3.37 or .*this is 3.36"):
        db.load_extension(SO)
    with pytest.raises(sqlite3.OperationalError, match="no such function"):
        one(db, "SELECT idem_version()")
    db.close()

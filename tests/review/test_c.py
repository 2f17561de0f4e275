"""What needs C to be seen: a sweeping driver, and a connection without triggers.

What was wrong:
- a driver that finalises every statement it finds (sqlite3_next_stmt) before it closes met the one that an open
  cursor of idem_records reads, and then the cursor finalised it once more: a crash. IDEM_DEEP=1 runs this under
  valgrind too, where it is installed;
- with SQLITE_DBCONFIG_ENABLE_TRIGGER off, audited writes succeeded without their audit rows, and an erasure or a
  purge said that it was done and had done nothing.
"""
import pathlib
import shutil
import subprocess

import pytest

from conftest import DEEP, SO

HERE = pathlib.Path(__file__).resolve().parent
CHECK_H = HERE.parent / "c"
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{CHECK_H}"]
VALGRIND = ["valgrind", "-q", "--error-exitcode=9"]


def run(tmp_path, name, *args, prefix=()):
    program = tmp_path / name
    subprocess.run(["cc", *FLAGS, "-o", str(program), str(HERE / f"{name}.c"), "-lsqlite3"], check=True)
    done = subprocess.run([*prefix, str(program), SO, str(tmp_path), *args],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    assert " 0 failed" in done.stdout


def test_a_driver_that_sweeps(tmp_path):
    run(tmp_path, "sweeping")


@pytest.mark.skipif(not (DEEP and shutil.which("valgrind")), reason="IDEM_DEEP=1 and valgrind")
def test_a_driver_that_sweeps_under_valgrind(tmp_path):
    run(tmp_path, "sweeping", "plain", prefix=VALGRIND)


def test_triggers_that_are_switched_off(tmp_path):
    run(tmp_path, "triggers_off")

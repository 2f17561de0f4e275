"""Compiles and runs the C programs of this folder: what Python's sqlite3 module cannot see.

IDEM_DEEP=1 runs them under valgrind too, where it is installed.
"""
import pathlib
import shutil
import subprocess

import pytest

from conftest import DEEP, SO

HERE = pathlib.Path(__file__).resolve().parent
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{HERE}"]


def shared_sqlite():
    """The file that -lsqlite3 stands for, as the loader finds it."""
    out = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True,
                         env={"PATH": "/sbin:/usr/sbin:/bin:/usr/bin"}).stdout
    found = [line.split("=> ")[1].strip() for line in out.splitlines() if "libsqlite3.so.0 " in line]
    return found[0] if found else None


def build(tmp_path, name, libs):
    program = tmp_path / name
    subprocess.run(["cc", *FLAGS, "-o", str(program), str(HERE / f"{name}.c"), *libs], check=True)
    return program


def run(program, *args, valgrind=False):
    words = [str(program), *map(str, args)]
    if valgrind:
        words = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full",
                 "--errors-for-leak-kinds=definite"] + words
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    assert " 0 failed" in done.stdout
    return done.stdout


def valgrinds():
    """Without, and in a deep run with valgrind."""
    return [False, True] if DEEP and shutil.which("valgrind") else [False]


@pytest.mark.parametrize("valgrind", valgrinds())
def test_nothing_is_left_behind(tmp_path, valgrind):
    run(build(tmp_path, "leftovers", ["-lsqlite3"]), SO, tmp_path, valgrind=valgrind)


@pytest.mark.parametrize("valgrind", valgrinds())
def test_threads_load_at_once(tmp_path, valgrind):
    rounds = 4 if valgrind else 200 if DEEP else 20
    run(build(tmp_path, "threads", ["-lsqlite3", "-lpthread"]), SO, tmp_path, rounds,
        valgrind=valgrind)


def test_writes_that_dqlite_would_lose(tmp_path):
    run(build(tmp_path, "replicated", ["-lsqlite3"]), SO, tmp_path)


def test_two_copies_of_sqlite(tmp_path):
    shared = shared_sqlite()
    try:
        program = build(tmp_path, "two_copies", ["-l:libsqlite3.a", "-lm", "-lpthread", "-ldl", "-lz"])
    except subprocess.CalledProcessError:
        try:
            program = build(tmp_path, "two_copies", ["-l:libsqlite3.a", "-lm", "-lpthread", "-ldl"])
        except subprocess.CalledProcessError:
            pytest.skip("no static libsqlite3 here")
    if not shared:
        pytest.skip("no shared libsqlite3 here")
    (tmp_path / "copy").mkdir()
    shutil.copy(SO, tmp_path / "copy" / "idem.so")
    run(program, SO, tmp_path, shared)

"""Processes and threads that claim the same keys: see crowd.c.

100,000 claims on 10,000 keys with IDEM_DEEP=1, a twentieth of it by default.
"""
import pathlib
import subprocess

import pytest

from conftest import DEEP, SO

HERE = pathlib.Path(__file__).resolve().parent
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]
CLAIMS, KEYS = (100000, 10000) if DEEP else (5000, 500)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    program = tmp_path_factory.mktemp("crowd") / "crowd"
    subprocess.run(["cc", *FLAGS, "-o", str(program), str(HERE / "crowd.c"), "-lsqlite3",
                    "-lpthread"], check=True)
    return program


def run(program, path, *args):
    done = subprocess.run([str(program), SO, str(path), *map(str, args)], capture_output=True,
                          text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert " 0 failed" in done.stdout
    print(done.stdout)


@pytest.mark.parametrize("pause", [300, 0] if DEEP else [300])
def test_one_winner_and_nobody_starves(crowd, path, pause):
    run(crowd, path, 8, 2, CLAIMS, KEYS, pause)


def test_threads_share_a_connection(crowd, path):
    run(crowd, path, 2, 8, CLAIMS, KEYS, 300, "shared")

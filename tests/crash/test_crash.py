"""Power failures at every write: see crash.c. Processes that are killed: see kill.c.

By default a sample of the places to fail at, the same each time. With IDEM_DEEP=1 every one of
them or, if there is less time than half an hour, a larger sample that is another one each time.
"""
import os
import pathlib
import random
import re
import subprocess

import pytest

from conftest import DEEP, SO
from ledger_book import MASTER, SCHEMA

HERE = pathlib.Path(__file__).resolve().parent
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]
SECONDS = int(os.environ.get("IDEM_DEEP_SECONDS", "3600"))
STRIDE = max(1, 1800 // SECONDS) if DEEP else 151
SETTINGS = ["WAL FULL", "WAL NORMAL", "DELETE EXTRA", "DELETE FULL", "DELETE NORMAL"]


@pytest.fixture(scope="module")
def crash(tmp_path_factory):
    program = tmp_path_factory.mktemp("crash") / "crash"
    subprocess.run(["cc", *FLAGS, "-o", str(program), str(HERE / "crash.c"), "-lsqlite3"],
                   check=True)
    return program


def run(program, folder, story, setting, stride, *mistake):
    """The exit code, the last line and all text."""
    if story == "ledger":
        story = folder / "ledger.sql"
        story.write_text(SCHEMA + MASTER)
    done = subprocess.run([str(program), SO, str(folder), str(story), *setting.split(), str(stride),
                           *mistake], capture_output=True, text=True, timeout=3600)
    return done.returncode, done.stdout.strip().split("\n")[-1], done.stdout + done.stderr


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("story", ["keys", "ledger"])
def test_power_fails(crash, tmp_path, story, setting):
    if story == "ledger" and not DEEP and setting != "WAL FULL":
        pytest.skip("in deep runs")
    stride = f"{STRIDE}:{random.randrange(STRIDE) if DEEP else 0}"
    code, last, text = run(crash, tmp_path, story, setting, stride)
    print(stride, last)
    assert code == 0 and " 0 failed" in last, stride + "\n" + text[-6000:]
    lost = int(re.search(r"(\d+) times steps lost", last).group(1))
    # What the settings promise, and no more: else the disk is not as bad as it should be.
    if setting in ("WAL FULL", "DELETE EXTRA"):
        assert lost == 0, last
    elif story == "keys":
        assert lost > 0, last


@pytest.mark.parametrize("setting", ["WAL FULL", "DELETE EXTRA"])
@pytest.mark.parametrize("mistake", ["lying", "off", "apart"])
def test_mistakes_are_noticed(crash, tmp_path, mistake, setting):
    code, last, text = run(crash, tmp_path, "keys", setting,
                           53 if mistake == "apart" else 101, mistake)
    assert code == 1 and "FAILED [" in text, last

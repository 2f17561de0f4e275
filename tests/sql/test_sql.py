"""SQL scripts run by the sqlite3 shell, their output compared with the .expected file beside them.

IDEM_UPDATE=1 writes the expected files anew: read the difference before committing it.
"""
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import SO

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = sorted(HERE.glob("*.sql"))


@pytest.mark.parametrize("script", SCRIPTS, ids=[s.stem for s in SCRIPTS])
def test_script(script):
    if not shutil.which("sqlite3"):
        pytest.skip("the sqlite3 shell is not installed")
    done = subprocess.run(["sqlite3", "-batch", ":memory:"], input=f".load '{SO}'\n{script.read_text()}",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                          env={**os.environ, "HOME": str(HERE)})
    # The shell's line numbers count the .load line; its exit code tells of errors, which are wanted here.
    expected = script.with_suffix(".expected")
    if os.environ.get("IDEM_UPDATE") == "1":
        expected.write_text(done.stdout)
    assert done.stdout == expected.read_text()
    assert "sqlite3_close() returns" not in done.stdout

"""Damaged stores at random, see corrupt_child.py; IDEM_DEEP=1 goes on for IDEM_DEEP_SECONDS."""
import os
import subprocess
import sys

from conftest import DEEP, ROOT, SO, deep_seed


def child(tmp_path, seed, count, seconds):
    program = str(ROOT / "tests/fuzz/corrupt_child.py")
    done = subprocess.run([sys.executable, program, SO, str(tmp_path), str(seed), str(count),
                           str(seconds)], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1] == "done", \
        (f"seed {seed}", done.returncode, lines[-2:], done.stderr[-3000:])
    return len(lines) - 1


def test_some(tmp_path):
    assert child(tmp_path, int(os.environ.get("IDEM_SEED", 1)), 120, 600) == 120


def test_many(tmp_path):
    if DEEP:
        seconds = float(os.environ.get("IDEM_DEEP_SECONDS", "300")) / 2
        seed = deep_seed()
        print(f"{child(tmp_path, seed, 10**9, seconds)} stores from seed {seed}")
    else:
        assert child(tmp_path, 2, 20, 600) == 20

"""Inputs made to be slow or large. Time and peak memory grow in proportion to the input.

Each runs in a process of its own at one size and at four times that size. What is quadratic takes
sixteen times as long; nine is the line, since the machine is shared and n log n is allowed. Figures
are printed with pytest -s.
"""
import json
import os
import pathlib
import subprocess
import sys

import pytest

from hostile_child import CASES

CHILD = pathlib.Path(__file__).with_name("hostile_child.py")

# Peak bytes for each byte of input, SQLite's copy of the argument included (one). The text and its
# final form grow to 5.5 each at most; a member costs 32 bytes, twice that while it is sorted, and
# with the names used here is at least 6 bytes of input.
PEAK_PER_BYTE = 20
PEAK_FIXED = 3_000_000


# Keeps the C library from taking large blocks from the system and giving them back at every call:
# how long the system takes for that would hide what is to be measured.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


def run(name, what):
    environment = dict(os.environ, **(KEEP_MEMORY if what == "time" else {}))
    command = [sys.executable, str(CHILD), name, what]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(out.stdout)


def timed(name):
    """(result, growth of time from a size to four times that size)."""
    for _ in range(3):  # a neighbour may take the processor away once, but not three times
        result = run(name, "time")
        small, large = result["seconds"]
        growth = large / max(small, 20e-6)
        if growth < 9:
            break
    return result, growth


@pytest.mark.parametrize("name", sorted(CASES))
def test_linear_time(name):
    result, growth = timed(name)
    size, seconds = result["bytes"][1], result["seconds"][1]
    print(f"{name:22} {size:>9} bytes {seconds * 1e3:9.2f} ms {seconds / size * 1e9:7.2f} ns/byte x{growth:4.1f}")
    assert result["kinds"] == [CASES[name][3]] * 2
    assert growth < 9, result
    assert seconds < 1e-3 + 400e-9 * size, result


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="peak memory is read from Linux's /proc")
@pytest.mark.parametrize("name", sorted(CASES))
def test_bounded_memory(name):
    result = run(name, "peak")
    size, peak = result["bytes"][1], result["peak"]
    print(f"{name:22} {size:>9} bytes peak {peak / 1e6:6.1f} MB, {peak / size:5.1f} per byte")
    assert peak <= PEAK_FIXED + PEAK_PER_BYTE * size, result


def test_the_cost_of_depth_is_not_that_of_size():
    """A million brackets are refused at the 513th, however many follow."""
    result, _ = timed("brackets")
    assert result["bytes"][1] == 1_000_000 and result["seconds"][1] < 0.005, result

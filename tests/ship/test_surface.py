"""What the loader sees of idem.so: one symbol, no library but libc, nothing writable and
executable, and no instruction that the machine it was built on happens to have.
"""
import re
import subprocess

import pytest

from conftest import ROOT, SO
from ship.ship_kit import exported, glibc, make, needed, output

GLIBC = (2, 34)     # the oldest C library that will do: Debian 12, Ubuntu 22.04


def test_one_symbol():
    assert exported(SO) == ["sqlite3_idem_init"]


def test_no_library_but_libc():
    assert needed(SO) == ["libc.so.6"]
    names = [line.split()[0] for line in output("ldd", SO).splitlines()]
    rest = {name for name in names if not re.search(r"^linux-vdso|/ld-linux|^libc\.so\.6", name)}
    assert len(names) >= 2 and not rest


def test_the_oldest_glibc_is_as_documented():
    assert glibc(SO) == GLIBC


def test_how_it_is_mapped():
    dynamic = output("readelf", "-dW", SO)
    assert "BIND_NOW" in dynamic and re.search(r"FLAGS_1.*NOW.*NODELETE", dynamic)
    for word in ("RPATH", "RUNPATH", "TEXTREL"):
        assert word not in dynamic
    segments = output("readelf", "-lW", SO)
    assert re.search(r"GNU_STACK .* RW +0x", segments) and "GNU_RELRO" in segments
    assert not re.search(r"LOAD .* RWE ", segments)


def test_no_flag_of_the_build_host():
    """The commands of a whole build, as make would run them."""
    commands = make("-nB", "V=1", "idem.so", "static")
    assert " -fvisibility=hidden " in commands, "these are not the commands"
    assert not re.search(r"\s-m(arch|cpu|tune|avx|sse|native)\S*", commands)


@pytest.mark.parametrize("name", ["-march=native", "-mavx2"])
def test_that_check_can_fail(name):
    assert re.search(r"\s-m(arch|cpu|tune|avx|sse|native)\S*",
                     make("-nB", "V=1", f"CFLAGS=-O2 {name}", "idem.so"))


def test_without_a_static_libcrypto_make_says_what_to_do():
    """Many distributions have none. `echo` as compiler answers with words that are no path."""
    done = subprocess.run(["make", "-nB", "CC=echo", "idem.so"], cwd=ROOT, text=True,
                          capture_output=True)
    assert done.returncode == 2 and "no libcrypto.a: install" in done.stderr
    assert "make CRYPTO=shared" in done.stderr
    make("-nB", "CC=echo", "CRYPTO=shared", "idem.so")

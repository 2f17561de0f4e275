"""Builds the C tests beside this file under sanitizers, and runs them."""
import pathlib
import re
import shutil
import subprocess

import pytest

from fp_kit import ROOT

HERE = pathlib.Path(__file__).parent
SOURCES = [str(ROOT / "ext" / f"{name}.c") for name in ("json", "paths", "order", "canonical", "fingerprint", "digest")]
WARNINGS = "-std=c11 -pedantic -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Werror".split()


def compilers():
    return [name for name in ("gcc", "clang") if shutil.which(name)]


def build(tmp_path, compiler, name, sources, *flags):
    binary = tmp_path / name
    command = [compiler, "-g", "-O1", "-DSQLITE_CORE", *WARNINGS, *flags, "-o", str(binary), str(HERE / f"{name}.c"),
               *sources, "-lsqlite3", "-lcrypto"]
    done = subprocess.run(command, capture_output=True, text=True)
    if "cannot find -l" in done.stderr:
        pytest.skip("the development files of SQLite or OpenSSL are not installed")
    assert done.returncode == 0, done.stderr
    return binary


@pytest.mark.skipif(not compilers(), reason="no C compiler")
@pytest.mark.parametrize("name, least", [("unit_digest", 80), ("unit_memory", 100)])
def test_unit(tmp_path, name, least):
    sources = SOURCES if name == "unit_memory" else [source for source in SOURCES if source.endswith("digest.c")]
    binary = build(tmp_path, compilers()[0], name, sources, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    done = subprocess.run([str(binary)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(re.match(r"(\d+) ", done.stdout)[1]) >= least, done.stdout


@pytest.mark.skipif(not compilers(), reason="no C compiler")
@pytest.mark.parametrize("compiler", compilers())
def test_no_warnings(tmp_path, compiler):
    for flags in (["-O2"], ["-O1", "-DNDEBUG", "-DIDEM_PORTABLE"]):
        for source in SOURCES:
            command = [compiler, *WARNINGS, *flags, "-c", "-o", str(tmp_path / "x.o"), source]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

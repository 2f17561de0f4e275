"""Compiles enumerate.c against a verdict.c, and compares what it prints with the oracle."""
import pathlib
import subprocess

import verdict_oracle as oracle

HERE = pathlib.Path(__file__).resolve().parent
EXT = HERE.parent.parent / "ext"


def compile_enumeration(target, verdict=EXT / "verdict.c", flags=()):
    """No database is needed, so none is linked: what digest.c would use of it is dropped unused.

    A mutant may not compile: then the CalledProcessError is the caller's to judge.
    """
    subprocess.run(
        ["cc", "-std=c11", "-O1", "-w", "-ffunction-sections", "-Wl,--gc-sections", "-DSQLITE_CORE",
         "-D_POSIX_C_SOURCE=200809L", "-I", str(EXT), *flags, str(HERE / "enumerate.c"),
         str(verdict), str(EXT / "digest.c"), "-lcrypto", "-o", str(target)],
        check=True, capture_output=True, text=True)
    return target


def parse(line):
    """A line of the enumeration as inputs and verdict."""
    left, right = line.split(" -> ")
    verb, *words = left.split(" ")
    got = right.split(" ")
    return (oracle.In(verb, (w.split("=") for w in words)),
            oracle.Verdict(*got[:4], *map(int, got[4:])))


def wrong(line):
    """None if the oracle agrees with the line; else what it expected."""
    inputs, got = parse(line)
    expected = oracle.predict(inputs)
    return None if oracle.agrees(expected, got) else expected

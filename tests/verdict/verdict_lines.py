"""Compiles enumerate.c against a verdict.c, and compares what it prints with the oracle."""
import pathlib
import subprocess

import verdict_oracle as oracle

HERE = pathlib.Path(__file__).resolve().parent
EXT = HERE.parent.parent / "ext"


CC = ["cc", "-std=c11", "-O1", "-w", "-ffunction-sections", "-DSQLITE_CORE",
      "-D_DEFAULT_SOURCE", "-I", str(EXT)]


def run(command):
    subprocess.run(command, check=True, capture_output=True, text=True)


def compile_parts(directory, flags=("-DNDEBUG",)):
    """All but verdict.c, as objects."""
    objects = []
    for source in (HERE / "enumerate.c", EXT / "digest.c"):
        objects.append(str(directory / source.with_suffix(".o").name))
        run([*CC, *flags, "-c", str(source), "-o", objects[-1]])
    return objects


def link(target, verdict, objects, flags=("-DNDEBUG",)):
    """No database is needed, so none is linked: what digest.c would use of it is dropped unused.

    A mutant of verdict.c may not compile: then the CalledProcessError is the caller's to judge.
    """
    run([*CC, *flags, "-Wl,--gc-sections", str(verdict), *objects, "-lcrypto", "-o", str(target)])
    return target


def compile_enumeration(directory):
    """With assertions: they must hold for every combination."""
    return link(directory / "enumerate", EXT / "verdict.c", compile_parts(directory, ()), ())


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

"""Every operation with every fault under it: see faults.c.

By default a sample of the places where a fault may strike, the same each time, in a plain build with
assertions. With IDEM_DEEP=1 every one of them, under AddressSanitizer and UBSan where the compiler
has them: that takes hours. With less time (IDEM_DEEP_SECONDS) a sample as large as fits, another one
each time, so that every test comes to its end and says what it found.
"""
import os
import pathlib
import random
import subprocess

import pytest

from conftest import DEEP, ROOT, SO

HERE = pathlib.Path(__file__).resolve().parent
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-DSQLITE_CORE", "-g", "-O1", "-Wall", "-Wextra"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
LIBS = ["-lsqlite3", "-lcrypto"]

# What fails, and of how many faults one is tried by default.
KINDS = {"oom": 40, "oom16": 90, "auth": 8, "ignore": 15, "interrupt": 60, "wal": 4, "delete": 6,
         "full": 2, "fulldelete": 4, "busy": 2, "busydelete": 3, "crypto": 2}


# The same with the library loaded, as users have it; the last is loading itself.
LIBRARY = [*((kind, ()) for kind in KINDS if kind != "crypto"), ("oom", ("load",))]

# How long each of the tests may take; None: as long as it takes.
SHARE = None
if DEEP and "IDEM_DEEP_SECONDS" in os.environ:
    SHARE = float(os.environ["IDEM_DEEP_SECONDS"]) / (len(KINDS) + len(LIBRARY))


def sample(usual):
    """STRIDE:FIRST. The usual stride takes a twelfth of the operations and about 5 seconds."""
    if not DEEP:
        return f"{usual}:0"
    if SHARE is None or SHARE >= 12 * 5 * usual:
        return "1"
    return f"{max(2, int(usual * 5 / max(SHARE, 1)))}:{random.randrange(10**6)}"


def cc(*words):
    return subprocess.run(["cc", *FLAGS, *map(str, words)], capture_output=True, text=True)


def compile_faults(folder, flags=()):
    """The program, with its object files beside it; None if these flags do not work here."""
    text = subprocess.run(["sh", str(ROOT / "sql" / "embed.sh")], capture_output=True, check=True)
    (folder / "sql_text.c").write_bytes(text.stdout)
    sources = [HERE / "faults.c", *sorted((ROOT / "ext").glob("*.c")), folder / "sql_text.c"]
    objects = [folder / f"{source.stem}.o" for source in sources]
    for source, target in zip(sources, objects):
        done = cc(*flags, f"-I{ROOT / 'ext'}", "-c", "-o", target, source)
        if done.returncode != 0 and flags:
            return None
        assert done.returncode == 0, done.stderr
    done = cc(*flags, "-o", folder / "faults", *objects, *LIBS)
    if done.returncode != 0 and flags:
        return None
    assert done.returncode == 0, done.stderr
    return folder / "faults"


def run(program, folder, kind, stride, *names, extension=None):
    env = {**os.environ, "FAULTS_EXTENSION": extension} if extension else None
    return subprocess.run([str(program), str(folder), kind, str(stride), *names], env=env,
                          capture_output=True, text=True, timeout=7200)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    slow = DEEP and (SHARE is None or SHARE >= 5)  # compiling alone takes a minute
    sanitized = slow and compile_faults(tmp_path_factory.mktemp("sanitized"), SANITIZE)
    return sanitized or compile_faults(tmp_path_factory.mktemp("faults"))


@pytest.mark.parametrize("kind", KINDS)
def test_faults(program, tmp_path, kind):
    done = run(program, tmp_path, kind, sample(KINDS[kind]))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert " 0 failed" in done.stdout
    print(done.stdout)


@pytest.mark.parametrize("kind, names", LIBRARY)
def test_faults_under_the_library(program, tmp_path, kind, names):
    stride = sample(KINDS[kind] if names else 6 * KINDS[kind])
    done = run(program, tmp_path, kind, stride, *names, extension=SO)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert " 0 failed" in done.stdout
    print(done.stdout)


# Mistakes in a copy of the extension that the harness must notice: file, old text, new text, kind,
# operation.
MISTAKES = {
    "an error is swallowed": (
        "conn.c", "  if (rc != SQLITE_SCHEMA) {\n    idemFailDb(pCall, rc);\n",
        "  if (rc != SQLITE_SCHEMA) {\n", "full", "complete"),
    "memory is lost": (
        "conn.c", "  sqlite3_free(pConn->pCache);\n", "", "oom", "replay"),
    "a statement outlives the connection": (
        "conn.c", "pConn->nClaimTable == 0)) dropStatements(pConn);", "0)) (void)dropStatements;",
        "auth", "claim"),
    "a claim without its row": (
        "claim.c", "  if (pCall->rc != SQLITE_OK) idemAnswerClear(pAnswer);\n",
        "  if (pCall->rc != SQLITE_OK) idemForgive(pCall);\n", "full", "claim"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_noticed(program, tmp_path, mistake):
    name, old, new, kind, operation = MISTAKES[mistake]
    text = (ROOT / "ext" / name).read_text()
    assert text.count(old) == 1, "the source has changed: adapt the mistake"
    (tmp_path / name).write_text(text.replace(old, new))
    objects = [o for o in program.parent.glob("*.o") if o.stem != pathlib.Path(name).stem]
    flags = SANITIZE if program.parent.name.startswith("sanitized") else []
    done = cc(*flags, f"-I{ROOT / 'ext'}", "-o", tmp_path / "faults", tmp_path / name, *objects,
              *LIBS)
    assert done.returncode == 0, done.stderr
    done = run(tmp_path / "faults", tmp_path, kind, 3 if kind == "full" else 20, operation)
    assert done.returncode == 1 and "FAILED [" in done.stdout, done.stdout + done.stderr

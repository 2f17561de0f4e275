"""The slow half of shipping as source: SQLite compiled along, the archive built elsewhere.

Not part of `make test`: `make test-ship` runs it.
"""
import os
import subprocess
import sys
import textwrap

import pytest

from conftest import ROOT
from ship.ship_kit import STRICT, VERSION, claim_program, exported, make, needed, output

SQLITE = ROOT / "build" / "sqlite-3.44.2"
AMALGAM = ROOT / "build" / "amalgamation"
CRYPTO = ["-lcrypto", "-lpthread", "-ldl", "-lm"]


@pytest.fixture(scope="module", autouse=True)
def built():
    make("static", "amalgamation", "shell")


def loads_and_claims(so):
    """A process of its own: this one may have another build of idem mapped."""
    program = textwrap.dedent("""\
        import sqlite3, sys
        db = sqlite3.connect(":memory:", isolation_level=None)
        db.enable_load_extension(True)
        db.load_extension(sys.argv[1])
        print(db.execute("SELECT idem_init()").fetchall())
        print(db.execute("SELECT outcome FROM idem_claim('t', 'k', 'fp')").fetchall())
        db.close()
    """)
    assert output(sys.executable, "-c", program, so) == "[(1,)]\n[('claimed',)]\n"


def test_the_static_library_offers_one_symbol():
    lines = output("nm", "-g", "--defined-only", ROOT / "build/libidem.a").splitlines()
    assert [line.split()[-1] for line in lines if " " in line] == ["sqlite3_idem_init"]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_amalgamation_has_no_warnings(tmp_path, compiler):
    warnings = ["-Wconversion", "-Wshadow", "-Wstrict-prototypes"]
    for name, flags in (("core", ["-DSQLITE_CORE"]), ("extension", ["-fPIC", "-DNDEBUG"])):
        output(compiler, "-std=c11", "-O1", *STRICT, *warnings, *flags, f"-I{SQLITE}", "-c",
               AMALGAM / "idem.c", "-o", tmp_path / f"{name}.o")


@pytest.mark.parametrize("compiler, language", [("cc", "c"), ("g++", "c++")])
def test_with_sqlite_s_own_amalgamation(tmp_path, compiler, language):
    """Two C files and no library but libcrypto: SQLite 3.44.2 and idem."""
    output("cc", "-std=c11", "-O1", "-DSQLITE_CORE", f"-I{SQLITE}", "-c", AMALGAM / "idem.c", "-o",
           tmp_path / "idem.o")
    program = claim_program(tmp_path, f"-I{SQLITE}", f"-I{AMALGAM}", tmp_path / "idem.o",
                            ROOT / "build/sqlite3.o", *CRYPTO, compiler=compiler, language=language)
    assert not [name for name in needed(program) if "sqlite" in name]


def test_the_amalgamation_as_an_extension(tmp_path):
    """The one command of its first lines."""
    output("cc", "-shared", "-fPIC", "-fvisibility=hidden", AMALGAM / "idem.c", "-lcrypto", "-o",
           tmp_path / "idem.so")
    assert exported(tmp_path / "idem.so") == ["sqlite3_idem_init"]
    loads_and_claims(tmp_path / "idem.so")


def test_the_amalgamation_says_nothing_of_this_machine():
    text = (AMALGAM / "idem.c").read_text()
    assert str(ROOT) not in text


def test_the_shell_with_idem_built_in(tmp_path):
    script = textwrap.dedent("""\
        SELECT idem_init();
        SELECT outcome FROM idem_claim('t', 'k', 'fp', 'op', 'token-0123456789');
        SELECT idem_complete('t', 'k', 'token-0123456789', 'done', 201);
        .open second.db
        SELECT idem_init();
        .open first.db
        SELECT outcome, code, response FROM idem_claim('t', 'k', 'fp', 'op');
        SELECT count(*) FROM pragma_module_list WHERE name GLOB 'idem_*';
    """)
    done = subprocess.run([ROOT / "build/idem-shell", "-batch", "-bail", "first.db"], text=True,
                          input=script, capture_output=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["1", "claimed", "1", "1", "replay|201|done", "3"]
    assert not [name for name in needed(ROOT / "build/idem-shell")
                if "sqlite" in name or "crypto" in name]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The source archive, made twice, unpacked somewhere else, and built there without git."""
    make("dist")
    archive = ROOT / "build" / f"idem-{VERSION}.tar.gz"
    first = archive.read_bytes()
    make("dist")
    assert archive.read_bytes() == first, "not the same archive twice"
    folder = tmp_path_factory.mktemp("elsewhere")
    output("tar", "xzf", archive, "-C", folder)
    folder = folder / f"idem-{VERSION}"
    env = {**os.environ, "GIT_DIR": "/nowhere"}
    make("-j2", "idem.so", "static", cwd=folder, env=env)
    make("dist", cwd=folder, env={**env, "SOURCE_DATE_EPOCH": epoch(archive)})
    assert (folder / "build" / archive.name).read_bytes() == first, "another archive from itself"
    return folder


def epoch(archive):
    """The one time that all files of the archive bear."""
    times = {" ".join(line.split()[3:5]) for line in
             output("tar", "--utc", "--full-time", "-tvzf", archive).splitlines()}
    assert len(times) == 1
    return output("date", "--utc", "-d", times.pop(), "+%s").strip()


def test_the_same_bytes_from_another_folder(unpacked):
    make("idem.so", "static")
    for name in ("idem.so", "build/libidem.a", "build/amalgamation/idem.c"):
        assert (unpacked / name).read_bytes() == (ROOT / name).read_bytes(), name


def test_shared_libcrypto(unpacked):
    """CRYPTO=shared, for distributions: a small library that asks for libcrypto.so.3."""
    make("CRYPTO=shared", "idem.so", cwd=unpacked)
    so = unpacked / "idem.so"
    assert sorted(needed(so)) == ["libc.so.6", "libcrypto.so.3"]
    assert exported(so) == ["sqlite3_idem_init"]
    output("strip", so)
    assert so.stat().st_size < 600_000
    loads_and_claims(so)


def test_the_size_is_as_documented():
    """About 4.2 MB stripped: 0.1 MB is idem's code, 0.3 its SQL, and the rest is libcrypto."""
    crypto, sql, ours, rest, whole = (int(line.split()[-1]) for line in
                                      make("size").splitlines()[-5:])
    assert 3_000_000 < crypto < 4_000_000 and rest < 600_000
    assert sql < 400_000 and ours < 150_000
    assert abs(crypto + sql + ours + rest - whole) < 50_000, "something is not counted"

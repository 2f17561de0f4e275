#!/usr/bin/python3
"""versions.py: the tests on other SQLites than the system's: older, newer, compiled by others.

    versions.py list                    the builds, and why each is here
    versions.py run BUILD [FOLDER ...]  pytest on these folders (or those of the build), or -options
    versions.py quick                   what a change must pass: a few minutes
    versions.py all [SECONDS]           every build, one after the other

SQLite's sources travel inside npm packages, which are fetched once into build/versions and compared
with the digests below. Each build becomes a libsqlite3.so.0 in a folder of its own, which
LD_LIBRARY_PATH puts before the system's: Debian's python3 links SQLite dynamically, so its sqlite3
module and the C tests run on that copy. conftest.py refuses to run on any other
(IDEM_SQLITE_VERSION).
"""
import concurrent.futures
import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "versions"
WORK = ROOT / "build" / "versions"
PYTHON = "/usr/bin/python3"


class Source(NamedTuple):
    package: str                # npm's name@version
    sha256: str                 # of the archive
    inner: str                  # an archive inside it that has sqlite3.c, or ""


SOURCES = {
    "3.36.0": Source("better-sqlite3@7.4.4",
                     "1680e0e12c1d4e504ecfd47f9976f2bf2d6757159065e8b8ac38c44a8d6fe63a",
                     "package/deps/sqlite3.tar.gz"),
    "3.37.0": Source("better-sqlite3@7.4.6",
                     "e893c1608ce81fab1e067c958c2c60531d63188b8baa0c2e16a241355480d7d8",
                     "package/deps/sqlite3.tar.gz"),
    "3.44.2": Source("sqlite3@5.1.7",
                     "44cc9bdee02705a7b636f76968d745e21c1d0b2f1c62810c678bc3b0ececab1b",
                     "package/deps/sqlite-autoconf-3440200.tar.gz"),
    "3.53.2": Source("better-sqlite3@12.11.1",
                     "ebf0ed75a7a59dbcb3b24bbd014ef49d9f15bc328e4adcbf516f2a8fadfa2835", ""),
}

# What distributions compile in. JSON1 is a part of SQLite from 3.38 on.
USUAL = """-DSQLITE_ENABLE_COLUMN_METADATA -DSQLITE_ENABLE_DBSTAT_VTAB -DSQLITE_ENABLE_FTS3
 -DSQLITE_ENABLE_FTS4 -DSQLITE_ENABLE_FTS5 -DSQLITE_ENABLE_JSON1 -DSQLITE_ENABLE_MATH_FUNCTIONS
 -DSQLITE_ENABLE_RTREE -DSQLITE_ENABLE_STMTVTAB -DSQLITE_ENABLE_UNLOCK_NOTIFY -DSQLITE_USE_URI
 -DSQLITE_THREADSAFE=1 -DHAVE_USLEEP=1""".split()

# SQLite with its own assertions, and with those on the arguments of its functions.
DEBUG = ["-DSQLITE_DEBUG", "-DSQLITE_ENABLE_API_ARMOR", "-DSQLITE_STRICT_SUBTYPE=1"]

# A host that left out what it could and switched on what is strict: better-sqlite3's own options
# and more. bare.c has what Python's module wants to link to.
BARE = """-DSQLITE_DQS=0 -DSQLITE_OMIT_PROGRESS_CALLBACK -DSQLITE_OMIT_DEPRECATED
 -DSQLITE_TRUSTED_SCHEMA=0 -DSQLITE_STRICT_SUBTYPE=1 -DSQLITE_OMIT_SHARED_CACHE
 -DSQLITE_OMIT_TCL_VARIABLE -DSQLITE_OMIT_DECLTYPE -DSQLITE_OMIT_AUTHORIZATION
 -DSQLITE_OMIT_TRACE -DSQLITE_DEFAULT_MEMSTATUS=0 -DSQLITE_DEFAULT_FOREIGN_KEYS=1
 -DSQLITE_DEFAULT_RECURSIVE_TRIGGERS=1 -DSQLITE_DEFAULT_WAL_SYNCHRONOUS=1
 -DSQLITE_DEFAULT_PAGE_SIZE=65536 -DSQLITE_MAX_DEFAULT_PAGE_SIZE=65536 -DSQLITE_ENABLE_STAT4
 -DSQLITE_LIKE_DOESNT_MATCH_BLOBS -DSQLITE_ENABLE_FTS5 -DSQLITE_ENABLE_RTREE
 -DSQLITE_THREADSAFE=1 -DSQLITE_DEFAULT_AUTOVACUUM=1 -DSQLITE_SECURE_DELETE
 -DHAVE_USLEEP=1""".split()

# Every folder whose tests run inside Python's SQLite.
FOLDERS = """life bugs review traps hostile input simulation sql orm races server ledger fingerprint
 readme fuzz c""".split()
CORE = "life bugs review traps hostile simulation".split()


class Build(NamedTuple):
    why: str
    version: str                # a key of SOURCES, or "" for the system's SQLite
    flags: list
    extra: list = []            # C files of this folder to compile in
    debug: bool = False         # load a build of idem that has its assertions
    asan: bool = False          # SQLite and idem under AddressSanitizer and UBSan
    pragmas: str = ""           # IDEM_PRAGMAS, see conftest.py
    folders: list = FOLDERS


BUILDS = {
    "debug": Build("the newest with SQLite's own assertions", "3.53.2", USUAL + DEBUG, debug=True),
    "oldest": Build("the oldest supported", "3.37.0", USUAL),
    "middle": Build("what node-sqlite3 has", "3.44.2", USUAL),
    "newest": Build("the newest", "3.53.2", USUAL),
    "bare": Build("the newest, nearly everything left out", "3.53.2", BARE, extra=["bare.c"]),
    "asan": Build("assertions and AddressSanitizer", "3.53.2", USUAL + DEBUG, debug=True, asan=True,
                  folders=CORE + ["input", "sql", "orm", "fingerprint", "fuzz", "c"]),
    "utf16": Build("databases in UTF-16", "", [], pragmas="encoding='UTF-16le'"),
    "page512": Build("the smallest pages, UTF-16 the other way round", "", [],
                     pragmas="page_size=512;encoding='UTF-16be'"),
    "page65536": Build("the largest pages", "", [], pragmas="page_size=65536"),
    "refused": Build("one version too old", "3.36.0", USUAL, folders=["versions"]),
}

# What a change must pass, beside `make test-sanitize`, which is all of "asan". Two run at once: they
# wait for much of their time.
QUICK = [("bare", ["bugs", "review", "traps", "hostile"]), ("bare", ["life"]),
         ("oldest", ["life", "ops"]), ("middle", ["life"])]


def say(*words):
    print("versions:", *words, flush=True)


def fetch(version):
    """The folder with sqlite3.c of this version."""
    source, folder = SOURCES[version], WORK / "src" / version
    if (folder / "sqlite3.c").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    say("fetching", source.package)
    out = subprocess.run(["npm", "pack", "--silent", source.package], check=True, text=True,
                         capture_output=True, cwd=folder).stdout
    archive = folder / out.split()[-1]
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != source.sha256:
        sys.exit(f"versions: {source.package} has the digest {digest}, not {source.sha256}")
    with tarfile.open(archive) as outer:
        if source.inner:
            with tarfile.open(fileobj=outer.extractfile(source.inner)) as inner:
                extract(inner, folder)
        else:
            extract(outer, folder)
    archive.unlink()
    if f'"{version}"' not in (folder / "sqlite3.h").read_text():
        sys.exit(f"versions: {source.package} does not hold SQLite {version}")
    return folder


def extract(archive, folder):
    """sqlite3.h and, last, sqlite3.c, wherever they stand in the archive."""
    members = {pathlib.PurePath(m.name).name: m for m in archive.getmembers()}
    for name in ("sqlite3.h", "sqlite3ext.h", "sqlite3.c"):
        (folder / name).write_bytes(archive.extractfile(members[name]).read())


def compile_sqlite(name):
    """The folder with the libsqlite3.so.0 of a build; kept until its command changes."""
    build = BUILDS[name]
    folder, source = WORK / name, fetch(build.version)
    files = [source / "sqlite3.c"] + [HERE / f for f in build.extra]
    # UBSan on SQLite itself finds only its own liberties: idem gets both, SQLite AddressSanitizer.
    asan = ["-fsanitize=address"] if build.asan else []
    command = ["cc", "-O1", "-g", "-fPIC", "-shared", "-Wl,-soname,libsqlite3.so.0", "-w", *asan,
               *build.flags, f"-I{source}", *map(str, files), "-o", str(folder / "libsqlite3.so.0"),
               "-lm", "-lpthread", "-ldl"]
    stamp = "\n".join(command + [f.read_text() for f in files[1:]])
    if (folder / "command").exists() and (folder / "command").read_text() == stamp:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say("compiling SQLite", build.version, f"for '{name}'")
    subprocess.run(command, check=True)
    (folder / "command").write_text(stamp)
    return folder


def compile_idem(build):
    """The extension: the product, or one with assertions, or one under sanitizers."""
    target = "idem.so"
    if build.debug:
        target = "build/asan/idem.so" if build.asan else "build/versions/assertions/idem.so"
    subprocess.run(["make", "-s", target], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return ROOT / target


def shell_of_the_system():
    """The sqlite3 shell runs on no SQLite but its own: a folder with one that finds that again."""
    folder = WORK / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    shell = folder / "sqlite3"
    shell.write_text('#!/bin/sh\nunset LD_LIBRARY_PATH\nexec /usr/bin/sqlite3 "$@"\n')
    shell.chmod(0o755)
    return folder


def environment(name):
    """The variables under which everything runs on this build."""
    build = BUILDS[name]
    env = {**os.environ, "IDEM_SO": str(compile_idem(build)), "IDEM_SQLITE_BUILD": name}
    if build.version:
        env["LD_LIBRARY_PATH"] = str(compile_sqlite(name))
        env["IDEM_SQLITE_VERSION"] = build.version
        env["PATH"] = f"{shell_of_the_system()}:{env['PATH']}"
    if build.pragmas:
        env["IDEM_PRAGMAS"] = build.pragmas
    if build.asan:
        env["LD_PRELOAD"] = " ".join(
            subprocess.run(["cc", f"-print-file-name=lib{library}.so"], check=True, text=True,
                           capture_output=True).stdout.strip() for library in ("asan", "ubsan"))
        env["ASAN_OPTIONS"] = "detect_leaks=0"
        env["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
    return env


def run(name, folders=(), until=None, every=True):
    """True if pytest on the folders passes with this build; on every processor, if that is said."""
    build = BUILDS[name]
    env = environment(name)
    tests = [f if f.startswith("-") else str(ROOT / "tests" / f) for f in folders or build.folders]
    began = time.monotonic()
    say(f"'{name}': {build.why}, SQLite {build.version or 'of the system'}")
    # With a time limit the first failure ends it, so that no cut can hide one.
    limit = dict(timeout=max(1, until - began)) if until else {}
    words = ["-n", str(os.cpu_count()), "--dist", "loadfile"] if every else []
    words += ["-x"] if until else []
    if build.asan:                                  # its memory is another one, and slow to get
        words += ["-k", "not linear_time and not bounded_memory and not cost_of_depth"]
    code = subprocess.run([PYTHON, "-m", "pytest", "-q", "-rs", *words, *tests],
                          cwd=ROOT, env=env, **limit).returncode
    say(f"'{name}' {'passed' if code == 0 else 'FAILED'} in {time.monotonic() - began:.0f} s")
    return code == 0


def run_all(plan, seconds=None):
    """Runs the builds until the time is up; the names of those that failed."""
    until = seconds and time.monotonic() + seconds
    failed = []
    for i, (name, folders) in enumerate(plan):
        try:
            if until and time.monotonic() > until:
                raise subprocess.TimeoutExpired(name, seconds)
            if not run(name, folders, until):
                failed.append(name)
        except subprocess.TimeoutExpired:
            left = [name for name, _ in plan[i:]]
            say(f"out of time after {i} of {len(plan)} builds; not finished:", *left)
            break
    return failed


def run_quick():
    """Compiles what QUICK needs, then runs it; the names of the builds that failed."""
    def job(number):
        name, folders = QUICK[number]
        log = WORK / f"quick-{number}.log"
        with open(log, "w", encoding="utf-8") as out:
            code = subprocess.run([PYTHON, __file__, "beside", name, *folders], stdout=out,
                                  stderr=out).returncode
        lines = log.read_text(errors="replace").splitlines()
        print("\n".join(lines[-6:] if code == 0 else lines), flush=True)
        return [] if code == 0 else [name]

    builds = dict.fromkeys(name for name, _ in QUICK)
    for name in builds:
        compile_idem(BUILDS[name])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_sqlite, builds))
        return sum(pool.map(job, range(len(QUICK))), [])


def main(words):
    if words[:1] == ["list"] and len(words) == 1:
        for name, build in BUILDS.items():
            print(f"{name:10} {build.version or 'system':8} {build.why} {build.pragmas}".rstrip())
        return 0
    if words[:1] in (["run"], ["beside"]) and len(words) > 1 and words[1] in BUILDS:
        return 0 if run(words[1], words[2:], every=words[0] == "run") else 1
    if words == ["quick"]:
        failed = run_quick()
    elif words[:1] == ["all"] and len(words) <= 2:
        plan = [(name, []) for name in BUILDS]
        if words[1:]:                               # a short run begins with another one each time
            first = random.randrange(len(plan))
            plan = plan[first:] + plan[:first]
        failed = run_all(plan, float(words[1]) if words[1:] else None)
    else:
        sys.exit(__doc__)
    if failed:
        say("FAILED:", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

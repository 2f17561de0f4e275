"""The packages, each made, installed into an empty folder and used from there.

Not part of `make test`: `make test-ship` runs it. Node's drivers are those that
tests/drivers/js/install.sh installs; only they come from elsewhere, the packages themselves are
installed without a network.
"""
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import zipfile

import pytest

from conftest import ROOT
from ship.ship_kit import VERSION, exported, glibc, make, needed, output

DRIVERS = ROOT / "build" / "drivers" / "npm" / "node_modules"


def alone(folder, **more):
    """The environment of somebody who has this folder and nothing else of ours."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NODE", "IDEM"))}
    return {**env, "HOME": str(folder), **more}


# npm ---------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """An empty folder after `npm install` of the two archives."""
    make("npm")
    folder = tmp_path_factory.mktemp("node")
    archives = [ROOT / "build/npm" / f"{name}-{VERSION}.tgz"
                for name in ("sqlite-idem-linux-x64", "sqlite-idem")]
    output("npm", "install", "--offline", "--no-audit", "--no-fund", *archives, cwd=folder,
           env=alone(folder))
    return folder


def run_node(folder, program, name="program.cjs", **env):
    (folder / name).write_text(textwrap.dedent(program))
    # The Node.js that the addons were compiled for: see tests/drivers/js/install.sh.
    return output(DRIVERS.parent / "bin" / "node", name, cwd=folder,
                  env=alone(folder, NODE_PATH=str(DRIVERS), **env))


def test_npm_holds_what_it_should(node):
    installed = node / "node_modules"
    files = {str(p.relative_to(installed)) for p in installed.rglob("sqlite-idem*/*")}
    assert files == {f"sqlite-idem/{name}" for name in ("index.cjs", "index.mjs", "index.d.ts",
                     "package.json", "README.md", "LICENSE")} | {
        f"sqlite-idem-linux-x64/{name}" for name in ("idem.so", "package.json", "LICENSE")}
    library = installed / "sqlite-idem-linux-x64" / "idem.so"
    assert exported(library) == ["sqlite3_idem_init"] and needed(library) == ["libc.so.6"]


def test_npm_better_sqlite3(node):
    assert run_node(node, """
        const Database = require('better-sqlite3');
        const idem = require('sqlite-idem');
        const db = new Database(':memory:');
        idem.load(db);
        console.log(db.prepare('SELECT idem_init()').pluck().get());
        const claim = db.prepare(
          "SELECT outcome FROM idem_claim('acct_1', 'order-123', idem_fingerprint(?))").pluck();
        console.log(claim.get('{"amount":1200}'), claim.get('{"amount":1200.0}'));
        db.close();
    """) == "1\nclaimed in_progress\n"


def test_npm_node_sqlite3(node):
    assert run_node(node, """
        const sqlite3 = require('sqlite3');
        const db = new sqlite3.Database(':memory:');
        require('sqlite-idem').load(db, (error) => {
          if (error) throw error;
          db.get('SELECT idem_init() AS n', (error, row) => {
            console.log(error, row.n);
            db.close((error) => console.log(error));
          });
        });
    """) == "null 1\nnull\n"


def test_npm_as_a_module(node):
    said = run_node(node, """
        import idem, { load, getLoadablePath } from 'sqlite-idem';
        console.log(getLoadablePath(), load === idem.load);
    """, name="program.mjs")
    library = node / "node_modules" / "sqlite-idem-linux-x64" / "idem.so"
    assert said == f"{library.resolve()} true\n"


def test_npm_path_of_one_s_own_and_none(node, tmp_path):
    program = "console.log(require('sqlite-idem').getLoadablePath());"
    assert run_node(node, program, IDEM_LOADABLE="/else/idem.so") == "/else/idem.so\n"
    # Without the package of the platform, as with --omit=optional or on a platform that has none.
    (tmp_path / "node_modules").mkdir()
    output("cp", "-r", node / "node_modules" / "sqlite-idem", tmp_path / "node_modules")
    (tmp_path / "program.cjs").write_text(program)
    done = subprocess.run(["node", "program.cjs"], cwd=tmp_path, capture_output=True, text=True,
                          env=alone(tmp_path))
    assert done.returncode != 0
    assert "the package sqlite-idem-linux-x64 is not installed" in done.stderr


# Python ------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A fresh virtual environment with the wheel in it."""
    make("python")
    wheels = list((ROOT / "build/python").glob("*.whl"))
    assert len(wheels) == 1
    folder = tmp_path_factory.mktemp("venv")
    output("/usr/bin/python3", "-m", "venv", folder, env=alone(folder))
    output(folder / "bin/pip", "install", "--quiet", "--no-index", wheels[0], env=alone(folder))
    return folder, wheels[0]


def test_wheel_tag_is_what_the_library_asks_for(python, tmp_path):
    _, wheel = python
    with zipfile.ZipFile(wheel) as z:
        library = pathlib.Path(z.extract("sqlite_idem/idem.so", tmp_path))
        names = {name for name in z.namelist() if ".dist-info" not in name}
        metadata = z.read(f"sqlite_idem-{VERSION}.dist-info/METADATA").decode()
        said = z.read(f"sqlite_idem-{VERSION}.dist-info/WHEEL").decode()
    assert names == {"sqlite_idem/__init__.py", "sqlite_idem/py.typed", "sqlite_idem/idem.so"}
    assert needed(library) == ["libc.so.6"] and exported(library) == ["sqlite3_idem_init"]
    tag = "py3-none-manylinux_{}_{}_x86_64".format(*glibc(library))
    assert wheel.name == f"sqlite_idem-{VERSION}-{tag}.whl"
    assert f"Tag: {tag}\n" in said and "Root-Is-Purelib: false" in said
    assert f"Version: {VERSION}\n" in metadata and "License: MIT" in metadata


def test_wheel_is_used(python):
    folder, _ = python
    program = textwrap.dedent("""\
        import os, sqlite3, sqlite_idem
        db = sqlite3.connect(":memory:", isolation_level=None)
        sqlite_idem.load(db)
        print(db.execute("SELECT idem_init()").fetchall())
        claim = ("SELECT outcome FROM idem_claim('acct_1', 'order-123', idem_fingerprint(?))",
                 ('{"amount":1200}',))
        print(db.execute(*claim).fetchall(), db.execute(*claim).fetchall())
        try:
            db.execute("SELECT load_extension('x')")
        except sqlite3.OperationalError as error:
            print(error)
        print(os.path.relpath(sqlite_idem.loadable_path(), os.environ["HOME"]))
    """)
    said = output(folder / "bin/python", "-c", program, env=alone(folder)).splitlines()
    assert said[:3] == ["[(1,)]", "[('claimed',)] [('in_progress',)]", "not authorized"]
    assert re.fullmatch(r"lib/python3\.\d+/site-packages/sqlite_idem/idem\.so", said[3])


def test_wheel_is_used_by_apsw(python):
    """Debian's apsw calls its functions otherwise than sqlite3 does; newer ones know both names."""
    folder, _ = python
    program = textwrap.dedent("""\
        import apsw, sqlite_idem
        db = apsw.Connection(":memory:")
        sqlite_idem.load(db)
        print(db.cursor().execute("SELECT idem_init()").fetchall())
        try:
            db.cursor().execute("SELECT load_extension('x')")
        except apsw.SQLError as error:
            print(error)
        try:
            sqlite_idem.load(object())
        except RuntimeError as error:
            print(error)
    """)
    site, = folder.glob("lib/python3*/site-packages")
    said = output("/usr/bin/python3", "-c", program,
                  env=alone(folder, PYTHONPATH=str(site))).splitlines()
    assert said[:2] == ["[(1,)]", "SQLError: not authorized"]
    assert "built without loadable extensions" in said[2]


def test_source_package_compiles_with_the_shared_library(python, tmp_path):
    """As a user installs it where no wheel fits."""
    folder, _ = python
    source, = (ROOT / "build/python").glob("*.tar.gz")
    output("/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-index",
           "--no-build-isolation", "--target", tmp_path / "here", source,
           env=alone(folder, IDEM_CRYPTO="shared"))
    library = tmp_path / "here" / "sqlite_idem" / "idem.so"
    assert sorted(needed(library)) == ["libc.so.6", "libcrypto.so.3"]
    program = ("import sqlite3, sqlite_idem as i; d = sqlite3.connect(':memory:'); i.load(d);"
               " print(d.execute('SELECT idem_init()').fetchall())")
    assert output(sys.executable, "-c", program,
                  env=alone(folder, PYTHONPATH=str(tmp_path / "here"))) == "[(1,)]\n"


# Debian ------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def deb():
    make("deb")
    found, = (ROOT / "build/deb").glob("*.deb")
    return found


def field(deb, name):
    return output("dpkg-deb", "--field", deb, name).strip()


def test_deb_says_what_it_is(deb):
    assert field(deb, "Package") == "libsqlite3-mod-idem"
    assert field(deb, "Version") == f"{VERSION}-1"
    depends = field(deb, "Depends")
    assert re.search(r"\blibc6 \(>= 2\.\d+\)", depends)
    assert re.search(r"\blibssl3 \(>= 3\.0\.\d+\)", depends)


def test_deb_the_same_bytes_twice(deb):
    before = deb.read_bytes()
    make("deb")
    assert deb.read_bytes() == before


def test_deb_is_used_from_an_unpacked_tree(deb, tmp_path):
    output("dpkg-deb", "--extract", deb, tmp_path)
    library, = tmp_path.rglob("idem.so")
    assert library.parent.name.endswith("-linux-gnu"), "where the loader looks"
    script = ".load idem\nSELECT idem_init();\nSELECT outcome FROM idem_claim('a', 'k', 'fp');\n"
    done = subprocess.run(["sqlite3", "-batch", "-bail", ":memory:"], input=script, text=True,
                          capture_output=True, env={**os.environ,
                                                    "LD_LIBRARY_PATH": str(library.parent)})
    assert (done.stdout, done.stderr) == ("1\nclaimed\n", "")
    manual = tmp_path / "usr/share/doc/libsqlite3-mod-idem"
    documents = {p.name for p in manual.iterdir()}
    assert documents == {"copyright", "changelog.Debian.gz", "README.md", "sql", "ext"}
    for text in manual / "README.md", manual / "sql" / "README.md":
        links = re.findall(r"(?:\]\(|src=\")((?:sql|ops|ledger|recipes|ext/pictures)/[^)#\"]+)",
                           text.read_text())
        assert len(links) > 5 and all((text.parent / link).exists() for link in links)


@pytest.mark.skipif(os.geteuid() != 0, reason="dpkg --root wants root")
def test_deb_installs_and_goes(deb, tmp_path):
    """With dpkg itself, into a root of its own."""
    (tmp_path / "var/lib/dpkg/info").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/updates").mkdir()
    (tmp_path / "var/lib/dpkg/status").touch()
    dpkg = ["dpkg", f"--root={tmp_path}", "--force-depends", "--force-not-root",
            "--force-script-chrootless", "--log=/dev/null"]
    output(*dpkg, "--install", deb)
    status = output("dpkg-query", f"--admindir={tmp_path}/var/lib/dpkg", "-W",
                    "-f=${Status}", "libsqlite3-mod-idem")
    assert status == "install ok installed"
    files = {str(p.relative_to(tmp_path)) for p in (tmp_path / "usr").rglob("*") if p.is_file()}
    assert {pathlib.Path(name).name for name in files} >= {"idem.so", "libidem.a", "idem.h",
                                                           "idem.pc"}
    output(*dpkg, "--purge", "libsqlite3-mod-idem")
    assert [p for p in (tmp_path / "usr").rglob("*") if p.is_file()] == []

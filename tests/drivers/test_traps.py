"""Habits of drivers that a program with effects must know, pinned so that the README stays true."""
import re
import shutil
import subprocess

import pytest

from conftest import connect
from driver_list import DRIVERS, ENV, HERE, JAR
from test_drivers import ALL, EXPECTED, run, shop, skip  # noqa: F401

BY_NAME = {d.name: d for d in DRIVERS}
# Those that use the system's SQLite. Django says BEGIN before 5.1; Java also to read its settings.
SYSTEM = ["cli", "c", "cpp", "python", "apsw", "sqlalchemy", "django", "ruby", "php", "perl", "tcl",
          "go", "rust", "java"]
OTHERS = {"django": {"BEGIN"}, "java": {"BEGIN"}}


def driver(name):
    missing = BY_NAME[name].missing()
    if missing:
        skip(f"{name} is not installed: {missing}")
    return BY_NAME[name]


@pytest.fixture(scope="module")
def begins(tmp_path_factory):
    """What to preload, so that the statements that begin a transaction are written down."""
    so = tmp_path_factory.mktemp("begins") / "begins.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", str(so),
                    str(HERE / "c" / "begins.c"), "-ldl"], check=True)
    sqlite = subprocess.run(["cc", "-print-file-name=libsqlite3.so"], text=True, check=True,
                            capture_output=True).stdout.strip()
    return f"{so}:{sqlite}"


@pytest.mark.skipif(not ALL, reason="run by make test-drivers")
@pytest.mark.parametrize("name", SYSTEM)
def test_each_program_takes_the_write_lock_first(name, begins, shop):  # noqa: F811
    program = driver(name)
    program.make()
    env = {**ENV, "LD_PRELOAD": begins, "BEGINS": str(shop / "begins")}
    ran = subprocess.run(program.words(program.run, cwd=shop), cwd=shop, env=env, text=True,
                         capture_output=True, timeout=120)
    assert ran.stdout.partition("\n")[2] == EXPECTED, ran.stderr
    said = {re.sub(r"(?i) TRANSACTION|;.*", "", line).upper()
            for line in (shop / "begins").read_text().splitlines()}
    assert said - OTHERS.get(name, set()) == ({"BEGIN IMMEDIATE"} if name != "django" else set())


# What a program may meet between claim and answer that is no error of SQLite's.
STOPS = {"python": "raise KeyboardInterrupt", "apsw": "raise KeyboardInterrupt",
         "sqlalchemy": "raise KeyboardInterrupt", "django": "raise KeyboardInterrupt",
         "ruby": "raise Interrupt", "php": "throw new Error('stop');", "perl": "die 'stop';",
         "tcl": "error stop", "java": "if (pieces > 0) throw new IllegalStateException();"}


@pytest.mark.parametrize("name", STOPS)
def test_no_program_keeps_half_an_order(name, shop):  # noqa: F811
    """The block forms of some drivers commit what was done when something unusual is thrown."""
    program = driver(name)
    if program.slow and not ALL:
        pytest.skip("built by make test-drivers")
    text, found = re.subn(r"(?m)^( *)(?=.*UPDATE stock SET)", rf"\1{STOPS[name]}\n\1",
                          program.path.read_text(), count=1)
    assert found == 1
    folder = shop / "programs" / name
    folder.mkdir(parents=True)
    shutil.copytree(HERE / "python", shop / "programs" / "python", dirs_exist_ok=True)
    (folder / program.path.name).write_text(text)
    if name == "java":
        subprocess.run(["javac", "-encoding", "UTF-8", str(folder / "Shop.java")], check=True)
        command = ["java", "-cp", f"{folder}:{JAR}", "Shop"]
    else:
        command = [word.replace(str(program.path), str(folder / program.path.name))
                   for word in program.words(program.run, cwd=shop)]
    ran = run(command, shop)
    assert ran.returncode != 0 and "fingerprint idem1:" in ran.stdout, ran.stderr
    assert "first " not in ran.stdout
    db = connect(shop / "shop.db", init=False)
    assert db.execute("SELECT (SELECT count(*) FROM orders), (SELECT pieces FROM stock),"
                      " (SELECT count(*) FROM idem_records)").fetchall() == [(0, 10, 0)]
    db.close()


def test_php_runs_a_select_twice(shop):  # noqa: F811
    driver("php")
    ran = run(["php", "-d", f"sqlite3.extension_dir={shop}", str(HERE / "php" / "twice.php")], shop)
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == ["execute 0", "query 0", "querySingle 1", "INSERT 1"]


def test_pdo_has_a_loader_since_php_8_4(shop):  # noqa: F811
    php = driver("php")
    if "pdo_sqlite" not in run(["php", "-m"], shop).stdout:
        skip("PHP's pdo_sqlite is not installed")
    version = tuple(map(int, re.findall(r"\d+", php.version().stdout)[:2]))
    ran = run(["php", str(HERE / "php" / "pdo.php")], shop)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == ("1\n" if version >= (8, 4) else "not authorized\n")

"""Runs a file of sql/ops/ as an operator would: through a driver with named parameters, or
through the sqlite3 shell with `.param set`.
"""
import pathlib
import sqlite3
import subprocess

from conftest import ROOT, SO, one


def text(name):
    return (ROOT / "sql" / "ops" / f"{name}.sql").read_text()


def statements(script):
    """The statements of a script, one by one; comments stay with what follows them."""
    part = ""
    for line in script.splitlines(True):
        part += line
        if sqlite3.complete_statement(part):
            yield part
            part = ""
    assert all(not line or line.startswith("--") for line in part.splitlines()), part


def run(db, name, **params):
    """The rows of each statement that has any. Takes the text from the library: it is bundled."""
    script = one(db, "SELECT idem_schema(?)", f"ops/{name}")
    assert script == text(name), "the library was built from another text"
    rows = [db.execute(part, params).fetchall() for part in statements(script)]
    return [r for r in rows if r]


def quoted(value):
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, (int, float)) else "'" + str(value).replace("'", "''") + "'"


def shell_says(path, script, *options):
    """What an operator sees who types these lines."""
    return subprocess.run(["sqlite3", "-batch", *options, str(path)], text=True, input=script,
                          capture_output=True, timeout=60, cwd=pathlib.Path(path).parent)


def typed(name, load=True, **params):
    """The lines that an operator types to run a file."""
    script = [f".load {SO.removesuffix('.so')}"] if load else []
    for key, value in params.items():
        escaped = quoted(value).replace("\\", "\\\\").replace('"', '\\"')
        script.append(f'.param set :{key} "{escaped}"')
    return "\n".join(script + [f".read {ROOT}/sql/ops/{name}.sql"]) + "\n"


def shell(path, name, *options, load=True, **params):
    """What the shell prints, as lines. A failure is a CalledProcessError with its message."""
    done = shell_says(path, typed(name, load, **params), "-bail", *options)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, "sqlite3", done.stdout, done.stderr)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()

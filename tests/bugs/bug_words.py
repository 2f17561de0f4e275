"""The set-up words of the bug tests: two connections, two forms of a claim, one clock, lost, refused.

The bugs are those that people met in other idempotency libraries, payment back ends and job engines. Each
test names its public sources as owner/repo#number; "source" means that the fault was read in source.
"""
import base64
import importlib.util
import json
import multiprocessing
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

# The shared words, by path: other directories of tests have a conftest of their own.
_spec = importlib.util.spec_from_file_location(
    "idem_shared", pathlib.Path(__file__).resolve().parent.parent / "conftest.py")
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)
connect, one, record, policy, DEEP, SO = (
    shared.connect, shared.one, shared.record, shared.policy, shared.DEEP, shared.SO)

F, F2 = "fp-1", "fp-2"
T = 1_700_000_000_000  # the set clock's start: the time of the first claim
S, H, D = 1000, 3_600_000, 86_400_000
TOK1, TOK2, TOK3 = "first-token-0001", "second-token-002", "third-token-0003"
LEASE, RETENTION, TOMBSTONE = 60 * S, 24 * H, 30 * D  # the default policy

CALL = "INSERT INTO idem_call DEFAULT VALUES RETURNING "
CLAIM = {"table": "SELECT * FROM idem_claim(?, ?, ?, ?, ?)",
         "carrier": CALL + "idem_claim(?, ?, ?, ?, ?)",
         "scalar": "SELECT idem_claim(?, ?, ?, ?, ?)"}


def many(normal=200, deep=1000):
    """How many keys a race is run with."""
    return deep if DEEP else normal


def claim_once(db, form, key, fingerprint=F, operation="pay", token=None, scope="t"):
    """One claim, in one of the forms, as a dict without its NULLs."""
    cur = db.execute(CLAIM[form], (scope, key, fingerprint, operation, token))
    names = [d[0] for d in cur.description]
    rows = cur.fetchall()
    assert len(rows) == 1, rows
    if form == "table":
        answer = dict(zip(names, rows[0]))
    else:
        answer = json.loads(rows[0][0])
        if "response_base64" in answer:
            answer["response"] = base64.b64decode(answer.pop("response_base64"))
    return {name: value for name, value in answer.items() if value is not None}


class Pair:
    """C1 and C2 on one database file; claims in one form, checked against the other form."""

    def __init__(self, path, journal, form):
        self.path, self.journal, self.form = path, journal, form
        self.other = "carrier" if form == "table" else "table"
        self.extra = []
        self.c1 = self.open()
        assert one(self.c1, f"PRAGMA journal_mode = {journal}").upper() == journal
        self.c2 = self.open()
        self.at(0)

    def open(self, **kw):
        db = connect(self.path, check_same_thread=False, **kw)
        # The races are about locks, not about the disk.
        db.execute("PRAGMA synchronous = OFF")
        self.extra.append(db)
        return db

    def close(self):
        for db in self.extra:
            db.close()  # fails if the extension kept a statement

    def at(self, x):
        """Every connection's clock stands at T + x."""
        for db in self.extra:
            assert one(db, "SELECT idem_clock(?)", T + x) == T + x

    def claim(self, db, key, fingerprint=F, operation="pay", token=None, scope="t"):
        """Claims, then asks again in the other form: the answers must agree."""
        answer = claim_once(db, self.form, key, fingerprint, operation, token, scope)
        # A winner is recognised by its token, which nobody else is told.
        assert ("token" in answer) == (answer["outcome"] == "claimed")
        again = claim_once(db, self.other, key, fingerprint, operation, answer.get("token", token), scope)
        assert again == answer
        return answer

    def outcome(self, db, key, *args, **kw):
        return self.claim(db, key, *args, **kw)["outcome"]

    def complete(self, db, key, token, response="done", code=200, headers=None, scope="t"):
        assert one(db, "SELECT idem_complete(?, ?, ?, ?, ?, ?)", scope, key, token, response, code, headers) == 1

    def state(self, key, scope="t"):
        """What idem_records shows; None if no row."""
        row = self.c1.execute("SELECT state FROM idem_records WHERE scope = ? AND key = ?", (scope, key)).fetchone()
        return row and row[0]

    def visible(self, key, *columns, scope="t"):
        """Columns of the record's row in idem_records."""
        rows = self.c1.execute(f"SELECT {', '.join(columns)} FROM idem_records WHERE scope = ? AND key = ?",
                               (scope, key)).fetchall()
        assert len(rows) == 1, rows
        return rows[0]

    def count(self, where="1"):
        return one(self.c1, f"SELECT count(*) FROM idem_store WHERE {where}")


def everything(db):
    """All that the store holds: equal before and after means that nothing was written."""
    return [db.execute(f"SELECT * FROM main.{table}").fetchall()
            for table in ("idem_store", "idem_audit", "idem_inbox", "idem_policy")]


def fails(db, code, sql, *args):
    """The statement fails with this (extended or primary) code and writes nothing; returns the text."""
    before = everything(db)
    with pytest.raises(sqlite3.Error) as error:
        db.execute(sql, args).fetchall()
    assert code in (error.value.sqlite_errorcode, error.value.sqlite_errorcode & 0xff), repr(error.value)
    assert everything(db) == before
    return str(error.value)


def lost(db, sql, *args):
    """An error of the constraint class that starts with the function's name; nothing is changed."""
    text = fails(db, sqlite3.SQLITE_CONSTRAINT, sql, *args)
    assert text.startswith(called(sql) + ": "), text
    return text


def refused(db, sql, *args, says=()):
    """An argument error: starts with the function's name, says what and the limit; nothing is written."""
    text = fails(db, sqlite3.SQLITE_ERROR, sql, *args)
    assert text.startswith(called(sql) + ": "), text
    for word in says:
        assert word in text, text
    return text


def refused_claim(db, *args, says=()):
    """A claim's argument error, the same in both forms. args: scope, key, fingerprint, operation, token."""
    args = (args + (None, None))[:5]
    texts = {refused(db, CLAIM[form], *args, says=says) for form in CLAIM}
    assert len(texts) == 1, texts


def called(sql):
    """The function that a statement calls."""
    start = sql.index("idem_", sql.index("RETURNING") if "RETURNING" in sql else 0)
    return sql[start:sql.index("(", start)]


def together(*functions):
    """Runs each function in a thread of its own, all starting at once; returns their results."""
    start, results, errors = threading.Barrier(len(functions)), [None] * len(functions), []

    def run(i, function):
        try:
            start.wait()
            results[i] = function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=item) for item in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def _in_process(start, results, function, args):
    start.wait()
    results.put(function(*args))


def in_processes(function, *arguments):
    """Runs function(*arguments[i]) in process i, all starting at once; returns the results, in any order."""
    mp = multiprocessing.get_context("spawn")
    start, results = mp.Barrier(len(arguments)), mp.Queue()
    processes = [mp.Process(target=_in_process, args=(start, results, function, args)) for args in arguments]
    for process in processes:
        process.start()
    answers = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return answers


def killed(path, *statements):
    """Another process runs the statements at T, one after the other, and is killed."""
    script = ("import os, signal, sys; sys.path.insert(0, sys.argv[1]); import bug_words\n"
              "db = bug_words.connect(sys.argv[2], init=False)\n"
              "for sql in sys.argv[3:]: print(db.execute(sql).fetchall(), flush=True)\n"
              "os.kill(os.getpid(), signal.SIGKILL)\n")
    child = subprocess.run([sys.executable, "-c", script, os.path.dirname(__file__), str(path),
                            f"SELECT idem_clock({T})", *statements], capture_output=True, text=True)
    assert child.returncode == -signal.SIGKILL, child.stderr
    return child.stdout.splitlines()[1:]

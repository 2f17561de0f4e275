"""Processes that start together, a crowd for races; and the four forms of a claim."""
import json
import multiprocessing
import sqlite3
import traceback

from conftest import connect

CONTEXT = multiprocessing.get_context("fork")


def member(function, number, start, path, queue, args):
    try:
        db = connect(path, init=False)
        db.execute("PRAGMA synchronous = OFF")
        queue.put((number, function(db, number, start, *args), None))
        db.close()
    except BaseException:                         # reported by the parent
        start.abort()
        queue.put((number, None, traceback.format_exc()))


def crowd(size, function, path, *args):
    """Runs function(db, number, barrier, *args) in so many processes; their results in order.

    The parent must have no connection open: a connection does not survive a fork.
    """
    start, queue = CONTEXT.Barrier(size), CONTEXT.Queue()
    procs = [CONTEXT.Process(target=member, args=(function, i, start, path, queue, args))
             for i in range(size)]
    for p in procs:
        p.start()
    results = [queue.get(timeout=300) for _ in procs]
    for p in procs:
        p.join(60)
    errors = [e for _, _, e in results if e]
    assert not errors, errors[0]
    return [result for _, result, _ in sorted(results, key=lambda r: r[0])]


def is_busy(e):
    return e.sqlite_errorcode & 0xff == sqlite3.SQLITE_BUSY


# Each claims with operation 'op' and says whether it won.

def by_scalar(db, key, token):
    cur = db.execute("SELECT idem_claim('t', ?, 'fp', 'op', ?)", (key, token))
    return json.loads(cur.fetchall()[0][0])["outcome"] == "claimed"


def by_table(db, key, token):
    cur = db.execute("SELECT outcome FROM idem_claim('t', ?, 'fp', 'op', ?)", (key, token))
    return cur.fetchall()[0][0] == "claimed"


def by_carrier(db, key, token):
    cur = db.execute("INSERT INTO idem_call DEFAULT VALUES RETURNING idem_claim('t', ?, 'fp', 'op', ?)",
                     (key, token))
    return json.loads(cur.fetchall()[0][0])["outcome"] == "claimed"


def by_records(db, key, token):
    cur = db.execute("INSERT OR IGNORE INTO idem_records(scope, key, fingerprint, operation, token) "
                     "VALUES('t', ?, 'fp', 'op', ?)", (key, token))
    return cur.rowcount == 1


FORMS = {"scalar": by_scalar, "table": by_table, "carrier": by_carrier, "records": by_records}

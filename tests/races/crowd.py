"""Processes that start together: a crowd for races."""
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

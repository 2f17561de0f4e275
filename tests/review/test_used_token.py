"""A token is of one attempt: whoever brings it again is refused, even if all else came round to what it was.

What was wrong: every write repeats what its verdict was based on, so that a change in between is noticed. It
repeated the id, the state, the time and the token, but not the attempt. A claim that had read a released
record, and then waited for the write lock, could not see that the record had been claimed, suspended and
released again meanwhile: state, time and token recur. If it came with the token of that attempt (a client that
retries with its own) it was granted a token whose work may have been done.
"""
import sqlite3
import threading

import pytest

from conftest import claim, connect, needs_trace, one, policy, record

FIRST, SECOND = "token-of-attempt-1", "token-of-attempt-2"


def waiting_claim(path, operation):
    """Runs a claim in a thread. Returns when it has read the record and is about to write it.

    The scalar form: in autocommit it reads without the write lock.
    """
    told, about_to_write = [], threading.Event()

    def run():
        db = connect(path, init=False)
        db.set_trace_callback(lambda text: "UPDATE main.idem_store" in text and about_to_write.set())
        try:
            told.append(one(db, "SELECT json_extract(idem_claim('t','k','fp',?,?), '$.outcome')", operation, SECOND))
        except sqlite3.Error as e:
            told.append(e)
        db.set_trace_callback(None)
        db.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert about_to_write.wait(10), told
    return thread, told


@needs_trace
@pytest.mark.parametrize("operation", ["plain", "audited"])
def test_a_token_that_was_used_while_the_claim_waited(path, operation):
    b = connect(path)
    b.execute("PRAGMA journal_mode = WAL").fetchall()
    policy(b, "audited", audit="all")
    claim(b, "k", operation=operation, token=FIRST)
    one(b, "SELECT idem_suspend('t','k',?)", FIRST)
    one(b, "SELECT idem_resolve('t','k','retry')")
    b.execute("BEGIN IMMEDIATE")
    thread, told = waiting_claim(path, operation)
    try:
        assert claim(b, "k", operation=operation, token=SECOND)["outcome"] == "claimed"
        one(b, "SELECT idem_suspend('t','k',?)", SECOND)
        one(b, "SELECT idem_resolve('t','k','retry')")
    finally:
        b.execute("COMMIT")
        thread.join()
    assert isinstance(told[0], sqlite3.IntegrityError), told
    assert "token" in str(told[0]) and "used" in str(told[0]), told
    row = record(b, "k")
    assert (row["state"], row["attempt"], row["token"]) == ("released", 2, None)
    assert claim(b, "k", operation=operation, token="token-of-attempt-3")["attempt"] == 3
    b.close()

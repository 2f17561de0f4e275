"""The scenario of ../expected.txt for every Python driver: what is spelled differently comes in.

open_shop() and place_order(db, key, body, pieces) are the driver's example; row(db, sql, *values)
gives the only row of a statement with ? marks; close(db) must raise if the close fails.
"""
import hashlib
import os
import ssl  # noqa: F401  the process holds another libcrypto before idem comes


def say(name, *words):
    print(f"{name:<11}", *words)


def shown(value):
    if isinstance(value, bytes):
        return "blob " + value.hex()
    return "null" if value is None else f"text '{value}'"


def refusal(words, error, call, *arguments):
    """The words, if the call fails with this error and these words in its message."""
    try:
        call(*arguments)
    except error as e:
        return words if words in str(e) else f"{e!r}"
    return "no error"


def run(open_shop, place_order, row, error, close=lambda db: db.close()):
    assert hashlib.sha256(b"abc").hexdigest().startswith("ba7816bf")
    db = open_shop()
    print("#", *row(db, "SELECT idem_version()"))
    row(db, "PRAGMA journal_mode = WAL")
    row(db, "SELECT idem_init()")

    say("fingerprint", *row(db, "SELECT idem_fingerprint(?)", '{"pieces":3}'))
    say("first", *place_order(db, "k-1", '{"pieces":3}', 3))
    say("retry", *place_order(db, "k-1", '{ "pieces": 3.0 }', 3))
    say("other body", *place_order(db, "k-1", '{"pieces":4}', 4))
    say("sold out", refusal("CHECK constraint failed", error,
                            place_order, db, "k-2", '{"pieces":8}', 8))
    say("rolled back", "%d order, %d pieces left" % tuple(row(
        db, "SELECT (SELECT count(*) FROM orders), pieces FROM stock")))
    say("fewer", *place_order(db, "k-2", '{"pieces":5}', 5))

    row(db, "SELECT idem_clock(?)", 4102444800000)         # the year 2100: more than 32 bits
    say("claimed", "until", *row(db, "SELECT lease_until FROM idem_claim('shop', 'job', 'fp')"))
    say("in progress", "%d, retry after %d ms" % tuple(row(
        db, "SELECT http_status, retry_after_ms FROM idem_claim('shop', 'job', 'fp')")))
    row(db, "SELECT idem_clock(?)", None)
    say("wrong token", refusal("claim lost", error, row, db,
                               "SELECT idem_complete('shop', 'job', ?, 'x')",
                               "not-its-token-at-all"))

    def replay(key):
        outcome, code, answer = row(
            db, "SELECT outcome, code, response FROM idem_claim('shop', ?, 'fp')", key)
        assert outcome == "replay"
        return code, shown(answer)

    for name, answer, code in (("blob", b"\x00\xff\x7f\x80", 200), ("null", None, 204),
                               ("empty", "", 200), ("text", "שלום", 200)):
        token, = row(db, "SELECT token FROM idem_claim('shop', ?, 'fp')", name)
        row(db, "SELECT idem_complete('shop', ?, ?, ?, ?)", name, token, answer, code)
        say(name, *replay(name))

    close(db)
    say("closed", "a -wal" if os.path.exists("shop.db-wal") else "no -wal")
    db = open_shop()
    say("reopened", *place_order(db, "k-1", '{"pieces":3}', 3))
    say("kept", *replay("blob"))
    close(db)

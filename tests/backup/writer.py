#!/usr/bin/env python3
"""writer.py DATABASE NAME: claims, executes, completes, until it is killed or, by SIGTERM, asked to
stop after the key in hand. One line per promise:

    claimed NAME-12        idem said so (and the claim is committed)
    charged NAME-12 UUID   the provider was called, with the key that idem derived
    done NAME-12           idem_complete is committed
"""
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from conftest import claim, connect, one  # noqa: E402


def main():
    path, name = sys.argv[1:]
    db = connect(path)
    n, stop = 0, []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    while not stop:
        key, n = f"{name}-{n}", n + 1
        answer = claim(db, key)
        assert answer["outcome"] == "claimed", answer
        print("claimed", key, flush=True)
        print("charged", key, one(db, "SELECT idem_derive_key(?, 'charge')", key), flush=True)
        one(db, "SELECT idem_complete('t', ?, ?, ?, 201)", key, answer["token"], "answer of " + key)
        print("done", key, flush=True)
    db.close()


if __name__ == "__main__":
    main()

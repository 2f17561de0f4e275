#!/usr/bin/env python3
"""Runs SQL from standard input on a dqlite cluster, and prints the rows as the sqlite3 shell does.

    python3 tests/cluster/sql.py ADDRESS[,ADDRESS ...] DATABASE < script.sql

Statements that yield rows (SELECT, RETURNING) go out as QUERY, all others as EXEC, as a PRAGMA that
sets something does (if it answers with a row, dqlite calls that an error). An error is
printed and the next statement goes on; the exit code is then 1.
"""
import pathlib
import re
import sqlite3
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cluster.wire import Client, Refused  # noqa: E402


def find_leader(addresses):
    for address in addresses:
        try:
            with Client(address, timeout=2) as c:
                leader = c.leader()
                if leader:
                    return leader
        except OSError:
            pass
    raise SystemExit(f"no leader known at {', '.join(addresses)}")


def statements(text):
    part = ""
    for piece in re.findall(r"[^;]*;|[^;]+$", text):
        part += piece
        if sqlite3.complete_statement(part):
            yield part.strip()
            part = ""
    if part.strip():
        yield part.strip()


def yields_rows(sql):
    """By its words, without what is quoted and the comments."""
    quoted = r"'[^']*'|\"[^\"]*\"|`[^`]*`|\[[^]]*\]|--[^\n]*|/\*.*?\*/"
    bare = re.sub(quoted, " x ", sql, flags=re.S).upper()
    first = next((w for w in re.findall(r"\w+|=", bare) if w != "X"), "")
    writes = re.search(r"\b(INSERT|UPDATE|DELETE|REPLACE)\b(?!\s*\()", bare)
    if re.search(r"\bRETURNING\b", bare) or first in ("SELECT", "VALUES", "EXPLAIN"):
        return True
    return first == "WITH" and not writes or first == "PRAGMA" and "=" not in bare


def run(db, sql):
    if yields_rows(sql):
        for row in db.query(sql):
            print("|".join("" if v is None else str(v) for v in row))
    else:
        db.execute(sql)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: sql.py ADDRESS[,ADDRESS...] DATABASE < script.sql")
    addresses, database = sys.argv[1].split(","), sys.argv[2]
    status = 0
    with Client(find_leader(addresses), database) as db:
        for sql in statements(sys.stdin.read()):
            try:
                run(db, sql)
            except Refused as e:
                print(f"Error: {e.message} ({e.code})")
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

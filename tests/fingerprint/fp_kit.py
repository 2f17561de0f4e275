"""What the fingerprint tests share: connections, calls with their refusals, real payloads.

IDEM_SO names another build of the extension than the one in the root; IDEM_DEEP=1 asks for the long
form of the random tests.
"""
import base64
import json
import os
import pathlib
import re
import sqlite3

import pytest

from conftest import shape

ROOT = pathlib.Path(__file__).resolve().parents[2]
SO = os.environ.get("IDEM_SO", str(ROOT / "idem.so"))
DATA = ROOT.parent / "shared" / "data"
DEEP = os.environ.get("IDEM_DEEP") == "1"

needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the collected test data (../shared/data) is not beside the project"
)

FUNCTIONS = {"idem_fingerprint": "idem1:", "idem_hmac_fingerprint": "idemh1:", "idem_fingerprint_raw": "idemr1:"}
REFUSAL = re.compile(r"(idem_[a-z_]+): ([a-z0-9_]+) at byte (\d+)(?:: .+)?\Z", re.S)


class Refusal:
    """An error of the form 'function: kind at byte n'."""

    def __init__(self, message):
        found = REFUSAL.match(message)
        assert found, f"not a refusal: {message!r}"
        self.function, self.kind, self.offset = found[1], found[2], int(found[3])
        self.message = message

    def __eq__(self, other):
        return isinstance(other, Refusal) and (self.kind, self.offset) == (other.kind, other.offset)

    def __repr__(self):
        return f"<{self.message}>"


def connect(database=":memory:", **options):
    db = sqlite3.connect(database, **options)
    shape(db)
    db.enable_load_extension(True)
    db.load_extension(SO)
    db.enable_load_extension(False)
    return db


def call(db, function, *arguments):
    """The function's result, or its Refusal."""
    marks = ",".join("?" * len(arguments))
    try:
        return db.execute(f"SELECT {function}({marks})", arguments).fetchone()[0]
    except sqlite3.DatabaseError as error:
        return Refusal(str(error))


def fingerprint(db, payload, *paths):
    result = call(db, "idem_fingerprint", payload, *paths)
    assert isinstance(result, Refusal) or re.fullmatch("idem1:[0-9a-f]{64}", result)
    return result


def canonical(db, payload, *paths):
    """The canonical text as bytes, or the Refusal."""
    result = call(db, "idem_canonical", payload, *paths)
    return result if isinstance(result, Refusal) else result.encode("utf-8")


def vectors():
    """Vectors as dicts whose a and b are bytes."""
    file = DATA / "fingerprint-vectors.jsonl"
    if not file.exists():
        return []
    out = []
    for line in file.read_text("utf-8").splitlines():
        vector = json.loads(line)
        for side in "ab":
            if side + "_b64" in vector:
                vector[side] = base64.b64decode(vector[side + "_b64"])
            elif side in vector:
                vector[side] = vector[side].encode("utf-8")
        out.append(vector)
    return out


def payload_files():
    """Real request and webhook bodies."""
    files = sorted(DATA.glob("github-webhooks/**/*.json")) + sorted(DATA.glob("shopify-fixtures/**/*.json"))
    return files + sorted(DATA.glob("stripe-fixtures/*.json"))

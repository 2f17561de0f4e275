"""The project's own vectors, and the answers the specification states."""
import hashlib
import hmac

import pytest

from fp_kit import Refusal, canonical, call, connect, fingerprint, needs_data, vectors
import oracle

VECTORS = vectors()


@pytest.fixture(scope="module")
def db():
    return connect()


@needs_data
def test_all_vectors_are_there():
    assert len(VECTORS) == 111
    count = {kind: sum(v["relation"] == kind for v in VECTORS) for kind in ("equal", "differ", "reject_a")}
    assert count == {"equal": 40, "differ": 27, "reject_a": 44}
    assert len({v["name"] for v in VECTORS}) == 111


@needs_data
@pytest.mark.parametrize("vector", VECTORS, ids=[v["name"] for v in VECTORS])
def test_vector(db, vector):
    paths = vector.get("paths", [])
    a = fingerprint(db, vector["a"], *paths)
    if vector["relation"] == "reject_a":
        assert isinstance(a, Refusal)
        assert (a.kind, a.offset) == (vector["error"]["kind"], vector["error"]["offset"])
        assert canonical(db, vector["a"], *paths) == a
        return
    b = fingerprint(db, vector["b"], *paths)
    assert isinstance(a, str) and isinstance(b, str)
    assert (a == b) == (vector["relation"] == "equal")
    if "canonical_a" in vector:
        assert canonical(db, vector["a"], *paths) == vector["canonical_a"].encode("utf-8")


@needs_data
@pytest.mark.parametrize("vector", VECTORS, ids=[v["name"] for v in VECTORS])
def test_oracle_agrees_with_vector(vector):
    """Who checks the checker: the oracle must pass the vectors as well."""
    paths = vector.get("paths", [])
    if vector["relation"] == "reject_a":
        with pytest.raises(oracle.Refused) as refused:
            oracle.canonical(vector["a"], paths)
        assert refused.value.kind == vector["error"]["kind"]
        assert refused.value.offset == vector["error"]["offset"]
        return
    a, b = (oracle.canonical(vector[side], paths) for side in "ab")
    assert (a == b) == (vector["relation"] == "equal")
    if "canonical_a" in vector:
        assert a == vector["canonical_a"].encode("utf-8")


def test_known_answers(db):
    payload, secret = '{"currency":"ILS","amount":1200.0}', "0123456789abcdef"
    answers = {
        ("idem_fingerprint", "{}"): "idem1:e8602798346d5df40959a7817eee6f4376e351150f87dfd8287a4cbc868e69cc",
        ("idem_fingerprint", payload): "idem1:bc49dafa11b5a6f9a70541a35014de70bb2ba0b092563ba130428ac9e8218f99",
        ("idem_hmac_fingerprint", secret, payload):
            "idemh1:307ccce49868b9d77ea49471829257d30cfcc74deb9ff94d2c4146da0eedb991",
        ("idem_fingerprint_raw", "abc"): "idemr1:890f4f22975e34036bcb46e01fee462ccb68c16f7a1726345f985b7b246c6b90",
    }
    for arguments, answer in answers.items():
        assert call(db, *arguments) == answer


@pytest.mark.parametrize("size", [0, 1, 40, 45, 46, 53, 54, 55, 63, 64, 109, 110, 118, 119, 1000, 70000])
def test_hashes_are_those_of_hashlib(db, size):
    """Around every boundary of SHA-256's blocks, prefix included."""
    text = ('"' + "x" * size + '"').encode()
    secret = b"0123456789abcdef" * (1 + size % 9)
    assert fingerprint(db, text) == "idem1:" + hashlib.sha256(b"idem-fp/1\n" + text).hexdigest()
    assert call(db, "idem_fingerprint_raw", text) == "idemr1:" + hashlib.sha256(b"idem-raw/1\n" + text).hexdigest()
    mac = hmac.new(secret, b"idem-fp/1\n" + text, "sha256").hexdigest()
    assert call(db, "idem_hmac_fingerprint", secret, text) == "idemh1:" + mac

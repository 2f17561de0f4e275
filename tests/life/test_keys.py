"""Keys: read from a header, derived for downstream calls, made afresh."""
import hashlib
import itertools
import time
import uuid

import pytest
from life_kit import T, clock, connect, one, refused


@pytest.fixture(scope="module")
def db():
    db = connect(":memory:", init=False)
    yield db
    db.close()


# idem_header_key

UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"
HEADERS = [
    (f'"{UUID}"', UUID), (UUID, UUID), (f"  {UUID}\t", UUID), (f'\t "{UUID}" ', UUID),
    ('"a b"', "a b"), ('" a "', " a "), (r'"a\"b"', 'a"b'), (r'"a\\b"', "a\\b"), (r'"\\\""', '\\"'),
    ('"a,b;c"', "a,b;c"), ('"~!@#$%^&*()"', "~!@#$%^&*()"), ("a", "a"), ('"a"', "a"), ("0", "0"),
    ("false", "false"), ("a" * 255, "a" * 255), ('"' + "a" * 255 + '"', "a" * 255),
    ('"' + r"\"" * 255 + '"', '"' * 255), ("a/b+c=d:e.f_g~h", "a/b+c=d:e.f_g~h"), ("'a'", "'a'"),
    (":YWJj:", ":YWJj:"), ("?1", "?1"), ("(a)", "(a)"),
]
MALFORMED = [
    "", " ", "\t", '"', '""', '"a', 'a"', '"a"b', '"a""b"', '"a" "b"', 'a"b', r'"a\b"', '"a\\"', "\\",
    r"a\b", "a b", "a\tb", "a,b", "a, b", "a;b", '"a";b=1', '"a", "b"', '"a",', "a,", ";a", ",",
    "a\nb", "a\r\n", '"a\nb"', '"a\tb"', "a\x7f", '"a\x7f"', "\x01", "\u00e9", '"\u00e9"', "a\u0000",
    'a\u0000b', '"a\u0000b"', '"a"\u0000', "a" * 256, '"' + "a" * 256 + '"', '"' + r"\\" * 256 + '"',
    "a" * 100_000, '"' + "a" * 100_000, "\u201ca\u201d", " a b ", "\u00a0a", "a\x0b", "a\x0c",
]


@pytest.mark.parametrize("header, key", HEADERS, ids=range(len(HEADERS)))
@pytest.mark.parametrize("as_bytes", [False, True])
def test_header_key_reads(db, header, key, as_bytes):
    got = one(db, "SELECT idem_header_key(?)", header.encode() if as_bytes else header)
    assert got == key and type(got) is str


@pytest.mark.parametrize("header", MALFORMED, ids=range(len(MALFORMED)))
def test_header_key_refuses(db, header):
    for value in (header, header.encode()):
        error = refused(db, "SELECT idem_header_key(?)", value, text="not an Idempotency-Key value",
                        code="SQLITE_ERROR", begins="idem_header_key:")
        assert len(str(error)) < 200                       # never quotes what a stranger sent


def test_header_key_of_no_header_is_no_key(db):
    assert one(db, "SELECT idem_header_key(NULL)") is None


@pytest.mark.parametrize("value", [7, 1.5])
def test_header_key_refuses_numbers(db, value):
    refused(db, "SELECT idem_header_key(?)", value, text="is a number", code="SQLITE_ERROR")


def test_every_byte_alone(db):
    """All 256 values of a byte, bare and quoted, against the rule in Python."""
    for c in range(256):
        byte = bytes([c])
        for header, good in ((byte, 0x21 <= c <= 0x7e and byte not in b'"\\,;'),
                             (b'"x' + byte + b'"', 0x20 <= c <= 0x7e and byte not in b'"\\')):
            try:
                got = one(db, "SELECT idem_header_key(?)", header)
                assert good and got == header.strip(b'"').decode(), header
            except Exception as error:
                assert not good and "idem_header_key:" in str(error), header


def test_every_key_from_a_header_can_be_claimed(path):
    db = connect(path)
    for i, (header, _) in enumerate(HEADERS):
        assert one(db, "SELECT outcome FROM idem_claim(?, idem_header_key(?), 'fp')", f"s{i}",
                   header) == "claimed"
    db.close()


# idem_derive_key

def derive(*args):
    """The documented derivation: SHA-256 over a prefix, then type, length and bytes of each argument."""
    data = b"idem-derive/1\n"
    for arg in args:
        if isinstance(arg, (int, float)):
            kind, part = b"t", str(int(arg)).encode()    # a number is its digits
        elif isinstance(arg, str):
            kind, part = b"t", arg.encode()
        else:
            kind, part = b"b", arg
        data += kind + len(part).to_bytes(8, "big") + part
    digest = bytearray(hashlib.sha256(data).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(digest)))


def sql_derive(db, *args):
    return one(db, f"SELECT idem_derive_key({', '.join('?' * len(args))})", *args)


STEPS = ["charge", "", "a", "b", "ab", "+1", "01", "\u00e9", "e\u0301", "a\u0000b", "a\u0000", "i", "t", "b" * 300,
         b"charge", b"", b"a", b"1", b"\x00", b"\x00\x00", b"\xff", b"t\x00\x00\x00\x00\x00\x00\x00\x01a",
         1, -1, 0, 2**63 - 1, -2**63]


def test_derive_key_is_the_documented_derivation(db):
    seen = {}
    for n in (1, 2):
        for steps in itertools.product(STEPS, repeat=n):
            for key in ("k", "ka") if n == 1 else ("k",):
                got = sql_derive(db, key, *steps)
                assert got == derive(key, *steps)
                assert seen.setdefault(got, (key, steps)) == (key, steps)
    assert len(seen) == 2 * len(STEPS) + len(STEPS) ** 2


def test_derive_key_is_injective_over_boundaries_and_types(db):
    lists = [("a", "b", "c"), ("a", "bc"), ("ab", "c"), ("abc", ""), ("a", "b", "c", ""), ("a", "", "bc"),
             ("a", "b,c"), ("a", "01"), ("a", 1), ("a", b"1"), ("a", ""), ("a", b""), ("a", 0), ("a", "00"),
             ("A", "1"), ("a", "1", ""), ("a", "b\u0000c"), ("a", "b", "\u0000c")]
    keys = [sql_derive(db, *args) for args in lists]
    assert len(set(keys)) == len(lists)


def test_derive_key_is_a_uuid_version_8(db):
    u = uuid.UUID(sql_derive(db, "k", "charge"))
    assert u.version == 8 and u.variant == uuid.RFC_4122 and str(u) == sql_derive(db, "k", "charge")


def test_derive_key_is_pinned(db):
    """Written down once: a new release must send the provider the same key."""
    assert sql_derive(db, "order-123", "charge") == PINNED
    assert derive("order-123", "charge") == PINNED


PINNED = "e2160660-92bd-8a95-8ced-5d46d756af0f"


def test_derive_key_takes_an_integral_real_for_the_integer(db):
    assert sql_derive(db, "k", 7.0) == sql_derive(db, "k", 7)
    assert sql_derive(db, "k", -0.0) == sql_derive(db, "k", 0)


def test_derive_key_takes_a_number_as_its_digits(db):
    """Perl's DBI binds every number as text, Python does not: both must send the provider one key."""
    assert sql_derive(db, "k", "7") == sql_derive(db, "k", 7) != sql_derive(db, "k", "07")
    assert sql_derive(db, "k", "7") != sql_derive(db, "k", b"7")


def test_derive_key_does_not_depend_on_the_database(db, path):
    wide = connect(path, init=False)
    wide.execute("PRAGMA encoding = 'UTF-16le'")
    wide.execute("CREATE TABLE t(k TEXT, s TEXT)")
    wide.execute("INSERT INTO t VALUES ('k\u00e9', '\U0001f600')")
    assert one(wide, "SELECT idem_derive_key(k, s) FROM t") == derive("k\u00e9", "\U0001f600")
    wide.close()


def test_derive_key_takes_many_steps(db):
    steps = list(range(90))
    assert sql_derive(db, "k", *steps) == derive("k", *steps)


@pytest.mark.parametrize("args, text", [
    (("k",), "wrong number of arguments"), ((), "wrong number of arguments"),
    ((None, "s"), "key is NULL"), (("k", None), "step is NULL"), (("k", "s", None), "step is NULL"),
    (("", "s"), "key is empty"), (("k" * 256, "s"), "256 characters, the limit is 255"),
    (("a\u0000b", "s"), "control"), ((b"k", "s"), "key is not TEXT"), ((7, "s"), "key is not TEXT"),
    (("k", 1.5), "step is not an integer"), (("k", 1e300), "step is a REAL beyond 2^53"),
    (("k", 1e17), "bind it as an INTEGER")], ids=range(13))
def test_derive_key_refuses(db, args, text):
    refused(db, f"SELECT idem_derive_key({', '.join('?' * len(args))})", *args, text=text,
            code="SQLITE_ERROR")


# idem_key

def test_key_is_uuid_version_7_of_now(db):
    before = time.time_ns() // 1_000_000
    key = one(db, "SELECT idem_key()")
    after = time.time_ns() // 1_000_000
    u = uuid.UUID(key)
    assert str(u) == key and u.version == 7 and u.variant == uuid.RFC_4122
    assert before <= u.int >> 80 <= after


def test_keys_are_unique_and_random(db):
    clock(db, T)
    keys = [row[0] for row in db.execute(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT idem_key() FROM n")]
    assert len(set(keys)) == 20000
    # 74 bits are random: each must be set about half of the time.
    ones = [0] * 128
    for key in keys:
        n = uuid.UUID(key).int
        for bit in range(128):
            ones[bit] += n >> bit & 1
    random = [bit for bit in range(80) if bit not in (62, 63, 76, 77, 78, 79)]
    assert all(9400 < ones[bit] < 10600 for bit in random)
    one(db, "SELECT idem_clock(NULL)")


def test_keys_sort_by_time(db):
    keys = []
    for ms in (0, 1, 255, 256, 65535, 65536, 2**40, T - 1, T, T + 1, T + 1000, 253_402_300_799_999):
        clock(db, ms)
        keys.append(one(db, "SELECT idem_key()"))
        assert uuid.UUID(keys[-1]).int >> 80 == ms
    assert keys == sorted(keys)
    one(db, "SELECT idem_clock(NULL)")


def test_a_fresh_key_is_made_per_row(db):
    assert len({row[0] for row in db.execute("SELECT idem_key() FROM (VALUES (1), (2), (3))")}) == 3

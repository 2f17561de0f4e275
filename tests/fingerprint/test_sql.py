"""The functions as SQL sees them: argument types, errors, encodings, statements, threads."""
import concurrent.futures
import itertools
import json
import re
import sqlite3
import time

import pytest

from fp_kit import FUNCTIONS, REFUSAL, Refusal, call, canonical, connect, fingerprint

SECRET = "0123456789abcdef"


@pytest.fixture
def db():
    return connect()


def error(db, function, *arguments):
    with pytest.raises(sqlite3.DatabaseError) as raised:
        db.execute(f"SELECT {function}({','.join('?' * len(arguments))})", arguments).fetchall()
    return str(raised.value)


# --- registration ----------------------------------------------------------------------------


def test_functions_are_the_extension_s():
    """Without the extension they do not exist: no test here passes for another reason."""
    bare = sqlite3.connect(":memory:")
    for function in (*FUNCTIONS, "idem_canonical"):
        with pytest.raises(sqlite3.OperationalError, match="no such function"):
            bare.execute(f"SELECT {function}('1')")


def test_usable_where_only_pure_functions_are(db):
    """In an index, a generated column, a CHECK, a view and a trigger, with trusted_schema off."""
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("CREATE TABLE t(x TEXT CHECK(idem_fingerprint(x) IS NOT NULL), f TEXT AS (idem_fingerprint(x)))")
    db.execute("CREATE UNIQUE INDEX u ON t(idem_fingerprint(x, '-$.at'))")
    db.execute("CREATE VIEW v AS SELECT idem_canonical(x) AS c FROM t")
    db.execute("INSERT INTO t(x) VALUES('{\"b\":1.0,\"a\":2,\"at\":1}')")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("INSERT INTO t(x) VALUES('{\"a\":2,\"b\":1,\"at\":2}')")
    assert db.execute("SELECT c FROM v").fetchall() == [('{"a":2,"at":1,"b":1}',)]
    assert db.execute("SELECT f = idem_fingerprint('{\"a\":2,\"at\":1,\"b\":1}') FROM t").fetchone() == (1,)


# --- arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", ['{"b":1,"a":"\u05d0\U0001f600"}', "[1.0]", '"x"', "7"])
def test_text_and_blob_are_the_same(db, payload):
    raw = payload.encode("utf-8")
    assert fingerprint(db, payload) == fingerprint(db, raw) == fingerprint(db, memoryview(raw))
    for function, arguments in (("idem_canonical", ()), ("idem_hmac_fingerprint", (SECRET,)), ("idem_fingerprint_raw", ())):
        assert call(db, function, *arguments, payload) == call(db, function, *arguments, raw)


def test_null_is_null(db):
    assert call(db, "idem_fingerprint", None) is None
    assert call(db, "idem_fingerprint", None, "-$.a") is None
    assert call(db, "idem_canonical", None) is None
    assert call(db, "idem_fingerprint_raw", None) is None
    assert call(db, "idem_hmac_fingerprint", SECRET, None) is None


@pytest.mark.parametrize("number", [0, 1, -(2**63), 1.5, float("inf"), 9007199254740993.0])
def test_numbers_are_refused(db, number):
    for function, arguments in (("idem_fingerprint", ()), ("idem_canonical", ()), ("idem_hmac_fingerprint", (SECRET,)),
                                ("idem_fingerprint_raw", ())):
        message = error(db, function, *arguments, number)
        assert message.startswith(f"{function}: type at byte 0: ")
        assert not re.search(rf"(?<!\d){re.escape(str(number))}", message.partition("byte 0: ")[2])


def test_text_that_looks_like_a_number_is_json(db):
    assert canonical(db, "1.50") == b"1.5"


@pytest.mark.parametrize("empty", ["", b""])
def test_empty(db, empty):
    assert fingerprint(db, empty) == Refusal("idem_fingerprint: eof at byte 0")
    assert re.fullmatch("idemr1:[0-9a-f]{64}", call(db, "idem_fingerprint_raw", empty))
    assert db.execute("SELECT idem_fingerprint_raw(zeroblob(0)) = idem_fingerprint_raw('')").fetchone() == (1,)


def test_zeroblob_is_read(db):
    assert db.execute("SELECT idem_fingerprint_raw(zeroblob(9)) = idem_fingerprint_raw(x'000000000000000000')").fetchone() == (1,)
    with pytest.raises(sqlite3.DatabaseError) as raised:
        db.execute("SELECT idem_fingerprint(zeroblob(9))").fetchone()
    assert Refusal(str(raised.value)) == Refusal("idem_fingerprint: syntax at byte 0")


def test_nul_bytes_end_nothing(db):
    assert fingerprint(db, "1\x00") == Refusal("idem_fingerprint: trailing at byte 1")
    assert fingerprint(db, "[1\x00]") == Refusal("idem_fingerprint: syntax at byte 2")
    assert fingerprint(db, '"\x00"') == Refusal("idem_fingerprint: control at byte 1")
    assert call(db, "idem_fingerprint_raw", "a\x00b") != call(db, "idem_fingerprint_raw", "a\x00c")
    assert canonical(db, '{"\\u0000b":1,"\\u0000":2,"":3}') == b'{"":3,"\\u0000":2,"\\u0000b":1}'


def test_too_few_arguments(db):
    for function, count in (("idem_fingerprint", 0), ("idem_canonical", 0), ("idem_hmac_fingerprint", 0),
                            ("idem_hmac_fingerprint", 1)):
        message = error(db, function, *[SECRET] * count)
        assert message.startswith(f"{function}: ") and "needed" in message
    for count in (0, 2):
        with pytest.raises(sqlite3.OperationalError, match="idem_fingerprint_raw"):
            db.execute(f"SELECT idem_fingerprint_raw({','.join(['1'] * count)})")


def test_forms_never_meet(db):
    """The same bytes under the three forms: three digests, three prefixes."""
    results = [call(db, "idem_fingerprint", "{}"), call(db, "idem_fingerprint_raw", "{}"),
               call(db, "idem_fingerprint_raw", "idem-fp/1\n{}"), call(db, "idem_hmac_fingerprint", SECRET, "{}")]
    digests = [result.split(":")[1] for result in results]
    assert len(set(digests)) == 4
    assert [result.split(":")[0] for result in results] == ["idem1", "idemr1", "idemr1", "idemh1"]


# --- secrets ---------------------------------------------------------------------------------


def test_secret(db):
    for secret in (None, "short", b"0123456789abcde", 1234567890123456, 1.5):
        message = error(db, "idem_hmac_fingerprint", secret, "{}")
        assert message.startswith("idem_hmac_fingerprint: ") and "16" in message
        assert str(secret) not in message or secret is None
    assert call(db, "idem_hmac_fingerprint", SECRET, "{}") == call(db, "idem_hmac_fingerprint", SECRET.encode(), "{}")
    assert call(db, "idem_hmac_fingerprint", SECRET, "{}") != call(db, "idem_hmac_fingerprint", SECRET + "x", "{}")
    assert call(db, "idem_hmac_fingerprint", "ä" * 8, "{}").startswith("idemh1:")


def test_secret_then_paths_then_payload(db):
    assert "secret" in error(db, "idem_hmac_fingerprint", None, 5, "$.a")
    assert "path at byte 0" in error(db, "idem_hmac_fingerprint", SECRET, 5, "$.a")
    assert "path at byte 0" in error(db, "idem_fingerprint", None, "$.a")
    assert "type at byte 0" in error(db, "idem_hmac_fingerprint", SECRET, 5, "-$.a")


# --- errors ----------------------------------------------------------------------------------


def test_errors_quote_nothing(db):
    card = "4111111111111111"
    payloads = [f'{{"pan":"{card}"', f'{{"{card}":1,"{card}":2}}', f'{{"pan":"{card}\\q"}}', f'["{card}"] {card}', card + "x",
                f"-{card}.", f"1e{card}", f'"{card}\x01"', f'{{"pan":{card}, }}', f'"\\ud800{card}"']
    for payload, function in itertools.product(payloads, ("idem_fingerprint", "idem_canonical")):
        message = error(db, function, payload)
        assert card[:4] not in message and REFUSAL.match(message), message
    for path in (card, f"-{card}", f'-$."{card}', f"-$.{card}..", f"+${card}"):
        message = error(db, "idem_fingerprint", "{}", path)
        assert card[:4] not in message and "path 1" in message
    assert card not in error(db, "idem_hmac_fingerprint", card[:15], "{}")


def test_error_names_the_path(db):
    for position in range(3):
        paths = ["-$.a", "-$.b", "-$.c"]
        paths[position] = "-$.x..y"
        assert f"path at byte 5: path {position + 1}: " in error(db, "idem_fingerprint", "{}", *paths)


@pytest.mark.parametrize("path, offset", [
    ("", 0), ("$", 0), ("$.a", 0), (" -$.a", 0), ("-", 1), ("-a", 1), ("-$", 0), ("-$a", 2), ("-$.", 3), ("-$..a", 3),
    ("-$.a.", 5), ("-$.a..b", 5), ("-$[", 3), ("-$[]", 3), ("-$[x]", 3), ("-$[1", 4), ("-$[1x]", 4), ("-$[01]", 3),
    ("-$[#-1]", 3), ("-$[-1]", 3), ("-$[*", 4), ("-$[**]", 4), ('-$."a', 5), ('-$."a"b', 6), ('-$."\\x"', 4),
    ('-$."\\ud800"', 4), ("-$.*[", 5), ("-$.a[0]b", 7), ("+$.a" + ".b" * 64, 2 + 2 * 64)])
def test_bad_paths(db, path, offset):
    result = fingerprint(db, "{}", path)
    assert (result.kind, result.offset) == ("path", offset)


@pytest.mark.parametrize("path", [None, 1, 1.5, b"-$.a"])
def test_path_must_be_text(db, path):
    assert "path at byte 0: path 1: " in error(db, "idem_fingerprint", "{}", path)


def test_limits_of_paths(db):
    payload = '{"a":' * 64 + "1" + "}" * 64
    assert canonical(db, payload, "-$" + ".a" * 64) == (payload.replace('"a":1', "")).encode()
    assert canonical(db, '{"a":1}', *["-$.a"] * 64) == b"{}"
    assert "path at byte 0: path 65: " in error(db, "idem_fingerprint", "{}", *["-$.a"] * 65)
    assert "path at byte 0: path 65: " in error(db, "idem_fingerprint", "{}", *["-$.a"] * 100)


def test_paths_take_what_they_name(db):
    payload = '{"a b":1,"*":2,"a.b":3,"\\"":4,"\u05d0":5,"":6,"[0]":7,"\\n":8,"1":9}'
    for path, gone in (("-$.a b", "a b"), ('-$."*"', "*"), ('-$."a.b"', "a.b"), ('-$."\\""', '\\"'), ('-$."\\u05D0"', "\u05d0"),
                       ("-$.\u05d0", "\u05d0"), ('-$.""', ""), ('-$."[0]"', "[0]"), ('-$."\n"', "\\n"), ('-$."\\n"', "\\n"),
                       ("-$.1", "1"), ('-$."1"', "1")):
        names = set(json.loads(payload))
        assert set(json.loads(canonical(db, payload, path))) == names - {json.loads(f'"{gone}"')}, path
    assert canonical(db, payload, "-$.*") == b"{}"
    assert canonical(db, payload, "-$[1]", "-$[*]") == canonical(db, payload)
    assert canonical(db, "[[1,2],[3,4]]", "-$[*][0]") == b"[[2],[4]]"
    assert canonical(db, "[1,2,3]", "+$[4294967295]", "+$[99999999999999999999]", "+$[2]") == b"[3]"
    assert canonical(db, '{"x":{"b":[1],"a":{}}}', "+$.x.*") == b'{"x":{"a":{},"b":[1]}}'


def test_selecting_inside_what_is_left_out_finds_nothing(db):
    assert canonical(db, '{"a":{"b":1}}', "+$.a.b", "-$.a") == Refusal("idem_canonical: only_empty at byte 0")
    assert canonical(db, '{"a":{"b":1}}', "+$.a", "-$.a.b") == b'{"a":{}}'
    assert canonical(db, "5", "+$") == b"5"
    assert canonical(db, "5", "+$.a") == Refusal("idem_canonical: only_empty at byte 0")


def test_too_big_is_told_as_such(db):
    """The canonical text of 1e20 is five times as long: beyond the limit, it has its own kind."""
    try:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 12_000)   # the payload in UTF-16 is shorter
    except AttributeError:
        pytest.skip("this Python's sqlite3 cannot set limits")
    payload = "[" + ",".join(["1e20"] * 1000) + "]"
    assert canonical(db, payload) == Refusal("idem_canonical: toobig at byte 0")
    assert isinstance(fingerprint(db, payload), str)


# --- encodings, statements, threads ----------------------------------------------------------


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_utf16_databases(tmp_path, encoding):
    path = str(tmp_path / "wide.db")
    first = sqlite3.connect(path)
    first.execute(f"PRAGMA encoding = '{encoding}'")
    first.execute("CREATE TABLE t(x)")
    payload = '{"\U0001f600":"\u05d0","\ufb33":[1.0,"\\ud83d\\ude00"],"at":1}'
    first.execute("INSERT INTO t VALUES(?), (?)", (payload, payload.encode("utf-8")))
    first.commit()
    first.close()
    wide, plain = connect(path), connect()
    assert wide.execute("PRAGMA encoding").fetchone() == (encoding,)
    for path in ((), ("-$.at",), ("-$.\ufb33",), ("+$.\U0001f600",)):
        marks = "".join(",?" for _ in path)
        rows = wide.execute(f"SELECT idem_canonical(x{marks}), idem_fingerprint(x{marks}) FROM t", path * 2).fetchall()
        expected = (call(plain, "idem_canonical", payload, *path), call(plain, "idem_fingerprint", payload, *path))
        assert rows == [expected, expected]
    assert canonical(wide, '["\u05d0", x]') == Refusal("idem_canonical: syntax at byte 7")


def test_constant_paths_and_paths_that_change(db):
    """The parsed paths are kept with the statement; other texts at the next row must not meet them."""
    db.execute("CREATE TABLE t(i, x, p, q)")
    db.executemany("INSERT INTO t VALUES(?,?,?,?)",
                   [(i, '{"a":1,"b":2,"c":3}', f"-$.{'abc'[i % 3]}", f"-$.{'bca'[i % 3]}") for i in range(9)])
    each = ['{"b":2,"c":3}', '{"a":1,"c":3}', '{"a":1,"b":2}']
    rows = db.execute("SELECT idem_canonical(x, p) FROM t ORDER BY i").fetchall()
    assert [row[0] for row in rows] == each * 3
    rows = db.execute("SELECT idem_canonical(x, '-$.a', p) FROM t ORDER BY i").fetchall()
    assert [row[0] for row in rows] == ['{"b":2,"c":3}', '{"c":3}', '{"b":2}'] * 3
    rows = db.execute("SELECT idem_canonical(x, p, '-$.a') FROM t ORDER BY i").fetchall()
    assert [row[0] for row in rows] == ['{"b":2,"c":3}', '{"c":3}', '{"b":2}'] * 3
    rows = db.execute("SELECT idem_canonical(x, p, q) FROM t ORDER BY i").fetchall()
    assert [row[0] for row in rows] == ['{"c":3}', '{"a":1}', '{"b":2}'] * 3
    statement = "SELECT idem_canonical(?, ?)"
    for name, expected in zip("abcab", each + each):
        assert db.execute(statement, ('{"a":1,"b":2,"c":3}', f"-$.{name}")).fetchone() == (expected,)


def test_parsing_once_per_statement_pays(db):
    """Long constant paths: with them parsed at every row, rows with paths would cost many times more."""
    paths = ["-$." + "x" * 400 + f"{i}" for i in range(60)]
    db.execute("CREATE TABLE t(x)")
    db.executemany("INSERT INTO t VALUES(?)", [("{}",)] * 3000)
    literals = ",".join(f"'{path}'" for path in paths)
    kept = changing = float("inf")
    for _ in range(3):
        start = time.process_time()
        db.execute(f"SELECT count(idem_canonical(x, {literals})) FROM t").fetchone()
        kept = min(kept, time.process_time() - start)
        start = time.process_time()
        db.execute(f"SELECT count(idem_canonical(x, '-$.r' || rowid, {literals})) FROM t").fetchone()
        changing = min(changing, time.process_time() - start)
    assert kept * 2 < changing, (kept, changing)


def test_error_in_one_row_leaves_the_next_alone(db):
    db.execute("CREATE TABLE t(x)")
    for _ in range(3):
        assert isinstance(fingerprint(db, '{"b":{"d":1,"c":[1,{"f":1,"e":'), Refusal)
        assert isinstance(fingerprint(db, '{"a":1,"a":2}'), Refusal)
        assert canonical(db, '{"b":1,"a":2}') == b'{"a":2,"b":1}'


def test_large_then_small(db):
    """Buffers that grew are given back; the small call after the large one is not disturbed."""
    big = '{"b":"' + "x" * 9_000_000 + '","a":1}'
    small = canonical(db, '{"b":1,"a":2}')
    expected = fingerprint(db, '{"a":1,"b":"' + "x" * 9_000_000 + '"}')
    for _ in range(3):
        assert fingerprint(db, big) == expected
        assert canonical(db, '{"b":1,"a":2}') == small == b'{"a":2,"b":1}'


def test_many_threads_many_connections():
    """Each thread has connections of its own; all share what libcrypto shares. None errs."""
    payloads = ['{"b":%d,"a":[%d,{"z":"%s","y":null}]}' % (i, i * i, "x" * i) for i in range(120)]
    db = connect()
    expected = [(fingerprint(db, p), call(db, "idem_hmac_fingerprint", SECRET, p, "-$.b"), call(db, "idem_fingerprint_raw", p))
                for p in payloads]

    def work(offset):
        for _ in range(4):
            own = connect()
            order = payloads[offset:] + payloads[:offset]
            got = [(fingerprint(own, p), call(own, "idem_hmac_fingerprint", SECRET, p, "-$.b"),
                    call(own, "idem_fingerprint_raw", p)) for p in order]
            own.close()
            if got != expected[offset:] + expected[:offset]:
                return False
        return True

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert all(pool.map(work, range(0, 120, 5)))

"""Bad arguments: an error that starts with the function's name and says the rule, nothing written, the
connection usable; and never a word of the payload, the token or the secret.
"""
import re
import sqlite3

import pytest

from conftest import claim, connect, one

TOKEN = "token-0123456789"
SECRET = "hunter2-is-the-secret"

# Every place where a value of that kind goes, as a call with ? for it.
KEY = [
    ("idem_claim", "SELECT idem_claim('t', ?, 'fp')"),
    ("idem_claim", "SELECT * FROM idem_claim('t', ?, 'fp')"),
    ("idem_complete", f"SELECT idem_complete('t', ?, '{TOKEN}', 'r')"),
    ("idem_release", f"SELECT idem_release('t', ?, '{TOKEN}')"),
    ("idem_suspend", f"SELECT idem_suspend('t', ?, '{TOKEN}')"),
    ("idem_renew", f"SELECT idem_renew('t', ?, '{TOKEN}')"),
    ("idem_checkpoint", f"SELECT idem_checkpoint('t', ?, '{TOKEN}', 'p')"),
    ("idem_resolve", "SELECT idem_resolve('t', ?, 'retry')"),
    ("idem_derive_key", "SELECT idem_derive_key(?, 'step')"),
    ("idem_records", f"INSERT INTO idem_records(scope,key,fingerprint,token) VALUES('t',?,'fp','{TOKEN}')"),
]
EVENT = [("idem_seen", "SELECT idem_seen('s', ?)")]
SOURCE = [("idem_seen", "SELECT idem_seen(?, 'e')")]
SCOPE = [(name, sql.replace("'t', ?", "?, 'k'").replace("'t',?", "?,'k'"))
         for name, sql in KEY if name != "idem_derive_key"]
OPERATION = [
    ("idem_claim", "SELECT idem_claim('t', 'k', 'fp', ?)"),
    ("idem_claim", "SELECT * FROM idem_claim('t', 'k', 'fp', ?)"),
    ("idem_records", "INSERT INTO idem_records(scope,key,fingerprint,operation,token) "
                     f"VALUES('t','k','fp',?,'{TOKEN}')"),
]
FINGERPRINT = [
    ("idem_claim", "SELECT idem_claim('t', 'k', ?)"),
    ("idem_claim", "SELECT * FROM idem_claim('t', 'k', ?)"),
    ("idem_records", f"INSERT INTO idem_records(scope,key,fingerprint,token) VALUES('t','k',?,'{TOKEN}')"),
]
NEW_TOKEN = [
    ("idem_claim", "SELECT idem_claim('t', 'k', 'fp', 'op', ?)"),
    ("idem_claim", "SELECT * FROM idem_claim('t', 'k', 'fp', 'op', ?)"),
    ("idem_records", "INSERT INTO idem_records(scope,key,fingerprint,token) VALUES('t','k','fp',?)"),
]
HELD_TOKEN = [
    ("idem_complete", "SELECT idem_complete('t', 'held', ?, 'r')"),
    ("idem_release", "SELECT idem_release('t', 'held', ?)"),
    ("idem_suspend", "SELECT idem_suspend('t', 'held', ?)"),
    ("idem_renew", "SELECT idem_renew('t', 'held', ?)"),
    ("idem_checkpoint", "SELECT idem_checkpoint('t', 'held', ?, 'p')"),
]
REASON = [
    ("idem_release", f"SELECT idem_release('t', 'held', '{TOKEN}', ?)"),
    ("idem_suspend", f"SELECT idem_suspend('t', 'held', '{TOKEN}', ?)"),
    ("idem_resolve", "SELECT idem_resolve('t', 'dark', 'retry', ?)"),
    ("idem_records", "UPDATE idem_records SET state='released', reason=? "
                     f"WHERE scope='t' AND key='held' AND token='{TOKEN}'"),
]
POINT = [
    ("idem_checkpoint", f"SELECT idem_checkpoint('t', 'held', '{TOKEN}', ?)"),
    ("idem_records", "UPDATE idem_records SET recovery_point=? "
                     f"WHERE scope='t' AND key='held' AND token='{TOKEN}'"),
]
HEADERS = [
    ("idem_complete", f"SELECT idem_complete('t', 'held', '{TOKEN}', 'r', 200, ?)"),
    ("idem_resolve", "SELECT idem_resolve('t', 'dark', 'completed', 'r', 200, ?)"),
]
CODE = [
    ("idem_complete", f"SELECT idem_complete('t', 'held', '{TOKEN}', 'r', ?)"),
    ("idem_resolve", "SELECT idem_resolve('t', 'dark', 'completed', 'r', ?)"),
    ("idem_records", "UPDATE idem_records SET state='completed', code=? "
                     f"WHERE scope='t' AND key='held' AND token='{TOKEN}'"),
]
DATA = [
    ("idem_complete", f"SELECT idem_complete('t', 'held', '{TOKEN}', ?)"),
    ("idem_resolve", "SELECT idem_resolve('t', 'dark', 'completed', ?)"),
    ("idem_checkpoint", f"SELECT idem_checkpoint('t', 'held', '{TOKEN}', 'p', ?)"),
]
MAX_ROWS = [("idem_purge", "SELECT idem_purge(?)")]
CLOCK = [("idem_clock", "SELECT idem_clock(?)")]


class Text:
    """TEXT of bytes that a Python string cannot hold."""
    def __init__(self, data):
        self.data = data


# what, which places, value, what the message must say
CASES = []


def case(what, places, value, says):
    for i, (name, sql) in enumerate(places):
        CASES.append(pytest.param(name, sql, value, says, id=f"{what}-{name}-{i}"))


TEXTS = [("key", KEY, 255, 1), ("event id", EVENT, 255, 1), ("source", SOURCE, 255, 1),
         ("scope", SCOPE, 255, 0), ("operation", OPERATION, 255, 0), ("recovery point", POINT, 255, 1)]
for noun, places, most, least in TEXTS:
    tag = noun.replace(" ", "_")
    if noun != "operation":                       # optional: NULL means absent
        case(f"{tag}-null", places, None, f"{noun} is NULL")
    if least:
        case(f"{tag}-empty", places, "", f"{noun} is empty, 1 to {most} characters")
    case(f"{tag}-long", places, "x" * (most + 1), f"{noun} is {most + 1} characters, the limit is {most}")
    case(f"{tag}-long-wide", places, "\u20ac" * (most + 1), f"{most + 1} characters, the limit is {most}")
    case(f"{tag}-huge", places, "x" * 1000000, f"1000000 characters, the limit is {most}")
    for what, bad in (("nul", "a\0b"), ("nul-first", "\0"), ("nul-last", "a\0"), ("line-feed", "a\nb"),
                      ("tab", "\t"), ("delete", "a\x7f"), ("c1", "a\x85b"), ("escape", "\x1b[0m")):
        case(f"{tag}-{what}", places, bad, f"{noun} holds a NUL or another control character")
    for what, bad in (("ff", b"\xff"), ("cut", b"ab\xe2\x82"), ("overlong", b"\xc0\xaf"),
                      ("surrogate", b"\xed\xa0\x80"), ("beyond", b"\xf4\x90\x80\x80"),
                      ("lone-tail", b"\x80"), ("overlong-nul", b"\xc0\x80")):
        case(f"{tag}-utf8-{what}", places, Text(bad), f"{noun} is not valid UTF-8")
    for what, bad in (("blob", b"abc"), ("integer", 5), ("real", 1.5)):
        if not (noun == "recovery point" and what != "blob"):
            case(f"{tag}-{what}", places[:2], bad, f"{noun} is not TEXT")
case("operation-star", OPERATION, "*", "operation '*' is the name of the default policy")
for form in ("idem1", "idemr1", "idemh1"):
    case(f"operation-{form}", OPERATION, f"{form}:{'a' * 64}", "operation is a fingerprint: the order is scope")
case("fp-null", FINGERPRINT, None, "fingerprint is NULL")
case("fp-empty", FINGERPRINT, "", "fingerprint is empty, 1 to 128 bytes")
case("fp-empty-blob", FINGERPRINT, b"", "fingerprint is empty, 1 to 128 bytes")
case("fp-long", FINGERPRINT, "f" * 129, "fingerprint is 129 bytes, the limit is 128: pass idem_fingerprint(body)")
case("fp-long-blob", FINGERPRINT, b"f" * 129, "fingerprint is 129 bytes, the limit is 128")
case("fp-long-wide", FINGERPRINT, "\u20ac" * 43, "fingerprint is 129 bytes, the limit is 128")
case("fp-utf8", FINGERPRINT, Text(b"\xff"), "fingerprint is not valid UTF-8")
case("fp-integer", FINGERPRINT, 12345, "fingerprint is a number: bind it as TEXT or BLOB, idem_fingerprint(body) makes one")
case("fp-real", FINGERPRINT, 1.5, "fingerprint is a number")
for what, bad in (("short", "x" * 15), ("empty", ""), ("long", "x" * 129), ("wide", "\u20ac" * 20),
                  ("nul", TOKEN + "\0" + TOKEN), ("line-feed", TOKEN + "\n"), ("utf8", Text(b"\xff" * 20))):
    case(f"token-{what}", NEW_TOKEN + HELD_TOKEN, bad, "token must be 16 to 128 printable")
case("token-null", HELD_TOKEN, None, "token is NULL")
case("token-null", NEW_TOKEN[2:], None, "token is NULL")
case("token-blob", NEW_TOKEN[:2] + HELD_TOKEN, b"x" * 20, "token is not TEXT")
case("token-integer", NEW_TOKEN[:2] + HELD_TOKEN, 1234567890123456, "token is not TEXT")
case("reason-long", REASON, "x" * 1001, "reason is 1001 characters, the limit is 1000")
case("reason-nul", REASON, "a\0b", "reason holds a NUL")
case("reason-utf8", REASON, Text(b"\xff"), "reason is not valid UTF-8")
case("reason-blob", REASON, b"abc", "reason is not TEXT")
case("headers-nul", HEADERS, "a\0b", "headers holds a NUL")
case("headers-utf8", HEADERS, Text(b"\xff"), "headers is not valid UTF-8")
case("headers-blob", HEADERS, b"a: b", "headers is not TEXT")
case("headers-integer", HEADERS, 5, "headers is not TEXT")
for what, bad, says in (("fraction", 200.5, "code is not an integer"), ("text", "abc", "code is not an integer"),
                        ("blob", b"200", "code is not an integer"), ("huge", 2**40, "code is out of range"),
                        ("huge-real", 1e300, "code is out of range"), ("infinity", float("inf"), "code is out of range"),
                        ("low", -2**40, "code is out of range")):
    case(f"code-{what}", CODE, bad, says)
case("data-integer", DATA, 5, "is a number: bind it as TEXT, BLOB or NULL")
case("data-real", DATA, 0.5, "is a number: bind it as TEXT, BLOB or NULL")
for what, bad, says in (("null", None, "max_rows is NULL"), ("zero", 0, "max_rows is out of range, 1 to"),
                        ("negative", -1, "max_rows is out of range, 1 to"), ("text", "10 rows", "max_rows is not an integer"),
                        ("fraction", 1.5, "max_rows is not an integer"), ("huge", 2**62, "max_rows is out of range")):
    case(f"max_rows-{what}", MAX_ROWS, bad, says)
for what, bad, says in (("negative", -1, "ms is out of range, 0 to"), ("text", "now", "ms is not an integer"),
                        ("fraction", 0.5, "ms is not an integer"), ("huge", 2**62, "ms is out of range"),
                        ("blob", b"1", "ms is not an integer"), ("infinity", float("-inf"), "ms is out of range")):
    case(f"ms-{what}", CLOCK, bad, says)


@pytest.fixture
def db():
    db = connect(":memory:")
    yield db
    db.close()


@pytest.fixture
def held(db):
    claim(db, "held", token=TOKEN)
    claim(db, "dark", token=TOKEN)
    one(db, "SELECT idem_suspend('t', 'dark', ?)", TOKEN)
    return db


def everything(db):
    return [db.execute(f"SELECT * FROM main.{t}").fetchall()
            for t in ("idem_store", "idem_inbox", "idem_audit", "idem_policy", "idem_meta")]


def refused(db, name, sql, args, says=""):
    """The call fails with an argument error of that name; nothing is written; the connection works."""
    before = everything(db)
    with pytest.raises(sqlite3.DatabaseError) as e:
        db.execute(sql, args).fetchall()
    text = str(e.value)
    assert text.startswith(f"{name}: ") and says in text, text
    assert not db.in_transaction
    assert everything(db) == before
    assert claim(db, "held")["outcome"] == "in_progress"
    return e.value


@pytest.mark.parametrize("name,sql,value,says", CASES)
def test_a_bad_argument(held, name, sql, value, says):
    if isinstance(value, Text):
        sql, value = sql.replace("?", "CAST(? AS TEXT)"), value.data
    e = refused(held, name, sql, (value,), says)
    assert e.sqlite_errorcode & 0xff == sqlite3.SQLITE_ERROR, e
    if isinstance(value, str) and len(value) > 8:
        assert value not in str(e), "the message quotes the argument"


@pytest.mark.parametrize("sql,args", [
    ("SELECT idem_claim('t', ?, ?)", ("k" * 255, "f" * 128)),
    ("SELECT idem_claim('t', ?, ?)", ("\u20ac" * 255, b"f" * 128)),
    ("SELECT idem_claim('t', ?, 'fp')", ("\U0001f600" * 255,)),
    ("SELECT idem_claim('t', 'k', ?)", (b"\x00",)),
    ("SELECT idem_claim('t', 'k', ?)", ("\0",)),
    ("SELECT idem_claim('', 'k', 'fp', '')", ()),
    ("SELECT idem_claim(?, 'k', 'fp', ?)", ("s" * 255, "o" * 255)),
    ("SELECT idem_claim('t', ' k ', 'fp')", ()),
    ("SELECT idem_claim('t', '\"quoted\"', 'fp', NULL, NULL)", ()),
    ("SELECT idem_claim('t', 'k', 'fp', '', ?)", ("x" * 128,)),
    ("SELECT idem_claim('t', 'k', 'fp', '', ?)", (" !~\"'%;--*/<>&()",)),
    ("SELECT idem_claim('t', 'k\u00a0\u2028\ufeff\uffff', 'fp')", ()),
])
def test_at_the_limit(db, sql, args):
    assert '"claimed"' in one(db, sql, *args)
    assert '"claimed"' not in one(db, sql, *args) or "x" * 128 in args or " !~" in str(args)
    table = sql.replace("SELECT idem_claim", "SELECT outcome FROM idem_claim")
    assert one(db, table, *args) in ("in_progress", "claimed")
    assert one(db, "SELECT count(*) FROM idem_store") == 1


def test_keys_are_taken_as_they_are(db):
    """Not trimmed, not folded, not normalised; scope and key are two columns, never joined."""
    pairs = [("t", "k"), ("t", "K"), ("t", " k"), ("t", "k "), ("t", '"k"'), ("T", "k"), ("", "tk"),
             ("tk", "k"), ("t", "\u00e9"), ("t", "e\u0301"), ("t:k", "x"), ("t", "k:x"), ("t", "k%"), ("t", "1"),
             ("t", "1.0"), ("t", "01")]
    for scope, key in pairs:
        assert claim(db, key, scope=scope)["outcome"] == "claimed", (scope, key)
    assert one(db, "SELECT count(*) FROM idem_store") == len(pairs)
    for scope, key in pairs:
        assert db.execute("SELECT scope, key FROM idem_records WHERE scope=? AND key=?",
                          (scope, key)).fetchall() == [(scope, key)]


@pytest.mark.parametrize("value", [200, 200.0, -1, 0, 2**31 - 1, float(2**31 - 1)])
def test_an_integral_real_is_an_integer(held, value):
    assert one(held, "SELECT idem_complete('t', 'held', ?, 'r', ?)", TOKEN, value) == 1
    assert one(held, "SELECT idem_complete('t', 'held', ?, 'r', ?)", TOKEN, int(value)) == 1
    code = claim(held, "held")["code"]
    assert code == int(value) and isinstance(code, int)


def test_integral_reals_elsewhere(db):
    assert one(db, "SELECT idem_clock(5000.0)") == 5000
    assert one(db, "SELECT idem_purge(10.0)") == 0
    assert one(db, "SELECT idem_derive_key('k', 1) = idem_derive_key('k', 1.0)") == 1
    assert one(db, "SELECT idem_derive_key('k', 1) = idem_derive_key('k', '1')") == 1


def test_integers_as_decimal_text(db):
    """Perl's DBI and Tcl bind every parameter as text: a completion must not fail for that."""
    assert one(db, "SELECT idem_clock('5000')") == 5000
    assert one(db, "SELECT idem_purge('10')") == 0
    token = claim(db, "as-text")["token"]
    assert one(db, "SELECT idem_complete('t', 'as-text', ?, 'r', '201')", token) == 1
    assert claim(db, "as-text")["code"] == 201
    for bad in ("", "-", "+1", " 1", "1.0", "0x10", "9" * 19, "\u0661"):
        with pytest.raises(sqlite3.Error, match="not an integer"):
            db.execute("SELECT idem_purge(?)", (bad,)).fetchall()
    assert one(db, "SELECT idem_clock(-0.0)") == 0
    with pytest.raises(sqlite3.OperationalError, match="^idem_derive_key: step is not an integer"):
        one(db, "SELECT idem_derive_key('k', 0.5)")


COUNTS = {"idem_init": (0, 0), "idem_claim": (3, 5), "idem_complete": (4, 6), "idem_release": (3, 4),
          "idem_suspend": (3, 4), "idem_renew": (3, 3), "idem_checkpoint": (4, 5), "idem_resolve": (3, 6),
          "idem_seen": (2, 3), "idem_purge": (0, 1), "idem_clock": (0, 1), "idem_audit_verify": (0, 0),
          "idem_fingerprint_raw": (1, 1), "idem_header_key": (1, 1), "idem_key": (0, 0),
          "idem_schema": (1, 1), "idem_version": (0, 0)}
AT_LEAST = {"idem_fingerprint": 1, "idem_hmac_fingerprint": 2, "idem_canonical": 1, "idem_derive_key": 2}


@pytest.mark.parametrize("name", COUNTS)
def test_wrong_counts(held, name):
    least, most = COUNTS[name]
    before = everything(held)
    for n in (least - 1, most + 1):
        if n < 0:
            continue
        with pytest.raises(sqlite3.OperationalError, match=f"wrong number of arguments to function {name}"):
            held.execute(f"SELECT {name}({','.join(['?'] * n)})", ("x",) * n)
    assert everything(held) == before


@pytest.mark.parametrize("name", AT_LEAST)
def test_too_few(held, name):
    for n in range(AT_LEAST[name]):
        with pytest.raises(sqlite3.OperationalError, match=f"^{name}: .*argument"):
            held.execute(f"SELECT {name}({','.join(['?'] * n)})", ("x",) * n).fetchall()


def test_counts_of_the_table_form(held):
    for n in (0, 1, 2):
        with pytest.raises(sqlite3.OperationalError, match="^idem_claim: wrong number of arguments, the form is"):
            held.execute(f"SELECT * FROM idem_claim({','.join(['?'] * n)})", ("x",) * n).fetchall()
    with pytest.raises(sqlite3.OperationalError, match="idem_claim"):
        held.execute("SELECT * FROM idem_claim(1, 2, 3, 4, 5, 6)")


@pytest.mark.parametrize("args,says", [
    ("'t','dark','completed'", "wrong number of arguments"),
    ("'t','dark','retry','why','more'", "wrong number of arguments"),
    ("'t','dark','done'", "'completed' or 'retry'"),
    ("'t','dark','COMPLETED','r'", "'completed' or 'retry'"),
    ("'t','dark',NULL", "'completed' or 'retry'"),
    ("'t','dark',''", "'completed' or 'retry'"),
    ("'t','dark',x'7265747279'", "'completed' or 'retry'"),
    ("'t','dark','retry' || char(0)", "'completed' or 'retry'"),
])
def test_resolve(held, args, says):
    refused(held, "idem_resolve", f"SELECT idem_resolve({args})", (), says)


def test_null_for_what_is_optional(db):
    assert '"claimed"' in one(db, "SELECT idem_claim('t','k','fp',NULL,NULL)")
    token = db.execute("SELECT token FROM idem_store").fetchone()[0]
    assert one(db, "SELECT idem_complete('t','k',?,NULL,NULL,NULL)", token) == 1
    answer = claim(db, "k")
    assert (answer["outcome"], answer["response"], answer["code"], answer["headers"]) == \
        ("replay", None, None, None)
    assert one(db, "SELECT idem_seen('s','e',NULL)") == 1
    assert one(db, "SELECT idem_header_key(NULL)") is None
    assert one(db, "SELECT idem_fingerprint(NULL)") is None
    assert one(db, "SELECT idem_fingerprint_raw(NULL)") is None
    assert one(db, "SELECT idem_canonical(NULL)") is None
    claim(db, "k2", token=TOKEN)
    assert one(db, "SELECT idem_checkpoint('t','k2',?,'p',NULL)", TOKEN) == 1
    assert one(db, "SELECT idem_release('t','k2',?,NULL)", TOKEN) == 1


@pytest.mark.parametrize("name,sql", [
    ("idem_fingerprint", "SELECT idem_fingerprint(?)"),
    ("idem_canonical", "SELECT idem_canonical(?)"),
    ("idem_hmac_fingerprint", "SELECT idem_hmac_fingerprint('0123456789abcdef', ?)"),
])
@pytest.mark.parametrize("payload", [
    '{"card":"4111-1111-1111-1111","card":1}', '{"card":"4111-1111-1111-1111"',
    '["4111-1111-1111-1111", nope]', '"4111-1111-1111-1111\x01"', "4111-1111-1111-1111",
    5, 1.5, b"\xff4111-1111-1111-1111"])
def test_a_payload_is_never_quoted(held, name, sql, payload):
    e = refused(held, name, sql, (payload,))
    assert "4111" not in str(e) and "nope" not in str(e) and "card" not in str(e)


@pytest.mark.parametrize("secret", ["short", "", None, SECRET[:15], b"x" * 15, 1234567890123456])
def test_a_bad_secret(held, secret):
    e = refused(held, "idem_hmac_fingerprint", "SELECT idem_hmac_fingerprint(?, '{}')", (secret,))
    assert not (secret and str(secret) in str(e))


@pytest.mark.parametrize("header", ["", " ", '"', '""', '"a', 'a"', '"a"b', "a b", "a,b", "a;p=1", '"a";p=1',
                                    "\u20ac", '"\u20ac"', "a\0b", '"\x7f"', "x" * 256, '"' + "x" * 256 + '"',
                                    '"\\n"', "a\nb", '"a","b"'])
def test_a_bad_header(held, header):
    e = refused(held, "idem_header_key", "SELECT idem_header_key(?)", (header,))
    assert "RFC 8941" in str(e)


@pytest.mark.parametrize("json_path", ["$.a", "", "+", "-", "+a", "+$.", "+$[", "+$[x]", "+$.a.", '+$."a', "*$.a",
                                  "+$[-1]", "+$[99999999999999999999]", None, 5, b"+$.a"])
def test_a_bad_path(held, json_path):
    refused(held, "idem_fingerprint", "SELECT idem_fingerprint('{\"a\":1}', ?)", (json_path,))


@pytest.mark.parametrize("call", [
    f"idem_complete('t','held','{SECRET}','r')", f"idem_release('t','held','{SECRET}')",
    f"idem_suspend('t','held','{SECRET}')", f"idem_renew('t','held','{SECRET}')",
    f"idem_checkpoint('t','held','{SECRET}','p')", f"idem_complete('t','nobody','{SECRET}','{SECRET}')"])
def test_a_lost_claim_is_a_constraint_and_keeps_the_token_secret(held, call):
    before = everything(held)
    with pytest.raises(sqlite3.IntegrityError, match="^idem_[a-z]+: claim lost") as e:
        one(held, f"SELECT {call}")
    assert e.value.sqlite_errorcode & 0xff == sqlite3.SQLITE_CONSTRAINT
    assert SECRET not in str(e.value) and TOKEN not in str(e.value) and "hunter2" not in str(e.value)
    assert everything(held) == before


def test_a_key_that_is_the_content_or_the_owner(held):
    refused(held, "idem_claim", "SELECT idem_claim('t', 'same', 'same')", (), "key equals the fingerprint")
    refused(held, "idem_claim", "SELECT idem_claim('t', 'same', ?)", (b"same",), "key equals the fingerprint")
    refused(held, "idem_claim", "SELECT idem_claim('same', 'same', 'fp')", (), "key equals the scope")


def test_utf16_database(path):
    """Arguments come in UTF-16 there: same rules, same limits, same bytes back."""
    raw = connect(path, init=False, load=False)
    raw.execute("PRAGMA encoding = 'UTF-16le'")   # before loading: that fixes the encoding
    raw.execute("CREATE TABLE first(a)")
    raw.close()
    raw = connect(path)
    assert one(raw, "PRAGMA encoding") == "UTF-16le"
    assert claim(raw, "\U0001f600" * 255, token=TOKEN)["outcome"] == "claimed"
    with pytest.raises(sqlite3.OperationalError, match="256 characters, the limit is 255"):
        claim(raw, "\u20ac" * 256)
    one(raw, "SELECT idem_complete('t', ?, ?, ?)", "\U0001f600" * 255, TOKEN, "\u20ac\0\U0001f600")
    assert claim(raw, "\U0001f600" * 255)["response"] == "\u20ac\0\U0001f600"
    assert raw.execute("SELECT key FROM idem_records WHERE scope='t'").fetchall() == [("\U0001f600" * 255,)]
    assert one(raw, "SELECT idem_audit_verify()") is None
    raw.close()


def test_names_of_messages(held):
    """Every message says who speaks, once."""
    for name, sql in KEY + HELD_TOKEN[:1] + MAX_ROWS + CLOCK:
        try:
            held.execute(sql, ("\n",)).fetchall()
        except sqlite3.DatabaseError as e:
            assert len(re.findall(r"idem_\w+: ", str(e))) == 1, str(e)

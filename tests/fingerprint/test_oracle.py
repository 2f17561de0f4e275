"""The extension against the oracle: canonical text, kind and offset, on generated inputs.

Inputs are made from valid documents, spelled at random, then perhaps damaged; a second kind is made
of JSON's own fragments in any order. 12,000 of them in the default run, 1,000,000 with IDEM_DEEP=1.
"""
import random

import pytest

from fp_kit import DEEP, Refusal, canonical, connect
import oracle

COUNT = 1_000_000 if DEEP else 12_000
NAMES = ["a", "b", "aa", "ab", "", "é", "\u05d0", "\ufb33", "\ue000", "\U0001f600", "\U0010ffff", "\uffff", "\x01",
         '"', "\\", "\n", "\x7f", "10", "9", "abcdefgh", "abcdefghi", "abcdefg", "abcdefgh\n", "a.b", "*", "key\u0000"]
NUMBERS = ["0", "-0", "1", "-1", "10", "1200.0", "12e2", "0.5e-4", "1e21", "1e20", "123456789012345678901",
           "1234567890123456789012", "0.000001", "0.0000001", "1E-7", "-1e+05", "1e999999999", "1e-999999999",
           "10e999999998", "10e999999999", "0.1e-999999998", "0.1e-999999999", "0e99999999999999999999",
           "1e00000000000000000001", "1e99999999999999999999", "0.00", "5e-324", "9007199254740993", "1.5", "100.500"]
FRAGMENTS = [b"{", b"}", b"[", b"]", b",", b":", b'"', b'""', b'"a"', b'"a":', b"1", b"0", b"-", b".", b"e", b"E+", b"-0",
             b"true", b"fals", b"false", b"null", b"nul", b" ", b"\n", b"\x00", b"\x0c", b"\\", b"\\u", b'"\\ud83d\\ude00"',
             b'"\\ud800"', b'"\\n"', b"\xc3\xa9", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"0123", b"1e5", b'"\xc3\xa9"',
             b'"\xf0\x9f\x98\x80":', b'{"a":1,"b":2}', b'{"b":1,"a":2,"b":3}', b"\xe2\x82", b"'", b"/", b"NaN"]


def tree(rng, depth=0):
    kind = rng.random()
    if depth < 5 and kind < 0.4:
        names = rng.sample(NAMES, rng.randrange(0, 7 if depth else 25))
        return ("o", [(name, tree(rng, depth + 1)) for name in names])
    if depth < 5 and kind < 0.6:
        return ("a", [tree(rng, depth + 1) for _ in range(rng.randrange(0, 5))])
    if kind < 0.8:
        return ("n", rng.choice(NUMBERS))
    if kind < 0.9:
        return ("s", rng.choice(NAMES) * rng.choice((1, 1, 3, 9)))
    return ("n", rng.choice(("true", "false", "null")))


def spell_string(rng, text):
    out = ['"']
    for ch in text:
        style = rng.random()
        if style < 0.2 or ch < " ":
            units = ch.encode("utf-16-be").hex()
            escapes = "".join("\\u" + units[i : i + 4] for i in range(0, len(units), 4))
            out.append(escapes.upper().replace("\\U", "\\u") if style < 0.1 else escapes)
        elif ch in '"\\/' and (ch != "/" or style < 0.5):
            out.append("\\" + ch)
        else:
            out.append(ch)
    return "".join(out) + '"'


def spell(rng, node):
    def gap():
        return rng.choice(("", "", "", " ", "\n", "\t \r\n", " " * 40))

    kind, body = node
    if kind == "o":
        members = (gap() + spell_string(rng, n) + gap() + ":" + gap() + spell(rng, v) + gap() for n, v in body)
        return "{" + (",".join(members) or gap()) + "}"
    if kind == "a":
        return "[" + (",".join(gap() + spell(rng, item) + gap() for item in body) or gap()) + "]"
    return spell_string(rng, body) if kind == "s" else body


def damage(rng, payload):
    data = bytearray(payload)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        how = rng.random()
        if how < 0.3:
            del data[at : at + rng.randrange(1, 5)]
        elif how < 0.6:
            data[at:at] = rng.choice(FRAGMENTS)
        elif how < 0.8 and at < len(data):
            data[at] = rng.randrange(256)
        else:
            del data[at:]
    return bytes(data)


def path(rng):
    parts = [rng.choice("+-"), "$"]
    for _ in range(rng.randrange(0, 4)):
        name = rng.choice(NAMES)
        parts.append(
            rng.choice(
                (".*", "[*]", f"[{rng.randrange(4)}]", "." + spell_string(rng, name), "." + name.replace(".", "") or "."))
        )
    text = "".join(parts)
    if rng.random() < 0.05:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(("[", "]", ".", '"', "*", "[01]", "[#-1]", "\\", "$")) + text[at:]
    return text


def expected(payload, paths=()):
    try:
        return oracle.canonical(payload, paths)
    except oracle.Refused as refused:
        return (refused.kind, refused.offset)


def actual(db, payload, paths=()):
    result = canonical(db, payload, *paths)
    return (result.kind, result.offset) if isinstance(result, Refusal) else result


@pytest.fixture(scope="module")
def db():
    return connect()


def test_generated_documents(db):
    rng = random.Random(1)
    kinds = set()
    for i in range(COUNT // 2):
        payload = spell(rng, tree(rng)).encode("utf-8")
        if i % 3 == 0:
            payload = damage(rng, payload)
        want = expected(payload)
        assert actual(db, payload) == want, payload
        kinds.add(want[0] if isinstance(want, tuple) else "text")
    kinds.discard("dupkey")  # rare here: see test_names_in_every_order
    assert kinds >= {"text", "eof", "syntax", "utf8", "surrogate", "escape", "control", "number", "exponent", "trailing"}


def test_generated_rubble(db):
    rng = random.Random(2)
    for _ in range(COUNT // 4):
        payload = b"".join(rng.choice(FRAGMENTS) for _ in range(rng.randrange(0, 9)))
        assert actual(db, payload) == expected(payload), payload


def test_generated_paths(db):
    rng = random.Random(3)
    kinds = set()
    for _ in range(COUNT // 4):
        node = tree(rng)
        payload = spell(rng, node).encode("utf-8")
        if rng.random() < 0.1:
            payload = damage(rng, payload)
        paths = [path(rng) for _ in range(rng.choice((1, 1, 2, 3, 8)))]
        want = expected(payload, paths)
        assert actual(db, payload, paths) == want, (payload, paths)
        kinds.add(want[0] if isinstance(want, tuple) else "text")
    assert kinds >= {"text", "path", "only_empty", "syntax"}


def test_names_in_every_order(db):
    """Names that share long beginnings, or differ at any place, in objects larger than one run."""
    rng = random.Random(4)
    letters = ["a", "b", "\\n", "\u00e9", "\ud7ff", "\ue000", "\uffff", "\U00010000", '\\"', "\\u0000", "\\u001f", "~"]
    for size in [2, 3, 15, 16, 17, 31, 33, 48, 64, 65, 100, 257, 700]:
        names = {"".join(rng.choice(letters) for _ in range(rng.choice((0, 1, 2, 7, 8, 9, 16, 23, 24)))) for _ in range(size)}
        names |= {"samesame" * 3 + "".join(rng.choice(letters) for _ in range(3)) for _ in range(size // 2)}
        names = sorted(names)
        for _ in range(4):
            rng.shuffle(names)
            payload = ("{" + ",".join(f'"{name}":{i}' for i, name in enumerate(names)) + "}").encode("utf-8")
            assert actual(db, payload) == expected(payload), payload
        names.insert(rng.randrange(len(names)), names[rng.randrange(len(names))])
        payload = ("{" + ",".join(f'"{name}":{i}' for i, name in enumerate(names)) + "}").encode("utf-8")
        want = expected(payload)
        assert want[0] == "dupkey" and actual(db, payload) == want, payload


def test_every_prefix_of_a_document(db):
    """A text cut off anywhere is refused where the oracle says; with all of it there, it is not."""
    payload = '{"n":[-12.50e+3,0.5],"t":true,"f":false,"z":null,"s":"a\\u00e9\\ud83d\\ude00\\n\u05d0\U0001f600"}'.encode()
    for end in range(len(payload)):
        want = expected(payload[:end])
        assert isinstance(want, tuple) and actual(db, payload[:end]) == want, payload[:end]
    assert actual(db, payload) == expected(payload)
    assert isinstance(expected(payload), bytes)


def test_every_byte_in_every_place(db):
    payload = b'{"a":[1.5e1,"\\n\xc3\xa9"]}'
    for at in range(len(payload)):
        for byte in range(256):
            changed = payload[:at] + bytes([byte]) + payload[at + 1 :]
            assert actual(db, changed) == expected(changed), changed


def test_every_pair_of_boundary_units(db):
    units = ["d7ff", "d800", "DBFF", "dc00", "DFFF", "e000", "ffff", "0041", "0000", "00e9"]
    for first in units:
        for second in [f"\\u{unit}" for unit in units] + ["x", "\\n", "\\u12", "\\x", "", "\\"]:
            for end in ('"', "z\"", ""):
                payload = f'["\\u{first}{second}{end}]'.encode()
                assert actual(db, payload) == expected(payload), payload


def test_every_two_byte_start_of_a_character(db):
    """Lead and second byte in all combinations, rightly continued: what is UTF-8 is Python's word."""
    for lead in range(0x80, 0x100):
        length = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        for second in [*range(0x7E, 0xC2), 0x22, 0xFF]:
            sequence = bytes([lead, second]) + b"\x80" * max(0, length - 2)
            payload = b'"' + sequence + b'"'
            assert actual(db, payload) == expected(payload), payload
            assert actual(db, payload[: 1 + length]) == expected(payload[: 1 + length]), payload

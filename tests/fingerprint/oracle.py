"""A second implementation of idem-fp/1, slow and plain, to check the first one with.

Written from the description of the form alone, and by other means than the C code wherever there is
a choice: recursive descent that builds a tree, numbers by `decimal`, UTF-8 by Python's codec, the
order of names by encoding them as UTF-16, the fate of a node by comparing its whole path with every
path argument.

    canonical(payload, paths) -> bytes, or raises Refused(kind, offset)
"""
import decimal
import re
import sys

sys.setrecursionlimit(10000)  # two frames for each of 512 levels

DEPTH_MAX = 512
EXPONENT_MAX = 999999999
PATHS_MAX = 64
SEGMENTS_MAX = 64
DECIMAL = decimal.Context(
    prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[decimal.InvalidOperation]
)


class Refused(Exception):
    def __init__(self, kind, offset):
        super().__init__(f"{kind} at byte {offset}")
        self.kind, self.offset = kind, offset


# --- reading ---------------------------------------------------------------------------------


class Reader:
    """Reads one JSON text. A tree is: ('o', [(name, tree)]), ('a', [tree]), or ('t', text)."""

    NUMBER = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
    ESCAPES = {0x22: '"', 0x5C: "\\", 0x2F: "/", 0x62: "\b", 0x66: "\f", 0x6E: "\n", 0x72: "\r", 0x74: "\t"}

    def __init__(self, data):
        self.data, self.at = data, 0

    def peek(self):
        return self.data[self.at] if self.at < len(self.data) else None

    def space(self):
        while self.peek() in (0x20, 0x09, 0x0A, 0x0D):
            self.at += 1

    def unexpected(self):
        return Refused("eof" if self.peek() is None else "syntax", self.at)

    def document(self):
        self.space()
        tree = self.value(0)
        self.space()
        if self.peek() is not None:
            raise Refused("trailing", self.at)
        return tree

    def value(self, depth):
        byte = self.peek()
        if byte == 0x7B:
            return self.object(depth)
        if byte == 0x5B:
            return self.array(depth)
        if byte == 0x22:
            return ("t", quote(self.string()))
        if byte is not None and (byte == 0x2D or 0x30 <= byte <= 0x39):
            return ("t", self.number())
        for word in (b"true", b"false", b"null"):
            if self.data.startswith(word, self.at):
                self.at += len(word)
                return ("t", word.decode())
        raise self.unexpected()

    def array(self, depth):
        if depth == DEPTH_MAX:
            raise Refused("depth", self.at)
        self.at += 1
        items = []
        self.space()
        if self.peek() == 0x5D:
            self.at += 1
            return ("a", items)
        while True:
            self.space()
            items.append(self.value(depth + 1))
            self.space()
            if self.peek() == 0x2C:
                self.at += 1
            elif self.peek() == 0x5D:
                self.at += 1
                return ("a", items)
            else:
                raise self.unexpected()

    def object(self, depth):
        if depth == DEPTH_MAX:
            raise Refused("depth", self.at)
        self.at += 1
        members, positions = [], []
        self.space()
        if self.peek() == 0x7D:
            self.at += 1
            return ("o", members)
        while True:
            self.space()
            if self.peek() != 0x22:
                raise self.unexpected()
            positions.append(self.at)
            name = self.string()
            self.space()
            if self.peek() != 0x3A:
                raise self.unexpected()
            self.at += 1
            self.space()
            members.append((name, self.value(depth + 1)))
            self.space()
            if self.peek() == 0x2C:
                self.at += 1
            elif self.peek() == 0x7D:
                self.at += 1
                break
            else:
                raise self.unexpected()
        seen = set()
        for (name, _), position in zip(members, positions):
            if name in seen:
                raise Refused("dupkey", position)
            seen.add(name)
        return ("o", members)

    def string(self):
        """A decoded string."""
        self.at += 1
        out = []
        while True:
            byte = self.peek()
            if byte is None:
                raise Refused("eof", self.at)
            if byte == 0x22:
                self.at += 1
                return "".join(out)
            if byte < 0x20:
                raise Refused("control", self.at)
            if byte == 0x5C:
                out.append(self.escape())
            elif byte < 0x80:
                out.append(chr(byte))
                self.at += 1
            else:
                for length in (2, 3, 4):
                    try:
                        out.append(self.data[self.at : self.at + length].decode("utf-8"))
                    except UnicodeDecodeError:
                        continue
                    self.at += length
                    break
                else:
                    raise Refused("utf8", self.at)

    def unit(self, at):
        """The code unit of an escape \\uXXXX, or None."""
        found = re.compile(rb"\\u([0-9A-Fa-f]{4})").match(self.data, at)
        return int(found[1], 16) if found else None

    def escape(self):
        start = self.at
        if start + 1 == len(self.data):
            raise Refused("eof", len(self.data))
        letter = self.data[start + 1]
        if letter != 0x75:
            if letter not in self.ESCAPES:
                raise Refused("escape", start)
            self.at += 2
            return self.ESCAPES[letter]
        unit = self.unit(start)
        if unit is None:
            raise Refused("escape", start)
        if not 0xD800 <= unit <= 0xDFFF:
            self.at += 6
            return chr(unit)
        low = self.unit(start + 6)
        if unit >= 0xDC00 or low is None or not 0xDC00 <= low <= 0xDFFF:
            raise Refused("surrogate", start)
        self.at += 12
        return (unit.to_bytes(2, "big") + low.to_bytes(2, "big")).decode("utf-16-be")

    def number(self):
        found = self.NUMBER.match(self.data, self.at)
        start = self.at
        if not found:
            raise Refused("number", start + 1)  # a minus sign and no digit
        end = found.end()
        rest = self.data[end : end + 1]
        integer = found[1]
        if integer == b"0" and found[2] is None and found[3] is None and rest.isdigit():
            raise Refused("number", end)
        if found[2] is None and found[3] is None and rest == b".":
            raise Refused("number", end + 1)
        if found[3] is None and rest in (b"e", b"E"):
            sign = self.data[end + 1 : end + 2] in (b"+", b"-")
            raise Refused("number", end + 1 + sign)
        self.at = end
        digits_at = end
        if found[3]:
            digits_at = found.start(3) + (2 if found[3][1:2] in (b"+", b"-") else 1)
        text = layout(found[0].decode())
        if text is None:
            raise Refused("exponent", digits_at)
        return text


# --- writing ---------------------------------------------------------------------------------


def layout(text):
    """ECMAScript's layout of a decimal, all digits kept. None if its exponent is out of range."""
    mantissa = re.split("[eE]", text)[0]
    if not mantissa.strip("-0."):
        return "0"
    try:
        value = DECIMAL.create_decimal(text)
        finite = value.is_finite() and value != 0
    except decimal.InvalidOperation:
        finite = False
    if not finite or abs(value.adjusted()) > EXPONENT_MAX:
        return None
    sign, digits, _ = value.as_tuple()
    digits = "".join(map(str, digits)).lstrip("0").rstrip("0")
    n, k = value.adjusted() + 1, len(digits)
    if k <= n <= 21:
        body = digits + "0" * (n - k)
    elif 0 < n <= 21:
        body = digits[:n] + "." + digits[n:]
    elif -6 < n <= 0:
        body = "0." + "0" * -n + digits
    else:
        body = digits[0] + ("." + digits[1:] if k > 1 else "") + f"e{n - 1:+d}"
    return ("-" if sign else "") + body


SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def quote(string):
    body = (SHORT.get(ch, f"\\u{ord(ch):04x}" if ch < " " else ch) for ch in string)
    return '"' + "".join(body) + '"'


def write(tree):
    kind, body = tree
    if kind == "t":
        return body
    if kind == "a":
        return "[" + ",".join(map(write, body)) + "]"
    ordered = sorted(body, key=lambda member: member[0].encode("utf-16-be"))
    return "{" + ",".join(quote(name) + ":" + write(value) for name, value in ordered) + "}"


# --- paths -----------------------------------------------------------------------------------

ANY = object()


def parse_path(text):
    """(sign, [segment]); a segment is a str (member), int (element), ('.', ANY) or ('[', ANY)."""

    def bad(offset):
        return Refused("path", offset)

    raw = text.encode("utf-8")
    if raw[:1] not in (b"+", b"-"):
        raise bad(0)
    if raw[1:2] != b"$":
        raise bad(1)
    at, segments = 2, []
    while at < len(raw):
        if len(segments) == SEGMENTS_MAX:
            raise bad(at)
        if raw[at : at + 1] == b".":
            at += 1
            if raw[at : at + 1] == b"*" and raw[at + 1 : at + 2] in (b"", b".", b"["):
                segments.append((".", ANY))
                at += 1
            elif raw[at : at + 1] == b'"':
                at = quoted_name(raw, at, segments, bad)
            else:
                end = at
                while end < len(raw) and raw[end : end + 1] not in (b".", b"["):
                    end += 1
                if end == at:
                    raise bad(at)
                segments.append(raw[at:end].decode("utf-8"))
                at = end
        elif raw[at : at + 1] == b"[":
            at += 1
            end = at
            if raw[at : at + 1] == b"*":
                segments.append(("[", ANY))
                end += 1
            else:
                while raw[end : end + 1].isdigit():
                    end += 1
                if end == at:
                    raise bad(at)
                if raw[at : at + 1] == b"0" and end > at + 1:
                    raise bad(at)
                segments.append(int(raw[at:end]))
            if raw[end : end + 1] != b"]":
                raise bad(end)
            at = end + 1
        else:
            raise bad(at)
    if raw[:1] == b"-" and not segments:
        raise bad(0)
    return raw[:1].decode(), segments


def quoted_name(raw, at, segments, bad):
    """Raw control characters are taken here, unlike in a payload; else it is a JSON string."""
    reader = Reader(raw)
    reader.at = at + 1
    out = []
    while True:
        byte = reader.peek()
        if byte is None:
            raise bad(reader.at)
        if byte == 0x22:
            segments.append("".join(out))
            return reader.at + 1
        try:
            if byte == 0x5C:
                out.append(reader.escape())
            else:
                length = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                out.append(raw[reader.at : reader.at + length].decode("utf-8"))
                reader.at += length
        except Refused as refused:
            raise bad(refused.offset) from None


def matches(segment, step):
    """Whether a segment takes a step: ('.', name) or ('[', index)."""
    kind, which = step
    if isinstance(segment, tuple):
        return segment[0] == kind
    return segment == which and isinstance(segment, str) == (kind == ".")


def relation(segments, steps):
    """'equal', 'prefix' (the node is on the way), 'extension' (it is below), or None."""
    if not all(matches(a, b) for a, b in zip(segments, steps)):
        return None
    return "equal" if len(segments) == len(steps) else "prefix" if len(segments) > len(steps) else "extension"


def select(tree, paths):
    """The tree without what the paths leave out. Refused('only_empty', 0) if nothing is found."""
    leave = [segments for sign, segments in paths if sign == "-"]
    want = [segments for sign, segments in paths if sign == "+"]
    found = []

    def keep(steps):
        if any(relation(segments, steps) == "equal" for segments in leave):
            return False
        return not want or any(relation(segments, steps) for segments in want)

    def walk(node, steps):
        found.extend(1 for segments in want if relation(segments, steps) == "equal")
        kind, body = node
        if kind == "t":
            return node
        if kind == "a":
            items = ((item, steps + [("[", i)]) for i, item in enumerate(body))
            return (kind, [walk(item, path) for item, path in items if keep(path)])
        members = ((name, value, steps + [(".", name)]) for name, value in body)
        return (kind, [(name, walk(value, path)) for name, value, path in members if keep(path)])

    out = walk(tree, [])
    if want and not found:
        raise Refused("only_empty", 0)
    return out


def canonical(payload, paths=()):
    """Canonical text of the bytes of a payload, as bytes."""
    if len(paths) > PATHS_MAX:
        raise Refused("path", 0)
    parsed = [parse_path(path) for path in paths]
    tree = Reader(payload).document()
    return write(select(tree, parsed) if parsed else tree).encode("utf-8")

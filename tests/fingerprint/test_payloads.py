"""Real request bodies: what may change freely, and what may not change at all.

Every body is re-spelled in every way that keeps its meaning: the fingerprint must stay. One leaf,
name, type or order is changed: the fingerprint must change. 2,000 changes in the default run,
100,000 with IDEM_DEEP=1.
"""
import copy
import decimal
import json
import random

import pytest

from fp_kit import DEEP, connect, fingerprint, needs_data, payload_files

pytestmark = needs_data
CHANGES = 100_000 if DEEP else 2_000


class Number(str):
    """A number as its text, so that Python's doubles touch nothing."""


def load(file):
    text = file.read_text("utf-8")
    return json.loads(text, parse_int=Number, parse_float=Number)


def respell_number(rng, text):
    sign, digits, exponent = decimal.Decimal(text).as_tuple()
    digits = "".join(map(str, digits))
    style = rng.randrange(4)
    if style == 0:
        return text
    zeros = rng.randrange(4) if style == 3 else 0
    digits, exponent = digits + "0" * zeros, exponent - zeros
    point = rng.randrange(1, len(digits) + 1)
    integer, fraction = digits[:point], digits[point:]
    integer = integer.lstrip("0") or "0"
    power = exponent + len(fraction)
    out = ("-" if sign else "") + integer + ("." + fraction if fraction else "")
    return out + (f"{rng.choice('eE')}{power:+d}" if power or style == 2 else "")


def respell_string(rng, text):
    out = []
    for ch in text:
        escape = rng.random() < 0.1 or ch < " "
        if escape:
            units = ch.encode("utf-16-be").hex()
            units = units.upper() if rng.random() < 0.5 else units
            out.extend("\\u" + units[i : i + 4] for i in range(0, len(units), 4))
        elif ch in '"\\' or (ch == "/" and rng.random() < 0.5):
            out.append("\\" + ch)
        else:
            out.append(ch)
    return '"' + "".join(out) + '"'


def respell(rng, value):
    def gap():
        return rng.choice(("", "", "", " ", "\n  ", "\r\n\t"))

    if isinstance(value, dict):
        members = [gap() + respell_string(rng, n) + gap() + ":" + gap() + respell(rng, v) + gap() for n, v in value.items()]
        rng.shuffle(members)
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(gap() + respell(rng, v) + gap() for v in value) + "]"
    if isinstance(value, Number):
        return respell_number(rng, value)
    if isinstance(value, str):
        return respell_string(rng, value)
    return json.dumps(value)


def places(value, found=None):
    """All (container, key) pairs."""
    found = [] if found is None else found
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        found.append((value, key))
        places(child, found)
    return found


def change_leaf(rng, value):
    """A value that is not the same."""
    if isinstance(value, Number):
        number = decimal.Decimal(value)
        return rng.choice((Number(number + 1), Number(f"{value}1" if "." in value else f"{value}.1"),
                           Number("-" + value) if number > 0 else Number("7" + value.lstrip("-")), str(value), None))
    if isinstance(value, str):
        at = rng.randrange(len(value) + 1)
        other = value[:at] + rng.choice(("x", "\u0301", " ", "\u200d")) + value[at:]
        return rng.choice((other, [value], value.swapcase() if value.swapcase() != value else other, None))
    if value is None:
        return rng.choice((False, "", "null", Number("0"), {}))
    if isinstance(value, bool):
        return rng.choice((not value, "true" if value else "false", Number("1" if value else "0"), None))
    return {} if value == [] else [] if value == {} else [value]


def change(rng, root):
    """Changes one thing in place, and says what; None if that was not possible here."""
    spots = places(root)
    container, key = spots[rng.randrange(len(spots))]
    how = rng.choice(("leaf", "remove", "rename", "swap", "repeat"))
    if how == "leaf":
        container[key] = change_leaf(rng, container[key])
    elif how == "remove":
        del container[key]
    elif how == "rename" and isinstance(container, dict):
        name = rng.choice((key + "_", key.upper(), key.capitalize(), key[:-1], key + "\u0000"))
        if name in container:
            return None
        container[name] = container.pop(key)
    elif how == "swap" and isinstance(container, list):
        other = rng.randrange(len(container))
        if container[key] == container[other]:
            return None
        container[key], container[other] = container[other], container[key]
    elif how == "repeat" and isinstance(container, list):
        container.insert(key, copy.deepcopy(container[key]))
    else:
        return None
    return how


@pytest.fixture(scope="module")
def db():
    return connect()


@pytest.fixture(scope="module")
def bodies():
    files = payload_files()
    assert len(files) >= 200
    return [(file.name, load(file)) for file in files]


def test_respelling_changes_nothing(db, bodies):
    rng = random.Random(5)
    prints = {}
    for name, body in bodies:
        first = fingerprint(db, respell(random.Random(6), body))
        assert isinstance(first, str), (name, first)
        for _ in range(20 if DEEP else 2):
            text = respell(rng, body)
            assert fingerprint(db, text) == first, name
            assert fingerprint(db, text.encode("utf-8")) == first, name
        prints.setdefault(first, []).append(name)
    assert len(prints) > 0.9 * len(bodies)  # a few bodies are the same file twice


def test_every_change_changes_it(db, bodies):
    rng = random.Random(7)
    small = [body for _, body in bodies if 20 < len(json.dumps(body)) < 12_000 and isinstance(body, (dict, list))]
    assert len(small) >= 100
    before = [fingerprint(db, respell(rng, body)) for body in small]
    done, hows = 0, set()
    while done < CHANGES:
        which = rng.randrange(len(small))
        other = copy.deepcopy(small[which])
        how = change(rng, other)
        if how is None:
            continue
        after = fingerprint(db, respell(rng, other))
        assert isinstance(before[which], str) and isinstance(after, str)
        assert before[which] != after, how
        hows.add(how)
        done += 1
    assert hows == {"leaf", "remove", "rename", "swap", "repeat"}


def test_a_difference_of_one_in_the_last_of_forty_digits(db):
    digits = "1234567890123456789012345678901234567890"
    for text in (digits, "0." + digits, digits + "e-900000000", "-" + digits):
        assert fingerprint(db, text) != fingerprint(db, text.replace(digits, digits[:-1] + "1"))

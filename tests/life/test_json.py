"""The scalar form's answer is JSON, whatever the stored texts hold."""
import json
import random

import pytest

from conftest import claim, connect, one

# What is escaped, what is not, and characters of 2, 3 and 4 bytes.
ALPHABET = ['"', "\\", "\0", "\b", "\n", "\x1f", "\x7f", "/", "a", "b", "é", "\x85", "א", "€", "😀"]


@pytest.fixture
def db(path):
    db = connect(path)
    db.execute("BEGIN IMMEDIATE")
    yield db
    db.close()


def told(db, text):
    """What a replay says that was answered with the text."""
    token = f"token-{one(db, 'SELECT idem_key()')}"
    assert claim(db, token, token=token)["outcome"] == "claimed"
    db.execute("SELECT idem_complete('t', ?, ?, ?)", (token, token, text)).fetchall()
    answer = one(db, "SELECT idem_claim('t', ?, 'fp')", token)
    assert one(db, "SELECT json_valid(?)", answer) == 1
    return json.loads(answer)["response"]


def test_each_character_at_each_place(db):
    for c in map(chr, range(0x100)):
        for place in 0, 7, 15, 16, 17, 31:
            text = "x" * place + c + "x" * (33 - place)
            assert told(db, text) == text


def test_texts_of_every_length(db):
    draw = random.Random(7)
    for n in range(100):
        for plain in 0.0, 0.5, 0.9:
            text = "".join("a" if draw.random() < plain else draw.choice(ALPHABET) for _ in range(n))
            assert told(db, text) == text


@pytest.mark.parametrize("c", ALPHABET)
def test_a_long_text_of_nothing_else(db, c):
    text = c * 200_000
    assert told(db, text) == text

"""The verdict function against an oracle written independently, over every combination of inputs."""
import itertools
import re
import subprocess

import pytest

import verdict_lines
import verdict_oracle as oracle


@pytest.fixture(scope="session")
def enumeration(tmp_path_factory):
    return verdict_lines.compile_enumeration(tmp_path_factory.mktemp("verdict"))


@pytest.fixture(scope="session")
def lines(enumeration):
    out = subprocess.run([enumeration], check=True, capture_output=True, text=True).stdout
    return out.splitlines()


def test_every_combination(lines):
    """Outcome, error, write, audit event, attempt, due and retry_after of every combination."""
    disagreements = []
    for line in lines:
        expected = verdict_lines.wrong(line)
        if expected is not None:
            disagreements.append(f"{line}\n    expected {expected}")
    assert not disagreements, (f"{len(disagreements)} of {len(lines)}, the first ones:\n"
                               + "\n".join(disagreements[:10]))


def test_the_enumeration_is_complete(lines):
    """Nothing is missing: every word of the oracle occurs, and each group is a full product."""
    seen, groups = {}, {}
    for line in lines:
        verb, *words = line.split(" -> ")[0].split(" ")
        pairs = [w.split("=") for w in words]
        group = groups.setdefault((verb, *(name for name, _ in pairs)), [0] + [set() for _ in pairs])
        group[0] += 1
        for values, (name, value) in zip(group[1:], pairs):
            values.add(value)
            seen.setdefault(name, set()).add(value)
    assert seen["record"] == set(oracle.STAGE)
    assert seen["attempts"] == set(oracle.ATTEMPTS)
    assert seen["fp"] == set(oracle.FINGERPRINT)
    assert seen["op"] == set(oracle.OPERATION)
    assert seen["token"] == set(oracle.TOKEN)
    assert seen["answer"] == set(oracle.ANSWER)
    for name, values in (("held", "yes no"), ("logged", "yes no"), ("allow", "yes no"),
                         ("key", "plain letter fingerprint scope all"), ("stale", "unknown retry"),
                         ("audit", "off exceptions all")):
        assert seen[name] == set(values.split()), name
    assert {g[0] for g in groups} == {"claim", "complete", "release", "suspend", "renew", "checkpoint",
                                      "resolve-completed", "resolve-retry", "erase"}
    for name, (count, *dims) in groups.items():
        product = 1
        for values in dims:
            product *= len(values)
        assert count == product, name
    # The heart of it in one product: for a claim every record, fingerprint, operation, key, token and
    # policy; for the worker's verbs every record and token; for answers every difference.
    assert len(set(lines)) == len(lines) > 700_000


@pytest.fixture(scope="session")
def small(enumeration):
    out = subprocess.run([enumeration, "small"], check=True, capture_output=True, text=True).stdout
    return [line.split(" -> ") for line in out.splitlines()]


def test_visible_state(small):
    rows = [(left.split(" ")[1:], right) for left, right in small if left.startswith("visible ")]
    assert len(rows) == 2 * (len(oracle.STAGE) - 1)
    for (record, stale), state in rows:
        assert state == oracle.visible(record, stale), (record, stale)


def test_ends_of_retention_and_tombstone(small):
    """Fixed at completion: a purge in between moves neither."""
    rows = {left.split(" ")[1]: right for left, right in small if left.startswith("ends ")}
    left = {"completed:+1": 1, "completed:0": 0, "completed:-1": -1,
            "completed:tomb+1": 1 - oracle.TOMBSTONE, "completed:tomb0": -oracle.TOMBSTONE,
            "completed:tomb-1": -1 - oracle.TOMBSTONE, "tombstone:far": 1,
            "tombstone:+1": 1 - oracle.TOMBSTONE,
            "tombstone:0": -oracle.TOMBSTONE, "tombstone:-1": -1 - oracle.TOMBSTONE}
    assert rows == {name: f"{ms} {ms + oracle.TOMBSTONE}" for name, ms in left.items()}


def test_names_of_fingerprint_forms(small):
    rows = [(left[len("form "):-1], right) for left, right in small if left.startswith("form ")]
    assert len(rows) > 15
    for value, lengths in rows:
        form = re.match(r"idem[a-z]*[0-9]+:", value)
        n = len(form.group()) if form else 0
        assert lengths == f"{n} {n}", value


def test_sameness_of_values(small):
    """Bytes and type. A TEXT without memory behind it is the empty text."""
    values = [None, "", b"", "a", b"a", "b", "aa", ""]
    rows = {left: right for left, right in small if left.startswith("same ")}
    assert len(rows) == len(values) ** 2
    for (i, a), (j, b) in itertools.product(enumerate(values), repeat=2):
        assert rows[f"same {i} {j}"] == str(int(type(a) is type(b) and a == b)), (a, b)

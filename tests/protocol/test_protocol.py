"""The claim protocol, checked exhaustively with spin, and its rules compared with ext/verdict.c.

Skipped where spin is missing. `make test-model` installs it, and runs the long searches.
"""
import shutil
import subprocess

import pytest

import checker
import verdict_lines
import verdict_oracle as oracle

pytestmark = pytest.mark.skipif(not shutil.which("spin"), reason="needs Debian's package spin")

# Words of the model for those of the enumeration; what is not here is the same.
ERRORS = {"TOKEN_USED": "token_used", "NO_RECORD": "no_record", "EXPIRED": "expired",
          "LOST": "lost", "RELEASED": "released", "ANSWERED": "was_answered",
          "COMPLETED": "was_completed", "SUSPENDED": "suspended", "LIVE": "lease_live",
          "RESOLVED": "resolved", "CLAIMABLE": "claimable", "ERASE": "not_erasable"}
WORKER = {"complete", "release", "suspend", "renew", "checkpoint"}
RESOLVE = {"resolve-completed", "resolve-retry"}
ANSWERING = {"complete", "resolve-completed"}


@pytest.fixture(scope="module")
def model():
    """The model's verdicts: (verb, stage, policy, same, token, used up, again) -> (says, write)."""
    out = subprocess.run(["spin", "-T", "table.pml"], cwd=checker.HERE, capture_output=True,
                         text=True, check=True).stdout
    rows = [line.split(" ") for line in out.splitlines() if " -> " in line]
    table = {(*row[:3], *(word.split("=")[1] for word in row[3:7])): (row[8], row[9])
             for row in rows}
    assert len(table) == len(rows)
    return table


def key(i):
    """A line of the enumeration in the model's words; what is nothing to a verb stands still."""
    claim, worker = i.verb == "claim", i.verb in WORKER
    same = oracle.FINGERPRINT[i.fp] == "same" and oracle.OPERATION[i.op]
    return (i.verb.replace("-", "_"), oracle.STAGE[i.record], i.stale,
            str(int(same)) if claim else "1",
            oracle.token_of(i) or "none" if claim or worker else "none",
            str(int(oracle.used_up(i))) if claim or i.verb in RESOLVE else "0",
            str(int(oracle.ANSWER[i.answer])) if i.verb in ANSWERING else "1")


def in_the_model(i):
    """Two errors are of one request alone: a key that is its own fingerprint, forms that differ."""
    return not (i.allow == "no" and i.key != "plain") and oracle.FINGERPRINT[i.fp] != "forms"


def says(verb, verdict):
    """What the C code says, in the model's words. A mark is a note for the audit alone."""
    write = "none" if verdict.write == "mark" else verdict.write.replace("-", "_")
    if verdict.error != "none":
        return ERRORS[verdict.error], write
    return (verdict.outcome if verb == "claim" else "ok"), write


def test_the_model_decides_as_the_code_does(model, tmp_path):
    """Every line of the enumeration, as the model sees it; and every line of the model is met.

    The audit changes no record, and which keys are allowed is not about records: one value will do.
    """
    program = verdict_lines.compile_enumeration(tmp_path)
    out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    met, compared = set(), 0
    for line in out.splitlines():
        if "audit=exceptions" not in line or "logged=yes" in line or "allow=yes" in line:
            continue
        i, verdict = verdict_lines.parse(line)
        if not in_the_model(i):
            continue
        assert model[key(i)] == says(i.verb, verdict), line
        met.add(key(i))
        compared += 1
    assert set(model) - met == set()
    assert compared > 50_000


@pytest.fixture(scope="module")
def spin(tmp_path_factory):
    return checker.Checker(tmp_path_factory.mktemp("spin"))


@pytest.mark.parametrize("name", checker.SHORT)
def test_it_holds(spin, name):
    result = spin.check(checker.SHORT[name])
    assert result.caught is None, result.text
    assert result.states > 3000


@pytest.mark.parametrize("name", checker.PROGRESS_SHORT)
def test_progress(spin, name):
    result = spin.check(checker.PROGRESS_SHORT[name], progress=True)
    assert result.caught is None, result.text
    assert result.states > 800


@pytest.mark.parametrize("number", checker.MUTANTS)
def test_mistakes_are_noticed(spin, number):
    mutant = checker.MUTANTS[number]
    result = spin.check(mutant.parameters | {"MUTANT": number}, mutant.caught == "progress")
    assert result.caught == mutant.caught, mutant.what

"""The enumeration notices every small change of verdict.c; see mutants.py."""
import pytest

import mutants
from conftest import DEEP

SAMPLE = 8  # of some hundred, spread over the file; IDEM_DEEP=1 takes all


@pytest.fixture(scope="module")
def court(tmp_path_factory):
    return mutants.Court(tmp_path_factory.mktemp("mutants"))


def test_every_mutant_is_noticed(court):
    every = list(mutants.mutants(court.original))
    assert len(every) > 300
    chosen = every if DEEP else every[7::len(every) // SAMPLE]
    killed, equivalent, survivors = mutants.judge_all(chosen, court)
    print(f"{len(killed)} killed, {len(equivalent)} equivalent, of {len(every)} mutants")
    assert not survivors, "\n".join(map(mutants.describe, survivors))
    assert len(killed) >= len(chosen) // 2


def test_the_excuses_are_still_about_the_code(court):
    """What is listed as equivalent is a mutant that exists."""
    every = {(m.was, m.now) for m in mutants.mutants(court.original)}
    assert set(mutants.EQUIVALENT) <= every

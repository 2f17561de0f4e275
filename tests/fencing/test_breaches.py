"""The mutants of breaches.py: made and judged with IDEM_DEEP=1, and by `make test-mutants`."""
import pytest

import breaches
from conftest import DEEP


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return breaches.Bench(tmp_path_factory.mktemp("bench"))


@pytest.mark.skipif(not DEEP, reason="IDEM_DEEP=1: minutes")
@pytest.mark.parametrize("breach", breaches.BREACHES, ids=lambda b: b.what)
def test_it_is_noticed(bench, breach):
    assert bench.noticed(breach), f"{breach.file}: {breach.was!r} became {breach.now!r}"


def test_the_mutants_are_still_about_the_code():
    """Each can be made: its text stands in the source once."""
    for breach in breaches.BREACHES:
        assert (breaches.EXT / breach.file).read_text().count(breach.was) == 1, breach.what
        assert all((breaches.ROOT / "tests" / name).exists() for name in breach.tests.split())
    assert {b.file for b in breaches.BREACHES} == {"store.c", "claim.c", "finish.c",
                                                   "records_table.c"}

"""The fixtures of the bug tests; their words are in bug_words.py."""
import pytest

from bug_words import CLAIM, Pair


@pytest.fixture(params=["WAL", "DELETE"])
def journal(request):
    return request.param


@pytest.fixture(params=list(CLAIM))
def form(request):
    return request.param


@pytest.fixture
def pair(tmp_path, journal, form):
    """C1 and C2 in WAL and in DELETE mode, claims in both forms."""
    pair = Pair(tmp_path / "test.db", journal, form)
    yield pair
    pair.close()

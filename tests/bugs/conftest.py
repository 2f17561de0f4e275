"""The fixtures of the bug tests; their words are in bug_words.py."""
import pytest

from bug_words import Pair


@pytest.fixture(params=["WAL", "DELETE"])
def journal(request):
    return request.param


@pytest.fixture(params=["table", "carrier"])
def form(request):
    return request.param


@pytest.fixture
def pair(tmp_path, journal, form):
    """C1 and C2 in WAL and in DELETE mode, claims in each form."""
    pair = Pair(tmp_path / "test.db", journal, form)
    yield pair
    pair.close()

"""Fixtures of the ledger tests. The book itself is in ledger_book.py."""
import pytest
from ledger_book import Book

MODES = [(fk, rt) for fk in (0, 1) for rt in (0, 1)]


@pytest.fixture(params=MODES, ids=["fk%d-rt%d" % m for m in MODES])
def book(request):
    """A book under all four combinations of foreign_keys and recursive_triggers."""
    b = Book(foreign_keys=request.param[0], recursive_triggers=request.param[1])
    yield b
    assert b.one("PRAGMA integrity_check") == "ok"
    b.db.close()


@pytest.fixture
def one_book():
    b = Book()
    yield b
    b.db.close()


@pytest.fixture
def file_book(tmp_path):
    """A book in a WAL file, for tests with several connections or processes."""
    path = str(tmp_path / "book.db")
    b = Book(path)
    b("PRAGMA journal_mode = WAL")
    b("PRAGMA synchronous = OFF")
    b.path = path
    yield b
    b.db.close()

"""idem, a SQLite extension: load(connection) loads it, loadable_path() says where it is."""
import os
import pathlib

__all__ = ["load", "loadable_path"]


def loadable_path() -> str:
    """The library's file. The environment variable IDEM_LOADABLE names another one."""
    return os.environ.get("IDEM_LOADABLE") or str(pathlib.Path(__file__).with_name("idem.so"))


def load(connection) -> None:
    """Loads idem into a connection of sqlite3 or apsw, and forbids loading again afterwards."""
    if hasattr(connection, "enable_load_extension"):
        enable, load_extension = connection.enable_load_extension, connection.load_extension
    elif hasattr(connection, "enableloadextension"):  # an older apsw, Debian's say
        enable, load_extension = connection.enableloadextension, connection.loadextension
    else:
        raise RuntimeError("this Python's sqlite3 was built without loadable extensions:"
                           " use another build of Python, or apsw")
    enable(True)
    try:
        load_extension(loadable_path())
    finally:
        enable(False)

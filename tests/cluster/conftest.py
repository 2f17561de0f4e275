"""Cluster tests need Debian's libdqlite-dev. `make test` skips them without it; `make test-cluster`
installs it."""
import pathlib
import subprocess

import pytest

from cluster.nodes import NODE, ROOT


@pytest.fixture(scope="session")
def node_program():
    if not pathlib.Path("/usr/include/dqlite.h").exists():
        pytest.skip("libdqlite-dev is not installed: make test-cluster installs it")
    done = subprocess.run(
        ["make", "-j2", "build/idem-node"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return NODE

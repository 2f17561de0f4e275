"""Cluster tests need Debian's libdqlite-dev. `make test` skips them without it, and runs the most
telling ones with it; `make test-cluster` installs it and runs all.
"""
import os
import pathlib
import subprocess

import pytest

from cluster.nodes import NODE, ROOT

ALL = "CLUSTER_SECONDS" in os.environ
ALWAYS = ("test_shapes", "test_storm")


def pytest_collection_modifyitems(items):
    """Only for this folder's items: the others' are none of our business."""
    here = pathlib.Path(__file__).parent
    for item in items:
        if here in item.path.parents and not ALL and item.path.stem not in ALWAYS:
            if "node_program" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason="make test-cluster runs it"))


@pytest.fixture(scope="session")
def node_program():
    if not pathlib.Path("/usr/include/dqlite.h").exists():
        pytest.skip("libdqlite-dev is not installed: make test-cluster installs it")
    done = subprocess.run(
        ["make", "-j2", "build/idem-node"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return NODE

"""Faults under load, everything counted: see storm.py. CLUSTER_SECONDS says for how long."""
import json
import os
import subprocess
import sys

import pytest

from cluster.nodes import ROOT

SECONDS = float(os.environ.get("CLUSTER_SECONDS", 3))


def namespaces_allowed():
    done = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "idem-br", "type", "bridge"],
        capture_output=True,
        text=True,
    )
    return done.returncode == 0, done.stderr.strip()


@pytest.mark.parametrize("network", ["loopback", "namespaces"])
def test_nothing_is_lost_and_nothing_happens_twice(node_program, network):
    if network == "namespaces":
        allowed, why = namespaces_allowed()
        if not allowed:
            pytest.skip(f"no network namespaces here: {why}")
        if "CLUSTER_SECONDS" not in os.environ:
            pytest.skip("make test-cluster cuts networks as well")
    elif "CLUSTER_SECONDS" in os.environ and namespaces_allowed()[0]:
        pytest.skip("the storm in namespaces has these faults as well")
    words = [sys.executable, str(ROOT / "tests" / "cluster" / "storm.py"), str(SECONDS)]
    if network == "namespaces":
        words = ["unshare", "--net", *words, "--net"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS + 240)
    assert done.stdout, done.stderr
    print(done.stdout)
    assert json.loads(done.stdout)["failures"] == [], done.stdout

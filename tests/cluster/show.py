#!/usr/bin/env python3
"""Three nodes on 127.0.0.1 to look at.

    show.py start [folder]      (make cluster) founds a cluster, claims a key, kills the leader with
                                SIGKILL, shows the claim on the next one, restarts the killed node,
                                and leaves the three running
    show.py stop [folder]       (make cluster-stop) stops them and removes their data
"""
import json
import os
import pathlib
import shutil
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cluster.nodes import Cluster, ROOT  # noqa: E402

CLAIM = (
    "INSERT INTO idem_records(scope, key, fingerprint, operation, token)"
    " VALUES ('acct_1', 'order-123', 'fp', 'POST /payments', 'my-token-of-try-1')"
)
LOOK = "SELECT key, state, attempt FROM idem_records WHERE scope = 'acct_1' AND key = 'order-123'"
AGAIN = "SELECT outcome FROM idem_claim('acct_1', 'order-123', 'fp', 'POST /payments', ?)"


def ask(db, token):
    """What a claim says, in a transaction that is rolled back."""
    db.execute("BEGIN IMMEDIATE")
    try:
        return db.query(AGAIN, token)[0][0]
    finally:
        db.execute("ROLLBACK")


def start(folder):
    if (folder / "nodes.json").exists():
        raise SystemExit(f"{folder} has a cluster already: make cluster-stop")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nodes.json").write_text("[]")  # should they not come up, stop removes the rest
    cluster = Cluster(folder, ports=(9001, 9002, 9003)).__enter__()
    remember(folder, cluster)
    leader = cluster.leader()
    print("nodes: ", ", ".join(n.address for n in cluster.nodes), "  leader:", leader.address)
    with cluster.connect("shop.db") as db:
        db.execute("INSERT INTO idem_call SELECT idem_init()")
        db.execute(CLAIM)
        print("claim:  ", *db.query(LOOK)[0])
    leader.kill()
    since = time.monotonic()
    with cluster.connect("shop.db") as db:
        print(
            f"killed:  {leader.address} with SIGKILL; {db.address} leads"
            f" {time.monotonic() - since:.2f} s later"
        )
        print("claim:  ", *db.query(LOOK)[0])
        print("asked again with its own token:  ", ask(db, "my-token-of-try-1"))
        print("asked again with another token:  ", ask(db, "somebody-elses-token"))
    leader.start()
    remember(folder, cluster)
    print("restarted; all three run until make cluster-stop. SQL:")
    print(f"  python3 tests/cluster/sql.py {','.join(n.address for n in cluster.nodes)} shop.db")


def remember(folder, cluster):
    nodes = [{"address": n.address, "pid": n.process.pid} for n in cluster.nodes]
    (folder / "nodes.json").write_text(json.dumps(nodes))


def stop(folder):
    """Only processes that still are what they were."""
    if not (folder / "nodes.json").exists():
        print("no cluster runs")
        return
    for node in json.loads((folder / "nodes.json").read_text()):
        command = pathlib.Path(f"/proc/{node['pid']}/cmdline")
        for i in range(100):
            if not command.exists() or node["address"].encode() not in command.read_bytes():
                break
            os.kill(node["pid"], signal.SIGTERM if i < 50 else signal.SIGKILL)
            time.sleep(0.1)
    shutil.rmtree(folder)
    print("stopped")


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "build" / "cluster"
    {"start": start, "stop": stop}[sys.argv[1]](where)

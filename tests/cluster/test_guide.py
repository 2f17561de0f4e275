"""ext/cluster/README.md is executed: its nodes start, its SQL runs there and on one machine."""
import os
import re
import signal
import subprocess
import sys

from cluster.nodes import ROOT, Cluster
from cluster.sql import yields_rows

GUIDE = (ROOT / "ext" / "cluster" / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.M | re.S)


def with_own_ports(text, folder, ports):
    """Its ports and directories, replaced by free ones."""
    for i, port in enumerate(ports, 1):
        text = text.replace(f"127.0.0.1:900{i}", f"127.0.0.1:{port}")
        text = text.replace(f"/tmp/idem-{i}", str(folder / f"idem-{i}"))
    return text


def sql_and_output():
    return [
        (body, output)
        for (kind, body), (next_kind, output) in zip(BLOCKS, BLOCKS[1:])
        if kind == "sql" and next_kind == "text"
    ]


def test_the_guide_does_what_it_says(node_program, tmp_path):
    cluster = Cluster(tmp_path)
    ports = [n.address.split(":")[1] for n in cluster.nodes]
    shell = [with_own_ports(body, tmp_path, ports) for kind, body in BLOCKS if kind == "sh"]
    start = next(s for s in shell if "build/idem-node -f 1" in s).replace("make idem-node", "true")
    call = next(s for s in shell if "sql.py" in s)
    nodes = subprocess.Popen(
        ["sh", "-c", start + "wait"], cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL
    )
    try:
        cluster.wait(lambda: len(cluster.voters()) == 3, "all nodes vote")
        for body, output in sql_and_output():
            (tmp_path / "script.sql").write_text(body)
            done = subprocess.run(
                ["sh", "-c", call.replace("script.sql", str(tmp_path / "script.sql"))],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert (done.stdout, done.stderr, done.returncode) == (output, "", 0)
    finally:
        os.killpg(nodes.pid, signal.SIGTERM)
        nodes.wait(10)


def test_the_same_sql_runs_on_one_machine(tmp_path):
    done = subprocess.run(
        ["sqlite3", str(tmp_path / "one.db")],
        input=f".load {ROOT / 'idem'}\n" + "".join(body for body, _ in sql_and_output()),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "".join(output for _, output in sql_and_output()) and not done.stderr


def test_what_goes_out_as_query():
    for sql in (
        "SELECT 1;",
        "-- a comment; of 'mine\nSELECT 1;",
        "WITH a AS (SELECT replace('x', 'y', 'INSERT')) SELECT * FROM a;",
        "INSERT INTO t VALUES ('x') returning a;",
        "VALUES (1);",
        "PRAGMA integrity_check;",
        "EXPLAIN QUERY PLAN DELETE FROM t;",
    ):
        assert yields_rows(sql), sql
    for sql in (
        "INSERT INTO t VALUES ('returning soon');",
        "INSERT INTO t VALUES (1); -- without RETURNING",
        'INSERT INTO t("returning") VALUES (1);',
        "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a;",
        "/* SELECT */ UPDATE t SET a = 'it''s';",
        "PRAGMA user_version = 5;",
        "BEGIN IMMEDIATE;",
    ):
        assert not yields_rows(sql), sql


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", GUIDE):
        assert (ROOT / "ext" / "cluster" / target).exists(), target


def test_make_cluster(node_program, tmp_path):
    """`make cluster` and `make cluster-stop`, in a folder of their own."""
    show = [sys.executable, str(ROOT / "tests" / "cluster" / "show.py")]
    folder = str(tmp_path / "show")
    try:
        done = subprocess.run([*show, "start", folder], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("claim:   order-123 processing 1") == 2
        assert re.search("its own token: +claimed\n.*another token: +in_progress", done.stdout)
    finally:
        done = subprocess.run([*show, "stop", folder], capture_output=True, text=True, timeout=60)
    assert done.stdout == "stopped\n" and not os.path.exists(folder)

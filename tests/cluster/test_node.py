"""The node program itself: its arguments, its signals, its directory."""
import shutil
import signal
import subprocess
import time

import pytest

from cluster.nodes import NODE, Cluster, Node, free_port
from cluster.storm import is_known_crash, libraries_of
from cluster.wire import EXEC_SQL, RESULT, TRANSFER, Client, Refused, text, word


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["1"],
        ["1", "127.0.0.1:9"],
        ["0", "127.0.0.1:9", "d"],
        ["x", "127.0.0.1:9", "d"],
        ["-l", "0", "2", "127.0.0.1:9", "d"],
        ["-q", "1", "127.0.0.1:9", "d"],
        ["-l", "20ms", "2", "127.0.0.1:9", "d"],
        ["2x", "127.0.0.1:9", "d"],
        ["99999999999999999999", "127.0.0.1:9", "d"],
        ["1", "127.0.0.1:9", "d", "127.0.0.1:10"],
        ["-f", "2", "127.0.0.1:9", "d"],
        ["2", "1" * 64, "d"],
        ["1", "nowhere", "d"],
        ["1", "127.0.0.1", "d"],
        ["1", "300.0.0.1:9", "d"],
        ["1", "127.0.0.1:65536", "d"],
    ],
)
def test_wrong_arguments(node_program, tmp_path, words):
    done = subprocess.run([NODE, *words], cwd=tmp_path, capture_output=True, text=True, timeout=10)
    assert done.returncode == 2 and done.stderr.startswith("usage:")
    assert list(tmp_path.iterdir()) == []


def refusal(*words):
    """Why a node does not start."""
    done = subprocess.run([NODE, *map(str, words)], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and done.stdout == ""
    return done.stderr


def test_an_address_that_is_not_ours(node_program, tmp_path):
    why = refusal("-f", 1, "192.0.2.1:9999", tmp_path / "d")
    assert why == "idem-node: 192.0.2.1:9999: Cannot assign requested address\n"


def take_out(cluster, number):
    """As soon as the change before is complete."""

    def attempt():
        with Client(cluster.leader().address) as c:
            c.remove(number)
        return True

    cluster.wait(attempt, "the lost node is taken out")


def test_a_lost_directory_is_not_replaced_by_an_empty_one(node_program, tmp_path):
    """Node 1 would found a second cluster, where every key is new; another would vote without what
    it had acknowledged."""
    with Cluster(tmp_path) as cluster:
        cluster.prepare(["CREATE TABLE t(a)", "INSERT INTO t VALUES (1)"])
        for node in cluster.nodes[:2]:
            node.kill()
            shutil.rmtree(node.folder)
            others = [n.address for n in cluster.nodes if n is not node]
            words = node.number, node.address, node.folder, *(others if node.number > 1 else ())
            cluster.leader()
            assert "comes back under a new number" in refusal(*words)
            assert list(node.folder.iterdir()) == []
            new = Node(node.number + 3, f"127.0.0.1:{free_port()}", f"{node.folder}-new", others)
            new.start()
            cluster.nodes.append(new)
            cluster.wait(lambda: new.address in cluster.voters(), "the new node votes")
            take_out(cluster, node.number)
        with cluster.connect() as db:
            assert db.query("SELECT a FROM t") == [(1,)]


def test_a_directory_has_one_node(node_program, tmp_path):
    """At a time; and it is founded once."""
    node = Node(1, f"127.0.0.1:{free_port()}", tmp_path / "node1")
    node.start()
    while "ready" not in node.log():
        time.sleep(0.01)
    other = f"127.0.0.1:{free_port()}"
    assert "another node runs in it" in refusal(1, other, node.folder)
    assert "Address already in use" in refusal("-f", 1, node.address, tmp_path / "d")
    assert node.stop() == 0
    assert "start it without -f" in refusal("-f", 1, other, node.folder)
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refusal("-f", 1, other, tmp_path / "file")


def test_stops_while_nobody_lets_it_join(node_program, tmp_path):
    node = Node(2, f"127.0.0.1:{free_port()}", tmp_path / "n", [f"127.0.0.1:{free_port()}"])
    node.start()
    while "ready" not in node.log():
        time.sleep(0.01)
    time.sleep(0.5)
    assert node.running() and node.stop() == 0


def test_stops_cleanly_and_comes_back(node_program, tmp_path):
    """SIGTERM in the middle of a client's transaction, on every node; then all start again."""
    with Cluster(tmp_path) as cluster:
        cluster.prepare(["CREATE TABLE t(a)", "INSERT INTO t VALUES (1)"])
        with cluster.connect() as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO t VALUES (2)")
            assert [n.stop() for n in cluster.nodes] == [0, 0, 0]
        for node in cluster.nodes:
            node.start()
        with cluster.connect() as db:
            assert db.query("SELECT a FROM t") == [(1,)]
        cluster.wait(lambda: len(cluster.voters()) == 3, "all vote again")
        cluster.wait(lambda: cluster.nodes[1].log().count("joined") == 2, "found to be a member")


def test_followers_outlive_their_leader(node_program, tmp_path):
    """Without SIGPIPE ignored, the next write to the dead leader would end them."""
    with Cluster(tmp_path) as cluster:
        cluster.prepare(["CREATE TABLE t(a)"])
        for i in range(3):
            with cluster.connect() as db:
                db.execute("INSERT INTO t VALUES (?)", i)
            leader = cluster.leader()
            leader.kill()
            assert cluster.leader() is not leader
            time.sleep(0.3)
            assert cluster.dead() == {leader.number: -9}
            leader.start()
        with cluster.connect() as db:
            assert db.query("SELECT a FROM t") == [(0,), (1,), (2,)]


def test_a_crash_says_where_it_was(node_program, tmp_path):
    """And the storm forgives libraft's alone, not one with idem or SQLite on the stack."""
    with Cluster(tmp_path) as cluster:
        node = cluster.followers()[0]
        node.signal(signal.SIGSEGV)
        assert node.process.wait(10) == -signal.SIGSEGV
        where = node.log().rpartition("crashed in\n")[2].splitlines()[1:]
        assert len(where) > 3 and not is_known_crash(where)
    libc, raft, sqlite, ours = (
        f"{f}(+0x1)[0x1]" for f in ("/l/libc.so.6", "/l/libraft.so.2", "/l/libsqlite3.so.0", NODE)
    )
    assert is_known_crash([libc, libc, raft, raft, libc])
    assert not is_known_crash([libc, libc, raft, ours])
    assert not is_known_crash([libc, sqlite, raft, libc])
    assert not is_known_crash([libc, libc])


def test_handing_over_under_load_may_end_a_leader_of_dqlite(node_program, tmp_path):
    """With plain SQL: it is no doing of idem. What was acknowledged is there after the restart."""
    with Cluster(tmp_path, latency=100) as cluster:
        for database in ("one.db", "two.db"):
            cluster.prepare(["CREATE TABLE t(a)", "INSERT INTO t VALUES (1)"], database)
        leader, followers = cluster.leader(), cluster.followers()
        with Client(leader.address, "one.db") as one, Client(leader.address) as admin:
            two = Client(leader.address, "two.db")
            for node in followers:
                node.signal(signal.SIGSTOP)
            insert = word(0) + text("INSERT INTO t VALUES (2)")
            one.send(EXEC_SQL, insert)  # has no majority
            admin.send(TRANSFER, word(followers[0].number))
            time.sleep(0.2)
            with pytest.raises(Refused) as refusal:
                two.ask(EXEC_SQL, insert, RESULT)
            assert refusal.value.code == 7
            two.close()
            time.sleep(0.5)
        for node in followers:
            node.signal(signal.SIGCONT)
        if not leader.running():  # as in dqlite 1.11, in leader__close
            where = leader.log().rpartition("crashed in\n")[2].splitlines()[1:]
            assert not {"idem-node", "libsqlite3"} & set(libraries_of(where)), where
            leader.start()
        for database in ("one.db", "two.db"):
            with cluster.connect(database) as db:
                assert (1,) in db.query("SELECT a FROM t")
        cluster.wait(lambda: leader.address in cluster.voters(), "all vote")


def test_a_lost_machine_is_replaced(node_program, tmp_path):
    """Under a new number, through any member; then the old one is taken out."""
    with Cluster(tmp_path) as cluster:
        cluster.prepare(["CREATE TABLE t(a)", "INSERT INTO t VALUES (1)"])
        lost = cluster.followers()[0]
        lost.kill()
        shutil.rmtree(lost.folder)
        others = [n.address for n in cluster.nodes]
        new = Node(4, f"127.0.0.1:{free_port()}", tmp_path / "node4", others)
        new.start()
        cluster.nodes.append(new)
        cluster.wait(lambda: len(cluster.voters()) == 4, "the new node votes")
        take_out(cluster, lost.number)
        cluster.wait(lambda: len(cluster.voters()) == 3, "the lost node is no member")
        next(n for n in cluster.nodes if n is not new and n is not lost).kill()
        cluster.prepare(["INSERT INTO t VALUES (2)"])  # of two voters the new one is needed
        with cluster.connect() as db:
            assert {(1,), (2,)} == set(db.query("SELECT a FROM t"))


def test_extensions_cannot_be_loaded(node_program, tmp_path):
    """Why there is a node program at all."""
    with Cluster(tmp_path) as cluster, cluster.connect() as db:
        with pytest.raises(Refused):
            db.query("SELECT load_extension('./idem')")
        assert db.query("SELECT idem_version()")[0][0].startswith("idem ")


def test_a_follower_refuses_every_statement(node_program, tmp_path):
    with Cluster(tmp_path) as cluster:
        cluster.prepare(["INSERT INTO idem_call SELECT idem_init()"])
        with Client(cluster.followers()[0].address, "test.db") as db:
            for sql in ("SELECT idem_claim('t', 'key-1', 'fp')", "SELECT 1"):
                with pytest.raises(Refused) as refusal:
                    db.query(sql)
                assert refusal.value.code == 10250

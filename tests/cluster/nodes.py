"""Three nodes of idem-node on 127.0.0.1, to be killed, stopped, continued, restarted at will."""
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time

from cluster.wire import BUSY, LEADERSHIP_LOST, NOT_LEADER, Client, Refused

ROOT = pathlib.Path(__file__).resolve().parents[2]
NODE = pathlib.Path(os.environ.get("IDEM_NODE", ROOT / "build" / "idem-node"))
RETRY = (BUSY, NOT_LEADER, LEADERSHIP_LOST)

# A port is free until its node starts: none is given twice, and each worker has its own.
WORKER = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "0"))) % 4
PORTS = range(10000 + 5500 * WORKER, 15500 + 5500 * WORKER)
given = set()


def free_port(port=0):
    """The wanted one if it is free; else one below the range that the system gives to outgoing
    connections, so that it stays free while its node is down."""
    while True:
        port = port or random.choice([p for p in PORTS if p not in given])
        given.add(port)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                port = 0


class Node:
    def __init__(self, number, address, folder, join=(), latency=20, wrap=()):
        self.number, self.address, self.folder = number, address, pathlib.Path(folder)
        self.program = [*wrap, str(NODE)]
        self.arguments = ["-l", str(latency), str(number), address, str(folder), *join]
        self.found = ["-f"] if number == 1 else []  # until it has been started
        self.process = None

    def start(self):
        assert not self.running()
        with open(f"{self.folder}.log", "ab") as log:
            command = [*self.program, *self.found, *self.arguments]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.found = []

    def running(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds=10):
        """Asks it to stop; the exit code."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def log(self):
        return pathlib.Path(f"{self.folder}.log").read_text()


class Cluster:
    """`with Cluster(folder) as c:` gives n nodes that may all vote; all are gone afterwards."""

    def __init__(self, folder, ports=(0, 0, 0), latency=20, namespaces=None):
        self.namespaces = namespaces
        if namespaces:
            addresses = [f"{a}:9001" for a in namespaces.addresses]
        else:
            addresses = [f"127.0.0.1:{free_port(p)}" for p in ports]
        self.nodes = [
            Node(
                i + 1,
                a,
                pathlib.Path(folder) / f"node{i + 1}",
                addresses[:1] if i else (),
                latency,
                namespaces.wrap(i + 1) if namespaces else (),
            )
            for i, a in enumerate(addresses)
        ]

    def __enter__(self):
        try:
            for node in self.nodes:
                node.start()
            self.wait(lambda: len(self.voters()) == len(self.nodes), "all nodes vote")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            if node.running():
                node.kill()

    def wait(self, condition, what, seconds=15):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                value = condition()
                if value:
                    return value
            except (OSError, Refused):
                pass
            time.sleep(0.01)
        raise TimeoutError(
            f"{what}: not within {seconds} s; "
            + "; ".join(f"node {n.number}: {n.log()[-300:]}" for n in self.nodes)
        )

    def voters(self):
        with Client(self.find_leader(), timeout=1) as c:
            return [address for address, role in c.members().values() if role == 0]

    def find_leader(self):
        """The address of a node that says of itself that it leads. ConnectionError if none does."""
        for node in self.nodes:
            try:
                with Client(node.address, timeout=0.5) as c:
                    if c.leader() == node.address:
                        return node.address
            except OSError:
                pass
        raise ConnectionError("no node leads")

    def leader(self, seconds=15):
        """The node that leads."""
        address = self.wait(self.find_leader, "a leader", seconds)
        return next(n for n in self.nodes if n.address == address)

    def followers(self):
        leader = self.leader()
        return [n for n in self.nodes if n is not leader]

    def connect(self, database="test.db", timeout=5.0, seconds=15):
        """A connection to the leader."""
        return self.wait(
            lambda: Client(self.find_leader(), database, timeout), "a connection", seconds
        )

    def prepare(self, statements, database="test.db", seconds=30):
        """Runs what makes tables, through any failover: what exists already is done."""
        deadline = time.monotonic() + seconds
        for sql in statements:
            while True:
                try:
                    with self.connect(database) as db:
                        db.execute(sql)
                    break
                except (OSError, Refused) as e:
                    if "already exists" in str(e):
                        break
                    if time.monotonic() > deadline or getattr(e, "code", BUSY) not in RETRY:
                        raise

    def client(self, database, rng, timeout=3.0):
        """One attempt to reach the leader, as an application makes it: nodes in any order."""
        for node in rng.sample(self.nodes, len(self.nodes)):
            try:
                with Client(node.address, timeout=0.5) as c:
                    leader = c.leader()
                return Client(leader, database, timeout)
            except (OSError, ValueError):
                continue
        raise ConnectionError("no node knows a leader")

    def dead(self):
        """The exit codes of nodes that died: a crash shows as a negative number."""
        return {n.number: n.process.returncode for n in self.nodes if not n.running()}


class Namespaces:
    """A network namespace for each of n nodes, joined by a bridge in that of the caller, which must
    be a fresh one: start the program below `unshare --net`. They vanish with their holders."""

    def __init__(self, n):
        self.addresses = [f"10.77.0.{i + 1}" for i in range(n)]
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "7200"]) for _ in range(n)]
        self.run("ip link set lo up")
        self.run("ip link add idem-br type bridge")
        self.run("ip addr add 10.77.0.254/24 dev idem-br")
        self.run("ip link set idem-br up")
        for i, holder in enumerate(self.holders, 1):
            while os.readlink(f"/proc/{holder.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
                time.sleep(0.01)
            self.run(f"ip link add port{i} type veth peer name eth0 netns {holder.pid}")
            self.run(f"ip link set port{i} master idem-br up")
            self.run(f"ip addr add 10.77.0.{i}/24 dev eth0", i)
            self.run("ip link set eth0 up", i)
            self.run("ip link set lo up", i)

    def wrap(self, number):
        return ("nsenter", f"--net=/proc/{self.holders[number - 1].pid}/ns/net", "--")

    def run(self, command, number=None):
        wrap = self.wrap(number) if number else ()
        subprocess.run([*wrap, *command.split()], check=True, timeout=10)

    def cut(self, node):
        """From the other nodes, not from clients."""
        for address in self.addresses:
            if not node.address.startswith(address):
                self.run(f"ip route add blackhole {address}/32", node.number)

    def mend(self, node):
        for address in self.addresses:
            if not node.address.startswith(address):
                self.run(f"ip route del blackhole {address}/32", node.number)

    def pull(self, node):
        self.run(f"ip link set port{node.number} down")

    def plug(self, node):
        self.run(f"ip link set port{node.number} up")

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()

"""servers.py: a PostgreSQL and Redis servers of our own, for bench.py.

Each runs below the folder given, on a free port of 127.0.0.1, with the settings that it comes with
except for what is written here, and is stopped by its process id.
"""
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, process, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"{process.args[0]} did not start")


class Server:
    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder)


class Postgres(Server):
    """PostgreSQL refuses to run as root: then it runs as the package's user, postgres."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "postgres")
        self.port = free_port()
        self.bin = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        self.identity = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            self.identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def __enter__(self):
        os.makedirs(self.folder)
        if self.identity:
            os.chown(self.folder, self.identity["user"], self.identity["group"])
        command = [f"{self.bin}/initdb", "-D", f"{self.folder}/data", "-U", "bench", "-A", "trust",
                   "--locale", "C.UTF-8"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder,
                       **self.identity)
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(
                [f"{self.bin}/postgres", "-D", f"{self.folder}/data", "-p", str(self.port),
                 "-k", self.folder, "-c", "listen_addresses=127.0.0.1"],
                stdout=log, stderr=log, cwd=self.folder, **self.identity)
        wait_for(self.port, self.process)
        self.tcp = f"host=127.0.0.1 port={self.port} user=bench dbname=postgres"
        self.unix = f"host={self.folder} port={self.port} user=bench dbname=postgres"
        return self


class Redis(Server):
    """appendfsync is "always" or "everysec"; no snapshots, no rewriting of the log meanwhile."""

    def __init__(self, folder, appendfsync):
        self.folder = os.path.join(folder, f"redis-{appendfsync}")
        self.port = free_port()
        self.appendfsync = appendfsync

    def __enter__(self):
        os.makedirs(self.folder)
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
                 "--dir", self.folder, "--save", "", "--appendonly", "yes",
                 "--appendfsync", self.appendfsync, "--auto-aof-rewrite-percentage", "0"],
                stdout=log, stderr=log)
        wait_for(self.port, self.process)
        return self

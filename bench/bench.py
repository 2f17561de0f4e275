#!/usr/bin/env python3
"""bench/bench.py: every benchmark in one go; `make bench` builds what it needs and runs it.

    bench/bench.py                          # all: limit, peers, growth (about 5 minutes)
    bench/bench.py --only limit             # one part; may be given several times
    bench/bench.py --records 10000000       # growth up to so many records (default 1,000,000)
    bench/bench.py --tables                 # measures nothing: tables and plots of the last run

Contenders take turns within every part, so that a machine that slows down slows all alike: only
ratios within one run mean anything. What was measured, turn by turn, is in build/bench/raw;
medians, spreads and ratios are in bench/results, as CSV, as plots and as table.md, which is also
printed.

Databases and servers live in build/bench/data (or --folder), all on one file system. Servers listen
on 127.0.0.1 on free ports.
"""
import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

import report
import servers

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "bench"
RAW = BUILD / "raw"
EXTENSION = os.environ.get("IDEM_SO", str(ROOT / "idem.so"))
CACHE_MIB = 1024  # of growth
PACKAGES = ["@node-idempotency/core@1.0.11", "@node-idempotency/storage-adapter-redis@1.0.2",
            "@aws-lambda-powertools/idempotency@2.35.0", "@redis/client@6.3.1"]
TURN, ROUNDS = 0.2, 9  # seconds of a peer's turn, and how many of them
CROWDS = 1, 2, 8


# --- the limit -----------------------------------------------------------------------------------

def run_limit(folder, _):
    with open(RAW / "limit.tsv", "wb") as out:
        subprocess.run([BUILD / "limit", folder, EXTENSION, "15"], check=True, stdout=out)
    command = [sys.executable, ROOT / "bench" / "fingerprint.py", "-q", "--rounds", "1"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    (RAW / "fingerprint.md").write_text(done.stdout)


# --- growth --------------------------------------------------------------------------------------

def run_growth(folder, records):
    """Beyond a million records the files are kept, and only filled where they are not full."""
    large = records > 1000000
    data = BUILD / "growth-data" if large else folder
    os.makedirs(data, exist_ok=True)
    sizes = [str(10 ** digits) for digits in range(4, len(str(records)))]
    program = [BUILD / "growth", data, EXTENSION]
    with open(RAW / ("growth-large.tsv" if large else "growth.tsv"), "wb") as out:
        for kind in "v4", "v7":
            for size in sizes:
                subprocess.run([*program, "fill", kind, size], check=True)
            command = [*program, "measure", kind, "9", str(CACHE_MIB), *sizes]
            subprocess.run(command, check=True, stdout=out)
    with open(RAW / "churn.tsv", "wb") as out:
        command = [BUILD / "growth", folder, EXTENSION, "churn", "72", "1000"]
        subprocess.run(command, check=True, stdout=out)


# --- peers ---------------------------------------------------------------------------------------

class Client:
    """One process of bench/peer.c, peer.py or peer.mjs, waiting for orders."""
    first_key = 0

    def __init__(self, command, kind, target, durability):
        Client.first_key += 2000000
        self.process = subprocess.Popen(
            [*command, kind, target, durability, str(Client.first_key)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ready(self):
        if self.answer() != "ready":
            raise SystemExit(f"{self.process.args} did not start")
        return self

    def order(self, work):
        self.process.stdin.write(f"{work} {TURN}\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline().rstrip("\n")
        if not line:
            raise SystemExit(f"{self.process.args} ended with status {self.process.wait()}")
        return line

    def close(self):
        self.process.stdin.close()
        if self.process.wait(30) != 0:
            raise SystemExit(f"{self.process.args} failed at its end")


def install_npm():
    """The JavaScript libraries, below build; False, loudly, where Node.js is too old for them."""
    version = report.line_of("node", "--version") if shutil.which("npm") else "v0 (not there)"
    if int(version[1:].split(".")[0].split()[0]) < 20:
        print(f"Node.js is {version}, the npm libraries want 20: left out", file=sys.stderr)
        return False
    folder = BUILD / "npm"
    folder.mkdir(exist_ok=True)
    if not (folder / "node_modules" / "@redis" / "client").is_dir():
        (folder / "package.json").write_text('{"private": true}\n')
        subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit", "--save-exact",
                        "--prefix", folder, *PACKAGES], check=True)
    shutil.copy(ROOT / "bench" / "peer.mjs", folder)
    return True


def contenders(folder, postgres, redis, durability, with_node):
    """{name: function that starts one client}; names are those of report.PEERS."""
    native, python = [BUILD / "peer"], ["/usr/bin/python3", ROOT / "bench" / "peer.py"]
    node = ["node", BUILD / "npm" / "peer.mjs"]

    def starter(command, kind, target):
        return lambda: Client(command, kind, target, durability)

    def sqlite(name):
        return f"{EXTENSION},{folder}/{name}-{durability}.db"

    found = {
        "idem": starter(native, "idem", sqlite("idem")),
        "idem-64": starter(native, "idem-64", sqlite("idem-64")),
        "sqlite-hand": starter(native, "sqlite-hand", sqlite("hand")),
        "postgres-conflict": starter(native, "postgres-conflict", postgres.tcp),
        "postgres-unix": starter(native, "postgres-conflict", postgres.unix),
        "postgres-pipeline": starter(native, "postgres-pipeline", postgres.tcp),
        "postgres-points": starter(native, "postgres-points", postgres.tcp),
        "redis": starter(native, "redis", str(redis.port)),
        "python-idem": starter(python, "python-idem", sqlite("python-idem")),
        "python-hand": starter(python, "python-hand", sqlite("python-hand")),
    }
    if with_node:
        found["node-idempotency"] = starter(node, "node-idempotency", str(redis.port))
        found["powertools"] = starter(node, "powertools", str(redis.port))
    return found


def turn(out, name, durability, work, clients):
    """All clients of one contender at once; one line of output for each."""
    for client in clients:
        client.order(work)
    for client in clients:
        print(name, durability, work, len(clients), client.answer(), sep="\t", file=out, flush=True)


def measure_peers(out, starters, durability):
    clients = {name: start().ready() for name, start in starters.items()}
    for work in ("one", "two") if durability == "durable" else ("one", "two", "replay"):
        for _ in range(ROUNDS):
            for name, client in clients.items():
                if work != "one" or name not in report.WITHOUT_TRANSACTION:
                    turn(out, name, durability, work, [client])
    for client in clients.values():
        client.close()


def measure_crowds(out, starters, durability):
    crowd = {name: [starters[name]() for _ in range(max(CROWDS))] for name in report.CROWDED}
    for clients in crowd.values():
        for client in clients:
            client.ready()
    for number in CROWDS:
        for _ in range(ROUNDS):
            for name, clients in crowd.items():
                work = "two" if name in report.WITHOUT_TRANSACTION else "one"
                turn(out, "crowd " + name, durability, work, clients[:number])
    for clients in crowd.values():
        for client in clients:
            client.close()


def run_peers(folder, _):
    with_node = install_npm()
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open(RAW / "peers.tsv", "w", encoding="utf-8"))
        postgres = stack.enter_context(servers.Postgres(folder))
        redis = {"durable": stack.enter_context(servers.Redis(folder, "always")),
                 "relaxed": stack.enter_context(servers.Redis(folder, "everysec"))}
        for durability in "durable", "relaxed":
            starters = contenders(folder, postgres, redis[durability], durability, with_node)
            measure_peers(out, starters, durability)
            measure_crowds(out, starters, durability)


PARTS = {"limit": run_limit, "peers": run_peers, "growth": run_growth}


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--only", action="append", choices=PARTS, help="run this part")
    options.add_argument("--records", type=int, default=1000000, help="growth up to so many")
    options.add_argument("--folder", default=BUILD / "data", help="for databases and servers")
    options.add_argument("--tables", action="store_true", help="measure nothing")
    options = options.parse_args()
    if not options.tables:
        RAW.mkdir(parents=True, exist_ok=True)
        folder = os.path.join(options.folder, str(os.getpid()))
        os.makedirs(folder)
        try:
            for part in options.only or PARTS:
                print(f"measuring: {part}", file=sys.stderr, flush=True)
                PARTS[part](folder, options.records)
        finally:
            shutil.rmtree(folder)
        report.write_machine(options.folder, EXTENSION)
    report.write(set(options.only or PARTS) if not options.tables else set(PARTS))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""bench/fingerprint.py: idem's fingerprint against SHA-256 alone and against its peers, in one run.

    bench/fingerprint.py            # builds bench/fingerprint.c, runs all, prints Markdown
    bench/fingerprint.py -q         # shorter turns, noisier
    bench/fingerprint.py --gate     # exit status 1 if a required ratio is missed
    bench/fingerprint.py --npm      # npm install of the JavaScript peers first, into build/bench

Inputs: a payment of about 300 bytes, and where the collected data is there, a 28 KB webhook,
citm_catalog (pretty-printed) and canada (numbers). Only the ratios mean anything: the machine may
be shared, so contenders take turns and medians are taken.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
BUILD = ROOT / "build" / "bench"
SOURCES = ["bench/fingerprint.c", *(f"ext/{name}.c" for name in
           ("json", "paths", "order", "canonical", "fingerprint", "digest"))]
PACKAGES = ["canonicalize", "fast-json-stable-stringify", "safe-stable-stringify", "object-hash"]
INPUTS = {
    "payment": None,
    "webhook": "github-webhooks/pull_request/closed.payload.json",
    "citm_catalog": "nativejson/citm_catalog.json",
    "canada": "nativejson/canada.json",
}
# Keeps the C library from giving megabytes back to the system after every call and taking them
# anew: how long that takes says more about the machine than about any contender.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
# input: (what is compared, with what, how many times as long it may take)
REQUIRED = {
    "payment": ("scan fingerprint", "scan sha", 1.9),
    "webhook": ("fingerprint", "sha", 2.2),
    "citm_catalog": ("fingerprint", "sha", 1.8),
    "canada": ("fingerprint", "sha", 2.8),
}


def build():
    BUILD.mkdir(parents=True, exist_ok=True)
    command = [os.environ.get("CC", "cc"), "-O2", "-DNDEBUG", "-DSQLITE_CORE", "-std=c11",
               "-o", str(BUILD / "fingerprint"), *SOURCES, "-lsqlite3", "-lcrypto", "-ljansson"]
    subprocess.run(command, cwd=ROOT, check=True)


def parse(text, names, results):
    for line in text.splitlines():
        file, _, contender, ns = line.split("\t")
        results.setdefault(names[file], {}).setdefault(contender, []).append(float(ns))


def measure_python(files, names, results, turn):
    def run(text):
        stable = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"),
                            ensure_ascii=False)
        return hashlib.sha256(stable.encode()).hexdigest()

    for file, text in files.items():
        run(text)
        start = time.process_time_ns()
        run(text)
        repeat = max(1, int(turn / (time.process_time_ns() - start + 1)))
        times = []
        for _ in range(3):
            start = time.process_time_ns()
            for _ in range(repeat):
                run(text)
            times.append((time.process_time_ns() - start) / repeat)
        contenders, name = results.setdefault(names[file], {}), "Python dumps(sort_keys) + hashlib"
        contenders.setdefault(name, []).append(statistics.median(times))


def table(results):
    out = ["| input | bytes | SHA-256 alone | canonical text | fingerprint | ratio | required |",
           "|---|---|---|---|---|---|---|"]
    missed = []
    for name, times in results.items():
        ours, base, limit = REQUIRED[name]
        ratio = times[ours] / times[base]
        if ratio > limit:
            missed.append(f"{name}: {ours} is {ratio:.2f} x {base}, at most {limit} is required")
        out.append(f"| {name} ({ours} / {base}) | {times['bytes']:.0f} | {times[base]:.0f} ns "
                   f"| {times['canonical']:.0f} ns | {times[ours]:.0f} ns | {ratio:.2f} "
                   f"| <= {limit} |")
    out += ["", "| peer, times as long as the fingerprint | " + " | ".join(results) + " |",
            "|---" * (len(results) + 1) + "|"]
    for peer in dict.fromkeys(peer for times in results.values() for peer in times):
        if peer in ("bytes", "canonical", "sha", "fingerprint"):
            continue
        if peer.endswith((" nop", " fingerprint")):
            continue
        kind = peer.split()[0]
        ours = kind + " fingerprint" if kind in ("sql", "scan") else "fingerprint"
        cells = [f"{t[peer] / t[ours]:.2f}" if peer in t else "-" for t in results.values()]
        out.append(f"| {peer} / {ours} | " + " | ".join(cells) + " |")
    cells = [f"{(t['sql json'] - t['sql nop']) / t['canonical']:.2f}" for t in results.values()]
    out.append("| SQLite json() less the call / canonical text | " + " | ".join(cells) + " |")
    return "\n".join(out), missed


def main():
    options = argparse.ArgumentParser()
    options.add_argument("-q", action="store_true", help="shorter turns")
    options.add_argument("--gate", action="store_true", help="fail if a required ratio is missed")
    options.add_argument("--npm", action="store_true", help="install the JavaScript peers first")
    options.add_argument("--rounds", type=int, default=3, help="passes over all contenders")
    options = options.parse_args()
    build()
    paths = {name: "payment" if part is None else str(DATA / part) for name, part in INPUTS.items()}
    paths = {name: path for name, path in paths.items()
             if path == "payment" or os.path.exists(path)}
    payment = BUILD / "payment.json"
    payment.write_bytes(subprocess.run([BUILD / "fingerprint", "--print"], check=True,
                                       capture_output=True).stdout)
    names = {path: name for name, path in paths.items()} | {str(payment): "payment"}
    texts = {str(payment) if path == "payment" else path: None for path in paths.values()}
    texts = {path: pathlib.Path(path).read_text("utf-8") for path in texts}
    if options.npm:
        subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit",
                        "--prefix", str(BUILD), *PACKAGES], check=True)
    node = shutil.which("node") if (BUILD / "node_modules" / "canonicalize").is_dir() else None
    if node is None:
        print("(JavaScript peers left out: run with --npm once)\n", file=sys.stderr)
    results = {}
    for _ in range(options.rounds):
        command = [BUILD / "fingerprint", *(["-q"] if options.q else []), *paths.values()]
        environment = dict(os.environ, **KEEP_MEMORY)
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        parse(done.stdout, names, results)
        measure_python(texts, names, results, 2e7)
        if node:
            peers = shutil.copy(ROOT / "bench/fingerprint_peers.mjs", BUILD)
            command = [node, peers, "20000000", "3", *texts]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            parse(done.stdout, names, results)
    results = {name: {peer: statistics.median(times) for peer, times in peers.items()}
               for name, peers in results.items()}
    for path, text in texts.items():
        results[names[path]]["bytes"] = len(text.encode())
    text, missed = table(results)
    print(text)
    for line in missed:
        print("missed:", line, file=sys.stderr)
    return 1 if missed and options.gate else 0


if __name__ == "__main__":
    sys.exit(main())

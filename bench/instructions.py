#!/usr/bin/env python3
"""bench/instructions.py: instructions per operation, compared with bench/instructions.baseline.

    bench/instructions.py             # counts; exit status 1 if an operation grew by more than 5 %
    bench/instructions.py --renew     # counts, and writes the baseline anew
    bench/instructions.py --profile   # counts, and says where the instructions go

Times move with the machine; instructions do not, so a growth of 5 % shows. What is compared is the
*ratio* of idem to the same work by hand (bench/work.h), counted in the same process: another
compiler, another SQLite or another C library changes both sides alike, so the baseline holds on
machines other than the one that wrote it. The counts and versions in the baseline are for readers.

bench/instructions.c runs under callgrind, which counts around each operation alone and writes one
file per operation; this program reads those files.
"""
import argparse
import collections
import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BASELINE = ROOT / "bench" / "instructions.baseline"
PROGRAM = ROOT / "build" / "bench" / "instructions"
EXTENSION = os.environ.get("IDEM_SO", str(ROOT / "idem.so"))
LIMIT = 1.05


class Counts:
    """What one file of callgrind says."""

    def __init__(self, path):
        self.operation = self.by = None
        self.number = 1
        self.place = int(path.rpartition(".")[2])  # in the order of counting
        self.own = collections.Counter()    # (object, function): its own instructions
        names = {"ob": {}, "fn": {}}

        def name(kind, text):
            number, _, rest = text.partition(" ")
            if rest:
                names[kind][number] = rest
            return names[kind].get(number, text)

        obj = fn = None
        in_call = False
        for line in open(path, encoding="utf-8"):
            line = line.rstrip("\n")
            if line.startswith("desc: Trigger: Client Request: "):
                self.operation, self.by, number = line.rpartition(": ")[2].split("/")
                self.number = int(number)
            elif line.startswith("ob="):
                obj = name("ob", line[3:])
            elif line.startswith("fn="):
                fn = name("fn", line[3:])
            elif line.startswith("cob="):
                name("ob", line[4:])
            elif line.startswith("cfn="):
                name("fn", line[4:])
            elif line.startswith("calls="):
                in_call = True  # the next line is what the called function cost
            elif re.match(r"[0-9+*-]", line):
                if not in_call:
                    self.own[short(obj), fn] += int(line.split()[1])
                in_call = False

    def total(self):
        return sum(self.own.values()) / self.number


def short(path):
    name = os.path.basename(path).split(".so")[0]
    return {"libsqlite3": "SQLite", "libc": "C library", "libcrypto": "libcrypto"}.get(name, name)


def count():
    """All operations under callgrind: a list of Counts."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no",
                   "--collect-atstart=no", f"--callgrind-out-file={folder}/out", str(PROGRAM),
                   folder, EXTENSION]
        subprocess.run(command, check=True)
        counts = [Counts(path) for path in glob.glob(f"{folder}/out.*")]
    return [c for c in counts if c.operation]


def versions():
    commands = [PROGRAM, "--versions", EXTENSION], [os.environ.get("CC", "cc"), "--version"]
    return "; ".join(subprocess.run(command, check=True, capture_output=True, text=True)
                     .stdout.splitlines()[0] for command in commands)


def ratios(counts):
    """{(operation, form): (instructions, by hand, ratio)}"""
    totals = {(c.operation, c.by): c.total() for c in counts}
    return {key: (total, totals[key[0], "by hand"], total / totals[key[0], "by hand"])
            for key, total in totals.items() if key[1] != "by hand"}


def write_baseline(found):
    lines = ["# Instructions per operation, by idem and by hand; see bench/instructions.py.",
             f"# {versions()}",
             "# operation | form | idem | by hand | ratio"]
    lines += [f"{operation} | {by} | {idem:.0f} | {hand:.0f} | {ratio:.3f}"
              for (operation, by), (idem, hand, ratio) in found.items()]
    BASELINE.write_text("\n".join(lines) + "\n")


def read_baseline():
    rows = [line.split(" | ") for line in BASELINE.read_text().splitlines() if line[0] != "#"]
    return {(operation, by): float(ratio) for operation, by, _, _, ratio in rows}


def compare(found, baseline):
    """Prints the table; returns what is wrong with it."""
    faults = []
    print(f"{'instructions per operation':<32} form       idem  by hand  ratio    was")
    for key, (idem, hand, ratio) in found.items():
        was = baseline.get(key)
        print(f"{key[0]:<32} {key[1]:<6} {idem:8.0f} {hand:8.0f} {ratio:6.2f} "
              + (f"{was:6.2f}" if was else "     -"))
        if was is None:
            faults.append(f"{key[0]} ({key[1]}) is not in the baseline")
        elif ratio > was * LIMIT:
            faults.append(f"{key[0]} ({key[1]}): {ratio:.3f} times the work by hand, was {was}")
    faults += [f"{operation} ({by}) is in the baseline and was not counted"
               for operation, by in baseline.keys() - found.keys()]
    return faults


def profile(counts):
    """Markdown: how each operation's instructions divide, and the dearest functions of idem."""
    print("\n| operation, form | all | SQLite | idem | C library | dearest functions of idem |")
    print("|---|---|---|---|---|---|")
    for c in counts:
        if c.by == "by hand":
            continue
        parts = collections.Counter()
        for (obj, _), cost in c.own.items():
            parts[obj] += cost / c.number
        dear = [f"{fn.partition('.')[0]} {cost / c.number:.0f}"
                for (obj, fn), cost in c.own.most_common() if obj == "idem"]
        print(f"| {c.operation}, {c.by} | {c.total():.0f} | "
              + " | ".join(f"{100 * parts[name] / c.total():.0f} %"
                           for name in ("SQLite", "idem", "C library"))
              + f" | {', '.join(dear[:4])} |")


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--renew", action="store_true", help="write the baseline anew")
    options.add_argument("--profile", action="store_true", help="say where the instructions go")
    options = options.parse_args()
    counts = sorted(count(), key=lambda c: c.place)
    found = ratios(counts)
    faults = compare(found, {} if options.renew else read_baseline())
    if options.profile:
        profile(counts)
    if options.renew:
        write_baseline(found)
        return 0
    for fault in faults:
        print("FAILED:", fault, file=sys.stderr)
    if faults:
        print(f"An operation may grow by {LIMIT - 1:.0%}. If this growth is wanted, say in the"
              " commit why, and renew\nthe baseline: make renew-instructions", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

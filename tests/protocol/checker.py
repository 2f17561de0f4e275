"""Runs spin on claim.pml: make test-model, or python3 tests/protocol/checker.py [NAME ...].

A run is a set of numbers (how many clients, crashes, lost answers ... may happen) and the policy.
Each is searched exhaustively: the number of states is that of all that can be reached. `progress`
is the LTL formula of claim.pml under weak fairness: a patient client is told something final.

MUTANTS are mistakes built into the model (verdict.pml, claim.pml): the checker must notice each, by
the property that is named.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections import namedtuple

HERE = pathlib.Path(__file__).resolve().parent

ALL = dict(RULINGS=1, ENDS=1, LOSSES=1, RENEWALS=1, CRASHES=1)
ONE = dict(CLIENTS=1, TRIES=1)
RETRY = dict(RETRY=1)

# The short runs belong to `make test`, the others to `make test-model`.
SHORT = {
    "unknown": ONE | ALL | dict(RULINGS=0),
    "retry": ONE | RETRY | ALL | dict(RULINGS=0, RENEWALS=0),
    "exhausted": ONE | RETRY | dict(MAX_ATTEMPTS=1, RULINGS=1, CRASHES=1),
    "another request": ONE | ALL | dict(STRANGER=1, RULINGS=0, LOSSES=0),
}
LONG = {
    "unknown": ONE | ALL | dict(TRIES=2),
    "retry": ONE | RETRY | ALL,
    "exhausted": ONE | RETRY | ALL | dict(MAX_ATTEMPTS=2),
    "the clock is set back": ONE | RETRY | dict(SETBACKS=1, ENDS=1, RULINGS=1, CRASHES=1),
    "the clock is set back, unknown": ONE | dict(SETBACKS=2, ENDS=1, RULINGS=1, CRASHES=1,
                                                LOSSES=1),
    "another request": ONE | RETRY | ALL | dict(STRANGER=1),
    "three clients, unknown": dict(CLIENTS=2, TRIES=1, CRASHES=1, ENDS=1, LOSSES=1,
                                   RENEWALS=1),
    "three clients, retry": RETRY | dict(CLIENTS=2, TRIES=1, CRASHES=1, RENEWALS=1),
}
PROGRESS_SHORT = {
    "unknown": ONE | dict(CRASHES=1),
    "retry": ONE | RETRY | dict(CRASHES=1),
    "exhausted": ONE | RETRY | dict(CRASHES=1, MAX_ATTEMPTS=1),
}
PROGRESS = {
    "unknown": ONE | dict(CRASHES=1, LOSSES=1, ENDS=1, RULINGS=1),
    "retry": ONE | RETRY | dict(CRASHES=1, LOSSES=1),
    "exhausted": ONE | RETRY | dict(CRASHES=1, MAX_ATTEMPTS=1, RULINGS=1),
}

Mutant = namedtuple("Mutant", "what parameters caught")  # caught: the property in claim.pml
MUTANTS = {
    1: Mutant("a completion without the token check", ONE | RETRY, "FENCED"),
    2: Mutant("a second answer replaces the first", ONE | dict(LOSSES=1), "ONE_ANSWER"),
    3: Mutant("a take-over while the lease is live", ONE, "TRUSTED_LEASE"),
    4: Mutant("a stale record runs again, whatever the policy", ONE, "UNKNOWN_ONCE"),
    5: Mutant("an unknown record runs again", ONE, "UNKNOWN_ONCE"),
    6: Mutant("a completed record runs again", ONE, "FORGOTTEN"),
    7: Mutant("a record runs again after its retention", ONE, "FORGOTTEN"),
    8: Mutant("a used token is good for another attempt",
               ONE | RETRY | dict(LOSSES=1), "ONE_CLAIMANT"),
    9: Mutant("max_attempts are not counted", ONE | RETRY | dict(MAX_ATTEMPTS=1), "LIMIT"),
    10: Mutant("the operator decides while a lease is live",
               ONE | dict(RULINGS=1), "TRUSTED_LEASE"),
    11: Mutant("the operator's answer replaces another", ONE | dict(RULINGS=1), "ONE_ANSWER"),
    12: Mutant("a released record stays in progress", ONE, "progress"),
    13: Mutant("a stale record stays in progress", ONE | RETRY | dict(CRASHES=1), "progress"),
    14: Mutant("work that runs is erased", ONE | dict(RULINGS=1), "FORGOTTEN"),
    15: Mutant("another request gets the answer", ONE | dict(STRANGER=1), "ONE_ANSWER"),
    16: Mutant("a release without the token check", ONE | RETRY, "FENCED"),
    21: Mutant("a write that demands nothing", ONE, "FORGOTTEN"),
    22: Mutant("a write that does not demand due_at",
               ONE | RETRY | dict(RENEWALS=1), "TRUSTED_LEASE"),
    23: Mutant("an earlier token is forgotten",
               ONE | RETRY | dict(LOSSES=1), "ONE_CLAIMANT"),
    24: Mutant("a take-over without a new attempt", ONE | RETRY, "ONE_CLAIMANT"),
    25: Mutant("the rows of a lost completion stay", ONE | RETRY, "ROWS"),
    26: Mutant("the purge leaves no tombstone", ONE, "FORGOTTEN"),
    27: Mutant("the purge takes work that runs", ONE, "FORGOTTEN"),
    28: Mutant("the purge takes a released record", ONE, "FORGOTTEN"),
    29: Mutant("the purge takes a tombstone before its time", ONE, "FORGOTTEN"),
    30: Mutant("leases never end", ONE | dict(CRASHES=1), "progress"),
}

Result = namedtuple("Result", "states depth seconds caught text")


class Checker:
    """pan, built twice: for the assertions and for the formula."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        defines = re.findall(r"#define ([A-Z_]+) +(1\d\d)\n", (HERE / "claim.pml").read_text())
        self.names = {number: name for name, number in defines}
        self.run(["spin", "-a", str(HERE / "claim.pml")])
        for name, flags in (("safety", ["-DSAFETY", "-DNOCLAIM"]), ("liveness", ["-DNFAIR=3"])):
            self.run(["cc", "-O1", "-w", "-DMEMLIM=6000", *flags, "-o", name, "pan.c"])

    def run(self, command):
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def check(self, parameters, progress=False, size=("-m100000", "-w18")):
        """One exhaustive search; caught is the property that does not hold, or None."""
        pan = ["./liveness", "-a", "-f"] if progress else ["./safety"]
        environment = {name: str(value) for name, value in parameters.items()}
        start = time.monotonic()
        done = subprocess.run([*pan, *size], cwd=self.directory, env=environment, text=True,
                              capture_output=True)
        text = done.stdout + done.stderr
        found = re.search(r"depth reached (\d+), errors: (\d+)\n\s*(\d+) states, stored", text)
        assert found and done.returncode == 0, text
        assert "Search not completed" not in text or found[2] != "0", text
        assert "max search depth too small" not in text, text
        return Result(int(found[3]), int(found[1]), time.monotonic() - start,
                      self.property(text) if found[2] != "0" else None, text)

    def property(self, text):
        """The name in the assertion that does not hold."""
        if "acceptance cycle" in text:
            return "progress"
        if "invalid end state (" in text:
            return "stuck"
        number = re.search(r"assertion violated .*\|\|\((\d+)==0\)", text)
        return self.names[number[1]] if number else text


def main(names):
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        checker = Checker(tmp)
        for runs, progress in ((LONG, False), (PROGRESS, True)):
            for name, parameters in runs.items():
                if names and name not in names:
                    continue
                r = checker.check(parameters, progress, ("-m2000000", "-w24"))
                failed += r.caught is not None
                print(f"{'progress: ' if progress else ''}{name:32} {r.states:>10,} states,"
                      f" depth {r.depth}, {r.seconds:.0f} s: {r.caught or 'holds'}", flush=True)
        for number, mutant in MUTANTS.items():
            r = checker.check(mutant.parameters | dict(MUTANT=number), mutant.caught == "progress")
            failed += r.caught != mutant.caught
            print(f"mutant {number}, {mutant.what}: {r.caught or 'SURVIVED'}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) != 0)

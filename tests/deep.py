#!/usr/bin/python3
"""deep.py [SECONDS [PART ...]]: the long versions of the tests, within so many seconds (3600).

A part is what one folder of tests has to offer:

- the test files of tests/<folder> that ask for DEEP (of conftest.py, or IDEM_DEEP=1): they run in
  one pytest, with IDEM_DEEP=1;
- an executable tests/<folder>/deep.sh, which gets the seconds as its argument.

Nothing else has to be registered. Both find their time in IDEM_DEEP_SECONDS, and a test that could
go on for ever must end by then; several of them in one folder divide it. What has an end of its own
need not look at it: what is left when the time is up is cut, and the part says how far it came. So
that short runs see all of it in the long run, pytest begins at a random test each time (--first=N
repeats it).

The time is divided by WEIGHT, and what a part leaves over goes to those after it: short parts come
first. A part fails if a test of it failed, before a cut or not; and so does the whole. What a part
printed is in build/deep/<part>.log.
"""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "deep"
GRACE = 5                       # seconds between asking a part to end and ending it

# Parts that find more the longer they run; 1 is the weight of the others. They come last, in this
# order.
WEIGHT = {"faults": 4, "crash": 3, "versions": 3, "fuzz": 2, "fuzz-more": 3, "simulation": 3}


def parts():
    """The name and the command of each part."""
    found = {}
    for folder in sorted((ROOT / "tests").iterdir()):
        files = [str(f) for f in sorted(folder.glob("test_*.py"))
                 if re.search(r"\b(IDEM_)?DEEP\b", f.read_text())]
        if files:
            found[folder.name] = [sys.executable, "-m", "pytest", "-v", "--maxfail=5", *files]
        if (folder / "deep.sh").exists():
            found[folder.name + ("-more" if files else "")] = [str(folder / "deep.sh")]
    order = list(WEIGHT)
    return dict(sorted(found.items(), key=lambda p: order.index(p[0]) if p[0] in order else -1))


def start(command, seconds, log):
    """Starts a part in a process group of its own."""
    env = {**os.environ, "IDEM_DEEP": "1", "IDEM_DEEP_SECONDS": str(max(1, int(seconds * 0.85)))}
    if command[0].endswith("deep.sh"):
        command = [*command, env["IDEM_DEEP_SECONDS"]]
    else:
        command = [*command, f"--first={random.randrange(10**6)}"]
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT,
                            stdin=subprocess.DEVNULL, start_new_session=True)


def wait(process, seconds):
    """The exit code; None if the part was cut. Its process group is empty afterwards."""
    code = None
    try:
        code = process.wait(max(0, seconds))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)          # pytest prints its summary
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    return code


def progress(text):
    """How far a cut part came, by what it printed; and whether something had failed by then."""
    lines = [line for line in text.splitlines() if line.strip()]
    tests = re.search(r"collected (\d+) items", text)
    if not tests:
        return lines[-1][:200] if lines else "nothing printed", "FAILED" in text.split()
    done = re.findall(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED)", text, re.M)
    last = f", the last {done[-1][0]}" if done else ""
    failed = any(result in ("FAILED", "ERROR") for _, result in done)
    return f"{len(done)} of {tests[1]} tests done{last}", failed


def run(name, command, seconds):
    """Runs one part; True if nothing failed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{name}.log"
    began = time.monotonic()
    with open(path, "w", encoding="utf-8") as log:
        code = wait(start(command, seconds, log), seconds)
    took = time.monotonic() - began
    text = path.read_text(errors="replace")
    if code is None:
        how, failed = progress(text)
        print(f"deep: {name}: cut after {took:.0f} s: {how}", flush=True)
    else:
        failed = code != 0
        last = text.strip().splitlines()[-1:] or [""]
        print(f"deep: {name}: {took:.0f} s: {last[0].strip('= ')}", flush=True)
    if failed:
        print(text[-6000:])
        print(f"deep: {name}: FAILED, see {path.relative_to(ROOT)}", flush=True)
    return not failed


def main(words):
    seconds = float(words[0]) if words else 3600
    chosen = {n: c for n, c in parts().items() if not words[1:] or n in words[1:]}
    unknown = set(words[1:]) - set(chosen)
    if unknown:
        sys.exit(f"deep: no part {', '.join(sorted(unknown))}; there are: {' '.join(parts())}")
    end = time.monotonic() + max(1, seconds - GRACE)
    failed, left = [], dict(chosen)
    for name, command in chosen.items():
        share = (end - time.monotonic()) * WEIGHT.get(name, 1) / sum(WEIGHT.get(n, 1) for n in left)
        del left[name]
        if share < 1:
            print(f"deep: {name}: no time left for it", flush=True)
        elif not run(name, command, share):
            failed.append(name)
    print(f"deep: {len(chosen)} parts,", f"FAILED: {' '.join(failed)}" if failed else "all fine")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

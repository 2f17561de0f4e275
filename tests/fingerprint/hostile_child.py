"""Measures one hostile input in a process of its own: hostile_child.py NAME time|peak

Prints JSON. The input is built at a size and at four times that size. 'time': the least CPU seconds
of several calls, and how they ended; 'peak': the memory that the first call of the larger one adds.
"""
import json
import pathlib
import random
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # conftest
from fp_kit import Refusal, call, connect  # noqa: E402


def shuffled(count, name):
    order = list(range(count))
    random.Random(8).shuffle(order)
    return "{" + ",".join(f'"{name(i)}":{i}' for i in order) + "}"


def nested_unsorted(size):
    """511 levels, each out of order, around a string of the wanted size."""
    inside = '"' + "x" * size + '"'
    return '{"b":' * 511 + inside + ',"a":0}' * 511


def nested_wide(members):
    """100 levels, each an object of many members out of order."""
    wide = ",".join(f'"k{i}":0' for i in range(members, 0, -1))
    return ('{"z":' * 100) + "0" + ("," + wide + "}") * 100


# name: (size, input of a size, extra arguments, refusal kind or None)
CASES = {
    "brackets": (250_000, lambda n: "[" * n, (), "depth"),
    "brackets-of-objects": (100_000, lambda n: '{"":' * n, (), "depth"),
    "escapes": (262_144, lambda n: '"' + "\\n" * (n // 2) + '"', (), None),
    "escapes-u00xx": (262_144, lambda n: '"' + "\\u001F" * (n // 6) + '"', (), None),
    "escapes-surrogates": (262_144, lambda n: '"' + "\\ud83d\\ude00" * (n // 12) + '"', (), None),
    "utf8": (262_144, lambda n: '"' + "\u20ac" * (n // 3) + '"', (), None),
    "shuffled-keys": (50_000, lambda n: shuffled(n, lambda i: f"{i * 7919:x}"), (), None),
    "descending-keys": (50_000, lambda n: "{" + ",".join(f'"{i:08d}":0' for i in range(n, 0, -1)) + "}", (), None),
    "common-prefix": (12_500, lambda n: shuffled(n, lambda i: "p" * 100 + str(i)), (), None),
    "escaped-keys": (25_000, lambda n: shuffled(n, lambda i: f"\\n\\u0001{i}"), (), None),
    "duplicate-at-the-end": (50_000, lambda n: shuffled(n, lambda i: f"{i:x}")[:-1] + ',"0":1}', (), "dupkey"),
    "all-duplicates": (50_000, lambda n: "{" + ",".join(['"a":1'] * n) + "}", (), "dupkey"),
    "huge-exponents": (25_000, lambda n: "[" + ",".join(["1e999999999"] * n) + "]", (), None),
    "growing-numbers": (50_000, lambda n: "[" + ",".join(["1e20"] * n) + "]", (), None),
    "shrinking-numbers": (5_000, lambda n: "[" + ",".join(["0." + "0" * 99] * n) + "]", (), None),
    "digits": (1_250_000, lambda n: "1" * n, (), None),
    "digits-and-zeros": (1_250_000, lambda n: "0." + "0" * n + "1" + "0" * n, (), None),
    "exponent-digits": (1_250_000, lambda n: "1e" + "0" * n + "5", (), None),
    "nested-unsorted": (262_144, nested_unsorted, (), None),
    "nested-wide": (250, nested_wide, (), None),
    "small-unsorted": (50_000, lambda n: "[" + ",".join(['{"b":1,"a":2}'] * n) + "]", (), None),
    "white-space": (262_144, lambda n: " " * n + "1" + "\t" * n, (), None),
    "paths": (12_500, lambda n: shuffled(n, lambda i: f"k{i}"), tuple(f"-$.k{i}" for i in range(64)), None),
    "left-out": (12_500, lambda n: shuffled(n, lambda i: f"k{i}"), ("-$.*",), None),
    "deep-paths": (2_000, lambda n: "[" + ",".join(['{"a":' * 60 + "1" + "}" * 60] * (n // 100)) + "]",
                   tuple("-$" + "[*]" + ".a" * 62 + f".b{i}" for i in range(64)), None),
}


def peak_reset():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def status(field):
    with open("/proc/self/status") as file:
        return 1024 * int(re.search(rf"{field}:\s*(\d+)", file.read())[1])


def peak(db, payload, paths):
    """Bytes that one call adds at its peak, the bound copy of the payload included."""
    peak_reset()
    before = status("VmRSS")
    call(db, "idem_fingerprint", payload, *paths)
    return max(0, status("VmHWM") - before)


def seconds(db, payload, paths):
    """The least of several calls; the first ones take memory from the system."""
    least = float("inf")
    for _ in range(6):
        start = time.process_time()
        call(db, "idem_fingerprint", payload, *paths)
        least = min(least, time.process_time() - start)
    return least


if __name__ == "__main__":
    name, what = sys.argv[1:]
    size, build, paths, _ = CASES[name]
    connection = connect()
    payloads = [build(n).encode("utf-8") for n in (size, 4 * size)]
    outcomes = [call(connection, "idem_fingerprint", payload, *paths) for payload in payloads if what == "time"]
    print(json.dumps({
        "bytes": [len(payload) for payload in payloads],
        "kinds": [outcome.kind if isinstance(outcome, Refusal) else None for outcome in outcomes],
        "seconds": [seconds(connection, payload, paths) for payload in payloads] if what == "time" else None,
        "peak": peak(connection, payloads[1], paths) if what == "peak" else None,
    }))

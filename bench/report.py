"""report.py: from build/bench/raw to bench/results: medians, spreads, ratios, targets, plots.

The spread of a figure is the distance of its quartiles in percent of its median. A ratio is the
median of the ratios of the rounds, so it need not be the ratio of the medians beside it.
"""
import collections
import csv
import datetime
import os
import pathlib
import platform
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RAW = ROOT / "build" / "bench" / "raw"
RESULTS = ROOT / "bench" / "results"

# Contender: label, and what its user has: rows of his own in the same transaction; a worker that
# lost its claim cannot complete; another request under the same key is noticed; what follows a
# crash between claim and answer.
PEERS = {
    "idem": ("idem, from C", "yes", "yes", "yes", "known: `unknown`, or a next attempt"),
    "idem-64": ("idem, checkpoint every 64 MB", "yes", "yes", "yes", "known, as above"),
    "sqlite-hand": ("SQLite by hand, from C", "yes", "by hand", "by hand", "by hand"),
    "postgres-conflict": ("PostgreSQL, ON CONFLICT", "yes", "by hand", "by hand", "by hand"),
    "postgres-unix": ("the same by Unix socket", "yes", "by hand", "by hand", "by hand"),
    "postgres-pipeline": ("the same, pipelined", "yes", "by hand", "by hand", "by hand"),
    "postgres-points": ("PostgreSQL, recovery points", "with each phase", "by hand", "by hand",
                        "goes on from the point"),
    "redis": ("Redis, SET NX GET and a script", "**no**", "by script", "by hand",
              "the lease runs out, executed again"),
    "python-idem": ("idem, from Python", "yes", "yes", "yes", "known, as above"),
    "python-hand": ("SQLite by hand, from Python", "yes", "by hand", "by hand", "by hand"),
    "node-idempotency": ("@node-idempotency on Redis", "**no**", "**no**", "yes",
                         "blocked until the record expires"),
    "powertools": ("powertools idempotency on Redis", "**no**", "**no**", "**no** with a cache",
                   "executed again"),
}
WITHOUT_TRANSACTION = {"redis", "node-idempotency", "powertools", "postgres-points"}
CROWDED = "idem", "sqlite-hand", "postgres-conflict", "redis"
ORDERS = [("durable", "one"), ("durable", "two"), ("relaxed", "one"), ("relaxed", "two"),
          ("relaxed", "replay")]


def median_spread(values):
    median = statistics.median(values)
    if len(values) < 4:
        return median, 100 * (max(values) - min(values)) / median
    low, _, high = statistics.quantiles(values, n=4)
    return median, 100 * (high - low) / median


def ratio_of(values, others):
    """The median of the ratios, round by round: what slows a round slows both sides of it."""
    if len(values) != len(others):
        return statistics.median(values) / statistics.median(others)
    return statistics.median(a / b for a, b in zip(values, others))


def read(name):
    """Rows of a raw file; none if that part was not run."""
    path = RAW / f"{name}.tsv"
    if not path.exists():
        return []
    with open(path, encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t") for line in lines]


def gather(rows, count):
    """{the first count fields: numbers in the next one}"""
    found = collections.defaultdict(list)
    for row in rows:
        found[tuple(row[:count])].append(float(row[count]))
    return found


def write_csv(name, header, rows):
    with open(RESULTS / f"{name}.csv", "w", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows([header, *rows])


def markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(str(cell) for cell in line) + " |\n" for line in lines)


def figure(value):
    """Three digits, as people read them."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


class Targets:
    """Ratios that are wanted, and whether they were reached."""

    def __init__(self):
        self.rows = []

    def add(self, what, value, limit, reached):
        self.rows.append((what, f"{value:.2f}", limit, "reached" if reached else "**missed**"))

    def at_most(self, what, value, limit):
        self.add(what, value, f"≤ {limit}", value <= limit)

    def at_least(self, what, value, limit):
        self.add(what, value, f"≥ {limit}", value >= limit)


# --- the limit -----------------------------------------------------------------------------------

def limit_tables(targets):
    times = gather(read("limit"), 4)
    turns = {key[1:]: values for key, values in times.items() if key[0] == "limit"}
    table, out = [], []
    for (place, operation, by), by_hand in turns.items():
        if by != "by hand":
            continue
        row, (hand, hand_spread) = [place, operation], median_spread(by_hand)
        for form in "scalar", "table":
            if (place, operation, form) not in turns:
                row += ["", ""]
                continue
            us, spread = median_spread(turns[place, operation, form])
            ratio = ratio_of(turns[place, operation, form], by_hand)
            row += [f"{figure(us)} ± {spread:.0f} %", f"{ratio:.2f}"]
            out.append([place, operation, form, f"{us:.3f}", f"{spread:.1f}", f"{hand:.3f}",
                        f"{ratio:.3f}"])
        table.append([*row[:2], f"{figure(hand)} ± {hand_spread:.0f} %", *row[2:]])
    header = ["place", "operation", "form", "us", "spread_percent", "by_hand_us", "ratio"]
    write_csv("limit", header, out)
    limit_targets(targets, turns)
    header = ["where", "operation", "by hand, µs", "scalar, µs", "ratio", "table, µs", "ratio"]
    return markdown(header, table) + "\n" + size_table(times)


def limit_targets(targets, turns):

    def ratio(place, operation, form="scalar", other=None):
        return ratio_of(turns[place, operation, form], turns[place, other or operation, "by hand"])

    targets.at_most("claim + complete, in a transaction / by hand",
                    ratio("NORMAL", "claim + complete"), 1.2)
    targets.at_most("claim + row + complete, one transaction / by hand",
                    ratio("NORMAL", "cycle in one transaction"), 1.2)
    targets.at_most("claim, row + complete, two commits / by hand",
                    ratio("NORMAL", "cycle in two commits"), 1.2)
    targets.at_most("replay, table form, in a transaction / prepared SELECT",
                    ratio("NORMAL", "replay in a transaction", "table"), 1.2)
    targets.at_most("replay, scalar, in autocommit / prepared SELECT",
                    ratio("NORMAL", "replay in autocommit"), 1.2)
    targets.at_most("durable claim / raw commit",
                    ratio("FULL", "claim in autocommit", other="raw commit"), 1.05)
    targets.at_most("audit 'exceptions' / 'off'",
                    ratio_of(turns["NORMAL", "claim + complete", "scalar"],
                             turns["NORMAL", "claim + complete unaudited", "scalar"]), 1.02)


def size_table(times):
    medians = {key[1:]: median_spread(values) for key, values in times.items() if key[0] == "size"}
    write_csv("size", ["bytes", "operation", "by", "us", "spread_percent"],
              [[*key, f"{us:.3f}", f"{spread:.1f}"] for key, (us, spread) in medians.items()])
    sizes = sorted({int(key[0]) for key in medians})
    rows = []
    for operation in "cycle in one transaction", "replay in autocommit":
        for by in "by hand", "scalar", "table":
            rows.append([operation, by, *(figure(medians[str(size), operation, by][0])
                                          for size in sizes)])
    return markdown(["µs with an answer of", "", *(f"{size:,} bytes" for size in sizes)], rows)


# --- peers ---------------------------------------------------------------------------------------

def rates(rows):
    """{(name, durability, work, clients): rates of its turns}; clients of one turn are added up."""
    found, together = collections.defaultdict(list), []
    for name, durability, work, clients, count, seconds, _ in rows:
        together.append(int(count) / float(seconds))
        if len(together) == int(clients):
            found[name, durability, work, int(clients)].append(sum(together))
            together = []
    return found


def percentiles(rows):
    """{(name, durability, work): µs at 50, 90, 99 and 99.9 percent}, of single clients."""
    counts = collections.defaultdict(collections.Counter)
    for name, durability, work, clients, _, _, buckets in rows:
        if not name.startswith("crowd "):
            for pair in filter(None, buckets.split(",")):
                bucket, count = pair.split(":")
                counts[name, durability, work][int(bucket)] += int(count)
    found = {}
    for key, buckets in counts.items():
        total, seen, row = sum(buckets.values()), 0, []
        wanted = [0.5, 0.9, 0.99, 0.999]
        for bucket in sorted(buckets):
            seen += buckets[bucket]
            while wanted and seen >= wanted[0] * total:
                row.append(2 ** (bucket / 16) / 1000)
                wanted.pop(0)
        found[key] = row
    return found


def peer_targets(targets, turns):
    def over(name, durability, work, idem_work=None):
        return ratio_of(turns["idem", durability, idem_work or work],
                        turns[name, durability, work])

    pg = "postgres-conflict"
    targets.at_least("durable, one transaction: idem / PostgreSQL", over(pg, "durable", "one"), 3.5)
    targets.at_least("durable, two commits: idem / PostgreSQL", over(pg, "durable", "two"), 1.1)
    targets.at_least("durable, two commits: idem / Redis", over("redis", "durable", "two"), 1.5)
    targets.at_least("relaxed, one transaction: idem / PostgreSQL", over(pg, "relaxed", "one"), 8)
    targets.at_least("relaxed, one transaction: idem / Redis",
                     over("redis", "relaxed", "two", idem_work="one"), 2)
    targets.at_least("replay: idem / PostgreSQL", over(pg, "relaxed", "replay"), 40)
    targets.at_least("replay: idem / Redis", over("redis", "relaxed", "replay"), 7)
    for name in "node-idempotency", "powertools":
        if (name, "durable", "two") in turns:
            for durability, work in ("durable", "two"), ("relaxed", "two"), ("relaxed", "replay"):
                label = work if work == "replay" else f"{durability}, two commits"
                targets.at_least(f"{label}: idem / {PEERS[name][0]}",
                                 over(name, durability, work), 5)


def peer_tables(targets):
    rows = read("peers")
    by_turn = rates(rows)
    found = {key: median_spread(values) for key, values in by_turn.items()}
    turns = {key[:3]: values for key, values in by_turn.items() if " " not in key[0]}
    peer_targets(targets, turns)
    table = []
    for name, (label, *_) in PEERS.items():
        cells = []
        for durability, work in ORDERS:
            if (name, durability, work) not in turns:
                cells.append("–")
                continue
            median, spread = found[name, durability, work, 1]
            times = ratio_of(turns[name, durability, work], turns["idem", durability, work])
            cells.append(f"{median:,.0f} ± {spread:.0f} %"
                         + (f" ({times:.2f})" if name != "idem" else ""))
        if any(cell != "–" for cell in cells):
            table.append([label, *cells])
    header = ["contender", "durability", "work", "clients", "per_second", "spread_percent"]
    write_csv("peers", header, [[*key, f"{median:.1f}", f"{spread:.1f}"]
                                for key, (median, spread) in found.items()])
    text = markdown(["operations per second (in brackets: times idem)", "durable, one transaction",
                     "durable, two commits", "relaxed, one transaction", "relaxed, two commits",
                     "replay"], table)
    text += "\n" + crowd_table(found) + "\n" + latency_table(percentiles(rows))
    header = ["", "your rows in the same transaction", "fencing", "fingerprint",
              "after a crash between claim and answer"]
    return text + "\n" + markdown(header, PEERS.values())


def crowd_table(found):
    columns = [(durability, clients) for durability in ("durable", "relaxed")
               for clients in (1, 2, 8)]
    rows = []
    for name in CROWDED:
        work = "two" if name in WITHOUT_TRANSACTION else "one"
        rates_of = [found["crowd " + name, durability, work, clients][0]
                    for durability, clients in columns]
        rows.append([PEERS[name][0], *(f"{rate:,.0f}" for rate in rates_of)])
    return markdown(["cycles per second, by clients",
                     *(f"{durability}, {clients}" for durability, clients in columns)], rows)


def latency_table(found):
    header = ["contender", "durability", "work", "p50_us", "p90_us", "p99_us", "p999_us"]
    write_csv("latency", header, [[*key, *(f"{us:.1f}" for us in row)]
                                  for key, row in found.items()])
    rows = []
    for name, (label, *_) in PEERS.items():
        cells = []
        for order in ("durable", "one"), ("durable", "two"), ("relaxed", "replay"):
            row = found.get((name, *order))
            cells.append(" / ".join(figure(us) for us in row) if row else "–")
        if any(cell != "–" for cell in cells):
            rows.append([label, *cells])
    return markdown(["latency, µs, at 50 / 90 / 99 / 99.9 %", "durable, one transaction",
                     "durable, two commits", "replay"], rows)


# --- growth --------------------------------------------------------------------------------------

def growth_tables(targets, name):
    rows = read(name)
    if not rows:
        return ""
    found = {key[1:]: median_spread(values) for key, values in gather(rows, 4).items()}
    write_csv(name, ["keys", "records", "what", "median", "spread_percent"],
              [[*key, f"{median:.3f}", f"{spread:.1f}"] for key, (median, spread) in found.items()])
    sizes = sorted({int(key[1]) for key in found})
    labels = {"cycle": "claim + row + complete, one transaction", "pair": "claim + complete",
              "replay": "replay", "purge": "purge, per row", "bytes": "bytes per record"}
    table = []
    for kind in "v4", "v7":
        for what, label in labels.items():
            figures = [found[kind, str(size), what] for size in sizes]
            table.append([f"UUID{kind}", label, *(f"{figure(median)} ± {spread:.0f} %"
                                                  for median, spread in figures)])
            if what != "bytes":
                targets.at_most(f"UUID{kind}, {label}: {sizes[-1]:,} / {sizes[0]:,} records",
                                figures[-1][0] / figures[0][0], 2)
    return markdown(["keys", "µs", *(f"{size:,}" for size in sizes)], table)


def churn_table():
    rows = [(int(hour), int(records), int(size)) for _, hour, records, size in read("churn")]
    if not rows:
        return ""
    write_csv("churn", ["hour", "records", "bytes"], rows)
    shown = [row for row in rows if row[0] in (1, 12, 24, 30, 48, rows[-1][0])]
    return markdown(["steady state, hour", *(str(row[0]) for row in shown)],
                    [["records", *(f"{row[1]:,}" for row in shown)],
                     ["file, MB", *(f"{row[2] / 1e6:.1f}" for row in shown)]])


# --- all together --------------------------------------------------------------------------------

def line_of(*command, number=0):
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return " ".join(done.stdout.splitlines()[number].split())


def sync_time(folder):
    """Microseconds, the median: 4 KiB written over and over to the same place, and made durable."""
    with tempfile.TemporaryFile(dir=folder) as file:
        times = []
        for _ in range(200):
            start = time.perf_counter()
            os.pwrite(file.fileno(), bytes(4096), 0)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def write_machine(folder, extension):
    """What the figures hold for, kept beside the raw figures."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        cpus = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    db = sqlite3.connect(":memory:")
    db.enable_load_extension(True)
    db.load_extension(extension)
    parts = [f"{datetime.date.today():%d %B %Y}", f"{len(cpus)} cores of {cpus[0]}",
             f"Linux {platform.release()}",
             "disk " + line_of("df", "--output=source,fstype", folder, number=1)
             + f", {sync_time(folder):.0f} µs for a durable write of 4 KiB",
             db.execute("SELECT idem_version()").fetchone()[0], line_of("cc", "--version")]
    for program in "psql", "redis-server", "node":
        if shutil.which(program):
            parts.append(line_of(program, "--version").partition(" sha=")[0])
    (RAW / "machine.txt").write_text("; ".join(parts) + "\n", encoding="utf-8")


def write(parts):
    """Tables of these parts to bench/results/table.md and to the screen; plots of all there is."""
    RESULTS.mkdir(exist_ok=True)
    targets, text = Targets(), []
    if "limit" in parts and read("limit"):
        text += ["## Against the same work by hand\n", limit_tables(targets)]
        text += ["## Fingerprints\n", (RAW / "fingerprint.md").read_text(encoding="utf-8")]
    if "peers" in parts and read("peers"):
        text += ["## Against what else there is\n", peer_tables(targets)]
    if "growth" in parts:
        text += ["## Growth\n", growth_tables(targets, "growth"),
                 growth_tables(targets, "growth-large"), churn_table()]
    machine = (RAW / "machine.txt").read_text(encoding="utf-8")
    text = [machine, *text, "## Targets\n",
            markdown(["ratio", "measured", "wanted", ""], targets.rows)]
    table = "\n".join(part for part in text if part)
    title = "# Figures: the ratios of one part are of one run\n\n"
    (RESULTS / "table.md").write_text(title + table, encoding="utf-8")
    print(table)
    subprocess.run(["gnuplot", ROOT / "bench" / "plots.gp"], check=True, cwd=RESULTS)

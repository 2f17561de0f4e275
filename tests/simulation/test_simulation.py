"""Random schedules on several connections, every answer compared with a small model of idem.

    IDEM_SEED=17 pytest tests/simulation        # one seed
    IDEM_DEEP=1 IDEM_DEEP_SECONDS=3600 pytest tests/simulation
"""
import os
import subprocess
import time

import pytest

import driver
from conftest import DEEP, SO, connect, deep_seed

SCHEDULES = 1000


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """An empty store, copied for every schedule."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    db = connect(path, init=False)
    db.execute("PRAGMA page_size = 1024")
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("SELECT idem_init()").fetchall()
    db.close()
    return path


def run(seeds, directory, template, counts, seconds=None):
    """How many schedules, and steps of them, agreed."""
    schedules = taken = 0
    until = seconds and time.monotonic() + seconds
    for seed in seeds:
        steps = driver.draw(seed)
        if driver.outcome(steps, directory, template, counts):
            # deep.py cuts what takes longer, and then nobody would hear of it
            last = until and max(time.monotonic(), until) + seconds / 20
            pytest.fail(driver.explain(seed, steps, directory, template, last), pytrace=False)
        schedules += 1
        taken += len(steps)
        if until and time.monotonic() > until:
            break
    return schedules, taken


# A deep run that has to look at the time leaves to `make test` what it does each time.
timed = pytest.mark.skipif(DEEP and "IDEM_DEEP_SECONDS" in os.environ and
                           "IDEM_SEED" not in os.environ, reason="make test runs it")


@timed
def test_schedules(tmp_path, template):
    counts = {}
    seeds = [int(os.environ["IDEM_SEED"])] if "IDEM_SEED" in os.environ else range(SCHEDULES)
    run(seeds, tmp_path, template, counts)
    if len(seeds) < SCHEDULES:
        return
    # A simulation that never comes to a state proves nothing about it.
    for op, results in WANTED.items():
        for result in results:
            assert counts.get((op, result), 0) >= 5, (op, result, counts)


def test_a_disagreement_is_found_and_shrunk(tmp_path, template, monkeypatch):
    """With a model that is wrong about one thing: the report is a script that shows that thing, and the
    sqlite3 shell runs it."""
    def forgetful(state, now, verb, *args, **kw):
        effect = finish(state, now, verb, *args, **kw)
        return effect if verb != "suspend" or effect.error else effect._replace(state=state)

    finish = driver.State.finish
    monkeypatch.setattr(driver.State, "finish", forgetful)
    seed = next(s for s in range(1000) if driver.outcome(driver.draw(s), tmp_path, template))
    report = driver.explain(seed, driver.draw(seed), tmp_path, template)
    assert report.startswith(f"seed {seed}: ")
    script = report.split("-- sqlite3 < this\n")[1]
    own = [line for line in script.splitlines() if not line.startswith((".", "PRAGMA"))
           and "idem_clock" not in line and "idem_init" not in line]
    assert 2 <= len(own) <= 4, report           # a claim and a suspension, perhaps a look at it
    shell = subprocess.run(["sqlite3"], input=script.replace("./idem", SO.removesuffix(".so")),
                           cwd=tmp_path, capture_output=True, text=True)
    assert shell.stderr == ""
    db = connect(tmp_path / "simulation.db")
    assert [r[0] for r in db.execute("SELECT state FROM idem_store")] == ["unknown"]
    db.close()


@pytest.mark.skipif(not DEEP, reason="IDEM_DEEP=1 runs it")
def test_many_schedules(tmp_path, template):
    seconds = float(os.environ.get("IDEM_DEEP_SECONDS", "300"))
    first = deep_seed()
    counts = {}
    n, steps = run(range(first, first + 10**9), tmp_path, template, counts, seconds)
    print(f"{n} schedules from seed {first}, {steps} steps, {sum(counts.values())} results")
    assert n >= seconds                             # at least one a second


WANTED = {
    "claim": ["claimed", "replay", "in_progress", "mismatch", "unknown", "expired", "exhausted",
              "token used", "forms", "content key", "scope key", "busy", "busy at first"],
    "insert": ["claimed", "replay", "in_progress", "mismatch", "unknown", "expired", "exhausted", "busy"],
    "complete": ["done", "no change", "lost", "released", "answered", "expired", "no record", "busy"],
    "release": ["done", "lost", "released", "completed"],
    "suspend": ["done", "no change", "lost"],
    "renew": ["done", "lost", "suspended"],
    "checkpoint": ["done", "lost", "suspended"],
    "resolve-completed": ["done", "no change", "live", "claimable", "resolved"],
    "resolve-retry": ["done", "live", "claimable", "resolved", "expired"],
    "update": ["complete", "release", "suspend", "renew", "checkpoint", "lost", "released"],
    "erase": ["done", "no row", "erase"],
    "seen": ["done", "no change", "seen other"],
    "purge": ["done", "nothing"],
    "transaction": ["begin", "immediate", "commit", "rollback", "savepoint", "rollback to", "release",
                    "busy"],
    "read": ["done"], "vacuum": ["done"], "reopen": ["done"],
}

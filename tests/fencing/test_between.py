"""Between load and write: whatever another does there, the end is that of one after the other.

A call loads a record, decides, and writes if the record is still what was loaded. Here a rival acts
exactly between, on a connection of its own. What the call then says and leaves must be what it says
and leaves on a second database where the rival acted first and the call came after it.
"""
import json
import sqlite3

import pytest

from conftest import connect, one

NOW = 1_700_000_000_000
LEASE, RETENTION, TOMBSTONE = 1000, 50_000, 400_000
A, B, C = (f"token-{c}-0123456789" for c in "abc")
WRITES = ("UPDATE main.idem_store", "INSERT OR IGNORE INTO main.idem_store",
          "DELETE FROM main.idem_store", "INSERT INTO main.idem_claim_audited")


def call(sql):
    """One call about one key."""
    def run(db, key):
        return db.execute(sql.replace("KEY", key)).fetchall()
    return run


def at(ms):
    """Sets the clock."""
    return call(f"SELECT idem_clock({NOW + ms})")


def claims(token, operation="op", fingerprint="fp"):
    return call(f"SELECT idem_claim('t','KEY','{fingerprint}','{operation}','{token}')")


def says(verb, token, *more):
    more = "".join(f",'{word}'" for word in more)
    return call(f"SELECT idem_{verb}('t','KEY','{token}'{more})")


completes = call("SELECT idem_resolve('t','KEY','completed','operator')")
retries = call("SELECT idem_resolve('t','KEY','retry')")
erases = call("DELETE FROM idem_records WHERE scope = 't' AND key = 'KEY'")
purges = call("SELECT idem_purge()")


def changes(column, value):
    return call(f"UPDATE idem_policy SET {column} = {value} WHERE operation = 'op'")


# What is there when the call begins. The first connection is the one that calls.
BEFORE = {
    "absent": [],
    "live": [claims(A)],
    "stale": [claims(A), at(LEASE)],
    "released": [claims(A), says("release", A)],
    "released by the operator": [claims(A), says("suspend", A), retries],
    "suspended": [claims(A), says("suspend", A)],
    "over": [claims(A), says("complete", A, "a"), at(RETENTION + TOMBSTONE)],
}
# What is called.
MINE = {
    "claim": [claims(B)], "claim again": [claims(A)], "claim with c": [claims(C)],
    "claim another": [claims(B, "other")],
    "complete": [says("complete", A, "a")], "complete otherwise": [says("complete", A, "z")],
    "complete with c": [says("complete", C, "a")],
    "release": [says("release", A)], "suspend": [says("suspend", A)], "renew": [says("renew", A)],
    "checkpoint": [says("checkpoint", A, "point")],
    "resolve completed": [completes], "resolve retry": [retries], "erase": [erases],
}
# What the rival does meanwhile. A step that fails is skipped: not every rival can do everything.
RIVALS = {
    "claims": [claims(C)],
    "claims with b": [claims(B)],
    "claims another request with b": [claims(B, "op", "fp-2")],
    "claims another with b": [claims(B, "other")],
    "claims with b, completes": [claims(B), says("complete", B, "b")],
    "completes": [says("complete", A, "rival")],
    "releases": [says("release", A)],
    "releases, claims": [says("release", A), claims(C)],
    "releases, claims, releases": [says("release", A), claims(C), says("release", C)],
    "claims, releases, claims with b": [claims(C), says("release", C), claims(B)],
    "suspends": [says("suspend", A)],
    "renews": [at(LEASE + 1), says("renew", A)],
    "decides for a retry": [retries],
    "claims, decides for a retry": [claims(C), says("suspend", C), retries],
    "decides for completed": [completes],
    "erases": [erases],
    "erases, claims, releases": [erases, claims(C), says("release", C)],
    "erases, claims with b, completes": [erases, claims(B), says("complete", B, "b")],
    "purges": [purges],
    "purges twice, claims": [purges, purges, claims(C)],
    "shortens the lease": [changes("lease_ms", 7)],
    "wants retries": [changes("on_stale", "'retry'")],
    "wants no retries": [changes("on_stale", "'unknown'")],
    "limits the attempts": [changes("max_attempts", 1)],
    "shortens the retention": [changes("retention_ms", 9)],
}


def steps(db, key, calls):
    """The calls, one by one; an error is an answer."""
    answers = []
    for run in calls:
        try:
            answers.append(run(db, key))
        except sqlite3.Error as e:
            answers.append(f"{type(e).__name__}: {e}")
    return answers


def open_two(path, audit="exceptions", stale="unknown"):
    """A store, and two connections on it that do not wait for each other."""
    me = connect(path, timeout=0)
    me.execute("PRAGMA journal_mode = WAL").fetchall()
    me.execute("INSERT INTO idem_policy(operation) VALUES ('op'), ('other')")
    other = connect(path, init=False, timeout=0)
    for db in (me, other):
        db.execute("PRAGMA synchronous = OFF")
    reset(me, other, audit, stale)
    return me, other


def reset(me, other, audit="exceptions", stale="unknown"):
    me.execute("UPDATE idem_policy SET lease_ms = ?, retention_ms = ?, tombstone_ms = ?, audit = ?,"
               " on_stale = ?, max_attempts = 0 WHERE operation IN ('op', 'other')",
               (LEASE, RETENTION, TOMBSTONE, audit, stale))
    for db in (me, other):
        at(0)(db, "")


def left(db, key):
    """What the store holds of a key, but for the row's id."""
    rows = db.execute("SELECT * FROM main.idem_store WHERE key = ?", (key,)).fetchall()
    audit = db.execute("SELECT event, attempt, detail FROM main.idem_audit WHERE key = ?"
                       " ORDER BY id", (key,)).fetchall()
    return [row[1:] for row in rows], audit


class Pair:
    """Two stores that live through the same cases: the rival comes between, or before."""

    def __init__(self, folder, audit, stale):
        self.policy = audit, stale
        self.between = open_two(folder / "between.db", *self.policy)
        self.before = open_two(folder / "before.db", *self.policy)

    def close(self):
        for me, other in (self.between, self.before):
            assert one(me, "SELECT idem_audit_verify()") is None
            me.close()
            other.close()

    def prepare(self, key, history):
        for me, other in (self.between, self.before):
            reset(me, other, *self.policy)
            steps(other, key, history)
            me.execute("SELECT idem_clock(?)", (one(other, "SELECT idem_clock()"),)).fetchall()

    def run_between(self, key, mine, rival):
        """The end, and whether the rival could act; None if the call writes nothing."""
        (me, other), met = self.between, []

        def hook(text):
            if not met and any(write in text for write in WRITES):
                met.append(steps(other, key, rival))

        me.set_trace_callback(hook)
        answer = steps(me, key, mine)
        me.set_trace_callback(None)
        return (answer, left(me, key)), met[0] if met else None

    def run_before(self, key, mine, rival):
        me, other = self.before
        steps(other, key, rival)
        return steps(me, key, mine), left(me, key)


@pytest.mark.parametrize("audit", ["exceptions", "all"])
@pytest.mark.parametrize("history, stale", [*((b, "unknown") for b in BEFORE), ("stale", "retry")])
def test_a_rival_between_load_and_write(tmp_path, history, stale, audit):
    pair, met = Pair(tmp_path, audit, stale), 0
    for mine in MINE:
        for rival in RIVALS:
            key = f"{mine}, {rival}"
            pair.prepare(key, BEFORE[history])
            got, told = pair.run_between(key, MINE[mine], RIVALS[rival])
            if told is None:
                break  # this call writes nothing here, whoever the rival is
            if any("locked" in str(answer) for answer in told):
                assert mine == "erase", key  # DELETE holds the write lock: nobody comes between
                break
            met += 1
            assert got == pair.run_before(key, MINE[mine], RIVALS[rival]), key
    assert met > 0
    pair.close()


@pytest.mark.parametrize("mine", ["complete", "complete otherwise", "complete with c"])
def test_a_completion_from_memory(tmp_path, mine):
    """Who claimed completes without a look, and a rival acted before: as with a look."""
    memory, look = open_two(tmp_path / "memory.db"), open_two(tmp_path / "look.db")
    for rival in RIVALS:
        ends = []
        for me, other in (memory, look):
            reset(me, other)
            claims(A)(me, rival)
            if me is look[0]:  # a later claim of another key is what it remembers
                claims(B)(me, f"not {rival}")
            at(LEASE)(other, "")
            steps(other, rival, RIVALS[rival])
            ends.append((steps(me, rival, MINE[mine]), left(me, rival)))
        assert ends[0] == ends[1], rival
    for db in (*memory, *look):
        db.close()


@pytest.mark.parametrize("audit", ["off", "all"])
def test_a_token_that_served_elsewhere(tmp_path, audit):
    """The latest claim's token is presented for another key, another scope: that claim stays."""
    me, other = open_two(tmp_path / "db", audit)
    claims(A)(me, "k")
    for scope, key in (("u", "k"), ("t", "j"), ("u", "j")):
        with pytest.raises(sqlite3.Error, match="there is no record"):
            one(me, "SELECT idem_complete(?, ?, ?, 'a')", scope, key, A)
    assert one(me, "SELECT state FROM main.idem_store") == "processing"
    me.close()
    other.close()


def test_an_audited_claim_is_told_by_its_own_row(tmp_path):
    """A new key is lost to a rival, while the token is that of other keys' claims."""
    me, other = open_two(tmp_path / "db", "all")
    for scope, key in (("u", "k"), ("t", "j")):
        assert '"claimed"' in one(me, "SELECT idem_claim(?, ?, 'fp', 'op', ?)", scope, key, B)
    met = []

    def hook(text):
        if not met and any(write in text for write in WRITES):
            met.append(claims(C)(other, "k"))

    me.set_trace_callback(hook)
    told = claims(B)(me, "k")[0][0]
    me.set_trace_callback(None)
    assert met and '"in_progress"' in told
    me.close()
    other.close()


def test_an_audited_claim_whose_rival_has_finished(tmp_path):
    """With the same token, and an answer that is kept as long as a lease: all but the state is the same."""
    me, other = open_two(tmp_path / "db", "all")
    me.execute("UPDATE idem_policy SET retention_ms = lease_ms WHERE operation = 'op'")
    met = []

    def hook(text):
        if not met and any(write in text for write in WRITES):
            met.append(steps(other, "k", [claims(B), says("complete", B, "b")]))

    me.set_trace_callback(hook)
    assert told(me, claims(B)) == "replay"
    me.set_trace_callback(None)
    assert met and "completed" in left(me, "k")[0][0]
    me.close()
    other.close()


def told(db, run, key="k"):
    """The outcome of a claim, or the error."""
    answer = steps(db, key, [run])[0]
    return answer if isinstance(answer, str) else json.loads(answer[0][0])["outcome"]


def test_a_token_that_an_operator_took(tmp_path):
    """It neither finishes nor claims, before and after the next attempt."""
    me, other = open_two(tmp_path / "db")
    steps(me, "k", [claims(A), says("suspend", A), retries])
    assert "lost" in told(me, says("complete", A, "a")) and "used" in told(me, claims(A))
    assert told(me, claims(B)) == "claimed"
    assert "lost" in told(me, says("complete", A, "a")) and told(me, claims(A)) == "in_progress"
    steps(me, "k", [says("release", B)])
    assert "used" in told(me, claims(A)) and "used" in told(me, claims(B))
    me.close()
    other.close()


def test_a_grant_is_for_one_life(tmp_path):
    """An operator's retry grants max_attempts anew; the next life has them all, and every token."""
    me, other = open_two(tmp_path / "db")
    changes("max_attempts", 1)(me, "k")
    steps(me, "k", [claims(A), says("release", A)])
    assert told(me, claims(B)) == "exhausted"
    steps(me, "k", [retries])
    assert told(me, claims(B)) == "claimed"
    steps(me, "k", [says("complete", B, "b"), at(RETENTION + TOMBSTONE)])
    assert told(me, claims(A)) == "claimed"
    steps(me, "k", [says("release", A)])
    assert told(me, claims(C)) == "exhausted"
    row = me.execute("SELECT attempt, granted, spent FROM main.idem_store").fetchall()
    assert row == [(1, 0, None)]
    me.close()
    other.close()

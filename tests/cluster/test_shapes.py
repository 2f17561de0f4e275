"""Every way to spell a write, on a cluster: it replicates, or it fails before anything is written.

Each shape runs against the leader; then a second client reads and writes; then the leader is killed
and the next one is asked. What was answered must be what is there, no node may have died of
anything but our SIGKILL, and nobody may be locked out.
"""
import os
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from cluster.nodes import ROOT, Cluster
from cluster.wire import Refused

DEEP = os.environ.get("CLUSTER_SECONDS") is not None

TOKEN = "token-of-shape-{key}"
CLAIM = "idem_claim('t', '{key}', 'fp', 'op', '" + TOKEN + "')"
STORE_OBJECTS = (ROOT / "sql" / "store.sql").read_text().count("\nCREATE ")
# What a guarded function says: where it would have been lost, and what to do instead.
ADVICE = "BEGIN IMMEDIATE"

SETUP = [
    "INSERT INTO idem_call SELECT idem_init()",
    "CREATE TABLE carrier(id PRIMARY KEY, result)",
    "CREATE TABLE audited(key)",
    "CREATE TRIGGER audited_claims AFTER INSERT ON audited"
    " BEGIN INSERT INTO carrier SELECT new.key, idem_claim('t', new.key, 'fp'); END",
    "CREATE VIEW claims AS SELECT id, result FROM carrier",
    "CREATE TRIGGER claims_insert INSTEAD OF INSERT ON claims"
    " BEGIN SELECT idem_claim('t', new.id, 'fp'); END",
    "INSERT INTO idem_policy(operation, wait_ms) VALUES ('waits', 30000)",
    "INSERT INTO idem_policy(operation, max_attempts) VALUES ('once', 1)",
    "INSERT INTO idem_policy(operation, audit) VALUES ('told', 'all')",
]


@dataclass
class Shape:
    """Steps are (kind, sql): E = EXEC_SQL, Q = QUERY_SQL; e, q: the same prepared; r: as q, but
    never finalised. With '!' behind it must be refused. At the end the client hangs up."""

    name: str
    steps: list
    state: str = "processing"  # of the record afterwards; None: there is none
    before: list = field(default_factory=list)


def claimed_before(key_state="processing", operation="op"):
    """Steps that make a record in the usual way."""
    steps = [
        (
            "E",
            "INSERT INTO idem_records(scope, key, fingerprint, operation, token) VALUES"
            " ('t', '{key}', 'fp', '" + operation + "', '" + TOKEN + "')",
        )
    ]
    if key_state == "completed":
        steps.append(
            (
                "E",
                "UPDATE idem_records SET state = 'completed', response = 'done', code = 201"
                " WHERE scope = 't' AND key = '{key}' AND token = '" + TOKEN + "'",
            )
        )
    if key_state in ("released", "unknown"):
        steps.append(
            (
                "E",
                f"UPDATE idem_records SET state = '{key_state}'"
                " WHERE scope = 't' AND key = '{key}' AND token = '" + TOKEN + "'",
            )
        )
    return steps


def after(verb, *more, **kw):
    """A call of the token's holder."""
    return f"idem_{verb}('t', '{{key}}', '{TOKEN}'" + "".join(f", {m}" for m in more) + ")"


BEGIN, COMMIT, ROLLBACK = ("E", "BEGIN IMMEDIATE"), ("E", "COMMIT"), ("E", "ROLLBACK")

SHAPES = [
    # Autocommit, a SELECT: a reader to dqlite, which would neither replicate nor undo its write.
    Shape("select-query", [("Q!", "SELECT " + CLAIM)], None),
    Shape("select-query-prepared", [("q!", "SELECT " + CLAIM)], None),
    Shape("select-exec", [("E!", "SELECT " + CLAIM)], None),
    Shape("select-exec-prepared", [("e!", "SELECT " + CLAIM)], None),
    Shape("select-no-rows-exec", [("E!", "SELECT 1 WHERE " + CLAIM + " IS NULL")], None),
    Shape("select-many-rows", [("Q!", "SELECT " + CLAIM + " FROM idem_policy")], None),
    Shape("table-form", [("Q!", "SELECT outcome FROM " + CLAIM)], None),
    Shape("table-form-exec", [("E!", "SELECT outcome FROM " + CLAIM)], None),
    # Autocommit, a write that yields rows: dqlite 1.11 commits it after it looked for frames.
    Shape(
        "carrier-returning-query",
        [("Q!", "INSERT INTO carrier VALUES ('{key}', " + CLAIM + ") RETURNING result")],
        None,
    ),
    Shape(
        "carrier-returning-exec",
        [("E!", "INSERT INTO carrier VALUES ('{key}', " + CLAIM + ") RETURNING result")],
        None,
    ),
    Shape(
        "call-returning", [("Q!", "INSERT INTO idem_call DEFAULT VALUES RETURNING " + CLAIM)], None
    ),
    Shape(
        "records-returning",
        [
            (
                "Q!",
                "INSERT INTO idem_records(scope, key, fingerprint, token) VALUES"
                " ('t', '{key}', 'fp', '" + TOKEN + "') RETURNING key",
            )
        ],
        None,
    ),
    Shape(
        "records-update-returning",
        [
            (
                "Q!",
                "UPDATE idem_records SET state = 'completed' WHERE key = '{key}' AND token = '"
                + TOKEN
                + "' RETURNING key",
            )
        ],
        "processing",
        claimed_before(),
    ),
    # Autocommit, a plain write.
    Shape("carrier-insert", [("E", "INSERT INTO carrier SELECT '{key}', " + CLAIM)]),
    Shape("carrier-insert-prepared", [("e", "INSERT INTO carrier SELECT '{key}', " + CLAIM)]),
    Shape("carrier-values", [("E", "INSERT INTO carrier VALUES ('{key}', " + CLAIM + ")")]),
    Shape(
        "carrier-update",
        [
            ("E", "INSERT INTO carrier VALUES ('{key}', '')"),
            ("E", "UPDATE carrier SET result = " + CLAIM + " WHERE id = '{key}'"),
        ],
    ),
    Shape("carrier-replace", [("E", "REPLACE INTO carrier VALUES ('{key}', " + CLAIM + ")")]),
    Shape(
        "carrier-temp",
        [("E", "CREATE TEMP TABLE mine(result)"), ("E", "INSERT INTO temp.mine SELECT " + CLAIM)],
    ),
    Shape(
        "carrier-delete",
        [
            ("E", "INSERT INTO carrier VALUES ('{key}', '')"),
            ("E", "DELETE FROM carrier WHERE id = '{key}' AND " + CLAIM + " <> ''"),
        ],
    ),
    Shape("carrier-table-form", [("E", "INSERT INTO carrier SELECT token, outcome FROM " + CLAIM)]),
    Shape("call-insert", [("E", "INSERT INTO idem_call SELECT " + CLAIM)]),
    Shape("call-insert-values", [("E", "INSERT INTO idem_call VALUES (" + CLAIM + ")")]),
    Shape("records-insert", claimed_before()),
    Shape(
        "records-insert-or-ignore",
        [
            (
                "E",
                "INSERT OR IGNORE INTO idem_records(scope, key, fingerprint, operation, token)"
                " VALUES ('t', '{key}', 'fp', 'op', 'another-token-of-16')",
            )
        ]
        * 2,
    ),
    Shape("records-insert-again", claimed_before(), "processing", claimed_before()),
    Shape(
        "records-insert-lost",
        [
            (
                "E!",
                "INSERT INTO idem_records(scope, key, fingerprint, operation, token)"
                " VALUES ('t', '{key}', 'fp', 'op', 'another-token-of-16')",
            )
        ],
        "processing",
        claimed_before(),
    ),
    Shape("create-as", [("E", "CREATE TABLE made AS SELECT " + CLAIM + " AS result")]),
    # A plain write as QUERY: dqlite 1.11 refuses it by itself.
    Shape("write-as-query", [("Q!", "INSERT INTO carrier SELECT '{key}', " + CLAIM)], None),
    Shape("write-as-query-prepared", [("q!", "INSERT INTO carrier SELECT 1, " + CLAIM)], None),
    # Triggers and tables of the file may not claim: DIRECTONLY.
    Shape("trigger", [("E!", "INSERT INTO audited VALUES ('{key}')")], None),
    Shape("instead-of-trigger", [("E!", "INSERT INTO claims VALUES ('{key}', '')")], None),
    Shape("virtual-table", [("E!", "CREATE VIRTUAL TABLE mine USING idem_claim")], None),
    # Transactions.
    Shape("begin-deferred", [("E", "BEGIN"), ("Q!", "SELECT " + CLAIM), ("E", "ROLLBACK")], None),
    Shape(
        "begin-deferred-after-write",
        [
            ("E", "BEGIN"),
            ("E", "INSERT INTO carrier VALUES ('{key}', '')"),
            ("Q", "SELECT " + CLAIM),
            COMMIT,
        ],
    ),
    Shape(
        "begin-deferred-after-nothing-written",
        [
            ("E", "BEGIN"),
            ("E", "UPDATE carrier SET result = result WHERE 0"),
            ("Q", "SELECT " + CLAIM),
            COMMIT,
        ],
    ),
    Shape(
        "begin-deferred-carrier",
        [("E", "BEGIN"), ("E", "INSERT INTO carrier SELECT '{key}', " + CLAIM), COMMIT],
    ),
    Shape("begin-immediate", [BEGIN, ("Q", "SELECT " + CLAIM), COMMIT]),
    Shape("begin-immediate-prepared", [BEGIN, ("q", "SELECT " + CLAIM), COMMIT]),
    Shape("begin-immediate-table-form", [BEGIN, ("Q", "SELECT outcome FROM " + CLAIM), COMMIT]),
    Shape("begin-immediate-rollback", [BEGIN, ("Q", "SELECT " + CLAIM), ROLLBACK], None),
    Shape(
        "begin-immediate-returning",
        [BEGIN, ("Q", "INSERT INTO idem_call DEFAULT VALUES RETURNING " + CLAIM), COMMIT],
    ),
    Shape(
        "begin-immediate-savepoint",
        [BEGIN, ("E", "SAVEPOINT s"), ("Q", "SELECT " + CLAIM), ("E", "ROLLBACK TO s"), COMMIT],
        None,
    ),
    Shape("hang-up", [BEGIN, ("Q", "SELECT " + CLAIM)], None),
    Shape(
        "hang-up-prepared",
        [
            BEGIN,
            ("r", "SELECT " + CLAIM),
            ("r", "SELECT outcome FROM " + CLAIM),
            ("r", "SELECT key FROM idem_records"),
        ],
        None,
    ),
    Shape(
        "hang-up-after-commit",
        [BEGIN, ("r", "SELECT " + CLAIM), COMMIT, ("r", "SELECT key FROM idem_records")],
    ),
    Shape(
        "one-request",
        [("E", "BEGIN IMMEDIATE; INSERT INTO carrier SELECT '{key}', " + CLAIM + "; COMMIT")],
    ),
    Shape(
        "whole-cycle",
        [
            BEGIN,
            ("Q", "SELECT " + CLAIM),
            ("E", "INSERT INTO carrier VALUES ('{key}', 'the effect')"),
            ("Q", "SELECT " + after("complete", "'done'", "201")),
            COMMIT,
        ],
        "completed",
    ),
    # The other functions that write.
    Shape("init-again", [("Q", "SELECT idem_init()")], None),
    Shape("purge", [("Q", "SELECT idem_purge()")], None),
    Shape("purge-carrier", [("E", "INSERT INTO idem_call SELECT idem_purge()")], None),
    Shape(
        "complete",
        [("Q!", "SELECT " + after("complete", "'done'"))],
        "processing",
        claimed_before(),
    ),
    Shape(
        "complete-carrier",
        [("E", "INSERT INTO idem_call SELECT " + after("complete", "'done'"))],
        "completed",
        claimed_before(),
    ),
    Shape("complete-records", [], "completed", claimed_before("completed")),
    Shape("release", [("Q!", "SELECT " + after("release"))], "processing", claimed_before()),
    Shape(
        "release-carrier",
        [("E", "INSERT INTO idem_call SELECT " + after("release"))],
        "released",
        claimed_before(),
    ),
    Shape("suspend", [("Q!", "SELECT " + after("suspend"))], "processing", claimed_before()),
    Shape(
        "suspend-carrier",
        [("E", "INSERT INTO idem_call SELECT " + after("suspend"))],
        "unknown",
        claimed_before(),
    ),
    Shape("renew", [("Q!", "SELECT " + after("renew"))], "processing", claimed_before()),
    Shape(
        "checkpoint",
        [("Q!", "SELECT " + after("checkpoint", "'charged'"))],
        "processing",
        claimed_before(),
    ),
    Shape(
        "resolve",
        [("Q!", "SELECT idem_resolve('t', '{key}', 'retry')")],
        "unknown",
        claimed_before("unknown"),
    ),
    Shape(
        "resolve-carrier",
        [("E", "INSERT INTO idem_call SELECT idem_resolve('t', '{key}', 'retry')")],
        "released",
        claimed_before("unknown"),
    ),
    Shape("seen", [("Q!", "SELECT idem_seen('stripe', '{key}')")], None),
    Shape(
        "seen-carrier", [("E", "INSERT INTO idem_call SELECT idem_seen('stripe', '{key}')")], None
    ),
    Shape(
        "delete",
        [("E", "DELETE FROM idem_records WHERE scope = 't' AND key = '{key}'")],
        None,
        claimed_before("completed"),
    ),
    Shape(
        "retry-after-release",
        [("Q!", "SELECT idem_claim('t', '{key}', 'fp', 'op')")],
        "released",
        claimed_before("released"),
    ),
    # Answers that write nothing.
    Shape(
        "replay",
        [
            ("Q", "SELECT idem_claim('t', '{key}', 'fp', 'op')"),
            ("Q", "SELECT outcome FROM idem_claim('t', '{key}', 'fp', 'op')"),
        ],
        "completed",
        claimed_before("completed"),
    ),
    Shape(
        "in-progress",
        [("Q", "SELECT idem_claim('t', '{key}', 'fp', 'op')")],
        "processing",
        claimed_before(),
    ),
    Shape(
        "mismatch",
        [("Q", "SELECT idem_claim('t', '{key}', 'other', 'op')")],
        "processing",
        claimed_before(),
    ),
    Shape(
        "in-progress-that-would-wait",
        [("Q", "SELECT idem_claim('t', '{key}', 'fp', 'waits')")],
        "processing",
        claimed_before(operation="waits"),
    ),
    Shape(
        "replay-that-is-told",  # but not there: its audit row is left out, as on a reader
        [
            ("Q", "SELECT idem_claim('t', '{key}', 'fp', 'told')"),
            ("E", "INSERT INTO idem_call SELECT idem_claim('t', '{key}', 'fp', 'told')"),
        ],
        "completed",
        claimed_before("completed", "told"),
    ),
    Shape(
        "listing",
        [
            ("Q", "SELECT count(*) FROM idem_records"),
            ("Q", "SELECT * FROM idem_health"),
            ("Q", "SELECT idem_audit_verify()"),
        ],
        None,
    ),
]


def run_step(db, kind, sql):
    """The rows or the result; Refused if the node refuses."""
    if kind == "r":
        return db.prepare(sql).query()
    if kind.islower():
        with db.prepare(sql) as statement:
            return statement.query() if kind == "q" else statement.execute()
    return db.query(sql) if kind == "Q" else db.execute(sql)


def run_shape(cluster, shape):
    """Its steps; and whoever is refused by EXEC is told why."""
    with cluster.connect() as db:
        for kind, sql in shape.before + shape.steps:
            sql = sql.format(key=shape.name)
            if not kind.endswith("!"):
                run_step(db, kind, sql)
                continue
            with pytest.raises(Refused) as refusal:
                run_step(db, kind[0], sql)
            if kind == "E!":
                assert "syntax error" not in refusal.value.message
            if kind == "E!" and "SELECT" in sql:
                assert "idem_claim: " in refusal.value.message and ADVICE in refusal.value.message


INIT = [
    ([("Q!", "SELECT idem_init()")], 0),
    ([("E!", "SELECT idem_init()")], 0),
    ([("Q!", "INSERT INTO idem_call DEFAULT VALUES RETURNING idem_init()")], 0),
    ([("E", "INSERT INTO idem_call SELECT idem_init()")], 1),
    ([BEGIN, ("Q", "SELECT idem_init()"), COMMIT], 1),
    ([BEGIN, ("Q", "SELECT idem_init()"), ROLLBACK], 0),
    ([BEGIN, ("E", "INSERT INTO idem_call SELECT idem_init()"), COMMIT], 1),
]


def store_of(cluster, database):
    """1 if the database has a store of all its objects, 0 if it has none of them."""
    with cluster.connect(database) as db:
        n = db.query(
            "SELECT count(*) FROM sqlite_schema WHERE sql LIKE 'CREATE %idem\\_%' ESCAPE '\\'"
        )
    return {0: 0, STORE_OBJECTS: 1}[n[0][0]]


def test_init(node_program, tmp_path):
    """idem_init() on an empty database, in every shape; each in a database of its own."""
    with Cluster(tmp_path) as cluster:
        for i, (steps, exists) in enumerate(INIT):
            with cluster.connect(f"init{i}.db") as db:
                for kind, sql in steps:
                    if kind.endswith("!"):
                        with pytest.raises(Refused):
                            run_step(db, kind[0], sql)
                    else:
                        run_step(db, kind, sql)
            assert cluster.dead() == {}
            assert store_of(cluster, f"init{i}.db") == exists, steps
        cluster.leader().kill()
        for i, (steps, exists) in enumerate(INIT):
            assert store_of(cluster, f"init{i}.db") == exists, steps


def state_of(db, shape):
    rows = db.query("SELECT state FROM idem_records WHERE scope = 't' AND key = ?", shape.name)
    return rows[0][0] if rows else None


def check_after(cluster, shape):
    """A second client sees what the first one was told, and can write at once."""
    assert cluster.dead() == {}
    with cluster.connect() as db:
        assert state_of(db, shape) == shape.state
        # The node may not have noticed yet that the first client has hung up.
        cluster.wait(
            lambda: db.execute(
                "INSERT INTO carrier VALUES (?, 'a second client')", "second-" + shape.name
            ),
            "the second client writes",
            2,
        )


def check_elsewhere(cluster, shapes):
    """So does the next leader."""
    old = cluster.leader()
    old.kill()
    with cluster.connect() as db:
        for shape in shapes:
            assert (shape.name, state_of(db, shape)) == (shape.name, shape.state)
            assert db.query(
                "SELECT count(*) FROM carrier WHERE id = ?", "second-" + shape.name
            ) == [(1,)]
        assert db.query("PRAGMA integrity_check") == [("ok",)]
        assert db.query("SELECT idem_audit_verify()") == [(None,)]
    assert cluster.dead() == {old.number: -9}


@pytest.mark.skipif(DEEP, reason="each shape has a cluster of its own below")
def test_every_shape_on_one_cluster(node_program, tmp_path):
    with Cluster(tmp_path) as cluster:
        cluster.prepare(SETUP)
        for shape in SHAPES:
            run_shape(cluster, shape)
            check_after(cluster, shape)
        check_elsewhere(cluster, SHAPES)


def alone(folder, shape):
    """What is wrong with a shape on a cluster of its own, or None."""
    try:
        with Cluster(folder) as cluster:
            cluster.prepare(SETUP)
            run_shape(cluster, shape)
            check_after(cluster, shape)
            check_elsewhere(cluster, [shape])
    except BaseException:  # pytest's failures are no Exceptions
        return f"{shape.name}: {traceback.format_exc()}"
    return None


@pytest.mark.skipif(not DEEP, reason="make test-cluster runs each shape on a cluster of its own")
def test_every_shape_on_a_cluster_of_its_own(node_program, tmp_path):
    """Several at a time: most of it is waiting for elections."""
    folders = [tmp_path / shape.name for shape in SHAPES]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(6) as pool:
        wrong = [w for w in pool.map(alone, folders, SHAPES) if w]
    assert not wrong, "\n".join(wrong)

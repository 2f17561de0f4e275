"""H. Transactions (56-58)."""
import shutil
import sqlite3
import subprocess

import pytest

from bug_words import CALL, CLAIM, F, SO, claim_once, connect, lost, one

ORDERS = "CREATE TABLE orders(id INTEGER PRIMARY KEY, what TEXT) STRICT"


def claims_and_orders(path):
    """What another connection finds."""
    db = connect(path, init=False)
    counts = [one(db, f"SELECT count(*) FROM {table}") for table in ("idem_store", "orders")]
    db.close()
    return tuple(counts)


@pytest.mark.parametrize("begin", ["BEGIN IMMEDIATE", "BEGIN"])
@pytest.mark.parametrize("end, found", [("ROLLBACK", (0, 0)), ("COMMIT", (1, 1))])
def test_56_claim_and_effect_in_one_transaction(pair, begin, end, found):
    """tiana-code/fincore-engine#44, mhayk/Overpass#16, opendefender/OpenRisk#517; transferwise idempotence4j keeps
    its claim row after the rollback (source): claim and effect live in different transactions."""
    pair.c1.execute(ORDERS)
    pair.c1.execute(begin)
    answer = pair.claim(pair.c1, "k")
    assert answer["outcome"] == "claimed"
    pair.c1.execute("INSERT INTO orders(what) VALUES ('tea')")
    pair.complete(pair.c1, "k", answer["token"])
    pair.c1.execute(end)
    assert claims_and_orders(pair.path) == found


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="needs sqlite3, the shell")
@pytest.mark.parametrize("end, found", [("ROLLBACK", (0, 0)), ("COMMIT", (1, 1))])
def test_56_from_the_shell(pair, end, found):
    """As above, in sqlite3's own shell."""
    pair.c1.execute(ORDERS)
    claim = CLAIM[pair.form].replace("?, ?, ?, ?, ?", f"'t', 'k', '{F}', 'pay', NULL")
    shell = subprocess.run(["sqlite3", str(pair.path)], capture_output=True, text=True, input=(
        f".bail on\n.load {SO}\nBEGIN IMMEDIATE;\n{claim};\nINSERT INTO orders(what) VALUES ('tea');\n{end};\n"))
    assert (shell.stderr, shell.returncode) == ("", 0)
    assert "claimed" in shell.stdout
    assert claims_and_orders(pair.path) == found


@pytest.mark.parametrize("end, found", [("rollback", (0, 0)), ("commit", (1, 1))])
def test_56_python_s_default_mode(pair, end, found):
    """As above, where Python opens the transaction: the carrier is a write to it, so it does."""
    pair.c1.execute(ORDERS)
    db = connect(pair.path, init=False, isolation_level="")
    assert claim_once(db, "carrier", "k")["outcome"] == "claimed"
    assert db.in_transaction
    db.execute("INSERT INTO orders(what) VALUES ('tea')")
    getattr(db, end)()
    db.close()
    assert claims_and_orders(pair.path) == found


@pytest.mark.parametrize("end, found", [("rollback", (0, 0)), ("commit", (1, 1))])
@pytest.mark.parametrize("how", ["carrier", "records"])
def test_56_from_an_orm(pair, how, end, found):
    """As above, with SQLAlchemy's session: the claim as the carrier, and as a mapped row of idem_records."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import Session, declarative_base
    Base = declarative_base()

    class Order(Base):
        __tablename__ = "orders"
        id = sqlalchemy.Column(sqlalchemy.Integer, primary_key=True)
        what = sqlalchemy.Column(sqlalchemy.String)

    class Claim(Base):
        __tablename__ = "idem_records"
        scope = sqlalchemy.Column(sqlalchemy.String, primary_key=True)
        key = sqlalchemy.Column(sqlalchemy.String, primary_key=True)
        fingerprint = sqlalchemy.Column(sqlalchemy.String)
        operation = sqlalchemy.Column(sqlalchemy.String)
        token = sqlalchemy.Column(sqlalchemy.String)

    pair.c1.execute(ORDERS)
    engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.pool.StaticPool,
                                      creator=lambda: connect(pair.path, init=False, isolation_level=""))
    with Session(engine) as session:
        if how == "carrier":
            row = session.execute(sqlalchemy.text(CALL + "json_extract(idem_claim('t', 'k', :f, 'pay'), '$.outcome')"), {"f": F})
            assert row.scalar_one() == "claimed"
        else:
            session.add(Claim(scope="t", key="k", fingerprint=F, operation="pay", token="token-of-the-orm"))
            session.flush()
        session.add(Order(what="tea"))
        session.flush()
        getattr(session, end)()
    engine.dispose()
    assert claims_and_orders(pair.path) == found
    if found == (1, 1) and how == "records":
        with pytest.raises(sqlalchemy.exc.IntegrityError), Session(sqlalchemy.create_engine(
                "sqlite://", creator=lambda: connect(pair.path, init=False, isolation_level=""))) as session:
            session.add(Claim(scope="t", key="k", fingerprint=F, operation="pay", token="another-token-of-it"))
            session.flush()


def test_57_two_readers_claim_the_same_key(pair):
    """acidic_job (source: plain deferred transaction on SQLite, lock check commented out): two connections run the
    same job."""
    for db in (pair.c1, pair.c2):
        db.execute("BEGIN")
        db.execute("SELECT * FROM idem_records WHERE scope = 't' AND key = 'k'").fetchall()
    assert claim_once(pair.c1, pair.form, "k")["outcome"] == "claimed"
    with pytest.raises(sqlite3.OperationalError) as error:
        claim_once(pair.c2, pair.form, "k")
    assert error.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
    if pair.journal == "WAL":
        # The writer may commit beside a reader, whose view is then too old to be written on.
        pair.c1.execute("COMMIT")
        with pytest.raises(sqlite3.OperationalError) as error:
            claim_once(pair.c2, pair.form, "k")
        assert error.value.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT
        if pair.form == "table":  # before the carrier's functions run, SQLite itself says no
            assert "BEGIN IMMEDIATE" in str(error.value)
        pair.c2.execute("ROLLBACK")
    else:
        pair.c2.execute("ROLLBACK")
        pair.c1.execute("COMMIT")
    assert pair.outcome(pair.c2, "k") == "in_progress"
    assert pair.count() == 1


def test_57_as_first_statement_of_a_plain_begin(pair):
    """As above, without the read: the claim takes the write lock as it begins, so the second waits its turn."""
    pair.c1.execute("BEGIN")
    pair.c2.execute("BEGIN")
    token = claim_once(pair.c1, pair.form, "k")["token"]
    pair.c2.execute("PRAGMA busy_timeout = 50")
    with pytest.raises(sqlite3.OperationalError) as error:
        claim_once(pair.c2, pair.form, "k")
    assert error.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
    pair.complete(pair.c1, "k", token, "done")
    pair.c1.execute("COMMIT")
    assert claim_once(pair.c2, pair.form, "k")["outcome"] == "replay"  # nothing too old to write on
    pair.c2.execute("COMMIT")


@pytest.mark.parametrize("journal", ["WAL"])  # elsewhere no snapshot can be too old
def test_57_every_call_tells_the_extended_code(pair):
    """As above, for whatever else writes: a caller must know that waiting and trying again will not help."""
    token = pair.claim(pair.c1, "k")["token"]
    empty = connect(str(pair.path) + ".empty", init=False)
    empty.execute("PRAGMA journal_mode = WAL").fetchall()
    empty.execute("CREATE TABLE notes(x)")
    writer = connect(str(pair.path) + ".empty", init=False)
    calls = [f"{call}('t', 'k', '{token}'{rest})" for call, rest in (
        ("idem_complete", ", 'done'"), ("idem_release", ""), ("idem_suspend", ""), ("idem_renew", ""),
        ("idem_checkpoint", ", 'charged'"))] + ["idem_seen('stripe', 'evt_1')"]
    for reader, other, sql in [(pair.c1, pair.c2, call) for call in calls] + [(empty, writer, "idem_init()")]:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM sqlite_schema").fetchall()
        other.execute("CREATE TABLE IF NOT EXISTS notes(x)")
        other.execute("INSERT INTO notes VALUES (1)")
        with pytest.raises(sqlite3.OperationalError) as error:
            reader.execute("SELECT " + sql).fetchall()
        assert error.value.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT, (sql, error.value)
        reader.execute("ROLLBACK")
    empty.close()
    writer.close()


@pytest.mark.parametrize("how", ["SELECT ", CALL], ids=["select", "carrier"])
def test_58_the_inbox_forgets_what_was_rolled_back(pair, how):
    """postel-sh/postel#129, aashutoshkumarbhardwaj/CreatorOs#984, engram-app/Engram#566: the inbox marks the message
    before the handler has succeeded: the message is lost."""
    pair.c1.execute(ORDERS)
    seen = how + "idem_seen('stripe', 'evt_1', 'fp')"
    for db, new, end in ((pair.c1, 1, "ROLLBACK"), (pair.c2, 1, "COMMIT"), (pair.c1, 0, "COMMIT"), (pair.c2, 0, "COMMIT")):
        db.execute("BEGIN IMMEDIATE")
        assert one(db, seen) == new
        if new:
            db.execute("INSERT INTO orders(what) VALUES ('tea')")
        db.execute(end)
    assert one(pair.c1, "SELECT count(*) FROM orders") == 1
    assert one(pair.c1, "SELECT count(*) FROM idem_inbox") == 1
    lost(pair.c1, how + "idem_seen('stripe', 'evt_1', 'another fp')")
    assert one(pair.c1, how + "idem_seen('github', 'evt_1', 'another fp')") == 1

"""idem_records as a mapped class of SQLAlchemy 1.4: claim, complete, replay, without a line of SQL.

The token is the mapper's version_id_col: every UPDATE that the ORM emits says "WHERE ... AND token = ?",
and one that finds no row raises StaleDataError. That is fencing, in the ORM's own words.
"""
import importlib.util
import json
import pathlib
import sqlite3
import threading
import uuid

import pytest

sqlalchemy = pytest.importorskip("sqlalchemy")

from sqlalchemy import (Column, Integer, LargeBinary, Text, create_engine, event, func, insert, select,  # noqa: E402
                        text, update)
from sqlalchemy.exc import IntegrityError, OperationalError, StatementError  # noqa: E402
from sqlalchemy.orm import Session, declarative_base  # noqa: E402
from sqlalchemy.orm.exc import StaleDataError  # noqa: E402
from sqlalchemy.pool import QueuePool  # noqa: E402

_spec = importlib.util.spec_from_file_location(
    "idem_shared_conftest", pathlib.Path(__file__).resolve().parent.parent / "conftest.py")
shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shared)

Base = declarative_base()


class Record(Base):
    """One idempotency key. Only the columns that this application uses need to be mapped."""

    __tablename__ = "idem_records"
    scope = Column(Text, primary_key=True)
    key = Column(Text, primary_key=True)
    fingerprint = Column(Text)
    operation = Column(Text)
    token = Column(Text)
    state = Column(Text)
    outcome = Column(Text)
    attempt = Column(Integer)
    code = Column(Integer)
    headers = Column(Text)
    response = Column(LargeBinary)
    recovery_point = Column(Text)
    checkpoint = Column(Text)
    reason = Column(Text)
    __mapper_args__ = {"version_id_col": token, "version_id_generator": False}


class Invoice(Base):
    __tablename__ = "invoice"
    id = Column(Integer, primary_key=True)
    customer = Column(Text, nullable=False)


def open_engine(path):
    """The recipe: idem in every connection, and transactions that begin as IMMEDIATE."""
    engine = create_engine(f"sqlite:///{path}", future=True, poolclass=QueuePool,
                           connect_args={"check_same_thread": False, "timeout": 10})

    @event.listens_for(engine, "connect")
    def load_idem(dbapi_connection, _):
        dbapi_connection.isolation_level = None            # the driver begins nothing by itself
        dbapi_connection.enable_load_extension(True)
        dbapi_connection.load_extension(shared.SO)
        dbapi_connection.enable_load_extension(False)
        dbapi_connection.execute("PRAGMA journal_mode = WAL").fetchall()
        dbapi_connection.execute("PRAGMA synchronous = OFF")   # for the tests' speed only

    @event.listens_for(engine, "begin")
    def begin_immediate(connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


@pytest.fixture
def engine(tmp_path):
    engine = open_engine(tmp_path / "orm.db")
    with engine.begin() as connection:
        connection.execute(select(func.idem_init()))
        Invoice.__table__.create(connection)
    yield engine
    engine.dispose()


def session_of(engine):
    """Attributes stay loaded after a commit: the token is shown to nobody, so it could not be reloaded."""
    return Session(engine, expire_on_commit=False, future=True)


def new_claim(key="k", fingerprint="fp", **kw):
    return Record(scope="t", key=key, fingerprint=fingerprint, operation="POST /invoices",
                  token=uuid.uuid4().hex, **kw)


def find(session, key="k"):
    return session.execute(select(Record).where(Record.scope == "t", Record.key == key)
                           .execution_options(populate_existing=True)).scalars().one_or_none()


def count(engine, cls=Invoice):
    with session_of(engine) as session:
        return session.execute(select(func.count()).select_from(cls)).scalar_one()


def create_invoice(engine, key, customer, fingerprint="fp", fail=False):
    """The local-effects recipe: claim, business row and answer in one transaction."""
    with session_of(engine) as session:
        claim = new_claim(key, fingerprint)
        session.add(claim)
        try:
            session.flush()
        except IntegrityError:
            session.rollback()
            found = find(session, key)
            if found is not None and found.outcome == "replay" and found.fingerprint == fingerprint:
                return found.code, found.response, True
            raise
        invoice = Invoice(customer=customer)
        session.add(invoice)
        session.flush()
        if fail:
            raise RuntimeError("the handler failed")
        claim.state, claim.code, claim.response = "completed", 201, b'{"invoice": %d}' % invoice.id
        session.commit()
        return claim.code, claim.response, False


def test_claim_complete_replay(engine):
    assert create_invoice(engine, "k", "Ann") == (201, b'{"invoice": 1}', False)
    assert create_invoice(engine, "k", "Ann") == (201, b'{"invoice": 1}', True)
    assert create_invoice(engine, "k2", "Ann") == (201, b'{"invoice": 2}', False)
    assert count(engine) == 2 and count(engine, Record) == 2


def test_the_claim_is_one_insert_and_one_update(engine):
    """What the ORM sends: nothing that idem must refuse, nothing that idem must guess."""
    seen = []
    event.listen(engine, "before_cursor_execute",
                 lambda conn, cur, sql, params, ctx, many: seen.append(" ".join(sql.split())))
    create_invoice(engine, "k", "Ann")
    assert [s.split()[0:3] for s in seen if "idem_records" in s] == [
        ["INSERT", "INTO", "idem_records"], ["UPDATE", "idem_records", "SET"]]
    update_sql = [s for s in seen if s.startswith("UPDATE")][0]
    assert update_sql.replace('"', "").endswith("WHERE idem_records.scope = ? AND idem_records.key = ? "
                                                "AND idem_records.token = ?")


def test_rollback_undoes_claim_and_effect(engine):
    with pytest.raises(RuntimeError):
        create_invoice(engine, "k", "Ann", fail=True)
    assert count(engine) == 0 and count(engine, Record) == 0
    assert create_invoice(engine, "k", "Ann") == (201, b'{"invoice": 1}', False)


def test_rollback_of_a_completed_claim(engine):
    with session_of(engine) as session:
        claim = new_claim()
        session.add_all([claim, Invoice(customer="Ann")])
        session.flush()
        claim.state, claim.response = "completed", b"x"
        session.flush()
        assert find(session).outcome == "replay"
        session.rollback()
    assert count(engine) == 0 and count(engine, Record) == 0


def test_a_nested_transaction_is_undone_alone(engine):
    with session_of(engine) as session:
        session.add(Invoice(customer="kept"))
        session.flush()
        nested = session.begin_nested()
        session.add(new_claim())
        session.flush()
        nested.rollback()
        session.commit()
    assert count(engine) == 1 and count(engine, Record) == 0


def test_a_claim_that_is_lost_is_an_integrity_error(engine):
    with session_of(engine) as first, session_of(engine) as second:
        first.add(new_claim())
        first.commit()
        second.add(new_claim())
        with pytest.raises(IntegrityError, match="still being processed, retry shortly"):
            second.flush()
        second.rollback()
        assert find(second).outcome == "in_progress"
        second.rollback()
        second.add(new_claim(fingerprint="other"))
        with pytest.raises(IntegrityError, match="already used with a different request payload"):
            second.flush()


def test_a_malformed_request_is_no_integrity_error(engine):
    with session_of(engine) as session:
        session.add(new_claim(key="k" * 256))
        with pytest.raises(OperationalError, match="256 characters, the limit is 255"):
            session.flush()


def test_external_effect_with_recovery_points(engine):
    """Claim committed by itself, a checkpoint, the effect, the completion."""
    with session_of(engine) as session:
        claim = new_claim()
        session.add(claim)
        session.commit()
        claim.recovery_point, claim.checkpoint = "charged", "ch_1"
        session.commit()
        token = claim.token
    with session_of(engine) as session:
        seen = find(session)
        assert (seen.state, seen.recovery_point, seen.checkpoint, seen.token) == (
            "processing", "charged", "ch_1", None)
    with session_of(engine) as session:                    # the same worker, in another session
        claim.state, claim.code, claim.response = "completed", 201, b"\x00done"
        session.add(claim)
        session.commit()
        assert claim.token == token
    with session_of(engine) as session:
        assert (find(session).code, find(session).response) == (201, b"\x00done")


def test_a_superseded_worker_gets_stale_data_error(engine):
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE idem_policy SET lease_ms = 1, on_stale = 'retry'")
    with session_of(engine) as slow, session_of(engine) as quick:
        mine = new_claim()
        slow.add(mine)
        slow.commit()
        threading.Event().wait(0.01)
        quick.add(new_claim())
        quick.commit()
        slow.add(Invoice(customer="a second time"))
        mine.state, mine.response = "completed", b"late"
        with pytest.raises(StaleDataError):
            slow.commit()
        slow.rollback()
    assert count(engine) == 0
    with session_of(engine) as session:
        assert (find(session).attempt, find(session).state) == (2, "processing")


def test_attempt_and_recovery_point_are_refreshed_after_a_take_over(engine):
    with session_of(engine) as session:
        first = new_claim()
        session.add(first)
        session.commit()
        first.recovery_point, first.checkpoint = "reserved", "data"
        session.commit()
        first.state, first.reason = "released", "card declined"
        session.commit()
    with session_of(engine) as session:
        second = new_claim()
        session.add(second)
        session.flush()
        token = second.token
        session.refresh(second, ["attempt", "recovery_point", "checkpoint"])   # not the token: it is hidden
        assert (second.attempt, second.recovery_point, second.checkpoint) == (2, "reserved", "data")
        assert second.token == token
        second.state, second.response = "completed", b"x"
        session.commit()
    assert create_invoice(engine, "k", "Ann") == (None, b"x", True)


def test_a_reloaded_record_has_no_token_and_cannot_be_written(engine):
    with session_of(engine) as session:
        session.add(new_claim())
        session.commit()
    with session_of(engine) as session:
        stranger = find(session)
        assert stranger.token is None
        stranger.state = "released"
        with pytest.raises(StatementError, match="value is required for bind parameter 'idem_records_token'"):
            session.commit()
        session.rollback()
    with session_of(engine) as session:
        assert find(session).state == "processing"


def test_insert_or_ignore_and_its_row_count(engine):
    row = {"scope": "t", "key": "k", "fingerprint": "fp", "operation": "op"}
    statement = insert(Record.__table__).prefix_with("OR IGNORE")
    with engine.begin() as connection:
        assert connection.execute(statement, {**row, "token": "token-of-the-first"}).rowcount == 1
    with engine.begin() as connection:
        assert connection.execute(statement, {**row, "token": "token-of-the-second"}).rowcount == 0
    done = update(Record.__table__).where(Record.scope == "t", Record.key == "k")
    with engine.begin() as connection:
        values = {"state": "completed", "response": b"x"}
        wrong = done.where(Record.token == "token-of-the-second").values(values)
        right = done.where(Record.token == "token-of-the-first").values(values)
        assert connection.execute(wrong).rowcount == 0
        assert connection.execute(right).rowcount == 1


def test_delete_erases_a_finished_record_only(engine):
    create_invoice(engine, "done", "Ann")
    with session_of(engine) as session:
        live = new_claim("live")
        session.add(live)
        session.commit()
        session.delete(live)
        with pytest.raises(IntegrityError, match="only finished records can be erased"):
            session.commit()
        session.rollback()
        result = session.execute(sqlalchemy.delete(Record).where(Record.scope == "t", Record.state == "completed")
                                 .execution_options(synchronize_session=False))
        assert result.rowcount == 1
        session.commit()
    assert count(engine, Record) == 1


def test_the_functions_through_the_write_shaped_call(engine):
    call = "INSERT INTO idem_call DEFAULT VALUES RETURNING "
    with session_of(engine) as session:
        got = json.loads(session.execute(text(call + "idem_claim(:s, :k, :f, :o)"), {
            "s": "t", "k": "k", "f": "fp", "o": "op"}).scalar_one())
        assert got["outcome"] == "claimed"
        session.add(Invoice(customer="Ann"))
        session.execute(text(call + "idem_complete(:s, :k, :t, :r, 201)"), {
            "s": "t", "k": "k", "t": got["token"], "r": "answer"}).scalar_one()
        session.rollback()
    assert count(engine) == 0 and count(engine, Record) == 0


def test_under_the_begin_immediate_event_nobody_is_turned_away(engine):
    """Two threads read, then write, in one transaction each: under the recipe none is turned away."""
    wins, errors = [], []

    def work(name):
        for i in range(40):
            try:
                with session_of(engine) as session:
                    session.execute(select(func.count()).select_from(Invoice)).scalar_one()   # reads first
                    session.add(new_claim(f"k{i}"))
                    try:
                        session.flush()
                    except IntegrityError:
                        session.rollback()
                        continue
                    session.add(Invoice(customer=name))
                    session.commit()
                    wins.append(i)
            except Exception as error:                     # busy, above all
                errors.append(repr(error))

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(wins) == list(range(40)) and count(engine) == 40


def test_every_pooled_connection_has_idem(engine):
    with engine.connect() as one, engine.connect() as two, engine.connect() as three:
        raw = {id(c.connection.dbapi_connection) for c in (one, two, three)}
        assert len(raw) == 3
    engine.dispose()
    with engine.connect() as again:
        assert again.execute(select(func.idem_version())).scalar_one().startswith("idem ")


def test_the_file_is_a_plain_database_afterwards(engine, tmp_path):
    create_invoice(engine, "k", "Ann")
    engine.dispose()
    plain = sqlite3.connect(tmp_path / "orm.db")
    assert plain.execute("SELECT state, code FROM idem_store").fetchall() == [("completed", 201)]
    assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    plain.close()

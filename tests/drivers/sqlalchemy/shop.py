"""idem in SQLAlchemy, on any version since 1.4; tests/orm has idem_records as a mapped class."""
import pathlib
import sys
# README: load
from sqlalchemy import create_engine, event, text
from sqlalchemy.pool import QueuePool


def open_shop():
    # QueuePool is what SQLAlchemy 2 takes for a file anyway.
    engine = create_engine("sqlite:///shop.db", future=True, poolclass=QueuePool)

    @event.listens_for(engine, "connect")                  # every connection of the pool
    def load_idem(connection, _):
        connection.isolation_level = None                  # the driver must not begin by itself
        connection.enable_load_extension(True)
        connection.load_extension("./idem")
        connection.enable_load_extension(False)

    @event.listens_for(engine, "begin")
    def begin_immediate(connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
# README: end


# README: order
def place_order(engine, key, body, pieces):
    with engine.begin() as db:                             # commits, or rolls back on an exception
        outcome, token, status, answer = db.execute(text(
            "SELECT outcome, token, http_status, coalesce(response, message)"
            " FROM idem_claim('shop', :key, idem_fingerprint(:body), 'POST /orders')"),
            {"key": key, "body": body}).one()
        if outcome == "claimed":
            sold = {"pieces": pieces}
            number = db.execute(text("INSERT INTO orders(pieces) VALUES (:pieces)"), sold).lastrowid
            db.execute(text("UPDATE stock SET pieces = pieces - :pieces"), sold)
            status, answer = 201, f'{{"order":{number}}}'
            db.execute(text("SELECT idem_complete('shop', :key, :token, :answer, :status)"),
                       {"key": key, "token": token, "answer": answer, "status": status}).one()
    return status, answer
# README: end


def row(engine, sql, *values):
    """In autocommit: a pragma, and a clock for the connection that the pool gives next."""
    with engine.connect() as db:
        cursor = db.connection.cursor()
        found = cursor.execute(sql, values).fetchall()[0]
        cursor.close()
        return found


if __name__ == "__main__":
    sys.path.append(str(pathlib.Path(__file__).parent.parent / "python"))
    import scenario
    from sqlite3 import IntegrityError as OfDriver
    from sqlalchemy.exc import IntegrityError
    scenario.run(open_shop, place_order, row, (IntegrityError, OfDriver), lambda e: e.dispose())

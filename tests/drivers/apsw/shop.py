"""idem in APSW: it passes SQLite's own behaviour on, so transactions are spelled out anyway."""
import pathlib
import sys
# README: load
import apsw


def open_shop():
    db = apsw.Connection("shop.db")
    db.setbusytimeout(5000)                                # APSW waits for nobody by default
    db.enableloadextension(True)
    db.loadextension("./idem")
    db.enableloadextension(False)
    return db
# README: end


# README: order
def place_order(db, key, body, pieces):
    db.cursor().execute("BEGIN IMMEDIATE")                 # "with db:" would be a SAVEPOINT
    try:
        outcome, token, status, answer = row(
            db, "SELECT outcome, token, http_status, coalesce(response, message)"
            " FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')", key, body)
        if outcome == "claimed":
            db.cursor().execute("INSERT INTO orders(pieces) VALUES (?)", (pieces,))
            status, answer = 201, f'{{"order":{db.last_insert_rowid()}}}'
            db.cursor().execute("UPDATE stock SET pieces = pieces - ?", (pieces,))
            row(db, "SELECT idem_complete('shop', ?, ?, ?, ?)", key, token, answer, status)
        db.cursor().execute("COMMIT")
        return status, answer
    except BaseException:
        if not db.getautocommit():
            db.cursor().execute("ROLLBACK")
        raise


def row(db, sql, *values):
    return db.cursor().execute(sql, values).fetchall()[0]  # an unread row keeps a statement open
# README: end


if __name__ == "__main__":
    sys.path.append(str(pathlib.Path(__file__).parent.parent / "python"))
    import scenario
    scenario.run(open_shop, place_order, row, apsw.ConstraintError)

"""idem in Python's sqlite3: an order is placed once, however often the request comes."""
# README: load
import sqlite3


def open_shop():
    db = sqlite3.connect("shop.db", isolation_level=None)  # transactions are spelled out
    db.enable_load_extension(True)
    db.load_extension("./idem")
    db.enable_load_extension(False)
    return db
# README: end


# README: order
def place_order(db, key, body, pieces):
    db.execute("BEGIN IMMEDIATE")                          # without it the claim would commit alone
    try:
        outcome, token, status, answer = row(
            db, "SELECT outcome, token, http_status, coalesce(response, message)"
            " FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')", key, body)
        if outcome == "claimed":
            number = db.execute("INSERT INTO orders(pieces) VALUES (?)", (pieces,)).lastrowid
            db.execute("UPDATE stock SET pieces = pieces - ?", (pieces,))
            status, answer = 201, f'{{"order":{number}}}'
            row(db, "SELECT idem_complete('shop', ?, ?, ?, ?)", key, token, answer, status)
        db.execute("COMMIT")
        return status, answer
    except BaseException:
        if db.in_transaction:                              # a full disk may have ended it
            db.execute("ROLLBACK")
        raise


def row(db, sql, *values):
    return db.execute(sql, values).fetchall()[0]           # an unread row keeps a statement open
# README: end


if __name__ == "__main__":
    import scenario
    scenario.run(open_shop, place_order, row, sqlite3.IntegrityError)

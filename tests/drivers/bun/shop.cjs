// idem in Bun's bun:sqlite.
// README: load
const { Database } = require("bun:sqlite");

// On macOS first: Database.setCustomSQLite("/opt/homebrew/opt/sqlite/lib/libsqlite3.dylib"),
// because Apple's SQLite loads no extensions.
function openShop() {
  const db = new Database("shop.db");
  db.run("PRAGMA busy_timeout = 5000");
  db.loadExtension("./idem");
  return db;
}
// README: end

// README: order
function placeOrder(db, key, body, pieces) {
  return db.transaction(() => { // commits, or rolls back if something throws
    let { outcome, token, status, answer } = row(db,
      `SELECT outcome, token, http_status AS status, coalesce(response, message) AS answer
       FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')`, key, body);
    if (outcome === "claimed") {
      const { lastInsertRowid } = db.run("INSERT INTO orders(pieces) VALUES (?)", [pieces]);
      db.run("UPDATE stock SET pieces = pieces - ?", [pieces]);
      [status, answer] = [201, `{"order":${lastInsertRowid}}`];
      row(db, "SELECT idem_complete('shop', ?, ?, ?, ?)", key, token, answer, status);
    }
    return { status, answer };
  }).immediate(); // BEGIN IMMEDIATE
}

const row = (db, sql, ...values) => db.query(sql).all(...values)[0];
// README: end

// close(true) throws if a statement is left open.
require("../js/scenario.cjs").run({ openShop, placeOrder, row, close: (db) => db.close(true) });

// idem in better-sqlite3.
// README: load
const Database = require("better-sqlite3");

function openShop() {
  const db = new Database("shop.db");
  db.loadExtension("./idem"); // SQL's load_extension() is switched off in this driver
  return db;
}
// README: end

// README: order
function placeOrder(db, key, body, pieces) {
  return db.transaction(() => { // commits, or rolls back if something throws
    let { outcome, token, status, answer } = db.prepare(
      `SELECT outcome, token, http_status AS status, coalesce(response, message) AS answer
       FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')`).get(key, body);
    if (outcome === "claimed") {
      const { lastInsertRowid } = db.prepare("INSERT INTO orders(pieces) VALUES (?)").run(pieces);
      db.prepare("UPDATE stock SET pieces = pieces - ?").run(pieces);
      [status, answer] = [201, `{"order":${lastInsertRowid}}`];
      db.prepare("SELECT idem_complete('shop', ?, ?, ?, ?)").get(key, token, answer, status);
    }
    return { status, answer };
  }).immediate(); // BEGIN IMMEDIATE
}
// README: end

const row = (db, sql, ...values) => db.prepare(sql).get(values);
require("../js/scenario.cjs").run({ openShop, placeOrder, row });

// idem in Node.js's own node:sqlite (from 22.13 and 23.5), and in Deno's.
// README: load
const { DatabaseSync } = require("node:sqlite");

function openShop() {
  const db = new DatabaseSync("shop.db", { allowExtension: true });
  db.exec("PRAGMA busy_timeout = 5000");
  db.loadExtension("./idem");
  return db;
}
// README: end

// README: order
function placeOrder(db, key, body, pieces) {
  db.exec("BEGIN IMMEDIATE");
  try {
    let { outcome, token, status, answer } = row(db,
      `SELECT outcome, token, http_status AS status, coalesce(response, message) AS answer
       FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')`, key, body);
    if (outcome === "claimed") {
      const { id } = row(db, "INSERT INTO orders(pieces) VALUES (?) RETURNING id", pieces);
      db.prepare("UPDATE stock SET pieces = pieces - ?").run(pieces);
      [status, answer] = [201, `{"order":${id}}`];
      row(db, "SELECT idem_complete('shop', ?, ?, ?, ?)", key, token, answer, status);
    }
    db.exec("COMMIT");
    return { status, answer };
  } catch (e) {
    if (db.isTransaction ?? true) db.exec("ROLLBACK"); // a full disk may have ended it
    throw e;
  }
}

const row = (db, sql, ...values) => db.prepare(sql).all(...values)[0];
// README: end

require("../js/scenario.cjs").run({ openShop, placeOrder, row });

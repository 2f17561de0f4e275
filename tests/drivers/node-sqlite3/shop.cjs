// idem in node-sqlite3. Its calls run on a pool of threads: requests that share a connection would
// share its transaction as well, so give each a connection of its own, or let them queue up.
// README: load
const sqlite3 = require("sqlite3");
const { promisify } = require("node:util");

async function openShop() {
  const db = new sqlite3.Database("shop.db");
  db.configure("busyTimeout", 5000);
  await promisify(db.loadExtension).call(db, "./idem");
  return db;
}
// README: end

// README: order
async function placeOrder(db, key, body, pieces) {
  await row(db, "BEGIN IMMEDIATE");
  try {
    let { outcome, token, status, answer } = await row(db,
      `SELECT outcome, token, http_status AS status, coalesce(response, message) AS answer
       FROM idem_claim('shop', ?, idem_fingerprint(?), 'POST /orders')`, key, body);
    if (outcome === "claimed") {
      const { id } = await row(db, "INSERT INTO orders(pieces) VALUES (?) RETURNING id", pieces);
      await row(db, "UPDATE stock SET pieces = pieces - ?", pieces);
      [status, answer] = [201, `{"order":${id}}`];
      await row(db, "SELECT idem_complete('shop', ?, ?, ?, ?)", key, token, answer, status);
    }
    await row(db, "COMMIT");
    return { status, answer };
  } catch (e) {
    await row(db, "ROLLBACK").catch(() => {}); // the first error is the one to report
    throw e;
  }
}

async function row(db, sql, ...values) { // all(), not get(), which leaves the statement open
  return (await promisify(db.all).call(db, sql, values))[0];
}
// README: end

require("../js/scenario.cjs").run({
  openShop, placeOrder, row, close: (db) => promisify(db.close).call(db),
});

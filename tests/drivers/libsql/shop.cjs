// idem in libsql.
// README: load
const Database = require("libsql");

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

// As an array: a lone null for an argument is an error in this driver.
const row = (db, sql, ...values) => db.prepare(sql).get(values);

// A connection is closed in earnest when the garbage collector has taken its last statement.
async function close(db) {
  for (let i = 0; i < 5; i++) {
    global.gc();
    await new Promise((done) => setTimeout(done, 20));
  }
  db.close();
}

require("../js/scenario.cjs").run({ openShop, placeOrder, row, close });

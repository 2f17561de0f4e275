// The scenario of ../expected.txt for every JavaScript driver: only what is spelled differently
// comes in. All four functions may be asynchronous. row() gives the only row as an object.
const crypto = require("node:crypto"); // Node's own OpenSSL is in use before idem comes
const fs = require("node:fs");

const say = (name, ...words) => console.log(name.padEnd(11), ...words);

function shown(value) {
  if (value instanceof Uint8Array || value instanceof ArrayBuffer) // a Buffer is a Uint8Array
    return "blob " + Buffer.from(value).toString("hex");
  return value === null ? "null" : `text '${value}'`;
}

async function refusal(words, call) { // the words, if the call fails with them in its message
  try {
    await call();
  } catch (e) {
    return e.message.includes(words) ? words : String(e);
  }
  return "no error";
}

exports.run = async function ({ openShop, placeOrder, row, close = (db) => db.close() }) {
  const abc = () => crypto.createHash("sha256").update("abc").digest("hex").slice(0, 8);
  if (abc() !== "ba7816bf") throw new Error("SHA-256 before idem");
  let db = await openShop();
  console.log("#", (await row(db, "SELECT idem_version() AS v")).v);
  await row(db, "PRAGMA journal_mode = WAL");
  await row(db, "SELECT idem_init()");
  const order = async (name, ...request) => {
    const { status, answer } = await placeOrder(db, ...request);
    say(name, status, answer);
  };

  say("fingerprint", (await row(db, "SELECT idem_fingerprint(?) AS f", '{"pieces":3}')).f);
  await order("first", "k-1", '{"pieces":3}', 3);
  await order("retry", "k-1", '{ "pieces": 3.0 }', 3);
  await order("other body", "k-1", '{"pieces":4}', 4);
  say("sold out", await refusal("CHECK constraint failed",
    () => placeOrder(db, "k-2", '{"pieces":8}', 8)));
  const left = await row(db, "SELECT (SELECT count(*) FROM orders) AS n, pieces FROM stock");
  say("rolled back", `${left.n} order, ${left.pieces} pieces left`);
  await order("fewer", "k-2", '{"pieces":5}', 5);

  await row(db, "SELECT idem_clock(?)", 4102444800000); // the year 2100: more than 32 bits
  const claim = await row(db, "SELECT lease_until FROM idem_claim('shop', 'job', 'fp')");
  say("claimed", "until", claim.lease_until);
  const again = await row(db,
    "SELECT http_status, retry_after_ms FROM idem_claim('shop', 'job', 'fp')");
  say("in progress", `${again.http_status}, retry after ${again.retry_after_ms} ms`);
  await row(db, "SELECT idem_clock(?)", null);
  say("wrong token", await refusal("claim lost",
    () => row(db, "SELECT idem_complete('shop', 'job', ?, 'x')", "not-its-token-at-all")));

  const replay = async (key) => {
    const r = await row(db, "SELECT outcome, code, response FROM idem_claim('shop', ?, 'fp')", key);
    if (r.outcome !== "replay") throw new Error(r.outcome);
    return [r.code, shown(r.response)];
  };
  for (const [key, answer, code] of [["blob", Buffer.from("00ff7f80", "hex"), 200],
    ["null", null, 204], ["empty", "", 200], ["text", "שלום", 200]]) {
    const { token } = await row(db, "SELECT token FROM idem_claim('shop', ?, 'fp')", key);
    await row(db, "SELECT idem_complete('shop', ?, ?, ?, ?)", key, token, answer, code);
    say(key, ...(await replay(key)));
  }

  await close(db);
  say("closed", fs.existsSync("shop.db-wal") ? "a -wal" : "no -wal");
  db = await openShop();
  await order("reopened", "k-1", '{"pieces":3}', 3);
  say("kept", ...(await replay("blob")));
  await close(db);
  if (abc() !== "ba7816bf") throw new Error("SHA-256 after idem");
};

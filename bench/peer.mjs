// peer.mjs KIND PORT durable|relaxed FIRST_KEY: what bench/peer.c does, by npm's libraries.
//
//     node-idempotency   @node-idempotency/core with its Redis adapter
//     powertools         @aws-lambda-powertools/idempotency with its cache persistence; without
//                        payload validation: its version 2.35.0 forgets the payload's hash when it
//                        completes a record, and then refuses every replay
//
// Both against the Redis at PORT, whose appendfsync says how durable it is. The business row is a
// hash in the same Redis. bench/bench.py runs a copy beside the installed packages.
import { createInterface } from "node:readline";
import { createHash } from "node:crypto";

const [kind, port, , first] = process.argv.slice(2);
const url = `redis://127.0.0.1:${port}`;
const REPLAYED = 100;
const payment = '{"id":"pay_3NqK8s2eZvKYlo2C","amount":129900,"currency":"ILS","customer":{"id":' +
  '"cus_9s6XKzkNRiz8i3","name":"Dana Levi","email":"dana@example.com"},' +
  '"description":"Invoice 2024-00317","metadata":{"order":"10048823","channel":' +
  '"web"},"capture":true,"created":1718900123,"livemode":true,"items":[{"sku":' +
  '"A-100","qty":2}]}';
const answer = payment.repeat(2).slice(0, 400);
const body = { amount: 1200, currency: "ILS" };

const must = (condition) => {
  if (!condition) {
    console.error(`peer.mjs: ${kind}: not the outcome expected`);
    process.exit(1);
  }
};

const keyOf = (number) => {
  const hex = createHash("md5").update(String(number)).digest("hex");
  return hex.replace(/^(.{8})(.{4}).(.{3}).(.{3})/, "$1-$2-4$3-8$4-");
};

const redis = async () => {
  const { createClient } = await import("@redis/client");
  return createClient({ url }).connect();
};

// Each gives two(number) and replay(number).
const nodeIdempotency = async () => {
  const { Idempotency } = await import("@node-idempotency/core");
  const { RedisStorageAdapter } = await import("@node-idempotency/storage-adapter-redis");
  const storage = new RedisStorageAdapter({ url });
  await storage.connect();
  const client = await redis();
  const idempotency = new Idempotency(storage);
  const request = (number) => ({
    headers: { "idempotency-key": keyOf(number) }, path: "/v1/payments", method: "POST", body,
  });
  return {
    two: async (number) => {
      must((await idempotency.onRequest(request(number))) === undefined);
      await client.hSet(`business:${number}`, { account: "acct_1", amount: "1200" });
      await idempotency.onResponse(request(number), { body: answer, additional: { status: 201 } });
    },
    replay: async (number) => {
      const response = await idempotency.onRequest(request(number));
      must(response?.body === answer);
    },
  };
};

const powertools = async () => {
  const { makeIdempotent, IdempotencyConfig } = await import("@aws-lambda-powertools/idempotency");
  const { CachePersistenceLayer } = await import("@aws-lambda-powertools/idempotency/cache");
  const client = await redis();
  const config = new IdempotencyConfig({ eventKeyJmesPath: "key", expiresAfterSeconds: 86400 });
  config.registerLambdaContext({ getRemainingTimeInMillis: () => 60000 });
  let executed = 0;
  const pay = makeIdempotent(
    async (event) => {
      executed++;
      await client.hSet(`business:${event.key}`, { account: "acct_1", amount: "1200" });
      return { status: 201, body: answer };
    },
    { persistenceStore: new CachePersistenceLayer({ client }), config },
  );
  const call = async (number, expected) => {
    const before = executed;
    const response = await pay({ key: keyOf(number), body });
    must(response.body === answer && executed - before === expected);
  };
  return { two: (number) => call(number, 1), replay: (number) => call(number, 0) };
};

const obey = async (work, next, seconds) => {
  const buckets = new Map();
  let count = 0;
  const start = process.hrtime.bigint();
  let now = start;
  while (Number(now - start) < seconds * 1e9) {
    const before = now;
    await work(next(count));
    now = process.hrtime.bigint();
    const bucket = Math.round(16 * Math.log2(Number(now - before)));
    buckets.set(bucket, (buckets.get(bucket) ?? 0) + 1);
    count++;
  }
  const pairs = [...buckets].map((pair) => pair.join(":")).join(",");
  console.log([count, Number(now - start) / 1e9, pairs].join("\t"));
};

const store = await { "node-idempotency": nodeIdempotency, powertools }[kind]();
let number = Number(first);
for (let i = 0; i < REPLAYED; i++) await store.two(number++);
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [order, seconds] = line.split(" ");
  const old = (count) => Number(first) + ((count * 37) % REPLAYED);
  await obey(store[order], order === "replay" ? old : () => number++, Number(seconds));
}
process.exit(0);

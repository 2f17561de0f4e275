// fingerprint_peers.mjs NS_PER_TURN ROUNDS FILE ...: what the same job costs in Node.js.
//
// Prints one line per measurement, as bench/fingerprint.c does: input, bytes, contender, CPU ns per
// call. bench/fingerprint.py runs a copy beside the installed packages. Each contender parses the
// body, makes a stable text of it and hashes that with SHA-256.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import canonicalize from "canonicalize";
import fast from "fast-json-stable-stringify";
import objectHash from "object-hash";
import safe from "safe-stable-stringify";

const [nsPerTurn, rounds, ...files] = process.argv.slice(2);
const sha = (text) => createHash("sha256").update(text).digest("hex");

const contenders = {
  "npm canonicalize": (text) => sha(canonicalize(JSON.parse(text))),
  "npm fast-json-stable-stringify": (text) => sha(fast(JSON.parse(text))),
  "npm safe-stable-stringify": (text) => sha(safe(JSON.parse(text))),
  "npm object-hash": (text) => objectHash(JSON.parse(text), { algorithm: "sha256" }),
};

const cpu = () => {
  const { user, system } = process.cpuUsage();
  return 1000 * (user + system);
};
const median = (times) => times.sort((a, b) => a - b)[times.length >> 1];

for (const file of files) {
  const text = readFileSync(file, "utf8");
  const times = Object.fromEntries(Object.keys(contenders).map((name) => [name, []]));
  const repeat = {};
  for (const [name, run] of Object.entries(contenders)) {
    const start = cpu();
    let calls = 0;
    do {
      run(text);
      calls++;
    } while (cpu() < start + 1e8); // lets the compiler warm up
    repeat[name] = Math.max(1, Math.round((nsPerTurn * calls) / (cpu() - start)));
  }
  for (let round = 0; round < Number(rounds); round++) {
    for (const [name, run] of Object.entries(contenders)) {
      const start = cpu();
      for (let i = 0; i < repeat[name]; i++) run(text);
      times[name].push((cpu() - start) / repeat[name]);
    }
  }
  for (const name of Object.keys(contenders)) {
    console.log([file, Buffer.byteLength(text), name, median(times[name]).toFixed(1)].join("\t"));
  }
}

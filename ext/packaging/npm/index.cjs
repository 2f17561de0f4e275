'use strict';
// idem, a SQLite extension: load(db) loads it, getLoadablePath() says where it is.
//
// The library lies in a package of its own per platform, sqlite-idem-<platform>-<arch>, of which
// npm installs the one that fits. IDEM_LOADABLE names another file.

function getLoadablePath() {
  if (process.env.IDEM_LOADABLE) return process.env.IDEM_LOADABLE;
  const name = `sqlite-idem-${process.platform}-${process.arch}`;
  let file;
  try {
    file = require.resolve(`${name}/idem.so`);
  } catch (cause) {
    throw new Error(
      `sqlite-idem: the package ${name} is not installed. There is none for this platform, or ` +
      'npm ran with --omit=optional, or a bundler left it out. IDEM_LOADABLE may name the library.',
      { cause });
  }
  // Electron: the dynamic loader cannot read out of an archive (asarUnpack: ["**/idem.so"]).
  return file.replace(/\bapp\.asar(?=[\\/])/, 'app.asar.unpacked');
}

// better-sqlite3 and node:sqlite load at once; node-sqlite3 calls back. Returns what db returns.
function load(db, ...callback) {
  return db.loadExtension(getLoadablePath(), ...callback);
}

module.exports = { load, getLoadablePath };

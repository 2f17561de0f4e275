#!/bin/sh
# tests/fuzz/calls.sh [SECONDS]: fuzzes everything that SQL can call, see fuzz_calls.c, under
# address and undefined-behaviour sanitizers. First replays tests/fuzz/regression_calls; then
# fuzzes for SECONDS (60). A finding is kept in tests/fuzz/regression_calls, and the exit
# status is not 0.
#
# AMALGAMATION=DIR takes sqlite3.c from there, with SQLite's own assertions and under the address
# sanitizer, instead of the system's library (build/versions/src/3.53.2, see tests/versions).
set -eu
seconds=${1:-60}
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/fuzz
clang=${CLANG:-clang}
work=$root/build/fuzz/calls${AMALGAMATION:+-assertions}
flags="-g -O1 -std=c11 -D_POSIX_C_SOURCE=200809L -DSQLITE_CORE -Wall -Wextra -I$root/ext
  -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all"

mkdir -p "$work/corpus" "$here/regression_calls"
make -s -C "$root" build/sql_text.c
sqlite=-lsqlite3
if [ -n "${AMALGAMATION:-}" ]; then
  flags="$flags -I$AMALGAMATION"
  sqlite="$work/sqlite3.o -lm -lpthread -ldl"
  [ -f "$work/sqlite3.o" ] || "$clang" -g -O1 -w -fsanitize=address -DSQLITE_DEBUG \
    -DSQLITE_ENABLE_API_ARMOR -DSQLITE_STRICT_SUBTYPE=1 -c -o "$work/sqlite3.o" \
    "$AMALGAMATION/sqlite3.c"
fi
objects=""
for source in "$root"/ext/*.c "$root/build/sql_text.c" "$here/fuzz_calls.c"; do
  object=$work/$(basename "$source" .c).o
  objects="$objects $object"
  # shellcheck disable=SC2086
  "$clang" $flags -c -o "$object" "$source"
done
# shellcheck disable=SC2086
"$clang" $flags -o "$work/fuzz_calls" $objects $sqlite -lcrypto

find "$here/regression_calls" -type f ! -name '.*' -exec "$work/fuzz_calls" -runs=1 {} + \
  >"$work/replay.log" 2>&1 || {
  cat "$work/replay.log"
  echo "fuzz: a call fails on a known input" >&2
  exit 1
}
# Programs of some length to begin with: any bytes are one.
mkdir -p "$work/seeds"
"${PYTHON:-python3}" -c '
import random, sys
for i in range(200):
    dice = random.Random(i)
    with open(f"{sys.argv[1]}/{i}", "wb") as f:
        f.write(dice.randbytes(dice.randrange(20, 400)))' "$work/seeds"
"$work/fuzz_calls" -max_total_time="$seconds" -max_len=500 -len_control=0 -timeout=120 \
  -rss_limit_mb=2048 -artifact_prefix="$here/regression_calls/" -print_final_stats=1 \
  "$work/corpus" "$work/seeds" >"$work/run.log" 2>&1 || {
  tail -60 "$work/run.log"
  echo "fuzz: a finding; the input is in tests/fuzz/regression_calls" >&2
  exit 1
}
grep -E 'stat::number|Done' "$work/run.log"

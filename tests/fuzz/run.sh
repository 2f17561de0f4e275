#!/bin/sh
# tests/fuzz/run.sh [SECONDS]: fuzzes the canonicaliser under address and undefined-behaviour
# sanitizers. First replays tests/fuzz/regression; then fuzzes for SECONDS (60). A finding is kept in
# tests/fuzz/regression, to be replayed for ever after, and the exit status is not 0.
#
# The corpus grows in build/fuzz/corpus and may be deleted at any time.
set -eu
seconds=${1:-60}
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/fuzz
work=$root/build/fuzz
clang=${CLANG:-clang}
python=${PYTHON:-python3}

mkdir -p "$work/corpus" "$here/regression"
"$clang" -g -O1 -std=c11 -DSQLITE_CORE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -Wall -Wextra -o "$work/fuzz_canonical" "$here/fuzz_canonical.c" \
  "$root/ext/json.c" "$root/ext/paths.c" "$root/ext/order.c" "$root/ext/canonical.c" -lsqlite3

# The same without SSE2 blocks: the portable loops must not be the untested ones.
"$clang" -g -O1 -std=c11 -DSQLITE_CORE -DIDEM_PORTABLE -fsanitize=fuzzer,address,undefined \
  -fno-sanitize-recover=all -Wall -Wextra -o "$work/fuzz_portable" "$here/fuzz_canonical.c" \
  "$root/ext/json.c" "$root/ext/paths.c" "$root/ext/order.c" "$root/ext/canonical.c" -lsqlite3

"$python" "$here/seeds.py" "$work/seeds"
for target in fuzz_canonical fuzz_portable; do
  find "$here/regression" -type f ! -name '.*' -exec "$work/$target" -runs=1 {} + 2>"$work/replay.log" || {
    cat "$work/replay.log"
    echo "fuzz: $target fails on a known input" >&2
    exit 1
  }
  "$work/$target" -runs=0 "$work/seeds" 2>"$work/replay.log" || {
    cat "$work/replay.log"
    echo "fuzz: $target fails on a seed" >&2
    exit 1
  }
done

"$work/fuzz_canonical" -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=2048 \
  -dict="$here/json.dict" -artifact_prefix="$here/regression/" -print_final_stats=1 \
  "$work/corpus" "$work/seeds" >"$work/run.log" 2>&1 || {
  tail -60 "$work/run.log"
  echo "fuzz: a finding; the input is in tests/fuzz/regression" >&2
  exit 1
}
"$work/fuzz_portable" -runs=0 "$work/corpus" 2>>"$work/replay.log"
grep -E 'stat::|DONE' "$work/run.log"

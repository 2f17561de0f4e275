#!/bin/sh
# tests/fuzz/deep.sh SECONDS: both fuzzers, each for half of the time, less what compiling takes.
set -eu
here=$(dirname "$0")
begin=$(date +%s)
seconds=$1
left() {
  n=$((seconds - $(date +%s) + begin))
  if [ "$n" -gt 5 ]; then echo "$n"; else echo 5; fi
}
"$here/calls.sh" $((seconds / 3 + 1))
exec "$here/run.sh" $(($(left) * 2 / 3))

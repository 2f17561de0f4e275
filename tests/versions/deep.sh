#!/bin/sh
# tests/versions/deep.sh SECONDS: every test on every other SQLite, as far as the time goes.
exec "$(dirname "$0")/versions.py" all "$1"

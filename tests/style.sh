#!/bin/sh
# Lines over 100 columns and functions over 70 lines in C.
cd "$(dirname "$0")/.." || exit 1
status=0
for f in $(git ls-files "*.c" "*.h"); do
  awk -v f="$f" '
    length($0) > 100 { print f ":" FNR ": " length($0) " columns, the limit is 100"; bad = 1 }
    /^[a-zA-Z].*\) \{$/ || /^[a-zA-Z].*[,(]$/ { if (!start) start = FNR }
    /^}/ { if (start && FNR - start > 70) {
             print f ":" start ": a function of " FNR - start " lines, the limit is 70"; bad = 1 }
           start = 0 }
    END { exit bad }' "$f" || status=1
done
exit $status

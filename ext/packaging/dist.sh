#!/bin/sh
# Writes the source archive: dist.sh NAME FOLDER -> FOLDER/NAME.tar.gz
#
# In a git checkout it holds the tracked files as they are; anywhere else (an unpacked archive) all
# files and links but what was built. Sorted names, root's, one time for all: SOURCE_DATE_EPOCH, or
# else the last commit's, or else the newest file's. So the same files give the same bytes.
set -eu
name=$1
out=$(cd "$2" && pwd)/$1.tar.gz
cd "$(dirname "$0")/../.."

list=$(mktemp)
trap 'rm -f "$list"' EXIT
if [ -e .git ]; then
  git ls-files -z > "$list"
  epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
  [ -z "$(git status --porcelain --untracked-files=no)" ] ||
    echo "dist: there are uncommitted changes, and the archive holds them" >&2
else
  find . \( -name build -o -name __pycache__ -o -name .hypothesis -o -name node_modules \) -prune \
    -o \( -type f -o -type l \) ! -name '*.so' -print0 | sed -z 's|^\./||' > "$list"
  newest=$(find . -type f ! -path './build/*' -printf '%T@\n' | sort -n | tail -1)
  epoch=${SOURCE_DATE_EPOCH:-${newest%.*}}
fi
LC_ALL=C sort -z -o "$list" "$list"
tar --create --file="$out.tar" --format=ustar --mtime="@$epoch" --owner=0 --group=0 \
  --numeric-owner --mode='u+rw,go+r,go-w' --transform="flags=r;s|^|$name/|" \
  --no-recursion --null --files-from="$list"
gzip -9n < "$out.tar" > "$out"
rm "$out.tar"
echo "$out"

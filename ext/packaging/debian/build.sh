#!/bin/sh
# Makes the Debian package of an installed tree: build.sh VERSION TREE FOLDER
#
# TREE is what `make install PREFIX=/usr ... DESTDIR=TREE` made, with CRYPTO=shared: a distribution
# updates libcrypto for all its packages. What the library depends on is read off it by
# dpkg-shlibdeps. Set SOURCE_DATE_EPOCH for the same bytes every time.
set -eu
version=$1
tree=$(cd "$2" && pwd)
out=$(cd "$3" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
package=libsqlite3-mod-idem
arch=$(dpkg --print-architecture)
doc=$tree/usr/share/doc/$package
epoch=${SOURCE_DATE_EPOCH:-$(date +%s)}

strip --strip-unneeded "$(find "$tree/usr/lib" -name idem.so)"
install -d "$doc" "$tree/DEBIAN"
{
  printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n'
  printf 'Files: *\nLicense: MIT\n'
  sed 's/^$/./; s/^/ /' "$here/../../../LICENSE"
} > "$doc/copyright"
printf '%s (%s-1) unstable; urgency=medium\n\n  * Packaged from the release.\n\n -- %s  %s\n' \
  "$package" "$version" "the idem maintainers <maintainers@idem.invalid>" \
  "$(LC_ALL=C date -u -R -d "@$epoch")" | gzip -9n > "$doc/changelog.Debian.gz"
# The manual, with what it links to.
(cd "$here/../../.." && for f in README.md sql/README.md sql/*.sql sql/*/*.sql ext/pictures/*.svg \
  ext/cluster/README.md; do install -D -m 644 "$f" "$doc/$f"; done)

# dpkg-shlibdeps wants to see a source package.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debian"
printf 'Source: idem\n\nPackage: %s\nArchitecture: any\n' "$package" > "$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "$(find "$tree/usr/lib" -name idem.so)" |
  sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || { echo "no dependencies found" >&2; exit 1; }

sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$arch/" -e "s/@DEPENDS@/$depends/" \
  -e "s/@SIZE@/$(du -sk "$tree/usr" | cut -f1)/" "$here/control.in" > "$tree/DEBIAN/control"
(cd "$tree" && find usr -type f | LC_ALL=C sort | xargs md5sum) > "$tree/DEBIAN/md5sums"
find "$tree" -exec touch -h -d "@$epoch" {} +
SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group --build "$tree" "$out" >/dev/null
echo "$out/${package}_$version-1_$arch.deb"

#!/bin/sh
# Compiles idem for other systems with Debian's cross compilers: cross.sh AMALGAMATION SQLITE FOLDER
#
#   aarch64   compiled, linked with Debian's libcrypto.a for arm64 like the native build, loaded
#             into Debian's SQLite for arm64 by a C program, and used, under qemu
#   musl      compiled, and linked with musl against a libcrypto that has the names and no code: so
#             idem asks musl for nothing it has not. Debian has no libcrypto for musl: not run
#   windows   compiled by mingw-w64, and linked to a DLL that takes libcrypto from
#             libcrypto-3-x64.dll, which is the name of OpenSSL 3 there. Not run: there is no such
#             file in Debian
#
# Warnings are errors. Packages of arm64 are fetched and unpacked below FOLDER, by an apt that keeps
# its lists there too: nothing of this machine is changed. OpenSSL's headers are the host's, which
# name no processor where idem uses them.
set -eu
amalgam=$(cd "$1" && pwd)
sqlite=$(cd "$2" && pwd)
mkdir -p "$3"
out=$(cd "$3" && pwd)
load=$(cd "$(dirname "$0")/../../tests/ship" && pwd)/load.c
cd "$out"

flags="-std=c11 -O2 -DNDEBUG -fvisibility=hidden -Wall -Wextra -Wconversion -Wshadow -Werror"
digest=idemr1:890f4f22975e34036bcb46e01fee462ccb68c16f7a1726345f985b7b246c6b90

say() {
  printf '  %-9s %s\n' "$1" "$2"
}

fail() {
  echo "cross: $*" >&2
  exit 1
}

headers() {
  mkdir -p include/openssl
  cp /usr/include/openssl/*.h /usr/include/"$(dpkg-architecture -qDEB_HOST_MULTIARCH)"/openssl/*.h \
    include/openssl
  cp "$sqlite/sqlite3.h" "$sqlite/sqlite3ext.h" include
}

# The functions of libcrypto that an object asks for, one a line.
crypto_names() {
  "$1" "$2" | awk '$1 == "U" { print $2 }' | grep -E '^(EVP|OSSL|OPENSSL|OpenSSL|RAND|CRYPTO)_'
}

fetch_arm64() {
  [ -e arm64/done ] && return
  rm -rf arm64
  mkdir -p arm64/lists/partial arm64/cache/archives/partial arm64/root
  apt="apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64
       -o Dir::State::lists=$out/arm64/lists -o Dir::Cache=$out/arm64/cache
       -o APT::Sandbox::User=root"
  $apt update
  (cd arm64 && $apt download libssl-dev:arm64 libsqlite3-0:arm64)
  for deb in arm64/*.deb; do dpkg-deb --extract "$deb" arm64/root; done
  touch arm64/done
}

aarch64() {
  fetch_arm64
  lib=arm64/root/usr/lib/aarch64-linux-gnu
  cc=aarch64-linux-gnu-gcc
  $cc $flags -fPIC -isystem include -shared -s -o aarch64/idem.so "$amalgam/idem.c" \
    -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -Wl,-z,now -Wl,-z,relro -Wl,-z,defs -Wl,-z,nodelete \
    $lib/libcrypto.a -lpthread -ldl
  $cc $flags -isystem include -o aarch64/load "$load" $lib/libsqlite3.so.0
  said=$(qemu-aarch64-static -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$out/$lib" \
    ./aarch64/load aarch64/idem.so)
  expected=$(printf '%s\n{"a":"A","b":1200}\n1\nclaimed' $digest)
  [ "$(echo "$said" | tail -n +2)" = "$expected" ] || fail "aarch64 said: $said"
  say aarch64 "loaded and used under qemu: $(echo "$said" | head -1)"
}

musl() {
  musl-gcc $flags -fPIC -isystem include -c -o musl/idem.o "$amalgam/idem.c"
  for name in $(crypto_names nm musl/idem.o); do echo "void $name(void) {}"; done > musl/names.c
  musl-gcc -w -O1 -fPIC -shared -Wl,-soname,libcrypto.so.3 -o musl/libcrypto.so musl/names.c
  musl-gcc -shared -Wl,-z,defs -o musl/idem.so musl/idem.o musl/libcrypto.so
  needed=$(readelf -dW musl/idem.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
  [ "$needed" = "libc.so libcrypto.so.3 " ] || fail "musl: needs $needed"
  say musl "compiled and linked; $(wc -l < musl/names.c) functions of libcrypto, not run"
}

windows() {
  cc=x86_64-w64-mingw32-gcc
  $cc $flags -isystem include -c -o windows/idem.o "$amalgam/idem.c"
  { echo "LIBRARY libcrypto-3-x64.dll"; echo EXPORTS; crypto_names x86_64-w64-mingw32-nm \
    windows/idem.o; } > windows/libcrypto.def
  x86_64-w64-mingw32-dlltool -d windows/libcrypto.def -l windows/libcrypto.dll.a
  $cc -shared -s -o windows/idem.dll windows/idem.o windows/libcrypto.dll.a -static-libgcc \
    -Wl,-Bstatic -lwinpthread
  needed=$(x86_64-w64-mingw32-objdump -p windows/idem.dll | sed -n 's/.*DLL Name: //p' |
    sort | tr '\n' ' ')
  [ "$needed" = "KERNEL32.dll libcrypto-3-x64.dll msvcrt.dll " ] || fail "windows: needs $needed"
  exported=$(x86_64-w64-mingw32-objdump -p windows/idem.dll |
    sed -n '/\[Ordinal\/Name Pointer\]/,/^$/s/.*\] //p' | tail -n +2 | tr '\n' ' ')
  [ "$exported" = "sqlite3_idem_init " ] || fail "windows: exports $exported"
  say windows "compiled and linked to idem.dll, not run"
}

# The library's name is always idem: SQLite makes the entry point's name of its letters.
mkdir -p aarch64 musl windows
headers
aarch64
musl
windows

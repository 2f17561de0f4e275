# Every way of shipping idem but the plain idem.so: into a program, to a prefix, as packages, to
# other systems. All of it is made below build/.

LIBDIR  ?= $(PREFIX)/lib
# Where the extension goes. The loader does not look there, so programs name the file; for plain
# `.load idem` it must be a folder that the loader always searches, like a distribution's LIBDIR.
LOADDIR ?= $(LIBDIR)/sqlite3

PACKAGING := ext/packaging
AMALGAM   := build/amalgamation
HEADERS   := $(wildcard ext/*.h)

.PHONY: force static amalgamation shell size install uninstall dist npm python deb cross \
        cross-deps test-ship

# The library is linked again when CRYPTO is another than the last time: make sees files, not
# variables, and `make CRYPTO=shared install` must not install what was linked statically.
idem.so: build/crypto
build/crypto: force | build
	@[ "$$(cat $@ 2>/dev/null)" = "$(CRYPTO)" ] || echo "$(CRYPTO)" > $@
force:

# ---- into a program ----------------------------------------------------------------------------

amalgamation: $(AMALGAM)/idem.c ## build/amalgamation/idem.c and idem.h: all of idem in one file

$(AMALGAM)/idem.c: build/sql_text.c $(SRC) $(HEADERS) LICENSE $(PACKAGING)/amalgamate.py
	@echo "  GEN  $@"
	$(Q)$(PYTHON) $(PACKAGING)/amalgamate.py build/sql_text.c $(AMALGAM)

static: build/libidem.a ## build/libidem.a, to be linked with SQLite and libcrypto

# One object with one symbol: nothing in it can clash with the names of a program.
build/libidem.a: $(AMALGAM)/idem.c
	@echo "  CC   $@"
	$(Q)$(CC) $(CFLAGS) $(WARN) -DSQLITE_CORE -fPIC -ffile-prefix-map=$(CURDIR)=. -I$(AMALGAM) \
	  -c -o build/libidem.o $<
	$(Q)rm -f $@ && $(AR) rcsD $@ build/libidem.o

# SQLite's own amalgamation and shell, as they travel in an npm package.
SQLITE_NPM    := sqlite3@5.1.7
SQLITE_SHA256 := 44cc9bdee02705a7b636f76968d745e21c1d0b2f1c62810c678bc3b0ececab1b
SQLITE_DIR    := build/sqlite-3.44.2

$(SQLITE_DIR)/sqlite3.c: | build
	@command -v npm >/dev/null || tests/deps.sh npm
	@echo "  GET  $(SQLITE_NPM)"
	$(Q)rm -rf $(SQLITE_DIR) && mkdir -p $(SQLITE_DIR)
	$(Q)cd $(SQLITE_DIR) && npm pack --silent $(SQLITE_NPM) >/dev/null && \
	  echo "$(SQLITE_SHA256)  sqlite3-5.1.7.tgz" | sha256sum --quiet -c && \
	  tar xzf sqlite3-5.1.7.tgz --strip-components=2 package/deps/sqlite-autoconf-3440200.tar.gz && \
	  tar xzf sqlite-autoconf-3440200.tar.gz --strip-components=1 --no-same-owner && \
	  rm -f *.tgz *.tar.gz && touch sqlite3.c

build/sqlite3.o: $(SQLITE_DIR)/sqlite3.c
	@echo "  CC   $@"
	$(Q)$(CC) -O1 -DSQLITE_ENABLE_FTS5 -DSQLITE_ENABLE_DBSTAT_VTAB -c -o $@ $<

shell: build/idem-shell ## the sqlite3 shell with idem built in

build/idem-shell: $(PACKAGING)/shell_init.c build/libidem.a build/sqlite3.o
	@echo "  CC   $@"
	$(Q)$(CC) -O1 -I$(SQLITE_DIR) -DSQLITE_SHELL_INIT_PROC=idem_shell_init -c -o build/shell.o \
	  $(SQLITE_DIR)/shell.c
	$(Q)$(CC) $(CFLAGS) $(WARN) -I$(SQLITE_DIR) -I$(AMALGAM) -o $@ build/shell.o \
	  $(PACKAGING)/shell_init.c build/libidem.a build/sqlite3.o $(LIBCRYPTO) -lpthread -ldl -lm

# mawk has no strtonum.
size: $(OBJ) ## what makes idem.so as large as it is
	@command -v gawk >/dev/null || tests/deps.sh gawk
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(LDFLAGS_SO) -Wl,-Map=build/idem.map -o build/size.so $(OBJ) \
	  $(LIBCRYPTO)
	$(Q)gawk -f $(PACKAGING)/size.awk build/idem.map | expand -t 32
	$(Q)strip build/size.so && wc -c < build/size.so | sed 's/^/the file, stripped              /'

# ---- to a prefix -------------------------------------------------------------------------------

# In idem.pc: paths below the prefix in terms of it, so that a moved tree can be told its new one.
BELOW_PREFIX = $(patsubst $(PREFIX)/%,$${prefix}/%,$(1))

SO ?= idem.so

install: $(SO) build/libidem.a ## installs to PREFIX (/usr/local), below DESTDIR
	install -d $(DESTDIR)$(LOADDIR) $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m 644 $(SO) $(DESTDIR)$(LOADDIR)/idem.so
	install -m 644 build/libidem.a $(DESTDIR)$(LIBDIR)/libidem.a
	install -m 644 ext/idem.h $(DESTDIR)$(PREFIX)/include/idem.h
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(call BELOW_PREFIX,$(LIBDIR))|' \
	  -e 's|@LOADDIR@|$(call BELOW_PREFIX,$(LOADDIR))|' -e 's|@VERSION@|$(VERSION)|' \
	  $(PACKAGING)/idem.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/idem.pc
	chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/idem.pc

uninstall: ## removes what install put there
	rm -f $(DESTDIR)$(LOADDIR)/idem.so $(DESTDIR)$(LIBDIR)/libidem.a \
	  $(DESTDIR)$(PREFIX)/include/idem.h $(DESTDIR)$(LIBDIR)/pkgconfig/idem.pc
	[ ! -d $(DESTDIR)$(LOADDIR) ] || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(LOADDIR)

# ---- as source ---------------------------------------------------------------------------------

dist: | build ## build/idem-VERSION.tar.gz, the same bytes every time
	@$(PACKAGING)/dist.sh idem-$(VERSION) build

# ---- as packages ---------------------------------------------------------------------------------
# Ready to publish, none of them published from here. Each is installed into a clean folder by
# tests/ship/ship_packages.py.

EPOCH = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || date +%s))

npm: idem.so ## build/npm/*.tgz: sqlite-idem and its library for this platform
	@command -v npm >/dev/null || tests/deps.sh npm
	$(Q)rm -rf build/npm && mkdir -p build/npm/root build/npm/linux-x64
	$(Q)cp $(PACKAGING)/npm/index.* $(PACKAGING)/npm/README.md LICENSE build/npm/root
	$(Q)sed 's/@VERSION@/$(VERSION)/' $(PACKAGING)/npm/package.json.in > build/npm/root/package.json
	$(Q)strip -o build/npm/linux-x64/idem.so idem.so && cp LICENSE build/npm/linux-x64
	$(Q)sed 's/@VERSION@/$(VERSION)/' $(PACKAGING)/npm/platform.json.in \
	  > build/npm/linux-x64/package.json
	$(Q)cd build/npm && npm pack --silent --offline ./linux-x64 ./root

# The wheel is made of the source package, so that one is known to compile.
python: amalgamation ## build/python/*: source package and wheel of sqlite-idem
	@tests/deps.sh python3-pip python3-setuptools python3-wheel
	$(Q)rm -rf build/python && mkdir -p build/python
	$(Q)cp -r $(PACKAGING)/python build/python/src
	$(Q)cp $(AMALGAM)/idem.c $(AMALGAM)/idem.h LICENSE build/python/src
	$(Q)cd build/python/src && SOURCE_DATE_EPOCH=$(EPOCH) $(PYTHON) -c \
	  "from setuptools import build_meta; build_meta.build_sdist('..')" >/dev/null
	$(Q)cd build/python && rm -rf src && SOURCE_DATE_EPOCH=$(EPOCH) $(PYTHON) -m pip wheel --quiet \
	  --no-index --no-deps --no-build-isolation --no-cache-dir --wheel-dir . sqlite-idem-*.tar.gz
	@ls build/python/*

DEB_LIBDIR = /usr/lib/$(shell dpkg-architecture -qDEB_HOST_MULTIARCH)

build/shared/idem.so: $(OBJ)
	@mkdir -p build/shared
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(LDFLAGS_SO) -o $@ $(OBJ) -lcrypto

deb: build/shared/idem.so build/libidem.a ## build/deb/*.deb, with the system's libcrypto
	@tests/deps.sh dpkg-dev
	$(Q)rm -rf build/deb && mkdir -p build/deb/tree
	$(Q)$(MAKE) --no-print-directory install SO=build/shared/idem.so DESTDIR=build/deb/tree \
	  PREFIX=/usr LIBDIR=$(DEB_LIBDIR) LOADDIR=$(DEB_LIBDIR) >/dev/null
	@SOURCE_DATE_EPOCH=$(EPOCH) $(PACKAGING)/debian/build.sh $(VERSION) build/deb/tree build/deb

# ---- to other systems ----------------------------------------------------------------------------

cross-deps:
	@tests/deps.sh musl-tools gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static \
	  gcc-mingw-w64-x86-64-win32 dpkg-dev binutils

cross: cross-deps amalgamation $(SQLITE_DIR)/sqlite3.c ## aarch64, musl, Windows (see cross.sh)
	@$(PACKAGING)/cross.sh $(AMALGAM) $(SQLITE_DIR) build/cross

# ---- proved --------------------------------------------------------------------------------------

TEST_DEPS += g++ pkg-config

test-ship: test-deps ## static linking, archive, shell, packages (about 3 minutes)
	@command -v npm >/dev/null || tests/deps.sh nodejs npm libnode-dev
	@tests/deps.sh python3-pip python3-venv python3-apsw dpkg-dev
	@tests/drivers/js/install.sh
	@$(MAKE) --no-print-directory -j2 idem.so
	$(PYTEST) tests/ship/ship_static.py tests/ship/ship_packages.py

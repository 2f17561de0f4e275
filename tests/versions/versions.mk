# The tests on other SQLites: see tests/versions/versions.py.
VERSIONS := $(PYTHON) tests/versions/versions.py

.PHONY: test-versions test-versions-all test-sanitize

test-versions: test-deps ## the core tests on the oldest SQLite, on one between, and on a bare one
	@command -v npm >/dev/null || tests/deps.sh npm
	$(VERSIONS) quick

test-versions-all: test-deps ## every test on every SQLite that is listed there (an hour)
	@command -v npm >/dev/null || tests/deps.sh npm
	$(VERSIONS) all

test-sanitize: test-deps ## ASan and UBSan on idem, ASan and SQLite's assertions on the newest SQLite
	@command -v npm >/dev/null || tests/deps.sh npm
	$(VERSIONS) run asan

build/asan/idem.so: $(SRC) $(wildcard ext/*.h) build/sql_text.c
	@mkdir -p $(@D)
	$(CC) -O1 -g $(WARN) $(DEFS) -fPIC -fvisibility=hidden -fsanitize=address,undefined \
	  -fno-sanitize-recover=undefined -shared -Wl,--exclude-libs,ALL -Wl,-z,nodelete -o $@ $(SRC) \
	  build/sql_text.c $(LIBCRYPTO)

# The product, except that its assertions are in.
build/versions/assertions/idem.so: $(SRC) $(wildcard ext/*.h) build/sql_text.c
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARN) $(DEFS) -fPIC -fvisibility=hidden $(LDFLAGS_SO) -o $@ $(SRC) \
	  build/sql_text.c $(LIBCRYPTO)

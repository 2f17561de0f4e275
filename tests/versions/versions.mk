# The tests on other SQLites: see tests/versions/versions.py.
VERSIONS := $(PYTHON) tests/versions/versions.py

.PHONY: test-versions test-versions-all

test-versions: test-deps ## the core tests on the newest SQLite with assertions, and the oldest
	@command -v npm >/dev/null || tests/deps.sh npm
	$(VERSIONS) quick

test-versions-all: test-deps ## every test on every SQLite that is listed there (an hour)
	@command -v npm >/dev/null || tests/deps.sh npm
	$(VERSIONS) all

# The product, except that its assertions are in.
build/versions/assertions/idem.so: $(SRC) $(wildcard ext/*.h) build/sql_text.c
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARN) $(DEFS) -fPIC -fvisibility=hidden $(LDFLAGS_SO) -o $@ $(SRC) \
	  build/sql_text.c $(LIBCRYPTO)

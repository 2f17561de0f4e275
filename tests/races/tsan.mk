# ThreadSanitizer. It must see SQLite's own mutexes, so SQLite is compiled with it as well, from the
# amalgamation that travels inside an npm package; that takes a minute or two, once. Every report is
# a failure; nothing is suppressed.
TSAN_SQLITE := better-sqlite3@12.9.0
TSAN_FLAGS  := -fsanitize=thread -O1 -g -DSQLITE_THREADSAFE=1
TSAN_RUN    := TSAN_OPTIONS=exitcode=66

.PHONY: test-tsan
test-tsan: test-deps ## races between threads under ThreadSanitizer, SQLite included
	@command -v npm >/dev/null || tests/deps.sh npm
	$(MAKE) --no-print-directory build/tsan/idem.so build/tsan/threads build/tsan/crowd
	rm -f build/tsan/*.db*
	$(TSAN_RUN) build/tsan/threads build/tsan/idem.so build/tsan 20
	$(TSAN_RUN) build/tsan/crowd build/tsan/idem.so build/tsan/own.db 1 8 4000 400 100
	$(TSAN_RUN) build/tsan/crowd build/tsan/idem.so build/tsan/one.db 1 8 4000 400 100 shared

build/tsan/sqlite3.c:
	mkdir -p build/tsan
	npm pack --silent --pack-destination build/tsan $(TSAN_SQLITE) >/dev/null
	tar -xzf build/tsan/better-sqlite3-*.tgz -C build/tsan --strip-components=3 \
	  package/deps/sqlite3/sqlite3.c package/deps/sqlite3/sqlite3.h package/deps/sqlite3/sqlite3ext.h
	touch $@

build/tsan/sqlite3.o: build/tsan/sqlite3.c
	$(CC) $(TSAN_FLAGS) -w -c -o $@ $<

build/tsan/idem.so: $(SRC) $(wildcard ext/*.h) build/sql_text.c build/tsan/sqlite3.c
	$(CC) $(TSAN_FLAGS) $(WARN) -Ibuild/tsan $(DEFS) \
	  -fPIC -fvisibility=hidden -shared -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -Wl,-z,nodelete \
	  -o $@ $(SRC) build/sql_text.c $(LIBCRYPTO)

build/tsan/threads: tests/c/threads.c tests/c/check.h build/tsan/sqlite3.o
	$(CC) $(TSAN_FLAGS) -D_GNU_SOURCE -Ibuild/tsan -o $@ $< build/tsan/sqlite3.o -ldl -lpthread -lm

build/tsan/crowd: tests/races/crowd.c tests/c/check.h build/tsan/sqlite3.o
	$(CC) $(TSAN_FLAGS) -D_GNU_SOURCE -Ibuild/tsan -o $@ $< build/tsan/sqlite3.o -ldl -lpthread -lm

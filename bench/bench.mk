# The benchmarks. Everything they build and write goes to build/bench; figures worth keeping to
# bench/results.

# The JavaScript libraries want Node.js 20 with npm, which Debian 12 does not have: where they are
# not there, those peers are left out, and the run says so.
BENCH_DEPS := $(DEMO_DEPS) gnuplot-nox libhiredis-dev libjansson-dev libpq-dev postgresql \
              redis-server
# More for bench/bench.py: BENCH_OPTIONS="--folder /mnt/disk".
BENCH_OPTIONS ?=
BENCH_CC    = $(CC) -O2 -g -D_POSIX_C_SOURCE=200809L $(WARN)

.PHONY: bench bench-growth bench-limit bench-fingerprint bench-layout bench-ledger bench-build \
        check-instructions renew-instructions instructions-build

bench: bench-build ## everything measured: limit, peers, growth; table, CSV, plots (about 5 minutes)
	$(PYTHON) bench/bench.py $(BENCH_OPTIONS)

bench-growth: bench-build ## growth to 10,000,000 records (half an hour, 20 GB)
	$(PYTHON) bench/bench.py --only growth --records 10000000 $(BENCH_OPTIONS)

bench-limit: bench-build ## idem against the same work by hand in C alone
	$(PYTHON) bench/bench.py --only limit $(BENCH_OPTIONS)

bench-fingerprint: ## fingerprints against SHA-256 alone, json() and other libraries
	@tests/deps.sh $(BENCH_DEPS)
	@$(MAKE) --no-print-directory idem.so
	$(PYTHON) bench/fingerprint.py

bench-layout: | build ## physical layouts of the store (about 10 minutes; see bench/layout.c)
	$(CC) -O2 -std=c11 -D_GNU_SOURCE -o build/layout bench/layout.c -lsqlite3
	build/layout

bench-ledger: idem.so ## issuing invoices, with and without idempotency keys
	$(PYTHON) bench/ledger.py

# Counted under callgrind and compared as ratios, so it holds on any machine (half a minute).
check-instructions: instructions-build ## fails if an operation costs 5 % more than its baseline
	$(PYTHON) bench/instructions.py --profile

renew-instructions: instructions-build ## writes bench/instructions.baseline anew
	$(PYTHON) bench/instructions.py --renew

instructions-build:
	@tests/deps.sh $(DEMO_DEPS) valgrind
	@$(MAKE) --no-print-directory -j2 idem.so build/bench/instructions

bench-build:
	@tests/deps.sh $(BENCH_DEPS)
	@$(MAKE) --no-print-directory -j2 idem.so build/bench/limit build/bench/growth build/bench/peer

build/bench/%: bench/%.c bench/work.c bench/work.h | build
	@mkdir -p $(@D)
	@echo "  CC   $@"
	$(Q)$(BENCH_CC) -o $@ $< bench/work.c -lsqlite3 -lcrypto

build/bench/peer: $(wildcard bench/peer*.[ch]) bench/work.c bench/work.h | build
	@mkdir -p $(@D)
	@echo "  CC   $@"
	$(Q)$(BENCH_CC) -I$(shell pg_config --includedir) -o $@ $(wildcard bench/peer*.c) bench/work.c \
	  -lsqlite3 -lcrypto -lpq -lhiredis -lm

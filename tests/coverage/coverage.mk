# Branch coverage of ext/, by gcov over the tests that load the extension or compile it into a
# program of their own. Not counted: what runs in processes that are killed or leave by _exit().

.PHONY: coverage coverage-report

COVERAGE_TESTS ?= life bugs input hostile review traps faults verdict/test_verdict.py fingerprint \
                  fencing/test_between.py sql c orm simulation
# Not these: they are about time and memory, which are others in an unoptimised build.
COVERAGE_SKIP  := not linear_time and not bounded_memory and not cost_of_depth
# 95.5 per cent were reached on 30 November 2026; some tests are random, so it varies a little.
# What is left: memory that fails inside libcrypto or in a place the sample of tests/faults leaves
# out, and conditions that guard against what SQLite does not do. Lines that no test can reach are
# marked GCOVR_EXCL_BR_LINE, with the reason.
COVERAGE_MIN   ?= 95

coverage: ## branches of ext/ that the tests take; fails below COVERAGE_MIN per cent
	@tests/deps.sh $(TEST_DEPS) gcovr
	rm -rf build/coverage
	@$(MAKE) --no-print-directory build/coverage/idem.so
	PATH="$(CURDIR)/tests/coverage:$$PATH" IDEM_SO=$(CURDIR)/build/coverage/idem.so \
	  $(PYTEST_ALL) --basetemp=build/coverage/tmp -k '$(COVERAGE_SKIP)' \
	  $(COVERAGE_TESTS:%=tests/%)
	@$(MAKE) --no-print-directory coverage-report

# The table's last column lists the lines with a branch that nothing took.
coverage-report:
	gcovr --root . --filter 'ext/' --branches --fail-under-branch $(COVERAGE_MIN) \
	  --txt - --html-details build/coverage/index.html build/coverage

build/coverage/idem.so: $(SRC) $(wildcard ext/*.h) build/sql_text.c
	mkdir -p build/coverage/obj
	for f in $(SRC) build/sql_text.c; do \
	  tests/coverage/cc $(WARN) $(DEFS) -fPIC -fvisibility=hidden \
	    -c -o build/coverage/obj/$$(basename $$f .c).o $$f || exit 1; done
	tests/coverage/cc $(LDFLAGS_SO) -o $@ build/coverage/obj/*.o $(LIBCRYPTO)

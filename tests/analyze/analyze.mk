# Static analysis. Clean, or each exception stands beside its reason: in .clang-tidy, in the source.

.PHONY: analyze analyze-warnings analyze-gcc analyze-cppcheck analyze-tidy analyze-shell

# Beyond $(WARN), which the build has: what gcc and clang both know, and what gcc alone knows.
ANALYZE_WARN := $(WARN) -Werror -Wsign-conversion -Wcast-qual -Wcast-align -Wpointer-arith \
                -Wformat=2 -Wundef -Wvla -Wmissing-prototypes -Wwrite-strings -Wdouble-promotion
ANALYZE_GCC  := -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Wjump-misses-init \
                -Wnull-dereference -Walloca -Wstack-usage=8192
ANALYZE_DEFS := $(filter-out -ffile-prefix-map=%,$(DEFS))

analyze: ## static analysis: warnings, gcc -fanalyzer, cppcheck, clang-tidy, shellcheck
	@tests/deps.sh $(BUILD_DEPS) clang clang-tidy cppcheck shellcheck
	@$(MAKE) --no-print-directory build/sql_text.c
	@$(MAKE) --no-print-directory analyze-warnings analyze-gcc analyze-cppcheck analyze-tidy \
	  analyze-shell

analyze-warnings:
	for f in $(SRC) build/sql_text.c; do for d in -DNDEBUG -UNDEBUG; do \
	  gcc -O2 $(ANALYZE_WARN) $(ANALYZE_GCC) $(ANALYZE_DEFS) $$d -c -o /dev/null $$f || exit 1; \
	  clang $(ANALYZE_WARN) $(ANALYZE_DEFS) $$d -fsyntax-only $$f || exit 1; done; done

analyze-gcc:
	for f in $(SRC); do gcc -O2 -std=c11 -Werror -fanalyzer $(ANALYZE_DEFS) \
	  -c -o /dev/null $$f || exit 1; done

analyze-cppcheck:
	cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
	  --error-exitcode=1 --suppress=missingIncludeSystem -D_POSIX_C_SOURCE=200809L -Iext $(SRC)

analyze-tidy:
	clang-tidy --quiet $(SRC) -- -std=c11 $(ANALYZE_DEFS)

analyze-shell:
	shellcheck --severity=warning $(shell git ls-files '*.sh') .ci/run tests/coverage/cc

# idem: `make demo` and `make test` are all a bare Debian machine needs. `make help` lists the rest.

PREFIX  ?= /usr/local
DESTDIR ?=
PYTHON  ?= /usr/bin/python3
CC      ?= cc
CFLAGS  ?= -O2 -g -DNDEBUG
CRYPTO  ?= static

VERSION := $(shell sed -n 's/^.define IDEM_VERSION *"\(.*\)".*/\1/p' ext/idem.h)
WARN    := -std=c11 -pedantic -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes
# Debug information names files from here: the library does not depend on where it was built.
DEFS    := -D_POSIX_C_SOURCE=200809L -Iext -ffile-prefix-map=$(CURDIR)=.
SRC     := $(sort $(wildcard ext/*.c))
OBJ     := $(SRC:ext/%.c=build/%.o) build/sql_text.o
SQL     := $(wildcard sql/*.sql sql/*/*.sql)
# Targets that belong to one folder only stand there.
PARTS   := $(wildcard tests/*/*.mk bench/*.mk ext/*/*.mk)

# libcrypto is linked statically with hidden symbols, so that it cannot collide with one of the host
# program; CRYPTO=shared is for distributions.
ifeq ($(CRYPTO),shared)
LIBCRYPTO := -lcrypto
else
LIBCRYPTO_A = $(shell $(CC) -print-file-name=libcrypto.a)
LIBCRYPTO = $(if $(filter /%,$(LIBCRYPTO_A)),$(LIBCRYPTO_A) -lpthread -ldl,$(error no libcrypto.a: \
  install the static OpenSSL 3 (Debian: libssl-dev), or say make CRYPTO=shared))
endif
LDFLAGS_SO := -shared -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -Wl,-z,now -Wl,-z,relro -Wl,-z,defs \
              -Wl,-z,nodelete -Wl,-z,noexecstack

# Debian packages: to build, to show, to test.
BUILD_DEPS := gcc libc6-dev libsqlite3-dev libssl-dev
DEMO_DEPS  := $(BUILD_DEPS) sqlite3 python3
TEST_DEPS  := $(DEMO_DEPS) binutils python3-pytest python3-pytest-xdist python3-hypothesis \
              python3-sqlalchemy libcmocka-dev clang libclang-rt-dev clang-format spin

SECONDS_FUZZ ?= 60
DEEP_SECONDS ?= 3600
# make V=1 shows the commands. Assertions are for `make test-sanitize` and the C tests: -DNDEBUG takes
# them out of the product, where they would cost a twelfth of the instructions.
Q      := $(if $(V),,@)
PYTEST := $(PYTHON) -m pytest -q
# Where there is much to run: one file of tests per processor at a time.
PYTEST_ALL = $(PYTEST) -n $(shell nproc) --dist loadfile

.PHONY: all help deps build-deps demo-deps test-deps demo test test-deep test-fuzz \
        check-style format clean

all: idem.so ## builds idem.so

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile $(PARTS) | expand -t 24

idem.so: $(OBJ)
	@echo "  LINK $@"
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(LDFLAGS_SO) -o $@ $(OBJ) $(LIBCRYPTO)

build/%.o: ext/%.c | build
	@echo "  CC   $<"
	$(Q)$(CC) $(CFLAGS) $(WARN) $(DEFS) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

build/sql_text.o: build/sql_text.c
	@echo "  CC   $<"
	$(Q)$(CC) $(CFLAGS) $(WARN) $(DEFS) -fPIC -fvisibility=hidden -c -o $@ $<

build/sql_text.c: $(SQL) sql/embed.sh | build
	@echo "  SQL  $@"
	$(Q)sql/embed.sh > $@.new && mv $@.new $@

build:
	mkdir -p build

build-deps:
	@tests/deps.sh $(BUILD_DEPS)
demo-deps:
	@tests/deps.sh $(DEMO_DEPS)
test-deps:
	@tests/deps.sh $(TEST_DEPS)
deps: test-deps ## installs what building and testing need (Debian, root)

demo: demo-deps ## builds, and shows what idem does with real output
	@$(MAKE) --no-print-directory -j2 idem.so
	$(PYTHON) tests/demo/demo.py

test: test-deps ## builds and runs every test (about 4 minutes)
	@$(MAKE) --no-print-directory -j2 idem.so
	$(PYTEST_ALL) tests

test-deep: test-deps ## the long versions of the tests, within DEEP_SECONDS (3600)
	@tests/deps.sh valgrind
	@command -v npm >/dev/null || tests/deps.sh npm
	@$(MAKE) --no-print-directory idem.so
	$(PYTHON) tests/deep.py $(DEEP_SECONDS)

test-fuzz: test-deps ## libFuzzer on the canonicaliser for SECONDS_FUZZ seconds
	tests/fuzz/run.sh $(SECONDS_FUZZ)

check-style: ## clang-format, lines over 100 columns, functions over 70 lines
	clang-format --dry-run --Werror ext/*.c ext/*/*.c ext/*.h
	tests/style.sh

format: ## formats ext/
	clang-format -i ext/*.c ext/*/*.c ext/*.h

clean: ## removes what was built
	rm -rf build idem.so

include $(PARTS)
-include $(wildcard build/*.d)

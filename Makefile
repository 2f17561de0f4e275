# idem: make, make demo, make test. `make help` lists the rest.

PREFIX  ?= /usr/local
PYTHON  ?= /usr/bin/python3
CC      ?= cc
CFLAGS  ?= -O2 -g
CRYPTO  ?= static

VERSION := $(shell sed -n 's/^.define IDEM_VERSION *"\(.*\)".*/\1/p' ext/idem.h)
WARN    := -std=c11 -pedantic -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes
DEFS    := -D_POSIX_C_SOURCE=200809L -Iext
SRC     := $(wildcard ext/*.c)
OBJ     := $(SRC:ext/%.c=build/%.o) build/sql_text.o
SQL     := $(wildcard sql/*.sql sql/*/*.sql)

# Static with hidden symbols, so that idem cannot collide with a libcrypto of the host program; shared
# (CRYPTO=shared) is for distributions.
ifeq ($(CRYPTO),shared)
LIBCRYPTO := -lcrypto
else
LIBCRYPTO := $(shell $(CC) -print-file-name=libcrypto.a) -lpthread -ldl
endif
LDFLAGS_SO := -shared -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -Wl,-z,now -Wl,-z,relro -Wl,-z,defs \
              -Wl,-z,nodelete -Wl,-z,noexecstack

.PHONY: all help clean
all: idem.so

idem.so: $(OBJ)
	$(CC) $(CFLAGS) $(LDFLAGS) $(LDFLAGS_SO) -o $@ $(OBJ) $(LIBCRYPTO)

build/%.o: ext/%.c | build
	$(CC) $(CFLAGS) $(WARN) $(DEFS) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

build/sql_text.o: build/sql_text.c
	$(CC) $(CFLAGS) $(WARN) $(DEFS) -fPIC -fvisibility=hidden -c -o $@ $<

build/sql_text.c: $(SQL) sql/embed.sh | build
	sql/embed.sh > $@

build:
	mkdir -p build

clean:
	rm -rf build idem.so

-include $(wildcard build/*.d)

# A node program for dqlite, and three of them to look at. build/core/ holds idem as it is linked
# into programs: with -DSQLITE_CORE its calls go straight to the SQLite that the program links.
CLUSTER_DEPS := $(BUILD_DEPS) python3 libdqlite-dev
CORE         := $(SRC:ext/%.c=build/core/%.o) build/core/sql_text.o

.PHONY: idem-node cluster cluster-stop

idem-node: ## build/idem-node: one node of a dqlite cluster that knows idem
	@tests/deps.sh $(CLUSTER_DEPS)
	@$(MAKE) --no-print-directory -j2 build/idem-node

build/idem-node: build/core/idem_node.o $(CORE)
	@echo "  LINK $@"
	$(Q)$(CC) $(CFLAGS) -o $@ $^ -ldqlite -lsqlite3 $(LIBCRYPTO)

build/core/%.o: ext/%.c | build/core
	@echo "  CC   $@"
	$(Q)$(CC) $(CFLAGS) $(WARN) $(DEFS) -DSQLITE_CORE -MMD -MP -c -o $@ $<

build/core/%.o: ext/cluster/%.c | build/core
	@echo "  CC   $@"
	$(Q)$(CC) $(CFLAGS) $(WARN) $(DEFS) -DSQLITE_CORE -MMD -MP -c -o $@ $<

build/core/sql_text.o: build/sql_text.c | build/core
	@echo "  CC   $@"
	$(Q)$(CC) $(CFLAGS) $(WARN) $(DEFS) -DSQLITE_CORE -c -o $@ $<

build/core:
	mkdir -p $@

cluster: idem-node ## three nodes on 127.0.0.1: a claim outlives its leader
	@$(PYTHON) tests/cluster/show.py start

cluster-stop: ## stops the three nodes of make cluster
	@$(PYTHON) tests/cluster/show.py stop

-include $(wildcard build/core/*.d)

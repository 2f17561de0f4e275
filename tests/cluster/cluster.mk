CLUSTER_SECONDS ?= 15

.PHONY: test-cluster

test-cluster: ## three nodes: every shape of a write, faults for CLUSTER_SECONDS (15), failover
	@tests/deps.sh $(TEST_DEPS) $(CLUSTER_DEPS) iproute2 util-linux
	@$(MAKE) --no-print-directory -j2 idem.so build/idem-node
	CLUSTER_SECONDS=$(CLUSTER_SECONDS) $(PYTEST_ALL) tests/cluster

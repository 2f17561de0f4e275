.PHONY: bench-cluster

bench-cluster: idem-node ## claim and complete on three local dqlite nodes, per shape and batch
	$(PYTHON) bench/cluster.py

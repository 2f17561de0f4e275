.PHONY: litestream test-backup

# Pinned, and never part of the product. Without it `make test` skips its tests.
litestream: build/npm/node_modules/@flydotio/litestream-linux-x64/litestream

build/npm/node_modules/@flydotio/litestream-linux-x64/litestream:
	@command -v npm >/dev/null || tests/deps.sh npm
	@mkdir -p build/npm && echo '{}' > build/npm/package.json
	cd build/npm && npm install --no-audit --no-fund --ignore-scripts \
	  @flydotio/litestream-linux-x64@1.0.1

test-backup: ## backup by Litestream while writers run, and what a restore may lose
	@tests/deps.sh $(TEST_DEPS)
	@$(MAKE) --no-print-directory -j2 idem.so litestream
	$(PYTEST) tests/backup

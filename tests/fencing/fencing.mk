.PHONY: test-mutants

test-mutants: ## breaks the token comparisons one by one: a test must notice each (a few minutes)
	@tests/deps.sh $(TEST_DEPS)
	$(PYTHON) tests/fencing/breaches.py
	IDEM_DEEP=1 $(PYTEST) tests/verdict/test_mutants.py

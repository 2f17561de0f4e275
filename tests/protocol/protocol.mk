# The claim protocol as a spin model: see claim.pml and checker.py.

.PHONY: test-model

test-model: ## the claim protocol, checked exhaustively with spin (a few minutes, 3 GB)
	@tests/deps.sh spin gcc python3 python3-pytest libssl-dev libsqlite3-dev
	$(PYTEST) tests/protocol
	$(PYTHON) tests/protocol/checker.py

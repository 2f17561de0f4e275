# The same scenario in every language's SQLite driver. From Debian and npm alone.
DRIVER_DEPS := $(TEST_DEPS) python3-apsw python3-django ruby ruby-sqlite3 php-cli php-sqlite3 \
               libdbd-sqlite3-perl tcl libsqlite3-tcl golang-go golang-github-mattn-go-sqlite3-dev \
               libxerial-sqlite-jdbc-java g++ libsqlitecpp-dev

.PHONY: driver-deps test-drivers
driver-deps:
	@command -v npm >/dev/null || tests/deps.sh nodejs npm
	@command -v javac >/dev/null || tests/deps.sh default-jdk-headless
	@command -v cargo >/dev/null || tests/deps.sh cargo
	@tests/deps.sh $(DRIVER_DEPS)
	@tests/drivers/rust/crates.sh
	@tests/drivers/js/install.sh

test-drivers: driver-deps ## one scenario in the SQLite drivers of every language (about 4 minutes)
	@$(MAKE) --no-print-directory idem.so
	IDEM_DRIVERS=1 $(PYTEST) -rs tests/drivers tests/readme/test_examples.py
	@expand -t 18,44,52 build/drivers/proven.tsv

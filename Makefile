# Main targets: demo, quick, test, test-all, lint, bench, docs. Each one first installs what it needs into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

# Tests start hundreds of Python processes; without compiled modules each takes 0.7 s longer.
unexport PYTHONDONTWRITEBYTECODE

# No target is a file, though docs and bench are folders.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --editable . --group dev --group docs
	@$(BIN)/millstream doctor > /dev/null || $(BIN)/python -m pip install --quiet --editable ".[java]"
	@touch $@

demo: $(STAMP)
	@$(BIN)/millstream demo

# The demo's orders through real Kafka and PostgreSQL, until Ctrl-C: make playground [OPTIONS=--local].
playground: $(STAMP)
	@$(BIN)/python examples/playground/playground.py $(OPTIONS)

lint: $(STAMP)
	$(BIN)/ruff check src tests bench examples
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/mypy
	$(BIN)/mypy examples/*.py examples/playground/*.py
	@# Names that macOS lacks are errors.
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin --package millstream
	$(BIN)/lint-imports

# All checks that a change must pass. Most tests wait for processes, so two targets run at a time, two of them in two
# processes each; each line is prefixed with its target.
test: $(STAMP)
	@$(MAKE) --no-print-directory --keep-going --jobs 2 test-spark test-integration test-properties test-servers test-unit lint

# Run after each edit: style, import contracts, types, and the tests that need no process, server or Spark.
quick: $(STAMP)
	$(BIN)/ruff check src tests bench examples
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m pytest --numprocesses 2 tests/unit

FOLDERS := test-unit test-integration test-properties test-spark test-servers
$(FOLDERS): SHELL := bash -o pipefail
test-spark test-integration: PYTEST_OPTIONS := --numprocesses 2 --dist loadfile
$(FOLDERS): test-%: $(STAMP)
	$(BIN)/python $(MEASURED) -m tests.again tests/$* $(PYTEST_OPTIONS) | sed -u 's/^/$*: /'

# Lines and branches of src that these tests run, also in their subprocesses: a table by package, coverage.md and htmlcov/.
COVERED := test-unit test-integration test-properties
$(COVERED): MEASURED = $(if $(COVERAGE),-m coverage run)
coverage: $(STAMP)
	$(BIN)/python -m coverage erase
	$(MAKE) --no-print-directory --keep-going COVERAGE=1 $(COVERED)
	$(MAKE) --no-print-directory coverage-report

# Of what `make COVERAGE=1 test-unit` and the others have recorded.
coverage-report: $(STAMP)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage html --quiet
	$(BIN)/python -m tests.coverage

# The long forms, hours in all; the nightly workflow runs them. `make test` has a short form of each.
test-all: test test-portable test-shuffle test-ha test-upgrade test-cluster test-deploy test-pyflink test-openapi simulate proof sql-oracle sql-order chaos chaos-cookbook soak soak-sql

# What tests of programs need on other systems than Linux: the unit tests and the local engine without Linux's own interfaces.
PORTABLE := tests/unit tests/integration/checkpoint tests/integration/datastream tests/integration/jobmaster tests/integration/operators \
	tests/integration/state tests/integration/table tests/integration/testing
test-portable: $(STAMP)
	MILLSTREAM_PORTABLE=1 $(BIN)/python -m pytest --numprocesses 2 $(PORTABLE)

# Repeat tests that depend on timing while ten processes keep the cores busy: make flaky [TESTS="..."] [COUNT=50].
COUNT ?= 50
TESTS ?= tests/integration/leader tests/integration/exchange tests/integration/jobmaster
flaky: $(STAMP)
	$(BIN)/python -m tests.flaky --count $(COUNT) $(TESTS)

# Spark tests with one Spark job per epoch. By default, streaming jobs use long-running slots.
test-shuffle: $(STAMP)
	MILLSTREAM_TEST_EXCHANGE=spark $(BIN)/python -m pytest tests/spark tests/servers

# Leader election under faults: job managers are killed, frozen and partitioned.
test-ha: $(STAMP)
	$(BIN)/python -m tests.high_availability

# Upgrade a job from wheels of older versions to this one, by savepoint and by checkpoint; each wheel has its own venv.
test-upgrade: $(STAMP)
	$(BIN)/python -m tests.upgrade

# Spark standalone, YARN and Kubernetes clusters; machines are killed, frozen, partitioned and added.
test-cluster: $(STAMP)
	MILLSTREAM_TEST_CLUSTER=1 $(BIN)/python -m pytest tests/spark/test_cluster.py tests/spark/test_yarn.py tests/spark/test_kubernetes.py
	$(BIN)/python -m tests.machines --rounds 1

# Kubernetes manifests, Dockerfile and workflows, with kustomize, kubernetes-validate, hadolint, actionlint and zizmor.
test-deploy: $(STAMP)
	$(BIN)/python -c "import sys; from bench.venvs import venv; sys.exit(venv('deploy') is None)"
	$(BIN)/python -m tests.support.go_tools
	$(BIN)/python -m pytest -rs tests/integration/project/test_manifests.py

# Comparison with apache-flink (installed into its own venv), and PyFlink's own tests.
test-pyflink: $(STAMP)
	MILLSTREAM_PYFLINK=1 $(BIN)/python -m pytest tests/integration/project/test_parity.py tests/integration/cli/test_flink_cli.py \
		tests/integration/gateway/test_flink_sql_client.py tests/spark/test_pyflink_examples.py
	$(BIN)/python -m tests.pyflink.suite.run

# Validate every REST response against Flink's OpenAPI file with schemathesis (installed into its own venv).
test-openapi: $(STAMP)
	$(BIN)/python -c "import sys; from bench.venvs import venv; sys.exit(venv('schemathesis') is None)"
	$(BIN)/python -m pytest tests/integration/service/test_openapi.py

# Generate docs/reference/parity.md from docs/reference/parity.yaml.
parity: $(STAMP)
	$(BIN)/python -m tests.pyflink.parity

# Generate docs/reference/sql/statements-and-functions.md from the function, connector and format registries.
sql-docs: $(STAMP)
	$(BIN)/python -m tests.sql.reference

# Generated parts of the documentation.
# Update the tables of docs/reference/configuration.md from the declarations of options.
config-docs: $(STAMP)
	$(BIN)/python -m tests.documentation.configuration

# Draw the diagrams, docs/images/*.svg.
diagrams: $(STAMP)
	$(BIN)/python -m tests.documentation.diagrams

# Take the pictures of the page, docs/images/*.png, of running jobs; needs Chromium, two minutes.
screenshots: $(STAMP)
	$(BIN)/python -m tests.documentation.screenshots

# Compare random SQL programs with DuckDB; `make test` compares a hundred.
PROGRAMS ?= 20000
sql-oracle: $(STAMP)
	$(BIN)/python -m tests.sql.oracle --count $(PROGRAMS)

# TPC-DS at scale 1 in batch mode; each result is compared with DuckDB's.
bench-tpcds: $(STAMP)
	$(BIN)/python -m bench.sql.tpcds

# Random changelogs through every operator into every sink kind at parallelism 1 to 4; then with Kafka and PostgreSQL.
sql-order: $(STAMP)
	$(BIN)/python -m tests.sql.order --count 5000
	$(BIN)/python -m tests.sql.order_servers --count 500

# Build the documentation into site/; a broken link, reference or anchor, or a page without a place in the navigation, fails.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "built site/; make docs-serve shows it"

# Show the documentation on http://127.0.0.1:8000, built again after each change.
docs-serve: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

# Build the last commit's wheel and source distribution into dist/, with SBOM and checksums; the same bytes on each machine.
dist: $(STAMP)
	$(BIN)/python -m tests.release.dist

# What a release must pass besides the tests: build twice, install and run the wheel on each supported Python.
PYTHONS ?= 3.11 3.12 3.13
release-check: dist
	MILLSTREAM_TEST_DIST=dist MILLSTREAM_TEST_PYTHONS="$(PYTHONS)" $(BIN)/python -m pytest --verbose \
		tests/integration/project/test_release.py tests/spark/test_install.py

format: $(STAMP)
	$(BIN)/ruff check --fix src tests bench examples
	$(BIN)/ruff format src tests bench examples

# Simulate checkpoints, commits and restarts under faults on a virtual clock; `make test` runs fewer seeds.
simulate: $(STAMP)
	$(BIN)/python -m tests.simulation --seeds 20000

# Stateful SQL operators with random epoch boundaries, restarts, failures and rescaling; `make test` runs one seed.
proof: $(STAMP)
	MILLSTREAM_TEST_SEEDS=20 $(BIN)/python -m pytest tests/properties/sql/test_exactly_once.py

bench: $(STAMP)
	$(BIN)/python -m bench.run
	$(BIN)/python -m bench.connectors
	$(BIN)/python -m bench.sql.run

# Generate docs/performance.md, its chart and the figures of the README from the stored results.
performance: $(STAMP)
	$(BIN)/python -m bench.performance

# The SQL benchmarks, compared with Flink's Java SQL.
bench-sql: $(STAMP)
	$(BIN)/python -m bench.sql.run
	$(BIN)/python -m bench.sql.first_row

# Nexmark compared with Flink's Java SQL, 30 seconds per query and system; and the restore time of ten million join rows.
bench-nexmark: $(STAMP)
	$(BIN)/python -m bench.sql.nexmark
	$(BIN)/python -m bench.sql.restore

# Inject exceptions and kill -9 at every step of the checkpoint protocol on real Spark: a DataStream job, five SQL jobs that
# cover all stateful operators, and Kafka to Kafka. Takes hours; set TMPDIR to a memory file system to halve that.
chaos: $(STAMP)
	$(BIN)/python -m tests.faults --seeds 3
	$(BIN)/python -m tests.faults --seeds 3 --job sql
	$(BIN)/python -m tests.faults --seeds 3 --job sql-ranks
	$(BIN)/python -m tests.faults --seeds 3 --job sql-joins
	$(BIN)/python -m tests.faults --seeds 3 --job sql-changes
	$(BIN)/python -m tests.faults --seeds 3 --job sql-keys
	$(BIN)/python -m tests.faults --seeds 3 --job kafka

# The cookbook's SQL program (CDC, Kafka, upserts) on Spark with random kills; ten minutes.
chaos-cookbook: $(STAMP)
	$(BIN)/python -m tests.support.cookbook_runs 600

# A mixed job with kills for MINUTES: memory, files, descriptors, threads and latency must not grow.
MINUTES ?= 60
soak: $(STAMP)
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

# Nexmark q4, q7, q9 and q20 for SQL_MINUTES each with kills of slots and drivers: results must equal undisturbed runs.
SQL_MINUTES ?= 5
soak-sql: $(STAMP)
	$(BIN)/python -m tests.soak.nexmark --minutes $(SQL_MINUTES)

clean:
	rm -rf $(VENV)

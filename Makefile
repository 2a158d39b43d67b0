# Commands: demo, quick, test, lint, simulate, bench, parity, docs. Each sets up what it needs in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: demo quick test test-unit test-integration test-properties test-spark test-servers test-shuffle test-ha test-upgrade test-cluster test-pyflink test-openapi parity sql-docs sql-oracle sql-order docs lint format simulate proof bench bench-sql bench-nexmark bench-tpcds chaos soak soak-sql clean

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --editable . --group dev
	@$(BIN)/millstream doctor > /dev/null || $(BIN)/python -m pip install --quiet --editable ".[java]"
	@touch $@

demo: $(STAMP)
	@$(BIN)/python examples/demo.py

lint: $(STAMP)
	$(BIN)/ruff check src tests bench examples
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/mypy
	$(BIN)/mypy examples/*.py
	$(BIN)/lint-imports

# Tests on Spark wait more than they work: the others, and lint, run beside them; lines say whose they are.
test: $(STAMP)
	@$(MAKE) --no-print-directory --keep-going --jobs 2 test-spark test-integration test-properties test-unit test-servers lint

# What to run after each edit: style, import contracts, types, and the tests that need no process, server or Spark.
quick: $(STAMP)
	$(BIN)/ruff check src tests bench examples
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m pytest --numprocesses 2 tests/unit

FOLDERS := test-unit test-integration test-properties test-spark test-servers
$(FOLDERS): SHELL := bash -o pipefail
$(FOLDERS): test-%: $(STAMP)
	$(BIN)/python -m tests.again tests/$* | sed -u 's/^/$*: /'

# The tests on Spark with an epoch as a Spark job each; without the setting, slots of streaming jobs stay.
test-shuffle: $(STAMP)
	MILLSTREAM_TEST_EXCHANGE=spark $(BIN)/python -m pytest tests/spark tests/servers

# Job managers that are killed, frozen and cut off while one of them leads.
test-ha: $(STAMP)
	$(BIN)/python -m tests.high_availability

# A job moved between wheels of older versions and of this one, by savepoint and by checkpoint, each in a venv of its own.
test-upgrade: $(STAMP)
	$(BIN)/python -m tests.upgrade

# Clusters: Spark's, YARN, Kubernetes; machines that are killed, frozen, cut off and added.
test-cluster: $(STAMP)
	$(BIN)/python -c "import sys; sys.path.append('bench'); from venvs import venv; sys.exit(venv('kubernetes-validate') is None)"
	MILLSTREAM_TEST_CLUSTER=1 $(BIN)/python -m pytest tests/integration/project/test_manifests.py tests/spark/test_cluster.py tests/spark/test_yarn.py \
		tests/spark/test_kubernetes.py
	$(BIN)/python -m tests.machines --rounds 1

# The tests against apache-flink, which is installed into a venv of its own first, and PyFlink's own tests.
test-pyflink: $(STAMP)
	MILLSTREAM_PYFLINK=1 $(BIN)/python -m pytest tests/unit/project/test_parity.py tests/integration/cli/test_flink_cli.py \
		tests/integration/gateway/test_flink_sql_client.py tests/spark/test_pyflink_examples.py
	$(BIN)/python tests/pyflink/suite/run.py

# Every answer over REST against Flink's OpenAPI file, with schemathesis, which is installed into a venv of its own first.
test-openapi: $(STAMP)
	$(BIN)/python -c "import sys; sys.path.append('bench'); from venvs import venv; sys.exit(venv('schemathesis') is None)"
	$(BIN)/python -m pytest tests/integration/service/test_openapi.py

# docs/parity.md from docs/parity.yaml.
parity: $(STAMP)
	$(BIN)/python tests/pyflink/parity.py

# docs/sql-reference.md from the tables of functions, connectors and formats.
sql-docs: $(STAMP)
	$(BIN)/python tests/sql/reference.py

# So many random programs whose answers DuckDB knows; a hundred are among the tests.
PROGRAMS ?= 20000
sql-oracle: $(STAMP)
	$(BIN)/python -m tests.sql.oracle --count $(PROGRAMS)

# TPC-DS at scale 1 in batch, each query's answer compared with DuckDB's.
bench-tpcds: $(STAMP)
	$(BIN)/python bench/sql/tpcds.py

# Random changelogs through every operator into every kind of sink, at parallelism 1 to 4; then with Kafka and PostgreSQL.
sql-order: $(STAMP)
	$(BIN)/python -m tests.sql.order --count 5000
	$(BIN)/python -m tests.sql.order_servers --count 500

# The API reference as a site, in site/: what users import, from its docstrings.
FORMATS := avro change_json csv json orc parquet
CONNECTORS := base cdc datagen dynamic_kafka elasticsearch file_system http_source hybrid_source jdbc jdbc_source kafka lookup number_seq rabbitmq redis \
	socket_source sql
DOCUMENTED := cep common common.serialization common.typeinfo common.types common.watermark_strategy \
	datastream datastream.checkpoint_config datastream.checkpoint_storage datastream.functions datastream.state \
	datastream.state_backend datastream.window $(addprefix datastream.connectors.,$(CONNECTORS)) \
	$(addprefix datastream.formats.,$(FORMATS)) metrics state_processor table testing
docs: $(STAMP)
	@$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python -W ignore -m pdoc --docformat google --no-show-source --output-directory site $(addprefix millstream.,$(DOCUMENTED))
	@echo "open site/index.html"

format: $(STAMP)
	$(BIN)/ruff check --fix src tests bench examples
	$(BIN)/ruff format src tests bench examples

# Checkpoints, commits and restarts under faults, on a virtual clock; a short form of it is among the tests.
simulate: $(STAMP)
	$(BIN)/python -m tests.simulation --seeds 20000

# SQL's stateful operators with epochs cut anywhere, restarts, failures and rescaling; one seed of it is among the tests.
proof: $(STAMP)
	MILLSTREAM_TEST_SEEDS=20 $(BIN)/python -m pytest tests/properties/sql/test_exactly_once.py

bench: $(STAMP)
	$(BIN)/python bench/run.py
	$(BIN)/python bench/connectors.py
	$(BIN)/python bench/sql/run.py

# The part of it that is SQL, beside Flink's own Java SQL.
bench-sql: $(STAMP)
	$(BIN)/python bench/sql/run.py
	$(BIN)/python bench/sql/first_row.py

# Nexmark beside Flink's own Java SQL, 30 seconds a query on each side; and how fast ten million rows of a join are restored.
bench-nexmark: $(STAMP)
	$(BIN)/python bench/sql/nexmark.py
	$(BIN)/python bench/sql/restore.py

# Exceptions and kill -9 at every step of the protocol, on real Spark, in a DataStream job, in five of SQL with all
# operators that keep state, and from Kafka to Kafka; hours, fewer with TMPDIR in memory, since half of it is fsync.
chaos: $(STAMP)
	$(BIN)/python -m tests.faults --seeds 3
	$(BIN)/python -m tests.faults --seeds 3 --job sql
	$(BIN)/python -m tests.faults --seeds 3 --job sql-ranks
	$(BIN)/python -m tests.faults --seeds 3 --job sql-joins
	$(BIN)/python -m tests.faults --seeds 3 --job sql-changes
	$(BIN)/python -m tests.faults --seeds 3 --job sql-keys
	$(BIN)/python -m tests.faults --seeds 3 --job kafka

# The cookbook's program of SQL with change data capture, Kafka and upserts, on Spark, killed at random; ten minutes.
chaos-cookbook: $(STAMP)
	$(BIN)/python -m tests.support.cookbook_runs 600

# A mixed job with kills for so many minutes: memory, files, descriptors, threads and latency must stay flat.
MINUTES ?= 60
soak: $(STAMP)
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

# Nexmark's q4, q7, q9 and q20 for so many minutes each, slots and drivers killed: the rows of undisturbed runs are left.
SQL_MINUTES ?= 5
soak-sql: $(STAMP)
	$(BIN)/python -m tests.soak.nexmark --minutes $(SQL_MINUTES)

clean:
	rm -rf $(VENV)

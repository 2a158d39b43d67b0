"""One Spark for the whole test run; every test gets a new environment on it.

MILLSTREAM_TEST_EXCHANGE=spark (or resident) runs all tests on Spark with that exchange; without it, jobs choose.
MILLSTREAM_TEST_TRANSPORT=tcp (or unix, or tls, which is encrypted tcp) selects the transport of resident slots.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from millstream.common import Configuration
from millstream.common.errors import MillstreamError
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.spark.session import stop_context
from millstream.testing.servers.databases import MariaDbServer, PostgresServer, RedisServer
from millstream.testing.servers.kafka import KafkaBroker
from millstream.testing.servers.rabbitmq import RabbitMqServer
from millstream.testing.servers.search import ElasticsearchServer, OpenSearchServer

# PyFlink's tests have their own runner.
collect_ignore = ["pyflink/suite"]

Env = StreamExecutionEnvironment

# No deadline: the duration of an example depends on the load of the machine.
settings.register_profile("millstream", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("millstream")


@pytest.fixture(scope="session", autouse=True)
def _run_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Isolates the job registry: commands of other runs do not see the jobs of this one, and vice versa."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _spark() -> Iterator[None]:
    yield
    stop_context()


@pytest.fixture(scope="session")
def spark_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of Spark's shuffle files."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; without one on the machine the test is skipped."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    yield from _running(PostgresServer)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    """A MariaDB server, which does not log database `unlogged`; without one on the machine the test is skipped."""
    pytest.importorskip("pymysql", reason="pymysql is not installed")
    yield from _running(lambda: MariaDbServer(binlog_ignore_db="unlogged"))


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A Redis server; without one on the machine the test is skipped."""
    pytest.importorskip("redis", reason="redis is not installed")
    yield from _running(RedisServer)


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMqServer]:
    """A RabbitMQ server; without one on the machine the test is skipped."""
    pytest.importorskip("pika", reason="pika is not installed")
    yield from _running(RabbitMqServer)


@pytest.fixture(scope="session")
def search_server() -> Iterator[ElasticsearchServer | OpenSearchServer]:
    """A server of Elasticsearch, or of OpenSearch if requested; without one on the machine the test is skipped."""
    kinds = {"elasticsearch": ElasticsearchServer, "opensearch": OpenSearchServer}
    yield from _running(kinds[os.environ.get("MILLSTREAM_TEST_SEARCH", "elasticsearch")])


def _running(kind: Callable[[], Any]) -> Iterator[Any]:
    server = kind()
    try:
        server.start()
    except MillstreamError as e:
        server.close()
        # Skipped only if the server is not installed: a server that fails to start is an error.
        if "There is no" in str(e):
            pytest.skip(str(e))
        raise
    yield server
    server.close()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A Kafka broker; without its jars the test is skipped."""
    broker = KafkaBroker()
    try:
        broker.start()
    except MillstreamError as e:
        broker.close()
        # Skipped only if the server is not installed: a server that fails to start is an error.
        if "cannot be fetched" in str(e):
            pytest.skip(f"there is no Kafka: {e}")
        raise
    yield broker
    broker.close()


@pytest.fixture
def config(spark_files: Path) -> Configuration:
    transport = os.environ.get("MILLSTREAM_TEST_TRANSPORT", "auto")
    # Two threads on any machine, so that results that depend on the number of slots are the same everywhere.
    return Configuration.from_dict(
        {
            "spark.master": "local[2]",
            "spark.local.dir": str(spark_files),
            "millstream.quiet": "true",
            "parallelism.default": "2",
            "millstream.exchange": os.environ.get("MILLSTREAM_TEST_EXCHANGE", "auto"),
            "millstream.exchange.transport": "tcp" if transport == "tls" else transport,
            "security.ssl.internal.enabled": str(transport == "tls").lower(),
        }
    )


@pytest.fixture
def resident_slots(config: Configuration) -> bool:
    """Whether streaming jobs run in resident slots."""
    return config.get_string("millstream.exchange", "auto") != "spark"


@pytest.fixture
def env(config: Configuration) -> Env:
    return Env.get_execution_environment(config)


@pytest.fixture
def env1(config: Configuration) -> Env:
    """An environment with parallelism 1, where the order of results is always the same."""
    return Env.get_execution_environment(config).set_parallelism(1)


@pytest.fixture
def collect() -> Callable[[DataStream], list[Any]]:
    return lambda stream: list(stream.execute_and_collect())

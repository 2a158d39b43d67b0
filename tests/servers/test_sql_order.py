"""Changes of one key keep their order from real Kafka to real Kafka and PostgreSQL, at any parallelism."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest

from millstream.testing.servers.databases import PostgresServer
from millstream.testing.servers.kafka import KafkaBroker
from tests.sql.order import check
from tests.sql.order_servers import server_storage

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(autouse=True)
def _no_connections_are_left() -> Iterator[None]:
    """Collect the unclosed connections of dead processes, before another test is blamed."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


# All: `make sql-order`. With these seeds, "top-n", "not-exists", "left-join" and "top-n-then-join" leave other rows in
# the sink if keys that an exchange has moved are regarded as co-located.
CASES = [
    ("top-n", "upsert-kafka", "upsert-kafka", 3, 1),
    # Most groups have a partner but no rows; here some rows move between groups without partner.
    ("not-exists", "kafka", "postgres", 2, 1724),
    ("union-all-with-one-group", "kafka", "kafka", 4, 0),
    ("left-join", "upsert-kafka", "postgres", 4, 0),
    ("filter", "upsert-kafka", "kafka", 2, 0),
    ("top-n-then-join", "kafka", "upsert-kafka", 3, 0),
]


@pytest.mark.parametrize(("query", "source", "sink", "parallelism", "seed"), CASES)
def test_changelog_in_servers_equals_sqlite_result(
    query: str, source: str, sink: str, parallelism: int, seed: int, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    check(query, source, sink, parallelism, seed, table_storage=server_storage(kafka, postgres))

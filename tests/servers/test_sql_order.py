"""Changes of one key keep their order from real Kafka to real Kafka and PostgreSQL, at any parallelism."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.sql.order import check
from tests.sql.order_servers import places

from millstream.testing.databases import PostgresServer
from millstream.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(autouse=True)
def _no_connections_are_left() -> Iterator[None]:
    """Collect the connections of processes that have died, which nobody closed, before another test is blamed."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


# All of them: `make sql-order`.
CASES = [
    ("top-n", "upsert-kafka", "upsert-kafka", 3),
    ("not-exists", "kafka", "postgres", 2),
    ("union-all-with-one-group", "kafka", "upsert-kafka", 4),
    ("left-join", "upsert-kafka", "postgres", 4),
    ("filter", "upsert-kafka", "kafka", 2),
    ("top-n-then-join", "kafka", "kafka", 3),
]


@pytest.mark.parametrize(("query", "source", "sink", "parallelism"), CASES)
def test_changelog_leaves_what_sqlite_says_in_servers(
    query: str, source: str, sink: str, parallelism: int, kafka: KafkaBroker, postgres: PostgresServer
) -> None:
    check(query, source, sink, parallelism, 0, places=places(kafka, postgres))

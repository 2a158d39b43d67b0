"""Random changelogs from real Kafka into real Kafka and PostgreSQL: their rows are compared with SQLite's.

    python -m tests.sql.order_servers [--count 200] [--seed 0]     (`make sql-order`)

The queries and changes are those of `order.py`. Topics have 1 to 4 partitions, and messages of a key are in one of
them; sinks have as many subtasks as the query or another number.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from millstream.common import RowKind
from millstream.testing.servers.databases import PostgresServer
from millstream.testing.servers.kafka import KafkaBroker
from tests.sql.order import (
    COLUMNS,
    KEYED,
    Changes,
    Difference,
    Query,
    QuerySink,
    TableStorage,
    Values,
    as_upserts,
    by_key,
    debezium,
    final_rows,
    main,
)

SOURCES = ("upsert-kafka", "kafka")
SINKS = ("upsert-kafka", "kafka", "postgres")
_JSON = {"key.format": "json", "value.format": "json"}
_names = itertools.count()
Message = tuple[Any, Any, int]


class ServerStorage(TableStorage):
    """Tables in Kafka and PostgreSQL.

    Args:
        kafka, postgres: the servers.
        directory: for files.
    """

    def __init__(self, kafka: KafkaBroker, postgres: PostgresServer, directory: Path) -> None:
        super().__init__(directory)
        self._kafka, self._postgres = kafka, postgres

    def source(self, name: str, changes: Changes, kind: str, r: random.Random) -> str:
        topic, partitions = self._new_topic(r)
        if kind == "upsert-kafka":
            changelog = as_upserts(changes)
            values = [None if kind is RowKind.DELETE else _value(row) for kind, row in changelog]
            ids = [row[0] for _, row in changelog]
            columns, options = KEYED, {"connector": kind, **_JSON}
        else:
            values = list(debezium(changes))
            ids = [row[0] for _, row in as_upserts(changes)]
            columns = r.choice([COLUMNS, KEYED])
            options = {"connector": kind, "value.format": "debezium-json", "scan.startup.mode": "earliest-offset"}
        self._send(topic, [(json.dumps({"id": i}), v, i % partitions) for i, v in zip(ids, values, strict=True)])
        return f"({columns}) WITH {self._options(topic, {**options, 'scan.bounded.mode': 'latest-offset'})}"

    def sink(self, query: Query, kind: str, r: random.Random) -> QuerySink:
        keyed = f"{query.columns}, PRIMARY KEY ({query.key}) NOT ENFORCED"
        sink_options = r.choice([{}, {"sink.parallelism": str(r.randint(1, 4))}])
        if kind == "postgres":
            return self._server_table(query, keyed, sink_options, r)
        topic, _ = self._new_topic(r)
        if kind == "upsert-kafka":
            buffer = {"sink.buffer-flush.max-rows": str(r.randint(2, 20)), "sink.buffer-flush.interval": "1 s"}
            options = {"connector": kind, **_JSON, **sink_options, **r.choice([{}, buffer])}
            read = partial(self._upserted, topic, query)
            return QuerySink(f"({keyed}) WITH {self._options(topic, options)}", read)
        options = {
            "connector": kind,
            "key.format": "json",
            "key.fields": query.key.replace(", ", ";"),
            "value.format": "debezium-json",
            "sink.delivery-guarantee": "exactly-once",
            "sink.transactional-id-prefix": topic,
            **sink_options,
        }
        read = partial(self._changed, topic)
        return QuerySink(f"({keyed}) WITH {self._options(topic, options)}", read, rescales=False)

    def _server_table(self, query: Query, keyed: str, sink_options: dict[str, str], r: random.Random) -> QuerySink:
        table, conninfo = f"o{next(_names)}", self._postgres.conninfo()
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {table} ({query.columns}, PRIMARY KEY ({query.key}))")

        def read() -> Counter[Values]:
            with psycopg.connect(conninfo) as connection:
                return Counter(connection.execute(f"SELECT * FROM {table}").fetchall())

        server = f"host={self._postgres.directory}&port={self._postgres.port}&user=postgres"
        url = f"jdbc:postgresql:///postgres?{server}"
        rows = {"sink.buffer-flush.max-rows": str(r.choice([1, 3, 100]))}
        options = {"connector": "jdbc", "url": url, "table-name": table, **rows, **sink_options}
        return QuerySink(f"({keyed}) WITH {_options_text(options)}", read)

    # --- Kafka

    def _new_topic(self, r: random.Random) -> tuple[str, int]:
        topic, partitions = f"order-{next(_names)}", r.randint(1, 4)
        self._kafka.create_topic(topic, partitions)
        return topic, partitions

    def _options(self, topic: str, options: dict[str, str]) -> str:
        return _options_text({"topic": topic, "properties.bootstrap.servers": self._kafka.bootstrap, **options})

    def _send(self, topic: str, messages: Iterable[Message]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._kafka.bootstrap, "log_level": 0})
        for key, value, partition in messages:
            producer.produce(topic, value, key, partition=partition)
        assert producer.flush(60) == 0

    def _read(self, topic: str) -> list[Message]:
        """Return the messages of a topic by partition; check that messages of a key are in one partition."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {
            "group.id": "order",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
        consumer = Consumer({"bootstrap.servers": self._kafka.bootstrap, **settings})
        messages: list[Message] = []
        try:
            for partition in sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions):
                consumer.assign([TopicPartition(topic, partition, 0)])
                while (message := consumer.poll(30)) is not None and message.error() is None:
                    messages.append((message.key(), message.value(), partition))
                assert message is not None, "a transaction is open"
        finally:
            consumer.close()
        if len({(key, partition) for key, _, partition in messages}) > len({key for key, _, _ in messages}):
            raise Difference("messages of one key are in several partitions")
        return messages

    def _upserted(self, topic: str, query: Query) -> Counter[Values]:
        changes: Changes = []
        for key, value, _ in self._read(topic):
            message = json.loads(value or key)
            names = [column.split()[0] for column in query.columns.split(", ")]
            row = tuple(message.get(name) for name in names)
            changes.append((RowKind.DELETE if value is None else RowKind.INSERT, row))
        return by_key(changes, query.key_positions)

    def _changed(self, topic: str) -> Counter[Values]:
        changes: Changes = []
        for _, value, _ in self._read(topic):
            message = json.loads(value)
            sides = (("before", RowKind.DELETE), ("after", RowKind.INSERT))
            changes += [(kind, tuple(message[side].values())) for side, kind in sides if message[side] is not None]
        return final_rows(changes)


def _value(row: Values) -> str:
    return json.dumps(dict(zip(("id", "g", "v"), row, strict=True)))


def _options_text(options: dict[str, str]) -> str:
    text = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"({text})"


def server_storage(kafka: KafkaBroker, postgres: PostgresServer) -> Callable[[Path], TableStorage]:
    """Return the table storage of these servers."""
    return partial(ServerStorage, kafka, postgres)


if __name__ == "__main__":
    with KafkaBroker() as broker, PostgresServer() as server:
        main(__doc__, 200, SOURCES, SINKS, server_storage(broker, server))

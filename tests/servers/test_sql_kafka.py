"""Topics of a real Kafka as tables: `kafka` and `upsert-kafka`, most of it in this process, some on Spark."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from millstream.common.errors import MillstreamError
from millstream.connectors.kafka.table_records import KafkaPartitioner
from millstream.sql.errors import TableException, ValidationException
from millstream.table import EnvironmentSettings, StreamTableEnvironment
from millstream.testing import LocalEnvironment
from millstream.testing.servers.databases import PostgresServer
from millstream.testing.servers.kafka import KafkaBroker
from tests.conftest import Env
from tests.support.helpers import wait_until
from tests.support.schema_registry import registry_server

pytestmark = pytest.mark.spark

_names = itertools.count()
BOUNDED = {"scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"}


def new_topic(kafka: KafkaBroker, partitions: int = 1) -> str:
    name = f"sql-{next(_names)}"
    kafka.create_topic(name, partitions)
    return name


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    return new_topic(kafka)


@pytest.fixture
def t_env() -> StreamTableEnvironment:
    return local()


def local(parallelism: int = 1, batch: bool = False) -> StreamTableEnvironment:
    settings = EnvironmentSettings.in_batch_mode() if batch else EnvironmentSettings.in_streaming_mode()
    t_env = StreamTableEnvironment.create(LocalEnvironment().set_parallelism(parallelism), settings)
    t_env.get_config().set("table.local-time-zone", "UTC")
    return t_env


def declare(
    t_env: StreamTableEnvironment,
    kafka: KafkaBroker,
    name: str,
    columns: str,
    topic: str | None,
    options: dict[str, str],
) -> None:
    about = {"connector": "kafka", "properties.bootstrap.servers": kafka.bootstrap, **options}
    if topic is not None:
        about["topic"] = topic
    if not any(k in about for k in ("format", "value.format")):
        about["format"] = "json"
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in about.items())
    t_env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({listed})")


def rows(t_env: StreamTableEnvironment, query: str) -> list[Any]:
    return [tuple(r) for r in t_env.execute_sql(query).collect()]


def changes(t_env: StreamTableEnvironment, query: str) -> list[tuple[str, Any]]:
    return [(str(r.get_row_kind()), tuple(r)) for r in t_env.execute_sql(query).collect()]


def left(changed: Iterable[tuple[str, Any]]) -> Counter[Any]:
    counts: Counter[Any] = Counter()
    for kind, row in changed:
        counts[row] += 1 if kind in ("+I", "+U") else -1
    return +counts


def send(kafka: KafkaBroker, topic: str, *messages: dict[str, Any]) -> None:
    """Write messages with all properties of the client."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for message in messages:
        producer.produce(topic, **message)
    assert producer.flush(30) == 0


def read(kafka: KafkaBroker, topic: str) -> list[Any]:
    """Return the messages of a topic as the client returns them."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "looks", "enable.partition.eof": True, "log_level": 0}
    )
    messages = []
    try:
        for number in sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions):
            consumer.assign([TopicPartition(topic, number, 0)])
            while (message := consumer.poll(30)) is not None and message.error() is None:
                messages.append(message)
            assert message is not None, "the partition has no end"
    finally:
        consumer.close()
    return messages


# --- reading


def test_kafka_table_reads_columns_and_metadata(kafka: KafkaBroker, t_env: StreamTableEnvironment) -> None:
    topic = new_topic(kafka, 2)
    send(
        kafka,
        topic,
        {"value": b'{"id": 1, "name": "a"}', "partition": 1, "timestamp": 1_700_000_000_123, "headers": [("h", b"x")]},
        {"value": b'{"id": 2}', "partition": 1, "timestamp": 1_700_000_000_456},
    )
    columns = """
        id INT, name STRING, `partition` INT METADATA VIRTUAL, o BIGINT METADATA FROM 'offset' VIRTUAL,
        ts TIMESTAMP(3) METADATA FROM 'timestamp', headers MAP<STRING, BYTES> METADATA, t STRING METADATA FROM 'topic',
        epoch INT METADATA FROM 'leader-epoch' VIRTUAL, kind STRING METADATA FROM 'timestamp-type' VIRTUAL"""
    declare(t_env, kafka, "t", columns, topic, BOUNDED)
    results = rows(t_env, "SELECT id, name, `partition`, o, CAST(ts AS STRING), headers, t, epoch, kind FROM t")
    assert results == [
        (1, "a", 1, 0, "2023-11-14 22:13:20.123", {"h": b"x"}, topic, 0, "CreateTime"),
        (2, None, 1, 1, "2023-11-14 22:13:20.456", {}, topic, 0, "CreateTime"),
    ]


def test_kafka_table_reads_key_format_prefix_and_fields(kafka: KafkaBroker, topic: str) -> None:
    t_env = local()
    send(
        kafka,
        topic,
        {"key": b'{"id": 7, "part": "x"}', "value": b"1,one"},
        # A message without a key has no row, as in Flink.
        {"value": b"2,two"},
    )
    keys = {"key.format": "json", "key.fields": "k_id;k_part", "key.fields-prefix": "k_", "value.format": "csv"}
    options = {**BOUNDED, **keys, "value.fields-include": "EXCEPT_KEY"}
    declare(t_env, kafka, "t", "k_id INT, n INT, name STRING, k_part STRING", topic, options)
    assert rows(t_env, "SELECT * FROM t") == [(7, 1, "one", "x")]
    # For a column in both, the value's is used.
    shared = {**BOUNDED, **keys, "key.fields": "id;part", "key.fields-prefix": "", "value.fields-include": "ALL"}
    declare(t_env, kafka, "shared", "id INT, part STRING", topic, shared)
    assert rows(t_env, "SELECT * FROM shared WHERE id = 1") == [(1, "one")]


def test_kafka_table_starts_and_stops_at_offsets(kafka: KafkaBroker, t_env: StreamTableEnvironment) -> None:
    topic = new_topic(kafka, 2)
    for n in range(6):
        send(kafka, topic, {"value": str(n).encode(), "partition": 0, "timestamp": 1000 + n})
    send(kafka, topic, {"value": b"9", "partition": 1, "timestamp": 5000})

    def results(**options: str) -> list[int]:
        settings = {k.replace("__", "."): v for k, v in options.items()}
        settings = {f"scan.{k}".replace("_", "-"): v for k, v in settings.items()}
        name = f"t{next(_names)}"
        # A job that ends commits the offsets of its group.
        group = {"properties.group.id": name, "properties.auto.offset.reset": "earliest", "format": "csv"}
        declare(t_env, kafka, name, "n INT", topic, {"scan.bounded.mode": "latest-offset", **group, **settings})
        return sorted(r[0] for r in rows(t_env, f"SELECT * FROM {name}"))

    everything = [0, 1, 2, 3, 4, 5, 9]
    assert results(startup__mode="earliest-offset") == everything
    assert results(startup__mode="latest-offset") == []
    # From the group's committed offsets, and by the client's reset option if there are none.
    assert results() == everything
    assert results(startup__mode="timestamp", startup__timestamp_millis="1004") == [4, 5, 9]
    offsets = "partition:0,offset:3;partition:1,offset:1"
    assert results(startup__mode="specific-offsets", startup__specific_offsets=offsets) == [3, 4, 5]
    ends = {"startup__mode": "earliest-offset", "bounded__mode": "timestamp", "bounded__timestamp_millis": "1002"}
    assert results(**ends) == [0, 1]
    ends = {"startup__mode": "earliest-offset", "bounded__mode": "specific-offsets"}
    assert results(**ends, bounded__specific_offsets="partition:0,offset:2") == [0, 1]


def test_kafka_table_resumes_group_offsets(kafka: KafkaBroker, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    kafka.send(topic, ["1", "2", "3"])
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    t_env = local()
    group = {"properties.group.id": topic, "format": "csv"}
    declare(t_env, kafka, "t", "n INT", topic, {**group, "scan.bounded.mode": "latest-offset"})
    # The committed offsets of the group can also be the end.
    declare(t_env, kafka, "u", "n INT", topic, {**group, **BOUNDED, "scan.bounded.mode": "group-offsets"})
    assert rows(t_env, "SELECT * FROM u") == [(1,), (2,)]
    assert rows(t_env, "SELECT * FROM t") == [(3,)]
    other = {"properties.group.id": "nobody", "format": "csv", "scan.bounded.mode": "latest-offset"}
    declare(t_env, kafka, "v", "n INT", topic, other)
    with pytest.raises(MillstreamError, match="partition 0 of topic .* has no committed offset"):
        rows(t_env, "SELECT * FROM v")


def test_kafka_table_reads_topic_list_pattern_and_new_partitions(kafka: KafkaBroker) -> None:
    first, second = new_topic(kafka), new_topic(kafka)
    kafka.send(first, ["1"])
    kafka.send(second, ["2"])
    t_env = local()
    declare(t_env, kafka, "listed", "n INT", f"{first};{second}", {**BOUNDED, "format": "csv"})
    assert sorted(rows(t_env, "SELECT * FROM listed")) == [(1,), (2,)]
    pattern = {"topic-pattern": f"({first}|{second})", "format": "csv"}
    declare(t_env, kafka, "matching", "n INT, topic STRING METADATA VIRTUAL", None, {**BOUNDED, **pattern})
    assert sorted(rows(t_env, "SELECT * FROM matching")) == [(1, first), (2, second)]
    later = {"scan.startup.mode": "earliest-offset", "scan.topic-partition-discovery.interval": "100 ms"}
    declare(t_env, kafka, "later", "n INT", first, {**later, "format": "csv"})
    with t_env.execute_sql("SELECT * FROM later").collect() as results:
        assert tuple(next(results)) == (1,)
        kafka.add_partitions(first, 2)
        kafka.send(first, ["3"], partition=1)
        assert tuple(next(results)) == (3,)


def test_kafka_table_tracks_watermark_per_partition(kafka: KafkaBroker) -> None:
    topic = new_topic(kafka, 2)
    # In sequence these would be late; in parallel they are not.
    kafka.send(topic, [f"1,2024-01-01 00:00:{s:02}" for s in (1, 11, 21)], partition=0)
    kafka.send(topic, [f"2,2024-01-01 00:00:{s:02}" for s in (2, 12, 22)], partition=1)
    t_env = local()
    columns = "n INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
    declare(t_env, kafka, "t", columns, topic, {**BOUNDED, "format": "csv"})
    query = "SELECT window_start, SUM(n) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY {}"
    results = rows(t_env, query.format("window_start, window_end"))
    assert [n for _, n in sorted(results)] == [3, 3, 3]


def test_kafka_table_reports_or_skips_bad_messages(kafka: KafkaBroker, topic: str) -> None:
    t_env = local()
    kafka.send(topic, ['{"n": 1}', "nonsense", '{"n": 3}'])
    declare(t_env, kafka, "t", "n INT", topic, BOUNDED)
    with pytest.raises(MillstreamError, match=f"offset 1 of partition 0 of topic '{topic}' cannot be read.*nonsense"):
        rows(t_env, "SELECT * FROM t")
    declare(t_env, kafka, "u", "n INT", topic, {**BOUNDED, "json.ignore-parse-errors": "true"})
    assert rows(t_env, "SELECT * FROM u") == [(1,), (3,)]
    batch = local(batch=True)
    declare(batch, kafka, "u", "n INT", topic, {**BOUNDED, "json.ignore-parse-errors": "true"})
    assert rows(batch, "SELECT * FROM u") == [(1,), (3,)]


def test_kafka_table_ignore_parse_errors_is_set_per_key_and_value(kafka: KafkaBroker, topic: str) -> None:
    send(kafka, topic, {"key": '{"k": 1}', "value": "nonsense"}, {"key": "no key", "value": '{"n": 2}'})
    send(kafka, topic, {"key": '{"k": 3}', "value": '{"n": 3}'})
    options = {**BOUNDED, "key.format": "json", "key.fields": "k", "value.format": "json"}
    options["value.fields-include"] = "EXCEPT_KEY"
    t_env = local()
    for name, part in (("t", "value"), ("u", "key")):
        declare(t_env, kafka, name, "k INT, n INT", topic, options)
        advice = f"skip such messages with '{part}.json.ignore-parse-errors' = 'true'"
        with pytest.raises(MillstreamError, match=advice):
            rows(t_env, f"SELECT * FROM {name}")
        options[f"{part}.json.ignore-parse-errors"] = "true"
    declare(t_env, kafka, "v", "k INT, n INT", topic, options)
    assert rows(t_env, "SELECT * FROM v") == [(3, 3)]


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({}, "Property group.id is required when using committed offset"),
        ({"topic-pattern": "x"}, "Option 'topic' and 'topic-pattern' shouldn't be set together."),
        ({"scan.startup.mode": "timestamp"}, "'scan.startup.timestamp-millis' is required in 'timestamp' startup mode"),
        ({"scan.startup.mode": "specific-offsets"}, "'scan.startup.specific-offsets' is required in"),
        (
            {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "0:1"},
            "should follow the format 'partition:0,offset:42;partition:1,offset:300', but is '0:1'",
        ),
        ({"scan.startup.mode": "first"}, "'first' is none of earliest-offset, latest-offset"),
        ({"key.fields": "id"}, "can only be declared if a key format is defined using 'key.format'"),
        ({"key.format": "json"}, "requires the declaration of one or more of key fields using 'key.fields'"),
        ({"key.format": "json", "key.fields": "no"}, "Could not find the field 'no' in the table schema"),
        (
            {"key.format": "json", "key.fields": "id", "key.fields-prefix": "k_", "value.fields-include": "EXCEPT_KEY"},
            "must be prefixed with 'k_'",
        ),
        ({"key.format": "json", "key.fields": "id", "key.fields-prefix": "i"}, "A key prefix is not allowed when"),
        ({"sink.delivery-guarantee": "exactly-once"}, "sink.transactional-id-prefix must be specified"),
        (
            {"sink.partitioner": "round-robin", "key.format": "json", "key.fields": "id"},
            "'round-robin' partitioner only",
        ),
        ({"sink.partitioner": "no.such"}, "Could not find and instantiate partitioner class 'no.such'"),
        ({"topic": "a;b"}, "Metadata column 'topic' must be specified in schema"),
        ({"format": "nope"}, "There is no format 'nope'"),
        ({"json.nope": "1"}, "Unsupported options found for 'kafka'"),
        # Options of a format that the table does not use, and of its own format under another name.
        ({"csv.null-literal": "-"}, "Unsupported options:\\n\\ncsv.null-literal\\n"),
        ({"value.json.ignore-parse-errors": "true"}, "Unsupported options:\\n\\nvalue.json.ignore-parse-errors\\n"),
    ],
)
def test_kafka_table_rejects_options_with_flink_messages(options: dict[str, str], error_text: str) -> None:
    t_env = local()
    valid = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "nowhere:1", "format": "json"}
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in {**valid, **options}.items())
    t_env.execute_sql(f"CREATE TABLE t (id INT) WITH ({listed})")
    # Some are options of the sink, others of the source.
    is_sinks = any(k.startswith("sink.") for k in options) or options.get("topic") == "a;b"
    with pytest.raises(ValidationException, match=error_text):
        t_env.execute_sql("INSERT INTO t VALUES (1)" if is_sinks else "SELECT * FROM t")


def test_kafka_table_rejects_ambiguous_names_and_unbounded_topics() -> None:
    options = "'connector' = 'kafka', 'properties.bootstrap.servers' = 'nowhere:1', 'topic' = 't', 'format' = 'json'"
    options += ", 'scan.startup.mode' = 'earliest-offset'"
    t_env = local(batch=True)
    t_env.execute_sql(f"CREATE TABLE t (`offset` BIGINT, o BIGINT METADATA FROM 'offset' VIRTUAL) WITH ({options})")
    with pytest.raises(ValidationException, match="rename the physical column"):
        t_env.execute_sql("SELECT * FROM t")
    t_env.execute_sql(f"CREATE TABLE u (n BIGINT) WITH ({options})")
    with pytest.raises(MillstreamError, match="BATCH needs bounded sources"):
        t_env.execute_sql("SELECT * FROM u")


def test_kafka_table_rejects_updates_and_key_for_append_only_format() -> None:
    t_env = local()
    options = "'properties.bootstrap.servers' = 'nowhere:1', 'topic' = 't'"
    t_env.execute_sql(
        "CREATE TABLE t (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'kafka', 'format' = 'json', "
        f"'scan.startup.mode' = 'earliest-offset', {options})"
    )
    with pytest.raises(ValidationException, match="doesn't support defining PRIMARY KEY constraint on the table"):
        t_env.execute_sql("SELECT * FROM t")
    t_env.execute_sql(f"CREATE TABLE s (n BIGINT) WITH ('connector' = 'kafka', 'format' = 'json', {options})")
    with pytest.raises(TableException, match="doesn't support consuming update changes"):
        t_env.execute_sql("INSERT INTO s SELECT COUNT(*) FROM (VALUES 1, 2) AS t(a)")
    formats = "'key.format' = 'json', 'value.format' = 'json'"
    t_env.execute_sql(f"CREATE TABLE u (n BIGINT) WITH ('connector' = 'upsert-kafka', {formats}, {options})")
    with pytest.raises(ValidationException, match="'upsert-kafka' tables require to define a PRIMARY KEY constraint"):
        t_env.execute_sql("SELECT * FROM u")
    formats = "'key.format' = 'json', 'value.format' = 'debezium-json'"
    t_env.execute_sql(
        "CREATE TABLE v (n INT, PRIMARY KEY (n) NOT ENFORCED) "
        f"WITH ('connector' = 'upsert-kafka', {formats}, {options})"
    )
    with pytest.raises(ValidationException, match="doesn't support 'debezium-json' as value format"):
        t_env.execute_sql("SELECT * FROM v")


# --- writing


class ByValue(KafkaPartitioner):
    def partition(self, key: Any, value: Any, topic: str, partitions: Any) -> int:
        return int(partitions[int(json.loads(value)["id"]) % len(partitions)])


def test_kafka_table_writes_keys_headers_and_timestamps(kafka: KafkaBroker, topic: str) -> None:
    t_env = local()
    columns = """
        headers MAP<STRING, BYTES> METADATA, id INT, name STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
        o BIGINT METADATA FROM 'offset' VIRTUAL"""
    options = {"key.format": "raw", "key.fields": "name", "value.format": "json", "value.fields-include": "EXCEPT_KEY"}
    declare(t_env, kafka, "t", columns, topic, options)
    t_env.execute_sql(
        "INSERT INTO t (id, name, ts, headers) VALUES "
        "(1, 'a', TO_TIMESTAMP_LTZ(1700000000123, 3), MAP['h', ENCODE('v', 'UTF-8')]), "
        "(2, 'b', TO_TIMESTAMP_LTZ(1700000000456, 3), CAST(NULL AS MAP<STRING, BYTES>))"
    ).wait()
    results = sorted((m.key(), m.value(), m.timestamp(), m.headers()) for m in read(kafka, topic))
    assert results == [
        (b"a", b'{"id":1}', (1, 1_700_000_000_123), [("h", b"v")]),
        (b"b", b'{"id":2}', (1, 1_700_000_000_456), None),
    ]
    # The client interprets 0 as now, so the nearest value is written.
    more = "(3, 'c', CAST(NULL AS TIMESTAMP_LTZ(3))), (4, 'd', TO_TIMESTAMP_LTZ(0, 3))"
    t_env.execute_sql(f"INSERT INTO t (id, name, ts) VALUES {more}").wait()
    now, epoch = (next(m for m in read(kafka, topic) if m.key() == key).timestamp()[1] for key in (b"c", b"d"))
    assert abs(now - time.time() * 1000) < 600_000 and epoch == 1
    with pytest.raises(Exception, match="has the timestamp -5 ms .* before 1970"):
        t_env.execute_sql("INSERT INTO t (id, name, ts) VALUES (5, 'e', TO_TIMESTAMP_LTZ(-5, 3))").wait()


def test_kafka_table_sink_partitioner_selects_partition(kafka: KafkaBroker) -> None:
    t_env = local(parallelism=2)
    written = "INSERT INTO {} SELECT id FROM (VALUES (1), (2), (3), (4), (5), (6)) AS v(id)"
    for name, partitioner, counts in (
        ("round", "round-robin", [2, 2, 2]),
        ("fixed", "fixed", [6, 0, 0]),
        ("mine", f"{__name__}.ByValue", [2, 2, 2]),
    ):
        topic = new_topic(kafka, 3)
        declare(t_env, kafka, name, "id INT", topic, {"sink.partitioner": partitioner, "sink.parallelism": "1"})
        t_env.execute_sql(written.format(name)).wait()
        results = Counter(m.partition() for m in read(kafka, topic))
        assert [results[i] for i in range(3)] == counts, name
    # The rows of the last partition follow from their values.
    assert {(m.partition(), json.loads(m.value())["id"] % 3) for m in read(kafka, topic)} == {(0, 0), (1, 1), (2, 2)}


def test_kafka_table_writes_topic_from_metadata(kafka: KafkaBroker) -> None:
    first, second = new_topic(kafka), new_topic(kafka)
    t_env = local()
    declare(t_env, kafka, "t", "id INT, topic STRING METADATA", f"{first};{second}", {})
    t_env.execute_sql(f"INSERT INTO t VALUES (1, '{first}'), (2, '{second}')").wait()
    assert [kafka.read(first), kafka.read(second)] == [[b'{"id":1}'], [b'{"id":2}']]
    with pytest.raises(MillstreamError, match="The topic of the sink record is not valid"):
        t_env.execute_sql("INSERT INTO t VALUES (1, 'another')").wait()


def test_kafka_table_reads_and_writes_changelog_formats(kafka: KafkaBroker) -> None:
    for name in ("debezium-json", "canal-json", "maxwell-json"):
        topic, t_env = new_topic(kafka), local()
        declare(t_env, kafka, "t", "k INT, n BIGINT", topic, {**BOUNDED, "format": name})
        t_env.execute_sql("INSERT INTO t SELECT k, COUNT(*) FROM (VALUES (1), (2), (1)) AS v(k) GROUP BY k").wait()
        assert left(changes(t_env, "SELECT * FROM t")) == Counter({(1, 2): 1, (2, 1): 1})
    reported = b'{"before":null,"after":{"k":1},"op":"c","ts_ms":5000,"source":{"db":"shop","schema":"s","table":"o"}}'
    topic, t_env = new_topic(kafka), local()
    send(kafka, topic, {"value": reported})
    columns = """
        k INT, made TIMESTAMP_LTZ(3) METADATA FROM 'value.ingestion-timestamp' VIRTUAL,
        db STRING METADATA FROM 'value.source.database' VIRTUAL, o STRING METADATA FROM 'value.source.table' VIRTUAL,
        p MAP<STRING, STRING> METADATA FROM 'value.source.properties' VIRTUAL, `offset` BIGINT METADATA VIRTUAL"""
    declare(t_env, kafka, "t", columns, topic, {**BOUNDED, "format": "debezium-json"})
    everything = {"db": "shop", "schema": "s", "table": "o"}
    results = rows(t_env, "SELECT k, CAST(made AS STRING), db, o, p, `offset` FROM t")
    assert results == [(1, "1970-01-01 00:00:05.000", "shop", "o", everything, 0)]


def test_kafka_table_reads_and_writes_avro_with_registry(kafka: KafkaBroker) -> None:
    columns = "id INT NOT NULL, name STRING, price DECIMAL(8, 2), made TIMESTAMP(3), tags ARRAY<STRING>"
    values = "(1, 'a', 1.25, TIMESTAMP '2024-02-03 04:05:06.789', ARRAY['x', 'y']), (2, CAST(NULL AS STRING), "
    values += "CAST(NULL AS DECIMAL(8, 2)), CAST(NULL AS TIMESTAMP(3)), CAST(NULL AS ARRAY<STRING>))"
    with registry_server() as registry:
        for name in ("avro", "avro-confluent", "debezium-avro-confluent"):
            topic, t_env = new_topic(kafka), local()
            url = {} if name == "avro" else {f"{name}.url": registry.url}
            declare(t_env, kafka, "t", columns, topic, {**BOUNDED, "format": name, **url})
            t_env.execute_sql(f"INSERT INTO t VALUES {values}").wait()
            results = rows(t_env, "SELECT id, name, price, CAST(made AS STRING), tags FROM t ORDER BY id LIMIT 9")
            text = [(i, n, None if p is None else str(p), a, g) for i, n, p, a, g in results]
            assert text[-2:] == [
                (1, "a", "1.25", "2024-02-03 04:05:06.789", ["x", "y"]),
                (2, None, None, None, None),
            ]
            if url:
                # Under the subject of the topic's values.
                assert f"{topic}-value" in registry.subjects
        send(kafka, topic, {"value": b"nonsense"})
        with pytest.raises(MillstreamError, match="does not begin with a schema id"):
            rows(t_env, "SELECT * FROM t")


def test_kafka_table_exactly_once_is_visible_to_read_committed(kafka: KafkaBroker, topic: str) -> None:
    t_env = local()
    t_env.get_config().set("execution.checkpointing.interval", "100 ms")
    options = {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": topic}
    declare(t_env, kafka, "t", "id BIGINT", topic, options)
    t_env.execute_sql(
        "CREATE TABLE g (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '100', "
        "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '100')"
    )
    t_env.execute_sql("INSERT INTO t SELECT id FROM g").wait()
    assert sorted(json.loads(v)["id"] for v in kafka.read(topic, committed=True)) == list(range(1, 101))


# --- upserts


def upserts(t_env: StreamTableEnvironment, kafka: KafkaBroker, name: str, topic: str, **options: str) -> None:
    settings = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    formats = {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
    columns = "id INT, name STRING, n BIGINT, PRIMARY KEY (id) NOT ENFORCED"
    declare(t_env, kafka, name, columns, topic, {**formats, "scan.bounded.mode": "latest-offset", **settings})


def test_upsert_kafka_reads_last_value_and_tombstone(
    kafka: KafkaBroker, topic: str, t_env: StreamTableEnvironment
) -> None:
    one, two = b'{"id":1}', b'{"id":2}'
    send(
        kafka,
        topic,
        {"key": one, "value": b'{"id":1,"name":"a","n":1}'},
        {"key": two, "value": b'{"id":2,"name":"b","n":1}'},
        {"key": one, "value": b'{"id":1,"name":"a","n":2}'},
        {"key": two},
        {"key": b'{"id":3}'},
        {"key": two, "value": b'{"id":2,"name":"c","n":5}'},
    )
    upserts(t_env, kafka, "t", topic)
    assert changes(t_env, "SELECT * FROM t") == [
        ("+I", (1, "a", 1)),
        ("+I", (2, "b", 1)),
        ("-U", (1, "a", 1)),
        ("+U", (1, "a", 2)),
        ("-D", (2, "b", 1)),
        ("+I", (2, "c", 5)),
    ]
    assert left(changes(t_env, "SELECT SUM(n), COUNT(*) FROM t")) == Counter({(7, 2): 1})
    upserts(t_env, kafka, "except_key", topic, value__fields_include="EXCEPT_KEY")
    assert left(changes(t_env, "SELECT * FROM except_key")) == Counter({(1, "a", 2): 1, (2, "c", 5): 1})


def test_upsert_kafka_writes_upserts_and_tombstones(kafka: KafkaBroker) -> None:
    for buffer in ({}, {"sink__buffer_flush__max_rows": "1000", "sink__buffer_flush__interval": "60 s"}):
        topic, out, t_env = new_topic(kafka), new_topic(kafka), local()
        declare(t_env, kafka, "changed", "id INT, n INT", topic, {**BOUNDED, "format": "debezium-json"})
        columns = "id INT, total BIGINT, PRIMARY KEY (id) NOT ENFORCED"
        formats = {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
        settings = {k.replace("__", ".").replace("_", "-"): v for k, v in buffer.items()}
        declare(t_env, kafka, "t", columns, out, {**formats, "scan.bounded.mode": "latest-offset", **settings})
        kafka.send(
            topic,
            [
                '{"before":null,"after":{"id":1,"n":1},"op":"c"}',
                '{"before":null,"after":{"id":2,"n":1},"op":"c"}',
                '{"before":{"id":1,"n":1},"after":{"id":1,"n":5},"op":"u"}',
                '{"before":{"id":2,"n":1},"after":null,"op":"d"}',
            ],
        )
        t_env.execute_sql("INSERT INTO t SELECT id, SUM(n) FROM changed GROUP BY id").wait()
        messages = [(m.key(), m.value()) for m in read(kafka, out)]
        # Regardless of the intermediate messages, this is the final content of a compacted log.
        assert dict(messages) == {b'{"id":1}': b'{"id":1,"total":5}', b'{"id":2}': None}
        assert len(messages) == 2 if buffer else len(messages) > 2
        assert left(changes(t_env, "SELECT * FROM t")) == Counter({(1, 5): 1})


def test_upsert_kafka_buffer_requires_both_options(kafka: KafkaBroker, t_env: StreamTableEnvironment) -> None:
    upserts(t_env, kafka, "t", "nowhere", sink__buffer_flush__max_rows="5")
    with pytest.raises(ValidationException, match="must be set to be greater than zero together"):
        t_env.execute_sql("INSERT INTO t VALUES (1, 'a', 1)")


# --- on Spark


def test_kafka_table_counts_into_another_topic_on_spark(kafka: KafkaBroker, env: Env) -> None:
    topic, out = new_topic(kafka, 3), new_topic(kafka, 2)
    for partition in range(3):
        kafka.send(topic, [json.dumps({"id": i, "name": f"n{i % 5}"}) for i in range(200)], partition=partition)
    env.set_parallelism(2)
    t_env = StreamTableEnvironment.create(env)
    declare(t_env, kafka, "t", "id INT, name STRING", topic, BOUNDED)
    columns = "name STRING, total BIGINT, PRIMARY KEY (name) NOT ENFORCED"
    formats = {"connector": "upsert-kafka", "key.format": "raw", "value.format": "json"}
    declare(t_env, kafka, "u", columns, out, {**formats, "scan.bounded.mode": "latest-offset"})
    t_env.execute_sql("INSERT INTO u SELECT name, COUNT(*) FROM t GROUP BY name").wait()
    last = {m.key(): json.loads(m.value())["total"] for m in read(kafka, out)}
    assert last == {f"n{i}".encode(): 120 for i in range(5)}


def test_cookbook_program_runs_on_spark(
    kafka: KafkaBroker, postgres: PostgresServer, env: Env, capsys: pytest.CaptureFixture[str]
) -> None:
    import psycopg

    from tests.support.cookbook_runs import customers_and_orders  # type: ignore[attr-defined]

    customers_and_orders.run(StreamTableEnvironment.create(env.set_parallelism(2)), postgres, kafka)
    promised = (customers_and_orders.__doc__ or "").partition("Expected output:")[2]
    assert capsys.readouterr().out.splitlines() == [line.strip() for line in promised.strip().splitlines()]
    with psycopg.connect(postgres.conninfo(), autocommit=True) as connection:
        slot = "FROM pg_replication_slots WHERE slot_name = 'customers'"
        wait_until(lambda: not connection.execute(f"SELECT 1 {slot} AND active").fetchall(), description="no reader")
        connection.execute(f"SELECT pg_drop_replication_slot(slot_name) {slot}")


def test_cookbook_program_is_exactly_once_after_kills(kafka: KafkaBroker, postgres: PostgresServer) -> None:
    from tests.support.cookbook_runs import Shop

    shop = Shop(postgres, kafka, "local", 1)
    try:
        shop.change(60)
        for _ in range(2):
            shop.start()
            # From then on, changes continue, and the job is killed meanwhile.
            shop.await_right(90)
            shop.change(60)
            shop.kill()
            shop.change(30)
        shop.start()
        shop.await_right(90)
    finally:
        shop.close()

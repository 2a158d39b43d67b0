"""Kafka, with a real broker."""

from __future__ import annotations

import gc
import itertools
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka.partitioner import DefaultPartitioner

from millstream.common import Configuration, Duration, JobClient, Row, SimpleStringSchema, Types, WatermarkStrategy
from millstream.common.errors import InvalidProgramError
from millstream.common.run_ids import new_run_id, run_id
from millstream.common.serialization import SerializationSchema
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.connectors.kafka import client as kafka_client
from millstream.connectors.kafka.client import KafkaFailure
from millstream.connectors.kafka.producer import Transaction
from millstream.connectors.kafka.protocol import Coordinators
from millstream.datastream import OutputTag, ProcessFunction
from millstream.datastream.connectors.base import BadRecords, CommitContext, DeliveryGuarantee
from millstream.datastream.connectors.dynamic_kafka import DynamicKafkaSource, SingleClusterTopicMetadataService
from millstream.datastream.connectors.kafka import (
    FlinkKafkaConsumer,
    FlinkKafkaProducer,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
    Semantic,
)
from millstream.datastream.formats.avro import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
)
from millstream.datastream.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from millstream.testing import LocalEnvironment
from millstream.testing.servers.kafka import KafkaBroker
from tests.conftest import Env
from tests.support.chaos import runtime_context
from tests.support.helpers import BreaksOnce, job_of, wait_until
from tests.support.kafka_reader import committed_records, read_committed, waits
from tests.support.schema_registry import registry_server

_names = itertools.count()
NONE = WatermarkStrategy.no_watermarks()
# The value of a record whose transaction is never committed.
NEVER = b"never"


@pytest.fixture
def local() -> LocalEnvironment:
    """A local environment, for connector behaviour that is the same on Spark."""
    return LocalEnvironment()


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    name = f"topic-{next(_names)}"
    kafka.create_topic(name, 3)
    return name


def reading(kafka: KafkaBroker, topic: str) -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap).set_topics(topic)
    return builder.set_value_only_deserializer(SimpleStringSchema())


def bounded(kafka: KafkaBroker, topic: str) -> KafkaSource:
    return reading(kafka, topic).set_bounded(KafkaOffsetsInitializer.latest()).build()


def writing(kafka: KafkaBroker, topic: str, guarantee: DeliveryGuarantee) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap).set_delivery_guarantee(guarantee)
    return (
        builder.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        .set_transactional_id_prefix(topic)
        .build()
    )


def test_kafka_source_reads_each_record_once(env: Env, kafka: KafkaBroker, topic: str) -> None:
    kafka.send(topic, [str(i) for i in range(5000)])
    results = list(env.from_source(bounded(kafka, topic), NONE, "kafka").map(int).execute_and_collect())
    assert sorted(results) == list(range(5000))


def test_kafka_source_starts_at_startup_offsets(local: LocalEnvironment, kafka: KafkaBroker, topic: str) -> None:
    kafka.send(topic, [f"a{i}" for i in range(3)], partition=0)
    time.sleep(0.01)
    now = int(time.time() * 1000)
    time.sleep(0.01)
    kafka.send(topic, [f"b{i}" for i in range(3)], partition=0)
    kafka.send(topic, ["c"], partition=1)

    def read(start: KafkaOffsetsInitializer, group: str = "starts") -> list[str]:
        source = reading(kafka, topic).set_group_id(group).set_starting_offsets(start)
        built = source.set_bounded(KafkaOffsetsInitializer.latest()).build()
        return sorted(local.from_source(built, NONE, "kafka").execute_and_collect())

    assert read(KafkaOffsetsInitializer.earliest()) == ["a0", "a1", "a2", "b0", "b1", "b2", "c"]
    assert read(KafkaOffsetsInitializer.latest()) == []
    assert read(KafkaOffsetsInitializer.timestamp(now)) == ["b0", "b1", "b2", "c"]
    offsets = {KafkaTopicPartition(topic, 0): 5}
    assert read(KafkaOffsetsInitializer.offsets(offsets)) == ["b2", "c"]
    assert read(KafkaOffsetsInitializer.offsets(offsets, KafkaOffsetResetStrategy.LATEST)) == ["b2"]
    with pytest.raises(KafkaFailure, match="has no committed offset"):
        read(KafkaOffsetsInitializer.committed_offsets(), "nobody")
    assert len(read(KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST), "nobody")) == 7


def test_kafka_source_assigns_kafka_timestamps(local: LocalEnvironment, kafka: KafkaBroker, topic: str) -> None:
    kafka.send(topic, ["1000", "5000"], partition=0)
    kafka.send(topic, ["2000"], partition=1)

    class Stamped(TimestampAssigner):
        def extract_timestamp(self, value: str, record_timestamp: int) -> int:
            assert abs(record_timestamp - time.time() * 1000) < 600_000
            return int(value)

    class Seen(ProcessFunction):
        def process_element(self, value: str, ctx: ProcessFunction.Context) -> Any:
            yield value, ctx.timestamp()

    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamped())
    source = bounded(kafka, topic)
    results = list(local.from_source(source, strategy, "kafka").process(Seen()).execute_and_collect())
    assert sorted(results) == [("1000", 1000), ("2000", 2000), ("5000", 5000)]


def test_kafka_sink_writes_record_timestamps(env: Env, kafka: KafkaBroker, topic: str) -> None:
    """After a shuffle, and from Kafka to Kafka, where the sink preserves the timestamps of records."""
    kafka.create_topic(f"{topic}-out")
    first = 1_700_000_000_000
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Named())
    stream = env.from_collection([str(first + i) for i in range(20)]).assign_timestamps_and_watermarks(strategy)
    stream.key_by(lambda v: v[-1]).map(str.strip).sink_to(writing(kafka, topic, DeliveryGuarantee.EXACTLY_ONCE))
    env.execute()
    stream = env.from_source(bounded(kafka, topic), NONE, "kafka").map(str.strip)
    stream.sink_to(writing(kafka, f"{topic}-out", DeliveryGuarantee.AT_LEAST_ONCE))
    env.execute()
    for name in (topic, f"{topic}-out"):
        records = [(int(r.value), r.timestamp) for r in committed_records(kafka.bootstrap, name)]
        assert sorted(records) == [(first + i, first + i) for i in range(20)]


def test_kafka_sink_writes_current_time_without_timestamp(kafka: KafkaBroker, topic: str) -> None:
    def written(sink: KafkaSink, *values: int, stamped: bool = True) -> dict[int, int]:
        env, already = LocalEnvironment(), len(committed_records(kafka.bootstrap, topic))
        stream = env.from_collection([str(value) for value in values])
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Named())
        (stream.assign_timestamps_and_watermarks(strategy) if stamped else stream).sink_to(sink)
        env.execute()
        records = committed_records(kafka.bootstrap, topic)
        assert len(records) == already + len(values)
        return {int(record.value): record.timestamp for record in records}

    sink = writing(kafka, topic, DeliveryGuarantee.AT_LEAST_ONCE)
    before = int(time.time() * 1000)
    # The client interprets 0 as now, so the nearest value is written.
    results = written(sink, -1, 0, 7)
    assert results[-1] >= before and (results[0], results[7]) == (1, 7)
    assert written(sink, 8, stamped=False)[8] >= before
    # The timestamp of a window without end.
    assert written(sink, (1 << 63) - 1)[(1 << 63) - 1] >= before
    where = {"bootstrap.servers": kafka.bootstrap}
    assert written(FlinkKafkaProducer(topic, SimpleStringSchema(), where), 9)[9] >= before
    old = FlinkKafkaProducer(topic, SimpleStringSchema(), where)
    assert written(old.set_write_timestamp_to_kafka(True), 10)[10] == 10
    # A timestamp after the year 9999 counts as none; one beyond the broker's bound is rejected.
    assert written(sink, 253_402_300_800_000)[253_402_300_800_000] >= before
    with pytest.raises(Exception, match=f"Invalid timestamp of b.{before + 10**10}.*after.max.ms"):
        written(sink, before + 10**10)


@pytest.mark.parametrize("defect", ["timestamp", "size"])
def test_kafka_sink_fails_job_without_restart_when_kafka_rejects_record(
    kafka: KafkaBroker, topic: str, defect: str
) -> None:
    env = LocalEnvironment()
    env.enable_checkpointing(1000)
    value = str(int(time.time() * 1000) + 10**10) if defect == "timestamp" else "1" * 2_000_000
    stream = env.from_collection([value])
    if defect == "timestamp":
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Named())
        stream = stream.assign_timestamps_and_watermarks(strategy)
    stream.sink_to(writing(kafka, topic, DeliveryGuarantee.EXACTLY_ONCE))
    client = env.execute_async()
    with pytest.raises(
        Exception, match="Invalid timestamp of" if defect == "timestamp" else "a record of 2,000,000 byte"
    ):
        client.get_job_execution_result().result(60)
    assert job_of(client).view.restarts == 0


def read_locally(source: KafkaSourceBuilder) -> list[Any]:
    """Read in this process."""
    return list(LocalEnvironment().from_source(source.build(), NONE, "kafka").execute_and_collect())


def test_kafka_source_reads_selected_partitions(kafka: KafkaBroker, topic: str) -> None:
    for partition in range(3):
        kafka.send(topic, [f"{partition}"], partition)
    source = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap)
    source.set_partitions({KafkaTopicPartition(topic, 0), KafkaTopicPartition(topic, 2)})
    source.set_value_only_deserializer(SimpleStringSchema()).set_bounded(KafkaOffsetsInitializer.latest())
    assert sorted(read_locally(source)) == ["0", "2"]
    missing = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap)
    missing.set_partitions({KafkaTopicPartition(topic, 3)}).set_value_only_deserializer(SimpleStringSchema())
    with pytest.raises(KafkaFailure, match=f"has no partition 3 of topic '{topic}'"):
        read_locally(missing)


def test_kafka_source_stops_at_bounded_offsets(kafka: KafkaBroker, topic: str) -> None:
    kafka.send(topic, ["a", "b", "c"], partition=0)
    kafka.send(topic, ["d"], partition=1)
    ends = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 2}, KafkaOffsetResetStrategy.EARLIEST)
    assert read_locally(reading(kafka, topic).set_bounded(ends)) == ["a", "b"]
    assert read_locally(reading(kafka, topic).set_unbounded(ends)) == ["a", "b"]
    assert not reading(kafka, topic).set_unbounded(ends).build().is_bounded
    later = KafkaOffsetsInitializer.timestamp(int(time.time() * 1000) + 3_600_000)
    assert sorted(read_locally(reading(kafka, topic).set_bounded(later))) == ["a", "b", "c", "d"]


def test_kafka_source_restore_resolves_missing_end_offsets(kafka: KafkaBroker, topic: str) -> None:
    kafka.send(topic, ["a", "b"], partition=0)

    def left(source: KafkaSourceBuilder, restored: Any) -> tuple[Any, bool, Any]:
        """Return the assigned split ranges, whether all are assigned, and the position after them."""
        enumerator = source.build().create_enumerator(1, restored)
        try:
            split_ranges = enumerator.poll(1000, 0.0).split_ranges.get(0, [])
            return [(s[1:4]) for s in split_ranges if s[2] < s[3]], enumerator.is_finished(), enumerator.snapshot()
        finally:
            enumerator.close()

    endless, latest = reading(kafka, topic), KafkaOffsetsInitializer.latest()
    split_ranges, finished, position = left(endless, None)
    assert (split_ranges, finished) == ([(0, 0, 2)], False)
    kafka.send(topic, ["c"], partition=0)
    split_ranges, finished, ended = left(reading(kafka, topic).set_bounded(latest), position)
    assert (split_ranges, finished) == ([(0, 2, 3)], True)
    kafka.send(topic, ["d"], partition=0)
    assert left(reading(kafka, topic).set_bounded(latest), ended)[:2] == ([], True)
    assert left(endless, ended)[:2] == ([(0, 3, 4)], False)


def test_kafka_source_reports_pending_records(kafka: KafkaBroker, topic: str) -> None:
    kafka.send(topic, [str(i) for i in range(10)], partition=0)
    kafka.send(topic, ["x"], partition=1)
    enumerator = reading(kafka, topic).build().create_enumerator(1)
    try:
        assignment = enumerator.poll(8, 0.0)
        assert assignment.limited and assignment.unassigned == {0: 6}
        assert enumerator.poll(1000, 0.0).unassigned == {0: 0}
    finally:
        enumerator.close()


def test_kafka_source_reads_uncommitted_only_if_configured(kafka: KafkaBroker, topic: str) -> None:
    producer = _producer(kafka, f"{topic}-other")
    producer.init_transactions(30)
    for value, end in (b"committed", producer.commit_transaction), (b"aborted", producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(10)
        end(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(10)

    def read(level: str) -> list[str]:
        source = reading(kafka, topic).set_property("isolation.level", level)
        return read_locally(source.set_bounded(KafkaOffsetsInitializer.latest()))

    assert read("read_uncommitted") == ["committed", "aborted", "open"]
    assert read("read_committed") == ["committed"]
    producer.commit_transaction(30)
    assert read("read_committed") == ["committed", "open"]


def test_kafka_sink_partitions_keys_like_java_client(kafka: KafkaBroker, topic: str) -> None:
    class Key(SerializationSchema):
        def serialize(self, element: Any) -> bytes:
            return str(element)[0].encode()

    schema = KafkaRecordSerializationSchema.builder().set_topic(topic).set_key_serialization_schema(Key())
    for guarantee in DeliveryGuarantee:
        sink = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap).set_delivery_guarantee(guarantee)
        sink.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        env = LocalEnvironment()
        values = env.from_collection([f"{key} {guarantee.name}" for key in "abcdef"])
        values.sink_to(sink.set_transactional_id_prefix(topic).build())
        env.execute()
    records = committed_records(kafka.bootstrap, topic)
    partitions = dict(zip((b"a", b"b", b"c", b"d", b"e", b"f"), (1, 2, 1, 2, 2, 0), strict=True))
    # By murmur2, which kafka-python implements, too.
    assert {DefaultPartitioner()(key, range(3), range(3)) == partition for key, partition in partitions.items()} == {
        True
    }
    expected = [(partitions[key], key, key + f" {g.name}".encode()) for key in partitions for g in DeliveryGuarantee]
    assert Counter((r.partition, r.key, r.value) for r in records) == Counter(expected)


def test_kafka_sink_reports_transaction_aborted_by_broker(kafka: KafkaBroker, topic: str) -> None:
    committer = writing(kafka, topic, DeliveryGuarantee.EXACTLY_ONCE).create_committer(CommitContext("a" * 32, "sink"))
    assert committer is not None
    name = f"{topic}-{'a' * 32}-sink-0-1-run.0.x.1"
    _open(_producer(kafka, name), topic)
    host, port = kafka.bootstrap.split(":")
    with closing(Coordinators({}, lambda: [(host, int(port))])) as coordinators:
        known = coordinators.state(name)
    assert known is not None and known.state == "Ongoing"
    # A producer with the same id ends the transaction, as another job with the prefix does, or Kafka after its timeout.
    _producer(kafka, name).init_transactions(30)
    try:
        with pytest.raises(KafkaFailure, match=rf"{name} cannot be committed any more, .*transaction\.timeout\.ms"):
            committer.commit([(0, Transaction(name, known.producer_id, known.epoch))])
    finally:
        committer.close()


def test_kafka_sink_transactional_producers_are_idle_and_released(kafka: KafkaBroker, topic: str) -> None:
    process = psutil.Process()
    writer = writing(kafka, topic, DeliveryGuarantee.EXACTLY_ONCE).create_writer(runtime_context())
    before = process.num_threads()
    gc.disable()
    try:
        for number in range(16):
            writer.begin(f"waiting-{number}")
            writer.write("x")
            assert writer.prepare_commit(True) is not None
        # Nine that may not be committed yet and the next one, each with some threads.
        wait_until(lambda: process.num_threads() - before <= 40, 30)
        held = process.memory_info().rss
        time.sleep(3)
        assert process.memory_info().rss - held < 4 << 20
    finally:
        gc.enable()
        writer.close()


class Watermarks(ProcessFunction):
    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Any:
        yield f"{value}@{ctx.timer_service().current_watermark()}"


class Named(TimestampAssigner):
    def extract_timestamp(self, value: str, record_timestamp: int) -> int:
        return int(value)


def test_kafka_source_watermark_waits_for_slowest_partition(env1: Env, kafka: KafkaBroker, topic: str) -> None:
    out = f"{topic}-out"
    kafka.create_topic(out)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Named())
    stream = env1.from_source(reading(kafka, topic).build(), strategy, "kafka").process(Watermarks())
    stream.sink_to(writing(kafka, out, DeliveryGuarantee.AT_LEAST_ONCE))
    job = env1.execute_async()

    def after(*sent: tuple[int, str]) -> str:
        for partition, value in sent:
            already = len(kafka.read(out))
            kafka.send(topic, [value], partition=partition)
            wait_until(lambda: len(kafka.read(out)) == already + 1)  # noqa: B023
        return kafka.read(out)[-1].decode()

    try:
        assert after((0, "5000"), (1, "7000"), (0, "6000")) == f"6000@{-(1 << 63)}"
        assert after((2, "100"), (0, "8000")) == "8000@99"
        assert after((2, "9000"), (1, "9001")) == "9001@6999"
    finally:
        job.cancel().result()


def test_kafka_source_alignment_pauses_partition_that_is_ahead(env1: Env, kafka: KafkaBroker, topic: str) -> None:
    kafka.create_topic(f"{topic}-two", 2)
    out = f"{topic}-out"
    kafka.create_topic(out)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Named())
    aligned = strategy.with_watermark_alignment("group", Duration.of_millis(1000))
    stream = env1.from_source(reading(kafka, f"{topic}-two").build(), aligned, "kafka")
    stream.sink_to(writing(kafka, out, DeliveryGuarantee.AT_LEAST_ONCE))
    job = env1.execute_async()

    def after(partition: int, value: str) -> None:
        kafka.send(f"{topic}-two", [value], partition=partition)
        wait_until(lambda: value.encode() in kafka.read(out))

    try:
        after(0, "0")
        after(1, "1")
        after(0, "100000")
        kafka.send(f"{topic}-two", ["200000"], partition=0)
        time.sleep(1)
        after(1, "2")
        assert b"200000" not in kafka.read(out)
        after(1, "99500")
        wait_until(lambda: b"200000" in kafka.read(out))
    finally:
        job.cancel().result()


def test_flink_kafka_consumer_and_producer_read_and_write(env: Env, kafka: KafkaBroker, topic: str) -> None:
    kafka.send(topic, ["a", "b"])
    out = f"{topic}-out"
    kafka.create_topic(out)
    where = {"bootstrap.servers": kafka.bootstrap, "group.id": out, "auto.offset.reset": "earliest"}
    for start in ("group_offsets", "earliest"):
        source = FlinkKafkaConsumer(topic, SimpleStringSchema(), where)
        getattr(source, f"set_start_from_{start}")()
        semantic = Semantic.AT_LEAST_ONCE if start == "earliest" else Semantic.EXACTLY_ONCE
        sink = FlinkKafkaProducer(out, SimpleStringSchema(), {"bootstrap.servers": kafka.bootstrap}, semantic=semantic)
        env.enable_checkpointing(100)
        env.add_source(source).map(lambda v, start=start: f"{v} {start}").add_sink(sink)  # type: ignore[misc]
        job = env.execute_async()
        try:
            wait_until(lambda: {f"a {start}".encode(), f"b {start}".encode()} <= set(kafka.read(out)))  # noqa: B023
        finally:
            job.cancel().result()


def test_kafka_source_schema_reads_keys_headers_and_offsets(
    local: LocalEnvironment, kafka: KafkaBroker, topic: str
) -> None:
    class Whole(KafkaRecordDeserializationSchema):
        def deserialize(self, record: KafkaRecord) -> Any:
            return record.key, record.value, record.partition, record.offset, record.headers

    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"v", b"k", 2, headers=[("h", b"1"), ("h", None)])
    producer.produce(topic, None, b"k", 2)
    producer.produce(topic, b"", None, 2)
    producer.flush(10)
    source = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap).set_deserializer(Whole())
    built = source.set_topic_pattern(f"{topic}.*").set_bounded(KafkaOffsetsInitializer.latest()).build()
    headers = (("h", b"1"), ("h", None))
    records = [(b"k", b"v", 2, 0, headers), (b"k", None, 2, 1, ()), (None, b"", 2, 2, ())]
    assert list(local.from_source(built, NONE, "kafka").execute_and_collect()) == records
    # Value-only deserializers skip records without a value, such as tombstones.
    assert list(local.from_source(bounded(kafka, topic), NONE, "kafka").execute_and_collect()) == ["v", ""]


def test_kafka_dynamic_source_reads_streams_by_name(local: LocalEnvironment, kafka: KafkaBroker, topic: str) -> None:
    kafka.send(topic, ["a", "b"])
    service = SingleClusterTopicMetadataService("main", {"bootstrap.servers": kafka.bootstrap})
    for choose in ({"stream_ids": {topic}}, {"stream_pattern": f"{topic}.*"}):
        builder = DynamicKafkaSource.builder().set_kafka_metadata_service(service)
        builder = getattr(builder, f"set_{next(iter(choose))}")(*choose.values())
        builder.set_deserializer(KafkaRecordDeserializationSchema.value_only(SimpleStringSchema()))
        source = builder.set_bounded(KafkaOffsetsInitializer.latest()).build()
        assert sorted(local.from_source(source, NONE, "kafka").execute_and_collect()) == ["a", "b"]
    with pytest.raises(InvalidProgramError, match="set_kafka_metadata_service"):
        DynamicKafkaSource.builder().set_stream_ids({"a"}).build()


def test_kafka_json_schemas_read_and_write(local: LocalEnvironment, kafka: KafkaBroker, topic: str) -> None:
    row = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
    out = JsonRowSerializationSchema.builder().with_type_info(row).build()
    schema = KafkaRecordSerializationSchema.builder().set_topic_selector(lambda r: topic)
    sink = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap)
    sink.set_record_serializer(schema.set_value_serialization_schema(out).build())
    sink.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
    local.from_collection([Row(name="a", n=1), Row(name="b", n=2)], row).sink_to(sink.build())
    local.execute()
    back = JsonRowDeserializationSchema.builder().type_info(row).build()
    source = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap).set_topics(topic)
    built = source.set_value_only_deserializer(back).set_bounded(KafkaOffsetsInitializer.latest()).build()
    results = list(local.from_source(built, NONE, "kafka").execute_and_collect())
    assert sorted(results, key=str) == [Row(name="a", n=1), Row(name="b", n=2)]


def test_kafka_source_reports_or_skips_bad_record(local: LocalEnvironment, kafka: KafkaBroker, topic: str) -> None:
    kafka.send(topic, ['{"n": 1}', "not json"], partition=1)
    row = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [Types.INT()])).build()
    source = reading(kafka, topic).set_value_only_deserializer(row).set_bounded(KafkaOffsetsInitializer.latest())
    local.from_source(source.build(), NONE, "kafka").print()
    with pytest.raises(Exception, match=f"offset 1 of partition 1 of topic '{topic}'.*not json"):
        local.execute()
    stream = local.from_source(source.build().on_bad_records(BadRecords.skip()), NONE, "kafka")
    assert list(stream.execute_and_collect()) == [Row(n=1)]
    unreadable = OutputTag("unreadable")
    tolerant = source.build().on_bad_records(BadRecords.to(unreadable))
    timed = local.from_source(tolerant, WatermarkStrategy.for_monotonous_timestamps(), "kafka")
    timed.print()
    results = list(timed.get_side_output(unreadable).execute_and_collect())
    assert [(bad.where, bad.value) for bad in results] == [(f"offset 1 of partition 1 of topic '{topic}'", b"not json")]


def test_kafka_source_commits_offsets_and_discovers_partitions(env: Env, kafka: KafkaBroker, topic: str) -> None:
    kafka.send(topic, [str(i) for i in range(10)])
    source = reading(kafka, topic).set_group_id(f"{topic}-group").set_property("partition.discovery.interval.ms", "100")
    # Later partitions are read from their beginning, regardless of the startup offsets.
    known = {KafkaTopicPartition(topic, number): 0 for number in range(3)}
    source.set_starting_offsets(KafkaOffsetsInitializer.offsets(known, KafkaOffsetResetStrategy.LATEST))
    env.enable_checkpointing(50)
    out = f"{topic}-out"
    kafka.create_topic(out)
    env.from_source(source.build(), NONE, "kafka").sink_to(writing(kafka, out, DeliveryGuarantee.AT_LEAST_ONCE))
    job = env.execute_async()
    try:
        wait_until(lambda: len(kafka.read(out)) == 10)
        kafka.add_partitions(topic, 5)
        kafka.send(topic, ["new"], partition=4)
        wait_until(lambda: b"new" in kafka.read(out))
        wait_until(lambda: kafka.committed(f"{topic}-group", topic) == 11)
    finally:
        job.cancel().result()


def test_kafka_source_reads_new_partitions_from_beginning(kafka: KafkaBroker, topic: str) -> None:
    """Also with latest offsets, and if they had records before they were discovered."""
    source = reading(kafka, topic).set_starting_offsets(KafkaOffsetsInitializer.latest())
    with closing(source.build().create_enumerator(1)) as enumerator:
        enumerator.poll(100, 0.0)
        kafka.add_partitions(topic, 4)
        kafka.send(topic, ["a", "b"], partition=3)
        assert (topic, 3, 0, 2, False) in enumerator.poll(100, 1000.0).split_ranges[0]


def test_kafka_source_reads_new_topic_after_empty_checkpoint(kafka: KafkaBroker) -> None:
    name = f"later-{next(_names)}"
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap).set_topic_pattern(f"{name}.*")
    builder.set_starting_offsets(KafkaOffsetsInitializer.latest()).set_value_only_deserializer(SimpleStringSchema())
    source = builder.build()
    with closing(source.create_enumerator(1)) as enumerator:
        enumerator.poll(100, 0.0)
        checkpoint = enumerator.snapshot()
    kafka.create_topic(name, 1)
    kafka.send(name, ["a", "b"], partition=0)
    with closing(source.create_enumerator(1, checkpoint)) as enumerator:
        assert enumerator.poll(100, 0.0).split_ranges[0] == [(name, 0, 0, 2, False)]


def test_kafka_sink_discards_records_of_failed_epoch(kafka: KafkaBroker, topic: str) -> None:
    sink = writing(kafka, topic, DeliveryGuarantee.EXACTLY_ONCE)
    writer, committer = sink.create_writer(runtime_context()), sink.create_committer(CommitContext("a" * 32, "sink"))
    assert committer is not None
    with closing(writer), closing(committer):
        writer.begin("first")
        writer.write("lost")
        writer.begin("second")
        writer.write("kept")
        committer.commit([(0, writer.prepare_commit(True))])
        assert read_committed(kafka.bootstrap, topic) == [b"kept"]


@pytest.mark.parametrize("failure", ["raise", "kill"])
def test_kafka_sink_writes_each_record_once_after_failure(
    env: Env, kafka: KafkaBroker, topic: str, tmp_path: Path, failure: str
) -> None:
    kafka.send(topic, [str(i) for i in range(6000)])
    out = f"{topic}-out"
    kafka.create_topic(out, 2)
    env.enable_checkpointing(200)
    _restarts(env)
    breaks = BreaksOnce(tmp_path / "flag", "3000", failure)
    stream = env.from_source(bounded(kafka, topic), NONE, "kafka").map(breaks)
    stream.sink_to(writing(kafka, out, DeliveryGuarantee.EXACTLY_ONCE))
    env.execute()
    assert Counter(map(int, read_committed(kafka.bootstrap, out))) == Counter(range(6000))


@pytest.mark.timeout(300)
def test_kafka_sink_savepoint_rescales_with_open_transactions(
    config: Configuration, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    out = f"{topic}-out"
    kafka.create_topic(out, 2)
    config.set_string("execution.checkpointing.interval", "1 h")

    def start(parallelism: int, saved: str | None, source: KafkaSourceBuilder) -> JobClient:
        settings = Configuration(config)
        if saved is not None:
            settings.set_string("execution.state-recovery.path", saved)
        env = Env.get_execution_environment(settings).set_parallelism(parallelism)
        stream = env.from_source(source.build(), NONE, "kafka").uid("in")
        stream.sink_to(writing(kafka, out, DeliveryGuarantee.EXACTLY_ONCE)).uid("out")
        return env.execute_async()

    def send(first: int) -> None:
        for partition in range(3):
            kafka.send(topic, [str(i) for i in range(first + partition, first + 99, 3)], partition)
        wait_until(lambda: set(range(first, first + 99)) <= set(_numbers(kafka.read(out, committed=False))))

    saved = None
    for position, parallelism in (0, 2), (198, 3):
        job = start(parallelism, saved, reading(kafka, topic))
        send(position)
        saved = job.trigger_savepoint(str(tmp_path / "savepoints")).result()
        # Records written after the savepoint do not count: they are read again.
        send(position + 99)
        job.cancel().result()
        assert not waits(kafka.bootstrap, out)
        # As if it had been killed instead of cancelled, and every subtask had left a transaction.
        operator = _operator(job, "out")
        for subtask in range(parallelism):
            _open(_producer(kafka, f"{out}-{job.get_job_id()}-{operator}-{subtask}-9-run.0.dead.1"), out)
        assert waits(kafka.bootstrap, out)
    rest = reading(kafka, topic).set_bounded(KafkaOffsetsInitializer.latest())
    start(1, saved, rest).get_job_execution_result().result()
    assert Counter(map(int, read_committed(kafka.bootstrap, out))) == Counter(range(4 * 99))


def _numbers(values: list[bytes]) -> list[int]:
    return [int(value) for value in values if value != NEVER]


def _operator(job: JobClient, uid: str) -> str:
    nodes = [n for v in job_of(job).view.plan.vertices for n in v.nodes]
    return str(next(n.id for n in nodes if n.uid == uid))


@pytest.mark.parametrize("checkpoints", [False, True])
def test_kafka_sink_commits_without_further_input(env: Env, kafka: KafkaBroker, topic: str, checkpoints: bool) -> None:
    kafka.send(topic, ["only"])
    out = f"{topic}-out"
    kafka.create_topic(out)
    if checkpoints:
        env.enable_checkpointing(200)
    stream = env.from_source(reading(kafka, topic).build(), NONE, "kafka")
    stream.sink_to(writing(kafka, out, DeliveryGuarantee.EXACTLY_ONCE))
    job = env.execute_async()
    try:
        wait_until(lambda: kafka.read(out) == [b"only"], 20)
    finally:
        job.cancel().result()


def _restarts(env: Env) -> None:
    config = env._config
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.attempts", "10")
    config.set_string("restart-strategy.fixed-delay.delay", "100 ms")


def test_kafka_sink_aborts_lingering_transaction_on_restore(
    env: Env, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    """A driver that dies leaves its transactions open; a read_committed consumer must not wait for their time-out."""
    kafka.send(topic, ["1", "2"])
    out = f"{topic}-out"
    kafka.create_topic(out)
    env.enable_checkpointing(200)
    _restarts(env)
    opened = tmp_path / "opened"

    def wait(value: str) -> str:
        while not opened.exists():
            time.sleep(0.01)
        return value

    breaks = BreaksOnce(tmp_path / "flag", "2", "raise")
    stream = env.from_source(bounded(kafka, topic), NONE, "kafka").map(wait).map(breaks)
    stream.sink_to(writing(kafka, out, DeliveryGuarantee.EXACTLY_ONCE)).uid("out")
    job = env.execute_async()
    operator = _operator(job, "out")
    _open(_producer(kafka, f"{out}-{job.get_job_id()}-{operator}-9-9-left"), out)
    opened.touch()
    job.get_job_execution_result().result()
    # With an open transaction, this would block.
    assert sorted(read_committed(kafka.bootstrap, out)) == [b"1", b"2"]


def test_kafka_sink_aborts_late_transaction_of_dead_worker(
    env: Env, kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    """The dead worker's transaction opens after the job's restart; its name shows its execution."""
    kafka.send(topic, ["1", "2"])
    out = f"{topic}-out"
    kafka.create_topic(out)
    env.enable_checkpointing(200)
    _restarts(env)
    flag, again, opened = tmp_path / "flag", tmp_path / "again", tmp_path / "opened"

    def wait(value: str) -> str:
        if flag.exists():
            again.touch()
            while not opened.exists():
                time.sleep(0.01)
        return value

    stream = env.from_source(bounded(kafka, topic), NONE, "kafka").map(wait).map(BreaksOnce(flag, "2", "raise"))
    stream.sink_to(writing(kafka, out, DeliveryGuarantee.EXACTLY_ONCE)).uid("out")
    job = env.execute_async()
    operator = _operator(job, "out")
    wait_until(again.exists)
    _open(_producer(kafka, f"{out}-{job.get_job_id()}-{operator}-0-1-run.0.late.1"), out)
    opened.touch()
    job.get_job_execution_result().result()
    assert sorted(read_committed(kafka.bootstrap, out)) == [b"1", b"2"]


def test_kafka_sink_fresh_start_aborts_transactions_of_prefix(env: Env, kafka: KafkaBroker, topic: str) -> None:
    """For example, that of a run that died before its first checkpoint; but not that of a sink with a longer prefix."""
    out, other = f"{topic}-out", f"{topic}-other"
    kafka.create_topic(out)
    kafka.create_topic(other)
    _open(_producer(kafka, f"{out}-{'a' * 32}-sink-0-1-left"), out)
    alive = _producer(kafka, f"{out}-more-{'a' * 32}-sink-0-1-alive")
    _open(alive, other)
    env.from_collection(["1"]).sink_to(writing(kafka, out, DeliveryGuarantee.EXACTLY_ONCE))
    env.execute()
    assert kafka.read(out) == [b"1"]
    alive.commit_transaction(10)
    assert kafka.read(other) == [NEVER]


def test_kafka_committer_aborts_only_earlier_runs(kafka: KafkaBroker, topic: str) -> None:
    """A driver that was frozen in a commit wakes up after the next one opened transactions."""
    job = "b" * 32
    committer = writing(kafka, topic, DeliveryGuarantee.EXACTLY_ONCE).create_committer(
        CommitContext(run_id(job, 2), "sink")
    )
    assert committer is not None
    timed = new_run_id()
    runs = {"earlier": run_id(job, 1), "later": run_id(job, 3), "unknown": "a" * 32, "timed": timed}
    for name, run in runs.items():
        _open(_producer(kafka, f"{topic}-{run}-sink-0-1-{name}"), topic)

    def left(run: str) -> bool:
        with closing(
            Coordinators({}, lambda: [("127.0.0.1", int(kafka.bootstrap.rpartition(":")[2]))])
        ) as coordinators:
            state = coordinators.state(f"{topic}-{runs[run]}-sink-0-1-{run}")
        assert state is not None
        return state.state == "Ongoing"

    try:
        committer.commit([])
        assert [run for run in runs if left(run)] == ["later", "unknown", "timed"]
        # Nor if it falls back to a checkpoint, since it may sleep before that, too.
        committer.recover([], run_id(job, 1))
        assert left("later")
    finally:
        committer.close()
    second = writing(kafka, topic, DeliveryGuarantee.EXACTLY_ONCE).create_committer(
        CommitContext(new_run_id([timed]), "sink")
    )
    assert second is not None
    with closing(second):
        second.commit([])
        assert not left("timed")
        second.begin()
        assert not left("later")


def _producer(kafka: KafkaBroker, transactional_id: str) -> Any:
    from confluent_kafka import Producer

    about = {"bootstrap.servers": kafka.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    # Longer than any wait of the test.
    return Producer({**about, "transaction.timeout.ms": 600_000})


def _open(producer: Any, topic: str) -> None:
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, NEVER)
    producer.flush(10)


def test_kafka_builders_reject_invalid_arguments(local: LocalEnvironment, kafka: KafkaBroker, topic: str) -> None:
    with pytest.raises(InvalidProgramError, match="set_bootstrap_servers"):
        KafkaSource.builder().set_topics("x").build()
    with pytest.raises(InvalidProgramError, match="transactional id prefix"):
        schema = KafkaRecordSerializationSchema.builder().set_topic("x")
        KafkaSink.builder().set_bootstrap_servers("b:1").set_delivery_guarantee(
            DeliveryGuarantee.EXACTLY_ONCE
        ).set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build()).build()
    with pytest.raises(InvalidProgramError, match="ssl.ca.location"):
        reading(kafka, topic).set_property("ssl.truststore.location", "x").build()
    local.from_source(bounded(kafka, "not-there"), NONE, "kafka").print()
    with pytest.raises(KafkaFailure, match="has no topic 'not-there': create it"):
        local.execute()
    sink = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap).set_transactional_id_prefix("p")
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    sink.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
    sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_property("transaction.timeout.ms", "3600000")
    local.from_collection(["a"]).sink_to(sink.build())
    with pytest.raises(InvalidProgramError, match="allows at most 900,000"):
        local.execute()
    local.from_collection(["a"]).sink_to(writing(kafka, "not-there", DeliveryGuarantee.AT_LEAST_ONCE))
    with pytest.raises(KafkaFailure, match="has no topic 'not-there': create it"):
        local.execute()
    local.from_collection(["x" * 2_000_000]).sink_to(writing(kafka, topic, DeliveryGuarantee.AT_LEAST_ONCE))
    with pytest.raises(Exception, match=f"2,000,000 bytes for topic '{topic}' cannot be written: .*message.max.bytes"):
        local.execute()


def test_kafka_source_authenticates_with_tls_and_password(env: Env) -> None:
    with KafkaBroker(secure=True) as own:
        own.create_topic("in")
        own.create_topic("out")
        own.send("in", ["1", "2"])

        def build(security: dict[str, str]) -> None:
            where = {"bootstrap.servers": own.secure_bootstrap, **security}
            source = KafkaSource.builder().set_properties(where).set_topics("in")
            source.set_value_only_deserializer(SimpleStringSchema()).set_bounded(KafkaOffsetsInitializer.latest())
            schema = KafkaRecordSerializationSchema.builder().set_topic("out")
            sink = KafkaSink.builder().set_transactional_id_prefix("secure")
            sink.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
            sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
            for key, value in where.items():
                sink.set_property(key, value)
            env.from_source(source.build(), NONE, "kafka").sink_to(sink.build())

        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            build(own.security(mechanism))
            env.execute()
        assert sorted(own.read("out")) == [b"1", b"1", b"2", b"2"]
        began = time.monotonic()
        build(own.security(password="wrong"))
        with pytest.raises(KafkaFailure, match=r"rejects this user.*sasl\.username"):
            env.execute()
        build({k: v for k, v in own.security().items() if k != "ssl.ca.location"})
        with pytest.raises(KafkaFailure, match="does not accept TLS.*ssl.ca.location"):
            env.execute()
        assert time.monotonic() - began < 60


def test_kafka_source_reports_unreachable_broker_in_bounded_time(
    local: LocalEnvironment, kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "TIMEOUT", 3.0)
    unreachable = reading(kafka, topic).set_bootstrap_servers("127.0.0.1:9").build()
    local.from_source(unreachable, NONE, "kafka").print()
    began = time.monotonic()
    with pytest.raises(KafkaFailure, match="127.0.0.1:9 does not answer.*bootstrap.servers"):
        local.execute()
    assert time.monotonic() - began < 60


def test_kafka_source_reports_expired_offsets(local: LocalEnvironment, kafka: KafkaBroker, topic: str) -> None:
    kafka.send(topic, [str(i) for i in range(10)], partition=0)
    kafka.delete_records(topic, 0, 6)
    offsets = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 2})
    source = reading(kafka, topic).set_starting_offsets(offsets).set_bounded(KafkaOffsetsInitializer.latest())
    local.from_source(source.build(), NONE, "kafka").print()
    with pytest.raises(Exception, match=f"partition 0 of topic '{topic}' no longer exist.*retention"):
        local.execute()
    beyond = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 99})
    local.from_source(reading(kafka, topic).set_starting_offsets(beyond).build(), NONE, "kafka").print()
    with pytest.raises(KafkaFailure, match=f"partition 0 of topic '{topic}' ends at offset 10, .* is 99"):
        local.execute()


def test_kafka_avro_schema_registry_round_trips_records(
    local: LocalEnvironment, kafka: KafkaBroker, topic: str
) -> None:
    text = '{"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}'
    with registry_server() as registry:
        out = ConfluentRegistryAvroSerializationSchema.for_generic(f"{topic}-value", text, registry.url)
        schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
        sink = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap)
        sink.set_record_serializer(schema.set_value_serialization_schema(out).build())
        sink.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        rows = [Row(n=i) for i in range(100)]
        local.from_collection(rows, Types.ROW_NAMED(["n"], [Types.INT()])).sink_to(sink.build())
        local.execute()
        kafka.send(topic, ["not avro"])
        back = ConfluentRegistryAvroDeserializationSchema.for_generic(text, registry.url)
        source = reading(kafka, topic).set_value_only_deserializer(back).set_bounded(KafkaOffsetsInitializer.latest())
        tolerant = source.build().on_bad_records(BadRecords.skip())
        results = list(local.from_source(tolerant, NONE, "kafka").execute_and_collect())
        assert sorted(row["n"] for row in results) == list(range(100))
    # An unreachable registry is no reason to skip records.
    local.from_source(tolerant, NONE, "kafka").print()
    with pytest.raises(Exception, match="The schema registry .* does not respond"):
        local.execute()

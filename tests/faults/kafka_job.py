"""The Kafka job of fault injection, exactly once: a read_committed consumer must see every record once.

    python -m tests.faults.kafka_job <directory> [--fault SETTING] [--latest]

This command runs the job once, as a separate driver; `directory` holds its checkpoints and the broker's address.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults import job
from tests.support.kafka_reader import read_committed

from millstream.common import Configuration, SimpleStringSchema, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import DeliveryGuarantee
from millstream.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.testing.servers.kafka import KafkaBroker

NAME = "kafka faults"
RECORDS, RATE, EPOCH = 2400, 800, 100


def prepare(directory: Path, broker: KafkaBroker) -> None:
    """Create the topics and the input records."""
    (directory / "bootstrap").write_text(broker.bootstrap)
    broker.create_topic(f"{directory.name}-in", 3)
    broker.create_topic(f"{directory.name}-out", 2)
    broker.send(f"{directory.name}-in", [str(i) for i in range(RECORDS)])


def build(directory: Path, config: Configuration) -> StreamExecutionEnvironment:
    """Return an environment with the job."""
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": "400 ms",
        "execution.checkpointing.tolerable-failed-checkpoints": "3",
        "execution.buffer-timeout.interval": "0",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "50",
        "restart-strategy.fixed-delay.delay": "100 ms",
        "millstream.epoch.max-records": str(EPOCH),
        "millstream.quiet": "true",
        "millstream.exchange": os.environ.get("MILLSTREAM_TEST_EXCHANGE", "auto"),
        "parallelism.default": "2",
    }
    merged = Configuration.from_dict(settings)
    merged.add_all(config)
    env = StreamExecutionEnvironment.get_execution_environment(merged)
    bootstrap = (directory / "bootstrap").read_text()
    source_builder = KafkaSource.builder().set_bootstrap_servers(bootstrap).set_topics(f"{directory.name}-in")
    source_builder.set_value_only_deserializer(SimpleStringSchema()).set_group_id(directory.name)
    source = source_builder.set_bounded(KafkaOffsetsInitializer.latest()).build().at_most(RATE)
    schema = KafkaRecordSerializationSchema.builder().set_topic(f"{directory.name}-out")
    sink_builder = KafkaSink.builder().set_bootstrap_servers(bootstrap).set_transactional_id_prefix(directory.name)
    sink_builder.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
    sink = sink_builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()
    values = env.from_source(source, WatermarkStrategy.no_watermarks(), "values").uid("values")
    values.key_by(lambda v: int(v) % 7).map(lambda v: f"{int(v)}").uid("same").sink_to(sink).uid("sink")
    return env


def expected() -> Counter[str]:
    return Counter(str(i) for i in range(RECORDS))


def results(directory: Path, broker: KafkaBroker) -> Counter[str]:
    """Return the records of a read_committed consumer of another library; fail on an open transaction."""
    return Counter(value.decode() for value in read_committed(broker.bootstrap, f"{directory.name}-out"))


@contextmanager
def broker_restarts(broker: KafkaBroker) -> Iterator[None]:
    """Restart the broker whenever it is killed."""
    has_ended = threading.Event()

    def watch() -> None:
        while not has_ended.is_set():
            if not broker.is_running:
                broker.start()
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        has_ended.set()
        watcher.join()


if __name__ == "__main__":
    job.main(build, __doc__)

"""From Kafka to Kafka on PyFlink, exactly once, with an identity in Python between.

    python pyflink_kafka.py <thread or process> <bootstrap> <topic in> <topic out> <records> <jars...>
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from pyflink.common import Configuration, SimpleStringSchema, WatermarkStrategy
from pyflink.common.typeinfo import Types
from pyflink.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)


class Same(MapFunction):
    """The identity, which notes when it begins and ends: what Flink takes to start does not count."""

    def __init__(self, out: str) -> None:
        self._out = out

    def open(self, runtime_context: RuntimeContext) -> None:
        Path(self._out, "start").write_text(repr(time.time()))

    def map(self, value: str) -> str:
        return value

    def close(self) -> None:
        Path(self._out, "end").write_text(repr(time.time()))


def main() -> None:
    mode, bootstrap, source, sink, records, *jars = sys.argv[1:]
    config = Configuration()
    config.set_string("python.execution-mode", mode)
    config.set_string("python.executable", sys.executable)
    # With checkpoints Flink would begin again for ever.
    config.set_string("restart-strategy.type", "none")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.add_jars(*[f"file://{jar}" for jar in jars])
    env.set_parallelism(1)
    env.enable_checkpointing(1000)
    reading = KafkaSource.builder().set_bootstrap_servers(bootstrap).set_topics(source)
    reading.set_bounded(KafkaOffsetsInitializer.latest()).set_starting_offsets(KafkaOffsetsInitializer.earliest())
    reading.set_value_only_deserializer(SimpleStringSchema())
    schema = KafkaRecordSerializationSchema.builder().set_topic(sink)
    schema = schema.set_value_serialization_schema(SimpleStringSchema()).build()
    writing = KafkaSink.builder().set_bootstrap_servers(bootstrap).set_record_serializer(schema)
    writing.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix(sink)
    writing.set_property("transaction.timeout.ms", "600000")
    stream = env.from_source(reading.build(), WatermarkStrategy.no_watermarks(), "in")
    with tempfile.TemporaryDirectory() as out:
        stream.map(Same(out), Types.STRING()).sink_to(writing.build())
        env.execute("bench")
        began, ended = (float(Path(out, name).read_text()) for name in ("start", "end"))
    print(json.dumps({"records_per_second": int(records) / (ended - began)}))


if __name__ == "__main__":
    main()

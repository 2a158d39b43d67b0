"""From Kafka to Kafka on PyFlink, exactly once, with or without an identity function in Python in between.

    python pyflink_kafka.py <thread, process or java> <bootstrap> <topic in> <topic out> <records> <parallelism> <jars>
"""

import json
import os
import sys
import tempfile
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


def cpu_seconds(root: int) -> float:
    """Return the CPU time of a process and its descendants."""
    parents, ticks = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry)], ticks[int(entry)] = int(fields[1]), int(fields[11]) + int(fields[12])

    def belongs(process: int) -> bool:
        while process not in (root, 0, 1):
            process = parents.get(process, 0)
        return process == root

    return sum(t for p, t in ticks.items() if belongs(p)) / os.sysconf("SC_CLK_TCK")


class Identity(MapFunction):
    """The identity; records the CPU time when it begins and ends, which excludes the start of Flink."""

    def __init__(self, out: str, root: int) -> None:
        self._out, self._root, self._name = out, root, ""

    def _record_cpu(self, name: str) -> None:
        Path(self._out, f"{name}-{self._name}").write_text(str(cpu_seconds(self._root)))

    def open(self, runtime_context: RuntimeContext) -> None:
        self._name = os.urandom(4).hex()
        self._record_cpu("start")

    def map(self, value: str) -> str:
        return value

    def close(self) -> None:
        self._record_cpu("end")


def recorded_cpu(out: str, name: str) -> list[float]:
    return [float(path.read_text()) for path in Path(out).glob(f"{name}-*")]


def main() -> None:
    mode, bootstrap, source, sink, _, parallelism, *jars = sys.argv[1:]
    config = Configuration()
    if mode != "java":
        config.set_string("python.execution-mode", mode)
    config.set_string("python.executable", sys.executable)
    # With checkpoints Flink would restart without limit.
    config.set_string("restart-strategy.type", "none")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.add_jars(*[f"file://{jar}" for jar in jars])
    env.set_parallelism(int(parallelism))
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
        before = cpu_seconds(os.getpid())
        same = stream if mode == "java" else stream.map(Identity(out, os.getpid()), Types.STRING())
        same.sink_to(writing.build())
        env.execute("bench")
        # Without Python the start is not recorded: the CPU time then includes it.
        cpu = cpu_seconds(os.getpid()) - before if mode == "java" else max(recorded_cpu(out, "end")) - min(recorded_cpu(out, "start"))
    print(json.dumps({"cpu_seconds": cpu}))


if __name__ == "__main__":
    main()

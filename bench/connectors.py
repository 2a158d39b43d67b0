"""Connectors compared with the libraries below them, in one run.

Kafka with the bare client and PyFlink, files with pyarrow's own readers, change data capture with pg_recvlogical.

    python -m bench.connectors [--records 1000000] [--only pass,pass2,count,csv,parquet,cdc] [--without process,java]

Each part has one worker and one partition per topic, except pass2, which has two. The bare client reads, writes and
commits a transaction every second in one process (two in pass2), with Millstream's settings. PyFlink does the same with
an identity function in Python, in threads of the JVM (thread) and in a separate process (process), and without Python
(java). From Kafka to Kafka, the rate is computed from the broker's timestamps of the last two thirds of the records,
which excludes start-up and the warm-up of the JVM. Prints records per second, ratios and CPU time by process, because
the broker shares the cores.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench import cdc
from bench.results import store
from bench.run import run_script
from bench.venvs import venv
from millstream.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import DeliveryGuarantee, Source
from millstream.datastream.connectors.file_system import FileSource
from millstream.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.datastream.formats.csv import CsvReaderFormat, CsvSchema
from millstream.datastream.formats.parquet import ParquetColumnarRowInputFormat
from millstream.testing.servers.kafka import KafkaBroker

# The minimum ratio to each peer.
GOALS = {
    "pass": [("bare", 0.7), ("pyflink thread", 20.0), ("pyflink process", 20.0)],
    "pass2": [("bare", 0.7), ("pyflink thread", 20.0), ("pyflink process", 20.0)],
    "cdc": [("pg_recvlogical", 0.3)],
}
# The number of workers of each part from Kafka to Kafka.
PASSES = {"pass": 1, "pass2": 2}
# The modes of PyFlink: with an identity function in Python (thread, process), or without Python (java).
MODES = ("thread", "process", "java")
# Enough that the JVM is warm after a third of them.
PYFLINK_RECORDS = 300_000
KEYS = 1000
# The settings of Millstream's readers and transactions.
READING = {"fetch.queue.backoff.ms": 10, "max.partition.fetch.bytes": 8 << 20}
LINGER = 5
PAYLOAD = "x" * 88
Rates = dict[str, float]


def value(i: int) -> str:
    return f"{i % KEYS:04d},{i:07d}{PAYLOAD}"


# --- millstream


def environment(parallelism: int = 1) -> StreamExecutionEnvironment:
    settings = {
        "parallelism.default": str(parallelism),
        "millstream.quiet": "true",
        "execution.checkpointing.interval": "1 s",
    }
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))


def kafka_source(bootstrap: str, topic: str) -> KafkaSource:
    builder = KafkaSource.builder().set_bootstrap_servers(bootstrap).set_topics(topic)
    builder.set_value_only_deserializer(SimpleStringSchema())
    return builder.set_bounded(KafkaOffsetsInitializer.latest()).build()


def kafka_sink(bootstrap: str, topic: str) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    builder = KafkaSink.builder().set_bootstrap_servers(bootstrap).set_transactional_id_prefix(topic)
    builder.set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
    return builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()


def run(env: StreamExecutionEnvironment, records: int) -> float:
    return records / (env.execute("bench").get_net_runtime() / 1000)


def kafka_rate(bootstrap: str, source: str, sink: str, records: int, parallelism: int) -> float:
    env = environment(parallelism)
    stream = env.from_source(kafka_source(bootstrap, source), WatermarkStrategy.no_watermarks(), "in")
    stream.map(lambda v: v).sink_to(kafka_sink(bootstrap, sink))
    env.execute("bench")
    return append_rate(bootstrap, sink)


def count_rate(bootstrap: str, source: str, records: int) -> float:
    env = environment()
    stream = env.from_source(kafka_source(bootstrap, source), WatermarkStrategy.no_watermarks(), "in")
    counts = stream.map(lambda v: (v[:4], 1)).key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    counts.filter(lambda t: t[1] < 0).print()
    return run(env, records)


def file_rate(source: Source[Any], records: int) -> float:
    env = environment()
    env.from_source(source).filter(lambda row: row["n"] < 0).print()
    return run(env, records)


# --- the bare client


def bare_pass(bootstrap: str, source: str, sink: str, records: int, parallelism: int) -> float:
    if parallelism == 1:
        bare_partition(bootstrap, source, sink, 0, records)
    else:
        with ProcessPoolExecutor(parallelism, get_context("spawn")) as pool:
            # Wait until all processes have started.
            list(pool.map(time.sleep, [1] * parallelism))
            share = records // parallelism
            running = [pool.submit(bare_partition, bootstrap, source, sink, p, share) for p in range(parallelism)]
            for one in running:
                one.result()
    return append_rate(bootstrap, sink)


def bare_partition(bootstrap: str, source: str, sink: str, partition: int, records: int) -> None:
    """Copy one partition."""
    from confluent_kafka import Producer

    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    settings = {"transactional.id": f"bare-{sink}-{partition}", "queue.buffering.max.messages": 1_000_000}
    producer = Producer({**common, **settings, "linger.ms": LINGER, "delivery.report.only.error": True})
    producer.init_transactions(30)
    producer.begin_transaction()
    last = time.time()
    produce = producer.produce
    for messages in _bare_batches(common, source, records, partition):
        for message in messages:
            while True:
                try:
                    # With its timestamp, as all other systems do.
                    produce(sink, message.value().decode().encode(), None, -1, None, None, message.timestamp()[1])
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
        if time.time() - last > 1:
            producer.commit_transaction(30)
            producer.begin_transaction()
            last = time.time()
    producer.commit_transaction(30)


def bare_count(bootstrap: str, source: str, records: int) -> float:
    counts: Counter[str] = Counter()
    began = time.perf_counter()
    for messages in _bare_batches({"bootstrap.servers": bootstrap, "log_level": 0}, source, records):
        for message in messages:
            counts[message.value().decode()[:4]] += 1
    assert counts.total() == records
    return records / (time.perf_counter() - began)


def _bare_batches(common: dict[str, Any], topic: str, records: int, partition: int = 0) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**common, **READING, "group.id": "bare", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    left = records
    while left:
        messages = consumer.consume(min(2048, left), 1.0)
        left -= len(messages)
        yield messages
    consumer.close()


# --- rates


def append_rate(bootstrap: str, topic: str) -> float:
    """Return the records per second that the broker appended after the first third of each partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looking", "log_level": 0})
    records, began, ended = 0, [], []
    for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)
        records += end - end // 3
        began.append(_appended_at(consumer, topic, partition, end // 3))
        # The last offsets are those of transaction markers.
        ended.append(_appended_at(consumer, topic, partition, end - 100))
    consumer.close()
    return records / (max(ended) - min(began)) * 1000


def _appended_at(consumer: Any, topic: str, partition: int, offset: int) -> int:
    """Return the broker's timestamp of a record, in milliseconds."""
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition(topic, partition, offset)])
    message = consumer.poll(30)
    assert message is not None and message.error() is None
    return int(message.timestamp()[1])


# --- files


def write_files(directory: Path, records: int) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    names = pa.array([f"name {i % 1000}" for i in range(records)])
    table = pa.table({"n": pa.array(range(records)), "x": pa.array([i / 7 for i in range(records)]), "name": names})
    pyarrow.csv.write_csv(table, directory / "rows.csv", pyarrow.csv.WriteOptions(include_header=False))
    pyarrow.parquet.write_table(table, directory / "rows.parquet", row_group_size=100_000)


def pyarrow_rows(directory: Path, kind: str, records: int) -> float:
    """Read with pyarrow alone, into rows that Python can use: dicts."""
    import pyarrow.csv
    import pyarrow.parquet

    began = time.perf_counter()
    if kind == "csv":
        names = pyarrow.csv.ReadOptions(column_names=["n", "x", "name"])
        table = pyarrow.csv.read_csv(directory / "rows.csv", names)
    else:
        table = pyarrow.parquet.read_table(directory / "rows.parquet")
    assert sum(1 for row in table.to_pylist() if row["n"] >= 0) == records
    return records / (time.perf_counter() - began)


def csv_source(directory: Path) -> FileSource:
    columns = (
        CsvSchema.builder().add_number_column("n").add_number_column("x", Types.DOUBLE()).add_string_column("name")
    )
    return FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(columns.build()), directory / "rows.csv"
    ).build()


def parquet_source(directory: Path) -> FileSource:
    row = Types.ROW_NAMED(["n", "x", "name"], [Types.LONG(), Types.DOUBLE(), Types.STRING()])
    return FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(row), directory / "rows.parquet").build()


# --- all


def pyflink_pass(
    mode: str, broker: KafkaBroker, source: str, sink: str, records: int, parallelism: int
) -> float | None:
    python = venv("pyflink")
    if python is None:
        return None
    arguments = [mode, broker.bootstrap, source, sink, str(records), str(parallelism)]
    before = cpu_seconds({broker.pid})
    result = run_script(python, "pyflink_kafka.py", [*arguments, *kafka_jars()])
    rate = append_rate(broker.bootstrap, sink)
    print_cpu(f"pyflink {mode}", records, rate, result["cpu_seconds"], cpu_seconds({broker.pid}) - before)
    return rate


def kafka_jars() -> list[str]:
    """Return the jars of Flink's Kafka connector and its dependencies."""
    from millstream.spark.jars import fetch_jars

    directory = str(Path.home() / ".cache" / "millstream-bench" / "jars")
    return [p for p in fetch_jars("org.apache.flink", "flink-connector-kafka", "4.0.1-2.0", directory) if _is_needed(p)]


def _is_needed(path: str) -> bool:
    return Path(path).name.startswith(("flink-connector-kafka", "flink-connector-base", "kafka-clients"))


def best(measure: Callable[..., float], *arguments: Any) -> float:
    return max(measure(*arguments) for _ in range(2))


def with_cpu(name: str, broker: KafkaBroker, records: int, measure: Callable[[], float]) -> float:
    """Measure twice, the second time with the CPU time of client and broker; return the better rate."""
    first = measure()
    roots = {os.getpid(), worker_root()} if name == "millstream" else {os.getpid()}
    before = cpu_seconds(roots, broker.pid), cpu_seconds({broker.pid})
    second = measure()
    client_cpu = cpu_seconds(roots, broker.pid) - before[0]
    print_cpu(name, records, second, client_cpu, cpu_seconds({broker.pid}) - before[1])
    return max(first, second)


def print_cpu(name: str, records: int, rate: float, client: float, broker: float) -> None:
    print(
        f"pass     {name}: of {records / rate:.1f} s, {client:.1f} s of CPU in the client "
        f"({client / records * 1e6:.1f} us per record) and {broker:.1f} s in the broker "
        f"({broker / records * 1e6:.1f} us)",
        flush=True,
    )


def worker_root() -> int:
    """Return the process that is the ancestor of all workers."""
    driver = os.getpid()

    def root(_: int) -> int:
        process = os.getpid()
        while True:
            fields = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) in (0, 1, driver):
                return process
            process = int(fields[1])

    (worker_path,) = environment().from_collection([0]).map(root).execute_and_collect()
    return int(worker_path)


def _processes() -> dict[int, tuple[int, int]]:
    """Return the parent of every process, and the CPU time of it and its ended children."""
    times: dict[int, tuple[int, int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        times[int(entry)] = int(fields[1]), sum(map(int, fields[11:15]))
    return times


def cpu_seconds(roots: set[int], without: int = -1) -> float:
    """Return the CPU time of processes and their descendants, except for one process."""
    processes, seen, ahead = _processes(), set[int](), list(roots)
    while ahead:
        process = ahead.pop()
        if process not in seen and process != without:
            seen.add(process)
            ahead += [p for p, (parent, _) in processes.items() if parent == process]
    return sum(processes[p][1] for p in seen) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--only", default="pass,pass2,count,csv,parquet,cdc")
    parser.add_argument("--without", default="", help="pyflink, or some of its modes: thread, process, java")
    options = parser.parse_args()
    only, records = options.only.split(","), options.records
    results: dict[str, Rates] = {}
    if {*PASSES, "count"} & set(only):
        modes = [] if "pyflink" in options.without else [m for m in MODES if m not in options.without]
        with KafkaBroker(quick_start=False) as broker:
            results |= with_kafka(broker, only, records, modes)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_files(directory, records)
        for kind, source in (("csv", csv_source(directory)), ("parquet", parquet_source(directory))):
            if kind in only:
                ours = best(file_rate, source, records)
                results[kind] = {"millstream": ours, "pyarrow to rows": best(pyarrow_rows, directory, kind, records)}
    if "cdc" in only:
        bare, ours = cdc.rates(min(records, 300_000), rounds=3)
        results["cdc"] = {"millstream": ours, "pg_recvlogical": bare}
    for name, rates in results.items():
        store(f"connectors-{name}", rates)
    return show(results)


def with_kafka(broker: KafkaBroker, only: list[str], records: int, modes: list[str]) -> dict[str, Rates]:
    results: dict[str, Rates] = {}
    if "count" in only or "pass" in only:
        create_filled_topic(broker, "in-1", records, 1)
    for part, parallelism in PASSES.items():
        if part in only:
            results[part] = pass_rates(broker, records, parallelism, modes)
    if "count" in only:
        bootstrap = broker.bootstrap
        ours = best(count_rate, bootstrap, "in-1", records)
        results["count"] = {"bare": best(bare_count, bootstrap, "in-1", records), "millstream": ours}
    return results


def pass_rates(broker: KafkaBroker, records: int, parallelism: int, modes: list[str]) -> Rates:
    names = iter(f"out-{parallelism}-{i}" for i in range(100))

    def fresh() -> str:
        broker.create_topic(name := next(names), parallelism, message_timestamp_type="LogAppendTime")
        return name

    bootstrap, source = broker.bootstrap, f"in-{parallelism}"
    if parallelism > 1:
        create_filled_topic(broker, source, records, parallelism)
    rates = {
        "bare": with_cpu("bare", broker, records, lambda: bare_pass(bootstrap, source, fresh(), records, parallelism)),
        "millstream": with_cpu(
            "millstream", broker, records, lambda: kafka_rate(bootstrap, source, fresh(), records, parallelism)
        ),
    }
    few = min(records, PYFLINK_RECORDS)
    if modes:
        create_filled_topic(broker, f"few-{parallelism}", few, parallelism)
    for mode in modes:
        topic, count = (source, records) if mode == "java" else (f"few-{parallelism}", few)
        result = pyflink_pass(mode, broker, topic, fresh(), count, parallelism)
        rates |= {} if result is None else {f"pyflink {mode}": result}
    return rates


def create_filled_topic(broker: KafkaBroker, topic: str, records: int, partitions: int) -> None:
    """Create a topic with a number of records, spread evenly over its partitions."""
    broker.create_topic(topic, partitions)
    for partition in range(partitions):
        broker.send(topic, (value(i) for i in range(partition, records, partitions)), partition)


def show(results: dict[str, Rates]) -> int:
    missed = 0
    for name, rates in results.items():
        ours = rates["millstream"]
        for peer, rate in rates.items():
            ratio = ours / rate
            goal = next((g for p, g in GOALS.get(name, []) if p == peer), None)
            missed += goal is not None and ratio < goal
            goal_text = "" if goal is None else f"  (goal {goal:g}{'' if ratio >= goal else ', missed'})"
            print(f"{name:8} {peer:18} {rate:12,.0f}/s   millstream is {ratio:.2f} x{goal_text}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

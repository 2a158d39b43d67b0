"""The programs on PyFlink's DataStream API, thread or process mode, default settings.

S runs from the first open() of the first Python function to the last close() of the last one, over all subtasks, on the
machine's clock. That excludes the JVM, the cluster and the start of the Python workers, and adds no work per record.

The job runs on a local standalone cluster of P one-slot TaskManagers, because PyFlink's in-JVM mini cluster
(--task-managers 0) gives all subtasks one Python interpreter, hence one lock: embedded in the JVM in thread mode, the
script's own in process mode.

The venv's bin has to come first on PATH: Flink starts `python` from there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

import pyflink
from pyflink.common import Configuration, Duration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.common.typeinfo import TypeInformation
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    RuntimeContext,
)
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from pyflink.java_gateway import get_gateway

WORDS = 10_000
RATE = 1_000
LATENCY_KEYS = 100
WARM_UP_SECONDS = 2.0
START_SECONDS = 90
HOME = Path(pyflink.__file__).parent


def stamp(out: str, name: str) -> None:
    # Thread mode does not provide the subtask's index, so the file name is random.
    Path(out, f"{name}-{uuid.uuid4().hex}").write_text(repr(time.time()))


class FirstMap(MapFunction):
    def __init__(self, out: str, func: Callable[[int], Any]):
        self._out = out
        self._func = func

    def open(self, runtime_context: RuntimeContext) -> None:
        stamp(self._out, "start")

    def map(self, value: int) -> Any:
        return self._func(value)


class LastFilter(FilterFunction):
    def __init__(self, out: str, func: Callable[[int], bool]):
        self._out = out
        self._func = func

    def filter(self, value: int) -> bool:
        return self._func(value)

    def close(self) -> None:
        stamp(self._out, "end")


class LastAdd(ReduceFunction):
    def __init__(self, out: str):
        self._out = out

    def reduce(self, value1: tuple[Any, int], value2: tuple[Any, int]) -> tuple[Any, int]:
        return (value1[0], value1[1] + value2[1])

    def close(self) -> None:
        stamp(self._out, "end")


class Split(FlatMapFunction):
    def flat_map(self, value: str) -> Iterable[tuple[str, int]]:
        return [(word, 1) for word in value.split()]


class CountAndMeasure(KeyedProcessFunction):
    """Running count per key, measuring each record as its count is emitted."""

    def __init__(self, out: str):
        self._out = out
        self._samples: list[tuple[float, float]] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: tuple[int, float], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        key, arrival = value
        if arrival < 0:
            Path(self._out, f"warm-{key}").touch()
        else:
            self._samples.append((arrival, time.time() - arrival))
        yield (key, count)

    def close(self) -> None:
        Path(self._out, f"samples-{uuid.uuid4().hex}").write_text(json.dumps(self._samples))


def line(i: int) -> str:
    return " ".join(["w%d" % ((i * 31 + j * 977) % WORDS) for j in range(10)])


def numbers(env: StreamExecutionEnvironment, records: int) -> DataStream:
    source = NumberSequenceSource(0, records - 1)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())


def discard(stream: DataStream) -> None:
    sinks = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2
    stream._j_data_stream.sinkTo(sinks.DiscardingSink())


def pair(first: TypeInformation, second: TypeInformation) -> TypeInformation:
    return Types.TUPLE([first, second])


def map_filter(env: StreamExecutionEnvironment, args: argparse.Namespace, out: str) -> None:
    mapped = numbers(env, args.records).map(FirstMap(out, lambda x: x * 3 + 1), Types.LONG())
    discard(mapped.filter(LastFilter(out, lambda x: x % 2 == 0)))


def keyed_reduce(env: StreamExecutionEnvironment, args: argparse.Namespace, out: str) -> None:
    keys = args.keys
    to_pair = FirstMap(out, lambda x: (x * 7919 % keys, 1))
    pairs = numbers(env, args.records).map(to_pair, pair(Types.LONG(), Types.LONG()))
    discard(pairs.key_by(lambda t: t[0], Types.LONG()).reduce(LastAdd(out)))


def word_count(env: StreamExecutionEnvironment, args: argparse.Namespace, out: str) -> None:
    lines = numbers(env, args.records).map(FirstMap(out, line), Types.STRING())
    words = lines.flat_map(Split(), pair(Types.STRING(), Types.LONG()))
    discard(words.key_by(lambda t: t[0], Types.STRING()).reduce(LastAdd(out)))


class At(TimestampAssigner):
    def extract_timestamp(self, value: tuple[int, int, int], record_timestamp: int) -> int:
        return value[1]


class LastMap(MapFunction):
    def __init__(self, out: str):
        self._out = out

    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        stamp(self._out, "end")


def windows(env: StreamExecutionEnvironment, args: argparse.Namespace, out: str, assigner: Any) -> None:
    half, keys = args.records // 2, args.keys
    kind = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
    to_event = FirstMap(out, lambda i: (i * 7919 % keys, i % half // 5 - i * 31 % 1000, 1))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(1000))
    events = numbers(env, args.records).map(to_event, kind)
    marked = events.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(At()))
    windowed = marked.key_by(lambda e: e[0], Types.LONG()).window(assigner)
    sums = windowed.reduce(lambda a, b: (a[0], a[1], a[2] + b[2]), output_type=kind)
    discard(sums.map(LastMap(out), kind))


def tumbling(env: StreamExecutionEnvironment, args: argparse.Namespace, out: str) -> None:
    windows(env, args, out, TumblingEventTimeWindows.of(Time.milliseconds(10_000)))


def session(env: StreamExecutionEnvironment, args: argparse.Namespace, out: str) -> None:
    windows(env, args, out, EventTimeSessionWindows.with_gap(Time.milliseconds(2_000)))


def latency(env: StreamExecutionEnvironment, args: argparse.Namespace, out: str) -> None:
    server = socket.create_server(("localhost", 0))
    threading.Thread(target=feed, args=(server, args.seconds, Path(out)), daemon=True).start()
    port = server.getsockname()[1]
    lines = DataStream(env._j_stream_execution_environment.socketTextStream("localhost", port))

    def parse(text: str) -> tuple[int, float]:
        key, arrival = text.split()
        return (int(key), float(arrival))

    values = lines.map(parse, pair(Types.LONG(), Types.DOUBLE()))
    counts = values.key_by(lambda t: t[0], Types.LONG()).process(
        CountAndMeasure(out), pair(Types.LONG(), Types.LONG())
    )
    discard(counts)


def feed(server: socket.socket, seconds: int, out: Path) -> None:
    """Write RATE records per second, each stamped as it is written; then end the stream.

    PyFlink has no source in Python. One unstamped record per key is sent first, and the clock starts when all of them
    have arrived, so that workers are up by then.
    """
    connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        connection.sendall("".join(f"{k} -1.0\n" for k in range(LATENCY_KEYS)).encode())
        while len(list(out.glob("warm-*"))) < LATENCY_KEYS:
            time.sleep(0.05)
        started = time.time()
        for i in range(RATE * seconds):
            time.sleep(max(0.0, started + i / RATE - time.time()))
            connection.sendall(f"{i % LATENCY_KEYS} {time.time()!r}\n".encode())


PROGRAMS: dict[str, Callable[[StreamExecutionEnvironment, argparse.Namespace, str], None]] = {
    "map_filter": map_filter,
    "keyed_reduce": keyed_reduce,
    "word_count": word_count,
    "latency": latency,
    "tumbling": tumbling,
    "session": session,
}


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        return server.getsockname()[1]


class StandaloneCluster(AbstractContextManager["StandaloneCluster"]):
    """A JobManager and one-slot TaskManagers on this machine, from the wheel's own scripts."""

    def __init__(self, task_managers: int, folder: Path):
        self._task_managers = task_managers
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.rest_port = free_port()

    def __enter__(self) -> StandaloneCluster:
        shutil.copytree(HOME / "conf", self._folder / "conf")
        (self._folder / "lib").mkdir()
        # The cluster needs flink-python on its class path, which the wheel keeps in opt.
        for jar in [*(HOME / "lib").glob("*.jar"), *(HOME / "opt").glob("flink-python*.jar")]:
            (self._folder / "lib" / jar.name).symlink_to(jar)
        rpc = f"jobmanager.rpc.port={free_port()}"
        self._start("jobmanager.sh", rpc, f"rest.port={self.rest_port}")
        try:
            # A TaskManager that finds no JobManager backs off for ten seconds.
            self._wait_for_slots(0)
            for _ in range(self._task_managers):
                self._start("taskmanager.sh", rpc)
            self._wait_for_slots(self._task_managers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait()

    def _start(self, script: str, *properties: str) -> None:
        folder = self._folder
        variables = {
            "FLINK_CONF_DIR": str(folder / "conf"),
            "FLINK_LIB_DIR": str(folder / "lib"),
            "FLINK_LOG_DIR": str(folder),
            "FLINK_PID_DIR": str(folder),
        }
        command = [str(HOME / "bin" / script), "start-foreground"]
        command += [word for p in properties for word in ("-D", p)]
        with open(folder / f"{script}-{len(self._processes)}.out", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command, env={**os.environ, **variables}, stdout=log, stderr=log
                )
            )

    def _wait_for_slots(self, slots: int) -> None:
        url = f"http://localhost:{self.rest_port}/overview"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        deadline = time.time() + START_SECONDS
        while time.time() < deadline:
            try:
                with opener.open(url, timeout=5) as answer:
                    if json.load(answer)["slots-available"] >= slots:
                        return
            except OSError:
                pass
            time.sleep(0.2)
        for log in sorted(self._folder.glob("*.out")):
            print(f"--- {log.name}", log.read_text()[-2000:], sep="\n", file=sys.stderr)
        raise SystemExit(f"the Flink cluster did not come up in {START_SECONDS} s")


def environment(mode: str, rest_port: int | None) -> StreamExecutionEnvironment:
    config = Configuration()
    config.set_string("python.execution-mode", mode)
    if rest_port is None:
        return StreamExecutionEnvironment.get_execution_environment(config)
    config.set_string("python.executable", sys.executable)
    # PyFlink's own API cannot create a remote environment; Java's can.
    gateway = get_gateway()
    java = gateway.jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    no_jars = gateway.new_array(gateway.jvm.java.lang.String, 0)
    return StreamExecutionEnvironment(
        java.createRemoteEnvironment("localhost", rest_port, config._j_configuration, no_jars)
    )


def run_job(args: argparse.Namespace, out: str, rest_port: int | None) -> None:
    env = environment(args.mode, rest_port)
    env.set_parallelism(args.parallelism)
    PROGRAMS[args.program](env, args, out)
    env.execute(args.program)


def latency_result(out: Path) -> dict[str, float]:
    samples = [s for p in out.glob("samples-*") for s in json.loads(p.read_text())]
    first = min(arrival for arrival, _ in samples)
    took = sorted(t for arrival, t in samples if arrival >= first + WARM_UP_SECONDS)
    return {
        "p50_ms": took[len(took) // 2] * 1e3,
        "p99_ms": took[len(took) * 99 // 100] * 1e3,
        "records": len(took),
    }


def rate_result(out: Path, records: int) -> dict[str, float]:
    starts = [float(p.read_text()) for p in out.glob("start-*")]
    ends = [float(p.read_text()) for p in out.glob("end-*")]
    return {"records": records, "seconds": max(ends) - min(starts)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", choices=sorted(PROGRAMS), required=True)
    parser.add_argument("--mode", choices=["thread", "process"], default="thread")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=10, help="length of the latency program")
    parser.add_argument("--task-managers", type=int, help="default: the parallelism")
    args = parser.parse_args()
    task_managers = args.parallelism if args.task_managers is None else args.task_managers

    with tempfile.TemporaryDirectory() as name:
        out = Path(name, "out")
        out.mkdir()
        if task_managers == 0:
            run_job(args, str(out), None)
        else:
            with StandaloneCluster(task_managers, Path(name)) as cluster:
                run_job(args, str(out), cluster.rest_port)
        latencies = args.program == "latency"
        result = latency_result(out) if latencies else rate_result(out, args.records)
    print(json.dumps(result))


if __name__ == "__main__":
    main()

"""The programs on Bytewax: one worker in each of P processes, no recovery store.

S runs from the first request for input of any worker to the close of the last worker's sink, both on the machine-wide
monotonic clock. It excludes starting Python and connecting the processes, and includes generating the input.

The processes are started the way `python -m bytewax.testing -p P` starts them (one `python -m bytewax.run -i ... -a
...` each), but on free ports.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Callable, Iterator

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

WORDS = 10_000
RATE = 1_000
WARM_UP_SECONDS = 2.0


def line(i: int) -> str:
    return " ".join(["w%d" % ((i * 31 + j * 977) % WORDS) for j in range(10)])


def add(a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
    return (a[0], a[1] + b[1])


class RunningAdd(op.StatefulBatchLogic[Any, Any, Any]):
    """A running reduce; stateful_map would be shorter but measured slower."""

    def __init__(self, state: Any):
        self._state = state

    def on_batch(self, values: list[Any]) -> tuple[list[Any], bool]:
        out = []
        state = self._state
        for value in values:
            state = value if state is None else add(state, value)
            out.append(state)
        self._state = state
        return out, op.StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        return self._state


class RangePartition(StatelessSourcePartition[Any]):
    def __init__(self, numbers: range, make: Callable[[int], Any] | None, batch: int, out: Path):
        self._numbers = numbers
        self._make = make
        self._batch = batch
        self._position = 0
        self._out = out

    def next_batch(self) -> list[Any]:
        if self._position == 0:
            self._out.write_text(repr(time.monotonic()))
        chunk = self._numbers[self._position : self._position + self._batch]
        if not chunk:
            raise StopIteration
        self._position += self._batch
        return list(chunk) if self._make is None else [self._make(i) for i in chunk]


class RangeSource(DynamicSource[Any]):
    def __init__(self, records: int, make: Callable[[int], Any] | None, batch: int, out: Path):
        self._records = records
        self._make = make
        self._batch = batch
        self._out = out

    def build(self, step_id: str, worker_index: int, worker_count: int) -> RangePartition:
        numbers = range(worker_index, self._records, worker_count)
        return RangePartition(numbers, self._make, self._batch, self._out / f"start-{worker_index}")


class DiscardPartition(StatelessSinkPartition[Any]):
    def __init__(self, out: Path):
        self._out = out

    def write_batch(self, items: list[Any]) -> None:
        pass

    def close(self) -> None:
        self._out.write_text(repr(time.monotonic()))


class DiscardSink(DynamicSink[Any]):
    def __init__(self, out: Path):
        self._out = out

    def build(self, step_id: str, worker_index: int, worker_count: int) -> DiscardPartition:
        return DiscardPartition(self._out / f"end-{worker_index}")


class PacedPartition(StatelessSourcePartition[tuple[int, float]]):
    """This worker's share of RATE records per second, each stamped when it is emitted."""

    def __init__(self, numbers: range):
        self._numbers = numbers
        self._position = 0
        self._started = 0.0

    def next_batch(self) -> list[tuple[int, float]]:
        now = time.time()
        if self._position == 0:
            self._started = now
        batch = []
        while self._position < len(self._numbers) and self._due() <= now:
            batch.append((self._numbers[self._position] % 100, time.time()))
            self._position += 1
        if not batch and self._position == len(self._numbers):
            raise StopIteration
        return batch

    def next_awake(self) -> datetime | None:
        if self._position == 0 or self._position == len(self._numbers):
            return None
        return datetime.fromtimestamp(self._due(), timezone.utc)

    def _due(self) -> float:
        return self._started + (self._numbers[self._position] - self._numbers[0]) / RATE


class PacedSource(DynamicSource[tuple[int, float]]):
    def __init__(self, records: int):
        self._records = records

    def build(self, step_id: str, worker_index: int, worker_count: int) -> PacedPartition:
        return PacedPartition(range(worker_index, self._records, worker_count))


class SamplePartition(StatelessSinkPartition[Any]):
    def __init__(self, out: Path):
        self._out = out
        self._samples: list[tuple[float, float]] = []

    def write_batch(self, items: list[Any]) -> None:
        for _key, (_count, arrival) in items:
            self._samples.append((arrival, time.time() - arrival))

    def close(self) -> None:
        self._out.write_text(json.dumps(self._samples))


class SampleSink(DynamicSink[Any]):
    def __init__(self, out: Path):
        self._out = out

    def build(self, step_id: str, worker_index: int, worker_count: int) -> SamplePartition:
        return SamplePartition(self._out / f"samples-{worker_index}")


def map_filter(flow: Dataflow, records: int, keys: int, batch: int, out: Path) -> None:
    s = op.input("in", flow, RangeSource(records, None, batch, out))
    s = op.map("map", s, lambda x: x * 3 + 1)
    s = op.filter("filter", s, lambda x: x % 2 == 0)
    op.output("out", s, DiscardSink(out))


def keyed_reduce(flow: Dataflow, records: int, keys: int, batch: int, out: Path) -> None:
    s = op.input("in", flow, RangeSource(records, None, batch, out))
    s = op.map("map", s, lambda x: (x * 7919 % keys, 1))
    keyed = op.key_on("key", s, lambda t: str(t[0]))
    op.output("out", op.stateful_batch("reduce", keyed, RunningAdd), DiscardSink(out))


def word_count(flow: Dataflow, records: int, keys: int, batch: int, out: Path) -> None:
    s = op.input("in", flow, RangeSource(records, line, batch, out))
    s = op.flat_map("split", s, lambda text: [(w, 1) for w in text.split()])
    keyed = op.key_on("key", s, lambda t: t[0])
    op.output("out", op.stateful_batch("sum", keyed, RunningAdd), DiscardSink(out))


EPOCH = datetime(2020, 1, 1, tzinfo=timezone.utc)


def windows(flow: Dataflow, records: int, keys: int, batch: int, out: Path, windower: Any) -> None:
    """Numbers are assigned to workers in turn, so that all cover the same time range; ten events per millisecond."""
    s = op.input("in", flow, RangeSource(records, None, batch, out))
    s = op.map("make", s, lambda i: (i * 7919 % keys, i // 10 - i * 31 % 1000, 1))
    keyed = op.key_on("key", s, lambda e: str(e[0]))
    clock = win.EventClock(lambda e: EPOCH + timedelta(milliseconds=e[1]), timedelta(seconds=1))
    reduced = win.reduce_window("sum", keyed, clock, windower, lambda a, b: (a[0], a[1], a[2] + b[2]))
    op.output("out", reduced.down, DiscardSink(out))


def tumbling(flow: Dataflow, records: int, keys: int, batch: int, out: Path) -> None:
    windows(flow, records, keys, batch, out, win.TumblingWindower(timedelta(seconds=10), EPOCH))


def session(flow: Dataflow, records: int, keys: int, batch: int, out: Path) -> None:
    windows(flow, records, keys, batch, out, win.SessionWindower(timedelta(seconds=2)))


def latency(flow: Dataflow, records: int, keys: int, batch: int, out: Path) -> None:
    def count(state: int | None, value: tuple[int, float]) -> tuple[int, tuple[int, float]]:
        new = (state or 0) + 1
        return new, (new, value[1])

    s = op.input("in", flow, PacedSource(records))
    keyed = op.key_on("key", s, lambda t: str(t[0]))
    op.output("out", op.stateful_map("count", keyed, count), SampleSink(out))


PROGRAMS: dict[str, Callable[[Dataflow, int, int, int, Path], None]] = {
    "map_filter": map_filter,
    "keyed_reduce": keyed_reduce,
    "word_count": word_count,
    "latency": latency,
    "tumbling": tumbling,
    "session": session,
}


def get_flow(program: str, records: int, keys: int, batch: int, out: str) -> Dataflow:
    flow = Dataflow(program)
    PROGRAMS[program](flow, records, keys, batch, Path(out))
    return flow


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def run_cluster(factory: str, processes: int) -> None:
    addresses = ";".join(f"localhost:{port}" for port in free_ports(processes))
    base = [sys.executable, "-m", "bytewax.run", f"{Path(__file__).resolve()}:{factory}"]
    workers = [
        subprocess.Popen([*base, "-i", str(i), "-a", addresses], stdout=sys.stderr)
        for i in range(processes)
    ]
    try:
        codes = [w.wait() for w in workers]
    finally:
        for w in workers:
            w.kill()
    if any(codes):
        raise SystemExit(f"bytewax workers ended with {codes}")


def read_floats(out: Path, name: str) -> Iterator[float]:
    return (float(p.read_text()) for p in out.glob(f"{name}-*"))


def latency_result(out: Path) -> dict[str, float]:
    samples = [s for p in out.glob("samples-*") for s in json.loads(p.read_text())]
    first = min(arrival for arrival, _ in samples)
    took = sorted(t for arrival, t in samples if arrival >= first + WARM_UP_SECONDS)
    return {
        "p50_ms": took[len(took) // 2] * 1e3,
        "p99_ms": took[len(took) * 99 // 100] * 1e3,
        "records": len(took),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", choices=sorted(PROGRAMS), required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=10, help="length of the latency program")
    parser.add_argument("--batch", type=int, default=5_000, help="records per source batch")
    args = parser.parse_args()
    records = RATE * args.seconds if args.program == "latency" else args.records

    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        factory = f"get_flow({args.program!r}, {records}, {args.keys}, {args.batch}, {name!r})"
        run_cluster(factory, args.parallelism)
        if args.program == "latency":
            result = latency_result(out)
        else:
            span = max(read_floats(out, "end")) - min(read_floats(out, "start"))
            result = {"records": records, "seconds": span}
    print(json.dumps(result))


if __name__ == "__main__":
    main()

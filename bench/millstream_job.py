"""The benchmark's programs on millstream, with the same functions and arguments as on the peers."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from millstream.common import Configuration, Duration, Types, WatermarkStrategy
from millstream.common.typeinfo import TypeInformation
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows

Env = StreamExecutionEnvironment


def discard(value: Any) -> None:
    """Discard a record."""


def declared(options: argparse.Namespace, type_info: TypeInformation) -> TypeInformation | None:
    """Return the type as a PyFlink program would declare it; None in the untyped variant."""
    return type_info if options.typed else None


def sequence(env: Env, options: argparse.Namespace) -> DataStream:
    """Return the numbers from 0, one per record."""
    return env.from_source(NumberSequenceSource(0, options.records - 1), type_info=declared(options, Types.LONG()))


def map_filter(env: Env, options: argparse.Namespace) -> None:
    mapped = sequence(env, options).map(lambda x: x * 3 + 1, declared(options, Types.LONG()))
    mapped.filter(lambda x: x % 2 == 0).add_sink(discard)


def keyed_reduce(env: Env, options: argparse.Namespace) -> None:
    keys = options.keys
    pair = declared(options, Types.TUPLE([Types.LONG(), Types.LONG()]))
    pairs = sequence(env, options).map(lambda x: (x * 7919 % keys, 1), pair)
    keyed = pairs.key_by(lambda t: t[0], declared(options, Types.LONG()))
    keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).add_sink(discard)


def line(i: int) -> str:
    return " ".join([f"w{(i * 31 + j * 977) % 10000}" for j in range(10)])


def word_count(env: Env, options: argparse.Namespace) -> None:
    text = declared(options, Types.STRING())
    lines = env.from_source(DataGeneratorSource(line, options.records), type_info=text)
    pair = declared(options, Types.TUPLE([Types.STRING(), Types.INT()]))
    words = lines.flat_map(lambda text: [(w, 1) for w in text.split()], pair)
    words.key_by(lambda t: t[0], text).reduce(lambda a, b: (a[0], a[1] + b[1])).add_sink(discard)


OUT_OF_ORDER_MS, WINDOW_MS, GAP_MS = 1000, 10_000, 2_000


def events(env: Env, options: argparse.Namespace) -> DataStream:
    """Events (key, time, 1), five per millisecond, up to a second out of order; both subtasks cover the same time."""
    half, keys = options.records // 2, options.keys
    event = declared(options, Types.TUPLE([Types.LONG(), Types.LONG(), Types.INT()]))
    stream = sequence(env, options).map(lambda i: (i * 7919 % keys, i % half // 5 - i * 31 % 1000, 1), event)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(OUT_OF_ORDER_MS))
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda e, _: e[1]))


def tumbling(env: Env, options: argparse.Namespace) -> None:
    keyed = events(env, options).key_by(lambda e: e[0], declared(options, Types.LONG()))
    windows = keyed.window(TumblingEventTimeWindows.of(WINDOW_MS))
    windows.reduce(lambda a, b: (a[0], a[1], a[2] + b[2])).add_sink(discard)


def session(env: Env, options: argparse.Namespace) -> None:
    keyed = events(env, options).key_by(lambda e: e[0], declared(options, Types.LONG()))
    windows = keyed.window(EventTimeSessionWindows.with_gap(GAP_MS))
    windows.reduce(lambda a, b: (a[0], a[1], a[2] + b[2])).add_sink(discard)


class ClockedReader:
    """A stream reader that receives records at a steady rate, regardless of polls."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.start = time.time()

    def initialOffset(self) -> dict[str, int]:
        return {"at": int((time.time() - self.start) * self.rate)}

    def latestOffset(self) -> dict[str, int]:
        return self.initialOffset()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[range]:
        return [range(start["at"] + n, end["at"], 2) for n in range(2)]

    def read(self, partition: range) -> list[tuple[int, float]]:
        return [(i % 100, self.start + i / self.rate) for i in partition]


def latency(env: Env, options: argparse.Namespace) -> None:
    """Print the latency from a record's arrival to its result, without the first two seconds."""
    rate = 1000
    counts = env.from_source(ClockedReader(rate)).key_by(lambda t: t[0]).reduce(lambda a, b: b)
    results = counts.map(lambda t: (t[1], time.time())).execute_and_collect(limit=options.seconds * rate)
    samples = sorted((seen - due) * 1000 for due, seen in results[2 * rate :])
    p50, p99 = samples[len(samples) // 2], samples[len(samples) * 99 // 100]
    print(json.dumps({"p50_ms": p50, "p99_ms": p99, "records": len(samples)}))


PROGRAMS = {
    "map_filter": map_filter,
    "keyed_reduce": keyed_reduce,
    "word_count": word_count,
    "tumbling": tumbling,
    "session": session,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--parallelism", type=int, default=0)
    parser.add_argument("--typed", action="store_true", help="declare every type, as PyFlink programs do")
    parser.add_argument("--exchange", default="auto")
    parser.add_argument("--timeout", type=int, help="the buffer timeout in milliseconds; without, the default")
    options = parser.parse_args()
    settings = {"millstream.quiet": "true", "millstream.exchange": options.exchange}
    env = Env.get_execution_environment(Configuration.from_dict(settings))
    if options.timeout is not None:
        env.set_buffer_timeout(options.timeout)
    if options.parallelism:
        env.set_parallelism(options.parallelism)
    # A first small job starts Spark and its workers, which the peers' figures exclude as well.
    warm = argparse.Namespace(**{**vars(options), "records": 20_000})
    PROGRAMS[options.program if options.program in PROGRAMS else "keyed_reduce"](env, warm)
    env.execute()
    if options.program == "latency":
        latency(env, options)
        return
    PROGRAMS[options.program](env, options)
    seconds = env.execute().get_net_runtime() / 1000
    print(json.dumps({"records": options.records, "seconds": seconds}))


if __name__ == "__main__":
    main()

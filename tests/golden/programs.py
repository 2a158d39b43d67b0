"""The programs of the golden files. Do not change them: they restore the golden files of earlier versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Any

from millstream.cep import (
    CEP,
    AfterMatchSkipStrategy,
    Pattern,
    PatternProcessFunction,
    PatternProcessor,
    TimedOutPartialMatchHandler,
)
from millstream.common import Encoder, Row, RowKind, Time, Types, WatermarkStrategy
from millstream.common.time import Duration
from millstream.common.watermark_strategy import Watermark, WatermarkGenerator, WatermarkOutput
from millstream.connectors.files.bucket_assigner import BucketAssigner
from millstream.connectors.files.compaction import FileCompactor, FileCompactStrategy
from millstream.connectors.files.sink import FileSink
from millstream.connectors.files.source import FileSource
from millstream.datastream import (
    AsyncDataStream,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.functions import (
    AggregateFunction,
    AsyncFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from millstream.formats.file_format import StreamFormat
from millstream.table import StreamTableEnvironment
from millstream.table.expressions import col
from millstream.testing import CollectSink

from .workdir import WORKDIR

Env = StreamExecutionEnvironment
COUNT = 60

# Keys of several types, including unhashable ones.
KEYS: list[Any] = [0, "1", (5, "x"), [3, 1], {"k": 4}, 3, "3"]

# The fixed time of the programs (2100-01-01), independent of the real clock.
CLOCK = 4_102_444_800_000
MINUTE = 60_000
# The time of the restore: a TTL of a quarter of an hour has expired, and processing-time timers are due.
LATER = CLOCK + 30 * MINUTE


def event(i: int) -> tuple[int, int, int]:
    """Key, value, time: times are slightly out of order."""
    return (i * 7919) % 7, i, i * 10 + (i * 31) % 50


def marks() -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(60))
    return strategy.with_timestamp_assigner(lambda e, _: e[2])


def events(env: Env) -> Any:
    source = env.from_collection([event(i) for i in range(COUNT)]).uid("events")
    return source.assign_timestamps_and_watermarks(marks()).uid("marks")


# --- all kinds of keyed state, with and without TTL, and timers of both times


class Mean(AggregateFunction):
    """Sum and count."""

    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


def _descriptors(name: str, minutes: int | None) -> list[Any]:
    descriptors = [
        ValueStateDescriptor(f"{name} value", Types.INT()),
        ListStateDescriptor(f"{name} list", Types.INT()),
        MapStateDescriptor(f"{name} map", Types.INT(), Types.INT()),
        ReducingStateDescriptor(f"{name} sum", lambda a, b: a + b, Types.INT()),
        AggregatingStateDescriptor(f"{name} mean", Mean(), Types.PICKLED_BYTE_ARRAY()),
    ]
    if minutes is not None:
        for descriptor in descriptors:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.minutes(minutes)).build())
    return descriptors


class _Five:
    """One state of each kind."""

    def __init__(self, context: Any, name: str, minutes: int | None) -> None:
        value, elements, entries, summed, mean = _descriptors(name, minutes)
        self.value = context.get_state(value)
        self.list = context.get_list_state(elements)
        self.map = context.get_map_state(entries)
        self.sum = context.get_reducing_state(summed)
        self.mean = context.get_aggregating_state(mean)

    def add(self, value: int) -> None:
        self.value.update(value)
        self.list.add(value)
        self.map.put(value % 3, value)
        if value % 11 == 0:
            self.map.remove((value + 1) % 3)
        self.sum.add(value)
        self.mean.add(value)

    def shown(self) -> Any:
        mean = self.mean.get()
        return self.value.value(), list(self.list.get() or []), sorted(self.map.items()), self.sum.get(), mean


class Kinds(KeyedProcessFunction):
    """Emits all its state when its last timer fires."""

    def open(self, runtime_context: Any) -> None:
        self.fives = [_Five(runtime_context, n, m) for n, m in (("ever", None), ("hour", 60), ("quarter", 15))]

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        for five in self.fives:
            five.add(value[1])
        timers = ctx.timer_service()
        timers.register_event_time_timer(value[2] + 100)
        if value[1] % 3 == 0:
            timers.delete_event_time_timer(value[2] + 100)
        timers.register_event_time_timer(1 << 40)
        # Only before the checkpoint: otherwise the output would depend on the number of clock reads.
        if value[1] < 12:
            timers.register_processing_time_timer(CLOCK + 10 * MINUTE + value[1])
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        key = ctx.get_current_key()
        if timestamp == 1 << 40:
            yield "kept", key, *(five.shown() for five in self.fives)
        else:
            yield "timer", key, timestamp


def kinds(env: Env, sink: CollectSink) -> None:
    keyed = events(env).key_by(lambda e: KEYS[e[0]])
    keyed.process(Kinds()).uid("kinds").sink_to(sink).uid("out")


# --- windows: specialized operators, and the general one


class Listed(ProcessWindowFunction):
    """All values of a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield "listed", key, context.window().start, sorted(e[1] for e in elements)

    def clear(self, context: Any) -> None:
        pass


def _more(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1], max(a[2], b[2])


class Counted(AggregateFunction):
    """Key, sum and count."""

    def create_accumulator(self) -> Any:
        return None, 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return value[0], accumulator[1] + value[1], accumulator[2] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return a[0], a[1] + b[1], a[2] + b[2]


class Numbered(Counted):
    """Key and count."""

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0], accumulator[2]


def windows(env: Env, sink: CollectSink) -> None:
    keyed = events(env).key_by(lambda e: e[0])
    streams = {
        "tumbling": keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(200))).reduce(_more),
        "sliding": keyed.window(SlidingEventTimeWindows.of(Time.milliseconds(300), Time.milliseconds(100))).aggregate(
            Counted()
        ),
        "sessions": keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(80))).reduce(_more),
        "general": keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(200))).process(Listed()),
        "merging": keyed.window(EventTimeSessionWindows.with_gap(Time.milliseconds(80)))
        .allowed_lateness(1)
        .reduce(_more),
        # The records of a count window of four depend on arrival order: only their number is emitted.
        "counting": keyed.count_window(4).aggregate(Numbered()),
    }
    for uid, stream in streams.items():
        stream.uid(uid).map(lambda r, uid=uid: (uid, r)).sink_to(sink).uid(f"{uid} out")


# --- state of subtasks


RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Buffering(MapFunction):
    """List state and union list state: every record contains the state restored by its subtask."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("split", Types.INT()))
        self.union = store.get_union_list_state(ListStateDescriptor("union", Types.INT()))
        self.mine = list(self.split.get())
        self.began = len(self.mine), sorted(self.union.get())

    def snapshot_state(self, context: Any) -> None:
        self.split.update(self.mine)
        self.union.update(self.mine[-3:])

    def map(self, value: int) -> Any:
        self.mine.append(value)
        return value, *self.began


class Ruled(KeyedBroadcastProcessFunction):
    """Broadcast state with keyed state."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield "ruled", value, self.count.value(), sorted(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(RULES).put(*value)
        return iter(())


def subtasks(env: Env, sink: CollectSink) -> None:
    numbers = env.from_source(NumberSequenceSource(0, COUNT - 1)).uid("numbers").map(Buffering()).uid("buffer")
    rules = env.from_collection([("a", 1), ("b", 2)]).uid("rules in").broadcast(RULES)
    ruled = numbers.key_by(lambda v: v[0] % 7).connect(rules).process(Ruled()).uid("ruled")
    ruled.sink_to(sink).uid("out")


# --- time: several splits per subtask, one of them idle, user-defined generators


class Uneven(Source):
    """Three splits of numbers; the last one pauses after its fourth number until the others have ended."""

    name = "Uneven Source"
    is_bounded = True

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _UnevenEnumerator(parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _UnevenReader()

    def subtask_of(self, split: Any, parallelism: int) -> int:
        return "abc".index(split) % parallelism


class _UnevenEnumerator(SplitEnumerator):
    def __init__(self, parallelism: int, restored: Any) -> None:
        self._parallelism = parallelism
        self._positions: dict[str, int] = {"a": 0, "b": 0, "c": 0} if restored is None else dict(restored)

    def poll(self, budget: int, now: float) -> SplitAssignment:
        split_ranges: dict[int, list[Any]] = {}
        others_end = all(self._positions[split] == COUNT for split in "ab")
        for split, position in self._positions.items():
            end = 4 if split == "c" and not others_end else COUNT
            to = min(position + 4, end)
            if position < to:
                self._positions[split] = to
                split_ranges.setdefault("abc".index(split) % self._parallelism, []).append((split, position, to))
        return SplitAssignment(split_ranges, limited=not self.is_finished())

    def is_finished(self) -> bool:
        return all(position == COUNT for position in self._positions.values())

    def snapshot(self) -> Any:
        return dict(self._positions)


class _UnevenReader(SourceReader):
    def read(self, split_range: Any) -> Iterator[Collection[Any]]:
        split, start, end = split_range
        yield [(split, i) for i in range(start, end)]

    def split_of(self, split_range: Any) -> Any:
        return split_range[0]


class At(KeyedProcessFunction):
    """Emits the watermark with every record; it depends on the parallelism."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield "at", value, ctx.timer_service().current_watermark()


class Hesitating(WatermarkGenerator):
    """A generator with state of its own, as a user may write one."""

    def __init__(self) -> None:
        self.times: list[int] = []

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.times = [*self.times, event_timestamp][-3:]

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        if len(self.times) == 3:
            output.emit_watermark(Watermark(self.times[0]))


def time(env: Env, sink: CollectSink) -> None:
    own = WatermarkStrategy.for_generator(Hesitating).with_timestamp_assigner(lambda e, _: e[1] * 10)
    stream = env.from_source(Uneven(), own.with_idleness(Duration.of_millis(150)), "Uneven").uid("uneven")
    sums = stream.key_by(lambda e: e[1] % 5).window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
    sums.reduce(lambda a, b: ("sum", a[1] + b[1])).uid("sums").sink_to(sink).uid("out")
    _late(stream, sink)
    stream.key_by(lambda e: e[1] % 5).process(At()).uid("at").sink_to(sink).uid("at out")


def stateless(env: Env, sink: CollectSink) -> None:
    strategy = WatermarkStrategy.for_generator(Hesitating).with_timestamp_assigner(lambda e, _: e[1] * 10)
    stream = env.from_source(Uneven(), strategy.with_idleness(Duration.of_millis(150)), "Uneven").uid("uneven")
    _late(stream, sink)
    # A union whose second input has ended.
    short = env.from_source(NumberSequenceSource(0, 5)).uid("short").map(lambda i: ("short", i)).uid("short events")
    mixed = stream.rebalance().union(short.rebalance()).map(lambda e: ("mixed", *e)).uid("mixed")
    mixed.sink_to(sink).uid("mixed out")


def _late(stream: Any, sink: CollectSink) -> None:
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(20))
    late = stream.assign_timestamps_and_watermarks(bounded.with_timestamp_assigner(lambda e, _: e[1] * 10)).uid("late")
    late.map(lambda e: ("late", *e)).sink_to(sink).uid("late out")
    late.key_by(lambda e: e[1] % 5).process(At()).uid("late at").sink_to(sink).uid("late at out")


# --- two inputs, one of which ends early


class Both(KeyedCoProcessFunction):
    """Sums of both inputs."""

    def open(self, runtime_context: Any) -> None:
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums", Types.STRING(), Types.INT()))

    def _add(self, name: str, value: Any, ctx: Any) -> Iterator[Any]:
        self.sums.put(name, (self.sums.get(name) or 0) + value[1])
        ctx.timer_service().register_event_time_timer(1 << 40)
        return iter(())

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        return self._add("left", value, ctx)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        return self._add("right", value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "both", ctx.get_current_key(), sorted(self.sums.items())


class Pairs(ProcessJoinFunction):
    """Emits the pairs of an interval join."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield "pair", left, right


def connected(env: Env, sink: CollectSink) -> None:
    left = events(env).key_by(lambda e: e[0])
    short = env.from_source(NumberSequenceSource(0, 13)).uid("short").map(event).uid("short events")
    right = short.assign_timestamps_and_watermarks(marks()).uid("short marks").key_by(lambda e: e[0])
    left.connect(right).process(Both()).uid("both").sink_to(sink).uid("both out")
    near = left.interval_join(right).between(Time.milliseconds(-100), Time.milliseconds(100))
    near.process(Pairs()).uid("pairs").sink_to(sink).uid("pairs out")


# --- file source and file sinks


def files_in() -> dict[str, str]:
    """Return the names and contents of the input files."""
    # Lines have the length that the source assumes before it has read any.
    return {f"{name}.txt": "".join(f"{name} {i} {'.' * 90}\n" for i in range(40)) for name in ("one", "two", "three")}


def files(env: Env, sink: CollectSink) -> None:
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), WORKDIR / "in").build()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_minutes(1))
    stamped = strategy.with_timestamp_assigner(lambda line, _: int(line.split()[1]))
    lines = env.from_source(source, stamped, "Files").uid("files").map(lambda line: line.rstrip(" .")).uid("stripped")
    for name in ("plain", "compacted"):
        rows = FileSink.for_row_format(str(WORKDIR / name), Encoder.simple_string_encoder())
        rows = rows.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        if name == "compacted":
            often = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
            rows = rows.enable_compact(often, FileCompactor.concat_file_compactor())
        lines.sink_to(rows.build()).uid(name)
    lines.map(lambda line: line.upper()).sink_to(sink).uid("out")


# --- async requests in flight, and watermarks behind them


class Answers(AsyncFunction):
    """Answers every record; holds back some of the requests while `is_held` is set."""

    is_held = False

    async def async_invoke(self, value: Any) -> list[Any]:
        while Answers.is_held and value[1] % 10 < 4:
            await asyncio.sleep(0.001)
        return [("answer", *value)]


def requests(env: Env, sink: CollectSink) -> None:
    answers = AsyncDataStream.ordered_wait(events(env), Answers(), Time.minutes(10), 1000).uid("answers")
    # In windows, so that a late result changes the output.
    windows = answers.key_by(lambda a: a[1]).window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
    windows.reduce(lambda a, b: (*a[:2], a[2] + b[2], 0)).uid("sums").sink_to(sink).uid("out")


# --- static and dynamic patterns


OVERDUE = OutputTag("overdue")


class Found(PatternProcessFunction, TimedOutPartialMatchHandler):
    """Matches, and timed-out matches."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process_match(self, match: Any, ctx: Any) -> Iterator[Any]:
        yield self.name, ctx.timestamp(), _numbers(match)

    def process_timed_out_match(self, match: Any, ctx: Any) -> Iterator[Any]:
        yield OVERDUE, (f"{self.name}, overdue", ctx.timestamp(), _numbers(match))


def _numbers(match: Any) -> Any:
    return [(name, [e[1] for e in taken]) for name, taken in match.items()]


def _is_first(e: Any) -> bool:
    return bool(e[1] % 3 == 0)


def _is_second(e: Any) -> bool:
    return bool(e[1] % 3 == 1)


def _is_third(e: Any) -> bool:
    return bool(e[1] % 3 == 2)


def _is_larger(e: Any, ctx: Any) -> bool:
    return all(e[1] > before[1] for before in ctx.get_events_for_pattern("first"))


def _loop() -> Pattern:
    first = Pattern.begin("first").where(_is_first).followed_by_any("second").where(_is_second).where(_is_larger)
    return first.one_or_more().followed_by("third").where(_is_third).within(300)


def patterns(env: Env, sink: CollectSink) -> None:
    keyed = events(env).key_by(lambda e: KEYS[e[0]])
    # A match waits for earlier runs.
    last = AfterMatchSkipStrategy.skip_past_last_event()
    followed = Pattern.begin("all", last).one_or_more().greedy().followed_by("third").where(_is_third)
    never = Pattern.begin("first").where(_is_first).not_followed_by("second").where(_is_second).within(150)
    matched = {
        "loop": CEP.pattern(keyed, _loop()).process(Found("loop")),
        "waiting": CEP.pattern(keyed, followed.within(400)).process(Found("waiting")),
        "never": CEP.pattern(keyed, never).process(Found("never")),
    }
    processors = env.from_collection([PatternProcessor("coming", 1, _loop(), Found("coming"))]).set_parallelism(1)
    matched["coming"] = CEP.dynamic_patterns(keyed, processors.uid("processors"))
    for uid, matches in matched.items():
        matches.uid(uid).union(matches.get_side_output(OVERDUE)).sink_to(sink).uid(f"{uid} out")


# --- SQL: aggregates, windows, joins, rankings, and a pattern


_QUERIES = {
    "groups": "SELECT k, COUNT(*), SUM(v), AVG(v), MIN(v), MAX(v), COUNT(DISTINCT v / 9) FROM t GROUP BY k",
    "few": "SELECT k / 2, SUM(v) FROM t GROUP BY k / 2 HAVING COUNT(*) < 15",
    "tumbling": "SELECT window_start, k, SUM(v) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '0.1' SECOND)) "
    "GROUP BY window_start, window_end, k",
    "hopping": "SELECT window_end, COUNT(*) FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '0.05' SECOND, "
    "INTERVAL '0.2' SECOND)) GROUP BY window_start, window_end",
    "sessions": "SELECT window_start, k, MAX(v) FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), "
    "INTERVAL '0.09' SECOND)) GROUP BY window_start, window_end, k",
    "pairs": "SELECT a.k, a.v, b.v FROM t a LEFT JOIN t b ON a.k = b.k AND a.v = b.v + 14",
    "near": "SELECT a.v, b.v FROM t a JOIN t b ON a.k = b.k AND a.v < b.v "
    "AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '0.1' SECOND",
    "running": "SELECT k, v, SUM(v) OVER (PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM t",
    "largest": "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t) "
    "WHERE n <= 2",
    "first": "SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n FROM t) WHERE n = 1",
    "climbs": "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.v AS a, LAST(B.v) AS b "
    "AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+ C) DEFINE B AS B.v < A.v + 20, C AS C.v > A.v + 20)",
}


class Left(KeyedProcessFunction):
    """Return the final rows of a query's changelog, which do not depend on epochs."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("left", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(1 << 60)
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        if self.count.value():
            yield self.name, ctx.get_current_key(), self.count.value()


def _change(row: Any) -> tuple[str, int]:
    is_present = row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)
    return repr(tuple(row)), 1 if is_present else -1


def tables(env: Env, sink: CollectSink) -> None:
    source, t_env = events(env), StreamTableEnvironment.create(env)
    for name, query in _QUERIES.items():
        # A different column name per query gives each its own scan.
        rows = Types.ROW_NAMED(["k", "v", name], [Types.LONG(), Types.LONG(), Types.LONG()])
        stream = source.map(lambda e: Row(*e), rows).uid(f"{name} rows")
        t_env.create_temporary_view("t", stream, col("k"), col("v"), col(name), col("ts").rowtime)
        changes = t_env.to_changelog_stream(t_env.sql_query(query)).map(_change).uid(f"{name} changes")
        left = changes.key_by(lambda change: change[0]).process(Left(name)).uid(f"{name} left")
        left.sink_to(sink).uid(f"{name} out")
        t_env.drop_temporary_view("t")


PROGRAMS: dict[str, Callable[[Env, CollectSink], None]] = {
    f.__name__: f for f in (kinds, windows, subtasks, time, stateless, connected, files, requests, patterns, tables)
}

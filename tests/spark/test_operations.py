"""Results of each DataStream operation on Spark."""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from millstream.cep import CEP, AfterMatchSkipStrategy, Pattern, PatternProcessor, Removed
from millstream.common import Configuration, Row, Types, WatermarkStrategy
from millstream.common.errors import JobExecutionError
from millstream.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.state import ValueStateDescriptor
from millstream.testing import CollectSink, LocalEnvironment, TestingSource, per_element_watermarks
from tests.support.cep_cases import recorded
from tests.support.cep_on_operator import expected
from tests.support.cep_on_spark import answers

Env = StreamExecutionEnvironment
Collect = Callable[[DataStream], list[Any]]
pytestmark = pytest.mark.spark


class Double(MapFunction[int, int]):
    def map(self, value: int) -> int:
        return value * 2


class Odd(FilterFunction[int]):
    def filter(self, value: int) -> bool:
        return value % 2 == 1


class Twice(FlatMapFunction[int, int]):
    def flat_map(self, value: int) -> Iterator[int]:
        yield value
        yield value


class Nothing(FlatMapFunction[int, int]):
    def flat_map(self, value: int) -> None:
        return None


def test_map_filter_flat_map_accept_classes_and_callables(env1: Env, collect: Collect) -> None:
    numbers = env1.from_collection([1, 2, 3])
    assert collect(numbers.map(Double()).flat_map(Twice()).map(lambda x: x + 1)) == [3, 3, 5, 5, 7, 7]
    assert collect(numbers.filter(Odd()).filter(lambda x: x > 1)) == [3]
    assert collect(numbers.flat_map(Nothing())) == []


@attrs.frozen
class Account:
    """A key of a user class; no two objects share their strings."""

    name: str = attrs.field(eq=str.lower)
    tags: frozenset[str]


def _account(number: int) -> Account:
    name, tags = f"ann{number % 5}", [f"x{number % 3}", "yy", f"z{number % 3}"]
    return Account(name.upper() if number % 2 else name, frozenset(tags if number % 4 else reversed(tags)))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_keyed_state_is_shared_by_equal_objects(env: Env, collect: Collect, backend: str) -> None:
    env.set_parallelism(2)
    env.configure(Configuration.from_dict({"state.backend.type": backend}))
    numbers = env.from_source(NumberSequenceSource(0, 299))
    counted = numbers.map(lambda n: (_account(n), 1)).key_by(lambda p: p[0]).sum(1)
    max_totals: dict[Account, int] = {}
    for account, count in collect(counted):
        max_totals[account] = max(count, max_totals.get(account, 0))
    assert sorted(max_totals.values()) == [20] * 15


def test_map_keeps_all_records_in_order_for_large_input(env1: Env, collect: Collect) -> None:
    stream = env1.from_source(NumberSequenceSource(0, 299_999)).map(lambda x: x + 1)
    assert collect(stream) == list(range(1, 300_001))


def test_flat_map_runs_in_long_chain(env1: Env, collect: Collect) -> None:
    stream = env1.from_collection([1])
    for _ in range(70):
        stream = stream.flat_map(lambda x: [x + 1]).filter(lambda x: True)
    assert collect(stream) == [71]


PAIRS = [("a", 1), ("b", 5), ("a", 2), ("b", 1), ("a", 3)]


class Add(ReduceFunction[Any]):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] + value2[1]


class First(KeySelector[Any, str]):
    def get_key(self, value: Any) -> str:
        key: str = value[0]
        return key


def test_reduce_emits_every_step(env1: Env, collect: Collect) -> None:
    expected = [("a", 1), ("b", 5), ("a", 3), ("b", 6), ("a", 6)]
    pairs = env1.from_collection(PAIRS)
    assert collect(pairs.key_by(First()).reduce(Add())) == expected
    assert collect(pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))) == expected
    assert collect(pairs.key_by(0).sum(1)) == expected


def test_keyed_aggregates_emit_running_results(env1: Env, collect: Collect) -> None:
    data = [("a", 3, "x"), ("a", 1, "y"), ("a", 5, "z"), ("a", 1, "w")]
    keyed = env1.from_collection(data).key_by(lambda t: t[0])
    assert [r[1:] for r in collect(keyed.min(1))] == [(3, "x"), (1, "x"), (1, "x"), (1, "x")]
    assert [r[1:] for r in collect(keyed.max(1))] == [(3, "x"), (3, "x"), (5, "x"), (5, "x")]
    assert [r[1:] for r in collect(keyed.min_by(1))] == [(3, "x"), (1, "y"), (1, "y"), (1, "y")]
    assert [r[1:] for r in collect(keyed.max_by(1))] == [(3, "x"), (3, "x"), (5, "z"), (5, "z")]
    rows = env1.from_collection([Row(k="a", n=1), Row(k="a", n=2)])
    assert collect(rows.key_by(lambda r: r.k).sum("n")) == [Row(k="a", n=1), Row(k="a", n=3)]
    assert collect(env1.from_collection([1, 2, 3]).key_by(lambda x: 0).sum()) == [1, 3, 6]


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_job_results_are_equal_at_any_parallelism(env: Env, collect: Collect, parallelism: int) -> None:
    env.set_parallelism(parallelism)
    stream = (
        env.from_source(NumberSequenceSource(0, 9_999)).map(lambda x: (f"k{x % 97}", x)).key_by(lambda t: t[0]).sum(1)
    )
    last: dict[str, int] = {}
    for key, total in collect(stream):
        last[key] = max(total, last.get(key, 0))
    expected: dict[str, int] = defaultdict(int)
    for x in range(10_000):
        expected[f"k{x % 97}"] += x
    assert last == expected


LATE, TIMED_OUT = OutputTag("late"), OutputTag("timed out")


def test_patterns_match_equally_at_any_epoch_boundary(env: Env) -> None:
    local, on_spark = _matches_of(LocalEnvironment(), 1_000), _matches_of(env, 23)
    assert local == on_spark
    assert min(len(matches) for matches in local) > 20


def test_recorded_patterns_equal_flinks_at_any_epoch_boundary(env: Env) -> None:
    by_time = [(case, theirs) for case, theirs in recorded() if not case["processing"] and "error" not in theirs]
    some = by_time[7::30]
    ours = answers(env, [case for case, _ in some], batch_size=31)
    assert sum(len(lines) for outputs in ours for lines in outputs.values()) > 400
    for (case, theirs), outputs in zip(some, ours, strict=True):
        assert outputs == expected(theirs), case


def _matches_of(env: Env, batch_size: int) -> list[list[str]]:
    """Return late events, matches and timeouts of several patterns, by key and in order."""
    chance = random.Random(5)
    events = [(chance.choice("klmn"), chance.choice("aabbc"), n % 9, n - chance.choice([0, 0, 7])) for n in range(500)]
    source = env.from_source(TestingSource(events, batch_size=batch_size)).set_parallelism(1)
    stream = source.assign_timestamps_and_watermarks(per_element_watermarks(lambda e, _: e[3])).set_parallelism(1)
    a, skip = Pattern.begin("a").where(lambda e: e[1] == "a"), AfterMatchSkipStrategy.skip_past_last_event()
    patterns = [
        a.next("b").where(lambda e: e[1] == "b").times(1, 3).greedy().next("c").where(lambda e: e[1] == "c"),
        Pattern.begin("a", skip).where(lambda e: e[2] > 2).one_or_more().followed_by("c").where(lambda e: e[1] == "c"),
        a.not_followed_by("c").where(lambda e: e[1] == "c").within(30),
        a.followed_by_any("b").where(lambda e, ctx: e[2] > ctx.get_events_for_pattern("a")[0][2]).within(20),
    ]
    sinks = []
    for pattern in patterns:
        pattern_stream = CEP.pattern(stream.key_by(lambda e: e[0]), pattern).side_output_late_data(LATE)
        matches = pattern_stream.select(TIMED_OUT, lambda m, t: (_key(m), t, m), lambda m: (_key(m), m))
        for results in (matches, matches.get_side_output(TIMED_OUT), matches.get_side_output(LATE)):
            sinks.append(CollectSink())
            results.sink_to(sinks[-1])
    env.execute()
    # In order within a key. Patterns without a window, and those that wait for their end, have no timeouts.
    each = [[repr(r) for r in sorted(s.results(), key=lambda r: r[0])] for s in sinks]
    return [lines for i, lines in enumerate(each) if i not in (1, 4, 7)]


def _key(match: dict[str, list[Any]]) -> Any:
    return next(iter(match.values()))[0][0]


def test_patterns_apply_when_added_while_job_runs(env: Env, collect: Collect) -> None:
    by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[2])
    events = [(key, letter, n) for n, letter in enumerate("abac") for key in range(8)]
    stream = env.from_collection(events).assign_timestamps_and_watermarks(by_time).key_by(lambda e: e[0])
    a = Pattern.begin("a").where(lambda e: e[1] == "a")
    patterns = [
        PatternProcessor("gone", 1, a, lambda match, ctx: ["gone"]),
        PatternProcessor("ab", 1, a, lambda match, ctx: ["replaced"]),
        PatternProcessor("ab", 2, a.next("b").where(lambda e: e[1] == "b"), lambda match, ctx: [_key(match)]),
        Removed("gone"),
    ]
    # Both streams end before the watermark, so these patterns apply by then.
    matches = CEP.dynamic_patterns(stream, env.from_collection(patterns).set_parallelism(1))
    assert sorted(collect(matches)) == list(range(8))


class CountPerKey(KeyedProcessFunction[str, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        n = (self.count.value() or 0) + 1
        if n == 3:
            self.count.clear()
        else:
            self.count.update(n)
        yield ctx.get_current_key(), n, ctx.timestamp()


def test_keyed_process_counts_in_value_state(env1: Env, collect: Collect) -> None:
    stream = env1.from_collection(["a", "b", "a", "a", "a"]).key_by(lambda v: v).process(CountPerKey())
    none = -(2**63)
    assert collect(stream) == [("a", 1, none), ("b", 1, none), ("a", 2, none), ("a", 3, none), ("a", 1, none)]


class KeyedMapWithState(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def map(self, value: Any) -> Any:
        n = (self.seen.value() or 0) + 1
        self.seen.update(n)
        return value, n


def test_keyed_map_counts_in_value_state(env1: Env, collect: Collect) -> None:
    stream = env1.from_collection(["a", "b", "a"]).key_by(lambda v: v).map(KeyedMapWithState())
    assert collect(stream) == [("a", 1), ("b", 1), ("a", 2)]


def test_keys_may_be_lists_and_equal_numbers_are_one_key(env: Env, collect: Collect) -> None:
    stream = env.from_collection([[1, 2], [1, 2], [3]]).key_by(lambda v: v).process(CurrentKey())
    assert Counter(map(str, collect(stream))) == {"[1, 2]": 2, "[3]": 1}
    numbers = env.from_collection([(1, 1), (1.0, 1), (True, 1)]).key_by(lambda t: t[0]).sum(1)
    assert collect(numbers)[-1][1] == 3


class CurrentKey(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key()


def test_key_has_one_owner_with_random_selector(env: Env, collect: Collect) -> None:
    # The key is computed once, at the sender, as in PyFlink.
    import random

    stream = env.from_collection([1] * 500).key_by(lambda v: random.randrange(50)).process(KeyAndSubtask())
    owners: dict[int, set[int]] = defaultdict(set)
    for key, subtask in collect(stream):
        owners[key].add(subtask)
    assert all(len(o) == 1 for o in owners.values())


class KeyAndSubtask(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), self.subtask


SMALL, LARGE = OutputTag("small"), OutputTag("large", Types.INT())


class Split(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        yield value
        if value < 3:
            yield SMALL, value
        if value > 7:
            yield LARGE, bool(value)
            yield OutputTag("unused"), value


def test_side_outputs_receive_tagged_records(env1: Env) -> None:
    main, small, large = CollectSink(), CollectSink(), CollectSink()
    split = env1.from_collection(range(10)).process(Split())
    split.sink_to(main)
    split.get_side_output(SMALL).map(lambda x: -x).sink_to(small)
    split.get_side_output(LARGE).rebalance().map(lambda x: x).sink_to(large)
    env1.execute()
    assert main.results() == list(range(10))
    assert small.results() == [0, -1, -2]
    # Converted to the declared type.
    assert list(map(repr, large.results())) == ["1", "1"]


def test_union_merges_streams(env1: Env, collect: Collect) -> None:
    a, b, c = (env1.from_collection(x) for x in ([1, 2], [3], [4]))
    assert sorted(collect(a.union(b, c).map(lambda x: x * 10))) == [10, 20, 30, 40]
    assert sorted(collect(a.union(a))) == [1, 1, 2, 2]


class Both(CoMapFunction[int, str, str]):
    def map1(self, value: int) -> str:
        return f"int {value}"

    def map2(self, value: str) -> Any:
        return None if value == "drop" else f"str {value}"


class BothFlat(CoFlatMapFunction[int, str, str]):
    def flat_map1(self, value: int) -> list[str]:
        return [f"int {value}"] * value

    def flat_map2(self, value: str) -> None:
        return None


class Enrich(KeyedCoProcessFunction[str, Any, Any, Any]):
    """Stores the latest rule of a key; both inputs share the state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.rule = runtime_context.get_state(ValueStateDescriptor("rule"))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.rule.update(value[1])

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), value[1], self.rule.value()


class Tagged(CoProcessFunction[int, str, Any]):
    def process_element1(self, value: int, ctx: Any) -> Iterator[Any]:
        yield ("one", value)

    def process_element2(self, value: str, ctx: Any) -> Iterator[Any]:
        yield SMALL, value


def test_connected_streams_apply_both_functions(env1: Env, collect: Collect) -> None:
    numbers, words = env1.from_collection([1, 2]), env1.from_collection(["x", "drop"])
    assert sorted(collect(numbers.connect(words).map(Both()))) == ["int 1", "int 2", "str x"]
    assert collect(numbers.connect(words).flat_map(BothFlat())) == ["int 1", "int 2", "int 2"]
    processed = numbers.connect(words).process(Tagged())
    side = CollectSink()
    processed.get_side_output(SMALL).sink_to(side)
    processed.sink_to(CollectSink())
    env1.execute()
    assert side.results() == ["x", "drop"]


def test_connected_keyed_streams_share_state(env: Env, collect: Collect) -> None:
    rules = env.from_collection([("a", "A!"), ("b", "B!")])
    events = env.from_collection([("a", 1), ("b", 2), ("c", 3)])
    expected = [("a", 1, "A!"), ("b", 2, "B!"), ("c", 3, None)]
    both = rules.connect(events).key_by(lambda t: t[0], lambda t: t[0])
    assert sorted(collect(both.process(Enrich()))) == expected
    keyed = rules.key_by(lambda t: t[0]).connect(events.key_by(lambda t: t[0]))
    assert sorted(collect(keyed.process(Enrich()))) == expected


def test_project_selects_tuple_fields(env1: Env, collect: Collect) -> None:
    stream = env1.from_collection([(1, "a", 2.5)], Types.TUPLE([Types.INT(), Types.STRING(), Types.DOUBLE()]))
    projected = stream.project(2, 0)
    assert collect(projected) == [(2.5, 1)]
    assert projected.get_type() == Types.TUPLE([Types.DOUBLE(), Types.INT()])
    assert collect(stream.project(1)) == [("a",)]


def test_several_sinks_read_one_source(env: Env) -> None:
    evens, odds = CollectSink(), CollectSink()
    numbers = env.from_source(NumberSequenceSource(1, 100))
    numbers.filter(lambda x: x % 2 == 0).sink_to(evens)
    numbers.key_by(lambda x: x).map(lambda x: x).filter(lambda x: x % 2 == 1).add_sink(odds)
    env.execute()
    assert sorted(evens.results()) == list(range(2, 101, 2))
    assert sorted(odds.results()) == list(range(1, 101, 2))


def test_execute_runs_only_sinks_added_since_last_execution(env1: Env) -> None:
    first, second = CollectSink(), CollectSink()
    stream = env1.from_collection([1])
    stream.sink_to(first)
    env1.execute()
    stream.sink_to(second)
    env1.execute()
    assert (first.results(), second.results()) == ([1], [1])


def test_execute_and_collect_returns_results(env: Env, env1: Env) -> None:
    stream = env1.from_collection(range(100))
    assert stream.execute_and_collect(limit=3) == [0, 1, 2]
    with stream.execute_and_collect() as results:
        assert next(results) == 0
    assert env.from_collection(range(100)).execute_and_collect(limit=3) == [0, 1, 2]
    keyed = env1.from_collection(["a"]).key_by(lambda v: v.upper())
    assert list(keyed.execute_and_collect()) == [Row(f0="A", f1="a")]


# --- types between operators


def test_declared_types_are_enforced_at_encoding(env1: Env, collect: Collect) -> None:
    big = env1.from_collection([2**31]).map(lambda x: x, output_type=Types.INT())
    with pytest.raises(JobExecutionError, match="the value 2147483648 .* does not fit the type Integer"):
        collect(big)
    assert collect(big.map(str)) == ["2147483648"]
    rows = env1.from_collection([("a", 1)]).map(
        lambda t: t, output_type=Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()])
    )
    named = rows.rebalance().map(lambda row: (row.k, row["n"], type(row).__name__))
    assert collect(named) == [("a", 1, "Row")]
    assert collect(rows.map(lambda row: type(row).__name__)) == ["tuple"]
    assert collect(env1.from_collection([("a", 1)])) == [("a", 1)]
    assert rows.get_type() == Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()])
    assert env1.from_collection([1]).get_type() == Types.PICKLED_BYTE_ARRAY()


# --- mutation of emitted values


class InPlace(ReduceFunction[Any]):
    def reduce(self, value1: Any, value2: Any) -> Any:
        value1["n"] += value2["n"]
        return value1


class Buffering(ProcessFunction[int, Any]):
    def __init__(self) -> None:
        self.buffer: list[int] = []

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        self.buffer.append(value)
        yield self.buffer
        yield ("so far", self.buffer)
        if len(self.buffer) == 2:
            self.buffer.clear()


def test_emitted_record_keeps_its_value_after_mutation(env1: Env, collect: Collect) -> None:
    ones = env1.from_collection([{"n": 1}] * 3).key_by(lambda d: 0).reduce(InPlace())
    assert collect(ones) == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert collect(ones.rebalance().map(lambda d: d)) == [{"n": 1}, {"n": 2}, {"n": 3}]
    buffered = env1.from_collection([1, 2, 3]).process(Buffering())
    assert collect(buffered) == [[1], ("so far", [1]), [1, 2], ("so far", [1, 2]), [3], ("so far", [3])]


def test_branches_of_stream_do_not_share_mutations(env1: Env) -> None:
    def change(d: dict[str, int]) -> dict[str, int]:
        d["n"] = 99
        return d

    a, b, c = CollectSink(), CollectSink(), CollectSink()
    stream = env1.from_collection([{"n": 1}])
    stream.map(change).sink_to(a)
    stream.map(lambda d: d).sink_to(b)
    stream.rebalance().map(lambda d: d).set_parallelism(2).sink_to(c)
    env1.execute()
    assert (a.results(), b.results(), c.results()) == ([{"n": 99}], [{"n": 1}], [{"n": 1}])


# --- BATCH


def batch(env: Env) -> Env:
    return env.set_runtime_mode(RuntimeExecutionMode.BATCH)


def test_batch_reduce_emits_only_last_value(env: Env, collect: Collect) -> None:
    stream = batch(env).from_collection(PAIRS).key_by(lambda t: t[0])
    assert sorted(collect(stream.sum(1))) == [("a", 6), ("b", 6)]
    many = env.from_source(NumberSequenceSource(1, 50_000)).map(lambda x: (x % 7, x)).key_by(lambda t: t[0]).sum(1)
    assert sorted(collect(many)) == [(k, sum(range(k or 7, 50_001, 7))) for k in range(7)]


def test_batch_process_runs_key_by_key(env: Env, collect: Collect) -> None:
    stream = (
        batch(env)
        .set_parallelism(1)
        .from_collection(["a", "b", "a", "b", "a"])
        .key_by(lambda v: v)
        .process(CountPerKey())
    )
    keys = [r[0] for r in collect(stream)]
    assert keys in (["a", "a", "a", "b", "b"], ["b", "b", "a", "a", "a"])


def test_automatic_mode_is_batch_for_bounded_sources(env: Env, collect: Collect) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    assert sorted(collect(env.from_collection(PAIRS).key_by(0).sum(1))) == [("a", 6), ("b", 6)]


def test_cached_stream_is_recomputed_after_invalidation(env: Env, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    calls.touch()

    def square(x: int) -> int:
        with calls.open("a") as f:
            f.write("x")
        return x * x

    squares = env.from_collection([1, 2, 3]).map(square).cache()
    for calls_by_then in (3, 3):
        assert sorted(squares.execute_and_collect()) == [1, 4, 9]
        assert len(calls.read_text()) == calls_by_then
    squares.invalidate()
    for calls_by_then in (6, 6):
        assert sorted(squares.execute_and_collect()) == [1, 4, 9]
        assert len(calls.read_text()) == calls_by_then


# --- inlining


class CallSite:
    """Reports which code calls it."""

    @property
    def by_a_loop(self) -> bool:
        return sys._getframe(1).f_code.co_filename.startswith("<millstream ")


@pytest.mark.parametrize("inlining", [True, False])
def test_inlining_applies_only_when_enabled(env: Env, collect: Collect, inlining: bool) -> None:
    env.get_configuration().set_boolean("millstream.inlining", inlining)
    stream = (
        env.from_collection([CallSite(), CallSite(), CallSite()]).map(lambda a: (a.by_a_loop, 1)).key_by(lambda t: t[0])
    )
    assert collect(stream.reduce(lambda a, b: (a[0], a[1] + b[1])))[-1] == (inlining, 3)


NAMES = ["a\0b", "x" * 5000, "", "a\nb\r\t", "\ud800", "ü😀\u202e", "'\"\\{}%s%d", "</title>", "../../b", "\x1b[31m"]


def test_operators_accept_any_name_in_long_chain(env: Env, tmp_path: Path) -> None:
    env.configure(Configuration.from_dict({"execution.checkpointing.interval": "20ms"}))
    env.configure(Configuration.from_dict({"execution.checkpointing.dir": str(tmp_path)}))
    env.configure(Configuration.from_dict({"restart-strategy.type": "none"}))
    stream = env.from_collection(range(5)).name(NAMES[0])
    for i in range(600):
        stream = stream.map(lambda x: x + 1).name(NAMES[i % len(NAMES)])
    keyed = stream.map(lambda x: (x % 2, 1)).key_by(lambda t: t[0])
    counts = keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).name(NAMES[0])
    assert max(counts.execute_and_collect("".join(NAMES))) == (1, 2)
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        list(env.from_collection([1]).map(lambda x: x // 0).name(NAMES[0]).execute_and_collect(""))

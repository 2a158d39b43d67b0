"""Keys of whole programs: equal keys go to one subtask, unsuitable keys are rejected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from millstream.common import Duration, Row, Time, Types, WatermarkStrategy
from millstream.common.fast_dataclass import fast_dataclass
from millstream.datastream import DataStream, KeyedProcessFunction, ProcessWindowFunction, RuntimeExecutionMode
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import CountTrigger, EventTimeSessionWindows, GlobalWindows, TumblingEventTimeWindows
from millstream.jobmaster.engine import EpochFailed
from millstream.testing import CollectSink, LocalEnvironment
from millstream.testing.local_job import LocalJob


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Reading:
    value: float


@dataclass(frozen=True)
class WithNote:
    value: float
    note: float = field(default=0.0, compare=False)


@fast_dataclass
class Recorded:
    value: float


@dataclass(frozen=True)
class ByText:
    """Defines an equality that differs from that of its fields."""

    value: float

    def __stable_key__(self) -> object:
        return str(self.value)


class Plain:
    """A class without its own `__eq__`."""

    def __init__(self, x: int) -> None:
        self.x = x


class Valued(Plain):
    """A class with its own `__eq__`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Valued) and other.x == self.x

    def __hash__(self) -> int:
        return hash(self.x)


# Two kinds of key with a new NaN object each time: read from the record, or computed.
SELECTORS: list[Callable[[Any], Any]] = [
    lambda v: v[0],
    lambda v: float("nan"),
    lambda v: (v[0], "a"),
    lambda v: [v[0]],
    lambda v: ("a", (1, v[0])),
    lambda v: Row(x=v[0], y=1),
    lambda v: Pair(v[0], 1),
    lambda v: frozenset([1, float("nan")]),
    lambda v: {"k": v[0]},
    lambda v: Decimal("NaN"),
]


def nans(count: int = 4) -> list[Any]:
    return [(float("nan"), i) for i in range(count)]


def add(a: Any, b: Any) -> Any:
    return (a[0], a[1] + b[1])


class Count(KeyedProcessFunction):
    """Counts in keyed state, and emits the key."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield self.count.value(), ctx.get_current_key()


class Elements(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield len(list(elements)), key


def stamped(stream: DataStream[Any]) -> DataStream[Any]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(1))
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda v, _: v[1]))


@pytest.mark.parametrize("selector", SELECTORS)
def test_key_by_treats_all_nans_as_one_key(selector: Callable[[Any], Any]) -> None:
    env = LocalEnvironment()
    env.set_parallelism(2)
    totals = env.from_collection(nans()).key_by(selector).reduce(add).execute_and_collect()
    assert [total for _, total in totals] == [0, 1, 3, 6]
    counts = list(env.from_collection(nans()).key_by(selector).process(Count()).execute_and_collect())
    assert [count for count, _ in counts] == [1, 2, 3, 4]
    # The function receives the key that the selector returned; a set has no order, and one with a NaN differs each
    # time.
    assert sorted(str(counts[0][1])) == sorted(str(selector((float("nan"), 0))))


@pytest.mark.parametrize("selector", SELECTORS[:4])
def test_key_by_treats_all_nans_as_one_key_in_windows(selector: Callable[[Any], Any]) -> None:
    env = LocalEnvironment()

    def keyed() -> Any:
        return stamped(env.from_collection(nans())).key_by(selector)

    tumbling = keyed().window(TumblingEventTimeWindows.of(Time.seconds(1)))
    assert [n for _, n in tumbling.reduce(add).execute_and_collect()] == [6]
    sessions = keyed().window(EventTimeSessionWindows.with_gap(Time.seconds(1)))
    assert [n for _, n in sessions.reduce(add).execute_and_collect()] == [6]
    tumbling = keyed().window(TumblingEventTimeWindows.of(Time.seconds(1)))
    assert [n for n, _ in tumbling.process(Elements()).execute_and_collect()] == [4]
    counted = keyed().window(GlobalWindows.create()).trigger(CountTrigger.of(4))
    assert [n for n, _ in counted.process(Elements()).execute_and_collect()] == [4]


def test_key_by_treats_all_nans_as_one_key_in_batch_mode() -> None:
    env = LocalEnvironment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    assert [n for _, n in env.from_collection(nans()).key_by(lambda v: v[0]).reduce(add).execute_and_collect()] == [6]


@pytest.mark.parametrize("selector", SELECTORS[:4])
def test_key_by_nan_finds_its_state_after_restart(selector: Callable[[Any], Any]) -> None:
    env, sink = LocalEnvironment(), CollectSink()
    env.from_collection(nans()).key_by(selector).reduce(add).sink_to(sink)
    sizes = iter([2])
    job = LocalJob(env, epoch_sizes=lambda: next(sizes, 9))
    job.run_epoch()
    job.restore(job.snapshot())
    job.run()
    assert [n for _, n in sink.results()] == [0, 1, 3, 6]


@pytest.mark.parametrize("kind", [Reading, WithNote, Recorded, ByText])
def test_key_by_rejects_a_nan_in_a_dataclass(kind: type) -> None:
    with pytest.raises(EpochFailed, match="has a NaN in a field"):
        list(keyed_by(lambda v: kind(math.nan)))


def keyed_by(selector: Callable[[Any], Any]) -> Any:
    return LocalEnvironment().from_collection(nans()).key_by(selector).reduce(add).execute_and_collect()


@pytest.mark.parametrize("selector", [lambda v: Plain(1), lambda v: (1, Plain(1)), lambda v: [Plain(1)]])
def test_key_by_rejects_keys_without_value_equality(selector: Callable[[Any], Any]) -> None:
    with pytest.raises(EpochFailed, match=r"A key of class Plain .* no __eq__ and __hash__ by value.*") as failed:
        list(keyed_by(selector))
    assert "record: (nan, 0)" in str(failed.value)


@pytest.mark.parametrize(
    "selector", [lambda v: Valued(1), lambda v: Reading(1.0), lambda v: WithNote(1.0, math.nan), lambda v: Valued]
)
def test_key_by_accepts_keys_with_value_equality(selector: Callable[[Any], Any]) -> None:
    assert [n for _, n in keyed_by(selector)] == [0, 1, 3, 6]


# Recorded from PyFlink 2.3: the results of get_current_key() for keys of a declared type, with counts per key.
@pytest.mark.parametrize(
    ("key_type", "keys", "counted"),
    [
        (Types.INT(), [False, 0, 1, True, 0.2, 1.7], [(1, 0), (2, 0), (1, 1), (2, 1), (3, 0), (3, 1)]),
        (Types.BOOLEAN(), [False, 0, 1, 2], [(1, False), (2, False), (1, True), (2, True)]),
        (Types.FLOAT(), [0.1, 0.1000000001], [(1, 0.10000000149011612), (2, 0.10000000149011612)]),
        (Types.DOUBLE(), [1, 1.0, True], [(1, 1.0), (2, 1.0), (3, 1.0)]),
        (Types.TUPLE([Types.INT()]), [(False,), (0,), (0.9,)], [(1, (0,)), (2, (0,)), (3, (0,))]),
        (Types.ROW([Types.INT()]), [Row(0), Row(False)], [(1, Row(f0=0)), (2, Row(f0=0))]),
    ],
)
@pytest.mark.parametrize("has_new_keys", [False, True])
def test_key_by_coerces_keys_to_the_declared_type(
    key_type: Any, keys: list[Any], counted: Any, has_new_keys: bool
) -> None:
    env = LocalEnvironment()
    env.set_parallelism(2)
    # The receiver extracts a key that is a part of the record; a computed key is sent with it.
    records = env.from_collection([(key, 0) for key in keys])
    selector: Any = (lambda v: next(iter(v))) if has_new_keys else (lambda v: v[0])
    counts = list(records.key_by(selector, key_type).process(Count()).execute_and_collect())
    assert sorted(map(repr, counts)) == sorted(map(repr, counted))


def test_key_by_error_names_the_key_that_does_not_fit_the_declared_type() -> None:
    counted = LocalEnvironment().from_collection(["a"]).key_by(lambda v: v, Types.INT()).process(Count())
    with pytest.raises(EpochFailed, match="The key: the value 'a' .* does not fit the type Integer"):
        list(counted.execute_and_collect())


def test_key_by_treats_numpy_scalars_as_python_values() -> None:
    np = pytest.importorskip("numpy")
    for scalar, value in [(np.bool_(True), True), (np.int64(5), 5), (np.float64(2.5), 2.5), (np.str_("a"), "a")]:
        env = LocalEnvironment()
        env.set_parallelism(4)
        pairs = env.from_collection([(scalar, 1), (value, 1)])
        assert [n for _, n in pairs.key_by(lambda v: v[0]).reduce(add).execute_and_collect()] == [1, 2]
    nan = LocalEnvironment().from_collection([(kind("nan"), 1) for kind in (np.float64, float, np.float32, np.float16)])
    assert [n for _, n in nan.key_by(lambda v: v[0]).reduce(add).execute_and_collect()] == [1, 2, 3, 4]
    assert [n for _, n in nan.key_by(lambda v: (v[0], [])).reduce(add).execute_and_collect()] == [1, 2, 3, 4]
    no_time = LocalEnvironment().from_collection([(np.datetime64("NaT"), 1)]).key_by(lambda v: v[0]).reduce(add)
    with pytest.raises(EpochFailed, match="is not equal to itself: let the selector return None for it"):
        list(no_time.execute_and_collect())

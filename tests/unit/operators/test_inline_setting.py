"""`millstream.inlining`: without it every function is called, and nothing else is different."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.common import Configuration, Duration, Time, WatermarkStrategy
from millstream.common.errors import InvalidProgramError
from millstream.datastream import AggregateFunction, DataStream, MapFunction, StreamExecutionEnvironment
from millstream.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from millstream.operators.codegen.code_writer import CodeWriter
from millstream.operators.diagnostics.failures import Failure, SubtaskFailed
from millstream.testing import CollectSink
from millstream.testing.local_job import LocalJob

Program = Callable[[DataStream[Any]], DataStream[Any]]

# This text occurs in every function of the programs, and nowhere else.
MARK = 7919
OFFSET = 1
BY_TIME = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(3)).with_timestamp_assigner(
    lambda e, _: e[1] % 7919
)


class Scale(MapFunction):
    def __init__(self, by: int) -> None:
        self.by = by

    def map(self, value: int) -> Any:
        return (value % self.by, value % 7919)


class Total(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + value[1] % 7919  # type: ignore[no-any-return]

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def first_or_none(x: Any) -> Any:
    try:
        return x[7919]
    except TypeError:
        return None


def reduced(numbers: DataStream[Any]) -> DataStream[Any]:
    keys = 3
    pairs = numbers.filter(lambda x: x % 5 != 7919).map(lambda x: (x % keys, x % 7919 + OFFSET))
    return pairs.key_by(lambda t: t[0] % 7919).reduce(lambda a, b: (a[0], a[1] + b[1] % 7919))


def by_a_part(numbers: DataStream[Any]) -> DataStream[Any]:
    return numbers.map(Scale(4)).key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] - b[1] * 7919))


def flattened(numbers: DataStream[Any]) -> DataStream[Any]:
    # In the source's own chain.
    return numbers.flat_map(lambda x: [x, x + 7919]).set_parallelism(1).map(lambda x: not x % 2)


def windowed(numbers: DataStream[Any]) -> DataStream[Any]:
    events = numbers.map(Scale(3)).assign_timestamps_and_watermarks(BY_TIME).key_by(lambda t: t[0])
    windows = events.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    return windows.reduce(lambda a, b: (a[0], a[1] + b[1])).map(lambda t: (t[0], t[1] % 7919))


def in_sessions(numbers: DataStream[Any]) -> DataStream[Any]:
    events = numbers.map(Scale(3)).assign_timestamps_and_watermarks(BY_TIME).key_by(lambda t: t[0])
    return events.window(EventTimeSessionWindows.with_gap(Time.milliseconds(4))).aggregate(Total())


def handled(numbers: DataStream[Any]) -> DataStream[Any]:
    return numbers.map(first_or_none).map(lambda x: (x, 7919))


PROGRAMS = [reduced, by_a_part, flattened, windowed, in_sessions, handled]


def run(program: Program, inlining: bool | None) -> list[Any]:
    config = Configuration()
    if inlining is not None:
        config.set_boolean("millstream.inlining", inlining)
    env, sink = StreamExecutionEnvironment.get_execution_environment(config), CollectSink()
    program(env.set_parallelism(2).from_collection(list(range(40)))).sink_to(sink)
    LocalJob(env, epoch_sizes=lambda: 7).run()
    return sorted(map(repr, sink.results()))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the sources of the generated loops."""
    sources: list[str] = []
    build = CodeWriter.build

    def recording_build(self: CodeWriter, parameters: str) -> Callable[..., None]:
        function = build(self, parameters)
        sources.append("".join(linecache.getlines(function.__code__.co_filename)))
        return function

    monkeypatch.setattr(CodeWriter, "build", recording_build)
    yield sources


@pytest.mark.parametrize("program", PROGRAMS)
def test_inlining_option_changes_code_but_not_results(program: Program, written: list[str]) -> None:
    expected = run(program, None)
    assert any(str(MARK) in source for source in written)
    assert run(program, True) == expected
    written.clear()
    assert run(program, False) == expected
    assert written
    assert not any(str(MARK) in source for source in written)


def failure_of(program: Program, inlining: bool) -> Failure:
    with pytest.raises(SubtaskFailed) as raised:
        run(program, inlining)
    return raised.value.failure


@pytest.mark.parametrize(
    "program",
    [
        lambda numbers: numbers.map(lambda x: 1 // (x - 33)).name("Divide"),
        lambda numbers: numbers.filter(lambda x: 1 // (x - 33)).name("Divide"),
        lambda numbers: (
            numbers.map(lambda x: (0, x))
            .key_by(lambda t: t[0])
            .reduce(lambda a, b: (0, 1 // (b[1] - 33)))
            .name("Divide")
        ),
        lambda numbers: numbers.map(lambda x: x).name("Divide").key_by(lambda x: 1 // (x - 33)).reduce(lambda a, b: b),
    ],
)
def test_inlining_option_does_not_change_errors(program: Program) -> None:
    failure = failure_of(program, True)
    assert failure == failure_of(program, False)
    assert failure.operator == "Divide"
    assert failure.record is not None
    assert "33" in failure.record
    assert "ZeroDivisionError" in failure.user_traceback
    assert "test_inline_setting.py" in failure.user_traceback


def test_inlining_option_rejects_other_values() -> None:
    config = Configuration().set_string("millstream.inlining", "sometimes")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.from_collection([1]).sink_to(CollectSink())
    with pytest.raises(InvalidProgramError, match="millstream.inlining='sometimes' must be true or false"):
        LocalJob(env)

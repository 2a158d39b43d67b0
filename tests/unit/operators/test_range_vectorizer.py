"""Vectorized programs emit the same ints, booleans and errors as the loop."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.common.inferred_types import ANYTHING, Fixed, InferredType, Whole
from millstream.common.typeinfo import TypeInformation
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.operators.codegen.range_vectorizer import vectorized_in_bounds, works_on_columns
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.operators.runtime import split_input
from millstream.testing import CollectSink
from millstream.testing.local_job import LocalJob

LONG = Whole(-(2**63), 2**63 - 1)
LIMIT = 10
LONG_TYPE = Types.LONG()


def scaled(by: int) -> Callable[[int], Any]:
    return lambda x: (x * 7919 % by, 1, x // 7 - x % 5)


def counter() -> tuple[Callable[[int], int], Callable[[], None]]:
    step = 0

    def more() -> None:
        nonlocal step
        step += 1

    return lambda x: x + step, more


COUNTER = counter()


class Doubler:
    def __init__(self) -> None:
        self.factor = 2

    def by_attribute(self, x: int) -> int:
        return x * self.factor

    def plainly(self, x: int) -> int:
        return x * 2


@pytest.mark.parametrize(
    ("function", "argument", "expected"),
    [
        (lambda x: x * 3 + 1, Whole(0, 1 << 40), True),
        (lambda x: (x % 10, 1, -x, x & 255, x > 3), Whole(-5, 1 << 40), True),
        (scaled(1000), Whole(0, 1 << 40), True),
        (lambda t: t[0] != t[1], Fixed((Whole(0, 9), Whole(0, 9))), True),
        # 64 bits are enough, and one more would not be.
        (lambda x: x + 1, Whole(0, 2**63 - 2), True),
        (lambda x: x + 1, Whole(0, 2**63 - 1), False),
        (lambda x: x - 1, Whole(-(2**63), 0), False),
        (lambda x: -x, Whole(-(2**63), 0), False),
        (lambda x: x // -1, LONG, False),
        (lambda x: x * x % 7, Whole(0, 1 << 32), False),
        (lambda x: x > 1 << 70, Whole(0, 9), False),
        # An error must name its record.
        (lambda x: 5 // x, Whole(-1, 1), False),
        (lambda x: 5 % (x - 3), Whole(0, 9), False),
        (lambda x: 5 // x, Whole(1, 9), True),
        # Numpy's booleans have other arithmetic, and its floats other rounding.
        (lambda x: (x > 3) + (x > 4), Whole(0, 9), False),
        (lambda x: -(x > 3), Whole(0, 9), False),
        (lambda x: (x > 3) == (x > 4), Whole(0, 9), False),
        (lambda x: not x, Whole(0, 9), False),
        (lambda x: ~x, Whole(0, 9), False),
        (lambda x: x / 2, Whole(0, 9), False),
        (lambda x: x**2, Whole(0, 9), False),
        (lambda x: x << 2, Whole(0, 9), False),
        (lambda x: x is None, Whole(0, 9), False),
        (lambda x: [x], Whole(0, 9), False),
        (lambda x: (x, (x, 1)), Whole(0, 9), False),
        # Mutable variables are read for each record.
        (lambda x: x + LIMIT, Whole(0, 9), False),
        (COUNTER[0], Whole(0, 9), False),
        (Doubler().by_attribute, Whole(0, 9), False),
        (lambda x: x + 1, Whole(0, 9, null=True), False),
        (lambda x: x + 1, Whole(0), False),
        (lambda x: x + 1, ANYTHING, False),
        (len, Whole(0, 9), False),
        (lambda x: 5, Whole(0, 9), True),
    ],
)
def test_works_on_columns_for_functions_and_argument_ranges(
    function: Callable[..., Any], argument: InferredType, expected: bool
) -> None:
    assert works_on_columns(function, argument) == expected


def outcome(
    program: Callable[[DataStream], DataStream],
    start: int,
    count: int,
    columns: bool,
    type_info: TypeInformation = LONG_TYPE,
) -> list[Any]:
    """Return a program's results for a sequence, with types, and the error it ends with, if any."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(1)
    sink = CollectSink()
    program(env.from_source(NumberSequenceSource(start, start + count - 1), type_info=type_info)).sink_to(sink)
    before = split_input.VECTORIZE_AFTER
    split_input.VECTORIZE_AFTER = 0 if columns else 1 << 62
    try:
        job = LocalJob(env)
        error = None
        try:
            job.run()
        except SubtaskFailed as e:
            error = str(e)
    finally:
        split_input.VECTORIZE_AFTER = before
    return [[described(r) for r in sink.results()], error]


def described(value: Any) -> Any:
    return [described(v) for v in value] if isinstance(value, tuple) else (type(value), value)


PROGRAMS: list[Callable[[DataStream], DataStream]] = [
    lambda s: s.map(lambda x: x * 3 + 1, Types.LONG()).filter(lambda x: x % 2 == 0),
    lambda s: s.filter(lambda x: x % 3).filter(lambda x: x & 1),
    lambda s: s.map(lambda x: (x % 7, 1, x // -3)).filter(lambda t: t[0] > t[2] % 5).map(lambda t: (t[2], t[2], t[1])),
    lambda s: s.map(lambda x: x > 5).map(lambda b: (b, str(b))),
    lambda s: s.map(lambda x: (x, 2)).map(lambda t: t[1] % 2 + t[0]),
    lambda s: s.map(lambda x: (x, 2)).map(lambda t: t[1] % 2),
    lambda s: s.map(lambda x: (x, 2)).map(lambda t: (t[1], t)),
    lambda s: s.map(lambda x: 5).map(lambda x: x + 1),
    lambda s: s.map(lambda x: x % 100, Types.BYTE()).map(lambda x: x * 100, Types.BYTE()).map(lambda x: x),
    lambda s: s.map(lambda x: x * 10, Types.BYTE()),
    lambda s: s.map(lambda x: x - 1).map(lambda x: 1000 // (x % 150 - 149)),
    lambda s: s.map(lambda x: (x % 5, 1)).key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])),
    lambda s: s.map(lambda x: x * 2).union(s.map(lambda x: x * 3)),
    lambda s: s.map(lambda x: x + 1).flat_map(lambda x: [x] * (x % 3)),
    lambda s: s.map(Doubler().plainly).map(lambda x: x - 7),
    lambda s: s.map(lambda x: (x, x % 9)).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda t, _: t[0])
    ),
]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(PROGRAMS), st.one_of(st.integers(-300, 10), st.integers(-(2**63), 2**63 - 400)), st.integers(1, 400)
)
def test_vectorized_program_equals_the_loop(program: Any, start: int, count: int) -> None:
    with_columns = outcome(program, start, count, columns=True)
    assert with_columns == outcome(program, start, count, columns=False)


@pytest.mark.parametrize("program", PROGRAMS)
def test_vectorized_program_equals_the_loop_for_both_signs(program: Any) -> None:
    assert outcome(program, -150, 300, columns=True) == outcome(program, -150, 300, columns=False)


def test_vectorized_source_rejects_numbers_outside_its_type() -> None:
    actual = outcome(PROGRAMS[0], 0, 300, columns=True, type_info=Types.BYTE())
    assert "the value 128 (int) does not fit the type Byte" in actual[1]
    assert actual == outcome(PROGRAMS[0], 0, 300, columns=False, type_info=Types.BYTE())


def test_vectorized_program_falls_back_to_the_loop_out_of_range() -> None:
    paths: list[str] = []
    run = vectorized_in_bounds(lambda batch: paths.append("columns"), lambda batch: paths.append("loop"), Whole(0, 999))
    for batch in (range(1000), range(1, 1001), range(-1, 900), range(5), list(range(500)), range(900, 0, -1)):
        run(batch)
    assert paths == ["columns", "loop", "loop", "loop", "loop", "loop"]


def test_vectorization_starts_after_a_minimum_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_input, "VECTORIZE_AFTER", 500)
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(1)
    sink = CollectSink()
    env.from_source(NumberSequenceSource(0, 1999)).map(lambda x: x % 1000 * 3).sink_to(sink)
    before = set(linecache.cache)
    job = LocalJob(env, epoch_sizes=lambda: 300)
    texts = []
    for _ in range(7):
        job.run_epoch()
        texts.append("".join("".join(linecache.cache[name][2]) for name in set(linecache.cache) - before))  # type: ignore[misc]
    assert [".tolist()" in text for text in texts] == [False, False, *[True] * 5]
    assert sink.results() == [x % 1000 * 3 for x in range(2000)]

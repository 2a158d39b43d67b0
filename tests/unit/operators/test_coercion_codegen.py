"""Generated coercion equals the types' converters, however many checks are omitted."""

from __future__ import annotations

import datetime as dt
import linecache
import sys
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Configuration, Instant, Row, Types, WatermarkStrategy
from millstream.common.errors import TypeMismatchError
from millstream.common.inferred_types import (
    ANYTHING,
    Fixed,
    InferredType,
    Moved,
    Real,
    Some,
    Whole,
    either,
    inferred_type_of,
    widened,
    within,
)
from millstream.common.typeinfo import TypeInformation
from millstream.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.operators.base import Operator
from millstream.operators.codegen.code_writer import CodeWriter, Var
from millstream.operators.codegen.coercion_codegen import coerce
from millstream.operators.codegen.inline import BINARY_OPERATORS
from millstream.operators.codegen.return_types import binary, elements_of, result_of, unary
from millstream.operators.codegen.sum_headroom import FULL_HEADROOM, HeadroomMeter, headroom_of
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.testing import CollectSink
from millstream.testing.local_job import LocalJob


class Colour(IntEnum):
    RED = 1


class Name(str):
    """A subclass of str."""


class Pair(NamedTuple):
    first: Any
    second: Any


class Index:
    """An int only by `__index__`, like numpy's."""

    def __index__(self) -> int:
        return 3

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index)


NUMBERS = st.one_of(
    st.integers(-300, 300),
    st.integers(-(2**65), 2**65),
    st.sampled_from([s * 2**b + d for s in (1, -1) for b in (7, 15, 30, 31, 63) for d in (-1, 0, 1)]),
)
PLAIN = st.one_of(
    NUMBERS,
    st.none(),
    st.booleans(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=2),
    st.decimals(allow_nan=False),
    st.just(Colour.RED),
    st.just(Name("n")),
    st.just(Index()),
    st.just(Instant(1, 2)),
    st.just(dt.date(2024, 1, 2)),
    st.just(dt.time(1)),
    st.just(dt.datetime(2024, 1, 2)),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Pair, inner, inner),
        st.builds(Row, inner, inner),
        st.dictionaries(st.text(max_size=2), inner, max_size=2),
    ),
    max_leaves=4,
)
BASIC_TYPES = [
    *(Types.STRING(), Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.FLOAT(), Types.DOUBLE()),
    *(Types.BOOLEAN(), Types.CHAR(), Types.BIG_INT(), Types.BIG_DEC(), Types.INSTANT()),
    *(Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.PICKLED_BYTE_ARRAY()),
]
TYPES = st.recursive(
    st.sampled_from(BASIC_TYPES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(Types.TUPLE), st.lists(inner, max_size=3).map(Types.ROW), inner.map(Types.LIST)
    ),
    max_leaves=4,
)


def fitting_values(type_info: TypeInformation) -> st.SearchStrategy[Any]:
    """Return values that mostly have the form of a type, so that the tests of members are reached."""
    if hasattr(type_info, "get_field_types"):
        members = [fitting_values(t) for t in type_info.get_field_types()]
        return st.one_of(st.tuples(*members), VALUES)
    return PLAIN


def outcome(action: Callable[[], Any]) -> Any:
    """Return an action's result with the classes of all its parts, or the error it raises."""
    try:
        return described(action())
    except TypeMismatchError as e:
        return ("error", str(e))


def described(value: Any) -> Any:
    if isinstance(value, (list, tuple, Row)):
        return (type(value), [described(v) for v in value])
    return (type(value), repr(value))


def converted(type_info: TypeInformation, value: Any) -> Any:
    convert = type_info.converter()
    return value if convert is None else convert(value)


def written(type_info: TypeInformation, known: InferredType = ANYTHING) -> Callable[[Any], Any]:
    """Return the generated lines for a type, as a function."""
    w = CodeWriter("test")
    out: list[Any] = []
    with w.block("for x in batch:"):
        value = coerce(w, Operator(), type_info, Var("x", None, detached=False, inferred_type=known))
        w.line(f"{w.bind(out.append, 'put')}({value.name})")
    run = w.build("batch")

    def fit(value: Any) -> Any:
        out.clear()
        run([value])
        return out[0]

    return fit


@given(st.data())
def test_coercion_codegen_equals_the_converter(data: st.DataObject) -> None:
    type_info = data.draw(TYPES)
    value = data.draw(fitting_values(type_info))
    assert outcome(lambda: written(type_info)(value)) == outcome(lambda: converted(type_info, value))


@given(st.data())
def test_coercion_codegen_equals_the_converter_with_inferred_types(data: st.DataObject) -> None:
    type_info = data.draw(TYPES)
    value = data.draw(fitting_values(type_info))
    known = either(inferred_type_of(value), inferred_type_of(data.draw(fitting_values(type_info))))
    if data.draw(st.booleans()):
        known = widened(inferred_type_of(value), known)
    assert outcome(lambda: written(type_info, known)(value)) == outcome(lambda: converted(type_info, value))


@given(TYPES, TYPES, st.data())
def test_coercion_codegen_equals_the_converter_between_types(
    first: TypeInformation, second: TypeInformation, data: st.DataObject
) -> None:
    try:
        value = converted(first, data.draw(fitting_values(first)))
    except TypeMismatchError:
        return
    fit = written(second, first.inferred_type() or ANYTHING)
    assert outcome(lambda: fit(value)) == outcome(lambda: converted(second, value))


@given(st.data())
def test_coercion_result_has_the_inferred_type_and_is_idempotent(data: st.DataObject) -> None:
    type_info = data.draw(TYPES)
    inferred = type_info.inferred_type()
    try:
        value = converted(type_info, data.draw(fitting_values(type_info)))
    except TypeMismatchError:
        return
    if inferred is not None:
        assert is_in(value, inferred)
        assert described(converted(type_info, value)) == described(value)


def is_in(value: Any, inferred: InferredType) -> bool:
    """Return whether a value has an inferred type, by definition; the generated checks are compared with it."""
    if inferred == ANYTHING or (value is None and inferred.null):  # type: ignore[union-attr]
        return True
    if isinstance(inferred, Whole):
        above = type(value) is int and (inferred.low is None or value >= inferred.low)
        return above and (inferred.high is None or value <= inferred.high)
    if isinstance(inferred, Real):
        return type(value) is float
    if isinstance(inferred, Some):
        return type(value) is inferred.kind if inferred.exact else isinstance(value, inferred.kind)
    assert isinstance(inferred, Fixed)
    return type(value) is tuple and len(value) == len(inferred.members) and all(map(is_in, value, inferred.members))


WIDE = st.one_of(NUMBERS, st.booleans(), st.floats(), st.text(max_size=2), st.tuples(NUMBERS, st.text(max_size=2)))


def drawn_type(data: st.DataObject, value: Any) -> InferredType:
    """Return an inferred type that a value has."""
    other = next((v for v in data.draw(st.lists(WIDE, max_size=8)) if type(v) is type(value)), value)
    drawn = either(inferred_type_of(value), inferred_type_of(other))
    return widened(inferred_type_of(value), drawn) if data.draw(st.booleans()) else drawn


@given(st.data(), st.sampled_from(sorted(BINARY_OPERATORS)))
def test_binary_operators_return_the_inferred_type(data: st.DataObject, operator: str) -> None:
    left = data.draw(WIDE)
    right = data.draw(st.integers(-9, 9) if operator in ("**", "<<", ">>") else WIDE)
    if operator == "**" or (operator == "*" and isinstance(right, (str, tuple))):
        left = data.draw(st.integers(-9, 9))
    elif operator == "*" and isinstance(left, (str, tuple)):
        right = data.draw(st.integers(-9, 9))
    inferred = binary(operator, drawn_type(data, left), drawn_type(data, right))
    try:
        result = eval(f"a {operator} b", {"a": left, "b": right})
    except (TypeError, ValueError, ArithmeticError):
        return
    assert is_in(result, inferred)


@given(st.data(), st.sampled_from([("UNARY_NEGATIVE", "-"), ("UNARY_INVERT", "~"), ("UNARY_NOT", "not ")]))
def test_unary_operators_return_the_inferred_type(data: st.DataObject, operation: tuple[str, str]) -> None:
    value = data.draw(WIDE)
    inferred = unary(operation[0], drawn_type(data, value))
    try:
        result = eval(f"{operation[1]}a", {"a": value})
    except TypeError:
        return
    assert is_in(result, inferred)


def scaled(by: int) -> Callable[[int], tuple[int, int]]:
    return lambda x: (x * 7919 % by, 1)


LONG = Whole(-(2**63), 2**63 - 1, null=True)


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        (scaled(1000), [LONG], Fixed((Whole(0, 999), Whole(1, 1)))),
        (scaled(1000), [ANYTHING], Fixed((ANYTHING, Whole(1, 1)))),
        (lambda a, b: (a[0], a[1] + b[1]), [ANYTHING, ANYTHING], Fixed((ANYTHING, ANYTHING))),
        (lambda a, b: (a[0], a[1] + b[1]), [Fixed((LONG, Whole(0, 5)))] * 2, Fixed((LONG, Whole(0, 10)))),
        (lambda x: x, [LONG], LONG),
        (lambda x: x > 3, [LONG], Some(bool, exact=True)),
        (lambda x: x > 3, [ANYTHING], ANYTHING),
        (lambda x: not x, [ANYTHING], Some(bool, exact=True)),
        (lambda x: x / 2, [LONG], Real()),
        (lambda x: [x], [LONG], ANYTHING),
        (lambda x: LONG, [LONG], ANYTHING),
        (lambda x: x.real, [LONG], ANYTHING),
        (len, [ANYTHING], ANYTHING),
        (lambda x: x if x else 1, [LONG], ANYTHING),
    ],
)
def test_return_type_inference_of_functions(
    function: Callable[..., Any], arguments: list[InferredType], result: InferredType
) -> None:
    assert result_of(function, arguments) == result


def yields(text: str) -> Any:
    for word in text.split():
        if word:
            yield word, 1
    yield text, 5


def yields_more(text: str) -> Any:
    yield text, 1
    yield from [(text, "x")]


def yields_one_of_two(text: str) -> Any:
    yield (text, 1) if text else text


def returns_twice(text: str) -> Any:
    return [(w, 1) for w in text] if text else [text]


@pytest.mark.parametrize(
    ("function", "inferred"),
    [
        (yields, Fixed((ANYTHING, Whole(1, 5)))),
        (yields_more, ANYTHING),
        (yields_one_of_two, ANYTHING),
        (returns_twice, ANYTHING),
        (lambda s: [w + "" for w in s], ANYTHING),
        (lambda s: [(w, len(w)) for w in s], ANYTHING),
        (lambda s: [(w, 1) for w in s][1], ANYTHING),
        (lambda s: sorted([(w, 1) for w in s]), ANYTHING),
        (str.split, ANYTHING),
    ],
)
def test_element_type_inference_of_generators(function: Callable[..., Any], inferred: InferredType) -> None:
    assert elements_of(function) == inferred


def test_element_type_inference_of_list_comprehensions() -> None:
    # Python 3.12 inlines the comprehension into the function, where inference does not read it.
    known = Fixed((ANYTHING, Whole(1, 1))) if sys.version_info < (3, 12) else ANYTHING
    assert elements_of(lambda s: [(w, 1) for w in s.split()]) == known
    assert elements_of(lambda s: [(w, 1) for w in s.split() if w]) == known


def test_return_type_inference_ignores_mutable_closure_variables() -> None:
    by = 10

    def change() -> None:
        nonlocal by
        by = 0

    assert result_of(lambda x: x % by, [LONG]) == ANYTHING
    change()


@given(WIDE, WIDE)
def test_inferred_type_union_contains_both(a: Any, b: Any) -> None:
    for both in (either(inferred_type_of(a), inferred_type_of(b)), widened(inferred_type_of(a), inferred_type_of(b))):
        assert is_in(a, both)
        assert is_in(b, both)
        assert within(inferred_type_of(a), both)


# --- bounds of sums

MOVES: list[Callable[[int, int], Any]] = [
    lambda a, b: a + b,
    lambda a, b: b + a,
    lambda a, b: a - b,
    lambda a, b: b - a,
    lambda a, b: 3 - (b - (a - 7)) + b,
    lambda a, b: a - (b + b) + 1,
    lambda a, b: a + b % 5,
    lambda a, b: a + a,
    lambda a, b: a - a,
    lambda a, b: -a + b,
    lambda a, b: a * b,
    lambda a, b: a,
    lambda a, b: b,
]
SMALL = st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(sorted)


@given(st.sampled_from(MOVES), SMALL, st.data())
def test_inferred_step_bounds_the_change_of_a_sum(move: Callable[[int, int], Any], by: list[int], data: Any) -> None:
    result = result_of(move, [Moved(base=1), Whole(*by)])  # type: ignore[arg-type]
    old, step = data.draw(NUMBERS), data.draw(st.integers(*by))
    assert isinstance(result, Moved) == (MOVES.index(move) in (0, 1, 2, 5, 6, 11))
    if isinstance(result, Moved):
        assert result.base == 1
        assert result.min_step <= move(old, step) - old <= result.max_step


@settings(deadline=None)
@given(st.sampled_from(MOVES[:3]), SMALL, st.sampled_from([Types.BYTE(), Types.SHORT()]), st.data())
def test_sum_headroom_keeps_sums_within_their_type(
    move: Callable[[int, int], int], by: list[int], type_info: TypeInformation, data: Any
) -> None:
    declared = type_info.inferred_type()
    headroom = headroom_of(Whole(), declared, lambda state: result_of(move, [state, Whole(*by)]))  # type: ignore[arg-type]
    assert isinstance(declared, Whole) and headroom is not None and isinstance(headroom.initial_type, Whole)
    assert headroom.initial_type.low is not None and headroom.initial_type.high is not None
    for value in (headroom.initial_type.low, headroom.initial_type.high):
        step = data.draw(st.sampled_from(by))
        for _ in range(min(FULL_HEADROOM // headroom.share, 70_000) if headroom.share else 9):
            value = move(value, step)
        assert is_in(value, declared)


def test_sum_headroom_is_none_without_a_sum() -> None:
    state, long = Fixed((LONG, Whole(0))), Fixed((LONG, LONG))
    for function in (lambda a, b: (a[0], a[1] + a[1]), lambda a, b: (a[1], a[0]), lambda a, b: (a[0], a[1] + b[0])):
        assert headroom_of(state, long, lambda s, f=function: result_of(f, [s, state])) is None  # type: ignore[misc]
    swapped = Fixed((Whole(0), Whole(0)))
    assert headroom_of(swapped, long, lambda s: result_of(lambda a: (a[1] + 1, a[0] + 1), [s])) is None


def test_sum_headroom_meter_rejects_unknown_steps() -> None:
    meter = HeadroomMeter()
    assert meter.take(FULL_HEADROOM, has_uncounted=False, are_tested=False)
    # From here on values are checked, and the checks remain.
    assert not meter.take(FULL_HEADROOM + 1, has_uncounted=False, are_tested=True)
    meter.restart()
    assert meter.take(FULL_HEADROOM, has_uncounted=False, are_tested=True)
    assert not meter.take(0, has_uncounted=False, are_tested=False)
    assert not meter.take(1, has_uncounted=False, are_tested=True)
    assert not HeadroomMeter().take(0, has_uncounted=True, are_tested=False)


# --- whole programs


def new_env(inlining: bool = True, backend: str = "hashmap") -> StreamExecutionEnvironment:
    config = Configuration.from_dict({"millstream.inlining": str(inlining).lower(), "state.backend.type": backend})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    return env


PAIR = Types.TUPLE([Types.LONG(), Types.INT()])


def sum_up(
    elements: list[Any], type_info: TypeInformation | None, before: LocalJob | None = None
) -> tuple[LocalJob, list[Any], str | None]:
    """Sum pairs by key, optionally restoring another job; return the job, its results and its error.

    The first epoch has one pair, the second all others. Without a type only the first runs.
    """
    env, sink = new_env(), CollectSink()
    pairs = env.from_source(NumberSequenceSource(0, len(elements) - 1)).map(lambda i: elements[i], type_info)
    keyed = pairs.key_by(lambda t: t[0])
    keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sum").sink_to(sink)
    sizes = iter([1])
    job = LocalJob(
        env,
        epoch_sizes=lambda: next(sizes, 1 << 30),
        snapshot=before.snapshot() if before else None,
        storage=before.storage if before else None,
    )
    try:
        if type_info is None:
            job.run_epoch()
        else:
            job.run()
    except SubtaskFailed as e:
        return job, sink.results(), str(e)
    return job, sink.results(), None


ELEMENTS = st.lists(st.tuples(st.sampled_from([0, 1, True]), st.one_of(NUMBERS, st.booleans())), min_size=1, max_size=9)


@settings(deadline=None)
@given(ELEMENTS)
def test_typed_reduce_emits_coerced_sums(elements: list[Any]) -> None:
    sums: dict[Any, Any] = {}
    expected = []
    refused = None
    try:
        for key, number in [converted(PAIR, e) for e in elements]:
            sums[key] = (key, sums[key][1] + number) if key in sums else (key, number)
            expected.append(converted(PAIR, sums[key]))
    except TypeMismatchError as e:
        refused = str(e)
    _, results, error = sum_up(elements, PAIR)
    if refused is not None:
        assert error is not None
        assert refused in error
    else:
        assert error is None
        assert list(map(described, results)) == list(map(described, expected))


@pytest.mark.parametrize("left", [(0, True), (False, 1), (0, 1.5), (0, 2**40), [0, 1], Pair(0, 1)])
def test_typed_reduce_checks_restored_state(left: Any) -> None:
    elements = [left, (0, 1), (0, 2)]
    before, _, _ = sum_up(elements, None)
    total = left
    _, results, error = sum_up(elements, PAIR, before)
    expected: Any = []
    for number in (1, 2):
        total = (total[0], total[1] + number)
        expected.append(outcome(lambda: converted(PAIR, total)))  # noqa: B023
    if error is None:
        assert list(map(described, results)) == expected
    else:
        assert expected[0][0] == "error"
        assert expected[0][1] in error


def test_typed_reduce_over_a_union_assumes_no_input_type() -> None:
    env = new_env()
    # Sums of these values alone are at least 2, so only the upper bound is checked.
    twos = env.from_collection([0, 0], Types.INT()).map(lambda x: (x, 2), PAIR)
    lowest = env.from_collection([(0, -(2**31))], PAIR)
    keyed = lowest.union(twos).key_by(lambda t: t[0], Types.INT())
    keyed.reduce(lambda a, b: (a[0], a[1] + a[1])).sink_to(CollectSink())
    with pytest.raises(SubtaskFailed, match="does not fit the type"):
        LocalJob(env).run()


def last_before_the_end(step: int) -> int:
    """Return the number of additions until an INT overflows."""
    return (2**31 - 1) // step


def count_by(
    step: int,
    records: int,
    epochs: list[int],
    others: int = 0,
    before: LocalJob | None = None,
    typed: bool = True,
    backend: str = "hashmap",
) -> tuple[LocalJob, list[Any], str | None]:
    """Sum a constant for key 0 repeatedly, optionally restoring another job, with new keys in between.

    Returns the job, the results for key 0, and the error. Without a type, run only the first epoch.
    """
    env, sink, each = new_env(backend=backend), CollectSink(), others + 1
    numbers = env.from_source(NumberSequenceSource(1, records * each))
    pairs = numbers.map(lambda x: (x * (x % each > 0), step), PAIR if typed else None)
    pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sum").sink_to(sink)
    sizes = iter(epochs)
    job = LocalJob(
        env,
        epoch_sizes=lambda: next(sizes, 1 << 30),
        snapshot=before.snapshot() if before else None,
        storage=before.storage if before else None,
    )
    error = None
    try:
        if typed:
            job.run()
        else:
            job.run_epoch()
    except SubtaskFailed as e:
        error = str(e)
    return job, [number for key, number in sink.results() if key == 0], error


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("step", [1 << 20, 1 << 17])
@pytest.mark.parametrize("epochs", [[], [3] * 9, [1000] * 9, [2047], [2046, 1, 1]])
def test_typed_reduce_overflow_raises_at_any_epoch_boundary(epochs: list[int], step: int, others: int) -> None:
    max_records = last_before_the_end(step)
    _, results, error = count_by(step, max_records, epochs, others)
    assert (results, error) == ([step * n for n in range(1, max_records + 1)], None)
    _, _, error = count_by(step, max_records + 1, epochs, others)
    assert error is not None
    assert f"the value {2**31} (int) does not fit the type Integer" in error


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("left", [1, 1023, 1024, 1025, 2047])
def test_typed_reduce_overflow_raises_after_restore(left: int, others: int, backend: str) -> None:
    step = 1 << 20
    max_records = last_before_the_end(step)
    for records in (max_records, max_records + 1):
        before, _, _ = count_by(step, records, [left * (others + 1)], others, None, False, backend)
        _, results, error = count_by(step, records, [500], others, before, True, backend)
        if records == max_records:
            assert (results, error) == ([step * n for n in range(left + 1, max_records + 1)], None)
        else:
            assert error is not None
            assert f"the value {2**31} (int) does not fit the type Integer" in error


@pytest.mark.parametrize("others", [0, 1])
def test_typed_reduce_does_not_convert_values_that_fit(others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = type(PAIR).converter
    calls: list[Any] = []

    def counting_converter(self: Any) -> Callable[[Any], Any]:
        convert = real(self)

        def run(value: Any) -> Any:
            calls.append(value)
            return value if convert is None else convert(value)

        return run

    before, _, _ = count_by(1, 600, [300 * (others + 1)], others, typed=False)
    monkeypatch.setattr(type(PAIR), "converter", counting_converter)
    _, results, error = count_by(1, 600, [100] * 9, others, before)
    assert (results, error, calls) == (list(range(301, 601)), None, [])


def test_typed_reduce_converts_values_of_another_type_despite_headroom() -> None:
    env, sink = new_env(), CollectSink()
    left = env.from_source(NumberSequenceSource(1, 9000)).map(lambda x: (x < 0, 1))
    left.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sum").sink_to(CollectSink())
    before = LocalJob(env, epoch_sizes=lambda: 1)
    before.run_epoch()
    env = new_env()
    pairs = env.from_source(NumberSequenceSource(1, 9000)).map(lambda x: (x * 0, 1), PAIR)
    pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sum").sink_to(sink)
    LocalJob(env, epoch_sizes=lambda: 8000, snapshot=before.snapshot(), storage=before.storage).run()
    assert list(map(described, sink.results())) == [described((0, n)) for n in range(2, 9001)]


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("first", [2**31 - 2, 2**30, 5])
def test_typed_reduce_counts_headroom_from_the_first_value(first: int, others: int) -> None:
    def count(records: int) -> tuple[list[Any], str | None]:
        env, sink = new_env(), CollectSink()
        numbers = env.from_source(NumberSequenceSource(0, records * (others + 1) - 1))
        pairs = numbers.map(lambda x: (x * (x % (others + 1) > 0), first if x == 0 else 0), PAIR)
        pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + 1)).sink_to(sink)
        try:
            LocalJob(env, epoch_sizes=lambda: 3).run()
        except SubtaskFailed as e:
            return [], str(e)
        return [n for key, n in sink.results() if key == 0], None

    left = min(2**31 - 1 - first, 20)
    assert count(left + 1) == (list(range(first, first + left + 1)), None)
    if first + left == 2**31 - 1:
        assert "does not fit the type Integer" in str(count(left + 2)[1])


def test_typed_reduce_overflow_over_a_union_raises() -> None:
    env = new_env()
    numbers = env.from_source(NumberSequenceSource(1, 2048))
    ones = numbers.map(lambda x: (0, 1), PAIR)
    many = numbers.map(lambda x: (0, 1 << 20), PAIR)
    keyed = ones.union(many).key_by(lambda t: t[0])
    keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(CollectSink())
    with pytest.raises(SubtaskFailed, match="does not fit the type Integer"):
        LocalJob(env).run()


def test_typed_reduce_overflow_names_operator_and_record() -> None:
    long_pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    _, _, error = sum_up([(0, 2**62), (0, 2**62), (0, 1)], long_pair)
    assert error is not None
    assert f"the value {2**63} (int) does not fit the type Long" in error
    assert "in operator 'Reduce' (uid sum)" in error
    assert f"record: (0, {2**63})" in error


def test_typed_reduce_passes_none_to_the_function() -> None:
    _, results, error = sum_up([(0, None), (0, 1)], PAIR)
    assert results in ([], [(0, None)])
    assert error is not None
    assert "unsupported operand type(s) for +: 'NoneType' and 'int'" in error


def loops_of(env: StreamExecutionEnvironment) -> str:
    """Return the text of the generated loops of a program."""
    before = set(linecache.cache)
    job = LocalJob(env)
    text = "".join("".join(linecache.cache[name][2]) for name in set(linecache.cache) - before)  # type: ignore[misc]
    assert job.slots
    return text


def test_coercion_codegen_skips_values_known_to_fit() -> None:
    env = new_env()
    numbers = env.from_source(NumberSequenceSource(0, 99), type_info=Types.LONG())
    small = numbers.map(lambda x: (x % 10, x * 3), Types.TUPLE([Types.SHORT(), Types.LONG()]))
    one = small.filter(lambda t: t[0] > 1)
    two = small.filter(lambda t: t[0] < 1)
    one.union(two).key_by(lambda t: t[0], Types.LONG()).filter(lambda t: t[1] > 5).add_sink(lambda t: None)
    text = loops_of(env)
    assert "for x in batch" in text
    assert "fit" not in text


def test_block_omits_constant_members_of_checked_tuples() -> None:
    env, sink = new_env(), CollectSink()
    texts = env.from_collection(["a b", "b c b"], Types.STRING())
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    words = texts.flat_map(lambda text: [(w, 1) for w in text.split()], pair)
    words.key_by(lambda t: t[0], Types.STRING()).reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(sink)
    before = set(linecache.cache)
    job = LocalJob(env)
    job.run()
    assert sink.results() == [("a", 1), ("b", 1), ("b", 2), ("c", 1), ("b", 3)]
    # Loops over blocks are generated when the first block arrives.
    text = "".join("".join(linecache.cache[name][2]) for name in set(linecache.cache) - before)  # type: ignore[misc]
    assert job.slots and "for x0 in batch" in text


def test_coercion_codegen_skips_collections_and_read_only_filters() -> None:
    env = new_env()
    rows = env.from_collection([(1, "a"), (2, "b")], Types.ROW([Types.INT(), Types.STRING()]))
    rows.filter(lambda r: r[0] > 1).add_sink(lambda r: None)
    assert "fit" not in loops_of(env)


def mutating_filter(row: Row) -> bool:
    row[0] = True
    return True


def test_filter_that_mutates_a_row_cannot_break_its_type() -> None:
    env, sink = new_env(), CollectSink()
    env.from_collection([(1,)], Types.ROW([Types.INT()])).filter(mutating_filter).sink_to(sink)
    LocalJob(env).run()
    assert sink.results()[0][0].__class__ is int


PAIRS = Types.TUPLE([Types.INT(), Types.INT()])
NAMED = Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()])


@pytest.mark.parametrize(
    ("value", "type_info"),
    [
        (1.5, Types.INT()),
        ((1, 2, 3), PAIRS),
        (Pair(1, 2), PAIRS),
        ((1, 2), NAMED),
        ({1: "a", "b": 2}, Types.MAP(Types.STRING(), Types.INT())),
    ],
)
def test_chained_functions_pass_values_without_coercion(value: Any, type_info: TypeInformation) -> None:
    env, sink = new_env(), CollectSink()
    env.from_collection([1]).map(lambda _: value, type_info).filter(lambda v: True).map(repr).sink_to(sink)
    LocalJob(env).run()
    assert sink.results() == [repr(value)]


@pytest.mark.parametrize("where", ["exchange", "sink", "two", "side output", "watermarks"])
def test_values_are_coerced_when_they_are_encoded(where: str) -> None:
    env, sink = new_env(), CollectSink()
    stream = env.from_collection([1]).map(lambda _: 1.5, Types.INT())
    if where == "exchange":
        stream.rebalance().map(str).sink_to(sink)
    elif where == "sink":
        stream.sink_to(sink)
    elif where == "watermarks":
        stream.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps()).map(str).sink_to(sink)
    elif where == "two":
        stream.map(str).sink_to(sink)
        stream.map(str).sink_to(CollectSink())
    else:
        tag = OutputTag("side", Types.INT())
        aside = stream.process(Aside(tag)).get_side_output(tag)
        aside.sink_to(sink)
    # Truncated, as PyFlink encodes it.
    LocalJob(env).run()
    assert sink.results() in ([1], ["1"])


@pytest.mark.parametrize("value", [1.7, Decimal("1.9"), Fraction(3, 2), True, np.float64(1.2)])
@pytest.mark.parametrize("type_info", [Types.INT(), Types.LONG(), Types.SHORT(), Types.BYTE()])
def test_integer_types_truncate_numbers(value: Any, type_info: TypeInformation) -> None:
    convert = type_info.converter()
    assert convert is not None
    assert (convert(value), type(convert(value))) == (1, int)


@pytest.mark.parametrize("value", ["5", b"5", float("nan"), float("inf"), 3e30, None.__class__])
def test_integer_types_reject_values_out_of_range(value: Any) -> None:
    convert = Types.INT().converter()
    assert convert is not None
    with pytest.raises(TypeMismatchError, match="does not fit the type Integer"):
        convert(value)


def test_project_selects_fields_by_the_declared_type() -> None:
    env, sink = new_env(), CollectSink()
    env.from_collection([0]).map(lambda _: {"y": 2, "x": 1}, NAMED).project(1, 0).sink_to(sink)
    env.from_collection([0]).map(lambda _: Row(y=2, x=1), NAMED).project(1, 0).sink_to(sink)
    LocalJob(env).run()
    assert sink.results() == [(2, 1), (2, 1)]


class Aside(ProcessFunction):
    """Sends everything to a side output."""

    def __init__(self, tag: OutputTag) -> None:
        self.tag = tag

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.tag, value


FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda x: x,
    lambda x: x * 3 + 1,
    lambda x: (x, 1),
    lambda x: (x % 7, -x),
    lambda x: x / 2,
    lambda x: x > 3,
    lambda x: (x & 255, "a" + "b"),
    lambda x: [x, x],
]


@given(st.sampled_from(FUNCTIONS), TYPES, st.sampled_from(FUNCTIONS), TYPES, st.lists(NUMBERS, min_size=1, max_size=3))
def test_typed_operators_are_independent_of_inlining(
    first: Any, first_type: TypeInformation, second: Any, second_type: TypeInformation, numbers: list[int]
) -> None:
    def outcome(inlining: bool) -> Any:
        env, sink = new_env(inlining), CollectSink()
        stream = env.from_collection([n % 2**63 for n in numbers], Types.LONG()).map(first, first_type)
        stream.rebalance().map(second, second_type).sink_to(sink)
        try:
            LocalJob(env).run()
        except SubtaskFailed as e:
            return str(e).splitlines()[-3:]
        return list(map(described, sink.results()))

    assert outcome(True) == outcome(False)

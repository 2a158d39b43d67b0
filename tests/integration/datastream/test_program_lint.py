"""Lint warnings about a program are emitted once, with the line of the program."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millstream.common import WatermarkStrategy
from millstream.common.errors import InvalidProgramError
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import FilterFunction, MapFunction
from millstream.datastream.window import GlobalWindows
from millstream.testing import LocalEnvironment


def generator(value: Any) -> Iterator[Any]:
    yield value


def expression_without_return(value: int) -> Any:
    value > 3  # noqa: B015


def never_returns_value(value: int, limit: int = 3) -> Any:
    if value > limit:
        return
    print(value)


def sometimes_returns(value: int) -> Any:
    if value > 3:
        return True
    return None


def raises(value: int) -> Any:
    raise RuntimeError(value)


class FilterWithoutReturn(FilterFunction):
    def filter(self, value: Any) -> Any:
        value is not None  # noqa: B015


class GeneratorMap(MapFunction):
    def map(self, value: Any) -> Any:
        yield value


def warnings_of(action: Any) -> list[str]:
    """Return the warnings of an action; each must name the line that calls the action here."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        action()
    assert all(w.filename == __file__ for w in seen)
    return [str(w.message) for w in seen]


@pytest.mark.parametrize("function", [generator, GeneratorMap(), partial(generator)])
def test_map_warns_about_generator_function(function: Any) -> None:
    stream = LocalEnvironment().from_collection([1])
    warning = "map() was given a function that yields: each record becomes a generator; "
    warning += "use flat_map() to emit what it yields."
    assert warnings_of(lambda: stream.map(function)) == [warning]
    assert warnings_of(lambda: stream.key_by(str).map(function)) == [warning]
    assert warnings_of(lambda: stream.flat_map(function if callable(function) else generator)) == []


@pytest.mark.parametrize(
    "function",
    [expression_without_return, never_returns_value, FilterWithoutReturn(), partial(never_returns_value, limit=2)],
)
def test_filter_warns_about_function_without_return(function: Any) -> None:
    stream = LocalEnvironment().from_collection([1])
    warning = "filter() was given a function that returns nothing, so no record passes: is a `return` missing?"
    assert warnings_of(lambda: stream.filter(function)) == [warning]


def test_filter_warns_about_generator_function() -> None:
    stream = LocalEnvironment().from_collection([1])
    warning = "filter() was given a function that yields: every record passes, because a generator is true."
    assert warnings_of(lambda: stream.filter(generator)) == [warning]


@pytest.mark.parametrize(
    "function", [sometimes_returns, raises, bool, str.strip, lambda v: v > 3, lambda v: v and None]
)
def test_valid_functions_cause_no_warning(function: Any) -> None:
    stream = LocalEnvironment().from_collection([1])
    assert warnings_of(lambda: stream.filter(function)) == []
    assert warnings_of(lambda: stream.map(function)) == []


PROGRAM = """
from millstream.testing import LocalEnvironment
env = LocalEnvironment()
stream = env.from_collection([1]).map(str)
{last}
"""


@pytest.mark.parametrize(
    ("last", "warns"),
    [
        ("stream.print()", True),
        ("", True),
        ("stream.print(); env.execute()", False),
        ("1 / 0", False),
        ("list(stream.execute_and_collect())", False),
        ("stream.print(); env.get_execution_plan()", False),
    ],
)
def test_program_without_execute_warns_at_exit(tmp_path: Path, last: str, warns: bool) -> None:
    file = tmp_path / "job.py"
    file.write_text(PROGRAM.format(last=last))
    commands = [[sys.executable]] + [[sys.executable, "-m", "millstream", "run"]] * (
        last in ("stream.print()", "1 / 0")
    )
    for command in commands:
        done = subprocess.run([*command, str(file)], capture_output=True, text=True)
        warning = (
            f"{file}:4: UserWarning: the program that begins here was never run: call execute() of its environment"
        )
        assert done.stderr.count(warning) == warns, done.stderr


class Stamps(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return 0


INVALID_CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda s: s.union("x"), r"union\(\) takes a stream, not 'x'"),
    (lambda s: s.connect(5), r"connect\(\) takes a stream, not 5"),
    (lambda s: s.get_side_output("late"), r"get_side_output\(\) takes an OutputTag, .* not 'late'"),
    (
        lambda s: s.key_by(str).window(GlobalWindows.create()).side_output_late_data("late"),
        r"side_output_late_data\(\) takes an OutputTag, .* not 'late'",
    ),
    (
        lambda s: WatermarkStrategy.no_watermarks().with_timestamp_assigner(Stamps),  # type: ignore[arg-type]
        r"with_timestamp_assigner\(\) was given the class Stamps: give Stamps\(\)",
    ),
    (
        lambda s: WatermarkStrategy.no_watermarks().with_timestamp_assigner(5),  # type: ignore[arg-type]
        r"with_timestamp_assigner\(\) takes a callable or .* not 5",
    ),
    (
        lambda s: WatermarkStrategy.for_bounded_out_of_orderness("5 s"),  # type: ignore[arg-type]
        r"A length of time is a Duration, a Time or a number of milliseconds, not '5 s'",
    ),
    (lambda s: s.get_execution_environment().set_buffer_timeout("x"), r"set_buffer_timeout\('x'\): give milliseconds"),
]


@pytest.mark.parametrize(("call", "message"), INVALID_CALLS)
def test_stream_methods_reject_arguments_of_wrong_type(call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        call(LocalEnvironment().from_collection([1]))

"""A function that returns one value instead of an iterable gets a hint in every operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.common.errors import JobExecutionError
from millstream.datastream import (
    CoFlatMapFunction,
    DataStream,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
)
from millstream.testing import LocalEnvironment


class Processed(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: Any) -> Any:
        return 5


class OfWindow(ProcessWindowFunction[int, int, int, Any]):
    def process(self, key: int, context: Any, elements: Any) -> Any:
        return 5


class OfTimer(KeyedProcessFunction[int, int, int]):
    def process_element(self, value: int, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return 5


class Both(CoFlatMapFunction[int, int, int]):
    def flat_map1(self, value: int) -> Any:
        return 5

    def flat_map2(self, value: int) -> Any:
        return 5


CASES: dict[str, Callable[[DataStream[int]], DataStream[Any]]] = {
    "Flat Map": lambda stream: stream.flat_map(lambda x: x),  # type: ignore[arg-type, return-value]
    "Process": lambda stream: stream.process(Processed()),
    "Window": lambda stream: stream.key_by(lambda x: x).count_window(1).process(OfWindow()),
    "Keyed Process": lambda stream: stream.key_by(lambda x: x).process(OfTimer()),
    "Co-Flat Map": lambda stream: stream.connect(stream).flat_map(Both()),
}


@pytest.mark.parametrize("name", CASES)
def test_flat_map_error_hints_when_a_single_value_is_returned(name: str) -> None:
    stream = CASES[name](LocalEnvironment().from_collection([3]))
    with pytest.raises(JobExecutionError, match="returned a value of type int where any number of results") as e:
        list(stream.name(name).execute_and_collect())
    assert f"in operator '{name}'" in str(e.value)


def test_flat_map_error_in_user_code_keeps_its_lines() -> None:
    def inner(value: Any) -> Iterator[Any]:
        yield from value

    with pytest.raises(JobExecutionError, match="(?s)yield from value.*'int' object is not iterable"):
        list(LocalEnvironment().from_collection([3]).flat_map(inner).execute_and_collect())

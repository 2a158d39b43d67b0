"""Timers of whole programs: at the end of the input, and timers set while others fire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.datastream import KeyedProcessFunction, TimeDomain
from millstream.testing import CollectSink, LocalEnvironment, ManualClock
from millstream.testing.local_job import LocalJob


class Wait(KeyedProcessFunction):
    """Sets a processing-time timer for each record; each firing sets another 5 ms later."""

    def __init__(self, delay: int) -> None:
        self._delay = delay

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + self._delay)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp
        if timestamp < 990:
            ctx.timer_service().register_processing_time_timer(timestamp + 5)


@pytest.mark.parametrize(
    ("delay", "timers"),
    [(-15, [985, 990]), (-10, [990]), (0, [1000]), (1, [])],
)
def test_processing_timers_due_at_end_of_input_fire_and_others_do_not(delay: int, timers: list[int]) -> None:
    env = LocalEnvironment(clock=ManualClock(1000))
    results = list(env.from_collection(["a", "b", "a"]).key_by(lambda v: v).process(Wait(delay)).execute_and_collect())
    assert [r for r in results if isinstance(r, str)] == ["a", "b", "a"]
    assert sorted({r for r in results if not isinstance(r, str)}) == [(k, t) for k in "ab" for t in timers]


class Both(KeyedProcessFunction):
    """An event-time timer sets a processing-time timer."""

    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(5)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield timestamp
        if ctx.time_domain() is TimeDomain.EVENT_TIME:
            ctx.timer_service().register_processing_time_timer(50)


def test_processing_timer_set_by_the_final_watermark_fires() -> None:
    env = LocalEnvironment(clock=ManualClock(1000))
    assert list(env.from_collection([1]).key_by(lambda v: v).process(Both()).execute_and_collect()) == [5, 50]


class Stamps(KeyedProcessFunction):
    """Emits the timestamp of each record and timer."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value, ctx.timestamp()
        ctx.timer_service().register_processing_time_timer(value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", ctx.timestamp()


def test_record_without_timestamp_does_not_take_that_of_a_timer() -> None:
    env, sink = LocalEnvironment(), CollectSink()
    env.from_collection([5, 7]).key_by(lambda v: 0).process(Stamps()).sink_to(sink)
    LocalJob(env, clock=ManualClock(1000), epoch_sizes=lambda: 1).run()
    assert sink.results() == [(5, MIN_WATERMARK), ("timer", 5), (7, MIN_WATERMARK), ("timer", 7)]

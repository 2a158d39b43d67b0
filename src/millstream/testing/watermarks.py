"""Watermarks for tests: one after every record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.tags import tagged
from millstream.common.watermark_strategy import (
    MIN_WATERMARK,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)


def _read(highest: int) -> _PerElement:
    generator = _PerElement()
    generator._highest = highest
    return generator


@tagged("per-element-watermarks", write=lambda generator: (generator._highest,), read=_read)
class _PerElement(WatermarkGenerator):
    def __init__(self) -> None:
        self._highest = MIN_WATERMARK

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if event_timestamp > self._highest:
            self._highest = event_timestamp
            output.emit_watermark(Watermark(event_timestamp))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


def per_element_watermarks(timestamp_assigner: Callable[[Any, int], int] | None = None) -> WatermarkStrategy:
    """Return a strategy that emits the highest timestamp so far after every record.

    With it nothing depends on where an epoch is cut.

    Example:
        >>> from millstream.datastream.window import TumblingEventTimeWindows
        >>> from millstream.testing import LocalEnvironment
        >>> by_time = per_element_watermarks(lambda e, _: e[1])
        >>> events = LocalEnvironment().from_collection([("a", 1), ("a", 12), ("a", 3)])
        >>> windows = events.assign_timestamps_and_watermarks(by_time).key_by(lambda e: e[0])
        >>> list(windows.window(TumblingEventTimeWindows.of(10)).max(1).execute_and_collect())
        [('a', 1), ('a', 12)]
    """
    strategy = WatermarkStrategy.for_generator(_PerElement)
    return strategy if timestamp_assigner is None else strategy.with_timestamp_assigner(timestamp_assigner)

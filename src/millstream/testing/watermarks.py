"""Watermarks for tests: one after every record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.watermark_strategy import (
    MIN_WATERMARK,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)


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
    """
    strategy = WatermarkStrategy.for_generator(_PerElement)
    return strategy if timestamp_assigner is None else strategy.with_timestamp_assigner(timestamp_assigner)

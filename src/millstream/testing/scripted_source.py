"""An input that a test fills by hand: records, with timestamps or without, and watermarks, in the order of the calls.

It is a source like any other, so that what is behind it is a program like any other.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

from millstream.common.errors import MillstreamError
from millstream.common.pickles import dump
from millstream.common.tags import tagged
from millstream.common.watermark_strategy import (
    MIN_WATERMARK,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from millstream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.datastream.data_stream import DataStream
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.operators.diagnostics.failures import shorten


class Item(NamedTuple):
    """A record, or a watermark."""

    is_record: bool
    value: Any
    # The least number where a record has none, as everywhere.
    timestamp: int


class ScriptedInput(Source):
    """What a test has put in and no epoch has taken yet."""

    name = "Input"

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.ended = False

    @property
    def is_bounded(self) -> bool:
        return False

    def put(self, items: list[Item]) -> None:
        """Add items, pickled now: what the test does to its objects later does not reach the job."""
        if self.ended:
            raise MillstreamError("This input has ended: nothing can follow end_input().")
        self.waiting.append(_pickled(items))

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Enumerator(self)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader()

    def __getstate__(self) -> dict[str, Any]:
        return {"waiting": [], "ended": False}


def _pickled(items: list[Item]) -> bytes:
    try:
        return dump(items)
    except Exception as e:
        shown = ", ".join(shorten(i.value) for i in items)
        raise MillstreamError(f"A job could not send this record, because it cannot be pickled ({e}): {shown}") from e


class _Enumerator(SplitEnumerator):
    def __init__(self, source: ScriptedInput) -> None:
        self._source = source

    def poll(self, budget: int, now: float) -> SplitAssignment:
        shares, self._source.waiting = self._source.waiting, []
        return SplitAssignment({0: shares} if shares else {})

    def is_finished(self) -> bool:
        return self._source.ended and not self._source.waiting

    def snapshot(self) -> None:
        return None


class _Reader(SourceReader):
    def read(self, share: bytes) -> Iterator[list[Item]]:
        yield pickle.loads(share)


@tagged("scripted-watermarks", write=lambda _: ())
class _Marks(WatermarkGenerator):
    """Emits the watermarks where they stand."""

    def on_event(self, event: Item, event_timestamp: int, output: WatermarkOutput) -> None:
        if not event.is_record:
            output.emit_watermark(Watermark(event.timestamp))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


def scripted_stream(env: StreamExecutionEnvironment, source: ScriptedInput, number: int) -> DataStream:
    """Return the stream of an input's records; what comes behind it is never chained to it."""
    strategy = WatermarkStrategy.for_generator(_Marks).with_timestamp_assigner(lambda item, _: item.timestamp)
    items = env.from_source(source, source_name=f"Input {number}").force_non_parallel()
    marked = items.assign_timestamps_and_watermarks(strategy).force_non_parallel()
    records = marked.filter(lambda item: item.is_record).force_non_parallel()
    return records.map(lambda item: item.value).force_non_parallel().rebalance()


def record(value: Any, timestamp: int | None) -> Item:
    return Item(True, value, MIN_WATERMARK if timestamp is None else timestamp)


def watermark(timestamp: int) -> Item:
    return Item(False, None, timestamp)

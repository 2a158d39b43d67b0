"""Sources for tests: TestingSource fails at chosen elements, scripted input follows a test step by step."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from millstream.common.aliases import Value
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
from millstream.connectors.intervals import IntervalEnumerator, IntervalPosition, IntervalReader
from millstream.datastream.data_stream import DataStream
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.source import SplitRange

__all__ = ["ABORT", "KILL", "TestingSource"]


class _Failure:
    """An element at which the job fails once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> str:
        # The object itself, in any process.
        return self._name

    def __repr__(self) -> str:
        return self._name


ABORT: Final = _Failure("ABORT")
"""Among a TestingSource's elements: here reading raises an error, once."""
KILL: Final = _Failure("KILL")
"""Among a TestingSource's elements: here the worker process is killed (-9), once."""


class TestingSource(Source):
    """The elements of a list; the job fails once at each `ABORT` or `KILL` element, and then recovers.

    It has offsets, so with checkpoints nothing is lost or doubled. With more than one subtask each reads a part of the
    list.

    Args:
        elements: the elements, and among them ABORT (reading raises) and KILL (the worker process dies).
        batch_size: the maximum number of elements per subtask and epoch.
        directory: records failures, so that each happens once; all workers must share it.

    Example:
        >>> from millstream.testing import CollectSink, LocalJob
        >>> env, sink = StreamExecutionEnvironment.get_execution_environment(), CollectSink()
        >>> _ = env.from_source(TestingSource([1, 2, ABORT, 3])).sink_to(sink)
        >>> LocalJob(env).run(restarts=1)
        >>> sink.results()
        [1, 2, 3]
    """

    name = "Testing Source"
    # Stops pytest from collecting it as a test class.
    __test__ = False

    def __init__(self, elements: Iterable[Value], batch_size: int = 1, directory: str | None = None) -> None:
        if batch_size < 1:
            raise ValueError(f"TestingSource: batch_size must be at least 1, it is {batch_size}.")
        self._elements = [dump(e) for e in elements]
        self._batch_size = batch_size
        self._only_once = Once(directory)

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: IntervalPosition | None = None) -> SplitEnumerator:
        return _Enumerator(len(self._elements), parallelism, restored, self._batch_size)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._elements, self._only_once)


class _Enumerator(IntervalEnumerator):
    def __init__(self, size: int, parallelism: int, restored: IntervalPosition | None, batch_size: int) -> None:
        super().__init__(0, size, parallelism, restored)
        self._batch_size = batch_size

    def poll(self, budget: int, now: float) -> SplitAssignment:
        return super().poll(min(budget, self._batch_size), now)


class _Reader(IntervalReader):
    def __init__(self, elements: list[bytes], once: Once) -> None:
        self._elements = elements
        self._only_once = once

    def read(self, split_range: SplitRange) -> Iterator[list[Value]]:
        _, start, end, _ = split_range
        for index in range(start, end):
            element = pickle.loads(self._elements[index])
            if not isinstance(element, _Failure):
                yield [element]
            elif self._only_once.is_first(f"element-{index}"):
                self._fail(element, index)

    def _fail(self, failure: _Failure, index: int) -> None:
        if failure is not KILL:
            raise RuntimeError(f"TestingSource: ABORT is element {index}.")
        if os.getpid() == self._only_once.pid:
            raise MillstreamError("TestingSource: KILL would kill the process of the test: run the job on Spark.")
        os.kill(os.getpid(), signal.SIGKILL)


class Item(NamedTuple):
    """A record, or a watermark."""

    is_record: bool
    value: Value
    # The minimum if a record has no timestamp, as everywhere.
    timestamp: int


class ScriptedInput(Source):
    """Input that a test has added and no epoch has read yet."""

    name = "Input"

    def __init__(self) -> None:
        self.pending: list[bytes] = []
        self.ended = False

    @property
    def is_bounded(self) -> bool:
        return False

    def put(self, items: list[Item]) -> None:
        """Add items, pickled at once: later changes of the test's objects do not reach the job."""
        if self.ended:
            raise MillstreamError("This input has ended: no record can follow end_input().")
        self.pending.append(_pickled(items))

    def create_enumerator(self, parallelism: int, restored: None = None) -> SplitEnumerator:
        return _ScriptedEnumerator(self)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _ScriptedReader()

    def __getstate__(self) -> dict[str, object]:
        return {"pending": [], "ended": False}


def _pickled(items: list[Item]) -> bytes:
    try:
        return dump(items)
    except Exception as e:
        shown = ", ".join(shorten(i.value) for i in items)
        raise MillstreamError(f"A job could not send this record, because it cannot be pickled ({e}): {shown}") from e


class _ScriptedEnumerator(SplitEnumerator):
    def __init__(self, source: ScriptedInput) -> None:
        self._source = source

    def poll(self, budget: int, now: float) -> SplitAssignment:
        split_ranges, self._source.pending = self._source.pending, []
        return SplitAssignment({0: split_ranges} if split_ranges else {})

    def is_finished(self) -> bool:
        return self._source.ended and not self._source.pending

    def snapshot(self) -> None:
        return None


class _ScriptedReader(SourceReader):
    def read(self, split_range: bytes) -> Iterator[list[Item]]:
        yield pickle.loads(split_range)


@tagged("scripted-watermarks", write=lambda _: ())
class _Marks(WatermarkGenerator):
    """Emits the scripted watermarks in place."""

    def on_event(self, event: Item, event_timestamp: int, output: WatermarkOutput) -> None:
        if not event.is_record:
            output.emit_watermark(Watermark(event.timestamp))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


def scripted_stream(env: StreamExecutionEnvironment, source: ScriptedInput, number: int) -> DataStream:
    """Return the stream of an input's records; downstream operators are never chained to it."""
    strategy = WatermarkStrategy.for_generator(_Marks).with_timestamp_assigner(lambda item, _: item.timestamp)
    items = env.from_source(source, source_name=f"Input {number}").force_non_parallel()
    marked = items.assign_timestamps_and_watermarks(strategy).force_non_parallel()
    records = marked.filter(lambda item: item.is_record).force_non_parallel()
    return records.map(lambda item: item.value).force_non_parallel().rebalance()


def record(value: Value, timestamp: int | None) -> Item:
    return Item(True, value, MIN_WATERMARK if timestamp is None else timestamp)


def watermark(timestamp: int) -> Item:
    return Item(False, None, timestamp)


def _read(highest: int) -> _PerElement:
    generator = _PerElement()
    generator._highest = highest
    return generator


@tagged("per-element-watermarks", write=lambda generator: (generator._highest,), read=_read)
class _PerElement(WatermarkGenerator):
    def __init__(self) -> None:
        self._highest = MIN_WATERMARK

    def on_event(self, event: Value, event_timestamp: int, output: WatermarkOutput) -> None:
        if event_timestamp > self._highest:
            self._highest = event_timestamp
            output.emit_watermark(Watermark(event_timestamp))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


def per_element_watermarks(timestamp_assigner: Callable[[Value, int], int] | None = None) -> WatermarkStrategy:
    """Return a strategy that emits the highest timestamp so far after every record.

    With it, results do not depend on epoch boundaries.

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


class Once:
    """Marks events in a directory; copies in workers share it.

    Args:
        directory: visible to all processes of the job; by default a temporary directory on this machine.

    Example:
        >>> once = Once()
        >>> once.is_first("failure"), once.is_first("failure")
        (True, False)
    """

    def __init__(self, directory: str | None = None) -> None:
        self.directory = directory or tempfile.mkdtemp(prefix="millstream-once-")
        # The process that created it, which must not be killed.
        self.pid = os.getpid()
        if directory is None:
            weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)

    def is_first(self, name: str) -> bool:
        """Return whether this is the first call with this name."""
        try:
            os.close(os.open(os.path.join(self.directory, name), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

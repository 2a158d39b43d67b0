"""StreamHarness: runs a piece of a program in the test's own process, call by call.

The piece becomes a program, and the program a job: the same generated loops, state files, timers and errors as on
Spark. Every call is one epoch, so after each of them the changes of state are pickled and written to a state file; a
harness that starts from a snapshot reads these files. If async requests are in flight, the harness runs further epochs
until they are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, TypedDict, TypeVar

from millstream.checkpoint.snapshot import Snapshot
from millstream.common.aliases import Key, Value
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, JobExecutionError, MillstreamError
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.connectors.collection import DriverSink
from millstream.datastream.data_stream import DataStream
from millstream.datastream.functions import ProcessFunction
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.operators.functions.output_tag import OutputTag
from millstream.operators.process import ProcessContext
from millstream.testing.clock import ManualClock
from millstream.testing.inspection import EVENT_TIMERS, PROCESSING_TIMERS, StateView, TimerView
from millstream.testing.local_job import LocalJob, MemoryStorage
from millstream.testing.sources import ScriptedInput, record, scripted_stream, watermark

H = TypeVar("H", bound="StreamHarness")


class Record(NamedTuple):
    """Holds an output record and its timestamp; None without one.

    Example:
        >>> Record("a", 7) == ("a", 7)
        True
    """

    value: Value
    timestamp: int | None


class HarnessSettings(TypedDict, total=False):
    """Names the common arguments of harnesses, see `StreamHarness`.

    Example:
        >>> HarnessSettings(parallelism=2)
        {'parallelism': 2}
    """

    side_outputs: Sequence[OutputTag]
    parallelism: int
    snapshot: HarnessSnapshot | None
    clock: ManualClock | None
    config: Configuration | None


@dataclass(frozen=True)
class HarnessSnapshot:
    """Holds a snapshot from which a harness can be restored; it can be pickled.

    Example:
        >>> count = lambda words: words.map(lambda w: (w, 1)).key_by(lambda p: p[0]).sum(1)
        >>> harness = StreamHarness(count)
        >>> harness.process_element("to")
        >>> again = StreamHarness(count, snapshot=harness.snapshot(), parallelism=2)
        >>> again.process_element("to")
        >>> again.output()
        [('to', 2)]
    """

    _snapshot: Snapshot
    _files: dict[str, bytes]
    _millis: int


class _Stamp(ProcessFunction[Value, Record]):
    """Pairs a record with its timestamp."""

    def process_element(self, value: Value, ctx: ProcessContext) -> Iterable[Record]:
        timestamp = ctx.timestamp()
        yield Record(value, None if timestamp == MIN_WATERMARK else timestamp)


class StreamHarness:
    """Runs any part of a program; the harnesses of single functions build on it.

    Args:
        build: takes the input streams and returns the output stream.
        inputs: the number of input streams.
        side_outputs: the tags of the recorded side outputs.
        parallelism: the parallelism of the operators; all subtasks run.
        snapshot: the snapshot to restore; its parallelism may differ.
        clock: the wall clock; by default it starts at 0 or at the snapshot's time.
        config: settings, for example `state.backend.type`; functions see them as job parameters.

    Example:
        >>> harness = StreamHarness(lambda words: words.map(lambda w: (w, 1)).key_by(lambda p: p[0]).sum(1))
        >>> for word in ["to", "be", "to"]:
        ...     harness.process_element(word)
        >>> harness.output()
        [('to', 1), ('be', 1), ('to', 2)]
    """

    def __init__(
        self,
        build: Callable[..., DataStream],
        inputs: int = 1,
        *,
        side_outputs: Sequence[OutputTag] = (),
        parallelism: int = 1,
        snapshot: HarnessSnapshot | None = None,
        clock: ManualClock | None = None,
        config: Configuration | None = None,
    ) -> None:
        env = StreamExecutionEnvironment(config).set_parallelism(parallelism)
        self.clock = clock or ManualClock(0 if snapshot is None else snapshot._millis)
        self._inputs = [ScriptedInput() for _ in range(inputs)]
        stream = build(*[scripted_stream(env, source, i + 1) for i, source in enumerate(self._inputs)])
        self._outputs: dict[str | None, list[Record]] = {None: _collected(stream)}
        for tag in side_outputs:
            self._outputs[tag.tag_id] = _collected(stream.get_side_output(tag))
        self._job = _start(env, self.clock, snapshot)
        self._closed = False
        # The functions are opened by the first epoch.
        self._run()

    # --- input

    def process_element(self, value: Value, timestamp: int | None = None, input: int = 1) -> None:
        """Process one record of an input, in an epoch of its own.

        Args:
            value: the record.
            timestamp: its timestamp in milliseconds, by default none.
            input: the number of the input, from 1.

        Example:
            >>> with StreamHarness(lambda words: words.map(len)) as harness:
            ...     harness.process_element("to", timestamp=5)
            ...     harness.records()
            [Record(value=2, timestamp=5)]
        """
        self.process_elements([value], timestamp, input)

    def process_elements(self, values: Iterable[Value], timestamp: int | None = None, input: int = 1) -> None:
        """Process several records of an input in one epoch.

        Example:
            >>> with StreamHarness(lambda words: words.map(len)) as harness:
            ...     harness.process_elements(["to", "sleep"])
            ...     harness.output()
            [2, 5]
        """
        self._inputs[input - 1].put([record(v, timestamp) for v in values])
        self._run()

    def process_watermark(self, timestamp: int, input: int | None = None) -> None:
        """Advance the watermark of an input, or of all; the operators' watermark is the minimum of their inputs.

        Example:
            >>> from millstream.datastream.window import TumblingEventTimeWindows
            >>> count = lambda words: words.map(lambda w: (w, 1)).key_by(lambda p: p[0])
            >>> with StreamHarness(lambda ws: count(ws).window(TumblingEventTimeWindows.of(10)).sum(1)) as harness:
            ...     harness.process_element("to", timestamp=5)
            ...     harness.process_watermark(9)
            ...     harness.output()
            [('to', 1)]
        """
        for source in self._chosen(input):
            source.put([watermark(timestamp)])
        self._run()

    def set_processing_time(self, millis: int) -> None:
        """Set the wall clock in milliseconds, and fire the timers it has reached.

        Example:
            >>> from millstream.datastream.window import TumblingProcessingTimeWindows
            >>> count = lambda words: words.map(lambda w: (w, 1)).key_by(lambda p: p[0])
            >>> with StreamHarness(lambda ws: count(ws).window(TumblingProcessingTimeWindows.of(10)).sum(1)) as harness:
            ...     harness.process_element("to")
            ...     harness.set_processing_time(10)
            ...     harness.output()
            [('to', 1)]
        """
        self.clock.set(millis)
        self._run()

    def advance_processing_time(self, millis: int) -> None:
        """Advance the wall clock by milliseconds, and fire the timers it has reached."""
        self.set_processing_time(self.clock() + millis)

    def end_input(self, input: int | None = None) -> None:
        """End an input, or all: the final watermark passes, and functions close when all inputs have ended.

        Example:
            >>> from millstream.datastream.window import TumblingEventTimeWindows
            >>> count = lambda words: words.map(lambda w: (w, 1)).key_by(lambda p: p[0])
            >>> with StreamHarness(lambda ws: count(ws).window(TumblingEventTimeWindows.of(10)).sum(1)) as harness:
            ...     harness.process_element("to", timestamp=5)
            ...     harness.end_input()
            ...     harness.output()
            [('to', 1)]
        """
        for source in self._chosen(input):
            source.ended = True
        self._run()

    def _chosen(self, input: int | None) -> list[ScriptedInput]:
        return self._inputs if input is None else [self._inputs[input - 1]]

    def _run(self) -> None:
        if self._closed:
            raise MillstreamError("This harness is closed.")
        if self._job.is_finished:
            return
        try:
            self._job.run_epoch()
            self._job.finish_requests()
        except SubtaskFailed as e:
            self._start_over()
            raise JobExecutionError(str(e)) from e.__cause__

    def _start_over(self) -> None:
        """Recover from a failed call as after a restart: reopen functions, and restore the state before the call."""
        for source in self._inputs:
            source.pending.clear()
        with suppress(SubtaskFailed):
            self._job.close()
        self._job.restart_slots()

    # --- output

    def output(self) -> list[Value]:
        """Return the output values so far, of all epochs.

        Example:
            >>> with StreamHarness(lambda words: words.map(str.upper)) as harness:
            ...     harness.process_elements(["to", "be"])
            ...     harness.output()
            ['TO', 'BE']
        """
        return [r.value for r in self._outputs[None]]

    def extract_output_values(self) -> list[Value]:
        """Return the same: Flink's name for `output()`."""
        return self.output()

    def records(self) -> list[Record]:
        """Return the output records so far, with timestamps."""
        return list(self._outputs[None])

    def take_output(self) -> list[Value]:
        """Return and clear the output values since the last call.

        Example:
            >>> with StreamHarness(lambda words: words.map(str.upper)) as harness:
            ...     harness.process_element("to")
            ...     _ = harness.take_output()
            ...     harness.process_element("be")
            ...     harness.take_output()
            ['BE']
        """
        values = self.output()
        self._outputs[None].clear()
        return values

    def side_output(self, tag: OutputTag) -> list[Value]:
        """Return the side output values of a tag, which `side_outputs` of the harness must name.

        Example:
            >>> from millstream.datastream import OutputTag, ProcessFunction
            >>> rejected = OutputTag("rejected")
            >>> class Parse(ProcessFunction):
            ...     def process_element(self, value, ctx): yield int(value) if value.isdigit() else (rejected, value)
            >>> with StreamHarness(lambda texts: texts.process(Parse()), side_outputs=[rejected]) as harness:
            ...     harness.process_elements(["1", "two"])
            ...     harness.output(), harness.side_output(rejected)
            ([1], ['two'])
        """
        return [r.value for r in self.side_records(tag)]

    def side_records(self, tag: OutputTag) -> list[Record]:
        """Return the side output records of a tag, with timestamps."""
        if tag.tag_id not in self._outputs:
            raise InvalidProgramError(f"Give the harness side_outputs=[{tag!r}] to read that side output.")
        return list(self._outputs[tag.tag_id])

    def clear_output(self) -> None:
        """Clear the output, including side outputs."""
        for records in self._outputs.values():
            records.clear()

    # --- state, timers and metrics

    def state(self, name: str, key: Key) -> Value:
        """Return a key's state as its function sees it: a value, a list, a dict; None, [] or {} if empty.

        See KeyedTwoInputHarness for an example.
        """
        return self._view.value(name, key)

    def state_keys(self, name: str) -> list[Key]:
        """Return the keys that have a state of this name."""
        return self._view.keys(name)

    def num_keyed_state_entries(self) -> int:
        """Return the number of keyed state entries, without timers; pending windows count."""
        return self._view.count()

    def operator_state(self, name: str) -> list[Value]:
        """Return the elements of a CheckpointedFunction's list state, subtask by subtask."""
        return self._view.listed(name)

    def event_timers(self, key: Key = None) -> list[TimerView]:
        """Return the pending event-time timers, as (timestamp, key), of one key or of all."""
        return self._view.timers(EVENT_TIMERS, key)

    def processing_timers(self, key: Key = None) -> list[TimerView]:
        """Return the pending processing-time timers, as (timestamp, key), of one key or of all."""
        return self._view.timers(PROCESSING_TIMERS, key)

    @property
    def _view(self) -> StateView:
        return StateView(self._job.slots)

    @property
    def watermark(self) -> int:
        """The watermark of the last operator; -2^63 before the first watermark."""
        vertex = self._job.plan.vertices[-1]
        reached = [p.watermark for (v, _), p in self._job.progress.subtasks.items() if v == vertex.id]
        return min(w for w in reached if w is not None)

    def metrics(self) -> dict[str, Value]:
        """Return users' metrics by name, numbers added up over the subtasks.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> class Counted(MapFunction):
            ...     def open(self, runtime_context): self.seen = runtime_context.get_metrics_group().counter("seen")
            ...     def map(self, value):
            ...         self.seen.inc()
            ...         return value
            >>> with StreamHarness(lambda words: words.map(Counted())) as harness:
            ...     harness.process_elements(["to", "be"])
            ...     harness.metrics()
            {'Map.seen': 2}
        """
        return self._job.progress.metrics()

    # --- snapshots and the end

    def snapshot(self) -> HarnessSnapshot:
        """Return a snapshot that another harness can restore, with the same or another parallelism.

        See HarnessSnapshot for an example.
        """
        return HarnessSnapshot(self._job.snapshot(), dict(self._job.storage.files), self.clock())

    def close(self) -> None:
        """Close the functions; output and state remain readable."""
        if not self._closed:
            self._closed = True
            try:
                self._job.close()
            except SubtaskFailed as e:
                raise JobExecutionError(str(e)) from e.__cause__

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _collected(stream: DataStream) -> list[Record]:
    records: list[Record] = []
    stream.process(_Stamp()).name("Output").sink_to(DriverSink(records.extend))
    return records


def _start(env: StreamExecutionEnvironment, clock: ManualClock, snapshot: HarnessSnapshot | None) -> LocalJob:
    storage = MemoryStorage()
    if snapshot is None:
        return LocalJob(env, clock, storage=storage)
    storage.files.update(snapshot._files)
    return LocalJob(env, clock, snapshot=snapshot._snapshot, storage=storage)

"""A subtask: one parallel instance of a vertex. Runs epochs, reports their results, and restores runtime snapshots.

Its operators, state and generated loops are in a `SubtaskChain`. Its input runs these loops on records: `SplitInput`
if it is a source, otherwise `ChannelInput`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from millstream.common.faults import fault_point
from millstream.operators.base import OperatorSnapshot, RuntimeServices
from millstream.operators.diagnostics.subtask_diagnostics import DiagnosticsCollector
from millstream.operators.runtime.blocks import AddressedBlock
from millstream.operators.runtime.budget import Budget
from millstream.operators.runtime.channel_input import ChannelInput
from millstream.operators.runtime.messages import LevelTask, Progress, SubtaskReport
from millstream.operators.runtime.runtime_snapshot import decode, encode
from millstream.operators.runtime.split_input import SplitInput
from millstream.operators.runtime.subtask_chain import Outgoing, Parallelisms, SubtaskChain
from millstream.operators.runtime.vertex import JobSettings, Vertex
from millstream.operators.sink import Committable, SinkOperator
from millstream.operators.source import SourceOperator, SplitRange
from millstream.state.keyed import KeyedState, StateStorage, Version


class Subtask:
    """Runs one parallel instance of a vertex, epoch by epoch."""

    _task: LevelTask

    def __init__(
        self,
        vertex: Vertex,
        index: int,
        parallelisms: Parallelisms,
        settings: JobSettings,
        storage: StateStorage,
        services: RuntimeServices,
        budget: Budget | None = None,
    ) -> None:
        self.vertex = vertex
        self.index = index
        self._settings = settings
        self._chain = SubtaskChain(vertex, index, parallelisms, settings, storage, services, budget or Budget())
        self._nodes, self._guard, self._states = self._chain.nodes, self._chain.guard, self._chain.states
        self._diagnostics = DiagnosticsCollector(self._chain.operators, services, index, vertex.parallelism)
        self._input = self._create_input()
        self._chain.time.before_watermark = self._input.before_watermark
        # The last runtime snapshot of this process, to detect that another process has run since.
        self._last_snapshot = b""
        self._attempt = ""
        self._last_notified_checkpoint = 0

    def _create_input(self) -> SplitInput | ChannelInput:
        operator = self.vertex.head.operator
        if isinstance(operator, SourceOperator):
            return SplitInput(self._chain, self._diagnostics, operator)
        return ChannelInput(self._chain, self._diagnostics)

    @property
    def ended(self) -> bool:
        """Whether it has processed all input and finished."""
        return self._input.ended

    # --- an epoch

    def begin(self, task: LevelTask, attempt: str) -> None:
        """Start an epoch from the acknowledged state."""
        self._task, self._attempt = task, attempt
        self._guard.epoch = task.epoch
        self._input.begin(task)
        self._load_state(task.held_epoch)
        self._chain.begin()
        name = f"{self.index}-{task.epoch}-{attempt}"
        for node in self._nodes:
            if isinstance(node.operator, SinkOperator):
                transaction = f"{self._settings.writes_as}-{node.id}-{name}"
                self._guard.call(partial(node.operator.writer.begin, transaction), node)
            if task.last_checkpoint > self._last_notified_checkpoint:
                self._guard.call(partial(node.operator.notify_checkpoint_complete, task.last_checkpoint), node)
        self._last_notified_checkpoint = task.last_checkpoint

    def _load_state(self, held_epoch: int | None) -> None:
        self._states.load(self._task.state_files.get((self.vertex.id, self.index), {}), held_epoch, self._guard)

    def read_splits(self, ranges: list[SplitRange], ends: bool, seconds: float) -> Iterator[Outgoing]:
        """Read split ranges for a number of seconds: first the pending ones, then those of this epoch."""
        assert isinstance(self._input, SplitInput)
        return self._input.read(ranges, ends, seconds)

    def process_blocks(self, blocks: list[AddressedBlock], seconds: float) -> Iterator[Outgoing]:
        """Process input for a number of seconds: first the pending blocks, then those of this epoch."""
        assert isinstance(self._input, ChannelInput)
        return self._input.process(blocks, seconds)

    def report(self) -> SubtaskReport:
        """Finish the epoch: write state, stage output, and report."""
        for node in self._nodes:
            node.operator.write_cached()
        subtask_input, requests, chain, task = self._input, self._input.requests, self._chain, self._task
        chain.choose_loops(subtask_input.records_in)
        files = self._save_state(task.writes_state)
        exported = self._states.export(task, self._attempt, self.vertex.max_parallelism)
        committables = self._stage_output(task.flush or self.ended)
        fault_point("task.after-stage")
        if self.ended:
            self.close()
        return SubtaskReport(
            vertex=self.vertex.id,
            subtask=self.index,
            records_in=subtask_input.records_in,
            records_out=sum(w.records_out for w in chain.writers.values()),
            bytes_out=sum(w.bytes_out for w in chain.writers.values()),
            state_files=files,
            state_checksums=self._states.checksums(files),
            state_bytes=self._states.take_written(),
            committables=committables,
            watermark=chain.output_watermark,
            metrics=chain.metric_values(),
            runtime_snapshot=self._snapshot(),
            next_wake=None if self.ended else chain.next_wake(),
            poll_after_seconds=requests.poll_after_seconds(),
            at_capacity=requests.is_exhausted,
            holds_state=self.ended and not task.writes_state and bool(files),
            aligned={
                group: Progress(watermark, splits)
                for group, watermark, splits in (
                    m.progress() for m in chain.watermark_operators if m.strategy.alignment
                )
            },
            ended=self.ended,
            tables=self.tables() if task.checkpoint is not None else {},
            exported=exported,
            sink_records=chain.sink_records(),
            bytes_in=subtask_input.bytes_in,
            diagnostics=self._diagnostics.collect(chain.channels.values(), self._states.by_id, self.ended),
            state_was_local=self._states.was_local(),
        )

    def _save_state(self, to_files: bool) -> dict[str, Version]:
        """Write state changes to files or hold them in memory; return the latest files."""
        if to_files or self.ended:
            # A finished subtask is not called again when its state is needed later.
            for node in self._nodes:
                self._guard.call(partial(node.operator.snapshot, self._task.epoch), node)
            fault_point("task.before-delta")
        files = self._states.write(self._task, self._attempt, to_files, self._guard)
        if to_files:
            fault_point("task.after-delta")
        return files

    def _stage_output(self, flush: bool) -> dict[str, Committable]:
        """Stage the output of the sinks; return their committables by operator id."""
        committables: dict[str, Committable] = {}
        for node in self._nodes:
            if isinstance(node.operator, SinkOperator):
                committable = self._guard.call(partial(node.operator.writer.prepare_commit, flush), node)
                if committable is not None:
                    committables[node.id] = committable
        return committables

    # --- after the end of input, and the end of the process

    def write_final_state(self, task: LevelTask, attempt: str) -> SubtaskReport:
        """Write the remaining state of a finished subtask if required, without calling functions."""
        self._task, self._attempt, self._guard.epoch = task, attempt, task.epoch
        self._load_state(task.held_state_epochs.get((self.vertex.id, self.index)))
        files = self._states.write(task, attempt, True, self._guard)
        return SubtaskReport(
            vertex=self.vertex.id,
            subtask=self.index,
            records_in=0,
            records_out=0,
            bytes_out=0,
            state_files=files,
            state_checksums=self._states.checksums(files),
            state_bytes=self._states.take_written(),
            committables={},
            watermark=self._chain.time.watermark,
            metrics=self._chain.metric_values(),
            runtime_snapshot=self._last_snapshot,
            next_wake=None,
            aligned={},
            ended=True,
            tables={},
            exported=self._states.export(task, attempt, self.vertex.max_parallelism),
        )

    def end_requests(self) -> None:
        """Cancel the requests in flight and start no more."""
        self._input.requests.cancel()

    def close(self) -> None:
        """Close the functions once."""
        self._chain.close()

    # --- state and runtime snapshots

    def tables(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the state tables, by state id."""
        return self._states.describe()

    def states(self) -> Iterator[tuple[str, KeyedState]]:
        """Yield the states of its operators with their ids."""
        yield from self._states.by_id.items()

    def catch_up(self, snapshot: bytes) -> None:
        """Restore the runtime snapshot of the last acknowledged epoch if that ran in another process."""
        if snapshot != self._last_snapshot:
            decoded = decode(snapshot)
            self._chain.restore(decoded)
            self._input.restore(decoded)
            self._last_snapshot = snapshot

    def _snapshot(self) -> bytes:
        chain, subtask_input = self._chain, self._input
        operators: dict[str, OperatorSnapshot] = {
            i: data for i, o in chain.operators if (data := o.runtime_snapshot()) is not None
        }
        self._last_snapshot = encode(
            watermark=chain.time.watermark,
            idle=chain.time.is_idle,
            ended=subtask_input.ended,
            channels=chain.channels,
            operators=operators,
            watermarks={i: o.watermark for i, o in chain.operators},
            pending_ranges=subtask_input.pending_ranges,
            pending_blocks=subtask_input.pending_blocks,
            recovered_blocks=subtask_input.recovered.pending,
            requests=subtask_input.requests.has_requests,
        )
        return self._last_snapshot

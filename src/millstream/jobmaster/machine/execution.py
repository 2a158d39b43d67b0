"""One execution of a job: its plan, the results of its subtasks between epochs, and watermark alignment. Pure.

`tasks` builds the tasks of the next epoch from the results of the previous one, `acknowledge` takes new results from
the reports, and `snapshot` returns all of them, for a checkpoint. A restart or a rescale begins a new execution.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable
from typing import TypedDict, Unpack

from millstream.checkpoint.restore import InitialState, edges_of
from millstream.checkpoint.snapshot import OperatorSnapshot, Snapshot, SubtaskSnapshot, VertexSnapshot, operator_of
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.runtime.messages import (
    Address,
    JobPlan,
    LevelTask,
    Progress,
    SlotReport,
    SplitRanges,
    SubtaskReport,
)
from millstream.operators.runtime.runtime_snapshot import has_requests, pending_inputs
from millstream.operators.runtime.vertex import Vertex
from millstream.operators.source import SourceOperator
from millstream.operators.watermarks import WatermarkOperator
from millstream.state.changelog import StoredState
from millstream.state.keyed import Version
from millstream.state.restored import Restored


class TaskFields(TypedDict, total=False):
    """The fields of LevelTask that the caller of `Execution.tasks` sets."""

    slice: float
    reads: bool
    checkpoint: int | None
    flush: bool
    whole_state: bool
    savepoint: str | None
    last_checkpoint: int


_NO_PROGRESS = Progress(MIN_WATERMARK, {})


class Alignment:
    """Compares the watermarks of the sources of a group. Pure."""

    def __init__(self, plan: JobPlan, ended: frozenset[int]) -> None:
        # Source vertex -> (group, maximum drift in ms).
        self._drifts: dict[int, tuple[str, int]] = {}
        # Sources whose splits can be held back one by one.
        self._by_split: set[int] = set()
        # Group -> (source vertex, subtask) -> the progress that it has reported last.
        self._progress: dict[str, dict[tuple[int, int], Progress]] = {}
        # Ended sources report nothing, so no source waits for them.
        for vertex in (v for v in plan.vertices if v.id not in ended and v.is_source):
            for node in vertex.nodes:
                aligned = node.operator.strategy.alignment if isinstance(node.operator, WatermarkOperator) else None
                if aligned is not None:
                    self._drifts[vertex.id] = aligned[0], aligned[1].to_millis()
                    group = self._progress.setdefault(aligned[0], {})
                    group.update({(vertex.id, i): _NO_PROGRESS for i in range(vertex.parallelism)})
            head = vertex.head.operator
            if isinstance(head, SourceOperator) and head.source.aligns_splits:
                self._by_split.add(vertex.id)

    @property
    def sources(self) -> Collection[int]:
        """The aligned sources."""
        return self._drifts

    def learn(self, report: SubtaskReport) -> None:
        for group, progress in report.aligned.items():
            if group in self._progress:
                self._progress[group][report.vertex, report.subtask] = progress

    def remove_ended(self, ended: Collection[int]) -> None:
        """Remove ended sources: a subtask that had ended before a restart reports nothing."""
        for progress in self._progress.values():
            for address in [a for a in progress if a[0] in ended]:
                del progress[address]

    def must_wait(self, vertex: int) -> bool:
        """Return whether a whole source must wait for others of its group.

        A source that has not reported yet is at the minimum and is waited for. The slowest source never waits, even if
        a part of it is ahead: otherwise no source would continue.
        """
        if vertex not in self._drifts or self._waits_by_split(vertex):
            return False
        group, drift = self._drifts[vertex]
        lows = [self._low(group, v) for v in self._sources_in(group) if v != vertex]
        own = [p.watermark for p in self._progress_of(group, vertex)]
        return bool(lows and own) and min(own) > min(lows) and max(own) > min(lows) + drift

    def ahead(self, vertex: int) -> frozenset[Hashable]:
        """Return the splits of a source that must wait: some of them, or all if the whole source waits."""
        if vertex not in self._drifts:
            return frozenset()
        group, drift = self._drifts[vertex]
        splits = [item for p in self._progress_of(group, vertex) for item in p.splits.items()]
        if not self._waits_by_split(vertex):
            return frozenset({None, *(name for name, _ in splits)}) if self.must_wait(vertex) else frozenset()
        max_watermark = min(self._low(group, v) for v in self._sources_in(group)) + drift
        return frozenset(name for name, watermark in splits if watermark > max_watermark)

    def _waits_by_split(self, vertex: int) -> bool:
        group, _ = self._drifts[vertex]
        return vertex in self._by_split and any(p.splits for p in self._progress_of(group, vertex))

    def _sources_in(self, group: str) -> set[int]:
        return {vertex for vertex, _ in self._progress[group]}

    def _progress_of(self, group: str, vertex: int) -> list[Progress]:
        return [p for (v, _), p in self._progress[group].items() if v == vertex]

    def _low(self, group: str, vertex: int) -> int:
        """Return the watermark of the slowest part of a source; subtasks without splits do not count."""
        progress = self._progress_of(group, vertex)
        splits = [watermark for p in progress for watermark in p.splits.values()]
        return min(splits or [p.watermark for p in progress])


# The position of each source, by operator id; packed.
Positions = dict[str, bytes]


class Execution:
    """The driver's state of an execution between two epochs."""

    def __init__(self, plan: JobPlan, start: InitialState) -> None:
        self.plan = plan
        self.epoch = start.epoch
        # The source vertices.
        self.sources = frozenset(v.id for v in plan.vertices if v.is_source)
        # Ended vertices: sources, and downstream vertices without async requests in flight.
        self.ended = start.ended
        self._state_files: dict[Address, dict[str, Version]] = start.state_files
        self._chains = start.chains
        # The checksum of the last file of each chain.
        self._checksums = start.checksums
        self._runtime_snapshots = start.runtime_snapshots
        # The tables of each state.
        self._tables: dict[str, dict[str, dict[str, str]]] = dict(start.tables)
        # The epoch whose changes slots hold in memory, and whether the current epoch writes them.
        self._in_memory: int | None = None
        self._writes_state = True
        # Ended subtasks that hold changes in memory, and the epoch in which they ended.
        self._held_since: dict[Address, int] = {}
        # The parts of a savepoint that subtasks have exported.
        self._exported: dict[Address, dict[str, StoredState]] = {}
        # Bytes of state written since the last snapshot.
        self._written = 0
        # Files of the restored snapshot that are needed until this execution has written its own.
        self._restored_files = start.restored_files
        # When subtasks have work without input.
        self._wakes: dict[Address, int] = {}
        self._alignment = Alignment(plan, start.ended)
        # Subtasks with pending input, and the inputs it came from.
        self._pending_inputs = {
            a: pending for a, packed in start.runtime_snapshots.items() if (pending := pending_inputs(packed))
        }
        # The sources upstream of each vertex and of each edge.
        self._sources = _sources_of_vertices(plan)
        self._feeding = {e.id: self._sources[e.source] for v in plan.vertices for e in v.in_edges}
        # Backpressured subtasks.
        self._at_capacity: set[Address] = set()
        # Sources that were requested to end.
        self._ending: frozenset[int] = frozenset()

    @property
    def is_finished(self) -> bool:
        return all(v.id in self.ended for v in self.plan.vertices)

    @property
    def has_requests(self) -> bool:
        """Whether async requests are in flight."""
        return any(has_requests(packed) for packed in self._runtime_snapshots.values())

    @property
    def owns_state(self) -> bool:
        """Whether all state is in files of this execution: only then does a snapshot hold it.

        The first epoch rewrites state that was restored from another job or parallelism.
        """
        return not any(isinstance(v, Restored) for files in self._state_files.values() for v in files.values())

    def running_sources(self) -> frozenset[int]:
        return self.sources - self.ended

    def sources_with_pending_input(self) -> frozenset[int]:
        """Return the sources with assigned input that is not processed, at the source or downstream."""
        return frozenset(
            s for (v, _), inputs in self._pending_inputs.items() for i in inputs for s in self._sources_of(v, i)
        )

    def backpressured_sources(self) -> frozenset[int]:
        """Return the sources that must not read because of backpressure."""
        return frozenset().union(*(self._sources[vertex] for vertex, _ in self._at_capacity))

    def drained_sources(self) -> frozenset[int]:
        """Return the running sources that have read all input and wait only for async requests."""
        requesting = {vertex for (vertex, _), packed in self._runtime_snapshots.items() if has_requests(packed)}
        return (self._ending & self.running_sources() & requesting) - self.sources_with_pending_input()

    def readable_sources(self) -> frozenset[int]:
        """Return the running sources without pending input that watermark alignment does not hold back."""
        excluded = set(self.sources_with_pending_input())
        if self.plan.settings.batch:
            # In BATCH, input waits for the end of broadcast input, which may come from the same source.
            broadcast = [e for v in self.plan.vertices for e in v.in_edges if e.partitioner.broadcasts]
            pending = {vertex for vertex, _ in self._pending_inputs}
            excluded -= {s for e in broadcast if e.target in pending for s in self._feeding[e.id]}
        open_to_more = self.running_sources() - excluded - self.backpressured_sources()
        return frozenset(v for v in open_to_more if not self._alignment.must_wait(v))

    def splits_ahead(self) -> dict[int, frozenset[Hashable]]:
        """Return the splits of each source that watermark alignment holds back."""
        return {v: splits for v in self._alignment.sources if (splits := self._alignment.ahead(v))}

    def _sources_of(self, vertex: int, input_vertex: int) -> frozenset[int]:
        """Return the sources of an input of a vertex."""
        return self._feeding.get(input_vertex, self._sources[vertex])

    def next_wake(self) -> int | None:
        """Return when there is work without input, in milliseconds."""
        return min(self._wakes.values(), default=None)

    def tasks(
        self, split_ranges: SplitRanges, ending: frozenset[int], writes_state: bool = True, **fields: Unpack[TaskFields]
    ) -> list[LevelTask]:
        """Return the tasks of the next epoch's levels; `fields` are further fields of LevelTask."""
        self.epoch += 1
        self._writes_state = writes_state
        self._ending |= ending
        # Without a slice, subtasks wait for buffer space themselves.
        paused = self.backpressured_sources() if fields.get("slice", math.inf) < math.inf else frozenset()
        return [self._task(level, split_ranges, ending, paused, fields) for level in range(self.plan.levels)]

    def _task(
        self,
        level: int,
        split_ranges: SplitRanges,
        ending: frozenset[int],
        paused: frozenset[int],
        fields: TaskFields,
    ) -> LevelTask:
        vertices = [v for v in self.plan.vertices if v.level == level]
        splits_ahead = self.splits_ahead()
        addresses = [(v.id, subtask) for v in vertices for subtask in range(v.parallelism)]
        return LevelTask(
            epoch=self.epoch,
            level=level,
            split_ranges={v.id: split_ranges[v.id] for v in vertices if v.id in split_ranges},
            ending=frozenset(v.id for v in vertices if v.id in ending),
            paused_sources=frozenset(v.id for v in vertices if v.id in paused),
            paused_splits={v.id: splits_ahead[v.id] for v in vertices if v.id in splits_ahead},
            state_files={a: self._checked(a, files) for a in addresses if (files := self._state_files.get(a))},
            runtime_snapshots={a: packed for a in addresses if (packed := self._runtime_snapshots.get(a))},
            held_state_epochs={a: self._held_since[a] for a in addresses if a in self._held_since},
            held_epoch=self._in_memory,
            writes_state=self._writes_state,
            **fields,
        )

    def _checked(self, address: Address, files: dict[str, Version]) -> dict[str, Version]:
        """Return state files with the digests that slots must verify, if known."""
        if not self.plan.settings.digests:
            return files
        checksums = {i: self._checksums.get((*address, i)) for i in files}
        return {i: StoredState(f, checksums[i]) if isinstance(f, str) else f for i, f in files.items()}

    def acknowledge(self, reports: list[SlotReport]) -> tuple[list[str], bool]:
        """Acknowledge the reports of an epoch.

        Returns the names of the state files it wrote, and whether it replaced files.
        """
        written: list[str] = []
        replaced = False
        subtasks = [r for slot in reports for r in slot.subtasks]
        for report in subtasks:
            replaced |= self._acknowledge_subtask(report, written)
        if self._restored_files and self.owns_state:
            self._restored_files = set()
        self._in_memory = None if self._writes_state else self.epoch
        running = {r.vertex for r in subtasks if not r.ended}
        self.ended |= {r.vertex for r in subtasks} - running
        self._alignment.remove_ended(self.ended)
        return written, replaced

    def _acknowledge_subtask(self, report: SubtaskReport, written: list[str]) -> bool:
        address = report.vertex, report.subtask
        self._runtime_snapshots[address] = report.runtime_snapshot
        self._wakes.pop(address, None)
        if report.next_wake is not None:
            self._wakes[address] = report.next_wake
        self._pending_inputs.pop(address, None)
        if report.has_pending_input:
            self._pending_inputs[address] = pending_inputs(report.runtime_snapshot)
        if report.at_capacity:
            self._at_capacity.add(address)
        else:
            self._at_capacity.discard(address)
        if report.holds_state:
            self._held_since[address] = self.epoch
        else:
            self._held_since.pop(address, None)
        self._written += report.state_bytes
        self._alignment.learn(report)
        for state_id, tables in report.tables.items():
            # Not every subtask or run uses all tables. Snapshots share the dicts, so they are not changed.
            former = self._tables.get(state_id, {})
            updated = {name: {**former.get(name, {}), **now} for name, now in tables.items()}
            self._tables[state_id] = {**former, **updated}
        self._exported[address] = report.exported
        if report.state_files:
            self._state_files[address] = report.state_files
        for state_id, checksum in report.state_checksums.items():
            self._checksums[*address, state_id] = checksum
        return self._extend_chains(address, report.state_files, written)

    def _extend_chains(self, address: Address, files: dict[str, Version], written: list[str]) -> bool:
        replaced = False
        for state_id, name in files.items():
            chain = self._chains.setdefault((*address, state_id), [])
            if name is None or (chain and chain[-1] == name):
                continue
            assert isinstance(name, str)
            written.append(name)
            if name.endswith(".base"):
                replaced |= bool(chain)
                chain.clear()
            chain.append(name)
        return replaced

    def take_written(self) -> int:
        """Return the bytes of state written since the last call."""
        written, self._written = self._written, 0
        return written

    def live_files(self) -> set[str]:
        """Return the state files that the next epoch may need."""
        return {name for chain in self._chains.values() for name in chain} | self._restored_files

    def snapshot(self, positions: Positions) -> Snapshot:
        """Return the snapshot at the end of the last epoch, without staged output."""
        assert self._in_memory is None and not self._held_since, "some state changes are in no file"
        settings = self.plan.settings
        return Snapshot(
            settings.writes_as,
            settings.job_name,
            self.epoch,
            {v.head.id: self._vertex(v) for v in self.plan.vertices},
            edges_of(self.plan),
            dict(positions),
        )

    def _vertex(self, vertex: Vertex) -> VertexSnapshot:
        operators = []
        for node in vertex.nodes:
            tables = {operator_of(i)[1]: t for i, t in self._tables.items() if operator_of(i)[0] == node.id}
            operators.append(OperatorSnapshot(node.id, node.uid, node.name, tables))
        subtasks = [
            SubtaskSnapshot(
                {i: list(c) for (v, s, i), c in self._chains.items() if (v, s) == (vertex.id, subtask) and c},
                {},
                self._runtime_snapshots.get((vertex.id, subtask), b""),
                {
                    i: checksum
                    for (v, s, i), checksum in self._checksums.items()
                    if (v, s) == (vertex.id, subtask) and self._chains.get((v, s, i))
                },
            )
            for subtask in range(vertex.parallelism)
        ]
        return VertexSnapshot(operators, vertex.max_parallelism, subtasks, vertex.id in self.ended)

    def savepoint(self, positions: Positions) -> Snapshot:
        """Return the snapshot of a savepoint's epoch, with parts instead of chains."""
        snapshot = self.snapshot(positions)
        for vertex in self.plan.vertices:
            for subtask, taken in enumerate(snapshot.vertices[vertex.head.id].subtasks):
                taken.states, taken.checksums = {}, {}
                exported = self._exported.get((vertex.id, subtask), {})
                taken.parts = {i: StoredState(p.file.rpartition("/")[2], p.checksum) for i, p in exported.items()}
        return snapshot


def _sources_of_vertices(plan: JobPlan) -> dict[int, frozenset[int]]:
    """Return the sources upstream of each vertex; a source is its own."""
    sources: dict[int, frozenset[int]] = {}
    for vertex in sorted(plan.vertices, key=lambda v: v.level):
        own = frozenset({vertex.id} if vertex.is_source else ())
        sources[vertex.id] = own.union(*(sources[e.source] for e in vertex.in_edges))
    return sources


def merged(reports: Iterable[SlotReport]) -> list[SlotReport]:
    """Return reports sorted by level and slot."""
    return sorted(reports, key=lambda r: (r.level, r.slot))

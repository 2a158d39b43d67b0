"""Messages between driver and slots: the job plan, a task per level and epoch, and reports.

Messages are immutable, and their fields are passed by name. `SlotTaskSplitter` reduces the tasks of an epoch to what
each slot needs, and `with_slot_part` reassembles them in the slot.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from millstream.common.aliases import Value
from millstream.common.checksums import Checksum
from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.diagnostics.io_metrics import SlotTraffic
from millstream.operators.diagnostics.sampling import StackSamples
from millstream.operators.diagnostics.subtask_diagnostics import SubtaskDiagnostics
from millstream.operators.runtime.runtime_snapshot import has_pending_input, has_requests
from millstream.operators.runtime.vertex import JobSettings, Vertex
from millstream.operators.sink import Committable
from millstream.operators.source import SplitRange
from millstream.state.changelog import StoredState
from millstream.state.keyed import Version
from millstream.state.restored import Restored

# One subtask of a job: (vertex, subtask).
Address = tuple[int, int]

# Input that source subtasks read in one epoch: vertex -> subtask -> split ranges.
SplitRanges = dict[int, dict[int, list[SplitRange]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class JobPlan:
    """The plan that every slot of a job receives once; plans compare by identity."""

    settings: JobSettings
    vertices: list[Vertex]

    @property
    def levels(self) -> int:
        return 1 + max(v.level for v in self.vertices)

    def slots(self, level: int) -> int:
        """Return the number of slots, and so Spark tasks, of a level."""
        return max(v.slot_offset + v.parallelism for v in self.vertices if v.level == level)


@fast_dataclass(kw_only=True)
class LevelTask:
    """The driver's instructions for one level of one epoch.

    Attributes:
        split_ranges: new input of this level's sources; subtasks read it after their pending ranges.
        ending: the sources of this level that end once they have read all their input.
        slice: the seconds that subtasks may work; unprocessed input goes into their runtime snapshots. With an infinite
            slice nothing is left to the next epoch, neither input nor requests in flight.
        reads: whether sources read anything.
        paused_sources: the sources of this level that read nothing because of backpressure.
        state_files: the acknowledged state: (vertex, subtask) -> state id -> file.
        paused_splits: the splits of each source that wait for slower ones (watermark alignment).
        held_epoch: the epoch at whose end slots held state changes in memory; None if the files are complete.
        writes_state: whether state changes are written to files at the end; else slots may hold them in memory.
        held_state_epochs: finished subtasks that hold state changes in memory, with the epoch in which they ended.
        runtime_snapshots: the subtasks' runtime snapshots of the previous epoch.
        checkpoint: the checkpoint that is taken with this epoch, if any.
        flush: whether sinks must stage all they have.
        whole_state: whether state files must not depend on earlier ones.
        savepoint: the directory to which the state is exported too.
        last_checkpoint: the last complete checkpoint, for checkpoint listeners.
        samples_stacks: whether slots sample their stacks.
    """

    epoch: int
    level: int
    split_ranges: SplitRanges = field(default_factory=dict)
    ending: frozenset[int] = frozenset()
    slice: float = math.inf
    reads: bool = True
    paused_sources: frozenset[int] = frozenset()
    paused_splits: dict[int, frozenset[Hashable]] = field(default_factory=dict)
    state_files: dict[Address, dict[str, Version]] = field(default_factory=dict)
    held_epoch: int | None = None
    writes_state: bool = True
    held_state_epochs: dict[Address, int] = field(default_factory=dict)
    runtime_snapshots: dict[Address, bytes] = field(default_factory=dict)
    checkpoint: int | None = None
    flush: bool = False
    whole_state: bool = False
    savepoint: str | None = None
    last_checkpoint: int = 0
    samples_stacks: bool = False

    def needs_state_of(self, ended: Address) -> bool:
        """Return whether a finished subtask must still write its state.

        Each snapshot contains the state of all subtasks, in the job's own files or in the savepoint's.
        """
        files = self.state_files.get(ended, {})
        return (self.writes_state and ended in self.held_state_epochs) or any(
            isinstance(version, Restored) or (version and self.savepoint) for version in files.values()
        )


# The parts of a level's task that belong to one slot: split ranges, state files, runtime snapshots.
_LevelPart = tuple[SplitRanges, dict[Address, dict[str, Version]], dict[Address, bytes]]
# One slot's part of an epoch's tasks, by level; levels without such parts are left out.
SlotPart = dict[int, _LevelPart]


class SlotTaskSplitter:
    """Splits tasks into a common part and one part per slot.

    Split ranges, state files and runtime snapshots belong to one subtask each. Sending all of them to all slots would
    grow with the square of the number of slots.
    """

    def __init__(self, plan: JobPlan) -> None:
        self._offsets = {v.id: v.slot_offset for v in plan.vertices}
        self._slots = max(plan.slots(level) for level in range(plan.levels))

    def split(self, tasks: list[LevelTask]) -> tuple[list[LevelTask], list[SlotPart]]:
        """Return the common tasks, and the part of each slot."""
        parts: list[SlotPart] = [{} for _ in range(self._slots)]
        for level, task in enumerate(tasks):
            for vertex, ranges in task.split_ranges.items():
                for subtask, subtask_ranges in ranges.items():
                    self._level_part(parts, level, (vertex, subtask))[0][vertex] = {subtask: subtask_ranges}
            for address, files in task.state_files.items():
                self._level_part(parts, level, address)[1][address] = files
            for address, snapshots in task.runtime_snapshots.items():
                self._level_part(parts, level, address)[2][address] = snapshots
        return [replace(task, split_ranges={}, state_files={}, runtime_snapshots={}) for task in tasks], parts

    def _level_part(self, parts: list[SlotPart], level: int, address: Address) -> _LevelPart:
        vertex, subtask = address
        return parts[self._offsets[vertex] + subtask].setdefault(level, ({}, {}, {}))


def with_slot_part(tasks: list[LevelTask], part: SlotPart) -> list[LevelTask]:
    """Return the tasks of one slot: the common tasks with the slot's part."""
    for level, (ranges, files, snapshots) in part.items():
        tasks[level] = replace(tasks[level], split_ranges=ranges, state_files=files, runtime_snapshots=snapshots)
    return tasks


class Progress(NamedTuple):
    """The event-time progress of a source in a subtask.

    Attributes:
        watermark: the subtask's watermark; MAX_WATERMARK if nothing waits for it.
        splits: the watermark of each split that is being read and is not idle.
    """

    watermark: int
    splits: Mapping[Hashable, int]


@fast_dataclass(kw_only=True)
class SubtaskReport:
    """The results of a subtask in an epoch.

    Attributes:
        state_files: the files that now hold its operators' keyed state.
        state_bytes: the number of bytes of state written.
        committables: the output that its sinks have staged.
        runtime_snapshot: the encoded `RuntimeSnapshot`.
        next_wake: the wall-clock time of the next timer.
        poll_after_seconds: when to poll requests in flight; None without requests.
        at_capacity: whether it accepts no more input until some requests complete.
        holds_state: whether it has ended and holds state changes that no file contains.
        aligned: the progress of the sources of each alignment group.
        tables: with a checkpoint, the state tables.
        exported: with a savepoint, the exported files.
        sink_records: the number of records its sinks received; None if not counted.
        seconds: the time it worked.
        diagnostics: its diagnostics, reported now and then.
        state_checksums: the checksums of its state files, by state id.
        state_was_local: whether its state was in memory, or had to be read from files; None before the first state.
    """

    vertex: int
    subtask: int
    records_in: int
    records_out: int
    bytes_out: int
    state_files: dict[str, Version]
    state_bytes: int
    committables: dict[str, Committable]
    watermark: int
    metrics: dict[str, Value]
    runtime_snapshot: bytes
    next_wake: int | None
    aligned: dict[str, Progress]
    ended: bool
    tables: dict[str, dict[str, dict[str, str]]]
    exported: dict[str, StoredState]
    poll_after_seconds: float | None = None
    at_capacity: bool = False
    holds_state: bool = False
    sink_records: int | None = 0
    seconds: float = 0.0
    bytes_in: int = 0
    diagnostics: SubtaskDiagnostics | None = None
    state_was_local: bool | None = None
    state_checksums: dict[str, Checksum] = field(default_factory=dict)

    @property
    def has_requests(self) -> bool:
        """Whether requests are in flight."""
        return has_requests(self.runtime_snapshot)

    @property
    def has_pending_input(self) -> bool:
        """Whether unprocessed input is left."""
        return has_pending_input(self.runtime_snapshot)


@fast_dataclass
class LogLine:
    """A log record of a worker.

    Attributes:
        name: the logger's name.
        created: the time in seconds since 1970.
        operator: the operator whose function logged it, named as in errors; None outside of functions.
        subtask, job: the subtask as `1/2`, and the job's name.
    """

    name: str
    level: int
    message: str
    created: float
    operator: str | None
    subtask: str | None = None
    job: str | None = None


@fast_dataclass
class SlotLocation:
    """The location of a slot.

    Attributes:
        executor: Spark's executor id.
        host: the host name.
        memory: the memory of the host in bytes.
    """

    executor: str
    host: str
    memory: int


@fast_dataclass(kw_only=True)
class SlotReport:
    """The results of a slot for one level: subtask reports, printed text, logs and I/O metrics.

    Attributes:
        location: where the slot runs; reported once per process.
        samples: stack samples by vertex.
    """

    level: int
    slot: int
    subtasks: list[SubtaskReport]
    printed: str
    traffic: SlotTraffic | None = None
    logged: list[LogLine] = field(default_factory=list)
    samples: dict[int, StackSamples] = field(default_factory=dict)
    location: SlotLocation | None = None

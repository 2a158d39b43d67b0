"""What driver and slots say to each other: the plan once a job, a task for each level of an epoch, and reports back.

Messages are made whole, by name, and never changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millstream.common.checksums import Checksum
from millstream.common.fast_dataclass import record
from millstream.operators.diagnostics.io_metrics import SlotTraffic
from millstream.operators.diagnostics.sampling import Seen
from millstream.operators.diagnostics.subtask_diagnostics import SubtaskDiagnostics
from millstream.operators.runtime.runtime_snapshot import has_pending_input, has_requests
from millstream.operators.runtime.vertex import JobSettings, Vertex
from millstream.operators.source import SplitRange
from millstream.state.keyed import Version
from millstream.state.restored import Restored, StoredState

# One subtask of a job: (vertex, subtask).
Address = tuple[int, int]

# What the subtasks of sources read in one epoch: vertex -> subtask -> shares.
SplitRanges = dict[int, dict[int, list[SplitRange]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class JobPlan:
    """What every slot of a job needs to know; made once a job, and told from others by who it is."""

    settings: JobSettings
    vertices: list[Vertex]

    @property
    def levels(self) -> int:
        return 1 + max(v.level for v in self.vertices)

    def slots(self, level: int) -> int:
        """Return how many slots, and so Spark tasks, a level has."""
        return max(v.slot_offset + v.parallelism for v in self.vertices if v.level == level)


@record(kw_only=True)
class LevelTask:
    """What the driver says about one level of one epoch.

    Attributes:
        split_ranges: what the sources of this level read, behind what they have not read yet.
        ending: the sources of this level that end as soon as they have read all there is.
        slice: for how many seconds subtasks may work; they carry what they do not get to. With no end to it, nothing is
            left to the next epoch: neither input, nor requests in flight.
        reads: whether sources read anything.
        paused_sources: the sources of this level that read nothing, because somebody behind them can take no more.
        state_files: the acknowledged state: operator id -> file.
        paused_splits: the splits of each source that are not read because slower ones are waited for.
        held_epoch: the epoch at whose end slots kept changes of state in memory; None when the files have all.
        writes_state: whether changes of state are written to files at its end; else slots may go on holding them.
        held_state_epochs: the subtasks that have ended and hold changes of state in memory, with the epoch they ended in.
        runtime_snapshots: what else the subtasks reported to be carried to this epoch.
        checkpoint: the checkpoint that is taken with this epoch, if one is.
        flush: whether sinks must stage all they have.
        whole_state: whether state files must not depend on earlier ones.
        savepoint: where the state shall also be exported to.
        last_checkpoint: the last checkpoint that is complete, for functions that want to know.
        samples_stacks: whether somebody wants to know what slots do all the time.
    """

    epoch: int
    level: int
    split_ranges: SplitRanges = field(default_factory=dict)
    ending: frozenset[int] = frozenset()
    slice: float = math.inf
    reads: bool = True
    paused_sources: frozenset[int] = frozenset()
    paused_splits: dict[int, frozenset[Any]] = field(default_factory=dict)
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
        """Tell whether a subtask that has ended, and has nothing else to do, must write its state all the same.

        Each cut has the state of all subtasks, in the job's own files or in the savepoint's.
        """
        files = self.state_files.get(ended, {})
        return (self.writes_state and ended in self.held_state_epochs) or any(
            isinstance(version, Restored) or (version and self.savepoint) for version in files.values()
        )


class Progress(NamedTuple):
    """How far a source has come in a subtask.

    Attributes:
        watermark: of the subtask; the highest there is where nothing is to be waited for.
        splits: of each split that is being read and is not idle.
    """

    watermark: int
    splits: Mapping[Any, int]


@record(kw_only=True)
class SubtaskReport:
    """What a subtask did in an epoch.

    Attributes:
        state_files: the files that now hold its operators' keyed state.
        state_bytes: how many bytes of state were written.
        committables: what its sinks have staged.
        runtime_snapshot: what else must outlive the process, see `operators.runtime_snapshot`.
        next_wake: when, by the wall clock, there is something to do without input.
        poll_after_seconds: in how many seconds to look for answers to requests in flight; None when there are none.
        at_capacity: whether it shall be sent no more before some of them are answered.
        holds_state: whether it has ended, and holds changes of state that no file has.
        aligned: how far the sources of each alignment group have come here.
        tables: with a checkpoint, what tables of state there are.
        exported: with a savepoint, where the state was exported to.
        sink_records: how many records its sinks were given; None where that is not counted.
        seconds: how long it worked.
        diagnostics: now and then, what it tells of itself to people.
        state_checksums: of the files that have its states, by state id.
        state_was_local: whether it found its state in its process, or had to read files; None when there was none yet.
    """

    vertex: int
    subtask: int
    records_in: int
    records_out: int
    bytes_out: int
    state_files: dict[str, Version]
    state_bytes: int
    committables: dict[str, Any]
    watermark: int
    metrics: dict[str, Any]
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
        """Whether it has requests in flight."""
        return has_requests(self.runtime_snapshot)

    @property
    def has_pending_input(self) -> bool:
        """Whether there is input that it has not processed."""
        return has_pending_input(self.runtime_snapshot)


@record
class LogLine:
    """One thing that was logged.

    Attributes:
        name: the logger's.
        created: when, in seconds since 1970.
        operator: whose function said it, as errors name it; None outside of functions.
        subtask, job: of that, as `1/2`, and by its name.
    """

    name: str
    level: int
    message: str
    created: float
    operator: str | None
    subtask: str | None = None
    job: str | None = None


@record
class SlotLocation:
    """Where a slot runs.

    Attributes:
        executor: the id of Spark's executor.
        host: the name of its machine.
        memory: how many bytes of memory that machine has.
    """

    executor: str
    host: str
    memory: int


@record(kw_only=True)
class SlotReport:
    """What a slot did in one level of an epoch, what user code printed and logged, and now and then its traffic.

    Attributes:
        location: where it runs, once for each process that is the slot.
        samples: where it was sampled, what was seen, by vertex.
    """

    level: int
    slot: int
    subtasks: list[SubtaskReport]
    printed: str
    traffic: SlotTraffic | None = None
    logged: list[LogLine] = field(default_factory=list)
    samples: dict[int, Seen] = field(default_factory=dict)
    location: SlotLocation | None = None

"""The checkpoint coordinator decides when checkpoints are taken, when output counts, and what a restart goes back to.

Pure: events in, instructions out; no clock, no file, no thread. The job master carries the instructions out, and so
does the simulation in the tests.

    trigger -> PENDING -- acknowledge --> WRITING -- written --> COMPLETED -- committed --> NOTIFIED
                  |                          |
                  '---- decline, expire -----'--> FAILED

Four rules make the output exactly-once, whatever dies in between:

1. Output is committed only when the manifest of the checkpoint it belongs to is safely written.
2. A manifest names all output that is staged and not known to be committed, or committed and not done with, so that who
   restores it can commit it.
3. A restart goes back to the last complete checkpoint, commits (again) what that names, and aborts all other output.
4. Output is aborted only when nobody can start any more from a checkpoint that names it: one that failed or came too
   late may be on storage all the same.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.snapshot import Snapshot, pack

_REMEMBERED = 10


class CheckpointStatus(Enum):
    """How far a checkpoint has come."""

    PENDING = "pending"
    WRITING = "writing"
    COMPLETED = "completed"
    NOTIFIED = "notified"
    FAILED = "failed"


@dataclass
class Checkpoint:
    """One checkpoint, from its trigger on. Times are in seconds of the job's clock."""

    id: int
    triggered_at: float
    status: CheckpointStatus = CheckpointStatus.PENDING
    snapshot: Snapshot | None = None
    acknowledged_at: float | None = None
    completed_at: float | None = None
    # How much of the staged output it names.
    staged: int = 0
    # How many bytes of state were written for it: since the checkpoint before.
    state_bytes: int = 0
    reason: str = ""

    @property
    def cut(self) -> Snapshot:
        assert self.snapshot is not None
        return self.snapshot


@dataclass(frozen=True)
class WriteManifest:
    """Write a checkpoint's manifest, then say `written` or `write_failed`."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class Commit:
    """Commit the output that a checkpoint names, tell the sources, then say `committed`."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class Discard:
    """Delete checkpoints that are not needed any more."""

    checkpoints: tuple[Checkpoint, ...]


@dataclass(frozen=True)
class FailJob:
    """Too many checkpoints have failed."""

    reason: str


Instruction = WriteManifest | Commit | Discard | FailJob


@dataclass(frozen=True)
class Recover:
    """Go back to a checkpoint (None: to the beginning): commit what it names, abort all other output."""

    checkpoint: Checkpoint | None


@dataclass
class _Staged:
    """Output that is staged and not known to be committed, oldest first."""

    entries: list[tuple[str, int, Any]] = field(default_factory=list)
    # How many that came before were committed.
    dropped: int = 0

    @property
    def end(self) -> int:
        return self.dropped + len(self.entries)

    def drop_until(self, end: int) -> None:
        count = max(end - self.dropped, 0)
        del self.entries[:count]
        self.dropped += count

    def by_operator(self, waiting: dict[str, list[tuple[int, Any]]]) -> dict[str, bytes]:
        """Return what a manifest names: this, behind what has waited since before."""
        found = {operator: list(committables) for operator, committables in waiting.items()}
        for operator, subtask, committable in self.entries:
            found.setdefault(operator, []).append((subtask, committable))
        return {operator: pack(staged) for operator, staged in found.items()}


class Coordinator:
    """The checkpoints of one job."""

    def __init__(self, options: CheckpointOptions, now: float, restored: Checkpoint | None = None) -> None:
        """Start.

        Args:
            options: how checkpoints are to be taken.
            now: the time.
            restored: the checkpoint the job goes on from.
        """
        self._options = options
        self._next_id = 1 if restored is None else restored.id + 1
        self._pending: dict[int, Checkpoint] = {}
        # Complete, oldest first; what comes before the retained ones is discarded.
        self._completed: list[Checkpoint] = []
        # What the job began with belongs to another job: it is gone back to, but never discarded here.
        self._restored = restored
        self._staged = _Staged()
        self._waiting: dict[str, list[tuple[int, Any]]] = {}
        self._last_trigger = now
        self._last_end = -math.inf
        self._failures_in_a_row = 0
        self.triggered = self.failed_count = self.completed_count = 0
        # The last ones, in whatever state, oldest first.
        self.history: deque[Checkpoint] = deque(maxlen=_REMEMBERED)

    # --- when

    def next_due(self) -> float:
        """Return when the next checkpoint is due."""
        if not self._options.enabled or len(self._pending) >= self._options.max_concurrent:
            return math.inf
        return max(self._last_trigger + self._options.interval, self._last_end + self._options.min_pause)

    def trigger(self, now: float) -> Checkpoint:
        """Begin a checkpoint: it is taken with the epoch that starts now."""
        checkpoint = Checkpoint(self._next_id, now)
        self._next_id += 1
        self._last_trigger = now
        self._pending[checkpoint.id] = checkpoint
        self.history.append(checkpoint)
        self.triggered += 1
        return checkpoint

    # --- output

    def stage(self, operator: str, subtask: int, committable: Any) -> None:
        """An acknowledged epoch has staged output."""
        self._staged.entries.append((operator, subtask, committable))

    def wait(self, waiting: dict[str, list[tuple[int, Any]]]) -> None:
        """Know what was committed and is not done with, by operator: checkpoints name it until it is."""
        self._waiting = waiting

    def has_staged(self) -> bool:
        """Tell whether output waits for a checkpoint."""
        return bool(self._staged.entries)

    # --- what happens to a checkpoint

    def acknowledge(
        self, checkpoint_id: int, snapshot: Snapshot, now: float, state_bytes: int = 0
    ) -> list[Instruction]:
        """The checkpoint's epoch has ended in all subtasks: the cut is known."""
        checkpoint = self._pending.get(checkpoint_id)
        if checkpoint is None or checkpoint.status is not CheckpointStatus.PENDING:
            return []
        snapshot.committables = self._staged.by_operator(self._waiting)
        checkpoint.snapshot = snapshot
        checkpoint.staged = self._staged.end
        checkpoint.acknowledged_at = now
        checkpoint.state_bytes = state_bytes
        checkpoint.status = CheckpointStatus.WRITING
        return [WriteManifest(checkpoint)]

    def written(self, checkpoint_id: int, now: float) -> list[Instruction]:
        """The manifest is safely written: the checkpoint is complete."""
        checkpoint = self._pending.pop(checkpoint_id, None)
        if checkpoint is None or checkpoint.status is not CheckpointStatus.WRITING:
            return []
        checkpoint.status, checkpoint.completed_at = CheckpointStatus.COMPLETED, now
        self._last_end = now
        self._failures_in_a_row = 0
        self.completed_count += 1
        self._completed.append(checkpoint)
        # One that was triggered before and is not complete yet has nothing to add.
        for older in [c for c in self._pending.values() if c.id < checkpoint.id]:
            self._fail(older, now, f"checkpoint {checkpoint.id} came first")
        return [Commit(checkpoint)]

    def committed(self, checkpoint_id: int) -> list[Instruction]:
        """The output that a checkpoint names has been committed."""
        checkpoint = next((c for c in self._completed if c.id == checkpoint_id), None)
        if checkpoint is None:
            return []
        checkpoint.status = CheckpointStatus.NOTIFIED
        self._staged.drop_until(checkpoint.staged)
        old = self._completed[: -self._options.retained]
        del self._completed[: -self._options.retained]
        return [Discard(tuple(old))] if old else []

    def write_failed(self, checkpoint_id: int, reason: str, now: float) -> list[Instruction]:
        """The manifest could not be written, or an operator has declined."""
        checkpoint = self._pending.get(checkpoint_id)
        if checkpoint is None:
            return []
        self._fail(checkpoint, now, reason)
        self._failures_in_a_row += 1
        if self._failures_in_a_row > self._options.tolerable_failures:
            return [FailJob(f"Checkpoint {checkpoint_id} failed ({reason}), and no more failures are tolerated.")]
        return []

    def expire(self, now: float) -> list[Instruction]:
        """Give up checkpoints that take too long."""
        instructions: list[Instruction] = []
        for checkpoint in list(self._pending.values()):
            if now - checkpoint.triggered_at >= self._options.timeout:
                text = f"it took longer than execution.checkpointing.timeout, {self._options.timeout:g} s"
                instructions += self.write_failed(checkpoint.id, text, now)
        return instructions

    def _fail(self, checkpoint: Checkpoint, now: float, reason: str) -> None:
        del self._pending[checkpoint.id]
        checkpoint.status, checkpoint.reason = CheckpointStatus.FAILED, reason
        self._last_end = now
        self.failed_count += 1

    def in_flight(self) -> list[Checkpoint]:
        """Return the checkpoints whose manifest is being written."""
        return [c for c in self._pending.values() if c.status is CheckpointStatus.WRITING]

    def is_pending(self, checkpoint_id: int) -> bool:
        return checkpoint_id in self._pending

    # --- failure

    def failed(self, now: float, operators: Collection[str] | None = None) -> Recover:
        """The job has failed: say what it goes back to. Manifests that were being written must have settled before.

        Args:
            now: the time.
            operators: those that go back, when only a part of the job does.
        """
        for checkpoint in list(self._pending.values()):
            self._fail(checkpoint, now, "the job has failed")
        if operators is None:
            self._staged.drop_until(self._staged.end)
        else:
            self._staged.entries = [e for e in self._staged.entries if e[0] not in operators]
            self._staged.dropped = 0
            # What is left has no place in older counts any more.
            for checkpoint in self._completed:
                checkpoint.staged = 0
        self._last_trigger = now
        return Recover(self.latest())

    def latest(self) -> Checkpoint | None:
        """Return the last complete checkpoint."""
        return self._completed[-1] if self._completed else self._restored

    def give_up(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """A checkpoint cannot be read: return the one before it, None when there is none."""
        if checkpoint is self._restored:
            self._restored = None
        else:
            self._completed = [c for c in self._completed if c.id < checkpoint.id]
        return self.latest()

    def forget_origin(self) -> None:
        """What the job has started from is gone: there is something newer to go back to."""
        self._restored = None

    def retained(self) -> list[Checkpoint]:
        """Return the complete checkpoints that are kept."""
        return list(self._completed)

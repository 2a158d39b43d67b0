"""The checkpoint coordinator: decides when checkpoints are taken, when output is committed, and where restarts begin.

Pure: no clock, file or thread; it returns instructions.

    trigger -> PENDING -- acknowledge --> WRITING -- written --> COMPLETED -- committed --> NOTIFIED
                  |                          |
                  '------ lost, expire ------'--> FAILED

Four rules make the output exactly-once, also after failures:

1. Output is committed only when the manifest of the checkpoint it belongs to is safely written.
2. A manifest names all output that is staged and not known to be committed, or committed and not final, so that a
   restored job can commit it.
3. A restart rolls back to the last complete checkpoint, commits (again) what it names, and aborts all other output.
4. Output is aborted only when no job can start from a checkpoint that names it: a failed or late checkpoint may be on
   storage nevertheless.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum

from millstream.checkpoint.manifest import SHARED, Manifest, Origin
from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.snapshot import Snapshot, pack, unpack
from millstream.common.aliases import Value
from millstream.jobmaster.machine.instructions import (
    CommitOutput,
    ConfirmSources,
    DeleteOrigin,
    DeleteState,
    DiscardCheckpoints,
    Instruction,
    SweepState,
    WriteManifest,
)

_HISTORY_SIZE = 10

Committables = list[tuple[int, Value]]


class CheckpointStatus(Enum):
    """Status of a checkpoint."""

    PENDING = "pending"
    WRITING = "writing"
    COMPLETED = "completed"
    NOTIFIED = "notified"
    FAILED = "failed"


@dataclass
class Checkpoint:
    """One checkpoint. Times are in seconds of the job's clock."""

    id: int
    triggered_at: float
    status: CheckpointStatus = CheckpointStatus.PENDING
    snapshot: Snapshot | None = None
    acknowledged_at: float | None = None
    completed_at: float | None = None
    # The end of the staged output it names.
    staged: int = 0
    # Bytes of state written since the previous checkpoint.
    state_bytes: int = 0
    reason: str = ""
    # The processed positions; where input is pending, they are before the assigned positions.
    processed: dict[str, bytes] = field(default_factory=dict)
    # Its location, once it is complete.
    location: str | None = None

    @property
    def is_complete(self) -> bool:
        return self.status in (CheckpointStatus.COMPLETED, CheckpointStatus.NOTIFIED)

    @property
    def taken_snapshot(self) -> Snapshot:
        """The snapshot of an acknowledged checkpoint."""
        assert self.snapshot is not None
        return self.snapshot


@dataclass
class _Staged:
    """Staged output that is not known to be committed, oldest first."""

    entries: list[tuple[str, int, Value]] = field(default_factory=list)
    # Number of committed entries before these.
    dropped: int = 0

    @property
    def end(self) -> int:
        return self.dropped + len(self.entries)

    def drop_until(self, end: int) -> None:
        count = max(end - self.dropped, 0)
        del self.entries[:count]
        self.dropped += count

    def by_operator(self, unfinished: dict[str, Committables]) -> dict[str, bytes]:
        """Return the output that a manifest names: unfinished output, then staged output."""
        result = {operator: list(committables) for operator, committables in unfinished.items()}
        for operator, subtask, committable in self.entries:
            result.setdefault(operator, []).append((subtask, committable))
        return {operator: pack(staged) for operator, staged in result.items()}


def _restored(manifest: Manifest, now: float) -> Checkpoint:
    return Checkpoint(manifest.id, now, snapshot=manifest.snapshot)


class CheckpointCoordinator:
    """The checkpoints of one job."""

    def __init__(self, options: CheckpointOptions, now: float, origin: Origin | None = None) -> None:
        """Create the coordinator of a job.

        Args:
            options: the checkpoint settings.
            now: the time.
            origin: the checkpoint or savepoint the job starts from.
        """
        self._options = options
        # The origin belongs to another job: it can be restored, but is never discarded here.
        self._restored = None if origin is None else _restored(origin.manifest, now)
        # The job deletes a claimed origin as soon as it has a newer checkpoint.
        self._claimed = origin if origin is not None and origin.claimed else None
        # Whether there may be checkpoints of earlier drivers.
        self._has_former = True
        self._next_id = 1 if origin is None else origin.manifest.id + 1
        # The timestamp of the last manifest, in milliseconds.
        self._timestamp = 0 if origin is None else origin.manifest.timestamp
        self._pending: dict[int, Checkpoint] = {}
        # Complete checkpoints, oldest first; those beyond the retained number are discarded.
        self._completed: list[Checkpoint] = []
        # Checkpoints whose manifest is being written, including aborted ones.
        self._writing: set[int] = set()
        # Checkpoints whose manifest may be on storage: from the start of the write until it is deleted.
        self._stored: dict[int, Checkpoint] = {}
        # State files of acknowledged epochs that are not deleted yet.
        self._files: set[str] = set()
        self._staged = _Staged()
        self._unfinished: dict[str, Committables] = {}
        self._last_trigger = now
        self._last_end = -math.inf
        self._failures_in_a_row = 0
        self.triggered = self.failed_count = self.completed_count = 0
        # The last checkpoints in any status, oldest first.
        self.history: deque[Checkpoint] = deque(maxlen=_HISTORY_SIZE)

    # --- triggers

    def next_due(self) -> float:
        """Return when the next checkpoint is due."""
        if not self._options.enabled or len(self._pending) >= self._options.max_concurrent:
            return math.inf
        return max(self._last_trigger + self._options.interval, self._last_end + self._options.min_pause)

    def next_expiry(self) -> float:
        """Return when the first pending checkpoint times out."""
        return min((c.triggered_at + self._options.timeout for c in self._pending.values()), default=math.inf)

    def timeout(self, now: float) -> float:
        """Return the seconds an epoch that begins now may run before too many checkpoints expire.

        Without a pending checkpoint, the next one would be triggered while the epoch runs.
        """
        options = self._options
        if not options.enabled:
            return math.inf
        begun = [c.triggered_at for c in self._pending.values() if c.status is CheckpointStatus.PENDING]
        first = min(begun, default=max(now, self._last_trigger + options.interval))
        tolerated = max(0, options.tolerable_failures - self._failures_in_a_row)
        return first - now + options.timeout + tolerated * max(options.interval, options.timeout)

    def trigger(self, now: float) -> Checkpoint:
        """Trigger a checkpoint: it is taken with the epoch that starts now."""
        checkpoint = Checkpoint(self._next_id, now)
        self._next_id += 1
        self._last_trigger = now
        self._pending[checkpoint.id] = checkpoint
        self.history.append(checkpoint)
        self.triggered += 1
        return checkpoint

    # --- output

    def stage(self, operator: str, subtask: int, committable: Value) -> None:
        """Stage output of an acknowledged epoch."""
        self._staged.entries.append((operator, subtask, committable))

    def set_unfinished_output(self, unfinished: dict[str, Committables]) -> None:
        """Set the committed output that is not final, by operator: checkpoints name it until it is."""
        self._unfinished = unfinished

    def has_staged(self) -> bool:
        """Return whether there is output that no complete checkpoint names."""
        return bool(self._staged.entries)

    # --- the life of a checkpoint

    def acknowledge(
        self,
        checkpoint_id: int,
        snapshot: Snapshot,
        now: float,
        state_bytes: int = 0,
        processed: dict[str, bytes] | None = None,
    ) -> list[Instruction]:
        """Acknowledge a checkpoint with its snapshot: its epoch has ended in all subtasks."""
        checkpoint = self._pending.get(checkpoint_id)
        if checkpoint is None or checkpoint.status is not CheckpointStatus.PENDING:
            return []
        snapshot.committables = self._staged.by_operator(self._unfinished)
        checkpoint.snapshot = snapshot
        checkpoint.staged = self._staged.end
        checkpoint.acknowledged_at = now
        checkpoint.state_bytes = state_bytes
        checkpoint.processed = snapshot.sources if processed is None else processed
        checkpoint.status = CheckpointStatus.WRITING
        self._writing.add(checkpoint.id)
        self._stored[checkpoint.id] = checkpoint
        # The newest checkpoint is found by timestamp, and the clock may have been set back.
        self._timestamp = max(int(now * 1000), self._timestamp + 1)
        manifest = Manifest("checkpoint", checkpoint.id, self._timestamp, snapshot, f"../{SHARED}")
        return [WriteManifest(manifest=manifest)]

    @property
    def is_writing(self) -> bool:
        """Whether a manifest is or may be being written."""
        return bool(self._writing)

    def delayed(self, checkpoint: Checkpoint, now: float) -> None:
        """Restart the timeout of a checkpoint: its epoch had no slots until now."""
        if checkpoint.id in self._pending:
            checkpoint.triggered_at = now

    def written(self, checkpoint_id: int, location: str, now: float) -> list[Instruction]:
        """Complete a checkpoint whose manifest is written, unless it was aborted meanwhile."""
        self._writing.discard(checkpoint_id)
        checkpoint = self._pending.pop(checkpoint_id, None)
        if checkpoint is None:
            return self.clean_up()
        checkpoint.status, checkpoint.completed_at = CheckpointStatus.COMPLETED, now
        checkpoint.location = location
        self._last_end = now
        self._failures_in_a_row = 0
        self.completed_count += 1
        self._completed.append(checkpoint)
        # Older pending checkpoints are obsolete.
        for older in [c for c in self._pending.values() if c.id < checkpoint.id]:
            self._fail(older, now, f"checkpoint {checkpoint.id} completed first")
        staged = {operator: unpack(packed) for operator, packed in checkpoint.taken_snapshot.committables.items()}
        return [CommitOutput(staged=staged, checkpoint=checkpoint.id)]

    def committed(self, checkpoint_id: int) -> list[Instruction]:
        """Record that the output of a checkpoint is committed."""
        checkpoint = next((c for c in self._completed if c.id == checkpoint_id), None)
        if checkpoint is None:
            return []
        checkpoint.status = CheckpointStatus.NOTIFIED
        self._staged.drop_until(checkpoint.staged)
        del self._completed[: -self._options.retained]
        dropped = self.drop_origin() if len(self._completed) >= self._options.retained else []
        return [ConfirmSources(positions=checkpoint.processed), *dropped, *self.clean_up()]

    def lost(self, checkpoint_id: int, reason: str, now: float) -> str | None:
        """Fail a checkpoint whose manifest could not be written; return the reason if the job must fail."""
        self._writing.discard(checkpoint_id)
        checkpoint = self._pending.get(checkpoint_id)
        return None if checkpoint is None else self._decline(checkpoint, reason, now)

    def expire(self, now: float) -> str | None:
        """Abort expired checkpoints; return the reason if the job must fail."""
        reason = None
        for checkpoint in [c for c in self._pending.values() if now >= c.triggered_at + self._options.timeout]:
            text = f"it took longer than execution.checkpointing.timeout, {self._options.timeout:g} s"
            reason = self._decline(checkpoint, text, now) or reason
        return reason

    def _decline(self, checkpoint: Checkpoint, reason: str, now: float) -> str | None:
        self._fail(checkpoint, now, reason)
        self._failures_in_a_row += 1
        if self._failures_in_a_row > self._options.tolerable_failures:
            return f"Checkpoint {checkpoint.id} failed ({reason}), and no more failures are tolerated."
        return None

    def _fail(self, checkpoint: Checkpoint, now: float, reason: str) -> None:
        del self._pending[checkpoint.id]
        checkpoint.status, checkpoint.reason = CheckpointStatus.FAILED, reason
        self._last_end = now
        self.failed_count += 1

    @property
    def in_progress(self) -> int:
        """The number of pending checkpoints."""
        return len(self._pending)

    # --- files on storage

    def wrote(self, names: Iterable[str]) -> None:
        """Record state files written by an acknowledged epoch."""
        self._files.update(names)

    def clean_up(self) -> list[Instruction]:
        """Delete superseded and aborted checkpoints, except those being written."""
        retained = {c.id for c in (*self._completed, *self._pending.values())} | self._writing
        old = frozenset(self._stored.keys() - retained)
        return [DiscardCheckpoints(checkpoints=old)] if old else []

    def discarded(self, checkpoints: Collection[int]) -> None:
        """Record deleted checkpoints."""
        for number in checkpoints:
            checkpoint = self._stored.pop(number, None)
            if checkpoint is not None:
                # The history keeps it without its contents.
                checkpoint.snapshot = checkpoint.location = None

    def delete_unneeded(self, live: set[str]) -> list[Instruction]:
        """Delete state files that neither the job (`live`) nor a checkpoint needs."""
        unneeded = frozenset(self._files - self.needed(live))
        self._files -= unneeded
        return [DeleteState(names=unneeded)] if unneeded else []

    def sweep(self, live: set[str]) -> list[Instruction]:
        """Delete all state files that nothing needs, including those of failed epochs."""
        needed = self.needed(live)
        self._files &= needed
        return [SweepState(needed=needed)]

    def needed(self, live: set[str]) -> frozenset[str]:
        """Return the state files that the job or a checkpoint needs."""
        return frozenset(live | self.stored_files())

    def stored_files(self) -> set[str]:
        """Return the state files of checkpoints that a new driver could start from."""
        return {name for checkpoint in self._stored.values() for name in checkpoint.taken_snapshot.files()}

    def drop_origin(self) -> list[Instruction]:
        """Delete the checkpoints of earlier drivers, as far as the job owns them: it has newer ones."""
        return [DeleteOrigin(origin=self._claimed)] if self._has_former else []

    def origin_deleted(self) -> None:
        """Record that the origin and all checkpoints before it are deleted."""
        self._has_former = False
        if self._claimed is not None:
            self._claimed = self._restored = None

    # --- failure

    def failed(self, now: float, operators: Collection[str] | None = None) -> Checkpoint | None:
        """Abort pending checkpoints after a failure; return the checkpoint to roll back to, None for the beginning.

        No manifest may be being written.

        Args:
            now: the time.
            operators: the operators that roll back, if only a part of the job does.
        """
        for checkpoint in list(self._pending.values()):
            self._fail(checkpoint, now, "the job has failed")
        if operators is None:
            self._staged.drop_until(self._staged.end)
        else:
            self._staged.entries = [e for e in self._staged.entries if e[0] not in operators]
            self._staged.dropped = 0
            # The remaining entries no longer match older counts.
            for checkpoint in self._completed:
                checkpoint.staged = 0
        self._last_trigger = now
        return self.latest()

    def latest(self) -> Checkpoint | None:
        """Return the last complete checkpoint."""
        return self._completed[-1] if self._completed else self._restored

    def has_before(self, checkpoint: Checkpoint) -> bool:
        """Return whether there is an earlier checkpoint to roll back to."""
        if checkpoint is self._restored:
            return False
        return self._restored is not None or any(c.id < checkpoint.id for c in self._completed)

    def give_up(self, checkpoint: Checkpoint) -> Checkpoint:
        """Drop an unreadable checkpoint and return the one before it."""
        self._completed = [c for c in self._completed if c.id < checkpoint.id]
        before = self.latest()
        assert before is not None
        return before

    def retained(self) -> list[Checkpoint]:
        """Return the retained checkpoints."""
        return list(self._completed)

    def retained_ids(self) -> frozenset[int]:
        """Return the ids of the retained checkpoints."""
        return frozenset(c.id for c in self._completed)

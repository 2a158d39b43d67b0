"""The checkpoint coordinator: when checkpoints are taken, when output counts, and what a restart goes back to.

The part of the job machine that knows checkpoints. Pure: no clock, no file, no thread; what is to be done comes back as
instructions.

    trigger -> PENDING -- acknowledge --> WRITING -- written --> COMPLETED -- committed --> NOTIFIED
                  |                          |
                  '------ lost, expire ------'--> FAILED

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
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millstream.checkpoint.manifest import SHARED, Manifest, Origin
from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.snapshot import Snapshot, pack, unpack
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

_REMEMBERED = 10

Committables = list[tuple[int, Any]]


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
    # How far sources were processed: not to the end of what was dealt out where that is not read.
    processed: dict[str, bytes] = field(default_factory=dict)
    # Where it is, once it is complete.
    location: str | None = None

    @property
    def is_complete(self) -> bool:
        return self.status in (CheckpointStatus.COMPLETED, CheckpointStatus.NOTIFIED)

    @property
    def cut(self) -> Snapshot:
        assert self.snapshot is not None
        return self.snapshot


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

    def by_operator(self, waiting: dict[str, Committables]) -> dict[str, bytes]:
        """Return what a manifest names: this, behind what has waited since before."""
        found = {operator: list(committables) for operator, committables in waiting.items()}
        for operator, subtask, committable in self.entries:
            found.setdefault(operator, []).append((subtask, committable))
        return {operator: pack(staged) for operator, staged in found.items()}


def _restored(manifest: Manifest, now: float) -> Checkpoint:
    return Checkpoint(manifest.id, now, snapshot=manifest.snapshot)


class CheckpointCoordinator:
    """The checkpoints of one job."""

    def __init__(self, options: CheckpointOptions, now: float, origin: Origin | None = None) -> None:
        """Start.

        Args:
            options: how checkpoints are to be taken.
            now: the time.
            origin: the checkpoint or savepoint the job goes on from.
        """
        self._options = options
        # What the job began with belongs to another job: it is gone back to, but never discarded here.
        self._restored = None if origin is None else _restored(origin.manifest, now)
        # It is the job's to delete, as soon as there is something newer.
        self._claimed = origin if origin is not None and origin.claimed else None
        # Whether there may be checkpoints of earlier drivers.
        self._has_former = True
        self._next_id = 1 if origin is None else origin.manifest.id + 1
        # When the last manifest was written, in milliseconds.
        self._timestamp = 0 if origin is None else origin.manifest.timestamp
        self._pending: dict[int, Checkpoint] = {}
        # Complete, oldest first; what comes before the retained ones is discarded.
        self._completed: list[Checkpoint] = []
        # The checkpoints whose manifest is being written, also those that were given up.
        self._writing: set[int] = set()
        # Those whose manifest may be on storage: from when it is begun to be written until it is deleted.
        self._stored: dict[int, Checkpoint] = {}
        # State files that acknowledged epochs have written and that were not deleted yet.
        self._files: set[str] = set()
        self._staged = _Staged()
        self._waiting: dict[str, Committables] = {}
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

    def next_expiry(self) -> float:
        """Return when the first of the checkpoints that are under way has taken too long."""
        return min((c.triggered_at + self._options.timeout for c in self._pending.values()), default=math.inf)

    def patience(self, now: float) -> float:
        """Return for how long an epoch that begins now may take: then more checkpoints have expired than may.

        Where it is not a checkpoint's, the next one would be triggered while it runs.
        """
        options = self._options
        if not options.enabled:
            return math.inf
        begun = [c.triggered_at for c in self._pending.values() if c.status is CheckpointStatus.PENDING]
        first = min(begun, default=max(now, self._last_trigger + options.interval))
        tolerated = max(0, options.tolerable_failures - self._failures_in_a_row)
        return first - now + options.timeout + tolerated * max(options.interval, options.timeout)

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

    def output_waits(self, waiting: dict[str, Committables]) -> None:
        """Know what was committed and is not done with, by operator: checkpoints name it until it is."""
        self._waiting = waiting

    def has_staged(self) -> bool:
        """Tell whether there is output that no complete checkpoint names."""
        return bool(self._staged.entries)

    # --- what happens to a checkpoint

    def acknowledge(
        self,
        checkpoint_id: int,
        snapshot: Snapshot,
        now: float,
        state_bytes: int = 0,
        processed: dict[str, bytes] | None = None,
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
        checkpoint.processed = snapshot.sources if processed is None else processed
        checkpoint.status = CheckpointStatus.WRITING
        self._writing.add(checkpoint.id)
        self._stored[checkpoint.id] = checkpoint
        # By their times the newest is found, and somebody may have put the clock back.
        self._timestamp = max(int(now * 1000), self._timestamp + 1)
        manifest = Manifest("checkpoint", checkpoint.id, self._timestamp, snapshot, f"../{SHARED}")
        return [WriteManifest(manifest=manifest)]

    @property
    def is_writing(self) -> bool:
        """Whether a manifest is being written, or may be."""
        return bool(self._writing)

    def delayed(self, checkpoint: Checkpoint, now: float) -> None:
        """The time until now was not the checkpoint's: there were no slots yet."""
        if checkpoint.id in self._pending:
            checkpoint.triggered_at = now

    def written(self, checkpoint_id: int, location: str, now: float) -> list[Instruction]:
        """The manifest is safely written: the checkpoint is complete, unless it was given up meanwhile."""
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
        # One that was triggered before and is not complete yet has nothing to add.
        for older in [c for c in self._pending.values() if c.id < checkpoint.id]:
            self._fail(older, now, f"checkpoint {checkpoint.id} came first")
        staged = {operator: unpack(packed) for operator, packed in checkpoint.cut.committables.items()}
        return [CommitOutput(staged=staged, checkpoint=checkpoint.id)]

    def committed(self, checkpoint_id: int) -> list[Instruction]:
        """The output that a checkpoint names has been committed."""
        checkpoint = next((c for c in self._completed if c.id == checkpoint_id), None)
        if checkpoint is None:
            return []
        checkpoint.status = CheckpointStatus.NOTIFIED
        self._staged.drop_until(checkpoint.staged)
        del self._completed[: -self._options.retained]
        dropped = self.drop_origin() if len(self._completed) >= self._options.retained else []
        return [ConfirmSources(positions=checkpoint.processed), *dropped, *self.clean_up()]

    def lost(self, checkpoint_id: int, reason: str, now: float) -> str | None:
        """The manifest could not be written; return why the job must fail, if it must."""
        self._writing.discard(checkpoint_id)
        checkpoint = self._pending.get(checkpoint_id)
        return None if checkpoint is None else self._decline(checkpoint, reason, now)

    def expire(self, now: float) -> str | None:
        """Give up checkpoints that take too long; return why the job must fail, if it must."""
        why = None
        for checkpoint in [c for c in self._pending.values() if now >= c.triggered_at + self._options.timeout]:
            text = f"it took longer than execution.checkpointing.timeout, {self._options.timeout:g} s"
            why = self._decline(checkpoint, text, now) or why
        return why

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
        """How many checkpoints are under way."""
        return len(self._pending)

    # --- what is on storage

    def wrote(self, names: Iterable[str]) -> None:
        """An acknowledged epoch has written state files."""
        self._files.update(names)

    def clean_up(self) -> list[Instruction]:
        """Delete the checkpoints that have been superseded or given up, but none that is still being written."""
        kept = {c.id for c in (*self._completed, *self._pending.values())} | self._writing
        old = frozenset(self._stored.keys() - kept)
        return [DiscardCheckpoints(checkpoints=old)] if old else []

    def discarded(self, checkpoints: Collection[int]) -> None:
        """Checkpoints have been deleted."""
        for number in checkpoints:
            checkpoint = self._stored.pop(number, None)
            if checkpoint is not None:
                # It is remembered for a while, but not what was in it.
                checkpoint.snapshot = checkpoint.location = None

    def delete_unneeded(self, live: set[str]) -> list[Instruction]:
        """Delete the state files that neither the job needs, which says which are live, nor a checkpoint."""
        unneeded = frozenset(self._files - self.needed(live))
        self._files -= unneeded
        return [DeleteState(names=unneeded)] if unneeded else []

    def sweep(self, live: set[str]) -> list[Instruction]:
        """Delete whatever state files nobody needs, also those of epochs that failed."""
        needed = self.needed(live)
        self._files &= needed
        return [SweepState(needed=needed)]

    def needed(self, live: set[str]) -> frozenset[str]:
        """Return the state files that the job needs, or a checkpoint."""
        return frozenset(live | self.stored_files())

    def stored_files(self) -> set[str]:
        """Return the state files of the checkpoints that a new driver could start from."""
        return {name for checkpoint in self._stored.values() for name in checkpoint.cut.files()}

    def drop_origin(self) -> list[Instruction]:
        """There are newer places to go back to than what earlier drivers have left, as far as that is the job's."""
        return [DeleteOrigin(origin=self._claimed)] if self._has_former else []

    def origin_deleted(self) -> None:
        """What the job has started from is gone, and all that was before."""
        self._has_former = False
        if self._claimed is not None:
            self._claimed = self._restored = None

    # --- failure

    def failed(self, now: float, operators: Collection[str] | None = None) -> Checkpoint | None:
        """The job has failed, or ends before its time: return what counts of it, None for its beginning.

        Manifests that were being written must have been answered for before.

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
        return self.latest()

    def latest(self) -> Checkpoint | None:
        """Return the last complete checkpoint."""
        return self._completed[-1] if self._completed else self._restored

    def has_before(self, checkpoint: Checkpoint) -> bool:
        """Tell whether there is an earlier place to go back to than a checkpoint."""
        if checkpoint is self._restored:
            return False
        return self._restored is not None or any(c.id < checkpoint.id for c in self._completed)

    def give_up(self, checkpoint: Checkpoint) -> Checkpoint:
        """A checkpoint cannot be read: return the one before it."""
        self._completed = [c for c in self._completed if c.id < checkpoint.id]
        before = self.latest()
        assert before is not None
        return before

    def retained(self) -> list[Checkpoint]:
        """Return the complete checkpoints that are kept."""
        return list(self._completed)

    def kept(self) -> frozenset[int]:
        """Return the numbers of the complete checkpoints that are kept."""
        return frozenset(c.id for c in self._completed)

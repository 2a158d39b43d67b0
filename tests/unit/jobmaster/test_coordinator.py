"""The checkpoint coordinator: triggers, decisions, and the checkpoint to restore."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from millstream.checkpoint.manifest import Manifest, Origin
from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.snapshot import Snapshot, SubtaskSnapshot, VertexSnapshot, unpack
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine.coordinator import Checkpoint, CheckpointCoordinator, CheckpointStatus

OPTIONS = CheckpointOptions(enabled=True, interval=10.0, timeout=60.0)


def snapshot_of(epoch: int = 1) -> Snapshot:
    return Snapshot("job", "name", epoch)


def complete(coordinator: CheckpointCoordinator, now: float) -> Checkpoint:
    """Complete a checkpoint without failures."""
    checkpoint = coordinator.trigger(now)
    [write] = coordinator.acknowledge(checkpoint.id, snapshot_of(), now)
    assert isinstance(write, i.WriteManifest) and write.manifest.id == checkpoint.id
    [commit] = coordinator.written(checkpoint.id, "there", now)
    assert commit == i.CommitOutput(staged=staged(checkpoint), checkpoint=checkpoint.id)
    confirm_discards(coordinator, coordinator.committed(checkpoint.id))
    return checkpoint


def confirm_discards(coordinator: CheckpointCoordinator, instructions: list[i.Instruction]) -> None:
    for instruction in instructions:
        if isinstance(instruction, i.DiscardCheckpoints):
            coordinator.discarded(instruction.checkpoints)


def staged(checkpoint: Checkpoint) -> dict[str, Any]:
    return {operator: unpack(data) for operator, data in checkpoint.taken_snapshot.committables.items()}


def test_coordinator_interval_counts_between_triggers() -> None:
    coordinator = CheckpointCoordinator(OPTIONS, now=100.0)
    assert coordinator.next_due() == 110.0
    complete(coordinator, 111.0)
    assert coordinator.next_due() == 121.0


def test_coordinator_never_triggers_when_disabled() -> None:
    assert CheckpointCoordinator(CheckpointOptions(), 0.0).next_due() == math.inf


def test_coordinator_min_pause_counts_from_the_last_completion() -> None:
    coordinator = CheckpointCoordinator(replace(OPTIONS, min_pause=8.0), 0.0)
    checkpoint = coordinator.trigger(10.0)
    coordinator.acknowledge(checkpoint.id, snapshot_of(), 11.0)
    coordinator.written(checkpoint.id, "there", 17.0)
    assert coordinator.next_due() == 25.0


def test_coordinator_limits_concurrent_checkpoints() -> None:
    for max_concurrent in (1, 2):
        coordinator = CheckpointCoordinator(replace(OPTIONS, max_concurrent=max_concurrent), 0.0)
        for _ in range(max_concurrent):
            assert coordinator.next_due() < math.inf
            coordinator.trigger(10.0)
        assert coordinator.next_due() == math.inf


def test_coordinator_staged_output_stays_in_checkpoints_until_committed() -> None:
    coordinator = CheckpointCoordinator(OPTIONS, 0.0)
    coordinator.stage("sink", 0, "a")
    first = coordinator.trigger(1.0)
    coordinator.acknowledge(first.id, snapshot_of(), 1.0)
    coordinator.stage("sink", 1, "b")
    assert staged(first) == {"sink": [(0, "a")]}
    # The write failed: its output goes into the next checkpoint.
    coordinator.lost(first.id, "the disk is full", 2.0)
    second = coordinator.trigger(3.0)
    coordinator.acknowledge(second.id, snapshot_of(), 3.0)
    assert staged(second) == {"sink": [(0, "a"), (1, "b")]}
    coordinator.stage("sink", 0, "c")
    # Written, but not yet known to be committed.
    coordinator.written(second.id, "there", 3.0)
    third = coordinator.trigger(4.0)
    coordinator.acknowledge(third.id, snapshot_of(), 4.0)
    assert staged(third) == {"sink": [(0, "a"), (1, "b"), (0, "c")]}
    coordinator.committed(second.id)
    coordinator.written(third.id, "there", 4.0)
    coordinator.committed(third.id)
    assert not coordinator.has_staged()


def test_coordinator_pending_output_stays_in_every_checkpoint() -> None:
    coordinator = CheckpointCoordinator(OPTIONS, 0.0)
    coordinator.set_unfinished_output({"sink": [(0, "a")]})
    # It is no reason to take another checkpoint at the end of a job.
    assert not coordinator.has_staged()
    coordinator.stage("sink", 1, "b")
    assert staged(complete(coordinator, 1.0)) == {"sink": [(0, "a"), (1, "b")]}
    assert staged(complete(coordinator, 2.0)) == {"sink": [(0, "a")]}
    coordinator.set_unfinished_output({})
    assert staged(complete(coordinator, 3.0)) == {}


def test_coordinator_tolerates_consecutive_failures() -> None:
    coordinator = CheckpointCoordinator(replace(OPTIONS, tolerable_failures=1), 0.0)
    for fails in (False, True):
        checkpoint = coordinator.trigger(1.0)
        coordinator.acknowledge(checkpoint.id, snapshot_of(), 1.0)
        reason = coordinator.lost(checkpoint.id, "no", 1.0)
        assert (reason is not None) == fails
    complete(coordinator, 2.0)
    checkpoint = coordinator.trigger(3.0)
    assert coordinator.lost(checkpoint.id, "no", 3.0) is None


def test_coordinator_aborts_on_timeout_and_ignores_the_late_answer() -> None:
    coordinator = CheckpointCoordinator(replace(OPTIONS, tolerable_failures=5), 0.0)
    checkpoint = coordinator.trigger(0.0)
    coordinator.acknowledge(checkpoint.id, snapshot_of(), 1.0)
    assert coordinator.next_expiry() == 60.0
    coordinator.expire(59.0)
    assert coordinator.in_progress == 1
    coordinator.expire(60.0)
    assert checkpoint.status is CheckpointStatus.FAILED and "timeout" in checkpoint.reason
    # The checkpoint cannot be restored, but its write may still complete: it is deleted only after that.
    assert coordinator.clean_up() == []
    assert coordinator.written(checkpoint.id, "there", 61.0) == [i.DiscardCheckpoints(checkpoints=frozenset({1}))]
    assert coordinator.latest() is None


def test_coordinator_aborts_a_subsumed_checkpoint() -> None:
    coordinator = CheckpointCoordinator(replace(OPTIONS, max_concurrent=2), 0.0)
    first, second = coordinator.trigger(0.0), coordinator.trigger(1.0)
    for checkpoint in (first, second):
        coordinator.acknowledge(checkpoint.id, snapshot_of(), 2.0)
    coordinator.written(second.id, "there", 3.0)
    assert first.status is CheckpointStatus.FAILED
    assert coordinator.written(first.id, "there", 4.0) == [i.DiscardCheckpoints(checkpoints=frozenset({first.id}))]
    assert coordinator.latest() is second


def test_coordinator_discards_checkpoints_beyond_retention() -> None:
    coordinator = CheckpointCoordinator(replace(OPTIONS, retained=2), 0.0)
    first, second = complete(coordinator, 1.0), complete(coordinator, 2.0)
    third = coordinator.trigger(3.0)
    coordinator.acknowledge(third.id, snapshot_of(), 3.0)
    coordinator.written(third.id, "there", 3.0)
    confirm, _, discard = coordinator.committed(third.id)
    assert isinstance(confirm, i.ConfirmSources)
    assert discard == i.DiscardCheckpoints(checkpoints=frozenset({first.id}))
    assert coordinator.retained() == [second, third]


def test_coordinator_failure_rolls_back_to_the_last_complete_checkpoint() -> None:
    coordinator = CheckpointCoordinator(OPTIONS, 0.0)
    assert coordinator.failed(1.0) is None
    done = complete(coordinator, 2.0)
    coordinator.stage("sink", 0, "lost")
    pending = coordinator.trigger(3.0)
    assert coordinator.failed(4.0) is done
    assert pending.status is CheckpointStatus.FAILED
    # Output staged since then belongs to no checkpoint.
    assert not coordinator.has_staged()
    # The next one is due after a full interval, as after a start.
    assert coordinator.next_due() == 14.0


def test_coordinator_regional_failure_drops_only_output_of_that_region() -> None:
    coordinator = CheckpointCoordinator(OPTIONS, 0.0)
    complete(coordinator, 1.0)
    coordinator.stage("back", 0, "x")
    coordinator.stage("on", 0, "y")
    coordinator.failed(2.0, {"back"})
    checkpoint = coordinator.trigger(3.0)
    coordinator.acknowledge(checkpoint.id, snapshot_of(), 3.0)
    assert staged(checkpoint) == {"on": [(0, "y")]}


def test_coordinator_starts_from_a_checkpoint_of_another_job() -> None:
    origin = Origin(Manifest("checkpoint", 41, 7_000_000, snapshot_of(), ""), "there", "there/shared", claimed=True)
    coordinator = CheckpointCoordinator(OPTIONS, 0.0, origin)
    began = coordinator.failed(1.0)
    assert began is not None and began.taken_snapshot is origin.manifest.snapshot
    checkpoint = coordinator.trigger(2.0)
    [write] = coordinator.acknowledge(checkpoint.id, snapshot_of(), 2.0)
    # Its number and timestamp follow those of the other job, regardless of the clock.
    assert isinstance(write, i.WriteManifest)
    assert (write.manifest.id, write.manifest.timestamp) == (42, 7_000_001)
    coordinator.written(checkpoint.id, "here", 2.0)
    # The claimed checkpoint is deleted after a newer one completes; the deletion is retried until it succeeds.
    assert i.DeleteOrigin(origin=origin) in coordinator.committed(checkpoint.id)
    assert coordinator.drop_origin() == [i.DeleteOrigin(origin=origin)]
    # The newer one cannot be read: the job falls back to the one before, then to the beginning.
    assert coordinator.give_up(checkpoint) is began
    coordinator.origin_deleted()
    assert coordinator.drop_origin() == []
    assert coordinator.latest() is None


def test_coordinator_deletes_unreferenced_state_files() -> None:
    coordinator = CheckpointCoordinator(OPTIONS, 0.0)
    coordinator.wrote(["1.base", "2.delta", "3.base"])
    checkpoint = coordinator.trigger(1.0)
    snapshot = snapshot_of()
    snapshot.vertices["v"] = VertexSnapshot([], 128, [SubtaskSnapshot({"s": ["1.base", "2.delta"]})], False)
    coordinator.acknowledge(checkpoint.id, snapshot, 1.0)
    # The job has written its third file; the checkpoint's write may still complete.
    assert coordinator.delete_unneeded({"3.base"}) == []
    coordinator.lost(checkpoint.id, "no", 2.0)
    [discard] = coordinator.clean_up()
    assert coordinator.delete_unneeded({"3.base"}) == []
    confirm_discards(coordinator, [discard])
    assert coordinator.delete_unneeded({"3.base"}) == [i.DeleteState(names=frozenset({"1.base", "2.delta"}))]
    assert coordinator.delete_unneeded({"3.base"}) == []


def test_coordinator_patience_lasts_until_too_many_checkpoints_expire() -> None:
    coordinator = CheckpointCoordinator(OPTIONS, now=0.0)
    # No checkpoint is in progress: the next is due at 10 and would expire at 70.
    assert coordinator.timeout(4.0) == 66.0
    coordinator.trigger(12.0)
    assert coordinator.timeout(12.0) == 60.0
    tolerant = CheckpointCoordinator(replace(OPTIONS, tolerable_failures=2), now=0.0)
    tolerant.trigger(12.0)
    assert tolerant.timeout(12.0) == 180.0
    assert CheckpointCoordinator(CheckpointOptions(), 0.0).timeout(1.0) == math.inf

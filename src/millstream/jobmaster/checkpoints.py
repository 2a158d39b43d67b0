"""Carries out what the checkpoint coordinator decides: writes manifests in the background, commits, cleans up."""

from __future__ import annotations

import logging
import pickle
import queue
import threading
from collections.abc import Callable
from typing import Any

from millstream.checkpoint.coordinator import (
    Checkpoint,
    Commit,
    Coordinator,
    Discard,
    FailJob,
    Instruction,
    WriteManifest,
)
from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.options import CheckpointOptions
from millstream.checkpoint.origin import Origin, delete_origin
from millstream.checkpoint.store import SHARED, CheckpointStore
from millstream.common.errors import JobExecutionError
from millstream.common.faults import fault_point
from millstream.jobmaster.execution import Execution
from millstream.jobmaster.output import Output

log = logging.getLogger("millstream")

# So long an epoch waits for a manifest: most are written by then, and their output counts at once.
_PATIENCE = 0.05


class Checkpoints:
    """The checkpoints of a running job. All methods are called from the job's thread."""

    def __init__(
        self,
        coordinator: Coordinator,
        options: CheckpointOptions,
        store: CheckpointStore,
        output: Output,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self.coordinator = coordinator
        self.options = options
        self.store = store
        self._output = output
        self._clock = clock
        # Called from other threads when there is something to `settle`.
        self._wake = wake
        self._results: queue.SimpleQueue[tuple[Checkpoint, str | None]] = queue.SimpleQueue()
        # Manifests that are being written, also of checkpoints that were given up.
        self._writing = 0
        self.locations: dict[int, str] = {}
        self.execution: Execution
        # The checkpoint the job has started from, when it is the job's to delete.
        self.claimed: Origin | None = None

    def taken(self, checkpoint: Checkpoint) -> None:
        """The epoch of a checkpoint has ended."""
        snapshot = self.execution.snapshot()
        written = self.execution.take_written()
        self._carry_out(self.coordinator.acknowledge(checkpoint.id, snapshot, self._clock(), written))
        self.settle(_PATIENCE)

    def settle(self, patience: float = 0.0) -> None:
        """Take note of manifests that were written meanwhile; wait for one no longer than `patience` says."""
        while self._writing:
            try:
                checkpoint, problem = self._results.get(timeout=patience) if patience else self._results.get_nowait()
            except queue.Empty:
                break
            self._writing -= 1
            now = self._clock()
            if not self.coordinator.is_pending(checkpoint.id):
                # It was given up, so nothing must go on from it.
                self.store.discard(checkpoint.id)
            elif problem is None:
                self._carry_out(self.coordinator.written(checkpoint.id, now))
            else:
                log.warning("checkpoint %d failed: %s", checkpoint.id, problem)
                self._carry_out(self.coordinator.write_failed(checkpoint.id, problem, now))
        self._carry_out(self.coordinator.expire(self._clock()))

    def settle_all(self) -> None:
        """Wait until no manifest is being written: what then is complete can be gone back to."""
        deadline = self._clock() + self.options.timeout
        while self._writing:
            if self._clock() > deadline:
                raise JobExecutionError(
                    f"Checkpoint storage at {self.store.storage.url} has not answered for {self.options.timeout:g} s."
                )
            self.settle(0.1)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, WriteManifest):
                self._writing += 1
                threading.Thread(target=self._write, args=(instruction.checkpoint,), daemon=True).start()
            elif isinstance(instruction, Commit):
                self._commit(instruction.checkpoint)
            elif isinstance(instruction, Discard):
                self._discard(instruction.checkpoints)
            elif isinstance(instruction, FailJob):
                raise JobExecutionError(instruction.reason)

    def _write(self, checkpoint: Checkpoint) -> None:
        """Write a manifest, on a thread of its own."""
        problem = None
        try:
            manifest = Manifest("checkpoint", checkpoint.id, int(self._clock() * 1000), checkpoint.cut, f"../{SHARED}")
            self.locations[checkpoint.id] = self.store.write(manifest)
        except Exception as e:
            problem = str(e) or repr(e)
        self._results.put((checkpoint, problem))
        self._wake()

    def _commit(self, checkpoint: Checkpoint) -> None:
        self._output.commit({i: pickle.loads(staged) for i, staged in checkpoint.cut.committables.items()})
        self.confirm_sources(checkpoint)
        self.drop_claimed()
        self._carry_out(self.coordinator.committed(checkpoint.id))

    def drop_claimed(self) -> None:
        """There is a newer place to go back to than what the job has started from."""
        if self.claimed is not None:
            delete_origin(self.claimed, self.store.options)
            self.claimed = None
            self.coordinator.forget_origin()

    def confirm_sources(self, checkpoint: Checkpoint) -> None:
        """Tell the sources what has been processed for good."""
        for vertex in self.execution.plan.vertices:
            state = checkpoint.cut.sources.get(vertex.head.id)
            if vertex.id in self.execution.sources and state is not None:
                self.execution.sources[vertex.id].committed(pickle.loads(state))

    def _discard(self, checkpoints: tuple[Checkpoint, ...]) -> None:
        fault_point("driver.before-clean-up")
        for checkpoint in checkpoints:
            self.store.discard(checkpoint.id)
            self.locations.pop(checkpoint.id, None)
            # It is remembered for a while, but not what was in it.
            checkpoint.snapshot = None
            fault_point("driver.in-clean-up")
        self.sweep()
        fault_point("driver.after-clean-up")

    def statistics(self) -> dict[str, Any]:
        """Return how many checkpoints there were, and what is known of the last ones."""
        coordinator = self.coordinator
        return {
            "counts": {
                "triggered": coordinator.triggered,
                "completed": coordinator.completed_count,
                "failed": coordinator.failed_count,
                "in_progress": len(coordinator.in_flight()),
            },
            "history": [self._described(c) for c in coordinator.history],
        }

    def _described(self, checkpoint: Checkpoint) -> dict[str, Any]:
        end = checkpoint.completed_at
        return {
            "id": checkpoint.id,
            "status": checkpoint.status.name,
            "trigger_timestamp": int(checkpoint.triggered_at * 1000),
            "end_to_end_duration_ms": None if end is None else (end - checkpoint.triggered_at) * 1000,
            "state_bytes": checkpoint.state_bytes,
            "location": self.locations.get(checkpoint.id),
            "failure": checkpoint.reason or None,
        }

    def sweep(self) -> None:
        """Delete state files that neither the job nor a checkpoint needs."""
        self.store.sweep(self.needed_files())

    def needed_files(self) -> set[str]:
        needed = self.execution.live_files()
        for checkpoint in (*self.coordinator.retained(), *self.coordinator.in_flight()):
            needed |= checkpoint.cut.files()
        return needed

"""Carries out what the checkpoint coordinator decides: writes manifests in the background, commits, cleans up."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
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
from millstream.checkpoint.snapshot import unpack
from millstream.checkpoint.store import SHARED, CheckpointStore
from millstream.common.errors import JobExecutionError
from millstream.common.faults import fault_point
from millstream.jobmaster.background import Background
from millstream.jobmaster.execution import Execution
from millstream.jobmaster.output import Output

log = logging.getLogger("millstream")

# So long an epoch waits for a manifest: most are written by then, and their output counts at once.
_PATIENCE = 0.05

# A manifest was written, or what went wrong.
Answer = tuple[Checkpoint, str | None]


class Checkpoints:
    """The checkpoints of a running job. All methods are called from the job's thread."""

    def __init__(
        self,
        coordinator: Coordinator,
        options: CheckpointOptions,
        store: CheckpointStore,
        output: Output,
        clock: Callable[[], float],
        background: Background[Answer],
    ) -> None:
        self.coordinator = coordinator
        self.options = options
        self.store = store
        self._output = output
        self._clock = clock
        self._background = background
        # The checkpoints whose manifest is being written, also those that were given up.
        self._writing: set[int] = set()
        # Those whose manifest may be on storage: from when it is begun to be written until it is deleted.
        self._stored: dict[int, Checkpoint] = {}
        self.locations: dict[int, str] = {}
        self.execution: Execution
        # The checkpoint the job has started from, when it is the job's to delete.
        self.claimed: Origin | None = None
        # When the last manifest was written, in milliseconds.
        self.timestamp = 0

    def taken(self, checkpoint: Checkpoint) -> None:
        """The epoch of a checkpoint has ended."""
        snapshot = self.execution.snapshot()
        written = self.execution.take_written()
        self._carry_out(self.coordinator.acknowledge(checkpoint.id, snapshot, self._clock(), written))
        self.settle(_PATIENCE)

    def settle(self, patience: float = 0.0) -> None:
        """Take note of manifests that were written meanwhile; wait for one no longer than `patience` says."""
        while self._writing:
            answer = self._background.next(patience)
            if answer is None:
                break
            checkpoint, problem = answer
            self._writing.discard(checkpoint.id)
            now = self._clock()
            if not self.coordinator.is_pending(checkpoint.id):
                # It was given up meanwhile.
                self.clean_up()
            elif problem is None:
                self._carry_out(self.coordinator.written(checkpoint.id, now))
            else:
                log.warning("checkpoint %d failed: %s", checkpoint.id, problem)
                instructions = self.coordinator.write_failed(checkpoint.id, problem, now)
                # It may be on storage in spite of what was said.
                self.clean_up()
                self._carry_out(instructions)
        self._carry_out(self.coordinator.expire(self._clock()))

    def settle_all(self, patience: float = math.inf) -> None:
        """Wait until no manifest is being written: what then is complete can be gone back to.

        Args:
            patience: for how many seconds at most; at most for as long as a checkpoint may take.
        """
        patience = min(patience, self.options.timeout)
        deadline = self._clock() + patience
        while self._writing:
            if self._clock() > deadline:
                raise JobExecutionError(
                    f"Checkpoint storage at {self.store.storage.url} has not answered for {patience:g} s."
                )
            self.settle(0.1)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, WriteManifest):
                self._writing.add(instruction.checkpoint.id)
                self._stored[instruction.checkpoint.id] = instruction.checkpoint
                # By their times the newest is found, and somebody may have put the clock back.
                self.timestamp = max(int(self._clock() * 1000), self.timestamp + 1)
                self._background.start(partial(self._write, instruction.checkpoint, self.timestamp))
            elif isinstance(instruction, Commit):
                self._commit(instruction.checkpoint)
            elif isinstance(instruction, Discard):
                fault_point("driver.before-clean-up")
                self.clean_up()
                self.sweep()
                fault_point("driver.after-clean-up")
            elif isinstance(instruction, FailJob):
                raise JobExecutionError(instruction.reason)

    def _write(self, checkpoint: Checkpoint, timestamp: int) -> Answer:
        """Write a manifest, in the background."""
        problem = None
        try:
            manifest = Manifest("checkpoint", checkpoint.id, timestamp, checkpoint.cut, f"../{SHARED}")
            self.locations[checkpoint.id] = self.store.write(manifest)
        except Exception as e:
            problem = str(e) or repr(e)
        return checkpoint, problem

    def _commit(self, checkpoint: Checkpoint) -> None:
        self._output.commit({i: unpack(staged) for i, staged in checkpoint.cut.committables.items()})
        self.coordinator.wait(self._output.waiting())
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
                self.execution.sources[vertex.id].committed(unpack(state))

    def clean_up(self) -> None:
        """Delete the checkpoints that have been superseded or given up, as far as that can be done now."""
        kept = self._writing | {c.id for c in (*self.coordinator.retained(), *self.coordinator.in_flight())}
        for checkpoint in [c for i, c in self._stored.items() if i not in kept]:
            try:
                self.store.discard(checkpoint.id)
            except Exception as e:
                log.warning("checkpoint %d could not be deleted yet: %s", checkpoint.id, e)
                continue
            del self._stored[checkpoint.id]
            self.locations.pop(checkpoint.id, None)
            # It is remembered for a while, but not what was in it.
            checkpoint.snapshot = None
            fault_point("driver.in-clean-up")

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
        return self.execution.live_files() | self.stored_files()

    def stored_files(self) -> set[str]:
        """Return the state files of the checkpoints that a new driver could start from."""
        return {name for checkpoint in self._stored.values() for name in checkpoint.cut.files()}

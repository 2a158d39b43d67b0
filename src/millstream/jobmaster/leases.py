"""Leases on checkpoints: the job does not delete a checkpoint while it is read."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from millstream.jobmaster.machine.view import CheckpointView


@dataclass(frozen=True)
class Lease:
    """A lease on a checkpoint.

    Attributes:
        id: identifies the lease.
        checkpoint: the id of the checkpoint.
        location: where it is stored.
        completed_at: when it completed, by the job's clock.
    """

    id: str
    checkpoint: int
    location: str
    completed_at: float


class CheckpointLeases:
    """The leases on a job's checkpoints. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # Checkpoint id and expiry, by lease id.
        self._leases: dict[str, tuple[int, float]] = {}

    def take(self, latest: Callable[[], CheckpointView | None], seconds: float = math.inf) -> Lease | None:
        """Lease the last complete checkpoint; return None if there is none.

        Args:
            latest: returns the last complete checkpoint. The view shows a newer checkpoint before the older one is
                deleted, so a checkpoint returned under the lock still exists.
            seconds: the duration of the lease.
        """
        with self._lock:
            checkpoint = latest()
            if checkpoint is None or checkpoint.location is None or checkpoint.completed_at is None:
                return None
            lease = Lease(uuid.uuid4().hex, checkpoint.id, checkpoint.location, checkpoint.completed_at)
            self._leases[lease.id] = (checkpoint.id, self._clock() + seconds)
            return lease

    def renew(self, lease: str, seconds: float) -> bool:
        """Extend a lease; return whether it was still held."""
        with self._lock:
            self._expire()
            if lease not in self._leases:
                return False
            self._leases[lease] = (self._leases[lease][0], self._clock() + seconds)
            return True

    def release(self, lease: str) -> None:
        """Release a lease, which may have expired."""
        with self._lock:
            self._leases.pop(lease, None)

    def held(self) -> frozenset[int]:
        """Return the ids of the leased checkpoints."""
        with self._lock:
            self._expire()
            return frozenset(checkpoint for checkpoint, _ in self._leases.values())

    def _expire(self) -> None:
        now = self._clock()
        self._leases = {k: v for k, v in self._leases.items() if v[1] > now}

"""Leases on checkpoints: while somebody reads one, the job does not delete it."""

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
    """A checkpoint that is read.

    Attributes:
        id: by which the lease is renewed and released.
        checkpoint: the number of the checkpoint.
        location: where it is.
        completed_at: when it was complete, by the job's clock.
    """

    id: str
    checkpoint: int
    location: str
    completed_at: float


class CheckpointLeases:
    """The leases on a job's checkpoints. Its methods may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # The number of the checkpoint and when the lease expires, by the lease's id.
        self._leases: dict[str, tuple[int, float]] = {}

    def take(self, latest: Callable[[], CheckpointView | None], seconds: float = math.inf) -> Lease | None:
        """Lease the last complete checkpoint; return None when there is none.

        Args:
            latest: returns the last complete checkpoint. A newer one is seen here before the older one is deleted, so
                that what is returned within the lock is not deleted yet.
            seconds: how long the lease lasts unless it is renewed.
        """
        with self._lock:
            found = latest()
            if found is None or found.location is None or found.completed_at is None:
                return None
            lease = Lease(uuid.uuid4().hex, found.id, found.location, found.completed_at)
            self._leases[lease.id] = (found.id, self._clock() + seconds)
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
        """End a lease, which may have expired."""
        with self._lock:
            self._leases.pop(lease, None)

    def held(self) -> frozenset[int]:
        """Return the numbers of the checkpoints that are leased."""
        with self._lock:
            self._expire()
            return frozenset(checkpoint for checkpoint, _ in self._leases.values())

    def _expire(self) -> None:
        now = self._clock()
        self._leases = {k: v for k, v in self._leases.items() if v[1] > now}

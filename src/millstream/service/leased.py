"""Holds a lease on the last complete checkpoint of a job that runs in another process, while this one reads it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from millstream.service.client import ServiceClient, ServiceError

# A lease is renewed so often while it lasts.
_RENEWALS = 4


@contextmanager
def leased_checkpoint(client: ServiceClient, job_id: str) -> Iterator[str]:
    """Return where the last complete checkpoint of a job is, which the job does not delete until the end of the block.

    Args:
        client: the service that has the job.
        job_id: the job.

    Raises:
        ServiceError: the job has no complete checkpoint, or has ended.
    """
    lease = client.ask(f"/jobs/{job_id}/state-leases", "POST", {})
    path, is_over = f"/jobs/{job_id}/state-leases/{lease['lease']}", threading.Event()

    def renew() -> None:
        # When the job has ended, its checkpoint is gone or stays, and reading it shows which.
        with suppress(ServiceError):
            while not is_over.wait(lease["seconds"] / _RENEWALS):
                client.ask(path, "PUT", {})

    threading.Thread(target=renew, name="millstream-lease", daemon=True).start()
    try:
        yield str(lease["location"])
    finally:
        is_over.set()
        # A lease that nobody releases expires.
        with suppress(ServiceError):
            client.ask(path, "DELETE")

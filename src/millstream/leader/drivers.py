"""Registry of job drivers with one job manager: each job has one driver at a time, and a dead driver is replaced.

A job's record, as with several job managers (`fence.py`), is in a cell beside its checkpoints:

    <dir>/_jobs/<digest of its name>    a job that starts from its latest checkpoint, of whichever driver
    <dir>/<job id>/_record              a job that was started otherwise, until another restores its checkpoints

A driver renews its record every few seconds. A driver that is silent for a lease counts as dead, unless its process is
visibly alive; if it was only frozen, nothing it does afterwards counts, since the record has changed.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Hashable

from millstream.checkpoint.storage import Storage, creates_exclusively, open_storage
from millstream.checkpoint.store import RECORD, is_alive, is_same_host, read_owner
from millstream.common.aliases import Json
from millstream.common.errors import DeposedError, InvalidProgramError
from millstream.common.job_status import JobStatus
from millstream.common.run_ids import new_run_id
from millstream.leader.cas_cells import NEVER_WRITTEN, FileCell, OvertakenError
from millstream.leader.fence import Fence, JobRecord

log = logging.getLogger("millstream")

_JOBS = "_jobs"
_RUN = re.compile("[0-9a-f]{32}")
# Renewals of a driver's record, and checks for another driver's renewals, per lease.
_RENEWALS_PER_LEASE = 3
_POLLS_PER_LEASE = 10

Read = tuple[JobRecord | None, Hashable]


class DriverRegistry:
    """The drivers of the jobs of one checkpoint directory."""

    def __init__(self, directory: str, options: dict[str, Json], lease: float) -> None:
        """Open the registry of a directory.

        Args:
            directory: contains the jobs' checkpoints.
            options: options of the file system.
            lease: the seconds of silence after which a driver counts as dead.
        """
        self._storage: Storage = open_storage(directory.rstrip("/"), options)
        self._lease = lease

    @staticmethod
    def can_hold(directory: str) -> bool:
        """Return whether storage can guarantee that a job has one driver."""
        return creates_exclusively(directory)

    def claim_run(self, job_name: str, job_id: str | None, owner: dict[str, Json]) -> DriverLease:
        """Claim a job that is started on its own: with a new or a configured id."""
        run = job_id or new_run_id()
        name = f"{run}/{RECORD}"
        cell = self._cell(name)
        read = self._read_if_dead(cell) if job_id is not None else (None, NEVER_WRITTEN)
        if read is None:
            directory = f"{self._storage.url}/{run}"
            holder = read_owner(open_storage(directory)) or {}
            raise InvalidProgramError(
                f"The directory {directory} is in use by another job (see {directory}/_owner: process "
                f"{holder.get('pid')} on {holder.get('host')}): stop it first, or give this job another directory."
            )
        fence = Fence(cell, run, job_name, 1, owner, name)
        fence.claim_after(*read)
        return DriverLease(fence, self._lease, self._storage)

    def claim_latest(self, job_name: str, owner: dict[str, Json]) -> DriverLease:
        """Claim a job that starts from its latest checkpoint, from whichever driver had it.

        From then on checkpoints of earlier drivers do not count. Raises InvalidProgramError if one is alive.
        """
        for fence in [f for f in _finished if f.job_name == job_name]:
            # The same program runs the job again.
            _finished.remove(fence)
            _deliver(fence)
        digest = hashlib.md5(job_name.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()
        name = f"{_JOBS}/{digest}"
        cells = [self._cell(name), *self._cells_of_runs(job_name)]
        read = [self._require_dead(cell, job_name) for cell in cells]
        run = new_run_id(record.run_id for record, _ in read if record is not None)
        fence = Fence(cells[0], run, job_name, 1, owner, name)
        try:
            fence.claim_after(*read[0])
        except OvertakenError:
            raise _still_runs(job_name, self._cell_read(cells[0])[0]) from None
        for cell, current in zip(cells[1:], read[1:], strict=True):
            try:
                Fence(cell, run, job_name, 1, {**owner, "released": True}).claim_after(*current)
            except OvertakenError:
                fence.release()
                raise _still_runs(job_name, current[0]) from None
        return DriverLease(fence, self._lease, self._storage)

    def is_alive(self, owner: dict[str, Json]) -> bool:
        """Return whether the driver named by an `_owner` file still has its job."""
        if "cell" not in owner:
            return is_alive(owner)
        if owner.get("released"):
            return False
        record, _ = self._cell_read(self._cell(owner["cell"]))
        if record is None or record.run != owner.get("attempt"):
            return False
        return self._read_if_dead(self._cell(owner["cell"])) is None

    def _cells_of_runs(self, job_name: str) -> list[FileCell]:
        """Return the cells of unfinished jobs of that name that were started on their own."""
        runs = sorted(name for name in self._storage.list("") if _RUN.fullmatch(name))
        cells = [self._cell(f"{name}/{RECORD}") for name in runs]
        records = [(cell, self._cell_read(cell)[0]) for cell in cells]
        return [cell for cell, r in records if r is not None and r.job_name == job_name and r.owner is not None]

    def _require_dead(self, cell: FileCell, job_name: str) -> Read:
        record = self._read_if_dead(cell)
        if record is None:
            raise _still_runs(job_name, self._cell_read(cell)[0])
        return record

    def _read_if_dead(self, cell: FileCell) -> Read | None:
        """Return a job's record once its driver is dead; None if it is alive."""
        record, version = self._cell_read(cell)
        if record is None or record.owner is None or record.owner.get("released"):
            return record, version
        if is_same_host(record.owner):
            return None if is_alive(record.owner) else (record, version)
        host, end = record.owner.get("host"), time.monotonic() + self._lease
        log.warning(
            "cannot check the driver of job '%s' on host %s: taking over unless it renews its lease in %g s",
            *(record.job_name, host, self._lease),
        )
        while time.monotonic() < end:
            time.sleep(self._lease / _POLLS_PER_LEASE)
            later, now = self._cell_read(cell)
            if now != version:
                return None if later is not None and later.owner is not None else (later, now)
        return record, version

    def _cell(self, name: str) -> FileCell:
        return FileCell(self._storage, name)

    def _cell_read(self, cell: FileCell) -> Read:
        data, version = cell.read()
        return None if data is None else JobRecord.from_bytes(data), version


def owner_file(fence: Fence, owner: dict[str, Json]) -> dict[str, Json]:
    """Return the contents of a driver's `_owner` file: they refer to its record."""
    return {**owner, "cell": fence.cell_name, "attempt": fence.attempt}


def _still_runs(job_name: str, record: JobRecord | None) -> InvalidProgramError:
    owner = (None if record is None else record.owner) or {}
    return InvalidProgramError(
        f"Job '{job_name}' still runs (process {owner.get('pid')} on {owner.get('host')}), so that its latest "
        "checkpoint cannot be restored here: stop it first."
    )


class DriverLease:
    """A driver's lease on a job: a thread renews it every few seconds until it is released."""

    def __init__(self, fence: Fence, lease: float, storage: Storage) -> None:
        self.fence = fence
        self._storage = storage
        self._pause = lease / _RENEWALS_PER_LEASE
        self._lock = threading.Lock()
        self._deposed: str | None = None
        self._on_deposed: Callable[[str], None] | None = None
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"driver-{fence.job_id[:8]}", daemon=True)
        self._thread.start()

    def watch(self, on_deposed: Callable[[str], None]) -> None:
        """Register a function that is called with the reason when another driver has the job; at once if one has."""
        with self._lock:
            self._on_deposed = on_deposed
            reason = self._deposed
        if reason is not None:
            on_deposed(reason)

    def _run(self) -> None:
        while not self._has_ended.wait(self._pause):
            try:
                self.fence.renew()
            except DeposedError as e:
                with self._lock:
                    self._deposed, on_deposed = str(e), self._on_deposed
                if on_deposed is not None:
                    on_deposed(str(e))
                return
            except Exception as e:
                # A driver that takes over because of this fences this one off.
                log.warning("renewing the lease of job '%s' failed, will retry: %s", self.fence.job_name, e)

    def release(self) -> None:
        """Release the job: it has ended or was not started, so the next driver need not wait."""
        self._has_ended.set()
        fence = self.fence
        try:
            if fence.cell.read()[0] is None:
                # It was deleted with the job's directory.
                return
            if fence.record.outcome == JobStatus.FINISHED.name and fence.cell_name.startswith(_JOBS):
                _finished.append(fence)
            else:
                fence.release()
                self._clear()
        except DeposedError:
            # Another driver owns the job.
            return
        except Exception as e:
            log.warning("releasing job '%s' failed: %s", fence.job_name, e)

    def _clear(self) -> None:
        """Delete the directory of a job that was not started."""
        directory, _, name = self.fence.cell_name.partition("/")
        if directory != _JOBS and self._storage.list(directory) == [name]:
            self._storage.delete(directory)


# Jobs that have finished in this process: they may run again when the program has ended normally.
_finished: list[Fence] = []


def program_ended(succeeded: bool = True) -> None:
    """Note the end of the program: if normal, a new start of it runs its finished jobs again."""
    finished, _finished[:] = list(_finished), []
    for fence in finished if succeeded else ():
        _deliver(fence)


def _deliver(fence: Fence) -> None:
    try:
        fence.deliver()
    except Exception as e:
        log.warning(
            "job '%s' has finished, but cannot be started again: its record cannot be written: %s", fence.job_name, e
        )


@atexit.register
def _at_exit() -> None:
    program_ended(succeeded=getattr(sys, "last_value", None) is None)

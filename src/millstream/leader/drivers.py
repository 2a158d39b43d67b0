"""DriverRegistry of jobs where there is one job manager: a job has one driver at a time, and one that is gone is replaced.

What holds a job is its record, as with several job managers (`fence.py`), in a cell beside its checkpoints:

    <dir>/_jobs/<digest of its name>    a job that goes on from its latest checkpoint, whichever driver that is of
    <dir>/<job id>/_record              a job that was started otherwise, until another goes on from its checkpoints

A driver says every few seconds that it is there. One that has been silent for a lease is taken to be gone, unless its
process can be seen to be there; if it only slept, nothing counts that it does after that, since the record has changed.
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
from typing import Any

from millstream.checkpoint.storage import Storage, creates_exclusively, open_storage
from millstream.checkpoint.store import RECORD, is_alive, is_here, read_owner
from millstream.common.errors import DeposedError, InvalidProgramError
from millstream.common.job_status import JobStatus
from millstream.common.run_ids import new_run_id
from millstream.leader.cas_cells import NEVER_WRITTEN, FileCell, OvertakenError
from millstream.leader.fence import Fence, JobRecord

log = logging.getLogger("millstream")

_JOBS = "_jobs"
_RUN = re.compile("[0-9a-f]{32}")
# How often a driver says that it is there, and looks whether another is, in a lease.
_BEATS = 3
_LOOKS = 10

Read = tuple[JobRecord | None, Hashable]


class DriverRegistry:
    """The drivers of the jobs of one directory of checkpoints."""

    def __init__(self, directory: str, options: dict[str, Any], lease: float) -> None:
        """Take a directory.

        Args:
            directory: where jobs have their checkpoints.
            options: what the file system must be told.
            lease: after how many seconds of silence a driver is taken to be gone.
        """
        self._storage: Storage = open_storage(directory.rstrip("/"), options)
        self._lease = lease

    @staticmethod
    def can_hold(directory: str) -> bool:
        """Tell whether storage can make sure that a job has one driver."""
        return creates_exclusively(directory)

    def claim_run(self, job_name: str, job_id: str | None, owner: dict[str, Any]) -> DriverLease:
        """Take a job that is started on its own: under a new id, or one that the user has given."""
        run = job_id or new_run_id()
        name = f"{run}/{RECORD}"
        cell = self._cell(name)
        read = self._free(cell) if job_id is not None else (None, NEVER_WRITTEN)
        if read is None:
            home = f"{self._storage.url}/{run}"
            holder = read_owner(open_storage(home)) or {}
            raise InvalidProgramError(
                f"The directory {home} is in use by another job (see {home}/_owner: process {holder.get('pid')} on "
                f"{holder.get('host')}): stop it first, or give this job another directory."
            )
        fence = Fence(cell, run, job_name, 1, owner, name)
        fence.claim_behind(*read)
        return DriverLease(fence, self._lease, self._storage)

    def claim_latest(self, job_name: str, owner: dict[str, Any]) -> DriverLease:
        """Take a job that goes on from its latest checkpoint: from whichever driver has had it.

        From then on no checkpoint counts that an earlier driver writes. InvalidProgramError if one is there.
        """
        for fence in [f for f in _finished if f.job_name == job_name]:
            # This very program runs it again.
            _finished.remove(fence)
            _deliver(fence)
        digest = hashlib.md5(job_name.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()
        name = f"{_JOBS}/{digest}"
        cells = [self._cell(name), *self._cells_of_runs(job_name)]
        read = [self._free_or_refuse(cell, job_name) for cell in cells]
        run = new_run_id(record.run_id for record, _ in read if record is not None)
        fence = Fence(cells[0], run, job_name, 1, owner, name)
        try:
            fence.claim_behind(*read[0])
        except OvertakenError:
            raise _still_runs(job_name, self._cell_read(cells[0])[0]) from None
        for cell, found in zip(cells[1:], read[1:], strict=True):
            try:
                Fence(cell, run, job_name, 1, {**owner, "released": True}).claim_behind(*found)
            except OvertakenError:
                fence.release()
                raise _still_runs(job_name, found[0]) from None
        return DriverLease(fence, self._lease, self._storage)

    def is_alive(self, owner: dict[str, Any]) -> bool:
        """Tell whether the driver still has its job that an `_owner` file names."""
        if "cell" not in owner:
            return is_alive(owner)
        if owner.get("released"):
            return False
        record, _ = self._cell_read(self._cell(owner["cell"]))
        if record is None or record.run != owner.get("attempt"):
            return False
        return self._free(self._cell(owner["cell"])) is None

    def _cells_of_runs(self, job_name: str) -> list[FileCell]:
        """Return the cells of jobs of that name that were started on their own and have not ended."""
        runs = sorted(name for name in self._storage.list("") if _RUN.fullmatch(name))
        cells = [self._cell(f"{name}/{RECORD}") for name in runs]
        records = [(cell, self._cell_read(cell)[0]) for cell in cells]
        return [cell for cell, r in records if r is not None and r.job_name == job_name and r.owner is not None]

    def _free_or_refuse(self, cell: FileCell, job_name: str) -> Read:
        found = self._free(cell)
        if found is None:
            raise _still_runs(job_name, self._cell_read(cell)[0])
        return found

    def _free(self, cell: FileCell) -> Read | None:
        """Return what a job's record says, once its driver is gone; None if that is there."""
        record, version = self._cell_read(cell)
        if record is None or record.owner is None or record.owner.get("released"):
            return record, version
        if is_here(record.owner):
            return None if is_alive(record.owner) else (record, version)
        host, end = record.owner.get("host"), time.monotonic() + self._lease
        log.warning(
            "job '%s' was driven on %s, which cannot be asked: it is taken over if nothing is heard of it for %g s",
            *(record.job_name, host, self._lease),
        )
        while time.monotonic() < end:
            time.sleep(self._lease / _LOOKS)
            later, now = self._cell_read(cell)
            if now != version:
                return None if later is not None and later.owner is not None else (later, now)
        return record, version

    def _cell(self, name: str) -> FileCell:
        return FileCell(self._storage, name)

    def _cell_read(self, cell: FileCell) -> Read:
        data, version = cell.read()
        return None if data is None else JobRecord.from_bytes(data), version


def owner_file(fence: Fence, owner: dict[str, Any]) -> dict[str, Any]:
    """Return what the `_owner` file of a driver's directory says: where the record is that tells more."""
    return {**owner, "cell": fence.cell_name, "attempt": fence.attempt}


def _still_runs(job_name: str, record: JobRecord | None) -> InvalidProgramError:
    owner = (None if record is None else record.owner) or {}
    return InvalidProgramError(
        f"Job '{job_name}' still runs (process {owner.get('pid')} on {owner.get('host')}), so that it cannot go on "
        "from its latest checkpoint here: stop it first."
    )


class DriverLease:
    """A driver's hold on a job: says every few seconds that it is there, on a thread of its own, until it lets go."""

    def __init__(self, fence: Fence, lease: float, storage: Storage) -> None:
        self.fence = fence
        self._storage = storage
        self._pause = lease / _BEATS
        self._lock = threading.Lock()
        self._deposed: str | None = None
        self._on_deposed: Callable[[str], None] | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"driver-{fence.job_id[:8]}", daemon=True)
        self._thread.start()

    def watch(self, on_deposed: Callable[[str], None]) -> None:
        """Have a function called, with the reason, when another driver has the job; at once if one has."""
        with self._lock:
            self._on_deposed = on_deposed
            reason = self._deposed
        if reason is not None:
            on_deposed(reason)

    def _run(self) -> None:
        while not self._is_over.wait(self._pause):
            try:
                self.fence.renew()
            except DeposedError as e:
                with self._lock:
                    self._deposed, on_deposed = str(e), self._on_deposed
                if on_deposed is not None:
                    on_deposed(str(e))
                return
            except Exception as e:
                # Whoever takes over because of it shuts this driver out.
                log.warning("job '%s' could not say that it is there: %s", self.fence.job_name, e)

    def let_go(self) -> None:
        """The job has ended, or was not started: whoever comes next need not wait for this process."""
        self._is_over.set()
        fence = self.fence
        try:
            if fence.cell.read()[0] is None:
                # It went with the job's directory.
                return
            if fence.record.outcome == JobStatus.FINISHED.name and fence.cell_name.startswith(_JOBS):
                _finished.append(fence)
            else:
                fence.release()
                self._clear()
        except DeposedError:
            # Another driver has it.
            return
        except Exception as e:
            log.warning("job '%s' could not be let go of: %s", fence.job_name, e)

    def _clear(self) -> None:
        """Delete the directory of a job that was not started."""
        home, _, name = self.fence.cell_name.partition("/")
        if home != _JOBS and self._storage.list(home) == [name]:
            self._storage.delete(home)


# Jobs that have finished in this process: they may run again when the program has ended well.
_finished: list[Fence] = []


def program_ended(well: bool = True) -> None:
    """The program has ended: if well, jobs that have finished are run again when it is started again."""
    finished, _finished[:] = list(_finished), []
    for fence in finished if well else ():
        _deliver(fence)


def _deliver(fence: Fence) -> None:
    try:
        fence.deliver()
    except Exception as e:
        log.warning("job '%s' has finished, and will not run when it is started again: %s", fence.job_name, e)


@atexit.register
def _at_exit() -> None:
    program_ended(well=getattr(sys, "last_value", None) is None)

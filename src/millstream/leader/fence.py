"""The fence decides which checkpoints of a job count, and keeps those of a deposed leader out.

A job has one record, in a cell that the job managers share: the term of its leader, its checkpoints, and its outcome,
once it has ended. Jobs restore the newest checkpoint of the record; other manifests on storage are ignored.
Every write names the version before it, so:

* A new leader writes its term first, and then restores what the record names. A checkpoint that the former leader
  publishes later is rejected: its version is outdated.
* A checkpoint published before is in the record that the new leader reads, which also commits its output. So a deposed
  leader that wakes up in the middle of a commit only repeats what was done, or will be.
* A job's checkpoints are deleted at its end only after the record holds its outcome.

State files, manifests and staged output of each leader have names of their own (`run_id`): nothing that a deposed
leader still stages, aborts or deletes belongs to another.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Collection, Hashable
from dataclasses import asdict, dataclass, field, replace

from millstream.common.aliases import Json
from millstream.common.errors import DeposedError, InvalidProgramError, MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.job_status import JobStatus
from millstream.common.run_ids import run_id
from millstream.leader.cas_cells import Cell, OvertakenError


def _number(location: str) -> int:
    """Return the id of a checkpoint."""
    return int(location.rpartition("-")[2])


@fast_dataclass
class JobRecord:
    """The record of a job, which outlives the process that runs it.

    Attributes:
        term: the term of its leader.
        run: that leader's attempt to run the job.
        job_name: for users.
        checkpoints: the locations of the checkpoints that count, oldest first.
        outcome: the outcome of the job; None while it runs.
        message: the error, if it has failed.
        run_id: the id under which the driver writes, with one job manager.
        owner: the process of that driver until it releases the job; None with several job managers.
        beat: the number of renewals by the driver.
        delivered: whether the program has ended normally since the job has.
    """

    term: int
    run: str
    job_name: str
    checkpoints: tuple[str, ...] = ()
    outcome: str | None = None
    message: str = ""
    run_id: str = ""
    owner: dict[str, Json] | None = None
    beat: int = 0
    delivered: bool = False

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_bytes(data: bytes) -> JobRecord:
        try:
            read: dict[str, Json] = json.loads(data)
            return JobRecord(**{**read, "checkpoints": tuple(read["checkpoints"])})
        except (ValueError, KeyError, TypeError) as e:
            raise MillstreamError(f"The record of a job is damaged, or of another version: {e!r}") from None


def is_final(record: JobRecord) -> bool:
    """Return whether a job has finished and its program has not: then it must not run again."""
    return record.outcome == JobStatus.FINISHED.name and not record.delivered


@dataclass
class Fence:
    """One leader's hold on one job. Thread-safe.

    Attributes:
        job_id: the job.
        term: the leader's; with one job manager, the number of drivers the job has had.
        owner: the process that has the job, with one job manager.
    """

    cell: Cell
    job_id: str
    job_name: str
    term: int
    owner: dict[str, Json] | None = None
    # The location of the record in a checkpoint directory.
    cell_name: str = ""
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _record: JobRecord | None = None
    _version: Hashable = 0
    # Whether a write was not answered: the record may be newer than known here.
    _is_unsure: bool = False

    @property
    def run_id(self) -> str:
        """The id under which the job writes now."""
        return run_id(self.job_id, self.term) if self.owner is None else self.job_id

    @property
    def record(self) -> JobRecord:
        """The job's record, as far as known here."""
        return self._own

    @property
    def attempt(self) -> str:
        """The unique id of this hold on the job."""
        return self._run

    @property
    def is_shared(self) -> bool:
        """Whether other job managers wait to continue the job."""
        return self.owner is None

    def claim(self) -> JobRecord:
        """Claim the job: from here on nothing of an earlier leader counts. Return the record."""
        with self._lock:
            while True:
                data, version = self.cell.read()
                current = None if data is None else JobRecord.from_bytes(data)
                if current is not None and current.run == self._run:
                    # The answer to the write was lost.
                    self._record, self._version = current, version
                    return current
                if current is not None and current.outcome is not None:
                    return current
                if current is not None and current.term > self.term:
                    raise self._deposed(current)
                if current is not None and current.term == self.term:
                    raise InvalidProgramError(
                        f"Job '{self.job_name}' was started twice under one leader: with high availability, give every "
                        "job of a program a name of its own."
                    )
                own = JobRecord(self.term, self._run, self.job_name, current.checkpoints if current else ())
                try:
                    self._version = self.cell.write(own.to_bytes(), version)
                except OvertakenError:
                    continue
                self._record = own
                return own

    def claim_after(self, current: JobRecord | None, version: Hashable) -> JobRecord:
        """Claim the job of a dead driver; OvertakenError if its record has changed since it was read.

        A finished job stays finished until its program has ended.
        """
        with self._lock:
            self.term = 1 if current is None else current.term + 1
            own = JobRecord(self.term, self._run, self.job_name, run_id=self.job_id, owner=self.owner)
            if current is not None and is_final(current):
                own = replace(own, outcome=current.outcome, message=current.message)
            self._version = self.cell.write(own.to_bytes(), version)
            self._record = own
            return own

    def renew(self) -> None:
        """Renew the driver's record; DeposedError if another has the job."""
        with self._lock:
            if self._own.outcome is None:
                # Otherwise the record is about to be deleted with the job's directory.
                self._write(replace(self._own, beat=self._own.beat + 1))

    def release(self) -> None:
        """Release the job: the next driver need not wait."""
        with self._lock:
            self._write(replace(self._own, owner=None))

    def deliver(self) -> None:
        """Note that the program has ended normally: a new start runs its jobs again."""
        with self._lock:
            self._write(replace(self._own, owner=None, delivered=True))

    def publish(self, location: str) -> None:
        """Publish a checkpoint; DeposedError if another leader has the job."""
        with self._lock:
            # An earlier checkpoint may complete later; ids increase from leader to leader.
            checkpoints = sorted({*self._own.checkpoints, location}, key=_number)
            self._write(replace(self._own, checkpoints=tuple(checkpoints)))

    def keep_only(self, home: str, locations: Collection[str]) -> None:
        """Withdraw all other checkpoints of a directory, even those whose publication was not answered."""
        with self._lock:
            retained = tuple(c for c in self._own.checkpoints if c in locations or not c.startswith(f"{home}/"))
            # Written in any case: pending writes are rejected from then on.
            self._write(replace(self._own, checkpoints=retained))

    def withdraw_former(self, home: str) -> None:
        """Withdraw all checkpoints of other directories: they are about to be deleted."""
        with self._lock:
            retained = tuple(c for c in self._own.checkpoints if c.startswith(f"{home}/"))
            if self._own.outcome is None and retained != self._own.checkpoints:
                self._write(replace(self._own, checkpoints=retained))

    def withdraw_after(self, location: str) -> None:
        """Withdraw the checkpoints after the restored one: they cannot be read."""
        with self._lock:
            position = self._own.checkpoints.index(location)
            if position + 1 < len(self._own.checkpoints):
                self._write(replace(self._own, checkpoints=self._own.checkpoints[: position + 1]))

    def withdraw(self, location: str) -> None:
        """Withdraw a checkpoint: it is about to be deleted."""
        with self._lock:
            if self._own.outcome is not None:
                # No job will restore any.
                return
            was_last = self._own.checkpoints[-1:] == (location,)
            left = replace(self._own, checkpoints=tuple(c for c in self._own.checkpoints if c != location))
            if was_last or self._is_unsure:
                self._write(left)
            else:
                # It is not restored while there is a newer one: the next write withdraws it.
                self._record = left

    def end(self, outcome: str, message: str) -> None:
        """Record the outcome of the job; DeposedError if that fails, so that others continue it."""
        with self._lock:
            try:
                self._write(replace(self._own, outcome=outcome, message=message))
            except DeposedError:
                raise
            except Exception as e:
                if not self.is_shared:
                    raise
                raise DeposedError(
                    f"The outcome of job '{self.job_name}' could not be recorded ({e}): the next leader restores its "
                    "last checkpoint."
                ) from e

    @property
    def _own(self) -> JobRecord:
        assert self._record is not None, "the job was not claimed"
        return self._record

    def _write(self, record: JobRecord) -> None:
        while True:
            try:
                self._version = self.cell.write(record.to_bytes(), self._version)
            except OvertakenError:
                data, version = self.cell.read()
                current = None if data is None else JobRecord.from_bytes(data)
                if current is None or current.run != self._run:
                    raise self._deposed(current) from None
                # An own write whose answer was lost.
                self._version = version
                continue
            except Exception:
                self._is_unsure = True
                raise
            self._record, self._is_unsure = record, False
            return

    def _deposed(self, current: JobRecord | None) -> DeposedError:
        if current is None:
            other = "its record was deleted"
        elif self.is_shared:
            other = f"the leader of term {current.term} owns it"
        else:
            other = f"driver {current.term} owns it, which writes as {current.run_id}"
        return DeposedError(f"Job '{self.job_name}' no longer belongs to this process (term {self.term}): {other}.")

"""A job's directory of checkpoints:

    <dir>/<job-id>/_owner            the current or last writer
    <dir>/<job-id>/_record           driver and outcome of the job: see leader/drivers.py
    <dir>/<job-id>/_superseded       the last checkpoint that counts; a later driver was restored from it
    <dir>/<job-id>/chk-N/_metadata   the manifest of checkpoint N
    <dir>/<job-id>/shared/           state files, which several checkpoints may need
    <dir>/<job-id>/taskowned/        files that no checkpoint owns (Flink's name for it; empty here)

A checkpoint exists once its manifest does. State files are deleted when neither a retained checkpoint nor the running
job needs them.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import socket
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Protocol

from millstream.checkpoint.manifest import NAME, SHARED, Manifest, decode_manifest, encode_manifest
from millstream.checkpoint.signing import SigningKeys
from millstream.checkpoint.storage import Storage, open_storage
from millstream.common.aliases import Json
from millstream.common.errors import DamagedStateError, DeposedError, InvalidProgramError, MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.faults import fault_point
from millstream.operating_system import system


def this_process(job_name: str) -> dict[str, Json]:
    """Return this process as the owner of a job."""
    pid = os.getpid()
    return {
        "job": job_name,
        "host": socket.gethostname(),
        "pid": pid,
        "started": system.process_start(pid),
        "system": system.boot(),
    }


def is_same_host(owner: dict[str, Json]) -> bool:
    """Return whether this process can observe the owner: same host, boot and container."""
    return owner.get("host") == socket.gethostname() and owner.get("system") == system.boot()


def is_alive(owner: dict[str, Json]) -> bool:
    """Return whether an owner still runs. An owner on another host counts as alive: a user can delete the file."""
    if owner.get("released"):
        return False
    if owner.get("host") != socket.gethostname():
        return True
    pid = owner.get("pid")
    started = system.process_start(pid) if isinstance(pid, int) else None
    return started is not None and started == owner.get("started")


log = logging.getLogger("millstream")

_SUPERSEDED = "_superseded"
# The record of a job that does not start from its latest checkpoint, see `leader/drivers.py`. Its driver must notice
# changes of it even if all else is deleted.
RECORD = "_record"
_CHECKPOINT = re.compile(r"chk-(\d+)")


class Register(Protocol):
    """Decides which checkpoints of a job count if several processes could have it; raises DeposedError."""

    term: int

    @property
    def is_shared(self) -> bool:
        """Whether other job managers wait to continue the job."""
        ...

    def renew(self) -> None:
        """Check that this process still owns the job."""
        ...

    def publish(self, location: str) -> None:
        """Publish a checkpoint whose manifest is written."""
        ...

    def keep_only(self, home: str, locations: Collection[str]) -> None:
        """Withdraw all other checkpoints of a directory, even those whose publication was not answered."""
        ...

    def withdraw(self, location: str) -> None:
        """Withdraw a checkpoint."""
        ...

    def withdraw_former(self, home: str) -> None:
        """Withdraw all checkpoints of other directories: they are about to be deleted."""
        ...

    def end(self, outcome: str, message: str) -> None:
        """Record the outcome of the job."""
        ...


class CheckpointStore:
    """Writes and deletes a job's checkpoints. Thread-safe."""

    def __init__(
        self,
        storage: Storage,
        owner: dict[str, Json],
        options: dict[str, Json] | None = None,
        register: Register | None = None,
        keys: SigningKeys | None = None,
    ) -> None:
        """Create the store of a job.

        Args:
            storage: the job's directory.
            owner: the owner written to the directory.
            options: options of file systems, for savepoints elsewhere.
            register: decides which checkpoints count; None if all do.
            keys: sign manifests.
        """
        self.storage = storage
        self._keys = keys
        self._register = register
        self.options: dict[str, Json] = options or {}
        self._token = uuid.uuid4().hex
        self._owner = owner

    def take(self, is_alive: Callable[[dict[str, Json]], bool]) -> None:
        """Claim the directory; raise an error if a running job owns it."""
        owner = read_owner(self.storage)
        if owner is not None and is_alive(owner):
            raise InvalidProgramError(
                f"The directory {self.storage.url} is in use by another job (see {self.storage.url}/_owner: process "
                f"{owner.get('pid')} on {owner.get('host')}): stop it first, or give this job another directory."
            )
        self._publish_owner()
        # An earlier run with the same id may have been superseded.
        self.storage.delete(_SUPERSEDED)

    def _publish_owner(self, **more: Json) -> None:
        self.storage.publish("_owner", json.dumps({**self._owner, "token": self._token, **more}).encode())

    def write(self, manifest: Manifest) -> str:
        """Write a manifest; return the location of the checkpoint."""
        fault_point("driver.before-manifest")
        self._check_owner()
        directory = f"chk-{manifest.id}"
        self.storage.make_durable(f"{SHARED}/{name}" for name in manifest.snapshot.files())
        location = f"{self.storage.url}/{directory}"
        if self._register is not None:
            manifest = replace(manifest, properties={**manifest.properties, "term": self._register.term})
        self.storage.publish(f"{directory}/{NAME}", encode_manifest(manifest, self._keys))
        if self._register is not None:
            fault_point("driver.before-publish")
            self._register.publish(location)
        fault_point("driver.after-manifest")
        return location

    def _check_owner(self) -> None:
        """Check that this job still owns the directory: a deleted directory must not be created again."""
        owner = read_owner(self.storage)
        if owner is not None and owner.get("token") == self._token:
            return
        if self._register is not None:
            self._register.renew()
        if owner is None and "_owner" not in self.storage.list(""):
            # A restart would not bring it back, and a new owner may have deleted it.
            raise DeposedError(
                f"The job's directory {self.storage.url} or its files were deleted while the job was running."
            )
        raise DeposedError(
            f"Another job has taken the directory {self.storage.url} (see {self.storage.url}/_owner): this one writes "
            "no more checkpoints there."
        )

    def unwritable(self, directory: str) -> str | None:
        """Return why no savepoint can be written to a directory; None if one can.

        Slots write there: one that could not would fail with the job.
        """
        name = f".try-{uuid.uuid4().hex}"
        try:
            storage = open_storage(directory, self.options)
            storage.publish(name, b"")
            storage.delete(name)
        except (OSError, ValueError, MillstreamError) as e:
            return str(e)
        return None

    def write_savepoint(self, location: str, manifest: Manifest) -> str:
        """Write the manifest of a savepoint whose state files are written; return its location."""
        storage = open_storage(location, self.options)
        parts = manifest.snapshot.parts()
        if parts:
            storage.make_durable(parts)
        storage.publish(NAME, encode_manifest(manifest, self._keys))
        return storage.url

    def discard(self, checkpoint_id: int) -> None:
        """Delete a checkpoint, but not its state files."""
        self.withdraw(f"{self.storage.url}/chk-{checkpoint_id}")
        self.storage.delete(f"chk-{checkpoint_id}")

    @property
    def is_shared(self) -> bool:
        """Whether other job managers could continue the job."""
        return self._register is not None and self._register.is_shared

    def withdraw(self, location: str) -> None:
        """Withdraw a checkpoint before it is deleted."""
        if self._register is not None:
            self._register.withdraw(location)

    def withdraw_former(self) -> None:
        """Withdraw all checkpoints of earlier drivers."""
        if self._register is not None:
            self._register.withdraw_former(self.storage.url)

    def record(self, outcome: str, message: str) -> None:
        """Record the outcome of the job before anything is deleted that could be restored."""
        if self._register is not None:
            self._register.end(outcome, message)

    def discard_all_but(self, retained: Collection[int]) -> None:
        """Delete all other checkpoints: none may be restored once its output is aborted."""
        if self._register is not None:
            home = self.storage.url
            self._register.keep_only(home, [f"{home}/chk-{number}" for number in retained])
        for name in self.storage.list(""):
            match = _CHECKPOINT.fullmatch(name)
            if match is not None and int(match.group(1)) not in retained:
                self.storage.delete(name)

    # --- state files

    def delete_state(self, names: Iterable[str]) -> None:
        """Delete state files."""
        for name in sorted(names):
            self.storage.delete(f"{SHARED}/{name}")

    def sweep_state(self, needed: Collection[str]) -> None:
        """Delete all state files that nothing needs, including those of failed epochs."""
        self.delete_state(name for name in self.storage.list(SHARED) if name not in needed)

    def remove(self) -> None:
        """Delete everything.

        The newest checkpoint is deleted last, before the state files: an interruption must not leave an older one to
        start from, nor one without its state.
        """
        for number in sorted(_checkpoint_ids(self.storage.list(""))):
            self.discard(number)
        self.storage.delete("")

    def release(self) -> None:
        """Release the directory."""
        self._publish_owner(released=True)


def read_owner(storage: Storage) -> dict[str, Json] | None:
    """Return the owner of a job's directory; None if there is none."""
    if "_owner" not in storage.list(""):
        return None
    try:
        owner = json.loads(bytes(storage.read("_owner")))
    except (ValueError, DamagedStateError):
        owner = None
    finally:
        storage.drop_local_copies(["_owner"])
    if not isinstance(owner, dict):
        log.warning("The file %s/_owner is damaged: the directory is treated as one without an owner.", storage.url)
        return None
    return owner


@fast_dataclass
class StoredCheckpoint:
    """A checkpoint or savepoint on storage."""

    manifest: Manifest
    # Its directory.
    location: str

    def state_url(self) -> str:
        """Return the location of its state files."""
        state = self.manifest.state
        if state.startswith("/") or "://" in state:
            return state
        base = self.location
        while state.startswith("../"):
            base, state = base.rpartition("/")[0], state[3:]
        return f"{base}/{state}" if state else base


def open_checkpoint(
    location: str, options: dict[str, Json] | None = None, keys: SigningKeys | None = None
) -> StoredCheckpoint:
    """Read the manifest of a checkpoint or savepoint, given its directory or the manifest itself.

    With keys, one that none of them has signed is refused.
    """
    location = location.rstrip("/").removesuffix(f"/{NAME}")
    storage = open_storage(location, options)
    if NAME not in storage.list(""):
        raise DamagedStateError(
            f"{location} is not a checkpoint or savepoint: there is no file {NAME} in it. Give the directory of one, "
            "for example <checkpoint dir>/<job id>/chk-12."
        )
    data = bytes(storage.read(NAME))
    storage.drop_local_copies([NAME])
    return StoredCheckpoint(decode_manifest(f"{storage.url}/{NAME}", data, keys), storage.url)


def list_checkpoints(directory: str, options: dict[str, Json] | None = None) -> list[tuple[str, int]]:
    """Return (location, id) of the checkpoints in a job's directory, newest first."""
    storage = open_storage(directory, options)
    return [(f"{storage.url}/chk-{i}", i) for i in sorted(_checkpoint_ids(storage.list("")), reverse=True)]


def _checkpoint_ids(names: list[str]) -> list[int]:
    return [int(m.group(1)) for name in names if (m := _CHECKPOINT.fullmatch(name))]


def latest_checkpoints(
    directory: str, job_name: str | None, options: dict[str, Json] | None = None
) -> tuple[list[StoredCheckpoint], list[str]]:
    """Return the usable checkpoints of jobs below a directory, newest first, and the problems of others."""
    checkpoints, problems = [], []
    for home in _homes(directory, options):
        names = home.list("")
        try:
            last = _last_that_counts(home, names)
        except DamagedStateError as e:
            problems.append(str(e))
            continue
        for number in (i for i in _checkpoint_ids(names) if i <= last):
            if NAME not in home.list(f"chk-{number}"):
                # Its driver died while writing or deleting it.
                continue
            try:
                checkpoint = open_checkpoint(f"{home.url}/chk-{number}", options)
            except DamagedStateError as e:
                problems.append(str(e))
                continue
            if job_name is None or checkpoint.manifest.snapshot.job_name == job_name:
                checkpoints.append(checkpoint)
    return sorted(checkpoints, key=lambda f: (f.manifest.timestamp, f.manifest.id), reverse=True), problems


def clear_home(home: Storage) -> None:
    """Delete a former driver's directory, except for files that fence it off if it is still alive."""
    names = home.list("")
    retained = {_SUPERSEDED, RECORD} & set(names)
    if not retained:
        home.delete("")
    # Delete the owner file last: an interrupted deletion is continued by it.
    for name in sorted(set(names) - retained, key=lambda n: (n == "_owner", n)):
        home.delete(name)


def clear_former(
    directory: str, is_former: Callable[[str, dict[str, Json]], bool], options: dict[str, Json] | None = None
) -> None:
    """Delete the directories of a job's former drivers, once it has a checkpoint of its own.

    Args:
        directory: contains the jobs' directories.
        is_former: returns whether a directory belongs to a former driver, given its location and owner.
        options: options of the file system.
    """
    for home in _homes(directory, options):
        owner = read_owner(home)
        if owner is not None and not owner.get("released") and is_former(home.url, owner):
            # First: late checkpoints must not count.
            supersede_home(home, 0)
            clear_home(home)


def _homes(directory: str, options: dict[str, Json] | None) -> list[Storage]:
    """Return the job directories below a directory, which may also be one itself."""
    storage = open_storage(directory, options)
    names = storage.list("")
    own = [storage] if _checkpoint_ids(names) else []
    return own + [open_storage(f"{storage.url}/{name}", options) for name in names]


def supersede(
    directory: str,
    job_name: str,
    chosen: tuple[str, int] | None,
    own: str,
    is_alive: Callable[[dict[str, Json]], bool],
    options: dict[str, Json] | None = None,
) -> None:
    """Write to the directories of a job's former drivers up to which checkpoint they count.

    Args:
        directory: contains the jobs' directories.
        job_name: the job.
        chosen: the directory and id of the checkpoint the job starts from; None for the beginning.
        own: the directory of the new driver.
        is_alive: returns whether an owner still runs.
        options: options of the file system.
    """
    for home in _homes(directory, options):
        owner = read_owner(home)
        if chosen is not None and chosen[0] == home.url:
            last = chosen[1]
        elif owner is not None and owner.get("job") == job_name and not is_alive(owner):
            last = 0
        else:
            continue
        if home.url != own:
            supersede_home(home, last)


def supersede_home(home: Storage, last: int) -> None:
    """Write to a job's directory that no checkpoint after `last` may be restored."""
    if last < _known_last(home):
        home.publish(_SUPERSEDED, str(last).encode())


def _known_last(home: Storage) -> float:
    try:
        return _last_that_counts(home, home.list(""))
    except DamagedStateError:
        # It is written again.
        home.delete(_SUPERSEDED)
        return math.inf


def _last_that_counts(storage: Storage, names: list[str]) -> float:
    """Return the id of the last checkpoint in a job's directory that may be restored."""
    if _SUPERSEDED not in names:
        return math.inf
    try:
        return int(bytes(storage.read(_SUPERSEDED)))
    except ValueError:
        raise DamagedStateError(
            f"The file {storage.url}/{_SUPERSEDED}, the number of the last valid checkpoint, is damaged, so no "
            "checkpoint of the directory is restored: to restore one, set execution.state-recovery.path to it."
        ) from None
    finally:
        storage.drop_local_copies([_SUPERSEDED])

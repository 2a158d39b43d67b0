"""Simulated storage for manifests and state files: slow and unreliable."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from millstream.checkpoint.manifest import NAME, decode_manifest
from millstream.checkpoint.snapshot import unpack
from millstream.common.errors import DamagedStateError
from millstream.common.faults import fault_point

from .world import Injected, World

ROOT = "sim://checkpoints"


class Disk:
    """All files by path."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.files: dict[str, bytes] = {}
        # Files whose deletion failed.
        self.undeletable: set[str] = set()
        self._rejecting_until = 0.0
        # The transactions named by each manifest.
        self._named: dict[str, set[str]] = {}

    def put(self, path: str, data: bytes) -> None:
        if path.endswith(NAME):
            self._world.note(f"{path} is on storage")
            committables = decode_manifest(path, data).snapshot.committables
            self._named[path] = {name for packed in committables.values() for _, name in unpack(packed)}
        self.files[path] = data

    def remove(self, path: str) -> None:
        if self._world.verbose and "/shared/" not in path:
            self._world.note(f"{path} is deleted")
        self.files.pop(path, None)
        self._named.pop(path, None)

    def reject_deletes(self, seconds: float) -> None:
        """Reject deletions for some seconds."""
        self._rejecting_until = self._world.now + seconds

    def check_deletes(self) -> None:
        if self._world.now < self._rejecting_until:
            self._world.faults.happened["error"] += 1
            raise Injected("deletions are rejected")

    def below(self, path: str) -> list[str]:
        """Return the paths of a file, or of all files in a directory."""
        return [p for p in self.files if p == path or p.startswith(f"{path}/")]

    def manifests(self, home: str) -> list[str]:
        return [p for p in self._named if p.startswith(f"{home}/")]

    def is_named(self, transaction: str) -> bool:
        """Return whether a stored manifest names a transaction."""
        return any(transaction in named for named in self._named.values())


class Writing:
    """The latencies and faults of a manifest's background write."""

    def __init__(self, world: World, max_seconds: float, timeout: float) -> None:
        random, faults = world.random, world.faults
        slow = 2 * timeout * random.random() if faults.strikes("write slow") else 0.0
        late = 2 * timeout * random.random() if faults.strikes("result late") else 0.0
        self.arrives_in = max_seconds * random.random() + slow
        self.reported_in = self.arrives_in + max_seconds * random.random() * 0.3 + late
        self.is_lost = faults.strikes("write lost")
        self.is_reported_lost = not self.is_lost and faults.strikes("write reported lost")


class SimulatedStorage:
    """Files below a URL; follows `millstream.checkpoint.storage.Storage`."""

    def __init__(self, world: World, disk: Disk, url: str) -> None:
        self._world = world
        self._disk = disk
        self.url = url.rstrip("/")
        self.clock = world.clock
        # Set while a manifest is written in the background.
        self.writing: Writing | None = None
        # The last checkpoint whose manifest was started.
        self.last_id = 0

    def _path(self, name: str) -> str:
        return name if "://" in name else f"{self.url}/{name}".rstrip("/")

    def read(self, name: str) -> memoryview:
        data = self._disk.files.get(self._path(name))
        if data is None:
            raise DamagedStateError(f"The file {self._path(name)} is missing.")
        return memoryview(data)

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        data = b"".join(parts)
        self._disk.put(self._path(name), data)
        return len(data)

    def publish(self, name: str, data: bytes, private: bool = False) -> None:
        path = self._path(name)
        if self.writing is None:
            self._world.step("publish")
            self._disk.put(path, data)
            self._world.step("publish")
            return
        fault_point("driver.in-manifest")
        self._publish_later(path, data, self.writing)
        if self.writing.is_lost or self.writing.is_reported_lost:
            raise Injected(f"{path} could not be written")

    def _publish_later(self, path: str, data: bytes, writing: Writing) -> None:
        world = self._world
        number = int(path.split("/")[-2].removeprefix("chk-"))
        world.note(f"writes checkpoint {number}")
        if number <= self.last_id:
            world.violate(f"checkpoint {number} comes after checkpoint {self.last_id}")
        self.last_id = number
        if not writing.is_lost:
            world.after(writing.arrives_in, partial(self._disk.put, path, data), world.driver)

    def delete(self, name: str) -> None:
        paths = self._disk.below(self._path(name))
        if paths and self._world.faults.strikes("deletes rejected"):
            self._disk.reject_deletes(5 * self._world.random.random())
        # Deletion order is unspecified.
        self._world.random.shuffle(paths)
        for path in paths:
            try:
                self._disk.check_deletes()
                self._world.step("delete")
            except Injected:
                self._disk.undeletable.add(path)
                raise
            self._disk.remove(path)

    def list(self, directory: str) -> list[str]:
        self._world.step("list")
        start = len(self._path(directory)) + 1
        return list(dict.fromkeys(p[start:].partition("/")[0] for p in self._disk.below(self._path(directory))))

    def make_durable(self, names: Iterable[str]) -> None:
        missing = [name for name in names if self._path(name) not in self._disk.files]
        if missing:
            self._world.violate(f"a manifest is written whose state files are deleted: {sorted(missing)}")

    def drop_local_copies(self, names: Iterable[str]) -> None:
        """Do nothing: there are no copies."""

    def scratch(self, name: str) -> str:
        raise AssertionError(f"unexpected request for a directory for {name}")


class TaskStorage:
    """The state files of a job as its tasks see them."""

    def __init__(self, disk: Disk, url: str) -> None:
        self._disk = disk
        self._url = url
        # Files of the running epoch, which exist once its task has finished.
        self.unwritten: dict[str, bytes] = {}

    def read(self, name: str) -> memoryview:
        path = name if "://" in name else f"{self._url}/{name}"
        data = self._disk.files.get(path)
        if data is None:
            raise DamagedStateError(f"The state file {path} is missing.")
        return memoryview(data)

    def write(self, name: str, parts: Any) -> int:
        self.unwritten[f"{self._url}/{name}"] = data = b"".join(parts)
        return len(data)

    def drop_local_copies(self, names: Iterable[str]) -> None:
        """Do nothing: there are no copies."""

    def scratch(self, name: str) -> str:
        raise AssertionError(f"unexpected request for a directory for {name}")

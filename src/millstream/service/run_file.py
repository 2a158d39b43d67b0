"""Run files: how the command line finds the job services of the same user's processes."""

from __future__ import annotations

import atexit
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from millstream.checkpoint.store import is_alive, this_process
from millstream.common.private_files import (
    NotPrivateError,
    check_private,
    make_private_directory,
    read_private,
    runtime_directory,
    write_private,
)


@dataclass(frozen=True)
class RunningService:
    """A running service: its URL, token and kind: `jobs` of a program, a `cluster`, a `history` server."""

    url: str
    token: str | None
    pid: int
    kind: str


@dataclass(frozen=True)
class KilledService:
    """A service whose process was killed."""

    url: str
    pid: int
    kind: str
    log: str | None

    def __str__(self) -> str:
        label = {"cluster": "The cluster", "history": "The history server"}.get(self.kind, "The program")
        jobs = ", and its jobs ended with it" if self.kind != "history" else ""
        log = f" Its log is {self.log}." if self.log else ""
        return f"{label} at {self.url} (process {self.pid}) was killed{jobs}.{log}"


class RunFile:
    """The run file of this process."""

    def __init__(
        self,
        url: str,
        token: str | None,
        kind: str = "jobs",
        owned_directories: Sequence[str] = (),
        log: str | None = None,
    ) -> None:
        """Describe the service of this process.

        Args:
            url: its URL.
            token: the token for clients of this user.
            kind: its kind.
            owned_directories: directories to delete if the process is killed.
            log: its log file.
        """
        self._url = url
        self._token = token
        self._kind = kind
        self._owned_directories = list(owned_directories)
        self._log = log
        self._path = os.path.join(runtime_directory(), f"{os.getpid()}.json")

    def write(self) -> None:
        """Write the file, readable by this user only; it is deleted at exit."""
        make_private_directory(os.path.dirname(self._path))
        text = json.dumps(
            {
                "url": self._url,
                "token": self._token,
                "kind": self._kind,
                "owner": this_process("service"),
                "leavings": self._owned_directories,
                "log": self._log,
            }
        )
        write_private(self._path, text.encode())
        atexit.register(self.remove)

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            os.remove(self._path)


class TokenFile:
    """The token of a service in a file that only this user can read: rest-<port>.token."""

    def __init__(self, port: int, token: str) -> None:
        self.path = os.path.join(runtime_directory(), f"rest-{port}.token")
        self._token = token

    def write(self) -> None:
        make_private_directory(os.path.dirname(self.path))
        write_private(self.path, self._token.encode())
        atexit.register(self.remove)

    def remove(self) -> None:
        """Delete the file, unless another service at the same port has replaced it."""
        with suppress(FileNotFoundError):
            if read_private(self.path) == self._token.encode():
                os.remove(self.path)


def running_services(killed: list[KilledService] | None = None) -> Iterator[RunningService]:
    """Yield the services of this user's processes.

    Deletes run files of killed processes, and the directories these have left behind.

    Args:
        killed: receives the killed services.

    Raises:
        NotPrivateError: other users can access the directory of run files.
    """
    directory = runtime_directory()
    if not os.path.lexists(directory):
        return
    check_private(directory)
    names = sorted(os.listdir(directory))
    for name in (n for n in names if n.endswith(".json")):
        path = os.path.join(directory, name)
        try:
            with open(path) as file:
                content = json.load(file)
            pid = int(name.removesuffix(".json"))
            service = RunningService(content["url"], content["token"], pid, content["kind"])
            if is_alive(content["owner"]):
                yield service
                continue
            killed_service = KilledService(service.url, pid, service.kind, content.get("log"))
            owned_directories = [str(owned) for owned in content.get("leavings", [])]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        with suppress(FileNotFoundError):
            os.remove(path)
        port = service.url.rpartition(":")[2]
        if service.token is not None and port.isdecimal():
            TokenFile(int(port), service.token).remove()
        for owned in owned_directories:
            _clear(owned)
        if killed is not None:
            killed.append(killed_service)


def _clear(directory: str) -> None:
    """Delete a directory left behind by a process, if Millstream created it."""
    if not os.path.basename(directory).startswith("millstream-"):
        return
    with suppress(FileNotFoundError, NotPrivateError):
        check_private(directory)
        shutil.rmtree(directory, ignore_errors=True)

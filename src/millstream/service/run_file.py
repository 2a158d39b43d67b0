"""Run files: how a command line in another terminal finds the job service of a process of the same user."""

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
class Found:
    """A service that runs: where, what to show there, and what it is: `jobs` of a program, a `cluster`, a `history`."""

    url: str
    token: str | None
    pid: int
    kind: str


@dataclass(frozen=True)
class Gone:
    """A service whose process was killed: where it was, and where its log is, if it has one."""

    url: str
    pid: int
    kind: str
    log: str | None

    def __str__(self) -> str:
        what = {"cluster": "The cluster", "history": "The history server"}.get(self.kind, "The program")
        with_it = ", and its jobs have ended with it" if self.kind != "history" else ""
        log = f" What it said is in {self.log}." if self.log else ""
        return f"{what} that was at {self.url} (process {self.pid}) was killed{with_it}.{log}"


class RunFile:
    """The run file of this process."""

    def __init__(
        self,
        url: str,
        token: str | None,
        kind: str = "jobs",
        leavings: Sequence[str] = (),
        log: str | None = None,
    ) -> None:
        """Say where the service of this process is.

        Args:
            url: its address.
            token: what this user's clients show there.
            kind: what it is.
            leavings: directories that nobody needs without it.
            log: the file it logs to.
        """
        self._url = url
        self._token = token
        self._kind = kind
        self._leavings = list(leavings)
        self._log = log
        self._path = os.path.join(runtime_directory(), f"{os.getpid()}.json")

    def write(self) -> None:
        """Say where the service is, to this user alone; the file goes with the process."""
        make_private_directory(os.path.dirname(self._path))
        text = json.dumps(
            {
                "url": self._url,
                "token": self._token,
                "kind": self._kind,
                "owner": this_process("service"),
                "leavings": self._leavings,
                "log": self._log,
            }
        )
        write_private(self._path, text.encode())
        atexit.register(self.remove)

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            os.remove(self._path)


class TokenFile:
    """The token of a service of this user's, in a file that only this user can read: rest-<port>.token."""

    def __init__(self, port: int, token: str) -> None:
        self.path = os.path.join(runtime_directory(), f"rest-{port}.token")
        self._token = token

    def write(self) -> None:
        make_private_directory(os.path.dirname(self.path))
        write_private(self.path, self._token.encode())
        atexit.register(self.remove)

    def remove(self) -> None:
        """Delete the file, unless it is already that of another service at the same port."""
        with suppress(FileNotFoundError):
            if read_private(self.path) == self._token.encode():
                os.remove(self.path)


def running_services(gone: list[Gone] | None = None) -> Iterator[Found]:
    """Yield the services of this user's processes.

    Files of processes that are gone are deleted, with what these have left behind.

    Args:
        gone: gets those.

    Raises:
        NotPrivateError: the directory for run files is not this user's alone.
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
                about = json.load(file)
            pid = int(name.removesuffix(".json"))
            found = Found(about["url"], about["token"], pid, about["kind"])
            if is_alive(about["owner"]):
                yield found
                continue
            lost = Gone(found.url, pid, found.kind, about.get("log"))
            leavings = [str(one) for one in about.get("leavings", [])]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        with suppress(FileNotFoundError):
            os.remove(path)
        port = found.url.rpartition(":")[2]
        if found.token is not None and port.isdecimal():
            TokenFile(int(port), found.token).remove()
        for one in leavings:
            _clear(one)
        if gone is not None:
            gone.append(lost)


def _clear(directory: str) -> None:
    """Delete a directory that a process has left behind, if it is one of ours."""
    if not os.path.basename(directory).startswith("millstream-"):
        return
    with suppress(FileNotFoundError, NotPrivateError):
        check_private(directory)
        shutil.rmtree(directory, ignore_errors=True)

"""Run files: how a command line in another terminal finds the job service of a process of the same user."""

from __future__ import annotations

import atexit
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from millstream.checkpoint.owner import is_alive, this_process


def _directory() -> str:
    """Return the user's own directory for such files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime) and os.access(runtime, os.W_OK):
        return os.path.join(runtime, "millstream")
    return os.path.join(tempfile.gettempdir(), f"millstream-run-{os.getuid()}")


@dataclass(frozen=True)
class Found:
    """A service that runs: where, what to show there, and what it is: `jobs` of a program, a `cluster`, a `history`."""

    url: str
    token: str | None
    pid: int
    kind: str


class RunFile:
    """The run file of this process."""

    def __init__(self, url: str, token: str | None, kind: str = "jobs") -> None:
        self._url = url
        self._token = token
        self._kind = kind
        self._path = os.path.join(_directory(), f"{os.getpid()}.json")

    def write(self) -> None:
        """Say where the service is, to this user alone; the file goes with the process."""
        directory = os.path.dirname(self._path)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        about = os.stat(directory)
        if about.st_uid != os.getuid() or about.st_mode & 0o077:
            # Somebody else's, or open to others: a token has no place there.
            return
        text = json.dumps(
            {"url": self._url, "token": self._token, "kind": self._kind, "owner": this_process("service")}
        )
        # Another name first: nobody reads half of it.
        descriptor = os.open(f"{self._path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(f"{self._path}.new", self._path)
        atexit.register(self.remove)

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            os.remove(self._path)


def running_services() -> Iterator[Found]:
    """Yield the services of this user's processes; files of processes that are gone are deleted."""
    directory = _directory()
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    for name in (n for n in names if n.endswith(".json")):
        path = os.path.join(directory, name)
        try:
            with open(path) as file:
                about = json.load(file)
            found = Found(about["url"], about["token"], int(name.removesuffix(".json")), about["kind"])
            alive = is_alive(about["owner"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if alive:
            yield found
        else:
            with suppress(FileNotFoundError):
                os.remove(path)

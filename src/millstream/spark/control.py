"""The embedded Spark's line to its daemons: a directory of Unix sockets, one a daemon.

Over it the driver ends a job's slot processes at once, without waiting for a free core or for Spark to notice that a
task was cancelled. On a cluster the daemons are elsewhere, and a Spark job carries the request instead.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket

from millstream.common.errors import IncurableError
from millstream.common.private_files import socket_directory

DIRECTORY_VARIABLE = "MILLSTREAM_CONTROL_DIR"


_directories: list[str] = []
# Those that were made here.
_made: list[str] = []


def make_directory() -> str:
    """Make the directory; the daemons-to-be find it in the environment of their JVM."""
    for former in _made:
        # Of a Spark that has ended, and its daemons with it.
        shutil.rmtree(former, ignore_errors=True)
    directory = socket_directory("millstream-control-")
    _made[:] = [directory]
    _directories.append(directory)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def use_directory(directory: str) -> None:
    """Reach the daemons of a Spark that another process of this machine has started."""
    _directories.append(directory)


def directory() -> str | None:
    """Return where the daemons are reached; None if they are not."""
    return _directories[-1] if _directories else None


def is_embedded() -> bool:
    """Return whether the daemons can be reached: Spark was started here, or by the cluster this process belongs to."""
    return bool(_directories)


def check() -> None:
    """Refuse to start anything where somebody has deleted the directory: no daemon can be reached any more."""
    if _directories and not os.path.isdir(_directories[-1]):
        raise IncurableError(
            f"The directory {_directories[-1]}, by which Spark's Python processes are reached, was deleted under the "
            "running program, by a cleaner of temporary files perhaps. Start the program again, with TMPDIR a "
            "directory that nobody cleans."
        )


def release(job_key: str) -> None:
    """End the slot processes of an execution, or of all executions of a job; returns when they are gone."""
    _ask_all({"release": job_key})


def frozen_slot(job_key: str) -> str:
    """Return which slot of an execution was found frozen, in words; "" if none was."""
    return next((answer for answer in _ask_all({"frozen": job_key}) if answer), "")


def _ask_all(request: dict[str, str]) -> list[str]:
    directory, answers = _directories[-1], []
    # Where it was deleted they cannot be told; they end with the driver.
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            try:
                control.connect(os.path.join(directory, name))
            except (ConnectionRefusedError, FileNotFoundError):
                # A daemon that has died; its slots died with it.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(directory, name))
                continue
            control.settimeout(10)
            # A daemon may be ending just now, and its slots with it.
            with contextlib.suppress(ConnectionError):
                control.sendall(json.dumps(request).encode())
                answers.append(control.recv(4096).decode())
    return answers

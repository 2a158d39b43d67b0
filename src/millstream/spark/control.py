"""Control sockets of the embedded Spark's daemons: a directory with one Unix socket for each daemon.

Over it the driver ends a job's slot processes at once, without waiting for a free core or for Spark to notice a
cancelled task. On a cluster the daemons are on other machines, and a Spark job carries the request.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket

from millstream.common.errors import UnrecoverableError
from millstream.common.private_files import socket_directory

DIRECTORY_VARIABLE = "MILLSTREAM_CONTROL_DIR"


_directories: list[str] = []
# Directories created by this process.
_created: list[str] = []


def make_directory() -> str:
    """Create the directory; daemons read its path from the environment of their JVM."""
    for former in _created:
        # The directory of a Spark that has ended with its daemons.
        shutil.rmtree(former, ignore_errors=True)
    directory = socket_directory("millstream-control-")
    _created[:] = [directory]
    _directories.append(directory)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def use_directory(directory: str) -> None:
    """Use the daemons of a Spark that another process of this machine has started."""
    _directories.append(directory)


def directory() -> str | None:
    """Return the directory of control sockets, None if there is none."""
    return _directories[-1] if _directories else None


def is_embedded() -> bool:
    """Return whether the daemons can be reached: Spark is embedded in this process or in its session cluster."""
    return bool(_directories)


def check() -> None:
    """Raise UnrecoverableError if the directory was deleted: the daemons cannot be reached."""
    if _directories and not os.path.isdir(_directories[-1]):
        raise UnrecoverableError(
            f"The directory {_directories[-1]} of the control sockets of Spark's Python processes was deleted while "
            "the program was running, perhaps by a cleaner of temporary files: restart the program with TMPDIR set to "
            "a directory that is not cleaned."
        )


def release(job_key: str) -> None:
    """End the slot processes of an execution or a job; return when they have ended."""
    _ask_all({"release": job_key})


def frozen_slot(job_key: str) -> str:
    """Return the description of an execution's frozen slot, or an empty string."""
    return next((answer for answer in _ask_all({"frozen": job_key}) if answer), "")


def _ask_all(request: dict[str, str]) -> list[str]:
    directory, answers = _directories[-1], []
    # If it was deleted, daemons cannot be reached; they end with the driver.
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            try:
                control.connect(os.path.join(directory, name))
            except (ConnectionRefusedError, FileNotFoundError):
                # The daemon has died, and its slots with it.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(directory, name))
                continue
            control.settimeout(10)
            # The daemon may be ending.
            with contextlib.suppress(ConnectionError):
                control.sendall(json.dumps(request).encode())
                answers.append(control.recv(4096).decode())
    return answers

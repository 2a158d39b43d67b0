"""Who owns a job's directory: a process of some host, recognized even when its number is used again."""

from __future__ import annotations

import os
import socket
from typing import Any


def this_process(job_name: str) -> dict[str, Any]:
    """Describe this process as the owner of a job."""
    pid = os.getpid()
    return {"job": job_name, "host": socket.gethostname(), "pid": pid, "started": _started(pid), "system": _system()}


def is_here(owner: dict[str, Any]) -> bool:
    """Tell whether an owner's process is, or was, one that this process would see: on this host, since it started."""
    return owner.get("host") == socket.gethostname() and owner.get("system") == _system()


def is_alive(owner: dict[str, Any]) -> bool:
    """Tell whether an owner still runs. One on another host counts as alive: who knows better can delete the file."""
    if owner.get("released"):
        return False
    if owner.get("host") != socket.gethostname():
        return True
    pid = owner.get("pid")
    started = _started(pid) if isinstance(pid, int) else None
    return started is not None and started == owner.get("started")


def _system() -> str:
    """Return what tells apart the starts of machines, and the containers on one: processes have numbers within it."""
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f"{f.read().strip()} {os.readlink('/proc/self/ns/pid')}"


def _started(pid: int) -> str | None:
    """Return when a process was started, in ticks since the machine was; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            state, *rest = f.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # One that has ended and that nobody has asked about yet is still listed, but does nothing any more.
    return None if state in "ZX" else rest[18]

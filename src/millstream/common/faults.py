"""Fault points: named steps of the epoch and commit protocol at which tests inject failures.

In production a fault point only tests a variable for None. A test arms one, in the driver and in the workers, with the
option `millstream.testing.fault`:

    <step>|<action>|<n>|<marker file>

The action is one of raise, freeze, kill-worker, kill-executor, kill-driver, kill-PID; it happens the nth time the step
is reached.

The marker file makes it happen once across all processes and restarts.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from functools import partial

from millstream.common.errors import MillstreamError

SETTING = "millstream.testing.fault"

# All steps, in the order of an epoch.
TASK_POINTS = (
    "task.before-delta",
    "task.after-delta",
    "task.after-stage",
    "task.before-report",
    "task.after-report",
)
DRIVER_POINTS = (
    "driver.before-epoch",
    "driver.before-ack",
    "driver.after-ack",
    "driver.before-manifest",
    "driver.in-manifest",
    "driver.after-manifest",
    "driver.before-commit",
    "driver.in-commit",
    "driver.after-commit",
    "driver.before-clean-up",
    "driver.in-clean-up",
    "driver.after-clean-up",
)
# Reached only during recovery.
RECOVERY_POINTS = ("driver.before-recover", "driver.in-recover", "driver.after-recover")

# Reached with several job managers: the manifest is written and not yet published.
PUBLISH_POINTS = ("driver.before-publish",)

# Reached between two transactions of one commit.
TRANSACTION_POINTS = ("driver.between-transactions",)

# Reached when the checkpoints of an ended job are deleted.
END_POINTS = ("driver.after-removal",)

_reached: Callable[[str], None] | None = None


def fault_point(name: str) -> None:
    """Mark a step of the protocol."""
    if _reached is not None:
        _reached(name)


class InjectedFault(MillstreamError):
    """The error that a fault point raises."""


def arm(setting: str | None) -> None:
    """Arm a fault in this process; None disarms."""
    global _reached
    if setting is None:
        _reached = None
        return
    step, action, count, marker = setting.split("|")
    pid = action.removeprefix("kill-")
    act = partial(_kill, int(pid)) if pid.isdigit() else _ACTIONS[action]
    _reached = partial(_reach, step, act, [int(count)], marker)


def _reach(step: str, act: Callable[[str], None], left: list[int], marker: str, name: str) -> None:
    if name != step:
        return
    left[0] -= 1
    if left[0] > 0:
        return
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    act(name)


def _raise(step: str) -> None:
    raise InjectedFault(f"injected at {step}")


def _freeze(_: str) -> None:
    """Stop this process until SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)
    # Another thread may be stopped first.
    select.select((), (), (), 0.2)


def _kill(pid: int, _: str) -> None:
    """Kill another process, such as a server that the job talks to."""
    os.kill(pid, signal.SIGKILL)


def _kill_worker(_: str) -> None:
    """Kill this worker; in the driver, one of its workers."""
    if _java_above():
        os.kill(os.getpid(), signal.SIGKILL)
    daemons = [d for java in _children(os.getpid()) if _name(java) == "java" for d in _children(java)]
    workers = [w for d in daemons for w in _children(d)]
    # Slots are children of the daemon, or of one of its children if they are resident.
    slots = [s for w in workers for s in (w, *_children(w)) if _name(s).startswith("millstream-s")]
    for worker in (slots or workers)[-1:]:
        os.kill(worker, signal.SIGKILL)


def _kill_executor(_: str) -> None:
    """Kill the JVM of this worker; in the driver, the JVM that it started."""
    above = _java_above()
    for java in [above] if above else [c for c in _children(os.getpid()) if _name(c) == "java"]:
        os.kill(java, signal.SIGKILL)
    if above:
        signal.pause()


def _kill_driver(_: str) -> None:
    """Kill the driver: this process, or the parent of this worker's JVM."""
    java = _java_above()
    os.kill(_parent(java) if java else os.getpid(), signal.SIGKILL)
    signal.pause()


def _java_above() -> int:
    """Return the process id of the JVM above this process, 0 in the driver."""
    processes, pid = _processes(), os.getpid()
    while pid > 1 and pid in processes:
        pid, _ = processes[pid]
        if processes.get(pid, (0, ""))[1] == "java":
            return pid
    return 0


def _name(pid: int) -> str:
    return _processes().get(pid, (0, ""))[1]


def _parent(pid: int) -> int:
    return _processes().get(pid, (0, ""))[0]


def _children(pid: int) -> list[int]:
    return [child for child, (parent, _) in _processes().items() if parent == pid]


def _processes() -> dict[int, tuple[int, str]]:
    """Return the parent and the name of each process."""
    with os.popen("ps -A -o pid= -o ppid= -o comm=") as lines:
        rows = [line.split(None, 2) for line in lines]
    return {int(pid): (int(parent), os.path.basename(name.strip())) for pid, parent, name in rows}


_ACTIONS = {
    "raise": _raise,
    "freeze": _freeze,
    "kill-worker": _kill_worker,
    "kill-executor": _kill_executor,
    "kill-driver": _kill_driver,
}

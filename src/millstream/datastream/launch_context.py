"""The context in which a process runs a program: command-line settings, job listeners and termination signals."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.common.configuration import Configuration
from millstream.common.job_execution_result import JobExecutionResult
from millstream.graph.job_graph import JobGraph, build_job_graph
from millstream.graph.plan import execution_plan
from millstream.graph.stream_graph import StreamGraph

# Imported late: loading it overlaps with Spark's start, and workers never need it.
if TYPE_CHECKING:
    from millstream.jobmaster.job import JobMaster

_command_line: dict[str, str] = {}
_overrides: dict[str, str] = {}


def set_command_line(settings: dict[str, str], overrides: dict[str, str] | None = None) -> None:
    """Set the command-line settings of all environments of this process.

    Args:
        settings: defaults of environments; the program may override them.
        overrides: settings that override the program's.
    """
    _command_line.update(settings)
    _overrides.update(overrides or {})


def with_command_line(configuration: Configuration | None) -> Configuration:
    """Return the initial configuration of an environment."""
    merged = Configuration(configuration)
    merged.add_all(Configuration.from_dict(_command_line))
    return merged


def with_overrides(configuration: Configuration) -> Configuration:
    """Return the configuration of a job: the program's settings and the overrides."""
    merged = Configuration(configuration)
    merged.add_all(Configuration.from_dict(_overrides))
    return merged


# The exit code once the program must end. An exception that a signal raises can be lost: Python swallows it
# when it arrives in the middle of a destructor.
_exit_codes: list[int] = []


def end_program(code: int) -> None:
    """End the program with an exit code, even while it waits for a job; for signal handlers."""
    _exit_codes.append(code)
    sys.exit(code)


def end_on_signals() -> None:
    """End the program in order on SIGTERM and SIGHUP, so that no temporary directory remains.

    Handlers set by the program or its parent (nohup) stay in place.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, _: end_program(128 + number))


def end_signals() -> list[int]:
    """Return the signals that stop a server: without SIGHUP if the parent (nohup) ignores it."""
    hang_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hang_up]


def await_end(job: JobMaster) -> JobExecutionResult:
    """Wait for a job's end, or for the program's."""
    while True:
        wait([job.result], timeout=0.5)
        if job.result.done():
            for end in _ends.pop(id(job), []):
                end()
            return job.result.result()
        if _exit_codes:
            sys.exit(_exit_codes[0])


# Called with every job that a program starts; each may return a callback for the job's end.
_watchers: list[Callable[[JobMaster], Callable[[], None]]] = []
_ends: dict[int, list[Callable[[], None]]] = {}


def watch_jobs(watch: Callable[[JobMaster], Callable[[], None]]) -> None:
    """Call a listener with every job that a program of this process starts.

    Args:
        watch: takes the job; returns a callback for its end, which runs before the program continues.
    """
    _watchers.append(watch)


def stop_watching(watch: Callable[[JobMaster], Callable[[], None]]) -> None:
    """Remove a listener."""
    _watchers.remove(watch)


def clear_watchers() -> None:
    _watchers.clear()


def notify_watchers(job: JobMaster) -> None:
    if _watchers:
        _ends[id(job)] = [watch(job) for watch in _watchers]


_plans_only: list[bool] = []


class ProgramPlanned(BaseException):
    """Raised instead of running a program when only its plan is requested.

    Not an Exception: an `except Exception` of the program must not catch it.
    """

    def __init__(self, graph: StreamGraph, configuration: Configuration) -> None:
        super().__init__("the program was only planned")
        self._graph = graph
        self.configuration = configuration

    def json(self) -> str:
        return execution_plan(self._graph)

    def job_graph(self) -> JobGraph:
        return build_job_graph(self._graph)


@contextmanager
def plan_only() -> Iterator[None]:
    """Raise ProgramPlanned where programs would run."""
    _plans_only.append(True)
    try:
        yield
    finally:
        _plans_only.pop()


def stop_if_only_planned(graph: StreamGraph, configuration: Configuration) -> None:
    """Raise ProgramPlanned if only the plan is requested."""
    if _plans_only:
        raise ProgramPlanned(graph, configuration)

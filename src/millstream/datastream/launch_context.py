"""What the process that runs a program was told: settings of its command line, whom to tell of jobs, when to end."""

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

# Not yet: it is imported while Spark starts, and not at all by workers.
if TYPE_CHECKING:
    from millstream.jobmaster.job import JobMaster

_command_line: dict[str, str] = {}
_last_word: dict[str, str] = {}


def set_command_line(settings: dict[str, str], last_word: dict[str, str] | None = None) -> None:
    """Remember settings that every environment of this process shall have: those of the command line.

    Args:
        settings: what environments begin with; the program can set something else.
        last_word: what counts whatever the program sets.
    """
    _command_line.update(settings)
    _last_word.update(last_word or {})


def with_command_line(configuration: Configuration | None) -> Configuration:
    """Return what an environment begins with."""
    merged = Configuration(configuration)
    merged.add_all(Configuration.from_dict(_command_line))
    return merged


def with_last_word(configuration: Configuration) -> Configuration:
    """Return what a job runs with: a program's settings, and what counts whatever they are."""
    merged = Configuration(configuration)
    merged.add_all(Configuration.from_dict(_last_word))
    return merged


# Set when the program shall end, to its exit code. An exception that a signal raises can be lost: Python swallows it
# when it comes in the middle of a destructor.
_exit_codes: list[int] = []


def end_program(code: int) -> None:
    """Have the program end, with an exit code, also when it waits for a job; for signal handlers."""
    _exit_codes.append(code)
    sys.exit(code)


def end_on_signals() -> None:
    """Have SIGTERM and SIGHUP end the program in good order, so that no directory is left behind.

    What the program, or whoever started it (nohup), has decided about a signal is left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, _: end_program(128 + number))


def end_signals() -> list[int]:
    """Return the signals that ask a server to end: not SIGHUP where whoever started it (nohup) ignores that."""
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


# Told of every job that a program starts, and what each of them wants done before the program goes on after its end.
_watchers: list[Callable[[JobMaster], Callable[[], None]]] = []
_ends: dict[int, list[Callable[[], None]]] = {}


def watch_jobs(watch: Callable[[JobMaster], Callable[[], None]]) -> None:
    """Have a function called with every job that a program of this process starts.

    Args:
        watch: takes the job, and returns what is to be called when it has ended, before the program goes on.
    """
    _watchers.append(watch)


def stop_watching(watch: Callable[[JobMaster], Callable[[], None]]) -> None:
    """Have a function not called any more."""
    _watchers.remove(watch)


def forget_watchers() -> None:
    _watchers.clear()


def tell_watchers(job: JobMaster) -> None:
    if _watchers:
        _ends[id(job)] = [watch(job) for watch in _watchers]


_plans_only: list[bool] = []


class ProgramPlanned(BaseException):
    """Raised in place of running a program when only its plan is wanted.

    Not an Exception: no `except Exception` of the program's own shall stop it.
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
    """Make programs stop where they would run, with ProgramPlanned."""
    _plans_only.append(True)
    try:
        yield
    finally:
        _plans_only.pop()


def stop_if_only_planned(graph: StreamGraph, configuration: Configuration) -> None:
    """Stop a program that is about to run, where only its plan is wanted."""
    if _plans_only:
        raise ProgramPlanned(graph, configuration)

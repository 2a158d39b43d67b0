"""A clock that only slow functions advance, and programs whose epochs are slices of it."""

from __future__ import annotations

from typing import Any

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import LocalJob, ManualClock

# Functions are pickled: a module global that they use is the one of the unpickling process.
CLOCK = ManualClock()
SLICE = {"millstream.epoch.slice": "200 ms"}
CALLS: list[Any] = []


def start_anew() -> None:
    CLOCK.set(0)
    CALLS.clear()


def slowly(value: Any) -> Any:
    CLOCK.advance(50)
    return value


def program(parallelism: int = 1, **settings: str) -> StreamExecutionEnvironment:
    config = Configuration.from_dict({**SLICE, **settings})
    return StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)


def lengths_of_epochs(job: LocalJob) -> list[int]:
    lengths = []
    while not job.is_finished:
        before = CLOCK()
        job.run_epoch()
        lengths.append(CLOCK() - before)
    return lengths

"""Every transcript on the production operators without Spark, step by step, and with random epochs."""

from __future__ import annotations

import random

import pytest

from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import LocalJob, ManualClock
from tests.support.transcripts_runner import Case, build, cases, parse

CASES = cases()


class SettableClock(ManualClock):
    def set(self, millis: int) -> None:
        self.millis = millis


def dropped(job: LocalJob) -> int:
    return sum(v for k, v in job.progress.metrics().items() if k.endswith("numLateRecordsDropped"))


def test_transcripts_are_complete_and_unique() -> None:
    assert len(CASES) >= 150
    assert len({c.name for c in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_transcript_step_by_step(case: Case) -> None:
    """Run one step per epoch: each `expect` sees exactly the output since the previous one."""
    clock = SettableClock()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    sink = build(env, case, clock, epoch=1)
    job = LocalJob(env, clock)
    for step in case.steps:
        if isinstance(step, dict):
            assert sorted(sink.results()) == sorted(step["expect"]), (step, case.steps)
            sink.clear()
        elif parse(step) is None:
            job.run()
        else:
            job.run_epoch()
    assert dropped(job) == case.spec.get("dropped", dropped(job))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_transcript_is_independent_of_epochs_and_restarts(case: Case) -> None:
    """Random epochs, three subtasks and process restarts give the same output."""
    dice = random.Random(case.name)
    clock = SettableClock()
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(3)
    sink = build(env, case, clock)
    job = LocalJob(env, clock, epoch_sizes=lambda: dice.randint(1, 4))
    while not job.is_finished:
        job.run_epoch()
        if dice.random() < 0.5:
            job.restart_slots()
    assert sorted(sink.results()) == case.expected()

"""The short form of `make chaos`: a fault at some steps of the checkpoint protocol."""

from __future__ import annotations

import pytest

from millstream.common.faults import DRIVER_POINTS, RECOVERY_POINTS, TASK_POINTS, TRANSACTION_POINTS, arm
from millstream.testing.servers.kafka import KafkaBroker
from tests.faults.cases import JOBS, KAFKA, KILL_BROKER, RESTART_POINTS, Case, cases, kafka_cases, run, run_with_kafka

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("config")]

# These seeds choose early times: on a busy machine a job takes few checkpoints.
CASES = [
    Case("task.after-delta", "raise", 0),
    Case("task.after-stage", "kill-worker", 0),
    Case("task.after-report", "kill-worker", 1),
    Case("driver.before-ack", "raise", 0),
    Case("driver.after-ack", "kill-worker", 2),
    Case("driver.after-manifest", "raise", 0),
    Case("driver.before-commit", "raise", 1),
    Case("driver.in-commit", "raise", 0),
    Case("driver.in-clean-up", "raise", 0),
    Case("driver.in-manifest", "kill-driver", 0),
    Case("driver.before-commit", "kill-driver", 0),
    Case("driver.after-recover", "kill-driver", 0),
    # Aggregate, join and window into files.
    Case("task.after-delta", "kill-worker", 0, job="sql"),
    Case("task.after-stage", "raise", 1, job="sql"),
    Case("driver.in-commit", "raise", 0, job="sql"),
    Case("driver.before-commit", "kill-driver", 0, job="sql"),
    # All other stateful SQL operators; the job modules list them.
    Case("driver.after-commit", "raise", 4, job="sql-ranks"),
    Case("task.after-report", "kill-worker", 0, job="sql-joins"),
    Case("restart.from-savepoint", "to-3", 0, job="sql-joins"),
    Case("driver.in-clean-up", "raise", 0, job="sql-changes"),
    Case("task.after-stage", "kill-worker", 0, job="sql-keys"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_job_is_exactly_once_after_fault(case: Case) -> None:
    try:
        outcome = run(case)
    finally:
        arm(None)
    assert outcome.injected
    assert outcome.differences == 0


KAFKA_CASES = [
    Case("task.after-stage", "kill-worker", 0, job=KAFKA),
    Case("driver.after-manifest", "kill-driver", 0, job=KAFKA),
    Case("driver.between-transactions", "raise", 0, job=KAFKA),
    Case("driver.before-commit", KILL_BROKER, 0, job=KAFKA),
]


@pytest.mark.parametrize("case", KAFKA_CASES, ids=str)
def test_kafka_job_is_exactly_once_for_read_committed_consumer_after_fault(case: Case, kafka: KafkaBroker) -> None:
    try:
        outcome = run_with_kafka(case, kafka)
    finally:
        arm(None)
    assert outcome.injected
    assert outcome.differences == 0


STEPS = {*TASK_POINTS, *DRIVER_POINTS, *RECOVERY_POINTS}


@pytest.mark.parametrize("job", JOBS)
def test_fault_cases_cover_every_step_of_job(job: str) -> None:
    assert {c.step for c in cases(1, job)} == STEPS | set(RESTART_POINTS)


def test_fault_cases_of_kafka_cover_every_step_and_transaction_point() -> None:
    assert {c.step for c in kafka_cases(1)} == STEPS | set(TRANSACTION_POINTS)

"""What can go wrong where, and one run of a job with it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.faults import job, kafka_job, sql_job

from millstream.common import Configuration
from millstream.common.faults import DRIVER_POINTS, RECOVERY_POINTS, SETTING, TASK_POINTS, TRANSACTION_POINTS
from millstream.testing.kafka import KafkaBroker

ROOT = Path(__file__).resolve().parents[2]
KILL_BROKER = "kill-broker"
KAFKA = "kafka"
# The jobs, each a module; the one with Kafka needs a broker beside it.
JOBS = {"stream": job, "sql": sql_job}
WHATS = ("raise", "kill-worker", "kill-executor", "kill-driver")

# How often a step is reached in a run without faults is not known beforehand, but these are reached at least so often.
_OFTEN = {"task": 20, "driver": 6}
_FEW = {
    "driver.before-recover": 1,
    "driver.in-recover": 1,
    "driver.after-recover": 1,
    # With checkpoints, not with every epoch.
    "task.before-delta": 6,
    "task.after-delta": 6,
    "driver.between-transactions": 4,
}


@dataclass(frozen=True)
class Case:
    """A fault: at which step, what happens, and by which seed."""

    step: str
    what: str
    seed: int
    # Whether executors are processes of their own, as on a cluster, or are part of the driver's Spark.
    cluster: bool = False
    # Which of the jobs.
    job: str = "stream"

    @property
    def time(self) -> int:
        """The how manieth time the step is reached that it happens."""
        most = _FEW.get(self.step, _OFTEN[self.step.partition(".")[0]])
        # The first file that is written so is no manifest, but says who owns the directory.
        least = 2 if self.step == "driver.in-manifest" else 1
        return random.Random(f"{self.step} {self.what} {self.seed}").randint(least, most)

    def setting(self, directory: Path, broker: KafkaBroker | None = None) -> str:
        what = f"kill-{broker.pid}" if self.what == KILL_BROKER and broker is not None else self.what
        return f"{self.step}|{what}|{self.time}|{directory / 'fault'}"

    def __str__(self) -> str:
        where = " on a cluster" if self.cluster else ""
        which = "" if self.job == "stream" else f"{self.job}: "
        return f"{which}{self.step} {self.what}{where} (time {self.time}, seed {self.seed})"


@dataclass(frozen=True)
class Outcome:
    """How a case went: records lost or doubled, whether the fault happened at all."""

    differences: int
    injected: bool
    seconds: float


def cases(seeds: int, job: str = "stream") -> Iterator[Case]:
    """Yield every step with everything that can happen there."""
    for seed in range(seeds):
        for step in TASK_POINTS:
            for what in WHATS:
                yield Case(step, what, seed, job=job)
            yield Case(step, "kill-executor", seed, cluster=True, job=job)
        for step in DRIVER_POINTS:
            for what in WHATS:
                yield Case(step, what, seed, job=job)
        # These are reached only in a restart: the driver is killed in one, and the one after it must be right.
        for step in RECOVERY_POINTS:
            yield Case(step, "raise", seed, job=job)
            yield Case(step, "kill-driver", seed, job=job)


def kafka_cases(seeds: int) -> Iterator[Case]:
    """Yield every step with everything that can happen there, the broker's death too."""
    for case in cases(seeds, KAFKA):
        if not case.cluster:
            yield case
        if case.what == "raise":
            yield replace(case, what=KILL_BROKER)
    for seed in range(seeds):
        for step in TRANSACTION_POINTS:
            for what in (*WHATS, KILL_BROKER):
                yield Case(step, what, seed, job=KAFKA)


def run_with_kafka(case: Case, broker: KafkaBroker) -> Outcome:
    """Run the job from Kafka to Kafka with a fault, as often as it takes to get to its end."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millstream-faults-") as name:
        directory = Path(name)
        kafka_job.prepare(directory, broker)
        with kafka_job.revived(broker):
            if _needs_drivers(case):
                _run_as_drivers(case, directory, broker)
            else:
                config = Configuration().set_string(SETTING, case.setting(directory, broker))
                kafka_job.build(directory, config).execute(kafka_job.NAME)
            # The broker may have been killed last of all.
            differences = _differences(kafka_job.expected(), kafka_job.found(directory, broker))
        return Outcome(differences, (directory / "fault").exists(), time.monotonic() - started)


def _needs_drivers(case: Case) -> bool:
    return case.what == "kill-driver" or case.step in RECOVERY_POINTS or case.cluster


def _differences(expected: Counter[Any], found: Counter[Any]) -> int:
    return sum(((expected - found) + (found - expected)).values())


def run(case: Case) -> Outcome:
    """Run a job with a fault, as often as it takes to get to its end."""
    started, module = time.monotonic(), JOBS[case.job]
    with tempfile.TemporaryDirectory(prefix="millstream-faults-") as name:
        directory = Path(name)
        if _needs_drivers(case):
            _run_as_drivers(case, directory)
        else:
            config = Configuration().set_string(SETTING, case.setting(directory))
            module.build(directory, config).execute(module.NAME)
        differences = _differences(module.expected(), module.found(directory))
        return Outcome(differences, (directory / "fault").exists(), time.monotonic() - started)


def _run_as_drivers(case: Case, directory: Path, broker: KafkaBroker | None = None) -> None:
    """Run the job in processes of their own: when one is killed, the next goes on from the latest checkpoint."""
    fault = case.setting(directory, broker)
    if case.step in RECOVERY_POINTS:
        # Something else has to go wrong first.
        first = f"driver.after-ack|kill-driver|{random.Random(case.seed).randint(4, 10)}|{directory / 'first'}"
        _drive(case, directory, first, latest=False)
        assert (directory / "first").exists()
    for attempt in range(6):
        code = _drive(case, directory, fault, attempt > 0 or case.step in RECOVERY_POINTS)
        if code == 0:
            return
    raise AssertionError(f"{case} did not get to its end")


def _drive(case: Case, directory: Path, fault: str, latest: bool) -> int:
    module = kafka_job if case.job == KAFKA else JOBS[case.job]
    command = [sys.executable, "-m", module.__name__, str(directory), "--fault", fault]
    if case.cluster:
        command += ["--master", "local-cluster[2,2,1024]"]
    done = subprocess.run(
        command + (["--latest"] if latest else []), cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    # Killed, or failed before it could restart: both are what is being tried. Anything else is told.
    tried = "injected" in done.stderr or (case.what == KILL_BROKER and "does not answer" in done.stderr)
    if done.returncode not in (0, -signal.SIGKILL) and not tried:
        raise AssertionError(f"the job ended with code {done.returncode}:\n{done.stderr[-3000:]}")
    return done.returncode

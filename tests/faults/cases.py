"""What can go wrong where, and one run of a job with it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults import job, sql_job

from millstream.common import Configuration
from millstream.common.faults import DRIVER_POINTS, RECOVERY_POINTS, SETTING, TASK_POINTS

ROOT = Path(__file__).resolve().parents[2]
# The jobs, each a module.
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

    def setting(self, directory: Path) -> str:
        return f"{self.step}|{self.what}|{self.time}|{directory / 'fault'}"

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


def run(case: Case) -> Outcome:
    """Run a job with a fault, as often as it takes to get to its end."""
    started, module = time.monotonic(), JOBS[case.job]
    with tempfile.TemporaryDirectory(prefix="millstream-faults-") as name:
        directory = Path(name)
        if case.what == "kill-driver" or case.step in RECOVERY_POINTS or case.cluster:
            _run_as_drivers(case, directory)
        else:
            config = Configuration().set_string(SETTING, case.setting(directory))
            module.build(directory, config).execute(module.NAME)
        expected, found = module.expected(), module.found(directory)
        differences = sum(((expected - found) + (found - expected)).values())
        return Outcome(differences, (directory / "fault").exists(), time.monotonic() - started)


def _run_as_drivers(case: Case, directory: Path) -> None:
    """Run the job in processes of their own: when one is killed, the next goes on from the latest checkpoint."""
    fault = case.setting(directory)
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
    command = [sys.executable, "-m", JOBS[case.job].__name__, str(directory), "--fault", fault]
    if case.cluster:
        command += ["--master", "local-cluster[2,2,1024]"]
    done = subprocess.run(
        command + (["--latest"] if latest else []), cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    # Killed, or failed before it could restart: both are what is being tried. Anything else is told.
    if done.returncode not in (0, -signal.SIGKILL) and "injected" not in done.stderr:
        raise AssertionError(f"the job ended with code {done.returncode}:\n{done.stderr[-3000:]}")
    return done.returncode

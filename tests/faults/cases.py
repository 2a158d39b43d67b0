"""The fault cases, and one run of a job with a fault."""

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

from tests.faults import job, kafka_job, sql_changes_job, sql_job, sql_joins_job, sql_keys_job, sql_ranks_job
from tests.support.helpers import wait_until

from millstream.common import Configuration
from millstream.common.faults import DRIVER_POINTS, RECOVERY_POINTS, SETTING, TASK_POINTS, TRANSACTION_POINTS
from millstream.testing.servers.kafka import KafkaBroker

ROOT = Path(__file__).resolve().parents[2]
KILL_BROKER = "kill-broker"
KAFKA = "kafka"
# The modules of the jobs, except the Kafka job, which needs a broker.
JOBS = {
    "stream": job,
    "sql": sql_job,
    "sql-ranks": sql_ranks_job,
    "sql-joins": sql_joins_job,
    "sql-changes": sql_changes_job,
    "sql-keys": sql_keys_job,
}
# The job restarts with another parallelism: from the last checkpoint after the driver's death, or from a savepoint.
RESTART_POINTS = ("restart.from-checkpoint", "restart.from-savepoint")
RESCALED = {"to-1": 1, "to-3": 3}
ACTIONS = ("raise", "kill-worker", "kill-executor", "kill-driver")

# Lower bounds for the number of times that a run without faults reaches a step; the exact number varies.
_REACHED_BY_KIND = {"task": 20, "driver": 6, "restart": 5}
_REACHED_BY_STEP = {
    "driver.before-recover": 1,
    "driver.in-recover": 1,
    "driver.after-recover": 1,
    # Reached with checkpoints, not with every epoch.
    "task.before-delta": 6,
    "task.after-delta": 6,
    "driver.between-transactions": 4,
}


@dataclass(frozen=True)
class Case:
    """A fault: its step, its action and its seed."""

    step: str
    action: str
    seed: int
    # Whether executors are separate processes, as on a cluster, or part of the driver's Spark.
    cluster: bool = False
    # The name of the job.
    job: str = "stream"
    # Whether the job runs in one process, without Spark: fast, and only the driver can be killed.
    local: bool = False
    # Settings of the job, such as its state backend: KEY=VALUE.
    settings: tuple[str, ...] = ()

    @property
    def time(self) -> int:
        """The number of times the step is reached before the fault happens."""
        max_time = _REACHED_BY_STEP.get(self.step, _REACHED_BY_KIND[self.step.partition(".")[0]])
        # The first file written this way is not a manifest but the owner file of the directory.
        min_time = 2 if self.step == "driver.in-manifest" else 1
        return random.Random(f"{self.step} {self.action} {self.seed}").randint(min_time, max_time)

    def setting(self, directory: Path, broker: KafkaBroker | None = None) -> str:
        action = f"kill-{broker.pid}" if self.action == KILL_BROKER and broker is not None else self.action
        return f"{self.step}|{action}|{self.time}|{directory / 'fault'}"

    def __str__(self) -> str:
        where = " on a cluster" if self.cluster else " without Spark" if self.local else ""
        job = "" if self.job == "stream" else f"{self.job}: "
        return f"{job}{self.step} {self.action}{where} (time {self.time}, seed {self.seed})"


@dataclass(frozen=True)
class Outcome:
    """The result of a case: lost or duplicate facts, and whether the fault happened."""

    wrong: Counter[Any]
    injected: bool
    seconds: float

    @property
    def differences(self) -> int:
        """The number of lost or duplicate facts."""
        return self.wrong.total()

    def verdict(self) -> str:
        """Describe the differences, with their number by kind."""
        if not self.wrong:
            return "exactly once"
        kinds = Counter(fact[0] for fact in self.wrong.elements())
        return f"{self.differences} DIFFERENCES ({', '.join(f'{kind}: {count}' for kind, count in kinds.items())})"


def cases(seeds: int, job: str = "stream") -> Iterator[Case]:
    """Yield every step with every action that is possible there."""
    for seed in range(seeds):
        for step in TASK_POINTS:
            for action in ACTIONS:
                yield Case(step, action, seed, job=job)
            yield Case(step, "kill-executor", seed, cluster=True, job=job)
        for step in DRIVER_POINTS:
            for action in ACTIONS:
                yield Case(step, action, seed, job=job)
        # These steps are reached only in a restart: the driver is killed during it, and the next driver must recover.
        for step in RECOVERY_POINTS:
            yield Case(step, "raise", seed, job=job)
            yield Case(step, "kill-driver", seed, job=job)
        for step in RESTART_POINTS:
            for action in RESCALED:
                yield Case(step, action, seed, job=job)


def local_cases(seeds: int, job: str) -> Iterator[Case]:
    """Yield the cases that need no Spark."""
    for case in cases(seeds, job):
        if case.action in ("raise", "kill-driver", *RESCALED):
            yield replace(case, local=True)


def kafka_cases(seeds: int) -> Iterator[Case]:
    """Yield every step with every action that is possible there, including the broker's death."""
    for case in cases(seeds, KAFKA):
        if not case.cluster and case.step not in RESTART_POINTS:
            yield case
        if case.action == "raise":
            yield replace(case, action=KILL_BROKER)
    for seed in range(seeds):
        for step in TRANSACTION_POINTS:
            for action in (*ACTIONS, KILL_BROKER):
                yield Case(step, action, seed, job=KAFKA)


def run_with_kafka(case: Case, broker: KafkaBroker) -> Outcome:
    """Run the job from Kafka to Kafka with a fault, and restart it until it ends."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millstream-faults-") as name:
        directory = Path(name)
        kafka_job.prepare(directory, broker)
        with kafka_job.broker_restarts(broker):
            if _needs_drivers(case):
                _run_as_drivers(case, directory, broker)
            else:
                config = _config(case).set_string(SETTING, case.setting(directory, broker))
                kafka_job.build(directory, config).execute(kafka_job.NAME)
            # The broker may have been killed by the last action.
            differences = _differences(kafka_job.expected(), kafka_job.results(directory, broker))
        return Outcome(differences, (directory / "fault").exists(), time.monotonic() - started)


def _needs_drivers(case: Case) -> bool:
    return case.action == "kill-driver" or case.step in RECOVERY_POINTS or case.cluster


def _differences(expected: Counter[Any], actual: Counter[Any]) -> Counter[Any]:
    return (expected - actual) + (actual - expected)


def run(case: Case) -> Outcome:
    """Run a job with a fault, and restart it until it ends."""
    started, module = time.monotonic(), JOBS[case.job]
    with tempfile.TemporaryDirectory(prefix="millstream-faults-") as name:
        directory = Path(name)
        if case.step in RESTART_POINTS:
            _run_rescaled(case, directory)
        elif _needs_drivers(case):
            _run_as_drivers(case, directory)
        else:
            config = _config(case).set_string(SETTING, case.setting(directory))
            module.build(directory, config).execute(module.NAME)
        differences = _differences(module.expected(), module.results(directory))
        return Outcome(differences, (directory / "fault").exists(), time.monotonic() - started)


def _run_as_drivers(case: Case, directory: Path, broker: KafkaBroker | None = None) -> None:
    """Run each driver in its own process; when one is killed, the next restores the latest checkpoint."""
    fault = case.setting(directory, broker)
    if case.step in RECOVERY_POINTS:
        # Recovery requires another failure first.
        first = f"driver.after-ack|kill-driver|{random.Random(case.seed).randint(4, 10)}|{directory / 'first'}"
        _drive(case, directory, first, latest=False)
        assert (directory / "first").exists()
    for attempt in range(6):
        code = _drive(case, directory, fault, attempt > 0 or case.step in RECOVERY_POINTS)
        if code == 0:
            return
    raise AssertionError(f"{case} did not finish")


def _config(case: Case) -> Configuration:
    settings = dict(setting.split("=", 1) for setting in case.settings)
    return Configuration.from_dict(settings | ({"millstream.engine": "local"} if case.local else {}))


def _run_rescaled(case: Case, directory: Path) -> None:
    """Run a job to its middle, and then to its end with another parallelism."""
    parallelism, module = RESCALED[case.action], JOBS[case.job]
    if case.step == "restart.from-checkpoint":
        fault = f"driver.after-ack|kill-driver|{case.time + 3}|{directory / 'fault'}"
        assert _drive(case, directory, fault, latest=False) == -signal.SIGKILL
        assert _drive(case, directory, fault, True, f"parallelism.default={parallelism}") == 0
        return
    savepoint = _take_savepoint(case, directory)
    config = _config(case).set_string("execution.state-recovery.path", savepoint)
    config.set_integer("parallelism.default", parallelism)
    module.build(directory, config).execute(module.NAME)


def _take_savepoint(case: Case, directory: Path) -> str:
    """Stop a job in its middle; return the location of the savepoint."""
    module = JOBS[case.job]
    client = module.build(directory, _config(case)).execute_async(module.NAME)
    part = len(module.expected()) * case.time // 8
    wait_until(lambda: len(module.results(directory)) > part)
    savepoint = client.stop_with_savepoint(False, str(directory / "savepoints")).result()
    (directory / "fault").touch()
    return str(savepoint)


def _drive(case: Case, directory: Path, fault: str, latest: bool, *settings: str) -> int:
    module = kafka_job if case.job == KAFKA else JOBS[case.job]
    command = [sys.executable, "-m", module.__name__, str(directory), "--fault", fault]
    for key, value in (_config(case).to_dict() | dict(s.split("=") for s in settings)).items():
        command += ["--set", f"{key}={value}"]
    if case.cluster:
        command += ["--master", "local-cluster[2,2,1024]"]
    done = subprocess.run(
        command + (["--latest"] if latest else []), cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    # Killed, or failed before it could restart: both are expected. Any other failure is reported.
    was_injected = "injected" in done.stderr or (case.action == KILL_BROKER and "does not answer" in done.stderr)
    if done.returncode not in (0, -signal.SIGKILL) and not was_injected:
        raise AssertionError(f"the job ended with code {done.returncode}:\n{done.stderr[-3000:]}")
    return done.returncode

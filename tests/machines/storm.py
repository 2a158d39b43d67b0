"""One run of the job on a cluster of several machines, some of which fail meanwhile."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import job
from tests.support.spark_cluster import SparkCluster, Worker

ROOT = Path(__file__).resolve().parents[2]
# So that it is noticed soon that a machine is silent.
SILENCE = {"heartbeat.interval": "1 s", "heartbeat.timeout": "8 s"}
# Longer than any of them.
OUTAGE_SECONDS = 14.0
CALM_SECONDS = 4.0
# The job must have begun to write before something happens to it.
_BEGIN_SECONDS, _MOST_SECONDS = 300.0, 600.0


@dataclass
class Storm:
    """The faults injected into the machines, and their outcome."""

    cluster: SparkCluster
    directory: Path
    exchange: str
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    # Further settings of the job.
    settings: dict[str, str] = field(default_factory=dict)
    happened: list[str] = field(default_factory=list)
    # The longest time without a result after each fault.
    silences: list[float] = field(default_factory=list)

    def run(self, *faults: str) -> int:
        """Run the job with faults, one after the other; return by how many records it differs from the answer."""
        settings = {
            **self.cluster.settings(),
            **SILENCE,
            "spark.cores.max": "3",
            "millstream.exchange": self.exchange,
            job.RATE: "150",
            **self.settings,
        }
        reported = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "tests.faults.job", str(self.directory), *reported]
        job.make_database(self.directory)
        with (self.directory / "driver.log").open("wb") as log:
            driver = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        try:
            self._wait(lambda: self._results() > 100, driver, _BEGIN_SECONDS)
            for fault in faults:
                self._do(fault, driver)
            code = driver.wait(_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            reported = f"{self._results()} of {sum(job.expected().values())} results"  # type: ignore[assignment]
            raise AssertionError(f"the job did not end after {self.happened}: {reported}\n{self._log()}") from None
        finally:
            driver.kill()
        if code:
            raise AssertionError(f"the job ended with code {code}:\n{self._log()}")
        expected, actual = job.expected(), job.results(self.directory)
        return sum(((expected - actual) + (actual - expected)).values())

    def _do(self, fault: str, driver: subprocess.Popen[bytes]) -> None:
        """Let something happen to a machine that works for the job; wait until results come again."""
        if driver.poll() is not None:
            raise AssertionError(f"the job was over before {fault}:\n{self._log()}")
        worker = self.dice.choice(self._at_work())
        recorded = threading.Thread(target=self._listen, args=[driver])
        recorded.start()
        self.happened.append(f"{fault} {worker.address}")
        if fault == "add":
            self.cluster.add_worker()
        elif fault == "kill":
            worker.kill()
        elif fault == "kill-executor":
            worker.kill_executors()
        elif fault == "freeze":
            worker.freeze()
            time.sleep(OUTAGE_SECONDS)
            # It resumes where it was, which must not affect the result.
            worker.thaw()
        elif fault == "cut-off":
            worker.cut_off()
            time.sleep(OUTAGE_SECONDS)
            worker.join()
        elif fault == "part-from-driver":
            worker.part_from_driver()
            time.sleep(OUTAGE_SECONDS)
            worker.reunite()
        elif fault == "part":
            others = [w for w in self._at_work() if w is not worker]
            worker.part_from(self.dice.choice(others))
            time.sleep(OUTAGE_SECONDS)
            worker.reunite()
        else:
            raise ValueError(fault)
        recorded.join()

    def _at_work(self) -> list[Worker]:
        """Return the machines that hold slots; with Spark's shuffle, those that could."""
        alive = [w for w in self.cluster.workers if w.process.poll() is None and w.has_executor()]
        return [w for w in alive if w.slots()] or alive

    def _listen(self, driver: subprocess.Popen[bytes]) -> None:
        """Take the longest time without a result, until results have come for a while after it."""
        count, last, end = self._results(), time.monotonic(), time.monotonic() + OUTAGE_SECONDS + CALM_SECONDS
        longest = 0.0
        while driver.poll() is None and time.monotonic() < max(end, last + CALM_SECONDS):
            time.sleep(0.05)
            if (now := self._results()) > count:
                count, longest, last = now, max(longest, time.monotonic() - last), time.monotonic()
        self.silences.append(longest)

    def _wait(self, holds: Callable[[], bool], driver: subprocess.Popen[bytes], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not holds() and driver.poll() is None:
            if time.monotonic() > end:
                raise AssertionError(f"nothing came of {self.happened or 'the start'}:\n{self._log()}")
            time.sleep(0.1)

    def _results(self) -> int:
        return sum(job.results(self.directory).values())

    def _log(self) -> str:
        return (self.directory / "driver.log").read_text(errors="replace")[-3000:]

"""One run of the job on a cluster of several machines, with faults."""

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
# Short timeouts, so that unresponsive machines are detected soon.
HEARTBEAT = {"heartbeat.interval": "1 s", "heartbeat.timeout": "8 s"}
# Longer than these timeouts.
OUTAGE_SECONDS = 14.0
CALM_SECONDS = 4.0
# The timeouts until the first results, before which no fault is injected, and until the end.
_BEGIN_SECONDS, _END_SECONDS = 300.0, 600.0


@dataclass
class FaultRun:
    """The faults injected into the machines, and their outcome."""

    cluster: SparkCluster
    directory: Path
    exchange: str
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    # Additional settings of the job.
    settings: dict[str, str] = field(default_factory=dict)
    injected: list[str] = field(default_factory=list)
    # The longest time without a result after each fault.
    outages: list[float] = field(default_factory=list)

    def run(self, *faults: str) -> int:
        """Run the job with faults, one after the other; return the number of lost or duplicate results."""
        settings = {
            **self.cluster.settings(),
            **HEARTBEAT,
            "spark.cores.max": "3",
            "millstream.exchange": self.exchange,
            job.RATE: "150",
            **self.settings,
        }
        defines = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "tests.faults.job", str(self.directory), *defines]
        job.make_database(self.directory)
        with (self.directory / "driver.log").open("wb") as log:
            driver = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        try:
            self._wait(lambda: self._results() > 100, driver, _BEGIN_SECONDS)
            for fault in faults:
                self._inject(fault, driver)
            code = driver.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            progress = f"{self._results()} of {sum(job.expected().values())} results"
            raise AssertionError(f"the job did not end after {self.injected}: {progress}\n{self._log()}") from None
        finally:
            driver.kill()
        if code:
            raise AssertionError(f"the job ended with code {code}:\n{self._log()}")
        expected, actual = job.expected(), job.results(self.directory)
        return sum(((expected - actual) + (actual - expected)).values())

    def _inject(self, fault: str, driver: subprocess.Popen[bytes]) -> None:
        """Inject a fault into a machine that runs slots of the job; wait until results arrive again."""
        if driver.poll() is not None:
            raise AssertionError(f"the job ended before {fault}:\n{self._log()}")
        worker = self.dice.choice(self._busy_workers())
        recorder = threading.Thread(target=self._measure_outage, args=[driver])
        recorder.start()
        self.injected.append(f"{fault} {worker.address}")
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
            worker.resume()
        elif fault == "disconnect":
            worker.cut_cable()
            time.sleep(OUTAGE_SECONDS)
            worker.reconnect_cable()
        elif fault == "partition-from-driver":
            worker.partition_from_driver()
            time.sleep(OUTAGE_SECONDS)
            worker.heal_partitions()
        elif fault == "partition":
            others = [w for w in self._busy_workers() if w is not worker]
            worker.partition_from(self.dice.choice(others))
            time.sleep(OUTAGE_SECONDS)
            worker.heal_partitions()
        else:
            raise ValueError(fault)
        recorder.join()

    def _busy_workers(self) -> list[Worker]:
        """Return the machines that hold slots; with Spark's shuffle, all that could."""
        alive = [w for w in self.cluster.workers if w.process.poll() is None and w.has_executor()]
        return [w for w in alive if w.slots()] or alive

    def _measure_outage(self, driver: subprocess.Popen[bytes]) -> None:
        """Record the longest time without a result, until results have arrived regularly for a while."""
        count, last, end = self._results(), time.monotonic(), time.monotonic() + OUTAGE_SECONDS + CALM_SECONDS
        longest = 0.0
        while driver.poll() is None and time.monotonic() < max(end, last + CALM_SECONDS):
            time.sleep(0.05)
            if (now := self._results()) > count:
                count, longest, last = now, max(longest, time.monotonic() - last), time.monotonic()
        self.outages.append(longest)

    def _wait(self, holds: Callable[[], bool], driver: subprocess.Popen[bytes], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not holds() and driver.poll() is None:
            if time.monotonic() > end:
                raise AssertionError(f"timeout after {self.injected or 'the start'}:\n{self._log()}")
            time.sleep(0.1)

    def _results(self) -> int:
        return sum(job.results(self.directory).values())

    def _log(self) -> str:
        return (self.directory / "driver.log").read_text(errors="replace")[-3000:]

"""Runs a mixed job for long with random kills: no measurement may grow, and the sink must have the exact results.

    python -m tests.soak [--minutes 60] [--rate 2000] [--kills 12] [--seed 1]

Prints the slope of each measurement, and fails if one is not flat or the results differ.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.soak.job import expected, stored_facts
from tests.soak.trends import Bound, Trend, trend

MB = 2**20
# The noise between two samples of a flat measurement.
BOUNDS = {
    "driver, MB": Bound(0.10, 8),
    "JVM, MB": Bound(0.15, 40),
    "workers, MB": Bound(0.10, 10),
    # The number of deltas varies until they are compacted: 80 to 360.
    "files": Bound(0.20, 300),
    "file descriptors": Bound(0.10, 12),
    "threads": Bound(0.10, 8),
    "latency, ms": Bound(0.50, 100),
}
_SAMPLES = 150
# A shorter run ends before the JVM's memory has settled.
_MIN_MINUTES = 3


class Soak:
    """A run of the job, observed from outside."""

    def __init__(self, directory: Path, minutes: float, rate: int, kills: int, dice: random.Random) -> None:
        self.samples: dict[str, list[tuple[float, float]]] = {name: [] for name in BOUNDS}
        self.killed = 0
        self._directory, self._dice = directory, dice
        self._seconds, self._kills = minutes * 60, kills
        self._records, self._rate = int(minutes * 60 * rate), rate
        self._temporary = directory / "tmp"
        self._temporary.mkdir()

    def run(self) -> int:
        """Run the job; return the number of facts that differ from the expected ones."""
        command = [sys.executable, "-m", "tests.soak.job", str(self._directory), str(self._records), str(self._rate)]
        variables = {**os.environ, "TMPDIR": str(self._temporary)}
        with open(self._directory / "log", "wb") as log:
            popen = subprocess.Popen(command, stdout=log, stderr=log, env=variables)
        driver = psutil.Process(popen.pid)
        try:
            self._watch(popen, driver)
        finally:
            for process in [*driver.children(recursive=True), driver] if popen.poll() is None else []:
                process.kill()
        if popen.wait():
            raise SystemExit(f"The job failed:\n{(self._directory / 'log').read_text()[-3000:]}")
        actual = {key: value for key, value in stored_facts(self._directory).items() if key[0] != "latency"}
        return len(expected(self._records).items() ^ actual.items())

    def _watch(self, popen: subprocess.Popen[bytes], driver: psutil.Process) -> None:
        began, killed_at = time.monotonic(), 0.0
        pause, between = max(0.5, self._seconds / _SAMPLES), self._seconds / (self._kills + 1)
        while popen.poll() is None:
            # Kills cost time, and replay the input since the last checkpoint.
            if time.monotonic() - began > 3 * self._seconds + 120:
                raise SystemExit("The job takes three times as long as its records.")
            now = time.monotonic() - began
            self._sample(driver, now)
            if now - killed_at > between and self.killed < self._kills:
                killed_at = now
                self._kill(driver)
            time.sleep(pause)

    def _sample(self, driver: psutil.Process, now: float) -> None:
        try:
            measurements = dict(self._measure(driver))
        except psutil.NoSuchProcess:
            # A process ended during the measurement.
            return
        for name, value in measurements.items():
            self.samples[name].append((now, value))

    def _measure(self, driver: psutil.Process) -> Iterator[tuple[str, float]]:
        below = driver.children(recursive=True)
        java = [p for p in below if "java" in p.name()]
        workers = [p for p in below if p not in java]
        yield "driver, MB", driver.memory_full_info().uss / MB
        yield "JVM, MB", sum(p.memory_full_info().uss for p in java) / MB
        if workers:
            yield "workers, MB", sum(p.memory_full_info().uss for p in workers) / MB
        yield "files", sum(len(files) for _, _, files in os.walk(self._directory))
        yield "file descriptors", sum(p.num_fds() for p in [driver, *below])
        yield "threads", sum(p.num_threads() for p in [driver, *below])
        latency = (
            stored_facts(self._directory).get(("latency", 0)) if (self._directory / "checkpoints").exists() else None
        )
        if latency is not None:
            yield "latency, ms", 1000 * latency

    def _kill(self, driver: psutil.Process) -> None:
        """Kill one of the slot processes."""
        slots = [p for p in driver.children(recursive=True) if "millstream.spark.daemon" in " ".join(p.cmdline())]
        if slots:
            self._dice.choice(slots).kill()
            self.killed += 1

    def trends(self) -> list[Trend]:
        return [trend(name, values, BOUNDS[name]) for name, values in self.samples.items() if len(values) > 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=2000, help="records per second")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millstream-soak-") as directory:
        soak = Soak(Path(directory), options.minutes, options.rate, options.kills, random.Random(options.seed))
        differences = soak.run()
    trends = soak.trends()
    is_short = options.minutes < _MIN_MINUTES
    for t in trends:
        verdict = "flat" if t.is_flat else "too short a run" if is_short else "GROWS"
        print(f"{t.name:18} {t.level:10.1f}  {t.slope:+10.1f} per hour, {t.grown:+8.1f} of {t.allowed:.1f}: {verdict}")
    print(f"{options.minutes:g} minutes, {soak.killed} kills, {differences} differences")
    grows = not is_short and not all(t.is_flat for t in trends)
    return 1 if differences or grows or len(trends) < len(BOUNDS) else 0


if __name__ == "__main__":
    sys.exit(main())

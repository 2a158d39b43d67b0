"""Runs Nexmark queries for long, killing slots and drivers: results must equal undisturbed ones, and nothing may grow.

    python -m tests.soak.nexmark [--minutes 5] [--rate 2000] [--kills 6] [--only q4,q9] [--seed 1]

Each query runs for this time. Every third kill hits the driver, which restarts from the latest checkpoint; the others
hit slots. Joins without bounds retain all their rows, so memory of workers may grow with the events.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.soak.nexmark_job import EVENTS, QUERY, RATE, final_rows
from tests.soak.trends import Bound, Trend, trend

MB = 2**20
NAMES = ("q4", "q7", "q9", "q20")
# The maximum state of a join per event, including the index of its key.
_EVENT_MB = 800 / MB
_SAMPLES = 100
_MIN_MINUTES = 3
Rows = Counter[tuple[Any, ...]]


class NexmarkSoak:
    """A run of one query, observed from outside."""

    def __init__(self, directory: Path, query: str, minutes: float, rate: int, kills: int, dice: random.Random) -> None:
        self.query = query
        self.slots_killed = self.drivers_killed = 0
        self.events = int(minutes * 60 * rate)
        self.bounds = {
            "driver, MB": Bound(0.10, 8),
            "JVM, MB": Bound(0.15, 60),
            "workers, MB": Bound(0.10, 20 + self.events * _EVENT_MB),
            "file descriptors": Bound(0.10, 20),
            "threads": Bound(0.10, 12),
        }
        self.samples: dict[str, list[tuple[float, float]]] = {name: [] for name in self.bounds}
        self._directory, self._dice, self._kills = directory, dice, kills
        self._seconds, self._rate = minutes * 60, rate
        self._started: list[subprocess.Popen[bytes]] = []

    def expected(self) -> Rows:
        """Return the final rows of an undisturbed run of the same program, in one process."""
        directory = self._directory / "undisturbed"
        directory.mkdir()
        done = self._start(directory, 10**9, "millstream.engine=local", "execution.checkpointing.interval=5 s")
        if done.wait():
            raise SystemExit(self._log_tail(directory))
        return final_rows(directory)

    def actual(self) -> Rows:
        """Return the final rows of a run in which slots and drivers are killed."""
        directory = self._directory / "disturbed"
        directory.mkdir()
        driver = self._start(directory, self._rate)
        try:
            self._watch(driver, directory)
        finally:
            self._end()
        return final_rows(directory)

    def _start(self, directory: Path, rate: int, *settings: str, latest: bool = False) -> subprocess.Popen[bytes]:
        job_settings = (f"{QUERY}={self.query}", f"{EVENTS}={self.events}", f"{RATE}={rate}", *settings)
        command = [sys.executable, "-m", "tests.soak.nexmark_job", str(directory)]
        command += [part for setting in job_settings for part in ("--set", setting)]
        with open(directory / "log", "ab") as log:
            started = subprocess.Popen([*command, *["--latest"] * latest], stdout=log, stderr=log, env=dict(os.environ))
        self._started.append(started)
        return started

    def _watch(self, driver: subprocess.Popen[bytes], directory: Path) -> None:
        began = killed_at = time.monotonic()
        pause, between = max(0.25, self._seconds / _SAMPLES), self._seconds / (self._kills + 1)
        while driver.poll() is None:
            now = time.monotonic()
            if now - began > 4 * self._seconds + 240:
                raise SystemExit(f"{self.query} takes four times as long as its events.\n{self._log_tail(directory)}")
            self._sample(driver.pid, now - began)
            killed = self.slots_killed + self.drivers_killed
            if killed < self._kills and now - killed_at > between and _has_checkpoint(directory):
                killed_at = now
                if killed % 3 == 1:
                    driver = self._kill_driver(driver, directory)
                else:
                    self._kill_slot(driver.pid)
            time.sleep(pause)
        if driver.returncode:
            raise SystemExit(f"{self.query} failed.\n{self._log_tail(directory)}")

    def _kill_slot(self, driver: int) -> None:
        slots = [p for p in psutil.Process(driver).children(recursive=True) if _name(p).startswith("millstream-s")]
        if slots:
            self._dice.choice(slots).kill()
            self.slots_killed += 1

    def _kill_driver(self, driver: subprocess.Popen[bytes], directory: Path) -> subprocess.Popen[bytes]:
        below = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
        driver.wait()
        # All of them exit by themselves.
        _, alive = psutil.wait_procs(below, 60)
        assert not alive, f"still running: {alive}"
        self.drivers_killed += 1
        return self._start(directory, self._rate, latest=True)

    def _end(self) -> None:
        for started in self._started:
            if started.poll() is None:
                for process in [*psutil.Process(started.pid).children(recursive=True), psutil.Process(started.pid)]:
                    process.kill()
                started.wait()

    def _log_tail(self, directory: Path) -> str:
        return (directory / "log").read_text()[-3000:]

    def _sample(self, driver: int, now: float) -> None:
        try:
            measurements = dict(_measure(psutil.Process(driver)))
        except psutil.Error:
            # A process ended during the measurement.
            return
        for name, value in measurements.items():
            self.samples[name].append((now, value))

    def trends(self) -> list[Trend]:
        """Return the trend of each measurement."""
        return [trend(name, values, self.bounds[name]) for name, values in self.samples.items() if len(values) > 2]


def _measure(driver: psutil.Process) -> Iterator[tuple[str, float]]:
    below = driver.children(recursive=True)
    java = [p for p in below if "java" in p.name()]
    workers = [p for p in below if _name(p).startswith("millstream-s")]
    if not java or not workers:
        # The job is starting.
        return
    yield "driver, MB", driver.memory_full_info().uss / MB
    yield "JVM, MB", sum(p.memory_full_info().uss for p in java) / MB
    yield "workers, MB", sum(p.memory_full_info().uss for p in workers) / MB
    yield "file descriptors", sum(p.num_fds() for p in [driver, *below])
    yield "threads", sum(p.num_threads() for p in [driver, *below])


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def _has_checkpoint(directory: Path) -> bool:
    """Return whether a restarted job has a checkpoint to restore."""
    return any(directory.glob("checkpoints/**/_metadata"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5, help="for each query")
    parser.add_argument("--rate", type=int, default=2000, help="events per second")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed, is_short = False, options.minutes < _MIN_MINUTES
    for query in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="millstream-soak-") as directory:
            dice = random.Random(options.seed)
            soak = NexmarkSoak(Path(directory), query, options.minutes, options.rate, options.kills, dice)
            expected, actual = soak.expected(), soak.actual()
        for t in soak.trends():
            verdict = "flat" if t.is_flat else "too short a run" if is_short else "GROWS"
            print(f"{query:4} {t.name:17} {t.level:9.1f}, {t.grown:+8.1f} of {t.allowed:.1f}: {verdict}")
            failed |= not t.is_flat and not is_short
        different = sum(((expected - actual) + (actual - expected)).values())
        killed = f"{soak.slots_killed} slots and {soak.drivers_killed} drivers killed"
        print(
            f"{query:4} {soak.events} events, {killed}: {sum(expected.values())} rows, {different} different",
            flush=True,
        )
        failed |= bool(different) or not expected or soak.slots_killed + soak.drivers_killed < options.kills
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Upgrades the job from an interpreter with the older version to one with the newer version."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .job import BLOCK, GAP, KEYS, PAUSE, TIMER_DELAY, WINDOW, time_of

JOB = Path(__file__).parent / "job.py"
_TIMEOUT = 180.0


def expected_lines(records: int) -> Counter[str]:
    """Return the output lines of the job, computed without it."""
    assert PAUSE > GAP > KEYS, "sessions are the blocks of numbers"
    lines = Counter(f"seen,{i % KEYS},{i}" for i in range(records))
    lines.update(f"timer,{i % KEYS},{time_of(i) + TIMER_DELAY}" for i in range(records))
    for kind, part_of in (("window", lambda i: time_of(i) // WINDOW), ("session", lambda i: i // BLOCK)):
        sums: Counter[tuple[int, int]] = Counter()
        for i in range(records):
            sums[i % KEYS, part_of(i)] += i
        lines.update(f"{kind},{key},{total}" for (key, _), total in sums.items())
    for key in range(KEYS):
        values = range(key, records, KEYS)
        rests = Counter(f"rest {i % 3}" for i in values)
        rests_text = " ".join(f"{rest}: {n}" for rest, n in sorted(rests.items()))
        lines[f"end,{key},{len(values)},{sum(values)},{rests_text},{sum(values)},{values[-1] - values[0]}"] += 1
    return lines


@dataclass(frozen=True)
class Package:
    """One version of the package: an interpreter, and its environment variables."""

    name: str
    python: str
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Upgrade:
    """One job that two versions run."""

    directory: Path
    older: Package
    newer: Package
    # Options before the program: `--local`, settings.
    options: tuple[str, ...] = ()
    records: int = 3000

    @property
    def out(self) -> Path:
        return self.directory / "out"

    def by_savepoint(self, parallelism: int = 2) -> None:
        """Stop the older version with a savepoint, and restore it in the newer."""
        older = self._start(self.older)
        self._wait_for_output(older)
        self._touch("save")
        assert older.wait(_TIMEOUT) == 0, self._log(self.older)
        self._finish("-s", Path(f"{self.out}.saved").read_text(), "-p", str(parallelism))

    def by_checkpoint(self, parallelism: int = 2) -> None:
        """Kill the older version, and restore its latest checkpoint in the newer."""
        older = self._start(self.older)
        try:
            self._wait_for_output(older)
        finally:
            os.killpg(older.pid, signal.SIGKILL)
            older.wait()
        self._finish("--from-checkpoint", "latest", "-p", str(parallelism))

    def _start(self, package: Package, *arguments: str) -> subprocess.Popen[bytes]:
        settings = {
            "execution.checkpointing.dir": f"{self.directory}/checkpoints",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "millstream.quiet": "false",
        }
        defines = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
        command = [package.python, "-m", "millstream", "run", *defines, *self.options, *(arguments or ("-p", "2"))]
        with open(self.directory / f"{package.name}.log", "wb") as log:
            return subprocess.Popen(
                [*command, str(JOB), str(self.records), str(self.out)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.directory,
                env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | package.environment,
                start_new_session=True,
            )

    def _wait_for_output(self, older: subprocess.Popen[bytes]) -> None:
        """Wait until a checkpoint has committed output; the job is not finished then."""
        end = time.monotonic() + _TIMEOUT
        while sum(self._written().values()) < self.records // 10:
            assert older.poll() is None and time.monotonic() < end, self._log(self.older)
            time.sleep(0.05)

    def _finish(self, *arguments: str) -> None:
        """Process the rest of the input in the newer version; compare the output of both with the expected lines."""
        before = self._written()
        assert before["end"] == 0
        for mark in ("save", "saved"):
            Path(f"{self.out}.{mark}").unlink(missing_ok=True)
        self._touch("go")
        newer = self._start(self.newer, *arguments)
        try:
            code = newer.wait(_TIMEOUT)
        finally:
            if newer.poll() is None:
                os.killpg(newer.pid, signal.SIGKILL)
        assert code == 0, self._log(self.newer)
        actual, expected = self._written(), expected_lines(self.records)
        assert actual == expected, (
            f"missing: {expected - actual}\ntoo many: {actual - expected}\n{self._log(self.newer)}"
        )
        # Each version has processed a part of the input.
        assert 0 < sum(before.values()) < sum(actual.values())

    def _written(self) -> Counter[str]:
        """Return the lines of finished files."""
        files = [p for p in self.out.rglob("*") if p.is_file() and not p.name.startswith(".")]
        return Counter(line for p in files for line in p.read_text().splitlines())

    def _touch(self, mark: str) -> None:
        Path(f"{self.out}.{mark}").touch()

    def _log(self, package: Package) -> str:
        return (self.directory / f"{package.name}.log").read_text(errors="replace")[-4000:]

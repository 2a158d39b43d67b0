"""The command line as users see it: on a terminal, interrupted, terminated, with wrong arguments."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from millstream.cli.progress_line import LiveLine, Sample, describe
from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.datastream import launch_context
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.jobmaster.job import JobMaster
from millstream.testing import CollectSink, LocalEnvironment

pytestmark = pytest.mark.spark

MILLSTREAM = [sys.executable, "-m", "millstream.cli.main"]

ENDLESS = """
from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource

env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(200)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda i, _: i * 1000)
numbers = env.from_source(DataGeneratorSource(lambda i: i, rate_per_second=1000), strategy)
numbers.filter(lambda i: i % 1000 == 0).print()
env.execute("endless")
"""


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


class Terminal:
    """A program on its own terminal."""

    def __init__(self, *command: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # A background job of a shell ignores SIGINT, and the program would inherit that.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execv(command[0], list(command))
        self.shown = ""

    def wait_for(self, text: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.shown!r}"
            self._read()

    def _read(self) -> bool:
        try:
            data = os.read(self.fd, 4096)
        except OSError:
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)

    def end(self) -> int:
        while self._read():
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def test_run_shows_progress_line_on_terminal_and_stops_on_interrupt(tmp_path: Path) -> None:
    terminal = Terminal(*MILLSTREAM, "run", "-p", "2", write(tmp_path / "job.py", ENDLESS))
    fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    for text in ("| in ", "| out ", "| watermark 1970-01-01", "| checkpoint ", "\r\x1b[K"):
        terminal.wait_for(text)
    # Output of the program is on separate lines.
    terminal.wait_for("1000\r\n")
    assert any(line.endswith(("\x1b[K1> 1000", "\x1b[K2> 1000")) for line in terminal.shown.split("\r\n"))
    # No line is longer than the terminal: a wrapped line could not be erased.
    fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
    terminal.wait_for("\x1b[Kepoch", seconds=1)
    terminal.shown = ""
    terminal.wait_for("\x1b[Kepoch")
    terminal.wait_for("\r\x1b[K", seconds=5)
    os.kill(terminal.pid, signal.SIGINT)
    assert terminal.end() == 130
    # The first program on a machine reports at its end that it stores a class archive for the next.
    shown = terminal.shown.partition("millstream: writing Spark's classes")[0]
    lines = re.split("\r\x1b\\[K|\r\n", shown)
    assert max(len(line) for line in lines[3:]) <= 20
    assert shown.rstrip().endswith("\x1b[K")


def test_run_omits_progress_line_without_terminal_and_stops_on_sigterm(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*MILLSTREAM, "run", write(tmp_path / "job.py", ENDLESS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdout is not None and job.stderr is not None
        assert job.stdout.readline()
        job.terminate()
        try:
            assert job.wait(30) == 143
        finally:
            # Nothing may be left running after any outcome.
            job.kill()
        errors = job.stderr.read()
    assert "epoch" not in errors and "Traceback" not in errors


@pytest.mark.parametrize("exchange", ["resident", "spark"])
def test_run_forwards_signal_to_all_processes(tmp_path: Path, exchange: str) -> None:
    """Like `timeout` and like systemd: a signal to the process group, and one to each process."""
    command = [*MILLSTREAM, "run", f"-Dmillstream.exchange={exchange}", write(tmp_path / "job.py", ENDLESS)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        assert job.stdout is not None and job.stderr is not None
        assert job.stdout.readline()
        try:
            processes = psutil.Process(job.pid).children(recursive=True)
            os.killpg(job.pid, signal.SIGTERM)
            for process in processes if exchange == "spark" else []:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()
            assert job.wait(30) == 143
        finally:
            job.kill()
        errors = job.stderr.read()
    first, *others = errors.splitlines()
    assert first.startswith("millstream: running on Spark")
    # Processes receive the signal one by one, so one may see another end first; the job is still handling that failure
    # when its own signal arrives.
    assert not others or (exchange == "spark" and others[0].startswith("job 'endless' has failed and restarts"))


def test_run_returns_exit_codes(tmp_path: Path) -> None:
    def code(*command: str) -> int:
        return subprocess.run([*MILLSTREAM, *command], capture_output=True).returncode

    good = "from millstream.datastream import StreamExecutionEnvironment as E\ne = E.get_execution_environment()\n"
    good += "e.from_collection([1]).map(lambda x: 1 // %d).print()\ne.execute()\n"
    assert code("run", write(tmp_path / "good.py", good % 1)) == 0
    assert code("run", write(tmp_path / "failing.py", good % 0)) == 1
    assert code("run", write(tmp_path / "broken.py", "raise ValueError('no')")) == 1
    assert code("run", "--no-such-option", str(tmp_path / "good.py")) == 2
    assert code("run", str(tmp_path / "missing.py")) == 2


def test_progress_line_shows_known_progress() -> None:
    start = Sample(0.0, 0, 0, 0, None, None, "RUNNING")
    assert describe(start, Sample(1.0, 10, 5, 1, MAX_WATERMARK, None, "RUNNING")) == "epoch 1 | in 10/s | out 5/s"
    assert describe(start, Sample(1.0, 10, 5, 1, None, None, "RESTARTING")) == "restarting"
    stuck = Sample(1.0, 10, None, 1, None, None, "RUNNING", stuck=12)
    assert describe(start, stuck) == "epoch 1 | in 10/s | failed 12 times in a row with the same error"
    assert "watermark 9007199254740991" in describe(start, Sample(1.0, 0, 0, 1, 2**53 - 1, None, "RUNNING"))
    assert "out" not in describe(start, Sample(1.0, 10, None, 1, None, None, "RUNNING"))


def test_progress_line_names_busiest_vertex() -> None:
    start = Sample(0.0, 0, 0, 0, None, None, "RUNNING", {(1, 0): 5.0, (2, 0): 1.0}, {})
    names = {1: "Source", 2: "a very long chain -> of operators -> with a sink"}
    after = Sample(4.0, 0, 0, 1, None, None, "RUNNING", {(1, 0): 6.0, (2, 0): 4.0, (2, 1): 1.0}, names)
    assert describe(start, after).endswith("| slowest a very long chain -> of operators -> ... (75% busy)")


class Recorded(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_line_counts_sink_records_and_is_cleared() -> None:
    env, lines, terminal, result = LocalEnvironment(), [], Recorded(), CollectSink()
    numbers = env.from_source(DataGeneratorSource(lambda i: i, 3000, 1000)).name("numbers")
    numbers.filter(lambda i: i % 100 == 0).key_by(lambda i: i % 2).reduce(lambda a, b: b).sink_to(result)
    watched: list[LiveLine] = []

    def watch(job: JobMaster) -> Callable[[], None]:
        watched.append(LiveLine(job, terminal))
        return watched[0].start()

    launch_context.watch_jobs(watch)
    try:
        env.execute()
        assert terminal.getvalue().endswith("\r\x1b[K")
    finally:
        launch_context.clear_watchers()
    lines = terminal.getvalue().split("\r\x1b[K")
    rates = [re.search(r"in ([\d,]+)/s \| out (\d+)/s \| slowest ", line) for line in lines[3:-1]]
    # Ten reads, half a second apart, regardless of the epoch length: close to the actual throughput.
    assert len(rates) >= 2
    for rate in rates:
        assert rate is not None
        assert 500 < int(rate[1].replace(",", "")) < 1500 and 5 <= int(rate[2]) <= 15
    assert len(result.results()) == 30

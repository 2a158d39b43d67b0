"""A slot process that receives a termination signal while it exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.datastream.launch_context import end_signals

# The signal arrives during the first action of `ignore_sigterm`, as when a host ends slots that are already exiting.
PROGRAM = """
import os, signal
from millstream.spark import processes

real = signal.setitimer

def interrupted_setitimer(*arguments):
    signal.setitimer = real
    os.kill(os.getpid(), signal.SIGTERM)
    return real(*arguments)

signal.setitimer = interrupted_setitimer
processes.exit_on_sigterm()
try:
    raise SystemExit(0)
except SystemExit:
    pass
finally:
    processes.ignore_sigterm()
    print("closed", processes.is_termination_requested())
"""


def test_slot_process_ignores_signal_while_exiting() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ("closed True\n", "", 0)


ENDLESS = """
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"millstream.engine": "local"}))
env.enable_checkpointing(50)
env.from_source(DataGeneratorSource(lambda i: i, None, 100)).print()
env.execute()
"""


@pytest.fixture
def default_sighup() -> Iterator[None]:
    """Let SIGHUP end processes, though the tests may run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("default_sighup")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143)])
def test_program_leaves_no_directory_when_ended_by_signal(tmp_path: Path, number: int, code: int) -> None:
    program, temporary = tmp_path / "endless.py", tmp_path / "t"
    program.write_text(ENDLESS)
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, env=environment) as job:
        assert job.stdout is not None and job.stdout.readline()
        assert list(temporary.iterdir())
        job.send_signal(number)
        assert job.wait(60) == code
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("default_sighup")
def test_end_signals_omit_sighup_under_nohup() -> None:
    assert signal.SIGHUP in end_signals()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert end_signals() == [signal.SIGINT, signal.SIGTERM]
    finally:
        signal.signal(signal.SIGHUP, before)

"""Forked processes of a session cluster's programs: what each owns, what they share, how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from millstream.service.session.program_starter import ProgramProcess, ProgramStart, ProgramStarter
from tests.support.helpers import wait_until

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="programs are forked on Linux alone")

PROGRAM = """
import os, random, sys, time
import numpy.random
here = [os.getcwd(), sys.path[1], os.environ["MILLSTREAM_SCRATCH"], sys.argv[1], os.getsid(0) == os.getpid()]
print([*here, os.getpid()], numpy.random.rand(), random.random(), flush=True)
if sys.argv[1] == "wait":
    time.sleep(600)
sys.exit(7)
"""


class Programs:
    """Starts a program over and over."""

    def __init__(self, folder: Path) -> None:
        self.starter = ProgramStarter()
        self.started: list[ProgramProcess] = []
        self._folder = folder
        self._lines: list[socket.socket] = []
        (folder / "program.py").write_text(PROGRAM)

    def start(self, argument: str) -> tuple[ProgramProcess, Path]:
        """Return the process, and its directory."""
        home = self._folder / str(len(self.started))
        (home / "work").mkdir(parents=True)
        spec = {
            "path": str(self._folder / "program.py"), "module": None, "arguments": [argument], "settings": {},
            "overrides": {}, "pyflink": False, "home": str(home), "id": "p", "term": None,
            "attachment": {"port": 1, "secret": "", "control": None, "master": "local[2]"},
        }  # fmt: skip
        (home / "program.json").write_text(json.dumps(spec))
        ours, theirs = socket.socketpair()
        self._lines.append(ours)
        with theirs, (home / "out").open("wb") as out, (home / "err").open("wb") as err:
            start = ProgramStart(str(home / "program.json"), theirs, out, err, str(home / "work"), str(home))
            process = self.starter.start(start)
        self.started.append(process)
        return process, home

    def start_waiting(self) -> tuple[ProgramProcess, psutil.Process]:
        """Return a program that has begun and does not end."""
        process, home = self.start("wait")
        wait_until(lambda: (home / "out").read_text().endswith("\n"), 60)
        return process, psutil.Process(int(re.findall(r"(\d+)\]", (home / "out").read_text())[0]))

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
        for line in self._lines:
            line.close()
        self.starter.close()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    programs = Programs(tmp_path_factory.mktemp("programs"))
    yield programs
    programs.close()


def test_forked_program_has_its_own_directory_session_output_and_exit_code(programs: Programs) -> None:
    started = [programs.start("end") for _ in range(2)]
    assert [process.wait() for process, _ in started] == [7, 7]
    numbers = []
    for _, home in started:
        text = (home / "out").read_text()
        assert text.startswith(f"['{home}/work', '{home}/work', '{home}', 'end', True, "), text
        assert (home / "err").read_text() == ""
        numbers += text.split("]")[1].split()
    # Each has random numbers of its own, too; numpy's would be the same after a fork.
    assert len(set(numbers)) == 4


def test_forked_program_reports_kill_signal(programs: Programs) -> None:
    process, _ = programs.start_waiting()
    process.kill()
    assert process.wait() == -signal.SIGKILL
    # A second kill does nothing.
    process.kill()


def test_forked_programs_share_memory_of_loaded_modules(programs: Programs) -> None:
    _, running = programs.start_waiting()
    memory = running.memory_full_info()
    assert memory.uss < memory.rss / 3


def test_forked_program_outlives_fork_server(programs: Programs) -> None:
    process, running = programs.start_waiting()
    server = running.parent()
    assert server is not None and server.name() == "millstream-fork"
    server.kill()
    other, _ = programs.start("end")
    assert other.wait() == 7
    assert running.is_running()
    process.send_signal(signal.SIGTERM)
    # The fork server, which would know its exit code, has died.
    assert process.wait() == 255
    # Its new parent may not have reaped it yet.
    assert not running.is_running() or running.status() == psutil.STATUS_ZOMBIE

"""Servers of `millstream.testing` exit with the program that started them."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from millstream.testing.servers.databases import RedisServer
from tests.support.helpers import wait_until

_PROGRAM = """
import signal
from millstream.testing.servers.databases import RedisServer
server = RedisServer()
server.start()
print(server.port, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_server_exits_after_program_is_killed(redis_server: RedisServer, number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        port = program.stdout.readline().strip()
        servers = [p for p in psutil.Process(program.pid).children() if port in " ".join(p.cmdline())]
        assert len(servers) == 1
        program.send_signal(number)
    wait_until(lambda: not servers[0].is_running() or servers[0].status() == psutil.STATUS_ZOMBIE)

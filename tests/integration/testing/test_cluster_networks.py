"""Networks of test clusters: two programs never share one, and those of a killed program are removed."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from tests.support.helpers import wait_until
from tests.support.spark_cluster import Network, can_separate

pytestmark = pytest.mark.skipif(not can_separate(), reason="creating networks requires root and iproute2")

_KILLED_PROGRAM = """
import os, subprocess
from tests.support.spark_cluster import Network
network = Network.free()
network.make()
network.add(1)
null = subprocess.DEVNULL
sleeper = subprocess.Popen([*network.inside(1), "sleep", "600"], stdin=null, stdout=null, stderr=null)
print(network.address(1), sleeper.pid, flush=True)
os.read(0, 1)
os.kill(os.getpid(), 9)
"""


def _namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def _has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_network_of_killed_program_is_removed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED_PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        address, pid = program.stdout.readline().decode().split()
        networks = [Network.free()]
        assert networks[0].address(1) != address
        program.communicate(b"x")
    namespace = f"ms{address.split('.')[2]}-1"
    assert namespace in _namespaces()
    try:
        while networks[-1].address(1) != address:
            networks.append(Network.free())
        networks[-1].make()
        assert namespace not in _namespaces()
        wait_until(lambda: _has_ended(int(pid)))
    finally:
        for network in networks:
            network.remove()

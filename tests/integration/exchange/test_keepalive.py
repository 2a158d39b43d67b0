"""Distinguishes a host that no longer answers from one whose processes only do not read."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from millstream.exchange.connection import Connection
from millstream.exchange.credentials import Credentials, Side
from millstream.exchange.frames import Frame, Kind
from millstream.exchange.keepalive import enable_keepalive, is_unresponsive
from millstream.exchange.poller import Poller
from tests.support.spark_cluster import Network, can_separate

SECONDS = 1.0
# On the other host: accepts connections and never sends.
LISTENER = """
import socket, time
server = socket.create_server(("0.0.0.0", 7000))
print("ready", flush=True)
connections = []
while True:
    connections.append(server.accept()[0])
"""
separate = pytest.mark.skipif(not can_separate(), reason="separate networks require root")


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network.free()
    network.make()
    try:
        yield network
    finally:
        network.remove()


@pytest.fixture
def connection(network: Network) -> Iterator[socket.socket]:
    address = network.add(1)
    command = [*network.inside(1), sys.executable, "-c", LISTENER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as listener:
        assert listener.stdout is not None and listener.stdout.readline() == b"ready\n"
        with socket.create_connection((address, 7000), 30) as connection:
            enable_keepalive(connection, SECONDS)
            yield connection
        listener.kill()


def until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


@separate
def test_is_unresponsive_detects_partitioned_host(network: Network, connection: socket.socket) -> None:
    connection.sendall(b"x")
    assert until(lambda: not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 60)[24])
    network.partition(1, 0)
    connection.sendall(b"y")
    began = time.monotonic()
    assert until(lambda: is_unresponsive(connection, SECONDS))
    assert time.monotonic() - began >= SECONDS / 2
    network.heal_partitions()
    # The host is responsive when it answers again.
    assert until(lambda: not is_unresponsive(connection, SECONDS))


@separate
def test_keepalive_breaks_idle_connection_to_partitioned_host(network: Network, connection: socket.socket) -> None:
    network.partition(1, 0)
    connection.settimeout(30)
    with pytest.raises(OSError, match="timed out|No route|unreachable") as broken:
        connection.recv(1)
    # The cause is the kernel, not the timeout of this test.
    assert not isinstance(broken.value, TimeoutError) or broken.value.errno is not None


def test_is_unresponsive_ignores_process_that_does_not_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as connection:
        connection.connect(server.getsockname())
        enable_keepalive(connection, 0.2)
        connection.setblocking(False)
        with server.accept()[0]:
            with pytest.raises(BlockingIOError):
                while True:
                    connection.send(bytes(1 << 20))
            for _ in range(20):
                assert not is_unresponsive(connection, 0.2)
                time.sleep(0.1)


@separate
def test_poller_disconnects_from_unresponsive_host(network: Network, connection: socket.socket) -> None:
    peer = Connection(connection, Credentials(b"s" * 32, keepalive_seconds=SECONDS), Side.CLIENT)
    poller, lost = Poller(), []
    poller.add(peer, lambda frame: None, lambda: lost.append(peer))
    peer.push(Frame(Kind.CONNECTED))
    network.partition(1, 0)
    # The greeting stays in flight.
    poller.until(lambda: bool(lost), 30)
    assert lost and peer.reason

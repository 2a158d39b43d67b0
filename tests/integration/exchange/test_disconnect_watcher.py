"""Connections that break while no thread reads from them."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from millstream.exchange.keepalive import DisconnectWatcher


def watchers() -> int:
    return sum(thread.name == "hang-ups" for thread in threading.enumerate())


def ends(count: int) -> bool:
    deadline = time.monotonic() + 10
    while watchers() != count and time.monotonic() < deadline:
        time.sleep(0.001)
    return watchers() == count


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_disconnect_watcher_detects_peer_close_without_reader(family: socket.AddressFamily) -> None:
    notified = threading.Event()
    before = watchers()
    watch = DisconnectWatcher(notified.set)
    if family == socket.AF_UNIX:
        pairs = [socket.socketpair() for _ in range(2)]
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            pairs = [(socket.create_connection(server.getsockname()), server.accept()[0]) for _ in range(2)]
    for mine, _ in pairs:
        watch.add(mine.fileno())
    pairs[0][1].send(b"the watcher leaves input to its reader")
    assert not notified.wait(0.1)
    pairs[1][1].close()
    assert notified.wait(10)
    assert pairs[0][0].recv(100) == b"the watcher leaves input to its reader"
    watch.close()
    watch.close()
    assert ends(before)
    for pair in pairs:
        for end in pair:
            end.close()


def test_disconnect_watcher_ignores_connections_closed_locally() -> None:
    notified = threading.Event()
    before, descriptors = watchers(), len(os.listdir("/proc/self/fd"))
    watch = DisconnectWatcher(notified.set)
    mine, other = socket.socketpair()
    watch.add(mine.fileno())
    mine.close()
    other.close()
    assert not notified.wait(0.1)
    watch.close()
    assert ends(before) and not notified.is_set()
    deadline = time.monotonic() + 10
    while len(os.listdir("/proc/self/fd")) != descriptors and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(os.listdir("/proc/self/fd")) == descriptors

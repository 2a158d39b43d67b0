"""Where driver and slots are found: a path in a directory of their user's own, or a host and a port."""

from __future__ import annotations

import socket

# A path for a Unix socket, or a host and a port.
Address = str | tuple[str, int]

_CONNECT_SECONDS = 10
_BACKLOG = 1024


def listen(address: Address) -> socket.socket:
    """Listen there; a port of 0 is any that is free."""
    listener = socket.socket(_family(address), socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def connect(address: Address) -> socket.socket:
    """Connect. This waits for the other host, but never for the other process: its kernel takes the call."""
    connection = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def accept(listener: socket.socket) -> socket.socket | None:
    """Take a call; None when the caller has hung up meanwhile."""
    try:
        return listener.accept()[0]
    except (BlockingIOError, ConnectionAbortedError):
        return None


def address_of(listener: socket.socket) -> Address:
    """Return where a listener is called."""
    name = listener.getsockname()
    return name if isinstance(name, str) else (name[0], name[1])


def beside(driver: Address, slot: int) -> Address:
    """Return where a slot shall listen: in the driver's directory, or at the interface that leads to the driver."""
    if isinstance(driver, str):
        return f"{driver}-{slot}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent; the kernel only chooses the interface.
        probe.connect(driver)
        return str(probe.getsockname()[0]), 0


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_UNIX if isinstance(address, str) else socket.AF_INET

"""Addresses of driver and slots: a path in a private directory, or a host and a port."""

from __future__ import annotations

import socket

# The path of a Unix socket, or a host and a port.
Address = str | tuple[str, int]

_CONNECT_SECONDS = 10
_BACKLOG = 1024


def listen(address: Address) -> socket.socket:
    """Listen on an address; port 0 is any free port."""
    listener = socket.socket(_family(address), socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def connect(address: Address) -> socket.socket:
    """Connect. This waits for the other host, but not for the other process: its kernel accepts the connection."""
    connection = socket.socket(_family(address), socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def accept(listener: socket.socket) -> socket.socket | None:
    """Accept a connection; None if the peer has disconnected meanwhile."""
    try:
        return listener.accept()[0]
    except (BlockingIOError, ConnectionAbortedError):
        return None


def address_of(listener: socket.socket) -> Address:
    """Return the address of a listener."""
    name = listener.getsockname()
    return name if isinstance(name, str) else (name[0], name[1])


def slot_address(driver: Address, slot: int) -> Address:
    """Return the address for a slot: in the driver's directory, or on the interface that leads to the driver."""
    if isinstance(driver, str):
        return f"{driver}-{slot}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent; the kernel only chooses the interface.
        probe.connect(driver)
        return str(probe.getsockname()[0]), 0


def address_in(value: str | list[str | int]) -> Address:
    """Return the address in a JSON document."""
    return value if isinstance(value, str) else (str(value[0]), int(value[1]))


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_UNIX if isinstance(address, str) else socket.AF_INET

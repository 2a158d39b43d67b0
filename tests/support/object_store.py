"""A real S3 API on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.testing.servers.databases import free_ports

BUCKET = "streams"


@contextmanager
def object_store(host: str = "127.0.0.1") -> Iterator[dict[str, str]]:
    """Serve S3 at one of this machine's addresses; yield the settings with which a job reaches it."""
    [port] = free_ports(1, host)
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", host, "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    settings = {"s3.endpoint": f"http://{host}:{port}", "s3.access-key": "test", "s3.secret-key": "test"}
    try:
        _wait_for(host, port)
        _make_bucket(settings)
        yield settings
    finally:
        server.terminate()
        server.wait()


def _wait_for(host: str, port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the S3 server did not start"
            time.sleep(0.1)


def _make_bucket(settings: dict[str, str]) -> None:
    import s3fs

    files = s3fs.S3FileSystem(key="test", secret="test", endpoint_url=settings["s3.endpoint"])
    files.mkdir(BUCKET)

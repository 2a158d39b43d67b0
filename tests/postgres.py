"""A PostgreSQL server for tests: real, empty, reached over a socket in a directory of its own, gone afterwards."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

_START_SECONDS = 60


@dataclass
class PostgresServer:
    """A running server."""

    directory: str

    def __post_init__(self) -> None:
        self._databases = count()

    def conninfo(self, database: str = "postgres") -> str:
        return f"host={self.directory} user=postgres dbname={database}"

    def new_database(self) -> str:
        """Make an empty database; return what psycopg.connect takes."""
        import psycopg

        name = f"test{next(self._databases)}"
        with psycopg.connect(self.conninfo(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.conninfo(name)


def find_binaries() -> str | None:
    """Return where initdb is; distributions keep it off the path."""
    folders = [os.path.dirname(shutil.which("initdb") or "")]
    if shutil.which("pg_config"):
        folders.append(subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True).stdout.strip())
    folders += sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    return next((f for f in folders if f and os.path.exists(os.path.join(f, "initdb"))), None)


def _owner() -> dict[str, Any]:
    """The server refuses to run as root: return what makes a process somebody else's."""
    if os.geteuid() != 0:
        return {}
    known = {user.pw_name for user in pwd.getpwall()}
    user = pwd.getpwnam(next(name for name in ("postgres", "nobody") if name in known))
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """Run a server; skip the test when there is none on this machine."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("there is no PostgreSQL server on this machine")
    # Not pytest's directory: the path of a socket must be short.
    directory = tempfile.mkdtemp(prefix="millstream-pg-")
    owner = _owner()
    if owner:
        os.chown(directory, owner["user"], owner["group"])
    data = os.path.join(directory, "data")
    settings = {
        "unix_socket_directories": directory,
        "listen_addresses": "",
        "fsync": "off",
        "max_connections": "100",
        "wal_level": "logical",
        "max_replication_slots": "20",
        "max_wal_senders": "20",
    }
    command = [os.path.join(binaries, "postgres"), "-D", data]
    command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    initdb = [os.path.join(binaries, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
    try:
        subprocess.run(initdb, check=True, capture_output=True, cwd=directory, **owner)
        with open(os.path.join(directory, "log"), "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory, **owner)
        try:
            server = PostgresServer(directory)
            _wait_for(server, process)
            yield server
        finally:
            # Does not wait for connections that a test left open.
            process.send_signal(signal.SIGINT)
            process.wait(_START_SECONDS)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _wait_for(server: PostgresServer, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            psycopg.connect(server.conninfo()).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                with open(os.path.join(server.directory, "log")) as log:
                    raise AssertionError(f"PostgreSQL did not start:\n{log.read()}") from None
        time.sleep(0.05)

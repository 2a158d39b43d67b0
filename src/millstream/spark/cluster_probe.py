"""Probes a cluster: what each of its machines has and can reach."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import socketserver
import struct
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

from pyspark import BarrierTaskContext, SparkContext

from millstream import __version__
from millstream.checkpoint.storage import open_storage, storage_options
from millstream.common.configuration import Configuration
from millstream.common.errors import MillstreamError
from millstream.spark.errors import keep_bridge_quiet
from millstream.spark.session import get_context

# Packages that jobs import.
PACKAGES = ("pyspark", "cloudpickle", "numpy", "pyarrow", "lmdb")
_CHECKPOINTS = "execution.checkpointing.dir"
_SECONDS = 5.0
_TIME = struct.Struct(">d")


@dataclass(frozen=True)
class Machine:
    """Findings about one executor process, or the driver.

    name: host and process.
    python: the Python version.
    packages: versions by name; None if not installed.
    millstream: its version.
    memory: bytes of the machine, or the limit of its container.
    free: free bytes for temporary files.
    clock_ahead: seconds by which its clock is ahead of the driver's; None if it cannot reach the driver.
    unreachable: the executors that it cannot reach.
    storage_problem: why it cannot use the checkpoint directory; None if it can, or none is set.
    """

    name: str
    python: str
    packages: dict[str, str | None]
    millstream: str
    memory: int
    free: int
    clock_ahead: float | None = 0.0
    unreachable: list[str] = field(default_factory=list)
    storage_problem: str | None = None


@dataclass(frozen=True)
class _Asked:
    """The parameters of a probe."""

    driver: tuple[str, int]
    storage: str | None
    options: dict[str, Any]
    token: str

    @property
    def directory(self) -> str:
        return f"doctor-{self.token}"


def examine(config: Configuration) -> tuple[Machine, list[Machine]]:
    """Start Spark; return the findings about the driver and each executor process."""
    keep_bridge_quiet()
    context = get_context(config)
    storage = config.get_string(_CHECKPOINTS, "") or None
    with _time_server(context.getConf().get("spark.driver.host", "127.0.0.1") or "127.0.0.1") as address:
        asked = _Asked(address, storage, storage_options(config), uuid.uuid4().hex)
        _leave_sign(asked)
        try:
            machines = _ask(context, asked)
            return _this_machine("driver"), [_read_back(asked, machine) for machine in machines]
        finally:
            _clean_up(asked)


def _ask(context: SparkContext, asked: _Asked) -> list[Machine]:
    cores = max(1, context.defaultParallelism)
    every = context.parallelize(range(cores), cores).barrier().mapPartitions(lambda _: [_look_around(asked)])
    return list({machine.name: machine for machine in every.collect()}.values())


def _look_around(asked: _Asked) -> Machine:
    """Probe an executor: run in a barrier task."""
    context: Any = BarrierTaskContext.get()
    host = context.getTaskInfos()[context.partitionId()].address.partition(":")[0]
    name = f"{host} process {os.getpid()}"
    with socket.create_server(("", 0)) as listener:
        others = [other.split() for other in context.allGather(f"{host} {listener.getsockname()[1]}")]
        unreachable = sorted({other for other, port in others if not _can_reach(other, int(port))})
        # All sockets stay open until all have tried.
        context.barrier()
    return replace(
        _this_machine(name),
        clock_ahead=_clock_ahead(asked.driver),
        unreachable=unreachable,
        storage_problem=_try_storage(asked, name),
    )


def _this_machine(name: str) -> Machine:
    return Machine(
        name=name,
        python=platform.python_version(),
        packages={package: _version(package) for package in PACKAGES},
        millstream=__version__,
        memory=_memory(),
        free=shutil.disk_usage(tempfile.gettempdir()).free,
    )


def _version(package: str) -> str | None:
    module = sys.modules.get(package)
    try:
        # Packages shipped by Spark or millstream have no metadata.
        return getattr(module, "__version__", None) or metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _memory() -> int:
    """Return the memory available to processes here, in bytes."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            return min(machine, int(file.read()))
    return machine


def _can_reach(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except OSError:
        return False
    return True


def _clock_ahead(driver: tuple[str, int]) -> float | None:
    """Return by how many seconds the clock here is ahead of the driver's, within the round-trip time."""
    try:
        with socket.create_connection(driver, _SECONDS) as connection:
            asked = time.time()
            told: float = _TIME.unpack(connection.recv(_TIME.size, socket.MSG_WAITALL))[0]
            answered = time.time()
    except (OSError, struct.error):
        return None
    # The driver answered within this interval.
    return max(0.0, asked - told) - max(0.0, told - answered)


class _Clock(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(_TIME.pack(time.time()))


@contextlib.contextmanager
def _time_server(host: str) -> Iterator[tuple[str, int]]:
    """Serve the driver's time."""
    with socketserver.ThreadingTCPServer((host, 0), _Clock) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield host, server.server_address[1]
        server.shutdown()


def _leave_sign(asked: _Asked) -> None:
    if asked.storage is not None:
        open_storage(asked.storage, asked.options).publish(f"{asked.directory}/driver", asked.token.encode())


def _try_storage(asked: _Asked, name: str) -> str | None:
    """Check that the driver's file is visible in the checkpoint directory, and write one; return the problem."""
    if asked.storage is None:
        return None
    try:
        storage = open_storage(asked.storage, asked.options)
        if bytes(storage.read(f"{asked.directory}/driver")) != asked.token.encode():
            return "what the driver wrote there reads differently"
        storage.publish(f"{asked.directory}/{_file(name)}", name.encode())
    except (OSError, MillstreamError, ImportError) as e:
        return f"{type(e).__name__}: {e}".splitlines()[0]
    return None


def _read_back(asked: _Asked, machine: Machine) -> Machine:
    """Return a machine with the result of reading its file on the driver."""
    if asked.storage is None or machine.storage_problem is not None:
        return machine
    try:
        found = bytes(open_storage(asked.storage, asked.options).read(f"{asked.directory}/{_file(machine.name)}"))
    except (OSError, MillstreamError) as e:
        return replace(machine, storage_problem=f"the driver does not see what was written there ({e})")
    right = found == machine.name.encode()
    return machine if right else replace(machine, storage_problem="what was written there reads differently here")


def _clean_up(asked: _Asked) -> None:
    if asked.storage is not None:
        open_storage(asked.storage, asked.options).delete(asked.directory)


def _file(name: str) -> str:
    return name.replace(" ", "-").replace("/", "-")

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

from pyspark import BarrierTaskContext, SparkContext

from millstream import __version__
from millstream.checkpoint.storage import open_storage, storage_options
from millstream.common.configuration import Configuration
from millstream.common.errors import MillstreamError
from millstream.operating_system import system
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
class _Probe:
    """The parameters of a probe."""

    driver: tuple[str, int]
    storage: str | None
    options: dict[str, str]
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
        probe = _Probe(address, storage, storage_options(config), uuid.uuid4().hex)
        _write_driver_file(probe)
        try:
            machines = _ask(context, probe)
            return _this_machine("driver"), [_read_back(probe, machine) for machine in machines]
        finally:
            _clean_up(probe)


def _ask(context: SparkContext, probe: _Probe) -> list[Machine]:
    cores = max(1, context.defaultParallelism)
    machines = context.parallelize(range(cores), cores).barrier().mapPartitions(lambda _: [_probe_executor(probe)])
    return list({machine.name: machine for machine in machines.collect()}.values())


def _probe_executor(probe: _Probe) -> Machine:
    """Probe an executor: run in a barrier task."""
    context = BarrierTaskContext.get()
    host = context.getTaskInfos()[context.partitionId()].address.partition(":")[0]
    name = f"{host} process {os.getpid()}"
    with socket.create_server(("", 0)) as listener:
        others = [other.split() for other in context.allGather(f"{host} {listener.getsockname()[1]}")]
        unreachable = sorted({other for other, port in others if not _can_reach(other, int(port))})
        # All sockets stay open until all have tried.
        context.barrier()
    return replace(
        _this_machine(name),
        clock_ahead=_clock_ahead(probe.driver),
        unreachable=unreachable,
        storage_problem=_try_storage(probe, name),
    )


def _this_machine(name: str) -> Machine:
    return Machine(
        name=name,
        python=platform.python_version(),
        packages={package: _version(package) for package in PACKAGES},
        millstream=__version__,
        memory=system.available_memory(),
        free=shutil.disk_usage(tempfile.gettempdir()).free,
    )


def _version(package: str) -> str | None:
    module = sys.modules.get(package)
    try:
        # Packages shipped by Spark or millstream have no metadata.
        return getattr(module, "__version__", None) or metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _can_reach(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except OSError:
        return False
    return True


def _clock_ahead(driver: tuple[str, int]) -> float | None:
    """Return the seconds by which the local clock is ahead of the driver's, within the round-trip time."""
    try:
        with socket.create_connection(driver, _SECONDS) as connection:
            sent_at = time.time()
            driver_time: float = _TIME.unpack(connection.recv(_TIME.size, socket.MSG_WAITALL))[0]
            received_at = time.time()
    except (OSError, struct.error):
        return None
    # The driver read its clock within this interval.
    return max(0.0, sent_at - driver_time) - max(0.0, driver_time - received_at)


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


def _write_driver_file(probe: _Probe) -> None:
    if probe.storage is not None:
        open_storage(probe.storage, probe.options).publish(f"{probe.directory}/driver", probe.token.encode())


def _try_storage(probe: _Probe, name: str) -> str | None:
    """Check that the driver's file is visible in the checkpoint directory, and write one; return the problem."""
    if probe.storage is None:
        return None
    try:
        storage = open_storage(probe.storage, probe.options)
        if bytes(storage.read(f"{probe.directory}/driver")) != probe.token.encode():
            return "the driver's file has different content on this machine"
        storage.publish(f"{probe.directory}/{_file(name)}", name.encode())
    except (OSError, MillstreamError, ImportError) as e:
        return f"{type(e).__name__}: {e}".splitlines()[0]
    return None


def _read_back(probe: _Probe, machine: Machine) -> Machine:
    """Return a machine with the result of reading its file on the driver."""
    if probe.storage is None or machine.storage_problem is not None:
        return machine
    try:
        content = bytes(open_storage(probe.storage, probe.options).read(f"{probe.directory}/{_file(machine.name)}"))
    except (OSError, MillstreamError) as e:
        return replace(machine, storage_problem=f"the driver cannot read the file written on this machine ({e})")
    is_same = content == machine.name.encode()
    return (
        machine
        if is_same
        else replace(machine, storage_problem="the file written on this machine has different content on the driver")
    )


def _clean_up(probe: _Probe) -> None:
    if probe.storage is not None:
        open_storage(probe.storage, probe.options).delete(probe.directory)


def _file(name: str) -> str:
    return name.replace(" ", "-").replace("/", "-")

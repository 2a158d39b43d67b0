"""A real Spark cluster for tests: tests can kill, freeze and disconnect its master and workers.

Where the machine allows it, each worker has a network namespace, with an address and a cable that can be pulled, and a
temporary directory of its own: workers share only the `shared` directory. Else they share the machine's loopback.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from millstream.common.errors import MillstreamError
from millstream.spark.gateway import spark_home
from millstream.spark.java import find_java
from millstream.testing.servers.databases import free_ports

_START_SECONDS = 60.0
_POLL_SECONDS = 0.05
# The maximum number of clusters at a time.
_NETWORKS = 250
# A MAC address that no network card has.
_UNUSED_MAC = "02:00:00:00:00:01"


def can_separate() -> bool:
    """Return whether this machine allows networks and mounts for workers, which needs root and iproute2."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-n", "-m", "true"], capture_output=True).returncode == 0


class SparkCluster:
    """Spark's standalone cluster, on one machine.

    Example:
        with SparkCluster(workers=3, shared="/data/checkpoints") as cluster:
            config = Configuration.from_dict(cluster.settings())
            ...
            cluster.workers[1].kill()
    """

    def __init__(self, workers: int = 3, cores: int = 1, memory_mb: int = 1024, shared: str | None = None) -> None:
        """Create a cluster; `start` starts it.

        Args:
            workers: the initial number of workers.
            cores: of each worker.
            memory_mb: of each worker.
            shared: the directory that all workers see; other temporary files are private where the machine allows it.
        """
        self.workers: list[Worker] = []
        self.is_separate = can_separate()
        self.shared = shared
        self._cores, self._memory_mb, self._num_workers = cores, memory_mb, workers
        self._directory = tempfile.mkdtemp(prefix="millstream-cluster-")
        self._network = Network.free() if self.is_separate else None
        self._master: subprocess.Popen[bytes] | None = None
        self.host = self._network.address(1) if self._network else "127.0.0.1"
        self.port = 0

    @property
    def url(self) -> str:
        """The master's address, for `spark.master`."""
        return f"spark://{self.host}:{self.port}"

    def settings(self) -> dict[str, str]:
        """Return the settings that a program needs to run on this cluster."""
        return {
            "spark.master": self.url,
            "spark.driver.host": self.host,
            "spark.driver.bindAddress": self.host,
            "spark.executor.cores": str(self._cores),
            "spark.executor.memory": f"{self._memory_mb // 2}m",
        }

    def __enter__(self) -> SparkCluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start master and workers, and wait until all workers have registered."""
        if self._network:
            self._network.make()
        [self.port] = free_ports(1, self.host)
        command = [*_spark("master.Master"), "--host", self.host, "--port", str(self.port), "--webui-port", "0"]
        self._master = _started(command, self._log("master"), {"SPARK_LOCAL_IP": self.host})
        _wait_for(lambda: _listens(self.host, self.port), "Spark's master", self._log("master"))
        for _ in range(self._num_workers):
            self.add_worker(wait=False)
        for worker in self.workers:
            worker.wait()

    def add_worker(self, wait: bool = True) -> Worker:
        """Start one more worker."""
        number = len(self.workers) + 1
        own = os.path.join(self._directory, f"worker{number}")
        os.makedirs(own)
        address, prefix = f"127.0.0.{number + 1}", []
        if self._network:
            address = self._network.add(number)
            # The interpreter may be under /tmp as well.
            shared_paths = [path for path in (self.shared, sys.prefix, spark_home()) if path is not None]
            prefix = [*self._network.inside(number), *_own_temporary(os.path.join(own, "tmp"), shared_paths)]
        command = [*prefix, *_spark("worker.Worker"), "--host", address, "--webui-port", "0"]
        command += [
            "-c",
            str(self._cores),
            "-m",
            f"{self._memory_mb}m",
            "--work-dir",
            os.path.join(own, "work"),
            self.url,
        ]
        log = self._log(f"worker{number}")
        process = _started(command, log, {"SPARK_LOCAL_IP": address, "SPARK_LOCAL_DIRS": os.path.join(own, "local")})
        worker = Worker(number, address, process, log, self._network)
        self.workers.append(worker)
        if wait:
            worker.wait()
        return worker

    def close(self) -> None:
        """End all processes and remove the networks."""
        for worker in self.workers:
            worker.kill()
        if self._master is not None:
            _kill_group(self._master)
        if self._network:
            self._network.remove()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _log(self, name: str) -> str:
        return os.path.join(self._directory, f"{name}.log")


@dataclass
class Worker:
    """One machine of the cluster: Spark's worker, its executors and their Python processes."""

    number: int
    address: str
    process: subprocess.Popen[bytes]
    log: str
    network: Network | None

    def wait(self) -> None:
        """Wait until the worker has registered with the master."""
        _wait_for(
            lambda: b"Successfully registered with master" in Path(self.log).read_bytes(),
            f"Spark's worker {self.number}",
            self.log,
        )

    def kill(self) -> None:
        """Kill all processes of the machine, as a power failure does."""
        for pid in [*_below(self.process.pid), self.process.pid]:
            _signal(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)

    def kill_executors(self) -> int:
        """Kill the executors but not their forked processes; return the number of executors."""
        return _signal_all(self._executors(), signal.SIGKILL)

    def freeze(self) -> None:
        """Stop every process of the machine, as a live migration does."""
        _signal_all([self.process.pid, *_below(self.process.pid)], signal.SIGSTOP)

    def resume(self) -> None:
        """Resume all processes."""
        _signal_all([self.process.pid, *_below(self.process.pid)], signal.SIGCONT)

    def cut_cable(self) -> None:
        """Disconnect the network cable: packets to the machine are lost, without refusals."""
        self._cable("down")

    def reconnect_cable(self) -> None:
        """Connect the network cable again."""
        self._cable("up")

    def partition_from_driver(self) -> None:
        """Drop traffic between the machine and that of master and driver; all other traffic passes."""
        self._own_network().partition(self.number, 0)

    def partition_from(self, other: Worker) -> None:
        """Drop traffic between two machines; both still reach all others."""
        self._own_network().partition(self.number, other.number)

    def heal_partitions(self) -> None:
        """Restore all dropped traffic."""
        self._own_network().heal_partitions()

    def slots(self) -> list[int]:
        """Return the processes that hold slots of a job."""
        return [pid for pid in _below(self.process.pid) if _name_of(pid).startswith("millstream-s")]

    def has_executor(self) -> bool:
        return bool(self._executors())

    def _cable(self, state: str) -> None:
        self._own_network().cable(self.number, state)

    def _own_network(self) -> Network:
        if self.network is None:
            raise MillstreamError(
                "Workers share a network here, so none can be disconnected: separate networks require root."
            )
        return self.network

    def _executors(self) -> list[int]:
        return [pid for pid in _below(self.process.pid) if b"CoarseGrainedExecutorBackend" in _command_of(pid)]


class Network:
    """A bridge with one address for master and drivers, and a network namespace for each worker."""

    def __init__(self, number: int, lock: IO[bytes]) -> None:
        self._number = number
        # Held for the life of the network; child processes do not inherit it.
        self._lock = lock
        self._bridge = f"msb{number}"
        self._members: list[int] = []
        # Pairs of disconnected members; 0 is the machine of master and drivers.
        self._partitions: list[tuple[int, int]] = []

    @classmethod
    def free(cls) -> Network:
        """Return a network that no other program on this machine uses."""
        for number in range(1, _NETWORKS + 1):
            lock = open(os.path.join(tempfile.gettempdir(), f"millstream-network-{number}.lock"), "ab")  # noqa: SIM115
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
            else:
                return cls(number, lock)
        raise MillstreamError(f"All {_NETWORKS} networks for clusters of tests are in use on this machine.")

    def address(self, host_number: int) -> str:
        return f"10.213.{self._number}.{host_number}"

    def make(self) -> None:
        self._clear()
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.address(1)}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    def add(self, member: int) -> str:
        """Create a namespace with a cable to the bridge; return its address."""
        self._members.append(member)
        name, address = self._namespace(member), self._address_of(member)
        _ip("netns", "add", name)
        _ip("link", "add", self._end(member), "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", self._end(member), "master", self._bridge, "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        return address

    def inside(self, member: int) -> list[str]:
        """Return the prefix of a command that runs in a namespace."""
        return ["ip", "netns", "exec", self._namespace(member)]

    def cable(self, member: int, state: str) -> None:
        _ip("link", "set", self._end(member), state)

    def partition(self, one: int, other: int) -> None:
        """Drop all traffic between two members: a connection gets neither an answer nor a refusal."""
        self._partitions.append((one, other))
        for here, there in ((one, other), (other, one)):
            self._neighbour(here, "replace", self._address_of(there), "lladdr", _UNUSED_MAC, "nud", "permanent")

    def heal_partitions(self) -> None:
        """Restore the traffic between all members."""
        for one, other in self._partitions:
            for here, there in ((one, other), (other, one)):
                self._neighbour(here, "del", self._address_of(there))
        self._partitions.clear()

    def _neighbour(self, member: int, action: str, *arguments: str) -> None:
        inside = ["-n", self._namespace(member)] if member else []
        _ip(*inside, "neigh", action, *arguments, "dev", "eth0" if member else self._bridge)

    def _address_of(self, member: int) -> str:
        return self.address(member + 10 if member else 1)

    def remove(self) -> None:
        self._clear()
        self._lock.close()

    def _clear(self) -> None:
        """Remove the network, and the remains of a killed program."""
        for namespace in self._foreign_namespaces():
            pids = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True).stdout
            _signal_all([int(pid) for pid in pids.split()], signal.SIGKILL)
            self._members.append(int(namespace.rpartition("-")[2]))
        for member in self._members:
            # A namespace disappears only after its last process, so its cable is deleted first.
            subprocess.run(["ip", "link", "del", self._end(member)], capture_output=True)
            subprocess.run(["ip", "netns", "del", self._namespace(member)], capture_output=True)
        self._members.clear()
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True)

    def _foreign_namespaces(self) -> list[str]:
        """Return the namespaces of this network that another program created."""
        lines = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.splitlines()
        names = [line.split()[0] for line in lines if line.startswith(f"ms{self._number}-")]
        return [name for name in names if name not in map(self._namespace, self._members)]

    def _namespace(self, member: int) -> str:
        return f"ms{self._number}-{member}"

    def _end(self, member: int) -> str:
        return f"msv{self._number}-{member}"


def _own_temporary(directory: str, shared_paths: list[str]) -> list[str]:
    """Return the prefix of a command with its own temporary directory, which includes the shared paths."""
    os.makedirs(directory)
    script = f'mount --rbind "{directory}" /tmp && exec "$@"'
    for path in map(os.path.realpath, shared_paths):
        if path.startswith("/tmp/"):
            target = os.path.join(directory, path.removeprefix("/tmp/"))
            os.makedirs(target, exist_ok=True)
            script = f'mount --bind "{path}" "{target}" && {script}'
    return ["unshare", "-m", "sh", "-c", script, "sh"]


def _spark(role: str) -> list[str]:
    return [os.path.join(spark_home(), "bin", "spark-class"), f"org.apache.spark.deploy.{role}"]


def _started(command: list[str], log: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    # The machine has only this Python and Spark; the job must ship everything else.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    java = os.path.dirname(os.path.dirname(os.path.realpath(find_java().path)))
    clean |= {"SPARK_HOME": spark_home(), "JAVA_HOME": java, "PYSPARK_PYTHON": sys.executable, **environment}
    with open(log, "wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=clean, start_new_session=True)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise MillstreamError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def _wait_for(holds: Callable[[], bool], name: str, log: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise MillstreamError(f"{name} did not start: {Path(log).read_text(errors='replace')[-1000:]}")
        time.sleep(_POLL_SECONDS)


def _below(pid: int) -> list[int]:
    """Return all descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{entry}/stat").read_text()
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    descendants, left = [], [pid]
    while left:
        more = children.get(left.pop(), [])
        descendants += more
        left += more
    return descendants


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _signal_all(pids: list[int], number: signal.Signals) -> int:
    for pid in pids:
        _signal(pid, number)
    return len(pids)

"""Runs every scenario and prints its failover time: python -m tests.high_availability [--only WORD]."""

from __future__ import annotations

import argparse
import atexit
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from millstream.testing.servers.kafka import KafkaBroker
from millstream.testing.servers.zookeeper import ZooKeeperServer
from tests.support.ha_runs import Managers, expected_lines, managers, quick, written_lines
from tests.support.kafka_reader import read_committed
from tests.support.kubernetes_api import lease_server

from .partition_proxy import PartitionProxy

_RECORDS = 8000
_TIMEOUT = 180.0

# Settings of the first job manager, and of the others.
Settings = tuple[dict[str, str], dict[str, str]]


@contextmanager
def filesystem(directory: Path) -> Iterator[Settings]:
    yield quick(directory), quick(directory)


@contextmanager
def zookeeper(directory: Path) -> Iterator[Settings]:
    with ZooKeeperServer() as server:
        job_managers = quick(directory, **_zookeeper(server.port))
        yield job_managers, job_managers


def _zookeeper(port: int) -> dict[str, str]:
    return {"high-availability.type": "zookeeper", "high-availability.zookeeper.quorum": f"127.0.0.1:{port}"}


@contextmanager
def kubernetes(directory: Path) -> Iterator[Settings]:
    (directory / "token").write_text("secret")
    with lease_server("secret") as api:
        job_managers = quick(
            directory,
            **{
                "high-availability.type": "kubernetes",
                "kubernetes.namespace": "streams",
                "millstream.high-availability.kubernetes.server": api.url,
                "millstream.high-availability.kubernetes.token-file": str(directory / "token"),
            },
        )
        yield job_managers, job_managers


# --- an application, whose jobs run in the processes of its job managers


# Options of the jobs: without Spark, or on the job manager's own Spark.
_LOCAL, _SPARK = ("--local",), ("-m", "local[2]")


def _application(job_managers: Managers, where: tuple[str, ...] = _LOCAL, **settings: str) -> subprocess.Popen[bytes]:
    return job_managers.start("run", *where, "job.py", str(_RECORDS), str(job_managers.out), **settings)


def _start_both(
    job_managers: Managers, first: dict[str, str], where: tuple[str, ...] = _LOCAL
) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
    leader = _application(job_managers, where, **first)
    job_managers.until(lambda: "leads cluster" in job_managers.log(0), _TIMEOUT)
    standby = _application(job_managers, where)
    job_managers.until(lambda: "is a standby" in job_managers.log(1) and job_managers.lines() > 50, _TIMEOUT)
    return leader, standby


def _wait_for_failover(job_managers: Managers, began: float) -> str:
    job_managers.until(lambda: "term 2" in job_managers.log(1), _TIMEOUT)
    lead_seconds = time.monotonic() - began
    before = job_managers.lines()
    job_managers.until(lambda: job_managers.lines() > before, _TIMEOUT)
    return f"leads after {lead_seconds:.1f} s, first new output after {time.monotonic() - began:.1f} s"


def _check(job_managers: Managers, process: subprocess.Popen[bytes]) -> None:
    job_managers.stop_throttling()
    assert process.wait(_TIMEOUT) == 0, job_managers.all_logs()
    assert written_lines(job_managers.out) == expected_lines(_RECORDS), job_managers.all_logs()


def killed(job_managers: Managers, first: dict[str, str], where: tuple[str, ...] = _LOCAL) -> str:
    """Kill the leader with SIGKILL."""
    leader, standby = _start_both(job_managers, {}, where)
    os.killpg(leader.pid, signal.SIGKILL)
    failover = _wait_for_failover(job_managers, time.monotonic())
    _check(job_managers, standby)
    return failover


def frozen(point: str, job_managers: Managers, first: dict[str, str], where: tuple[str, ...] = _LOCAL) -> str:
    """Stop the leader at a point of the protocol until its lease has expired, then resume it."""
    marker = job_managers.directory / "frozen"
    leader = _application(job_managers, where, millstream__testing__fault=f"{point}|freeze|4|{marker}")
    job_managers.until(marker.exists, _TIMEOUT)
    began = time.monotonic()
    standby = _application(job_managers, where)
    failover = _wait_for_failover(job_managers, began)
    os.kill(leader.pid, signal.SIGCONT)
    job_managers.until(lambda: "restarting as a standby" in job_managers.log(0), _TIMEOUT)
    assert "is suspended" in job_managers.log(0), job_managers.all_logs()
    _check(job_managers, standby)
    assert leader.wait(_TIMEOUT) == 0, job_managers.all_logs()
    assert written_lines(job_managers.out) == expected_lines(_RECORDS), job_managers.all_logs()
    return failover


def kafka_frozen(point: str, where: tuple[str, ...], broker: KafkaBroker, job_managers: Managers) -> str:
    """Freeze the leader during its commit; resume it while the next leader is between manifest and commit."""
    topic = f"topic-{next(_topics)}"
    broker.create_topic(topic, 2)
    markers = [job_managers.directory / name for name in ("first", "second")]

    def start(step: str, time: int, marker: Path) -> subprocess.Popen[bytes]:
        command = ("run", *where, "kafka_job.py", str(_RECORDS), str(job_managers.out), broker.bootstrap, topic)
        return job_managers.start(*command, millstream__testing__fault=f"{step}|freeze|{time}|{marker}")

    first = start(point, 4, markers[0])
    job_managers.until(markers[0].exists, _TIMEOUT)
    began = time.monotonic()
    second = start("driver.before-commit", 2, markers[1])
    job_managers.until(markers[1].exists, _TIMEOUT)
    text = f"leads and has a checkpoint after {time.monotonic() - began:.1f} s"
    os.kill(first.pid, signal.SIGCONT)
    job_managers.until(lambda: "restarting as a standby" in job_managers.log(0), _TIMEOUT)
    os.kill(second.pid, signal.SIGCONT)
    job_managers.stop_throttling()
    for process in (first, second):
        assert process.wait(_TIMEOUT) == 0, job_managers.all_logs()
    assert "cannot be committed any more" not in job_managers.all_logs(), job_managers.all_logs()
    values = sorted(int(value) for value in read_committed(broker.bootstrap, topic))
    assert values == list(range(_RECORDS)), (len(values), job_managers.all_logs())
    return text


def _with_kafka(kind: Callable[[Path], object], point: str, where: tuple[str, ...], directory: Path) -> str:
    with kind(directory) as (_, others), managers(directory, others) as job_managers:  # type: ignore[attr-defined]
        return kafka_frozen(point, where, _broker(), job_managers)


_topics = itertools.count()


@cache
def _broker() -> KafkaBroker:
    """Return the broker of all scenarios."""
    broker = KafkaBroker()
    broker.start()
    atexit.register(broker.close)
    return broker


def partitioned(directory: Path) -> str:
    """Partition the leader from ZooKeeper until the standby leads, then reconnect it."""
    with ZooKeeperServer() as server:
        proxy = PartitionProxy(server.port)
        through = {"high-availability__zookeeper__quorum": f"127.0.0.1:{proxy.port}"}
        with managers(directory, quick(directory, **_zookeeper(server.port))) as job_managers:
            leader, standby = _start_both(job_managers, through)
            began = time.monotonic()
            proxy.partition()
            failover = _wait_for_failover(job_managers, began)
            # The leader steps down by itself, before the standby leads.
            assert "restarting as a standby" in job_managers.log(0), job_managers.all_logs()
            proxy.heal()
            _check(job_managers, standby)
            assert leader.wait(_TIMEOUT) == 0, job_managers.all_logs()
            assert written_lines(job_managers.out) == expected_lines(_RECORDS), job_managers.all_logs()
    return failover


# --- a session cluster, on Spark


def session(job_managers: Managers, first: dict[str, str]) -> str:
    """Kill the leader of a cluster on Spark with SIGKILL; a waiting client continues with the new leader."""
    start = ("cluster", "start", "-m", "local[2]")
    leader = job_managers.start(*start, rest__port="auto")
    job_managers.until(lambda: "a cluster with" in job_managers.log(0), _TIMEOUT)
    job_managers.start(*start, rest__port="auto")
    job_managers.until(lambda: "is a standby" in job_managers.log(1), _TIMEOUT)
    client = job_managers.start("run", "-t", "session", "job.py", str(_RECORDS), str(job_managers.out))
    job_managers.until(lambda: job_managers.lines() > 50, _TIMEOUT)
    job = _jobs(job_managers)
    assert len(job) == 1 and " RUNNING " in job[0], (job, job_managers.all_logs())
    began = time.monotonic()
    os.killpg(leader.pid, signal.SIGKILL)
    failover = _wait_for_failover(job_managers, began)
    after = _jobs(job_managers)
    assert len(after) == 1 and after[0].split()[0] == job[0].split()[0], (job, after)
    job_managers.stop_throttling()
    assert client.wait(_TIMEOUT) == 0, job_managers.all_logs()
    assert written_lines(job_managers.out) == expected_lines(_RECORDS), job_managers.all_logs()
    return failover


def _jobs(job_managers: Managers) -> list[str]:
    """Return the lines of jobs in the output of `millstream list`, which queries the current leader."""
    defines = [word for key, value in job_managers.settings.items() for word in ("-D", f"{key}={value}")]
    result = subprocess.run(
        [sys.executable, "-m", "millstream", "list", "-a", *defines], capture_output=True, text=True, timeout=_TIMEOUT
    )
    assert result.returncode == 0, result.stderr + job_managers.all_logs()
    return result.stdout.splitlines()[1:]


def _on(kind: Callable[[Path], object], scenario: Callable[..., str], directory: Path) -> str:
    with kind(directory) as (first, others), managers(directory, others) as job_managers:  # type: ignore[attr-defined]
        return scenario(job_managers, first)


_POINTS = ("driver.before-publish", "driver.before-commit", "driver.in-commit", "driver.after-commit")
_IN_COMMIT = partial(frozen, "driver.in-commit")
_KAFKA_POINTS = ("driver.before-publish", "driver.before-commit", "driver.between-transactions", "driver.in-commit")
_SCENARIOS: dict[str, Callable[[Path], str]] = {
    **{f"{kind.__name__}: kill -9": partial(_on, kind, killed) for kind in (filesystem, zookeeper, kubernetes)},
    **{f"filesystem: frozen at {point}": partial(_on, filesystem, partial(frozen, point)) for point in _POINTS},
    "zookeeper: frozen at driver.in-commit": partial(_on, zookeeper, _IN_COMMIT),
    "kubernetes: frozen at driver.in-commit": partial(_on, kubernetes, _IN_COMMIT),
    "zookeeper: partitioned": partitioned,
    "zookeeper: application on Spark, kill -9": partial(_on, zookeeper, partial(killed, where=_SPARK)),
    "zookeeper: application on Spark, frozen at driver.in-commit": partial(
        _on, zookeeper, partial(frozen, "driver.in-commit", where=_SPARK)
    ),
    **{
        f"{kind.__name__}: Kafka{where[0].replace('-m', ' on Spark').replace('--', ', ')}, frozen at {point}": partial(
            _with_kafka, kind, point, where
        )
        for kind in (filesystem, zookeeper)
        for where in (_LOCAL, _SPARK)
        for point in _KAFKA_POINTS
    },
    **{
        f"{kind.__name__}: session cluster on Spark, kill -9": partial(_on, kind, session)
        for kind in (filesystem, zookeeper)
    },
}


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.high_availability")
    parser.add_argument("--only", default="", help="scenarios whose names contain this text")
    only = parser.parse_args().only
    print("lease 1.5 s, renewed every 0.2 s, renew deadline 1 s")
    for name, scenario in _SCENARIOS.items():
        if only in name:
            with tempfile.TemporaryDirectory(prefix="millstream-ha-") as directory:
                print(f"{name}: {scenario(Path(directory))}; every record counts once", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

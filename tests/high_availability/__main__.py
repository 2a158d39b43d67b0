"""Runs every scenario, and prints how long it took to take over: python -m tests.high_availability [--only WORD]."""

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
from tests.support.ha_runs import Managers, expected_lines, managers, quick, written
from tests.support.kafka_reader import read_committed
from tests.support.kubernetes_api import lease_server

from .proxy import Proxy

_RECORDS = 8000
_PATIENCE = 180.0

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


# --- an application, in the processes of its job managers


# Where the main's jobs run: without Spark, or on one of each job manager's own.
_LOCAL, _SPARK = ("--local",), ("-m", "local[2]")


def _application(job_managers: Managers, where: tuple[str, ...] = _LOCAL, **settings: str) -> subprocess.Popen[bytes]:
    return job_managers.start("run", *where, "job.py", str(_RECORDS), str(job_managers.out), **settings)


def _both(
    job_managers: Managers, first: dict[str, str], where: tuple[str, ...] = _LOCAL
) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
    leader = _application(job_managers, where, **first)
    job_managers.until(lambda: "leads cluster" in job_managers.log(0), _PATIENCE)
    standby = _application(job_managers, where)
    job_managers.until(lambda: "is a standby" in job_managers.log(1) and job_managers.lines() > 50, _PATIENCE)
    return leader, standby


def _took_over(job_managers: Managers, began: float) -> str:
    job_managers.until(lambda: "term 2" in job_managers.log(1), _PATIENCE)
    led = time.monotonic() - began
    before = job_managers.lines()
    job_managers.until(lambda: job_managers.lines() > before, _PATIENCE)
    return f"leads after {led:.1f} s, first new output after {time.monotonic() - began:.1f} s"


def _check(job_managers: Managers, process: subprocess.Popen[bytes]) -> None:
    job_managers.hurry()
    assert process.wait(_PATIENCE) == 0, job_managers.everything()
    assert written(job_managers.out) == expected_lines(_RECORDS), job_managers.everything()


def killed(job_managers: Managers, first: dict[str, str], where: tuple[str, ...] = _LOCAL) -> str:
    """kill -9."""
    leader, standby = _both(job_managers, {}, where)
    os.killpg(leader.pid, signal.SIGKILL)
    reported = _took_over(job_managers, time.monotonic())
    _check(job_managers, standby)
    return reported


def frozen(point: str, job_managers: Managers, first: dict[str, str], where: tuple[str, ...] = _LOCAL) -> str:
    """SIGSTOP at a point of the protocol, past the lease, then SIGCONT."""
    marker = job_managers.directory / "frozen"
    leader = _application(job_managers, where, millstream__testing__fault=f"{point}|freeze|4|{marker}")
    job_managers.until(marker.exists, _PATIENCE)
    began = time.monotonic()
    standby = _application(job_managers, where)
    reported = _took_over(job_managers, began)
    os.kill(leader.pid, signal.SIGCONT)
    job_managers.until(lambda: "restarting as a standby" in job_managers.log(0), _PATIENCE)
    assert "is suspended" in job_managers.log(0), job_managers.everything()
    _check(job_managers, standby)
    assert leader.wait(_PATIENCE) == 0, job_managers.everything()
    assert written(job_managers.out) == expected_lines(_RECORDS), job_managers.everything()
    return reported


def kafka_frozen(point: str, where: tuple[str, ...], broker: KafkaBroker, job_managers: Managers) -> str:
    """The leader freezes at a point of its commit, and wakes while the next one is between manifest and commit."""
    topic = f"topic-{next(_topics)}"
    broker.create_topic(topic, 2)
    markers = [job_managers.directory / name for name in ("first", "second")]

    def start(step: str, time: int, marker: Path) -> subprocess.Popen[bytes]:
        command = ("run", *where, "kafka_job.py", str(_RECORDS), str(job_managers.out), broker.bootstrap, topic)
        return job_managers.start(*command, millstream__testing__fault=f"{step}|freeze|{time}|{marker}")

    first = start(point, 4, markers[0])
    job_managers.until(markers[0].exists, _PATIENCE)
    began = time.monotonic()
    second = start("driver.before-commit", 2, markers[1])
    job_managers.until(markers[1].exists, _PATIENCE)
    text = f"leads and has a checkpoint after {time.monotonic() - began:.1f} s"
    os.kill(first.pid, signal.SIGCONT)
    job_managers.until(lambda: "restarting as a standby" in job_managers.log(0), _PATIENCE)
    os.kill(second.pid, signal.SIGCONT)
    job_managers.hurry()
    for process in (first, second):
        assert process.wait(_PATIENCE) == 0, job_managers.everything()
    assert "cannot be committed any more" not in job_managers.everything(), job_managers.everything()
    values = sorted(int(value) for value in read_committed(broker.bootstrap, topic))
    assert values == list(range(_RECORDS)), (len(values), job_managers.everything())
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


def cut_off(directory: Path) -> str:
    """The leader is cut off from ZooKeeper, and joined again when the other leads."""
    with ZooKeeperServer() as server:
        proxy = Proxy(server.port)
        through = {"high-availability__zookeeper__quorum": f"127.0.0.1:{proxy.port}"}
        with managers(directory, quick(directory, **_zookeeper(server.port))) as job_managers:
            leader, standby = _both(job_managers, through)
            began = time.monotonic()
            proxy.cut()
            reported = _took_over(job_managers, began)
            # It knows by itself, without anybody telling it, and before the other leads.
            assert "restarting as a standby" in job_managers.log(0), job_managers.everything()
            proxy.join()
            _check(job_managers, standby)
            assert leader.wait(_PATIENCE) == 0, job_managers.everything()
            assert written(job_managers.out) == expected_lines(_RECORDS), job_managers.everything()
    return reported


# --- a session cluster, on Spark


def session(job_managers: Managers, first: dict[str, str]) -> str:
    """kill -9 the leader of a cluster on Spark; a client that waits for the program goes on at the new one."""
    start = ("cluster", "start", "-m", "local[2]")
    leader = job_managers.start(*start, rest__port="auto")
    job_managers.until(lambda: "a cluster with" in job_managers.log(0), _PATIENCE)
    job_managers.start(*start, rest__port="auto")
    job_managers.until(lambda: "is a standby" in job_managers.log(1), _PATIENCE)
    client = job_managers.start("run", "-t", "session", "job.py", str(_RECORDS), str(job_managers.out))
    job_managers.until(lambda: job_managers.lines() > 50, _PATIENCE)
    job = _jobs(job_managers)
    assert len(job) == 1 and " RUNNING " in job[0], (job, job_managers.everything())
    began = time.monotonic()
    os.killpg(leader.pid, signal.SIGKILL)
    reported = _took_over(job_managers, began)
    after = _jobs(job_managers)
    assert len(after) == 1 and after[0].split()[0] == job[0].split()[0], (job, after)
    job_managers.hurry()
    assert client.wait(_PATIENCE) == 0, job_managers.everything()
    assert written(job_managers.out) == expected_lines(_RECORDS), job_managers.everything()
    return reported


def _jobs(job_managers: Managers) -> list[str]:
    """Return the lines of jobs in the output of `millstream list`, which asks the current leader."""
    defines = [word for key, value in job_managers.settings.items() for word in ("-D", f"{key}={value}")]
    listed = subprocess.run(
        [sys.executable, "-m", "millstream", "list", "-a", *defines], capture_output=True, text=True, timeout=_PATIENCE
    )
    assert listed.returncode == 0, listed.stderr + job_managers.everything()
    return listed.stdout.splitlines()[1:]


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
    "zookeeper: cut off": cut_off,
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
    parser.add_argument("--only", default="", help="those whose name has this in it")
    only = parser.parse_args().only
    print("lease 1.5 s, renewed every 0.2 s, counted on for 1 s")
    for name, scenario in _SCENARIOS.items():
        if only in name:
            with tempfile.TemporaryDirectory(prefix="millstream-ha-") as directory:
                print(f"{name}: {scenario(Path(directory))}; every record counts once", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

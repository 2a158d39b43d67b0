"""Two job managers of one application in separate processes: one leads, and the other takes over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ha_runs import Managers, expected_lines, managers, quick, written_lines

RECORDS = 8000


def run(cluster: Managers, **settings: str) -> subprocess.Popen[bytes]:
    return cluster.start("run", "--local", "job.py", str(RECORDS), str(cluster.out), **settings)


def both(cluster: Managers) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
    """Start two job managers, of which the first leads."""
    leader = run(cluster)
    cluster.until(lambda: "leads cluster" in cluster.log(0))
    standby = run(cluster)
    cluster.until(lambda: "is a standby" in cluster.log(1))
    return leader, standby


def check(cluster: Managers, process: subprocess.Popen[bytes]) -> None:
    """Wait for the application to end, and check that every record counts once."""
    cluster.stop_throttling()
    assert process.wait(60) == 0, cluster.all_logs()
    assert written_lines(cluster.out) == expected_lines(RECORDS), cluster.all_logs()


def test_standby_restores_job_when_leader_is_killed(tmp_path: Path) -> None:
    with managers(tmp_path, quick(tmp_path)) as cluster:
        leader, standby = both(cluster)
        cluster.until(lambda: cluster.lines() > 50)
        os.killpg(leader.pid, signal.SIGKILL)
        seconds = cluster.until(lambda: "term 2" in cluster.log(1))
        check(cluster, standby)
        assert "starts from checkpoint" in cluster.log(1)
        print(f"led after {seconds:.1f} s")
        # Only the fence of the first leader is left of the checkpoints.
        left = [p for p in (tmp_path / "ha" / "shop" / "checkpoints").rglob("*") if p.is_file()]
        assert [p.name for p in left] == ["_superseded"], left
        # A later job manager does not run it again.
        late = run(cluster)
        assert late.wait(30) == 0
        assert "has already ended" in cluster.log(2)
        check(cluster, late)


def test_leader_frozen_during_commit_becomes_standby_when_resumed(tmp_path: Path) -> None:
    with managers(tmp_path, quick(tmp_path)) as cluster:
        frozen = tmp_path / "frozen"
        leader = run(cluster, millstream__testing__fault=f"driver.in-commit|freeze|3|{frozen}")
        cluster.until(frozen.exists)
        standby = run(cluster)
        cluster.until(lambda: "term 2" in cluster.log(1) and "starts from" in cluster.log(1))
        before = cluster.lines()
        cluster.until(lambda: cluster.lines() > before + 20)
        os.kill(leader.pid, signal.SIGCONT)
        # It detects this by itself, does not touch the job, and becomes a standby.
        cluster.until(lambda: "restarting as a standby" in cluster.log(0))
        assert "is suspended" in cluster.log(0)
        check(cluster, standby)
        assert leader.wait(30) == 0, cluster.all_logs()
        assert written_lines(cluster.out) == expected_lines(RECORDS)


def test_deposed_leader_cannot_publish_without_checking_lease(tmp_path: Path) -> None:
    """A leader that does not check its lease is frozen before it publishes."""
    with managers(tmp_path, quick(tmp_path)) as cluster:
        frozen = tmp_path / "frozen"
        patient = {"millstream__high-availability__lease-duration": "600 s"}
        patient |= {"millstream__high-availability__renew-deadline": "500 s"}
        patient |= {"millstream__high-availability__retry-period": "400 s"}
        fault = f"driver.before-publish|freeze|3|{frozen}"
        leader = run(cluster, millstream__testing__fault=fault, **patient)
        cluster.until(frozen.exists)
        # Another process releases its lease.
        _release(cluster)
        standby = run(cluster)
        cluster.until(lambda: "term 2" in cluster.log(1) and "starts from" in cluster.log(1))
        os.kill(leader.pid, signal.SIGCONT)
        cluster.until(
            lambda: "no longer belongs to this process (term 1): the leader of term 2 owns it" in cluster.log(0)
        )
        check(cluster, standby)


def _release(cluster: Managers) -> None:
    import json
    from dataclasses import asdict, replace

    from millstream.common.configuration import Configuration
    from millstream.leader.election_runner import LEADER, read_lease
    from millstream.leader.options import HaOptions

    options = HaOptions.read(Configuration.from_dict(cluster.settings))
    assert options is not None
    cell = options.open().cell(LEADER)
    read = read_lease(cell)
    assert read.lease is not None
    cell.write(json.dumps(asdict(replace(read.lease, is_released=True))).encode(), read.version)


def test_leader_hands_over_job_at_once_on_sigterm(tmp_path: Path) -> None:
    with managers(tmp_path, quick(tmp_path, **_long())) as cluster:
        leader, standby = both(cluster)
        cluster.until(lambda: cluster.lines() > 50)
        leader.terminate()
        assert leader.wait(20) == 143, cluster.all_logs()
        seconds = cluster.until(lambda: "term 2" in cluster.log(1))
        # Without waiting for the lease to expire.
        assert seconds < 15
        check(cluster, standby)


def _long() -> dict[str, str]:
    return {
        "millstream.high-availability.lease-duration": "60 s",
        "millstream.high-availability.renew-deadline": "40 s",
    }


def test_ha_program_requires_millstream_run(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from millstream.common import Configuration\nfrom millstream.datastream import StreamExecutionEnvironment\n"
        "c = Configuration.from_dict({'high-availability.type': 'filesystem',"
        f" 'high-availability.storageDir': '{tmp_path}', 'millstream.engine': 'local'}})\n"
        "env = StreamExecutionEnvironment.get_execution_environment(c)\n"
        "env.from_collection([1]).print()\nenv.execute()\n"
    )
    done = subprocess.run([sys.executable, str(tmp_path / "job.py")], capture_output=True, text=True, timeout=60)
    assert "Start this one with `millstream run`" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"high-availability.type": "filesystem"}, "high-availability.storageDir"),
        ({"high-availability.type": "zookeeper", "high-availability.storageDir": "/tmp/x"}, "zookeeper.quorum"),
        ({"high-availability.type": "raft", "high-availability.storageDir": "/tmp/x"}, "it must be one of NONE"),
    ],
)
def test_ha_options_reject_incomplete_settings(settings: dict[str, str], message: str) -> None:
    from millstream.common.configuration import Configuration
    from millstream.common.errors import InvalidProgramError
    from millstream.leader.options import HaOptions

    with pytest.raises(InvalidProgramError, match=message):
        options = HaOptions.read(Configuration.from_dict(settings))
        assert options is not None
        options.open()

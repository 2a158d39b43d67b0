"""Driver leases without high availability: ownership of a job, rejection, takeover."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millstream.checkpoint.storage import open_storage
from millstream.checkpoint.store import this_process
from millstream.common.errors import DeposedError, InvalidProgramError
from millstream.common.job_status import JobStatus
from millstream.common.run_ids import is_earlier
from millstream.leader import drivers as module
from millstream.leader.cas_cells import FileCell
from millstream.leader.drivers import DriverLease, DriverRegistry, owner_file, program_ended
from millstream.leader.fence import Fence, JobRecord
from tests.support.ha_runs import Managers, expected_lines, managers, written_lines

HERE = this_process("job")
# A process on a host that cannot be inspected here.
OTHER_HOST = {**HERE, "host": "pod-1"}
DEAD = {**HERE, "started": "1"}


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[DriverRegistry]:
    module._finished.clear()
    yield DriverRegistry(str(tmp_path), {}, lease=0.3)
    module._finished.clear()


def silent(hold: DriverLease) -> Fence:
    """Stop the heartbeat of a driver."""
    hold._has_ended.set()
    # A last heartbeat may be under way.
    hold._thread.join()
    return hold.fence


def test_driver_is_rejected_while_local_process_holds_job(drivers: DriverRegistry) -> None:
    first = drivers.claim_latest("job", HERE)
    with pytest.raises(InvalidProgramError, match=rf"Job 'job' still runs \(process {os.getpid()} on .*stop it first"):
        drivers.claim_latest("job", HERE)
    drivers.claim_latest("another job", HERE).release()
    first.release()
    drivers.claim_latest("job", HERE).release()


def test_driver_takes_over_at_once_when_local_process_is_dead(tmp_path: Path) -> None:
    drivers = DriverRegistry(str(tmp_path), {}, lease=600)
    first = silent(drivers.claim_latest("job", DEAD))
    began = time.monotonic()
    second = drivers.claim_latest("job", HERE)
    assert time.monotonic() - began < 300
    assert second.fence.term == 2 and is_earlier(first.run_id, second.fence.run_id)
    with pytest.raises(DeposedError, match="Job 'job' no longer belongs to this process .*driver 2 owns it"):
        first.publish("a/chk-1")
    second.release()


def test_driver_takes_over_from_other_host_after_lease_expires(drivers: DriverRegistry, tmp_path: Path) -> None:
    first = drivers.claim_latest("job", OTHER_HOST)
    with pytest.raises(InvalidProgramError, match="still runs .* on pod-1"):
        DriverRegistry(str(tmp_path), {}, lease=60).claim_latest("job", HERE)
    # The other process only sleeps; its later actions are rejected.
    fence = silent(first)
    second = drivers.claim_latest("job", HERE)
    with pytest.raises(DeposedError):
        fence.renew()
    second.release()


def test_driver_lease_notifies_when_superseded(drivers: DriverRegistry) -> None:
    first, reported = drivers.claim_latest("job", DEAD), threading.Event()
    first.watch(lambda reason: reported.set())
    second = None
    while second is None:
        # The claim is rejected if the first driver, which only looks dead, renews its lease at the same time.
        with contextlib.suppress(InvalidProgramError):
            second = drivers.claim_latest("job", HERE)
    assert reported.wait(10)
    # A watcher added later is notified, too.
    later = threading.Event()
    first.watch(lambda reason: later.set())
    assert later.is_set()
    second.release()


def test_driver_lease_renews_after_storage_failure(drivers: DriverRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    hold, again, failures = drivers.claim_latest("job", HERE), threading.Event(), iter([OSError("no connection")])

    def renew() -> None:
        for failure in failures:
            raise failure
        again.set()

    monkeypatch.setattr(hold.fence, "renew", renew)
    assert again.wait(10)
    hold.release()


def test_driver_takes_over_when_other_host_releases_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drivers = DriverRegistry(str(tmp_path), {}, lease=600)
    first = drivers.claim_latest("job", OTHER_HOST)
    with monkeypatch.context() as patched:
        patched.setattr(module.time, "sleep", lambda seconds: first.release())  # type: ignore[attr-defined]
        second = drivers.claim_latest("job", HERE)
    assert second.fence.term == 2
    second.release()


def test_driver_does_not_wait_for_released_lease(drivers: DriverRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    silent(drivers.claim_run("job", None, DEAD))
    # It also takes over the run, whose record names it from then on.
    drivers.claim_latest("job", OTHER_HOST).release()
    with monkeypatch.context() as patched:
        patched.setattr(module.time, "sleep", lambda seconds: pytest.fail("it waits"))  # type: ignore[attr-defined]
        drivers.claim_latest("job", HERE).release()


def meanwhile(monkeypatch: pytest.MonkeyPatch, does: Callable[[], object]) -> None:
    """Run an action between the next driver's read of the records and its claim."""
    make = module.new_run_id  # type: ignore[attr-defined]

    def new_run_id(previous: Iterable[str] = ()) -> str:
        monkeypatch.setattr(module, "new_run_id", make)
        does()
        return make(previous)

    monkeypatch.setattr(module, "new_run_id", new_run_id)


def test_driver_is_rejected_when_another_claims_concurrently(
    drivers: DriverRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[DriverLease] = []
    meanwhile(
        monkeypatch, lambda: others.append(DriverRegistry(str(tmp_path), {}, lease=0.3).claim_latest("job", HERE))
    )
    with pytest.raises(InvalidProgramError, match="Job 'job' still runs"):
        drivers.claim_latest("job", HERE)
    others[0].fence.publish("a/chk-1")
    others[0].release()


def test_driver_is_rejected_when_previous_run_renews_concurrently(
    drivers: DriverRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = silent(drivers.claim_run("job", None, DEAD))
    meanwhile(monkeypatch, first.renew)
    with pytest.raises(InvalidProgramError, match="Job 'job' still runs"):
        drivers.claim_latest("job", HERE)
    first.publish("a/chk-1")
    drivers.claim_latest("job", HERE).release()


def test_driver_takes_over_directory_of_standalone_run(drivers: DriverRegistry, tmp_path: Path) -> None:
    first = silent(drivers.claim_run("job", None, DEAD))
    owner = owner_file(first, DEAD)
    assert (tmp_path / first.run_id / "_record").is_dir()
    running = drivers.claim_run("job", None, HERE)
    with pytest.raises(InvalidProgramError, match="still runs"):
        drivers.claim_latest("job", HERE)
    running.release()
    # Its directory contained only the owner file.
    assert not (tmp_path / running.fence.run_id).exists()
    second = drivers.claim_latest("job", HERE)
    assert is_earlier(first.run_id, second.fence.run_id) and not drivers.is_alive(owner)
    with pytest.raises(DeposedError):
        first.publish("a/chk-1")
    second.release()
    # The directory has no owner now.
    drivers.claim_latest("job", HERE).release()


def test_driver_claims_job_while_another_job_runs(drivers: DriverRegistry) -> None:
    another = drivers.claim_run("another job", None, HERE)
    drivers.claim_latest("job", HERE).release()
    another.fence.publish("a/chk-1")
    another.release()


@pytest.mark.parametrize("is_latest", [True, False])
def test_run_ids_increase_when_clock_goes_back(
    drivers: DriverRegistry, monkeypatch: pytest.MonkeyPatch, is_latest: bool
) -> None:
    first = silent(drivers.claim_latest("job", DEAD) if is_latest else drivers.claim_run("job", None, DEAD))
    now = time.time_ns()
    monkeypatch.setattr("millstream.common.run_ids.time.time_ns", lambda: now - 3600 * 10**9)
    second = drivers.claim_latest("job", HERE)
    assert is_earlier(first.run_id, second.fence.run_id)
    second.release()


def test_finished_job_stays_finished_until_program_ends(drivers: DriverRegistry) -> None:
    first = drivers.claim_latest("job", DEAD)
    first.fence.end(JobStatus.FINISHED.name, "")
    silent(first)
    # The process was killed here.
    second = drivers.claim_latest("job", DEAD)
    assert second.fence.record.outcome == "FINISHED"
    second.release()
    program_ended(succeeded=False)
    third = drivers.claim_latest("job", DEAD)
    assert third.fence.record.outcome == "FINISHED"
    third.release()
    program_ended()
    fourth = drivers.claim_latest("job", HERE)
    assert fourth.fence.record.outcome is None
    fourth.fence.end(JobStatus.FINISHED.name, "")
    fourth.release()
    # The same program runs a job of that name once more.
    assert drivers.claim_latest("job", HERE).fence.record.outcome is None


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.CANCELED])
def test_failed_or_canceled_job_runs_again(drivers: DriverRegistry, status: JobStatus) -> None:
    first = drivers.claim_latest("job", DEAD)
    first.fence.end(status.name, "")
    silent(first)
    second = drivers.claim_latest("job", HERE)
    assert second.fence.record.outcome is None
    second.release()


def finish(drivers: DriverRegistry) -> None:
    """Finish a job in this program."""
    hold = drivers.claim_latest("job", DEAD)
    hold.fence.end(JobStatus.FINISHED.name, "")
    hold.release()


def test_finished_job_stays_finished_when_program_fails_in_another_job(drivers: DriverRegistry) -> None:
    finish(drivers)
    drivers.claim_latest("another job", HERE).release()
    program_ended(succeeded=False)
    assert drivers.claim_latest("job", DEAD).fence.record.outcome == "FINISHED"


@pytest.mark.parametrize(("error", "outcome"), [(ValueError(), "FINISHED"), (None, None)])
def test_finished_job_stays_finished_when_program_exits_with_error(
    drivers: DriverRegistry, monkeypatch: pytest.MonkeyPatch, error: Exception | None, outcome: str | None
) -> None:
    finish(drivers)
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    module._at_exit()
    assert drivers.claim_latest("job", DEAD).fence.record.outcome == outcome


def test_owner_file_names_live_driver_until_release(drivers: DriverRegistry) -> None:
    hold = drivers.claim_latest("job", HERE)
    owner = owner_file(hold.fence, HERE)
    assert drivers.is_alive(owner)
    for more in ({"released": True}, {"attempt": "another"}, {"cell": "_jobs/another"}):
        assert not drivers.is_alive({**owner, **more})
    hold.release()
    assert not drivers.is_alive(owner)
    # Without a record, liveness is that of the process.
    assert drivers.is_alive(HERE) and not drivers.is_alive(DEAD)


def test_driver_is_rejected_while_run_id_is_held(drivers: DriverRegistry) -> None:
    run = "0123456789abcdef" * 2
    first = drivers.claim_run("job", run, HERE)
    with pytest.raises(InvalidProgramError, match=f"{run} is in use by another job"):
        drivers.claim_run("job", run, HERE)
    first.fence.publish("a/chk-1")
    silent(first)
    first.release()
    lost = silent(drivers.claim_run("job", run, DEAD))
    second = drivers.claim_run("job", run, HERE)
    with pytest.raises(DeposedError):
        lost.publish("a/chk-1")
    second.release()


def test_drivers_starting_concurrently_claim_job_once(tmp_path: Path) -> None:
    claims: list[Any] = []

    def start() -> None:
        try:
            claims.append(DriverRegistry(str(tmp_path), {}, lease=0.3).claim_latest("job", HERE))
        except InvalidProgramError as e:
            claims.append(e)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    holds = [one for one in claims if isinstance(one, DriverLease)]
    assert len(holds) == 1 and len(claims) == 8
    holds[0].release()


# --- with processes

RECORDS = 6000
LEASE = {"millstream.high-availability.lease-duration": "900 ms"}


def settings(directory: Path) -> dict[str, str]:
    return {"execution.checkpointing.dir": str(directory / "checkpoints"), **LEASE}


def run(cluster: Managers, **more: str) -> subprocess.Popen[bytes]:
    return cluster.start("run", "--local", "--from-checkpoint=latest", "job.py", str(RECORDS), str(cluster.out), **more)


def check(cluster: Managers, process: subprocess.Popen[bytes]) -> None:
    cluster.stop_throttling()
    assert process.wait(120) == 0, cluster.all_logs()
    assert written_lines(cluster.out) == expected_lines(RECORDS), cluster.all_logs()


def move_away(cluster: Managers) -> None:
    """Report that the driver is on another host."""
    (name,) = (cluster.directory / "checkpoints" / "_jobs").iterdir()
    cell = FileCell(open_storage(str(name.parent)), name.name)
    data, version = cell.read()
    assert data is not None
    record = JobRecord.from_bytes(data)
    assert record.owner is not None
    cell.write(replace(record, owner={**record.owner, "host": "pod-1"}).to_bytes(), version)


def test_second_successor_is_rejected_before_first_checkpoint(tmp_path: Path) -> None:
    with managers(tmp_path, settings(tmp_path)) as cluster:
        first, second = run(cluster), run(cluster)
        cluster.until(lambda: None not in (first.poll(), second.poll()) or cluster.lines() > 20, 120)
        cluster.until(lambda: first.poll() is not None or second.poll() is not None)
        loser, winner = (first, second) if first.poll() is not None else (second, first)
        assert loser.poll() == 1, cluster.all_logs()
        assert "Job 'counts' still runs" in cluster.log(cluster.processes.index(loser)), cluster.all_logs()
        check(cluster, winner)


def test_driver_of_lost_host_is_replaced_and_fenced_when_resumed(tmp_path: Path) -> None:
    with managers(tmp_path, settings(tmp_path)) as cluster:
        frozen = tmp_path / "frozen"
        first = run(cluster, millstream__testing__fault=f"driver.before-publish|freeze|3|{frozen}")
        cluster.until(frozen.exists, 120)
        move_away(cluster)
        second = run(cluster)
        cluster.until(lambda: "starts from checkpoint" in cluster.log(1), 120)
        before = cluster.lines()
        cluster.until(lambda: cluster.lines() > before + 20)
        os.kill(first.pid, signal.SIGCONT)
        assert first.wait(60) == 1, cluster.all_logs()
        assert "Job 'counts' no longer belongs to this process" in cluster.log(0), cluster.all_logs()
        assert "restarts in" not in cluster.log(0)
        check(cluster, second)
        left = [p for p in (tmp_path / "checkpoints").rglob("*") if p.is_file() and "_jobs" not in str(p)]
        assert all(p.name == "_superseded" for p in left), left


def test_finished_job_does_not_rerun_after_process_kill(tmp_path: Path) -> None:
    with managers(tmp_path, settings(tmp_path)) as cluster:
        cluster.stop_throttling()
        killed = run(cluster, millstream__testing__fault=f"driver.after-removal|kill-driver|1|{tmp_path / 'killed'}")
        assert killed.wait(120) == -signal.SIGKILL
        assert written_lines(cluster.out) == expected_lines(RECORDS)
        again = run(cluster)
        assert again.wait(120) == 0, cluster.all_logs()
        assert "job 'counts' has already finished" in cluster.log(1), cluster.all_logs()
        assert written_lines(cluster.out) == expected_lines(RECORDS)
        # Its program has ended now: a new start runs it again.
        once_more = run(cluster)
        assert once_more.wait(120) == 0, cluster.all_logs()
        assert written_lines(cluster.out) == expected_lines(RECORDS) + expected_lines(RECORDS)


def test_job_that_cannot_start_releases_name_and_finished_job_reruns(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import json
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSource, StreamFormat
from millstream.common import WatermarkStrategy
c = Configuration.from_dict({json.dumps({**settings(tmp_path), "millstream.engine": "local"})})
c.set_string("execution.state-recovery.path", "latest")
c.set_string("execution.checkpointing.interval", "100 ms")
for path in ({str(tmp_path / "missing")!r}, {str(program)!r}):
    env = StreamExecutionEnvironment.get_execution_environment(c)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).build()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "files").print()
    try:
        env.execute("job")
        print("RAN")
    except Exception as e:
        print("FAILED", e)
"""
    )
    # The program ended well: a new start runs the finished job again.
    for _ in range(2):
        done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)
        lines = done.stdout.splitlines()
        assert any(line.startswith("FAILED") for line in lines) and "RAN" in lines, done.stdout + done.stderr
        assert any("import json" in line for line in lines), done.stdout + done.stderr

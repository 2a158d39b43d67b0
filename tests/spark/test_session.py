"""A session cluster on its own Spark: programs in processes, slots, uploads, cleanup after death."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from millstream.checkpoint.storage import open_storage
from millstream.service.archive import ArchiveDirectory, ArchiveStore
from millstream.service.client import ServiceClient, ServiceError
from tests.support.ha_runs import expected_lines, managers, quick, written_lines

PROGRAM = """
import os, sys, time
from helper import numbers_of
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
name, end, manner = sys.argv[1], int(sys.argv[2]), sys.argv[3]
numbers = numbers_of(env, end)
if manner == "fail":
    numbers = numbers.map(lambda x: 10 // (x - 5))
numbers.key_by(lambda x: x % 10).reduce(lambda a, b: a + b).add_sink(lambda v: None)
print("main of", name, open("data.txt").read(), flush=True)
if manner in ("wait", "fail"):
    env.execute(name)
    sys.exit(3)
job = env.execute_async(name)
if manner == "die":
    time.sleep(float(sys.argv[4]))
    os._exit(7)
if manner == "rage":
    # It prints without end, leaks, and leaves a thread and a process behind that never end.
    import subprocess, threading
    leak = bytearray(200_000_000)
    threading.Thread(target=lambda: time.sleep(10**6)).start()
    subprocess.Popen(["sleep", "600"])
    while True:
        print("x" * 100_000)
if manner == "leave":
    sys.exit("gone")
"""
HELPER = """
from millstream.common import WatermarkStrategy
from millstream.datastream.connectors.number_seq import NumberSequenceSource

def numbers_of(env, end):
    return env.from_source(NumberSequenceSource(1, end), WatermarkStrategy.no_watermarks(), "numbers")
"""
ENDLESS = "1000000000000"


class Session:
    """A cluster and its command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archives = folder / "archives"
        (folder / "job.py").write_text(PROGRAM)
        (folder / "helper.py").write_text(HELPER)
        (folder / "data.txt").write_text("here")
        (folder / "run").mkdir(mode=0o700)
        started = self.call(
            "cluster", "start", "-d", "-m", "local[2]", "-D", "rest.port=auto", "-D", "taskmanager.numberOfTaskSlots=6",
            "-D", "slot.request.timeout=60 s", "-D", f"jobmanager.archive.fs.dir={self.archives}",
        )  # fmt: skip
        assert started.returncode == 0, started.stdout + started.stderr
        self.url = started.stdout.split("The cluster is at ")[1].split(";")[0]
        (run_file,) = (folder / "run" / "millstream").glob("*.json")
        self.cluster = psutil.Process(int(run_file.stem))
        self.client = ServiceClient(self.url, json.loads(run_file.read_text())["token"])

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder / "run")}
        command = [sys.executable, "-m", "millstream", *words]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=100, check=False
        )

    def submit(self, *words: str) -> str:
        done = self.call("run", "-t", "session", "-d", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.split("JobID ")[1].strip()

    def until(self, path: str, holds: Any) -> Any:
        end = time.monotonic() + 60
        while not holds(answer := self.client.ask(path)):
            assert time.monotonic() < end, answer
            time.sleep(0.1)
        return answer

    def read(self, job: str) -> int:
        vertices = self.client.ask(f"/jobs/{job}")["vertices"]
        return int(sum(v["metrics"]["read-records"] for v in vertices))

    def cancel(self, job: str) -> None:
        self.client.ask(f"/jobs/{job}?mode=cancel", "PATCH", {})
        self.until(f"/jobs/{job}", lambda j: j["state"] == "CANCELED")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    session = Session(tmp_path_factory.mktemp("session"))
    yield session
    if session.cluster.is_running():
        stopped = session.call("cluster", "stop")
        assert stopped.returncode == 0, stopped.stderr


@pytest.fixture(autouse=True)
def jobs_of_a_test_end_with_it(request: pytest.FixtureRequest) -> Iterator[None]:
    """Cancel the jobs of a failed test, which would hold the slots of the next one."""
    yield
    session: Session | None = request.node.funcargs.get("session")
    if session is None or not session.cluster.is_running():
        return
    for job in session.client.ask("/jobs/overview")["jobs"]:
        if job["state"] not in ("FINISHED", "FAILED", "CANCELED"):
            session.cancel(job["jid"])


def test_programs_run_concurrently_and_survive_death_of_another(session: Session) -> None:
    steady = session.submit("-p", "2", "job.py", "steady", ENDLESS, "async")
    # Each epoch of this job is a Spark job, which continues after the waiting process has died.
    dying = session.submit("-p", "2", "-D", "millstream.exchange=spark", "job.py", "dying", ENDLESS, "die", "3")
    session.until(f"/jobs/{dying}", lambda j: j["state"] == "RUNNING")
    assert session.client.ask("/overview")["slots-available"] == 2
    done = session.call("run", "-t", "session", "-p", "2", "job.py", "small", "1000", "wait")
    # Output is visible, files resolve against the caller's directory, and the program has its own exit code.
    assert "main of small here" in done.stdout and done.returncode == 3, done.stderr
    # The failed program runs alone, from its directory and from the archive.
    failed = session.call("run", "-t", "session", "-p", "1", "job.py", "failing", "1000", "fail")
    assert failed.returncode == 1 and "ZeroDivisionError" in failed.stderr, failed
    (report,) = session.archives.glob("*.failure-1")
    for job in (report.name[:32], str(session.archives / report.name[:32])):
        replayed = session.call("replay", job, "--failure", "1")
        assert replayed.returncode == 1 and "lambda x: 10 // (x - 5)" in replayed.stdout, replayed
        assert "record: 5\n" in replayed.stderr and "failure 1 of job 'failing'" in replayed.stderr
    session.until(f"/jobs/{dying}", lambda j: j["state"] == "FAILED")
    reason = session.client.ask(f"/jobs/{dying}/exceptions")["root-exception"]
    assert reason == "The process of the job's program ended with code 7 before the job had ended."
    before = session.until("/overview", lambda o: o["slots-available"] == 4) and session.read(steady)
    end = time.monotonic() + 30
    while session.read(steady) <= before:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert session.client.ask(f"/jobs/{steady}/status") == {"status": "RUNNING"}
    listed = session.call("list", "-a").stdout
    assert [w in listed for w in ("steady", "dying", "small")] == [True] * 3
    assert "4 of 6 slots are free" in session.call("cluster", "status").stdout
    with urllib.request.urlopen(f"{session.url}/metrics") as metrics:
        assert 'job_name="steady"' in metrics.read().decode()
    session.cancel(steady)
    end = time.monotonic() + 20
    while slots := [p.name() for p in session.cluster.children(recursive=True) if p.name().startswith("millstream-s")]:
        assert time.monotonic() < end, slots
        time.sleep(0.1)
    # The history keeps ended jobs, including those that could not report their end.
    archives = ArchiveStore()
    ArchiveDirectory(open_storage(str(session.archives)), archives).refresh()
    assert {a.line["name"]: a.line["state"] for a in archives.all()} == {
        "steady": "CANCELED",
        "dying": "FAILED",
        "failing": "FAILED",
        "small": "FINISHED",
    }


def test_killed_program_leaves_no_processes_and_no_files(session: Session) -> None:
    steady = session.submit("-p", "1", "job.py", "steady", ENDLESS, "async")
    # The client is not the program: the client is killed, the program continues.
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(session.folder / "run")}
    words = ["run", "-t", "session", "-p", "1", "job.py", "raging", ENDLESS, "rage"]
    caller = subprocess.Popen(
        [sys.executable, "-m", "millstream", *words], cwd=session.folder, env=environment, stdout=subprocess.DEVNULL
    )
    session.until("/jobs/overview", lambda o: any(j["name"] == "raging" and j["state"] == "RUNNING" for j in o["jobs"]))
    caller.kill()
    caller.wait()
    # The main function ends; the cluster owns its job.
    left = session.submit("-p", "1", "job.py", "left", ENDLESS, "leave")
    (raging,) = [j["jid"] for j in session.client.ask("/jobs/overview")["jobs"] if j["name"] == "raging"]
    mains = [p for p in session.cluster.children(recursive=True) if p.name() == "millstream-main"]
    assert len(mains) == 3
    main = next(p for p in mains if any(c.name() == "sleep" for c in p.children()))
    (rest,) = [c.laddr for c in main.net_connections("unix") if c.laddr.endswith("/rest")]  # type: ignore[attr-defined]
    home = Path(rest).parent  # type: ignore[arg-type]
    assert list((home / "t").iterdir())
    sleeper = next(c for c in main.children() if c.name() == "sleep")
    assert session.client.ask(f"/jobs/{raging}/status") == {"status": "RUNNING"}
    main.kill()
    session.until(f"/jobs/{raging}", lambda j: j["state"] == "FAILED")
    sleeper.kill()
    reason = session.client.ask(f"/jobs/{raging}/exceptions")["root-exception"]
    assert reason == "The process of the job's program was ended by SIGKILL before the job had ended."
    for job in (steady, left):
        assert session.client.ask(f"/jobs/{job}/status") == {"status": "RUNNING"}
    session.until("/overview", lambda o: o["slots-available"] == 4)
    # Executors are workers; this Spark has one.
    # The list shows a job once its program has reported the addresses of its tasks, after the job starts.
    (worker,) = session.until("/taskmanagers", lambda o: o["taskmanagers"][0]["assignedTasks"] == 4)["taskmanagers"]
    assert (worker["id"], worker["slotsNumber"], worker["freeSlots"]) == ("driver", 6, 4)
    vertex = session.client.ask(f"/jobs/{steady}")["vertices"][0]["id"]
    (subtask,) = session.client.ask(f"/jobs/{steady}/vertices/{vertex}")["subtasks"]
    assert subtask["taskmanager-id"] == "driver"
    # Names with special characters reach the program's process.
    with pytest.raises(ServiceError, match="complete checkpoint|No Such"):
        session.client.ask(f"/jobs/{steady}/state/No%20Such%20%22Operator/x")
    threads = session.client.ask("/taskmanagers/driver/thread-dump")["threadInfos"]
    assert any("org.apache.spark" in t["stringifiedThreadInfo"] for t in threads)
    for job in (steady, left):
        session.cancel(job)
    end = time.monotonic() + 20
    while (home / "t").exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_job_waits_for_slots_and_is_rejected_above_total(session: Session) -> None:
    first = session.submit("-p", "4", "job.py", "first", ENDLESS, "async")
    refused = session.call("run", "-t", "session", "-p", "7", "job.py", "large", "10", "wait")
    assert refused.returncode == 1
    assert "Job 'large' needs 7 slots, and the cluster has 6, of which 2 are free: run it with" in refused.stderr
    adaptive = ["-D", "jobmanager.scheduler=adaptive"]
    refused = session.call("run", "-t", "session", *adaptive, "-p", "1", "job.py", "adaptive", "10", "wait")
    assert refused.returncode == 1 and "adaptive needs a program with its own Spark" in refused.stderr
    second = session.submit("-p", "4", "job.py", "second", ENDLESS, "async")
    other = session.submit("-p", "3", "job.py", "third", ENDLESS, "async")
    time.sleep(0.5)
    assert session.client.ask(f"/jobs/{second}/status") == {"status": "CREATED"}
    # A waiting job can be cancelled.
    session.cancel(other)
    session.cancel(first)
    session.until(f"/jobs/{second}", lambda j: j["state"] == "RUNNING")
    # Another parallelism takes other slots.
    begun = session.client.ask(f"/jobs/{second}/rescaling?parallelism=2", "PATCH", {})
    session.client.finished(f"/jobs/{second}/rescaling", begun["request-id"])
    assert session.client.ask("/overview")["slots-available"] == 4
    begun = session.client.ask(f"/jobs/{second}/rescaling?parallelism=8", "PATCH", {})
    with pytest.raises(ServiceError, match="needs 8 slots, and the cluster has 6"):
        session.client.finished(f"/jobs/{second}/rescaling", begun["request-id"])
    session.until(f"/jobs/{second}", lambda j: j["state"] == "RUNNING")
    saved = session.client.ask(f"/jobs/{second}/stop", "POST", {"targetDirectory": str(session.folder / "saved")})
    done = session.client.finished(f"/jobs/{second}/savepoints", saved["request-id"])
    assert "savepoint-" in done["location"]
    session.until(f"/jobs/{second}", lambda j: j["state"] == "FINISHED")


def test_upload_requires_token(session: Session) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("__main__.py", PROGRAM.replace('open("data.txt").read()', '"zipped"'))
        file.writestr("helper.py", HELPER)
        file.writestr("noise.bin", bytes(range(256)) * 20)
    path = session.folder / "packed.zip"
    path.write_bytes(packed.getvalue())
    uploaded = session.client.upload(str(path))
    body = {"programArgsList": ["zipped", "100", "async"], "parallelism": 1}
    job = session.client.ask(f"/jars/{uploaded}/run", "POST", body)["jobid"]
    session.until(f"/jobs/{job}", lambda j: j["state"] == "FINISHED")
    assert [f["name"] for f in session.client.ask("/jars")["files"]] == ["packed.zip"]
    with pytest.raises(ServiceError, match="NameError: name 'nothing' is not defined"):
        (session.folder / "bad.py").write_text("print(nothing)")
        session.client.ask(f"/jars/{session.client.upload(str(session.folder / 'bad.py'))}/run", "POST", {})
    (session.folder / "x.jar").write_text("")
    with pytest.raises(ServiceError, match=r"a \.py file, or a \.zip"):
        session.client.upload(str(session.folder / "x.jar"))
    for stranger in (f"{session.url}/jars/upload", f"{session.url}/programs", f"{session.url}/jars/{uploaded}/run"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(stranger, b"{}", method="POST"))
        with refused.value:
            assert refused.value.code == 401
    with pytest.raises(ServiceError, match="was uploaded"):
        session.client.ask("/jars/..%5Cpasswd.py/run", "POST", {})
    session.client.ask(f"/jars/{uploaded}", "DELETE")
    assert [f["name"] for f in session.client.ask("/jars")["files"]] == ["bad.py"]


def test_killed_cluster_is_reported_and_leaves_nothing(session: Session) -> None:
    # Last test: it kills the cluster of this module.
    session.submit("-p", "1", "job.py", "orphan", ENDLESS, "async")
    family = session.cluster.children(recursive=True)
    run_file = session.folder / "run" / "millstream" / f"{session.cluster.pid}.json"
    leavings = [Path(path) for path in json.loads(run_file.read_text())["leavings"]]
    assert len(family) > 1 and [path.is_dir() for path in leavings] == [True, True]
    session.cluster.kill()
    status = session.call("cluster", "status")
    assert status.returncode == 1
    assert f"The cluster at {session.url} (process {session.cluster.pid}) was killed" in status.stderr
    assert "`millstream cluster start -d` starts one" in status.stderr
    ended, left = psutil.wait_procs(family, 20)
    assert left == [] and ended
    assert not run_file.exists() and [path.exists() for path in leavings] == [False, False]
    assert "You have no job service" in session.call("list").stderr


@pytest.mark.timeout(600)
def test_application_continues_after_leader_is_killed(tmp_path: Path) -> None:
    """Two job managers; the leader starts its own Spark. `make test-ha` covers all faults."""
    records = 2000
    with managers(tmp_path, quick(tmp_path)) as cluster:
        command = ("run", "-m", "local[2]", "job.py", str(records), str(cluster.out))
        leader = cluster.start(*command)
        cluster.until(lambda: "leads cluster" in cluster.log(0), 200)
        standby = cluster.start(*command)
        cluster.until(lambda: "is a standby" in cluster.log(1) and cluster.lines() > 20, 200)
        os.killpg(leader.pid, signal.SIGKILL)
        cluster.until(lambda: "term 2" in cluster.log(1), 200)
        cluster.stop_throttling()
        assert standby.wait(200) == 0, cluster.all_logs()
        assert "starts from checkpoint" in cluster.log(1), cluster.all_logs()
        assert written_lines(cluster.out) == expected_lines(records), cluster.all_logs()

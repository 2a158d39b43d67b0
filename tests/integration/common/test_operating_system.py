"""Linux's and the portable implementation of the operating system's services report the same."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.operating_system import PORTABLE_VARIABLE, Linux, Portable, receive_descriptors

SYSTEMS = {"linux": Linux, "portable": Portable}


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> Portable:
    implementation: type[Portable] = SYSTEMS[request.param]
    return implementation()


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_private_memory_grows_with_allocations() -> None:
    for implementation in SYSTEMS.values():
        before = implementation().private_memory()
        block = b"x" * (64 << 20)
        assert implementation().private_memory() - before > 48 << 20, implementation
        del block


def test_process_start_is_stable_and_none_after_end(system: Portable, sleeping: subprocess.Popen[bytes]) -> None:
    started = system.process_start(sleeping.pid)
    assert started
    assert system.process_start(sleeping.pid) == started
    sleeping.kill()
    # It is a zombie until it is waited for.
    os.waitid(os.P_PID, sleeping.pid, os.WEXITED | os.WNOWAIT)
    assert system.process_start(sleeping.pid) is None
    sleeping.wait()
    assert system.process_start(sleeping.pid) is None


def test_boot_is_stable(system: Portable) -> None:
    assert system.boot() == type(system)().boot() != ""


def test_descendants_are_children_and_their_children(system: Portable, sleeping: subprocess.Popen[bytes]) -> None:
    # A shell with one child: an exec would replace it.
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())
        descendants = system.descendants()
        os.kill(grandchild, signal.SIGKILL)
    assert {pid: descendants.get(pid) for pid in (sleeping.pid, shell.pid, grandchild, os.getpid(), 1)} == {
        sleeping.pid: "sleep",
        shell.pid: "sh",
        grandchild: "sleep",
        os.getpid(): None,
        1: None,
    }


def test_parent_and_command_line_describe_child(system: Portable, sleeping: subprocess.Popen[bytes]) -> None:
    assert system.parent(sleeping.pid) == os.getpid()
    assert [word for word in system.command_line(sleeping.pid) if word] == ["sleep", "600"]


def test_parent_and_command_line_of_missing_process_are_empty(system: Portable) -> None:
    assert (system.parent(2**22 - 1), system.command_line(2**22 - 1)) == (0, [])
    assert system.processor_time(2**22 - 1) is None


def test_processor_time_sums_user_and_kernel_time_for_any_process_name(system: Portable) -> None:
    # ps rounds down to seconds.
    precision = 0.05 if isinstance(system, Linux) else 1.0
    while os.times().system < 0.3:
        os.urandom(1 << 20)
    name = Path("/proc/self/comm")
    before = name.read_text()
    name.write_text("a) S 1 2 (3")
    try:
        min_time = sum(os.times()[:2])
        time = system.processor_time(os.getpid())
        max_time = sum(os.times()[:2])
    finally:
        name.write_text(before.strip())
    assert time is not None
    assert min_time - precision <= time <= max_time + 0.05


@pytest.mark.parametrize(("text", "seconds"), [("00:01:02", 62), ("1:02.5", 62.5), ("3-04:05:06", 273906)])
def test_processor_time_reads_all_formats_of_ps(text: str, seconds: float, tmp_path: Path) -> None:
    ps = tmp_path / "ps"
    ps.write_text(f"#!/bin/sh\necho '{text}'\n")
    ps.chmod(0o755)
    command = "from millstream.operating_system import Portable; print(Portable().processor_time(1))"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, env=environment)
    assert float(done.stdout) == seconds


def test_poller_reports_readable_and_writable_descriptors(system: Portable) -> None:
    poller = system.poller()
    here, there = socket.socketpair()
    with here, there:
        poller.register(here.fileno(), select.POLLIN)
        assert poller.poll(0) == []
        assert poller.poll(0.01) == []
        there.send(b"x")
        assert poller.poll() == [(here.fileno(), select.POLLIN)]
        poller.modify(here.fileno(), select.POLLIN | select.POLLOUT)
        assert poller.poll(None) == [(here.fileno(), select.POLLIN | select.POLLOUT)]
        poller.unregister(here.fileno())
        assert poller.poll(0) == []
    poller.close()


def test_thread_activity_counts_cpu_time_of_busy_thread(system: Portable) -> None:
    activity = system.current_thread_activity()
    before = activity.seconds()
    while activity.seconds() - before < 0.05:
        sum(range(10_000))
    assert activity.seconds() > before


def test_receive_descriptors_does_not_pass_them_to_programs() -> None:
    here, there = socket.socketpair()
    reader, writer = os.pipe()
    with here, there:
        socket.send_fds(here, [b"message"], [writer])
        message, (received,) = receive_descriptors(there, 100, 3)
    assert message == b"message"
    assert not os.get_inheritable(received)
    os.write(received, b"x")
    assert os.read(reader, 1) == b"x"
    for descriptor in (reader, writer, received):
        os.close(descriptor)


def test_signal_process_reaches_process_of_descriptor(sleeping: subprocess.Popen[bytes]) -> None:
    system = Linux()
    descriptor = system.open_process(sleeping.pid)
    system.signal_process(descriptor, signal.SIGTERM)
    os.close(descriptor)
    assert sleeping.wait(30) == -signal.SIGTERM


def test_free_blocks_frees_disk_space_without_changing_size(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (1 << 20))
    with path.open("r+b") as file:
        Linux().free_blocks(file, 1 << 19)
        Portable().free_blocks(file, 1 << 19)
    status = path.stat()
    assert status.st_size == 1 << 20
    assert status.st_blocks * 512 <= 1 << 19


PROGRAM = """
import select
import sys
from pathlib import Path
for name in ("epoll", "EPOLLIN", "EPOLLRDHUP"):
    if hasattr(select, name):
        delattr(select, name)
from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.operating_system import Portable, system
assert type(system) is Portable

config = Configuration()
config.set_string("millstream.engine", "local")
config.set_string("execution.checkpointing.dir", sys.argv[1])
config.set_string("execution.checkpointing.interval", "50 ms")
config.set_string("restart-strategy.type", "fixed-delay")
config.set_string("taskmanager.memory.process.size", "4 gb")
env = StreamExecutionEnvironment.get_execution_environment(config)
marker = Path(sys.argv[1], "failed")

def fail_once(n):
    if n == 150_000 and not marker.exists():
        marker.touch()
        raise ValueError("once")
    return n

numbers = env.from_source(NumberSequenceSource(1, 200_000), WatermarkStrategy.no_watermarks(), "numbers").map(fail_once)
counts = numbers.key_by(lambda n: n % 3).reduce(lambda a, b: a + b)
print(max(counts.execute_and_collect("sums")))
"""


def test_local_engine_runs_with_portable_implementation(tmp_path: Path) -> None:
    """A job with checkpoints and a restart."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    environment = {**os.environ, PORTABLE_VARIABLE: "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "restarts in 1 s" in done.stderr
    assert done.stdout.strip() == str(sum(range(2, 200_001, 3)))

"""Slots that are frozen, and epochs that do not end: the job notices, reports it and continues."""

from __future__ import annotations

import logging
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.testing import CollectSink
from tests.support.helpers import CountWithPid, PushedReader, job_of, restart_at_once, slot_processes, wait_until

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("exchange", ["resident", "spark"])
def test_heartbeat_replaces_slot_stopped_during_epoch(
    config: Configuration, exchange: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config.set_string("millstream.exchange", exchange).set_string("heartbeat.timeout", "1500 ms")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    restart_at_once(env)
    started = tmp_path / "started"

    def block_once(value: int) -> int:
        # User code that blocks for longer than the timeout does not replace its slot.
        if value == 0 and not started.exists():
            started.touch()
            time.sleep(60)
        return value

    sink = CollectSink()
    env.from_source(NumberSequenceSource(0, 19)).map(block_once).sink_to(sink)
    with caplog.at_level(logging.WARNING, "millstream"):
        client = env.execute_async()
        wait_until(started.exists)
        time.sleep(2)
        assert job_of(client).view.restarts == 0
        for process in slot_processes():
            process.send_signal(signal.SIGSTOP)
        client.get_job_execution_result().result(60)
    assert sorted(sink.results()) == list(range(20))
    assert job_of(client).view.restarts == 1
    assert "has sent no heartbeat for 1500 ms (heartbeat.timeout): the process is frozen" in caplog.text


def test_heartbeat_replaces_slot_stopped_while_idle(config: Configuration, caplog: pytest.LogCaptureFixture) -> None:
    config.set_string("millstream.exchange", "resident").set_string("heartbeat.timeout", "1500 ms")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    restart_at_once(env)
    reader, sink = PushedReader(), CollectSink()
    env.from_source(reader).key_by(lambda row: row[0] % 2).process(CountWithPid()).sink_to(sink)
    client = env.execute_async()
    reader.push(4)
    wait_until(lambda: len(sink.results()) == 4 and 4 in reader.committed)
    with caplog.at_level(logging.WARNING, "millstream"):
        slot_processes()[1].send_signal(signal.SIGSTOP)
        wait_until(lambda: job_of(client).view.restarts == 1)
    reader.push(2)
    wait_until(lambda: len(sink.results()) == 6)
    client.cancel().result(30)
    assert sorted((key, n) for key, n, _ in sink.results()) == [(key, n) for key in (0, 1) for n in (1, 2, 3)]
    assert "has sent no heartbeat" in caplog.text


def test_checkpoint_timeout_restarts_job_with_stuck_epoch(config: Configuration, tmp_path: Path) -> None:
    config.set_string("millstream.exchange", "resident").set_string("execution.checkpointing.timeout", "1 s")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    restart_at_once(env)
    blocked = tmp_path / "blocked"

    def block_once(row: Any) -> int:
        if row[0] == 3 and not blocked.exists():
            blocked.touch()
            time.sleep(600)
        return int(row[0])

    reader, sink = PushedReader(), CollectSink()
    env.from_source(reader).map(block_once).sink_to(sink)
    client = env.execute_async()
    # The first epoch may wait for its slots.
    reader.push(1)
    wait_until(lambda: len(sink.results()) == 1)
    reader.push(5)
    wait_until(lambda: len(sink.results()) == 6)
    client.cancel().result(30)
    assert sorted(sink.results()) == list(range(6))
    (failure,) = job_of(client).view.failures
    assert "so checkpoints exceed execution.checkpointing.timeout (1 s)" in failure.message

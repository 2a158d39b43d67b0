"""Leases: a checkpoint that is being read is not deleted, however often the job takes another one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millstream.checkpoint.inspect import Inspection
from millstream.cli.main import cli
from millstream.common.configuration import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.jobmaster.job import JobMaster
from millstream.jobmaster.leases import CheckpointLeases
from millstream.jobmaster.machine.coordinator import CheckpointStatus
from millstream.jobmaster.machine.view import CheckpointView
from millstream.service.app import make_app
from millstream.service.client import ServiceClient, ServiceError, leased_checkpoint
from millstream.service.options import ServiceOptions
from millstream.service.registry import Registry
from millstream.service.server import PublicServer, service_of
from tests.support.helpers import job_of

SETTINGS = {"millstream.engine": "local", "millstream.quiet": "true", "execution.checkpointing.interval": "50 ms"}


class Served:
    """A job that takes a checkpoint every 50 ms, and its service."""

    def __init__(self, directory: Path) -> None:
        config = Configuration.from_dict({**SETTINGS, "execution.checkpointing.dir": str(directory)})
        env = StreamExecutionEnvironment.get_execution_environment(config)
        numbers = env.from_source(DataGeneratorSource(lambda i: i, None, 5000))
        numbers.key_by(lambda i: i % 10).reduce(lambda a, b: b).name("Last").add_sink(lambda v: None)
        self.client = env.execute_async("served")
        self.job: JobMaster = job_of(self.client)
        registry = Registry()
        registry.add(self.job, config.to_dict())
        options = ServiceOptions.read(Configuration.from_dict({"rest.port": "auto", "millstream.rest.token": "secret"}))
        assert options is not None
        # Responses are cached for a second, as by default.
        self.server = PublicServer(make_app(service_of(registry, {}, options.token, 1000, 1.0)), options)
        self.server.start()
        self.rest = ServiceClient(self.server.url, "secret")
        self.path = f"/jobs/{self.client.get_job_id()}"
        self.until(5)

    def until(self, checkpoint: int) -> int:
        """Wait until checkpoint `number` is complete; return the id of the last one."""
        end = time.monotonic() + 20
        while (latest := self.job.view.checkpoints.latest) is None or latest.id < checkpoint:
            assert time.monotonic() < end, self.job.view
            time.sleep(0.01)
        return latest.id


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    served = Served(tmp_path / "checkpoints")
    yield served
    served.client.cancel().result()
    served.server.stop()


def checkpoint(number: int) -> CheckpointView:
    return CheckpointView(
        id=number,
        status=CheckpointStatus.NOTIFIED,
        triggered_at=0.0,
        acknowledged_at=0.0,
        completed_at=1.0,
        state_bytes=0,
        location=f"/chk-{number}",
        failure=None,
    )


def test_checkpoint_lease_expires_unless_renewed() -> None:
    now = [0.0]
    leases = CheckpointLeases(lambda: now[0])
    assert leases.take(lambda: None) is None
    first, second = leases.take(lambda: checkpoint(3), 10), leases.take(lambda: checkpoint(4))
    assert first is not None and second is not None and (first.location, first.checkpoint) == ("/chk-3", 3)
    now[0] = 9
    assert leases.renew(first.id, 10) and leases.held() == {3, 4}
    now[0] = 19
    assert leases.held() == {4} and not leases.renew(first.id, 10)
    leases.release(second.id)
    leases.release(first.id)
    assert leases.held() == frozenset()


def test_leased_checkpoint_is_read_whole_and_deleted_after_release(served: Served) -> None:
    with leased_checkpoint(served.rest, str(served.client.get_job_id())) as location:
        begun = served.job.view.checkpoints.latest
        assert begun is not None
        served.until(begun.id + 5)
        inspection = Inspection.open(location)
        (operator,) = [o for o in inspection.operators() if o.states]
        assert len(list(inspection.rows(operator, operator.states[0]))) == 10
        retained = {path.name for path in Path(location).parent.glob("chk-*")}
        # This one and the newest, and perhaps one that is being written or deleted.
        assert Path(location).name in retained and len(retained) <= 4
    served.until(served.until(5) + 3)
    assert not Path(location).exists()


def test_checkpoint_lease_is_rejected_without_checkpoint_and_when_expired(served: Served) -> None:
    with pytest.raises(ServiceError, match=f"There is no lease {'0' * 32}"):
        served.rest.ask(f"{served.path}/state-leases/{'0' * 32}", "PUT", {})
    with pytest.raises(ServiceError, match="a lease id has 32 hexadecimal digits"):
        served.rest.ask(f"{served.path}/state-leases/x", "DELETE")


@pytest.mark.parametrize("command", [["ls"], ["show", "-n", "3"]], ids=["ls", "show"])
def test_state_commands_succeed_while_checkpoints_are_subsumed(served: Served, command: list[str]) -> None:
    for _ in range(15):
        reported = CliRunner().invoke(cli, ["state", command[0], "served", *command[1:]])
        assert reported.exit_code == 0 and "Last" in reported.output, (reported.output, reported.exception)
    assert served.job.leases.held() == frozenset()


def test_state_rest_api_succeeds_while_checkpoints_are_subsumed(served: Served) -> None:
    seen: set[int] = set()
    number, end = 0, time.monotonic() + 20
    while len(seen) < 8:
        assert time.monotonic() < end, seen
        # A different query each time, because responses are cached.
        number += 1
        answer: dict[str, Any] = served.rest.ask(f"{served.path}/state?{number}")
        (operator,) = answer["operators"]
        assert operator["states"][0]["rows"] == 10
        seen.add(answer["checkpoint"])
    assert served.job.leases.held() == frozenset()

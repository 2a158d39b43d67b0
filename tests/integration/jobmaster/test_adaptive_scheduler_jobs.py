"""Jobs of the adaptive scheduler, in this process; the tests set the number of available slots."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from millstream.common import Configuration, WatermarkStrategy
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.common.job_status import JobStatus
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.collect import LocalJobClient
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.state import ValueStateDescriptor
from millstream.jobmaster.local import LocalEngine
from millstream.service.app import Service, make_app
from millstream.service.registry import Registry
from millstream.testing import CollectSink, LocalEnvironment

_PREFIX = "jobmanager.adaptive-scheduler"
AT_ONCE = {
    "jobmanager.scheduler": "adaptive",
    f"{_PREFIX}.submission.resource-stabilization-timeout": "0 ms",
    f"{_PREFIX}.executing.cooldown-after-rescaling": "0 ms",
    f"{_PREFIX}.executing.resource-stabilization-timeout": "0 ms",
    f"{_PREFIX}.rescale-trigger.max-delay": "0 ms",
    "execution.checkpointing.interval": "20 ms",
    "parallelism.default": "4",
}
RECORDS, KEYS = 100_000_000, 23


class Slots:
    """The number of available slots."""

    count = 1


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> Slots:
    slots = Slots()
    monkeypatch.setattr(LocalEngine, "slots", lambda engine, parallelism: slots.count)
    return slots


class Count(KeyedProcessFunction):
    """Numbers the records of each key; fails once on request."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int, int]]:
        if FAIL.is_set():
            FAIL.clear()
            raise RuntimeError("failure on request")
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        yield value, value % KEYS, n


FAIL = threading.Event()


class Job:
    """A job that counts until it is stopped."""

    def __init__(self, **settings: str) -> None:
        options = {**AT_ONCE, **{key.replace("__", "."): value for key, value in settings.items()}}
        local, self.sink = LocalEnvironment(Configuration.from_dict(options), restarts=5), CollectSink()
        source = DataGeneratorSource(lambda i: i, RECORDS, 4000)
        numbers = local.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        numbers.key_by(lambda x: x % KEYS).process(Count()).uid("count").sink_to(self.sink).uid("sink")
        client = local.execute_async("counting")
        assert isinstance(client, LocalJobClient)
        self.client = client
        self.registry = Registry(time.time)
        self.registry.add(client.job, options)

    @property
    def widths(self) -> list[int]:
        view = self.client.job.view
        return [v.parallelism for v in view.plan.vertices] if view.status is JobStatus.RUNNING else []

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < end, self.client.job.view
            time.sleep(0.005)

    def wait_for_parallelisms(self, *widths: int) -> None:
        """Wait until the job has this parallelism and more results."""
        self.until(lambda: self.widths == list(widths))
        count = len(self.sink.results())
        self.until(lambda: len(self.sink.results()) > count)

    def wait_for_state(self) -> None:
        """Wait until there are records of each key, so that no subtask has none."""
        self.until(lambda: len({key for _, key, _ in self.sink.results()}) == KEYS)

    def metrics(self, *names: str) -> list[float]:
        client = TestClient(make_app(Service(self.registry)))
        answer = client.get(f"/jobs/{self.client.get_job_id()}/metrics?get={','.join(names)}").json()
        by_name = {m["id"]: float(m["value"]) for m in answer}
        return [by_name[name] for name in names]

    def stop(self, directory: Any) -> None:
        """Stop the job; each record must have been counted once."""
        self.client.stop_with_savepoint(savepoint_directory=str(directory)).result(60)
        self.client.get_job_execution_result().result(60)
        values = [value for value, _, _ in self.sink.results()]
        assert values and sorted(values) == list(range(len(values)))
        expected = Counter((k, n) for k in range(KEYS) for n in range(1, len(range(k, len(values), KEYS)) + 1))
        assert Counter((k, n) for _, k, n in self.sink.results()) == expected


def test_adaptive_job_rescales_with_available_slots(slots: Slots, tmp_path: Any) -> None:
    slots.count = 0
    job = Job()
    job.until(lambda: job.client.job.view.status is JobStatus.CREATED)
    slots.count = 1
    job.wait_for_parallelisms(1, 1)
    job.wait_for_state()
    slots.count = 3
    job.wait_for_parallelisms(3, 3)
    # Slots beyond the parallelism of the program are not used.
    slots.count = 9
    job.wait_for_parallelisms(4, 4)
    slots.count = 2
    job.wait_for_parallelisms(2, 2)
    assert job.client.job.view.restarts == 0
    # Three changes, to three, four and two subtasks: each read its state once.
    job.until(lambda: job.metrics("numEpochsStateRead") == [9.0])
    job.stop(tmp_path)
    assert job.metrics("numEpochsStateRead") == [9.0]


def test_adaptive_job_restarts_with_remaining_slots_after_failure(slots: Slots, tmp_path: Any) -> None:
    slots.count = 4
    # While it runs it would not be rescaled for an hour.
    job = Job(**{f"{_PREFIX}.executing.cooldown-after-rescaling".replace(".", "__"): "1 h"})
    job.wait_for_parallelisms(4, 4)
    job.wait_for_state()
    slots.count = 2
    FAIL.set()
    job.wait_for_parallelisms(2, 2)
    assert job.client.job.view.restarts == 1
    # The two read the state from files in their first epoch; all others found it in memory.
    job.until(lambda: job.metrics("numEpochsStateRead") == [2.0])
    job.stop(tmp_path)
    local, read, share = job.metrics("numEpochsStateLocal", "numEpochsStateRead", "stateLocalShare")
    assert read == 2 and local > 0 and share == local / (local + read) < 1


def test_reactive_job_uses_all_slots_up_to_max_parallelism(slots: Slots, tmp_path: Any) -> None:
    slots.count = 1
    job = Job(
        jobmanager__scheduler="default",
        **{"scheduler-mode": "reactive", "parallelism__default": "1", "pipeline__max-parallelism": "5"},
    )
    job.wait_for_parallelisms(1, 1)
    slots.count = 9
    job.wait_for_parallelisms(5, 5)
    with pytest.raises(InvalidProgramError, match="follows the available slots"):
        job.client.rescale(2).result(60)
    job.stop(tmp_path)


def test_adaptive_job_fails_without_slots_after_timeout(slots: Slots) -> None:
    slots.count = 0
    job = Job(**{f"{_PREFIX}.submission.resource-wait-timeout".replace(".", "__"): "50 ms"})
    with pytest.raises(JobExecutionError, match="needs 1 slots, and 0 are available after 0.05 s: add executors"):
        job.client.get_job_execution_result().result(60)


def test_adaptive_job_waiting_for_slots_can_be_cancelled(slots: Slots) -> None:
    slots.count = 0
    job = Job()
    job.until(lambda: job.client.job.view.status is JobStatus.CREATED)
    job.client.cancel().result(60)
    assert job.client.get_job_status().result(60) is JobStatus.CANCELED


def test_resource_requirements_are_read_and_set_over_rest(slots: Slots, tmp_path: Any) -> None:
    slots.count = 4
    job = Job()
    job.wait_for_parallelisms(4, 4)
    client, path = TestClient(make_app(Service(job.registry))), f"/jobs/{job.client.get_job_id()}/resource-requirements"
    bounds = client.get(path).json()
    assert [b["parallelism"] for b in bounds.values()] == [{"lowerBound": 1, "upperBound": 4}] * 2
    counting = list(bounds)[-1]
    bounds[counting]["parallelism"] = {"lowerBound": 1, "upperBound": 2}
    assert client.put(path, json=bounds).status_code == 200
    job.wait_for_parallelisms(4, 2)
    assert client.get(path).json() == bounds
    bounds[counting]["parallelism"] = {"lowerBound": 3, "upperBound": 2}
    refused = client.put(path, json=bounds)
    assert refused.status_code == 400 and "cannot be from 3 to 2" in refused.text
    # As many as there are slots for, although more are requested.
    bounds[counting]["parallelism"] = {"lowerBound": 1, "upperBound": 128}
    assert client.put(path, json=bounds).status_code == 200
    job.wait_for_parallelisms(4, 4)
    assert client.get(path).json() == bounds
    job.stop(tmp_path)

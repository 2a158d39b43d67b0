"""docs/reference/metrics.md lists exactly the metrics of running jobs, over REST and for Prometheus."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from starlette.testclient import TestClient

from millstream.common import Configuration, Time, WatermarkStrategy
from millstream.common.job_client import JobClient
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import (
    BadRecords,
    Source,
    SourceReader,
    SplitAssignment,
    SplitEnumerator,
)
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.operators.diagnostics.io_metrics import LevelTimes, SlotTraffic
from millstream.service.app import Service, make_app
from millstream.service.registry import Registry
from millstream.service.responses.cluster import Slots
from millstream.service.responses.metrics import of_subtask
from millstream.service.workers import workers_of
from millstream.spark.executors import Executor
from millstream.table import EnvironmentSettings, TableEnvironment
from tests.support.helpers import job_of
from tests.support.paths import DOCS

LOCAL = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": "1"}
PAGE = (DOCS / "reference" / "metrics.md").read_text()


def documented(heading: str) -> set[str]:
    """Return the metrics of a section's table."""
    section = re.split(r"^## ", PAGE.split(f"\n## {heading}\n")[1], flags=re.MULTILINE)[0]
    cells = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}


class Numbers(Source[int]):
    """Reports how many records and bytes wait; its records are their own timestamps, in seconds."""

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return NumbersEnumerator()

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return NumbersReader()


class NumbersEnumerator(SplitEnumerator):
    def __init__(self) -> None:
        self.next = 0

    def poll(self, budget: int, now: float) -> SplitAssignment:
        start, self.next = self.next, self.next + 10
        return SplitAssignment({0: [(start, self.next)]}, unassigned={0: 7}, unassigned_bytes={0: 70})

    def snapshot(self) -> int:
        return self.next


class NumbersReader(SourceReader):
    def read(self, split_range: Any) -> Iterator[list[int]]:
        time.sleep(0.01)
        yield list(range(*split_range))


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value) * 1000


def start_job() -> JobClient:
    """Start a job whose source, window and state have all metrics that do not need Spark."""
    settings = {**LOCAL, "execution.checkpointing.interval": "20 ms"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())
    numbers = env.from_source(Numbers().on_bad_records(BadRecords.skip()), strategy, "numbers")
    windows = numbers.key_by(lambda x: x % 3).window(TumblingEventTimeWindows.of(Time.seconds(10)))
    windows.reduce(lambda a, b: a + b).name("windows").add_sink(lambda v: None)
    return env.execute_async("metrics")


def names_of(client: TestClient, path: str) -> set[str]:
    return {metric["id"] for metric in client.get(path).json()}


def test_metrics_page_lists_metrics_of_running_job() -> None:
    job, registry = start_job(), Registry()
    registry.add(job_of(job), LOCAL)
    client, about = TestClient(make_app(Service(registry))), f"/jobs/{job.get_job_id()}"
    of_task, of_job = documented("Subtask"), documented("Job")
    resident = {name for name in of_task if name.startswith(("buffers.", "accumulate"))}
    try:
        vertices = [v["id"] for v in client.get(about).json()["vertices"]]
        exposed: set[str] = set()
        deadline = time.monotonic() + 30
        # Some appear with the first checkpoint, watermark or report of diagnostics.
        while not (exposed >= of_task - resident and names_of(client, f"{about}/metrics") >= of_job):
            assert time.monotonic() < deadline, (of_task - resident - exposed, of_job)
            exposed |= {n for v in vertices for n in names_of(client, f"{about}/vertices/{v}/subtasks/metrics")}
        assert names_of(client, f"{about}/metrics") == of_job
        operators = {name for name in exposed - of_task if "." in name}
        assert {name.rpartition(".")[2] for name in operators} <= documented("Operator")
        assert exposed - operators == of_task - resident
        assert names_of(client, "/taskmanagers/metrics") == documented_of_worker("Status.Threads")
        assert names_of(client, "/jobmanager/metrics") == documented("Job manager")
        scraped = set(re.findall(r"^(flink_\w+){", client.get("/metrics").text, re.MULTILINE))
        view = job_of(job).view
    finally:
        job.cancel().result()
    text_only = {"lastCheckpointExternalPath"}
    expected = {f"flink_jobmanager_job_{name}" for name in of_job - text_only}
    expected |= {"flink_taskmanager_job_task_" + re.sub(r"\W", "_", name) for name in exposed}
    assert scraped <= expected and expected - scraped <= {"flink_taskmanager_job_task_watermarkLag"}
    # A resident slot, which needs Spark, reports its times and channels, too.
    traffic = {0: SlotTraffic(elapsed=1.0, credit=1, levels=(LevelTimes(), LevelTimes()), channels=())}
    with_slot = replace(view, progress=replace(view.progress, traffic=traffic))
    assert resident == {
        name
        for name in of_subtask(with_slot, view.plan.vertices[0], 0, None, 0.0)
        if name not in of_subtask(view, view.plan.vertices[0], 0, None, 0.0)
    }


def documented_of_worker(*own: str) -> set[str]:
    """Return the metrics of a worker: those that all have, and `own`."""
    return {"taskSlotsTotal", "taskSlotsAvailable", *own}


def test_metrics_page_lists_metrics_of_executors() -> None:
    executor = Executor(
        id="0", address="host:1", cores=1, memory=100, used=1, active_tasks=0, failed_tasks=0, completed_tasks=0,
        started_ms=0, gc_ms=5, logs={},
    )  # fmt: skip
    (worker,) = workers_of([executor], Slots(1, 1), {})
    assert set(worker.metrics) | {"Status.Threads"} == documented("Task manager")


def operator_metrics(job: JobClient) -> set[str]:
    """Return the metrics of a job's operators, without the operators' names."""
    view = job_of(job).view
    exposed = {name for vertex in view.plan.vertices for name in of_subtask(view, vertex, 0, None, 0.0)}
    return {name.rpartition(".")[2] for name in exposed - documented("Subtask")}


def test_metrics_page_lists_metrics_of_operators() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for key, value in {**LOCAL, "millstream.batch.memory": "1"}.items():
        env.get_config().set(key, value)
    env.execute_sql("CREATE TABLE n (i INT) WITH ('connector' = 'datagen', 'number-of-rows' = '100')")
    env.execute_sql("CREATE TABLE s (i INT) WITH ('connector' = 'blackhole')")
    result = env.execute_sql("INSERT INTO s SELECT MAX(i) FROM n GROUP BY i")
    result.wait()
    batch = result.get_job_client()
    assert batch is not None
    job = start_job()
    try:
        deadline = time.monotonic() + 30
        while operator_metrics(batch) | operator_metrics(job) != documented("Operator"):
            assert time.monotonic() < deadline, operator_metrics(batch) | operator_metrics(job)
    finally:
        job.cancel().result()

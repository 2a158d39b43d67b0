"""Metrics have Flink's names and correct values, for a job whose numbers are known."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

from millstream.common import Time, WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import MapFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.service.app import Service, make_app
from millstream.service.registry import Registry
from tests.support.helpers import job_of

# Flink's task and job metrics: docs/ops/metrics of 2.3, without the job's times that depend on its scheduler and the
# task metrics of network buffers.
OF_TASK = {
    "numRecordsIn", "numRecordsOut", "numBytesIn", "numBytesOut", "numRecordsInPerSecond", "numRecordsOutPerSecond",
    "numBytesInPerSecond", "numBytesOutPerSecond", "currentInputWatermark", "currentOutputWatermark", "watermarkLag",
    "busyTimeMsPerSecond", "idleTimeMsPerSecond", "backPressuredTimeMsPerSecond", "stateSize",
}  # fmt: skip
OF_JOB = {
    "numRestarts", "fullRestarts", "uptime", "downtime", "runningTime", "totalNumberOfCheckpoints",
    "numberOfCompletedCheckpoints", "numberOfFailedCheckpoints", "numberOfInProgressCheckpoints", "lastCheckpointSize",
    "lastCheckpointFullSize", "lastCheckpointDuration", "lastCheckpointExternalPath", "lastCompletedCheckpointId",
    "lastCheckpointRestoreTimestamp", "lastCheckpointProcessedData", "lastCheckpointPersistedData",
}  # fmt: skip


class Stamp(TimestampAssigner):
    """The numbers are their own timestamps, except for each hundredth, which is late."""

    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return 0 if value % 100 == 0 else 1_000_000 + value


class Measures(MapFunction):
    def open(self, runtime_context: Any) -> None:
        group = runtime_context.get_metrics_group().add_group("shop").add_group("country", "at")
        self.count, self.meter = group.counter("orders"), group.meter("rate")
        self.sizes = group.distribution("sizes")
        self.last = 0
        group.gauge("last", lambda: self.last)

    def map(self, value: int) -> int:
        self.count.inc(2)
        self.meter.mark_event()
        self.sizes.update(value)
        self.last = value
        return value


def test_metrics_have_flink_names_and_correct_values() -> None:
    settings = {
        "millstream.engine": "local",
        "millstream.quiet": "true",
        "parallelism.default": "2",
        "execution.checkpointing.interval": "20 ms",
        "millstream.epoch.max-records": "500",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
    numbers = env.from_source(NumberSequenceSource(1, 4000), strategy, "numbers").map(Measures()).name("measures")
    windows = numbers.key_by(lambda x: x % 7).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    windows.reduce(lambda a, b: a).name("windows").add_sink(lambda v: None)
    now = [0.0]
    registry = Registry(lambda: now[0])
    job = env.execute_async("measured")
    registry.add(job_of(job), settings)
    job.get_job_execution_result().result(30)
    now[0] = 2.0
    client, about = TestClient(make_app(Service(registry))), f"/jobs/{job.get_job_id()}"
    source, window = (v["id"] for v in client.get(about).json()["vertices"])
    read, windowed = (_metrics(client, f"{about}/vertices/{v}/subtasks/metrics") for v in (source, window))
    last = _metrics(client, f"{about}/vertices/{window}/subtasks/metrics", "max")
    assert set(windowed) >= OF_TASK - {"watermarkLag"} and set(read) >= OF_TASK - {"watermarkLag"}
    assert read["numRecordsIn"] == read["numRecordsOut"] == windowed["numRecordsIn"] == 4000
    assert read["numBytesIn"] == 0 < read["numBytesOut"] == windowed["numBytesIn"]
    assert read["measures.shop.country.at.orders"] == 8000
    assert read["measures.shop.country.at.sizes.sum"] == sum(range(1, 4001))
    assert read["measures.shop.country.at.rate.count"] == 4000
    assert last["currentInputWatermark"] == last["currentOutputWatermark"] == 2**63 - 1
    # Two subtasks read 2000 numbers each, in order; each hundredth is late once there is a watermark.
    assert 20 <= windowed["windows.numLateRecordsDropped"] <= 40
    job_metrics = {m["id"]: m for m in client.get(f"{about}/metrics").json()}
    assert set(job_metrics) >= OF_JOB, OF_JOB - set(job_metrics)
    answer = client.get(f"{about}/metrics?get=numRestarts,numberOfCompletedCheckpoints").json()
    values = {m["id"]: int(m["value"]) for m in answer}
    assert values["numRestarts"] == 0 and values["numberOfCompletedCheckpoints"] >= 1
    totals = client.get(about).json()["vertices"]
    assert totals[1]["metrics"]["read-bytes"] == windowed["numBytesIn"]


def _metrics(client: TestClient, path: str, aggregation: str = "sum") -> dict[str, float]:
    names = [m["id"] for m in client.get(path).json()]
    return {m["id"]: m[aggregation] for m in client.get(f"{path}?get={','.join(names)}").json()}


def test_running_source_reports_lag_and_meter_rate() -> None:
    settings = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": "1"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
    source = NumberSequenceSource(1, 10**9).at_most(2000)
    env.from_source(source, strategy, "numbers").map(Measures()).name("measures").add_sink(lambda v: None)
    job = env.execute_async("lagging")
    registry = Registry()
    registry.add(job_of(job), settings)
    client, about = TestClient(make_app(Service(registry))), f"/jobs/{job.get_job_id()}"
    (vertex,) = (v["id"] for v in client.get(about).json()["vertices"])
    try:
        for _ in range(400):
            metrics = _metrics(client, f"{about}/vertices/{vertex}/subtasks/metrics")
            if metrics.get("measures.shop.country.at.rate", 0) > 100 and "watermarkLag" in metrics:
                break
    finally:
        job.cancel().result()
    # Event time is some minutes after 1970.
    assert metrics["watermarkLag"] > 50 * 365 * 86_400_000
    assert 100 < metrics["measures.shop.country.at.rate"] < 4000

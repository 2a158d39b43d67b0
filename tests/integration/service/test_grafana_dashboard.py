"""The Grafana dashboard and the alerts of its guide query metrics and labels that a running job exports."""

from __future__ import annotations

import json
import re
import socket

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from millstream.common import Configuration, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.socket_source import SocketTextSource
from millstream.service.app import Service, make_app
from millstream.service.registry import Registry
from tests.support.helpers import job_of, wait_until
from tests.support.paths import DOCS, ROOT

SETTINGS = {
    "millstream.engine": "local",
    "millstream.quiet": "true",
    "parallelism.default": "1",
    "execution.checkpointing.interval": "20 ms",
}


class Milliseconds(TimestampAssigner):
    def extract_timestamp(self, value: str, record_timestamp: int) -> int:
        return int(value)


def queries() -> list[str]:
    """Return the queries of the dashboard's panels and variables, and of the guide's alerts."""
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "job.json").read_text())
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [v["query"]["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    alerts = re.findall(r"^ +expr: (.*)$", (DOCS / "guides" / "grafana.md").read_text(), re.MULTILINE)
    assert len(panels) >= 10 and len(variables) == 1 and len(alerts) >= 3
    return panels + variables + alerts


def test_dashboard_queries_metrics_and_labels_of_a_job() -> None:
    metrics = {name for query in queries() for name in re.findall(r"flink_\w+", query)}
    groups = ",".join(",".join(re.findall(r"by \((.*?)\)", query)) for query in queries())
    labels = {label.strip() for label in groups.split(",") if label}
    registry = Registry()
    client = TestClient(make_app(Service(registry)))

    def exported() -> dict[str, set[str]]:
        families = text_string_to_metric_families(client.get("/metrics").text)
        return {sample.name: set(sample.labels) for family in families for sample in family.samples}

    with socket.create_server(("127.0.0.1", 0)) as server:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(SETTINGS))
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Milliseconds())
        numbers = env.from_source(SocketTextSource("127.0.0.1", server.getsockname()[1]), strategy, "numbers")
        numbers.map(lambda text: ("n", int(text))).key_by(lambda pair: pair[0]).sum(1).add_sink(lambda pair: None)
        job = env.execute_async("shown")
        registry.add(job_of(job), SETTINGS)
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"1700000000000\n1700000000001\n")
            wait_until(lambda: metrics <= exported().keys(), 30)
            by_metric = exported()
            job.cancel().result()
    assert labels == {"job_name", "task_name"}
    jobs = {name for name in metrics if name.startswith("flink_jobmanager_job_")}
    assert all("job_name" in by_metric[name] for name in jobs)
    assert all(labels <= by_metric[name] for name in metrics - jobs)

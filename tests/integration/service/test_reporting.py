"""Metrics and spans sent to an OTLP collector."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.service.reporting import targets

PROGRAM = """
from millstream.datastream import StreamExecutionEnvironment, MapFunction
from millstream.datastream.connectors.datagen import DataGeneratorSource

class Fails(MapFunction):
    def open(self, runtime_context):
        self.context = runtime_context
        self.seen = runtime_context.get_metrics_group().add_group("kind", "odd").counter("seen")
    def map(self, value):
        self.seen.inc()
        if value == 300 and self.context.get_attempt_number() == 0:
            raise ValueError("the first time")
        return value

env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(50)
numbers = env.from_source(DataGeneratorSource(lambda i: i, 600, 500), source_name="numbers")
numbers.key_by(lambda i: i % 3).map(Fails()).name("fails").add_sink(lambda v: None)
env.execute("reported")
"""


class Collector:
    """Receives OTLP over HTTP, and records the requests."""

    def __init__(self) -> None:
        self.metrics: list[Any] = []
        self.spans: list[Any] = []

    def take(self, path: str, body: bytes) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        if path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        elif path == "/v1/traces":
            self.spans.append(ExportTraceServiceRequest.FromString(body))
        else:
            raise AssertionError(path)


@contextmanager
def collector() -> Iterator[tuple[Collector, str]]:
    received = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.take(self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield received, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def attributes(record: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in record.attributes}


def test_otel_reporter_sends_metrics_checkpoints_and_restarts(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="millstream[otel] is not installed")
    (tmp_path / "job.py").write_text(PROGRAM)
    with collector() as (server, url):
        settings = [
            *("metrics.reporters=otel", f"metrics.reporter.otel.exporter.endpoint={url}"),
            *("traces.reporters=otel", f"traces.reporter.otel.exporter.endpoint={url}/v1/traces"),
            *("metrics.reporter.otel.service.name=shop", "metrics.reporter.otel.interval=500 ms"),
            "metrics.reporter.otel.scope.variables.additional=region:eu,stage:test",
            *("restart-strategy.type=fixed-delay", "restart-strategy.fixed-delay.delay=100 ms"),
        ]
        command = [sys.executable, "-m", "millstream.cli.main", "run", "--local", "-p", "2"]
        done = subprocess.run(
            [*command, *(f"-D{s}" for s in settings), str(tmp_path / "job.py")],
            capture_output=True,
            text=True,
            timeout=90,
        )
    assert done.returncode == 0, done.stderr
    # More reports than the last one.
    assert len(server.metrics) > 1
    (resource,) = server.metrics[-1].resource_metrics
    assert {"service.name": "shop", "region": "eu", "stage": "test"}.items() <= attributes(resource.resource).items()
    metrics = {m.name: m for scope in resource.scope_metrics for m in scope.metrics}
    restarts = metrics["flink.jobmanager.job.numRestarts"].sum
    assert restarts.is_monotonic and [p.as_int for p in restarts.data_points] == [1]
    read = metrics["flink.taskmanager.job.task.numRecordsIn"].sum.data_points
    by_task = {(attributes(p)["task_name"], attributes(p)["subtask_index"]): p.as_int for p in read}
    assert {name for name, _ in by_task} == {"Source: numbers", "fails -> Sink"}
    assert sum(n for (name, _), n in by_task.items() if name == "fails -> Sink") >= 600
    assert attributes(read[0])["job_name"] == "reported"
    assert "flink.taskmanager.job.task.fails.kind.odd.seen" in metrics
    spans = [s for r in server.spans for rs in r.resource_spans for scope in rs.scope_spans for s in scope.spans]
    assert len({s.span_id for s in spans}) == len(spans)
    starts = [s for s in spans if s.name == "JobInitialization"]
    assert [attributes(s)["restart"] for s in starts] == [0, 1]
    assert attributes(starts[1])["failure"] == "ValueError: the first time"
    assert starts[1].end_time_unix_nano - starts[1].start_time_unix_nano >= 90_000_000
    checkpoints = [attributes(s) for s in spans if s.name == "Checkpoint"]
    # A report in progress may have failed with the job.
    states = [c["checkpointStatus"] for c in checkpoints]
    assert states.count("COMPLETED") >= 3 and states.count("FAILED") <= 1 and len(states) >= 3
    numbers = [c["checkpointId"] for c in checkpoints]
    assert numbers == sorted(set(numbers))
    job_id = attributes(starts[0])["job_id"]
    assert {s.trace_id.hex() for s in spans} == {job_id}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "metrics.reporter.otel.exporter.endpoint is not set"),
        ({"endpoint": "http://x", "protocol": "gRPC"}, "metrics.reporter.otel.exporter.protocol must be HTTP"),
    ],
)
def test_otel_reporter_rejects_invalid_settings(settings: dict[str, str], message: str) -> None:
    keys = {f"metrics.reporter.otel.exporter.{k}": v for k, v in settings.items()}
    config = Configuration.from_dict({"metrics.reporters": "otel", **keys})
    with pytest.raises(InvalidProgramError, match=message):
        list(targets(config, "metrics"))


def test_unsupported_reporter_logs_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = Configuration.from_dict(
        {"metrics.reporters": "jmx", "metrics.reporter.jmx.factory.class": "x.JMXReporter"}
    )
    assert list(targets(config, "metrics")) == []
    assert "Ignoring reporter jmx of metrics" in caplog.text

"""Reporters that send metrics and spans to external systems, as configured."""

from __future__ import annotations

import atexit
import logging
import random
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.job_status import JobStatus
from millstream.common.setting import DurationSetting, TextSetting
from millstream.jobmaster.machine.view import JobView
from millstream.service.registry import Entry, Registry
from millstream.service.responses import metrics
from millstream.service.responses.metrics import Value
from millstream.service.responses.tasks import vertex_id

log = logging.getLogger("millstream")

METRICS = TextSetting("metrics.reporters", None)
TRACES = TextSetting("traces.reporters", None)

# Spans are polled this often because a view has only the latest checkpoints.
_POLL_SECONDS = 1.0
# How long the end of a program waits for the last report.
_CLOSE_SECONDS = 5.0

Attributes = Mapping[str, str | int | float]


@dataclass(frozen=True)
class Span:
    """An interval of a job. Times are in seconds since 1970."""

    job_id: str
    scope: str
    name: str
    start: float
    end: float
    attributes: Attributes
    number: int = field(default_factory=lambda: random.getrandbits(64))


@dataclass(frozen=True)
class Measured:
    """A metric's value: its name with Flink's logical scope, its attributes, and whether it is a counter."""

    name: str
    attributes: Attributes
    value: Value
    since: float
    is_counter: bool


class Sender(Protocol):
    """Sends to one endpoint."""

    interval: float
    endpoint: str

    def send_metrics(self, measured: list[Measured]) -> bool: ...

    def send_spans(self, spans: list[Span]) -> bool: ...


@dataclass(frozen=True)
class Target:
    """A reporter's endpoint and the resource attributes it sends."""

    name: str
    kind: str
    endpoint: str
    timeout: float
    interval: float
    service: str
    version: str
    variables: Mapping[str, str]


def targets(config: Configuration, kind: str) -> Iterator[Target]:
    """Yield the configured reporters of metrics or of traces."""
    named = (METRICS if kind == "metrics" else TRACES).read(config) or ""
    for name in filter(None, map(str.strip, named.replace(";", ",").split(","))):
        prefix = f"{kind}.reporter.{name}."
        factory = config.get_string(f"{prefix}factory.class", "OpenTelemetry" if name == "otel" else "")
        if "OpenTelemetry" not in factory:
            log.warning("Ignoring reporter %s of %s: only OpenTelemetry's is supported.", name, kind)
            continue
        yield _target(config, prefix, name, kind)


def _target(config: Configuration, prefix: str, name: str, kind: str) -> Target:
    endpoint = config.get_string(f"{prefix}exporter.endpoint", "")
    if not endpoint:
        raise InvalidProgramError(f"{prefix}exporter.endpoint is not set: set it to the collector's http:// address.")
    if config.get_string(f"{prefix}exporter.protocol", "HTTP").upper() != "HTTP":
        raise InvalidProgramError(
            f"{prefix}exporter.protocol must be HTTP, the only one supported: collectors accept it at port 4318."
        )
    variables = config.get_string(f"{prefix}scope.variables.additional", "")
    pairs = [v.partition(":") for v in variables.split(",") if v]
    return Target(
        name=name,
        kind=kind,
        endpoint=endpoint,
        timeout=DurationSetting(f"{prefix}exporter.timeout", 10_000).read(config) / 1000,
        interval=DurationSetting(f"{prefix}interval", 10_000).read(config) / 1000,
        service=config.get_string(f"{prefix}service.name", "millstream"),
        version=config.get_string(f"{prefix}service.version", ""),
        variables={key: value for key, _, value in pairs},
    )


class Reporter:
    """Reports the jobs of a process on its own thread."""

    def __init__(self, registry: Registry, metrics: list[Sender], traces: list[Sender]) -> None:
        self._registry = registry
        self._metrics = metrics
        self._traces = traces
        self._spans = SpanTracker()
        self._is_closed = threading.Event()
        self._lock = threading.Lock()
        self._due = [0.0] * len(metrics)
        self._has_warned = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="millstream-reports", daemon=True).start()
        atexit.register(self.close)

    def _run(self) -> None:
        start = time.monotonic()
        self._due = [start + sender.interval for sender in self._metrics]
        while not self._is_closed.wait(_POLL_SECONDS):
            self.report()

    def report(self, force: bool = False) -> None:
        """Send what is due, or everything."""
        with self._lock:
            entries, now = self._registry.entries(), time.time()
            for number, sender in enumerate(self._metrics):
                if force or time.monotonic() >= self._due[number]:
                    self._due[number] = time.monotonic() + sender.interval
                    self._check(sender, sender.send_metrics([m for e in entries for m in measured(e, now)]))
            spans = self._spans.new(entries) if self._traces else []
            for sender in self._traces if spans else ():
                self._check(sender, sender.send_spans(spans))

    def _check(self, sender: Sender, is_sent: bool) -> None:
        if not is_sent and not self._has_warned:
            self._has_warned = True
            log.warning("%s rejects metrics or spans, or cannot be reached; this is logged only once.", sender.endpoint)

    def close(self) -> None:
        """Send the last report, without delaying the end of the program for long."""
        self._is_closed.set()
        last = threading.Thread(target=self.report, args=(True,), daemon=True)
        try:
            last.start()
        except RuntimeError:
            # The interpreter is shutting down and starts no more threads.
            self.report(True)
            return
        last.join(_CLOSE_SECONDS)


class SpanTracker:
    """Finds spans not reported yet: checkpoints, and initializations after a start or restart."""

    def __init__(self) -> None:
        self._checkpoints: dict[str, int] = {}
        self._starts: dict[str, int] = {}

    def new(self, entries: list[Entry]) -> list[Span]:
        return [span for e in entries for span in (*self._of_checkpoints(e.view), *self._of_starts(e.view))]

    def _of_checkpoints(self, view: JobView) -> Iterator[Span]:
        reported = self._checkpoints.get(view.job_id, 0)
        for checkpoint in view.checkpoints.history:
            if checkpoint.id <= reported or not (checkpoint.is_complete or checkpoint.failure):
                continue
            self._checkpoints[view.job_id] = max(checkpoint.id, self._checkpoints.get(view.job_id, 0))
            end = checkpoint.completed_at or checkpoint.acknowledged_at or checkpoint.triggered_at
            attributes: dict[str, str | int | float] = {
                "checkpointId": checkpoint.id,
                "checkpointStatus": "COMPLETED" if checkpoint.is_complete else "FAILED",
                "fullSize": checkpoint.state_bytes,
                "checkpointedSize": checkpoint.state_bytes,
                **({"failure": checkpoint.failure} if checkpoint.failure else {}),
            }
            scope = "org.apache.flink.runtime.checkpoint.CheckpointStatsTracker"
            yield Span(view.job_id, scope, "Checkpoint", checkpoint.triggered_at, end, {**_job(view), **attributes})

    def _of_starts(self, view: JobView) -> Iterator[Span]:
        """Yield the spans from the job's start, or from a failure, until it is running."""
        running = view.times.get(JobStatus.RUNNING)
        if running is None:
            return
        starts = [
            (0, min(view.times.values()), None),
            *((f.number, f.failed_at, f) for f in view.failures if f.restarts_at),
        ]
        for number, start, failure in starts:
            if number < self._starts.get(view.job_id, 0):
                continue
            following = next((started_at for n, started_at, _ in starts if n > number), None)
            # The view has no running time of earlier attempts: use the planned restart time.
            end = running if running >= start else None
            if following is not None and failure is not None:
                end = failure.restarts_at
            if end is None or (following is None and view.status is not JobStatus.RUNNING and number > 0):
                continue
            self._starts[view.job_id] = number + 1
            attributes: dict[str, str | int | float] = {"initializationStatus": "COMPLETED", "restart": number}
            if failure is not None:
                attributes["failure"] = _reason(failure.message)
            scope = "org.apache.flink.runtime.scheduler.JobStatusStore"
            yield Span(view.job_id, scope, "JobInitialization", start, end, {**_job(view), **attributes})


def _reason(message: str) -> str:
    """Return the last line of a failure's traceback, which names the exception.

    Example:
        >>> _reason("Traceback (most recent call last):\\n  File ...\\nValueError: no\\nin operator 'Map' (no uid)")
        'ValueError: no'
    """
    lines = message.strip().splitlines() or [""]
    operator_line = next((i for i, line in enumerate(lines) if line.startswith("in operator '")), len(lines))
    return lines[max(operator_line - 1, 0)][:500]


def _job(view: JobView) -> dict[str, str]:
    return {"job_id": view.job_id, "job_name": view.job_name}


# Metrics that only grow, by the last part of their name.
_COUNTERS = ("numRecordsIn", "numRecordsOut", "numBytesIn", "numBytesOut", "numRestarts", "numLateRecordsDropped")


def measured(entry: Entry, now: float) -> Iterator[Measured]:
    """Yield the metrics of a job and of its subtasks."""
    view = entry.view
    job, since = _job(view), min(view.times.values())
    for name, value in metrics.of_job(view, now).items():
        yield Measured(f"flink.jobmanager.job.{name}", job, value, since, name in _COUNTERS)
    before, seconds = entry.before()
    for vertex in view.plan.vertices:
        for subtask in range(vertex.parallelism):
            attributes = {**job, "task_id": vertex_id(vertex), "task_name": vertex.name, "subtask_index": str(subtask)}
            for name, value in metrics.of_subtask(view, vertex, subtask, before, seconds).items():
                is_counter = name.rpartition(".")[2] in _COUNTERS
                yield Measured(f"flink.taskmanager.job.task.{name}", attributes, value, since, is_counter)

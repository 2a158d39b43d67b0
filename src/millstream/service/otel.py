"""Exports metrics and spans to an OpenTelemetry collector with OTLP over HTTP."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.service.registry import Registry
from millstream.service.reporting import Measured, Reporter, Span, Target, targets

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, NumberDataPoint
    from opentelemetry.sdk.trace import ReadableSpan

_SCOPE = "millstream"


def _nanos(seconds: float) -> int:
    return int(seconds * 1e9)


def _url(endpoint: str, path: str) -> str:
    """Return the URL to send to; an endpoint without a path gets the standard one.

    Example:
        >>> _url("http://localhost:4318", "/v1/traces"), _url("http://localhost/otlp/t", "/v1/traces")
        ('http://localhost:4318/v1/traces', 'http://localhost/otlp/t')
    """
    whole = endpoint if "://" in endpoint else f"http://{endpoint}"
    return whole if urlsplit(whole).path.strip("/") else whole.rstrip("/") + path


class OtelSender:
    """Sends to one collector. Imports OpenTelemetry's library, an optional extra, when constructed."""

    def __init__(self, target: Target) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError as e:
            raise InvalidProgramError(
                f"The OpenTelemetry reporter needs packages that are not installed ({e}): run pip install "
                "'millstream[otel]'."
            ) from None
        self.interval = target.interval
        self.endpoint = target.endpoint
        library = logging.getLogger("opentelemetry.exporter.otlp.proto.http")
        if library.level == logging.NOTSET:
            # It logs every failed attempt; the reporter warns once instead.
            library.setLevel(logging.CRITICAL)
        attributes = {"service.name": target.service, **({"service.version": target.version} if target.version else {})}
        self._resource = Resource.create({**attributes, **target.variables})
        self._metrics: OTLPMetricExporter | None = None
        self._spans: OTLPSpanExporter | None = None
        if target.kind == "metrics":
            self._metrics = OTLPMetricExporter(_url(target.endpoint, "/v1/metrics"), timeout=target.timeout)
        else:
            self._spans = OTLPSpanExporter(_url(target.endpoint, "/v1/traces"), timeout=target.timeout)

    def send_metrics(self, measured: list[Measured]) -> bool:
        from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        assert self._metrics is not None
        points: dict[tuple[str, bool], list[NumberDataPoint]] = {}
        for metric in measured:
            if isinstance(metric.value, (int, float)):
                points.setdefault((metric.name, metric.is_counter), []).append(_point(metric))
        metrics = [_metric(name, is_counter, values) for (name, is_counter), values in points.items()]
        scope = ScopeMetrics(InstrumentationScope(_SCOPE), metrics, "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        return self._metrics.export(data) is MetricExportResult.SUCCESS

    def send_spans(self, spans: list[Span]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        assert self._spans is not None
        return self._spans.export([self._span(span) for span in spans]) is SpanExportResult.SUCCESS

    def _span(self, span: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

        context = SpanContext(
            trace_id=int(span.job_id, 16),
            span_id=span.number,
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )
        return ReadableSpan(
            name=span.name,
            context=context,
            resource=self._resource,
            attributes=dict(span.attributes),
            status=Status(StatusCode.ERROR if "FAILED" in span.attributes.values() else StatusCode.UNSET),
            start_time=_nanos(span.start),
            end_time=_nanos(span.end),
            instrumentation_scope=InstrumentationScope(span.scope),
        )


def _point(metric: Measured) -> NumberDataPoint:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

    assert isinstance(metric.value, (int, float))
    return NumberDataPoint(dict(metric.attributes), _nanos(metric.since), time.time_ns(), metric.value)


def _metric(name: str, is_counter: bool, points: Iterable[NumberDataPoint]) -> Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, Sum

    data_points = list(points)
    data: Gauge | Sum = Gauge(data_points)
    if is_counter:
        data = Sum(data_points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Metric(name, "", "", data)


_lock = threading.Lock()
_reporters: list[Reporter] = []


def report(config: Configuration, registry: Registry) -> bool:
    """Start the configured reporters, once per process; return whether there are any."""
    with _lock:
        if _reporters:
            return True
        configured = list(targets(config, "metrics")), list(targets(config, "traces"))
        if any(configured):
            of_metrics, of_traces = ([OtelSender(target) for target in kind] for kind in configured)
            _reporters.append(Reporter(registry, [*of_metrics], [*of_traces]))
            _reporters[0].start()
        return bool(_reporters)

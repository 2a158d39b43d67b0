"""Metrics for Prometheus, under the names of Flink's reporter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from millstream.service.registry import Entry, Registry
from millstream.service.responses import metrics
from millstream.service.responses.tasks import location_of, vertex_id

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

_NOT_ALLOWED = re.compile("[^a-zA-Z0-9_]")
_OF_JOB, _OF_TASK = "flink_jobmanager_job_", "flink_taskmanager_job_task_"

Labels = tuple[tuple[str, str], ...]


def prometheus_routes(registry: Registry, clock: Callable[[], float]) -> list[BaseRoute]:
    """Return the scrape route; without the client library it responds with how to install it."""

    async def scrape(_: Request) -> Response:
        try:
            from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
        except ImportError:
            return PlainTextResponse("Install the package prometheus-client to export metrics.\n", 501)
        collectors = CollectorRegistry(auto_describe=False)
        collectors.register(_Collector(registry, clock()))
        return Response(generate_latest(collectors), media_type=CONTENT_TYPE_LATEST)

    return [Route("/metrics", scrape)]


class _Collector:
    """Collects the current metrics of all jobs for the client library."""

    def __init__(self, registry: Registry, now: float) -> None:
        self._registry = registry
        self._now = now

    def collect(self) -> Iterator[GaugeMetricFamily]:
        from prometheus_client.core import GaugeMetricFamily

        families: dict[str, GaugeMetricFamily] = {}
        for name, labels, value in self._values():
            family = families.get(name)
            if family is None:
                names = [key for key, _ in labels]
                family = families[name] = GaugeMetricFamily(name, name, labels=names)
            family.add_metric([text for _, text in labels], value)
        return iter(families.values())

    def _values(self) -> Iterator[tuple[str, Labels, float]]:
        for entry in self._registry.entries():
            job: Labels = (("job_id", entry.view.job_id), ("job_name", entry.view.job_name))
            for name, value in metrics.of_job(entry.view, self._now).items():
                if isinstance(value, (int, float)):
                    yield _OF_JOB + _clean(name), job, float(value)
            yield from _of_tasks(entry, job)


def _of_tasks(entry: Entry, job: Labels) -> Iterator[tuple[str, Labels, float]]:
    before, seconds = entry.before()
    for vertex in entry.view.plan.vertices:
        for subtask in range(vertex.parallelism):
            labels = (
                *job,
                ("task_id", vertex_id(vertex)),
                ("task_name", vertex.name),
                ("subtask_index", str(subtask)),
                ("tm_id", location_of(entry.view, vertex, subtask)[0]),
            )
            for name, value in metrics.of_subtask(entry.view, vertex, subtask, before, seconds).items():
                if isinstance(value, (int, float)):
                    yield _OF_TASK + _clean(name), labels, float(value)


def _clean(name: str) -> str:
    """Return a valid Prometheus name.

    Example:
        >>> _clean("buffers.outPoolUsage")
        'buffers_outPoolUsage'
    """
    return _NOT_ALLOWED.sub("_", name)

"""REST: vertices of a job and their subtasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.common.aliases import Json
from millstream.common.masking import masked_text
from millstream.operators.diagnostics.sampling import flame_graph
from millstream.operators.runtime.vertex import Vertex
from millstream.service.diagnosis import explanations
from millstream.service.http import RequestError, answer, id_parameter, names_of, number_parameter, requested_metrics
from millstream.service.jobs_api import JobsApi
from millstream.service.registry import Entry
from millstream.service.responses import metrics, tasks
from millstream.service.responses.jobs import has_ended
from millstream.service.responses.metrics import aggregated_metrics, listed_metrics

# The stacks in each kind of flame graph: on CPU (True), off CPU (False).
_SAMPLED = {"full": (True, False), "on_cpu": (True,), "off_cpu": (False,)}
# How long slots are sampled after a request.
_SAMPLE_SECONDS = 15.0
# Flink's timestamps without a graph: the job has ended, or there are no samples yet.
_ENDED, _NO_SAMPLES = -1, -3


class VerticesApi:
    """Handles requests under /jobs/:jobid/vertices."""

    def __init__(self, jobs: JobsApi, clock: Callable[[], float]) -> None:
        self._jobs = jobs
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the routes and their handlers."""
        vertex = "/jobs/{jobid}/vertices/{vertexid}"
        subtask = f"{vertex}/subtasks/{{subtaskindex}}"
        return [
            Route("/jobs/{jobid}/explanations", self.explanations),
            Route(vertex, self.details),
            Route(f"{vertex}/accumulators", self.accumulators),
            Route(f"{vertex}/backpressure", self.back_pressure),
            Route(f"{vertex}/flamegraph", self.flame_graph),
            Route(f"{vertex}/metrics", self.metrics),
            Route(f"{vertex}/diagnostics", self.diagnostics),
            Route(f"{vertex}/jm-operator-metrics", self.no_metrics),
            Route(f"{vertex}/subtasktimes", self.times),
            Route(f"{vertex}/taskmanagers", self.task_managers),
            Route(f"{vertex}/watermarks", self.watermarks),
            Route(f"{vertex}/subtasks/accumulators", self.subtask_accumulators),
            Route(f"{vertex}/subtasks/metrics", self.subtasks_metrics),
            Route(subtask, self.subtask),
            Route(f"{subtask}/attempts/{{attempt}}", self.attempt),
            Route(f"{subtask}/attempts/{{attempt}}/accumulators", self.attempt_accumulators),
            Route(f"{subtask}/metrics", self.subtask_metrics),
        ]

    def _vertex(self, request: Request) -> tuple[Entry, Vertex]:
        entry, vertex_id = self._jobs.entry(request), id_parameter(request, "vertexid", "vertex id")
        vertex = tasks.find_vertex(entry.view, vertex_id)
        if vertex is None:
            raise RequestError(404, f"No vertex with ID '{vertex_id}' exists.")
        return entry, vertex

    def _subtask(self, request: Request) -> tuple[Entry, Vertex, int]:
        entry, vertex = self._vertex(request)
        subtask = number_parameter(request, "subtaskindex")
        if subtask >= vertex.parallelism:
            raise RequestError(404, f"Vertex {vertex.name} has {vertex.parallelism} subtasks, not subtask {subtask}.")
        return entry, vertex, subtask

    async def explanations(self, request: Request) -> Response:
        entry = self._jobs.entry(request)
        view = entry.view
        causes = explanations(view, {v.id: _all_metrics(entry, v) for v in view.plan.vertices}, self._clock())
        responses = [asdict(response) for response in causes]
        return answer({"explanations": [response | {"text": masked_text(response["text"])} for response in responses]})

    async def details(self, request: Request) -> Response:
        entry, vertex = self._vertex(request)
        return answer(tasks.vertex_details(entry.view, vertex, self._clock()))

    async def times(self, request: Request) -> Response:
        entry, vertex = self._vertex(request)
        return answer(tasks.subtask_times(entry.view, vertex, self._clock()))

    async def task_managers(self, request: Request) -> Response:
        entry, vertex = self._vertex(request)
        return answer(tasks.task_managers_of(entry.view, vertex, self._clock()))

    async def back_pressure(self, request: Request) -> Response:
        entry, vertex = self._vertex(request)
        values = _all_metrics(entry, vertex)
        views = [entry.view.tasks.get((vertex.id, i)) for i in range(vertex.parallelism)]
        attempts = [0 if t is None else t.attempt for t in views]
        return answer(tasks.back_pressure_of(values, attempts, tasks.milliseconds(self._clock())))

    async def flame_graph(self, request: Request) -> Response:
        entry, vertex = self._vertex(request)
        kind = request.query_params.get("type", "full").lower()
        if kind not in _SAMPLED:
            raise RequestError(400, f"type is {kind!r}: it must be one of {', '.join(_SAMPLED)}.")
        if has_ended(entry.view):
            return answer({"endTimestamp": _ENDED})
        # Each request extends sampling.
        entry.job.sample(_SAMPLE_SECONDS)
        chosen = names_of(request, "subtaskindex")
        samples = entry.view.progress.samples
        slots = [i for i in range(vertex.parallelism) if chosen is None or str(i) in chosen]
        stacks = [s for i in slots if (s := samples.get((vertex.id, vertex.slot_offset + i)))]
        if not stacks:
            return answer({"endTimestamp": _NO_SAMPLES})
        tree = flame_graph(stacks, _SAMPLED[kind])
        return answer({"endTimestamp": tasks.milliseconds(self._clock()), "data": tree})

    async def watermarks(self, request: Request) -> Response:
        entry, vertex = self._vertex(request)
        values = _all_metrics(entry, vertex)
        return answer(
            [
                {"id": f"{i}.currentInputWatermark", "value": str(m["currentInputWatermark"])}
                for i, m in enumerate(values)
            ]
        )

    async def diagnostics(self, request: Request) -> Response:
        entry, vertex = self._vertex(request)
        return answer(tasks.diagnostics_of_vertex(entry.view, vertex))

    async def metrics(self, request: Request) -> Response:
        entry, vertex = self._vertex(request)
        values = {f"{i}.{n}": v for i, m in enumerate(_all_metrics(entry, vertex)) for n, v in m.items()}
        return answer(listed_metrics(values, requested_metrics(request, values)))

    async def no_metrics(self, request: Request) -> Response:
        self._vertex(request)
        return answer([])

    async def subtasks_metrics(self, request: Request) -> Response:
        entry, vertex = self._vertex(request)
        values = _all_metrics(entry, vertex)
        chosen = names_of(request, "subtasks")
        if chosen is not None:
            values = [m for i, m in enumerate(values) if str(i) in chosen]
        return answer(aggregated_metrics(values, names_of(request, "get"), names_of(request, "agg")))

    async def subtask_metrics(self, request: Request) -> Response:
        entry, vertex, subtask = self._subtask(request)
        return answer(listed_metrics(_metrics(entry, vertex, subtask), names_of(request, "get")))

    async def subtask(self, request: Request) -> Response:
        entry, vertex, subtask = self._subtask(request)
        return answer(tasks.subtask_details(entry.view, vertex, subtask, self._clock()))

    async def attempt(self, request: Request) -> Response:
        entry, vertex, subtask = self._subtask(request)
        self._check_attempt(request, entry, vertex, subtask)
        return answer(tasks.subtask_details(entry.view, vertex, subtask, self._clock()))

    def _check_attempt(self, request: Request, entry: Entry, vertex: Vertex, subtask: int) -> int:
        attempt, task = number_parameter(request, "attempt"), entry.view.tasks.get((vertex.id, subtask))
        if task is None or task.attempt != attempt:
            raise RequestError(404, f"Subtask {subtask} has no current attempt {attempt}.")
        return attempt

    async def accumulators(self, request: Request) -> Response:
        entry, vertex = self._vertex(request)
        values: list[dict[str, str]] = []
        for subtask in range(vertex.parallelism):
            values += _accumulators(entry, vertex, subtask)
        return answer({"id": tasks.vertex_id(vertex), "user-accumulators": values})

    async def subtask_accumulators(self, request: Request) -> Response:
        entry, vertex = self._vertex(request)
        subtasks = [self._with_accumulators(entry, vertex, i) for i in range(vertex.parallelism)]
        return answer({"id": tasks.vertex_id(vertex), "parallelism": vertex.parallelism, "subtasks": subtasks})

    async def attempt_accumulators(self, request: Request) -> Response:
        entry, vertex, subtask = self._subtask(request)
        attempt = self._check_attempt(request, entry, vertex, subtask)
        values = _accumulators(entry, vertex, subtask)
        return answer({"subtask": subtask, "attempt": attempt, "id": "", "user-accumulators": values})

    def _with_accumulators(self, entry: Entry, vertex: Vertex, subtask: int) -> dict[str, Json]:
        details = tasks.subtask_details(entry.view, vertex, subtask, self._clock())
        return {
            "subtask": subtask,
            "attempt": details["attempt"],
            "endpoint": details["endpoint"],
            "user-accumulators": _accumulators(entry, vertex, subtask),
        }


def _metrics(entry: Entry, vertex: Vertex, subtask: int) -> dict[str, metrics.Value]:
    before, seconds = entry.before()
    return metrics.of_subtask(entry.view, vertex, subtask, before, seconds)


def _all_metrics(entry: Entry, vertex: Vertex) -> list[dict[str, metrics.Value]]:
    return [_metrics(entry, vertex, i) for i in range(vertex.parallelism)]


def _accumulators(entry: Entry, vertex: Vertex, subtask: int) -> list[dict[str, str]]:
    values = tasks.progress_of(entry.view, vertex, subtask).metrics
    return [{"name": name, "type": type(value).__name__, "value": str(value)} for name, value in values.items()]

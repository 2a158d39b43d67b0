"""The jobs of a cluster: running ones are requested from their programs' processes, ended ones from archives."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from millstream.common.aliases import Json
from millstream.service.history import ArchiveStore
from millstream.service.http import Answer
from millstream.service.remote_jobs_api import unknown
from millstream.service.responses.cluster import Worker
from millstream.service.session.program_channel import forward
from millstream.service.session.programs import Program, Programs
from millstream.service.workers import LOG, ExecutorUse, SparkExecutors, spark_log, spark_threads, workers_of

# Retries while a process has just ended and its archive is not there yet.
_MAX_ATTEMPTS, _RETRY_SECONDS = 20, 0.1
_FAMILY = re.compile(r"^# HELP (\S+)", re.MULTILINE)


class SessionJobs:
    """The jobs of a cluster."""

    def __init__(self, programs: Programs, archives: ArchiveStore) -> None:
        self._programs = programs
        self._archives = archives

    async def lines(self) -> list[dict[str, Json]]:
        """Return the overview entries of all jobs in start order."""
        responses = await asyncio.gather(*(_ask(p, "/jobs/overview") for p in self._programs.with_jobs()))
        lines_by_id = {
            line["jid"]: line for answer in responses if answer is not None for line in answer.json()["jobs"]
        }
        # A job may end between the two requests.
        lines_by_id |= {line["jid"]: line for line in await self._archives.lines()}
        return sorted(lines_by_id.values(), key=lambda line: line["start-time"])

    async def ask(self, job_id: str, method: str, rest: str, query: str, body: bytes) -> Answer:
        """Return the response to a request about a job."""
        # Names of operators and states may contain any character.
        target = f"/jobs/{job_id}{quote(rest)}{'?' if query else ''}{query}"
        for _ in range(_MAX_ATTEMPTS):
            program = self._programs.of_job(job_id)
            if program is None:
                return await self._archives.ask(job_id, method, rest, query, body)
            try:
                return await forward(program.socket, method, target, body)
            except OSError:
                await asyncio.sleep(_RETRY_SECONDS)
        raise unknown(job_id)

    def prometheus(self) -> Route:
        """Return the route for Prometheus."""

        async def scrape(_: Request) -> Response:
            responses = await asyncio.gather(*(_ask(p, "/metrics") for p in self._programs.with_jobs()))
            answers = [answer for answer in responses if answer is not None]
            failed = next((a for a in answers if a.status != 200), None)
            if failed is not None:
                return Response(failed.body, failed.status, media_type=failed.media_type)
            texts = [answer.body.decode() for answer in answers]
            kind = answers[0].media_type if answers else "text/plain"
            return PlainTextResponse(merged(texts), media_type=kind)

        return Route("/metrics", scrape)


async def _ask(program: Program, path: str) -> Answer | None:
    try:
        return await forward(program.socket, "GET", path)
    except OSError:
        # It is starting or ending.
        return None


def merged(texts: list[str]) -> str:
    """Merge Prometheus texts; each metric is described once.

    Example:
        >>> one = "# HELP a a\\n# TYPE a gauge\\na{job=\\"1\\"} 1.0\\n"
        >>> two = "# HELP a a\\n# TYPE a gauge\\na{job=\\"2\\"} 2.0\\n"
        >>> print(merged([one, two]), end="")
        # HELP a a
        # TYPE a gauge
        a{job="1"} 1.0
        a{job="2"} 2.0
    """
    families: dict[str, list[str]] = {}
    for text in texts:
        starts = [(m.start(), m.group(1)) for m in _FAMILY.finditer(text)]
        ends = [start for start, _ in starts[1:]] + [len(text)]
        for (start, name), end in zip(starts, ends, strict=True):
            lines = text[start:end].splitlines()
            if name in families:
                lines = [line for line in lines if not line.startswith("#")]
            families.setdefault(name, []).extend(lines)
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


class SessionWorkers:
    """The workers of a cluster; implements `Workers`."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._spark = SparkExecutors()

    async def all(self) -> list[Worker]:
        use: dict[str, ExecutorUse] = {}
        for _, response in await self._ask_all("/taskmanagers"):
            for worker in response.json()["taskmanagers"]:
                before, slots = use.get(worker["id"], ExecutorUse()), worker["slotsNumber"] - worker["freeSlots"]
                memory = worker["hardware"]["physicalMemory"]
                use[worker["id"]] = ExecutorUse(before.slots + slots, before.tasks + worker["assignedTasks"], memory)
        return workers_of(await self._spark.all(), self._programs.slots(), use)

    async def log(self, worker: Worker, name: str) -> str:
        return await spark_log(worker, name) if name != LOG else await self._output(worker, "log")

    async def printed(self, worker: Worker) -> str:
        return await self._output(worker, "stdout")

    async def threads(self, worker: Worker) -> list[tuple[str, str]]:
        return await spark_threads(worker)

    async def _output(self, worker: Worker, kind: str) -> str:
        """Return the output of all programs' functions on a worker, one program after the other."""
        responses = await self._ask_all(f"/taskmanagers/{quote(worker.id, safe='')}/{kind}")
        parts = [(program, answer.body.decode(errors="replace")) for program, answer in responses]
        return "".join(f"==> {p.submission.path} ({', '.join(p.jobs)}) <==\n{text}" for p, text in parts if text)

    async def _ask_all(self, path: str) -> list[tuple[Program, Answer]]:
        programs = self._programs.with_jobs()
        answers = await asyncio.gather(*(_ask_ok(program, path) for program in programs))
        return [(p, answer) for p, answer in zip(programs, answers, strict=True) if answer is not None]


async def _ask_ok(program: Program, path: str) -> Answer | None:
    answer = await _ask(program, path)
    return answer if answer is not None and answer.status == 200 else None

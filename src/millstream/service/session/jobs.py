"""The jobs of a cluster: those that run are asked for in the processes of their programs, the others are archives."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from millstream.service.history import Shelf
from millstream.service.http import Answer
from millstream.service.remote_jobs_api import unknown
from millstream.service.responses.cluster import Worker
from millstream.service.session.program_channel import forward
from millstream.service.session.programs import Program, Programs
from millstream.service.workers import LOG, ExecutorUse, SparkExecutors, spark_log, spark_threads, workers_of

# A process that has just ended is not there, and what it leaves behind is not yet.
_TRIES, _PAUSE = 20, 0.1
_FAMILY = re.compile(r"^# HELP (\S+)", re.MULTILINE)


class SessionJobs:
    """The jobs of a cluster."""

    def __init__(self, programs: Programs, shelf: Shelf) -> None:
        self._programs = programs
        self._shelf = shelf

    async def lines(self) -> list[dict[str, Any]]:
        """Return the lines of all jobs in the list of jobs, in the order in which they began."""
        told = await asyncio.gather(*(_ask(p, "/jobs/overview") for p in self._programs.with_jobs()))
        found = {line["jid"]: line for answer in told if answer is not None for line in answer.json()["jobs"]}
        # A job may end while others are asked.
        found |= {line["jid"]: line for line in await self._shelf.lines()}
        return sorted(found.values(), key=lambda line: line["start-time"])

    async def ask(self, job_id: str, method: str, rest: str, query: str, body: bytes) -> Answer:
        """Return what is answered about a job."""
        # Names of operators and states have spaces, and whatever else.
        target = f"/jobs/{job_id}{quote(rest)}{'?' if query else ''}{query}"
        for _ in range(_TRIES):
            program = self._programs.of_job(job_id)
            if program is None:
                return await self._shelf.ask(job_id, method, rest, query, body)
            try:
                return await forward(program.socket, method, target, body)
            except OSError:
                await asyncio.sleep(_PAUSE)
        raise unknown(job_id)

    def prometheus(self) -> Route:
        """Return the route that Prometheus asks."""

        async def scrape(_: Request) -> Response:
            told = await asyncio.gather(*(_ask(p, "/metrics") for p in self._programs.with_jobs()))
            answers = [answer for answer in told if answer is not None]
            refused = next((a for a in answers if a.status != 200), None)
            if refused is not None:
                return Response(refused.body, refused.status, media_type=refused.media_type)
            texts = [answer.body.decode() for answer in answers]
            kind = answers[0].media_type if answers else "text/plain"
            return PlainTextResponse(merged(texts), media_type=kind)

        return Route("/metrics", scrape)


async def _ask(program: Program, path: str) -> Answer | None:
    try:
        return await forward(program.socket, "GET", path)
    except OSError:
        # It is just starting, or just ending.
        return None


def merged(texts: list[str]) -> str:
    """Return texts for Prometheus as one, in which each metric is described once.

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
        ends = [at for at, _ in starts[1:]] + [len(text)]
        for (start, name), end in zip(starts, ends, strict=True):
            lines = text[start:end].splitlines()
            if name in families:
                lines = [line for line in lines if not line.startswith("#")]
            families.setdefault(name, []).extend(lines)
    return "".join(f"{line}\n" for lines in families.values() for line in lines)


class SessionWorkers:
    """The workers of a cluster; follows `Workers`."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._spark = SparkExecutors()

    async def all(self) -> list[Worker]:
        taken: dict[str, ExecutorUse] = {}
        for _, told in await self._asked("/taskmanagers"):
            for one in told.json()["taskmanagers"]:
                before, slots = taken.get(one["id"], ExecutorUse()), one["slotsNumber"] - one["freeSlots"]
                memory = one["hardware"]["physicalMemory"]
                taken[one["id"]] = ExecutorUse(before.slots + slots, before.tasks + one["assignedTasks"], memory)
        return workers_of(await self._spark.all(), self._programs.slots(), taken)

    async def log(self, worker: Worker, name: str) -> str:
        return await spark_log(worker, name) if name != LOG else await self._said(worker, "log")

    async def printed(self, worker: Worker) -> str:
        return await self._said(worker, "stdout")

    async def threads(self, worker: Worker) -> list[tuple[str, str]]:
        return await spark_threads(worker)

    async def _said(self, worker: Worker, what: str) -> str:
        """Return what the functions of all programs have said there, one program after the other."""
        told = await self._asked(f"/taskmanagers/{quote(worker.id, safe='')}/{what}")
        parts = [(program, answer.body.decode(errors="replace")) for program, answer in told]
        return "".join(f"==> {p.submission.path} ({', '.join(p.jobs)}) <==\n{text}" for p, text in parts if text)

    async def _asked(self, path: str) -> list[tuple[Program, Answer]]:
        programs = self._programs.with_jobs()
        told = await asyncio.gather(*(_ask_ok(program, path) for program in programs))
        return [(p, answer) for p, answer in zip(programs, told, strict=True) if answer is not None]


async def _ask_ok(program: Program, path: str) -> Answer | None:
    try:
        answer = await forward(program.socket, "GET", path)
    except OSError:
        # It is just starting, or just ending.
        return None
    return answer if answer.status == 200 else None

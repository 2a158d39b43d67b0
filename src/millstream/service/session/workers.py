"""The workers of a cluster: its Spark's executors, with what the programs' processes know of them."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from millstream.service.asgi_client import Answer
from millstream.service.responses.cluster import Worker
from millstream.service.session.forward import forward
from millstream.service.session.programs import Program, Programs
from millstream.service.workers import LOG, Placed, SparkExecutors, dealt_out, spark_log, spark_threads


class SessionWorkers:
    """The workers of a cluster; follows `Workers`."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._spark = SparkExecutors()

    async def all(self) -> list[Worker]:
        taken: dict[str, Placed] = {}
        for _, told in await self._asked("/taskmanagers"):
            for one in told.json()["taskmanagers"]:
                before, slots = taken.get(one["id"], Placed()), one["slotsNumber"] - one["freeSlots"]
                memory = one["hardware"]["physicalMemory"]
                taken[one["id"]] = Placed(before.slots + slots, before.tasks + one["assignedTasks"], memory)
        return dealt_out(await self._spark.all(), self._programs.slots(), taken)

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
        told = await asyncio.gather(*(_ask(program, path) for program in programs))
        return [(p, answer) for p, answer in zip(programs, told, strict=True) if answer is not None]


async def _ask(program: Program, path: str) -> Answer | None:
    try:
        answer = await forward(program.socket, "GET", path)
    except OSError:
        # It is just starting, or just ending.
        return None
    return answer if answer.status == 200 else None

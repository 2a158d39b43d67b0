"""REST of a cluster: submitting programs, their jobs, and ending the cluster."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from millstream.checkpoint.restore_location import CLAIM_MODE, IGNORE_UNCLAIMED, PATH
from millstream.common.aliases import Json
from millstream.common.pipeline_options import PARALLELISM
from millstream.service.app import assembled
from millstream.service.archive import ArchiveStore
from millstream.service.cluster_api import ClusterApi, ClusterInfo
from millstream.service.http import Answer, RequestError, answer, body_of, has_token, id_parameter, read_body
from millstream.service.logs import RecentLines
from millstream.service.remote_jobs_api import RemoteJobsApi, unknown
from millstream.service.responses.cluster import Worker
from millstream.service.session.program_channel import forward
from millstream.service.session.program_starter import PlanError
from millstream.service.session.program_store import Submission, Upload, Uploads
from millstream.service.session.programs import STREAMS, Program, ProgramEnded, Programs
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


# The header with the offset at which output continues.
NEXT = "X-Next"
# How long a program may take to start its first job.
_FIRST_JOB_SECONDS = 300.0


class SessionApi:
    """Handles requests under /jars, /programs and /cluster."""

    def __init__(
        self,
        programs: Programs,
        uploads: Uploads,
        token: str,
        max_upload: int,
        end: Callable[[], None],
        submits: bool,
    ) -> None:
        """Serve submissions.

        Args:
            programs: runs programs.
            uploads: the uploaded programs.
            token: the token for submissions and for ending the cluster.
            max_upload: maximum bytes of an upload.
            end: ends the cluster.
            submits: whether programs may be submitted.
        """
        self._programs = programs
        self._uploads = uploads
        self._token = token
        self._max_upload = max_upload
        self._end = end
        self._submits = submits

    def routes(self) -> list[Route]:
        """Return the routes and their handlers."""
        post, program = ["POST"], "/programs/{programid}"
        return [
            Route("/cluster", self._allowed(self.end), methods=["DELETE"]),
            *(
                [
                    Route("/jars", self._allowed(self.uploads)),
                    Route("/jars/upload", self._allowed(self.upload), methods=post),
                    Route("/jars/{jarid}", self._allowed(self.delete), methods=["DELETE"]),
                    Route("/jars/{jarid}/plan", self._allowed(self.plan), methods=["GET", "POST"]),
                    Route("/jars/{jarid}/run", self._allowed(self.run), methods=post),
                    Route("/programs", self._allowed(self.submit), methods=post),
                    Route(program, self._allowed(self.program)),
                    Route(f"{program}/output/{{stream}}", self._allowed(self.output)),
                ]
                if self._submits
                else []
            ),
        ]

    def _allowed(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Require the token: any user of this machine, and any web page, could send requests that run code."""

        async def checked(request: Request) -> Response:
            if not has_token(request.headers.get("authorization", ""), self._token):
                raise RequestError(
                    401,
                    "A submitted program runs as the user of this cluster: send the cluster's token (Authorization: "
                    "Bearer <token>). It is millstream.rest.token, or else the one that the command line of the user "
                    "who started the cluster finds by itself.",
                )
            return await handler(request)

        return checked

    # --- programs of this machine

    async def submit(self, request: Request) -> Response:
        submission = Submission.read(await body_of(request))
        if not os.path.isfile(submission.path):
            raise RequestError(400, f"There is no program {submission.path} on the cluster's machine.")
        if submission.directory is not None and not os.path.isdir(submission.directory):
            raise RequestError(400, f"There is no directory {submission.directory} on the cluster's machine.")
        program = self._programs.submit(submission)
        return answer({"program-id": program.id}, 202)

    def _program(self, request: Request) -> Program:
        program_id = id_parameter(request, "programid", "program's id")
        program = self._programs.find(program_id)
        if program is None:
            raise RequestError(404, f"There is no program {program_id}.")
        return program

    async def program(self, request: Request) -> Response:
        program = self._program(request)
        return answer(
            {
                "id": program.id,
                "path": program.submission.path,
                "jobs": list(program.jobs),
                "exit-code": program.exit_code,
            }
        )

    async def output(self, request: Request) -> Response:
        stream, start = request.path_params["stream"], request.query_params.get("from", "0")
        if stream not in STREAMS or not start.isdecimal() or len(start) > 18:
            raise RequestError(404, "A program's output is at output/out and output/err, with ?from=<offset>.")
        text, end = self._program(request).output(stream, int(start))
        return Response(text, media_type="application/octet-stream", headers={NEXT: str(end)})

    # --- uploads

    async def uploads(self, request: Request) -> Response:
        files = [
            {"id": u.id, "name": u.name, "uploaded": u.uploaded_ms, "entry": [{"name": u.name}]}
            for u in self._uploads.all()
        ]
        return answer({"address": str(request.base_url).rstrip("/"), "files": files})

    async def upload(self, request: Request) -> Response:
        body = await read_body(request, self._max_upload)
        upload = self._uploads.take(request.headers.get("content-type", ""), body)
        return answer({"filename": upload.path, "status": "success"})

    async def delete(self, request: Request) -> Response:
        self._uploads.delete(request.path_params["jarid"])
        return answer({})

    async def run(self, request: Request) -> Response:
        upload = self._uploads.find(request.path_params["jarid"])
        parameters = {**dict(request.query_params), **await body_of(request)}
        program = self._programs.submit(_submission(upload, parameters))
        try:
            job_id = await asyncio.wait_for(asyncio.wrap_future(program.first_job), _FIRST_JOB_SECONDS)
        except ProgramEnded as e:
            raise RequestError(400, str(e)) from None
        except TimeoutError:
            reason = f"The program has started no job within {_FIRST_JOB_SECONDS:g} s; it is still running."
            raise RequestError(504, reason) from None
        return answer({"jobid": job_id})

    async def plan(self, request: Request) -> Response:
        upload = self._uploads.find(request.path_params["jarid"])
        parameters = {**dict(request.query_params), **await body_of(request)}
        try:
            return answer({"plan": await asyncio.to_thread(self._programs.plan, _submission(upload, parameters))})
        except PlanError as e:
            raise RequestError(400, str(e)) from None

    async def end(self, _: Request) -> Response:
        self._end()
        return answer({})


def _split_arguments(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as e:
        raise RequestError(400, f"The arguments of the program cannot be read: {e}.") from None


def _submission(upload: Upload, parameters: dict[str, Json]) -> Submission:
    """Return the submission for the parameters of Flink's /jars/:jarid/run."""
    arguments = parameters.get("programArgsList") or parameters.get("programArg")
    if isinstance(arguments, str):
        arguments = arguments.split(",")
    if arguments is None:
        arguments = _split_arguments(str(parameters.get("programArgs") or parameters.get("program-args") or ""))
    settings = parameters.get("flinkConfiguration") or {}
    if parameters.get("parallelism") is not None:
        settings = {**settings, PARALLELISM.key: str(parameters["parallelism"])}
    overrides = {
        PATH.key: parameters.get("savepointPath"),
        IGNORE_UNCLAIMED.key: parameters.get("allowNonRestoredState"),
        CLAIM_MODE.key: parameters.get("claimMode"),
    }
    return Submission.read(
        {
            "path": upload.path,
            "module": parameters.get("entry-class") or parameters.get("entryClass"),
            "arguments": arguments,
            "settings": settings,
            "overrides": {
                k: str(v).lower() if isinstance(v, bool) else v for k, v in overrides.items() if v is not None
            },
        }
    )


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Everything that a cluster's REST API serves.

    Attributes:
        settings: its configuration.
        token: the token for all requests; None for no authentication.
        submit_token: the token for submissions and changes of jobs.
        refresh_ms: how often pages refresh.
        submits: whether programs may be submitted.
        max_upload: maximum bytes of an upload.
        cache_seconds: how long responses are cached.
        end: ends the cluster.
    """

    programs: Programs
    archives: ArchiveStore
    uploads: Uploads
    settings: dict[str, str]
    token: str | None
    submit_token: str
    refresh_ms: int
    submits: bool
    max_upload: int
    cache_seconds: float
    end: Callable[[], None]
    log: RecentLines


def cluster_app(cluster: Cluster) -> Starlette:
    """Return the application of a cluster."""
    jobs = SessionJobs(cluster.programs, cluster.archives)
    info = ClusterInfo(
        settings=cluster.settings,
        refresh_ms=cluster.refresh_ms,
        log=cluster.log,
        lines=jobs.lines,
        slots=cluster.programs.slots,
        workers=SessionWorkers(cluster.programs),
        submits=cluster.submits,
        token=cluster.submit_token,
    )
    session = SessionApi(
        cluster.programs, cluster.uploads, cluster.submit_token, cluster.max_upload, cluster.end, cluster.submits
    )
    routes = [*session.routes(), *RemoteJobsApi(jobs).routes(), *ClusterApi(info).routes()]
    more = [jobs.prometheus()]
    return assembled(routes, cluster.token, more, cluster.cache_seconds, change_token=cluster.submit_token)

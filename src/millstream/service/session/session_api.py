"""REST: submitting programs to a cluster, and ending it."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.checkpoint.restore_location import CLAIM_MODE, IGNORE_UNCLAIMED, PATH
from millstream.common.aliases import Json
from millstream.common.pipeline_options import PARALLELISM
from millstream.service.app import assembled
from millstream.service.cluster_api import ClusterApi, ClusterInfo
from millstream.service.history import ArchiveStore
from millstream.service.http import RequestError, answer, body_of, has_token, id_parameter, read_body
from millstream.service.logs import RecentLines
from millstream.service.remote_jobs_api import RemoteJobsApi
from millstream.service.session.jobs import SessionJobs, SessionWorkers
from millstream.service.session.program_starter import PlanError
from millstream.service.session.program_store import Submission, Upload, Uploads
from millstream.service.session.programs import STREAMS, Program, ProgramEnded, Programs

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
    last_word = {
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
            "last_word": {
                k: str(v).lower() if isinstance(v, bool) else v for k, v in last_word.items() if v is not None
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

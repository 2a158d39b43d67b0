"""The REST interface of a cluster as one application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.applications import Starlette

from millstream.service.app import assembled
from millstream.service.cluster_api import ClusterApi, Household
from millstream.service.history import Shelf
from millstream.service.logs import RecentLines
from millstream.service.remote_jobs_api import ElsewhereApi
from millstream.service.session.jobs import SessionJobs
from millstream.service.session.programs import Programs
from millstream.service.session.session_api import SessionApi
from millstream.service.session.uploads import Uploads
from millstream.service.session.workers import SessionWorkers


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a cluster's interface is about.

    Attributes:
        settings: its configuration.
        token: what all clients must show; None for nothing.
        submit_token: what who submits a program, or changes a job, must show.
        refresh_ms: how often pages ask again.
        submits: whether programs may be submitted.
        most_uploaded: how many bytes an upload may have.
        keep_seconds: for how long an answer is also given to others who ask for the same.
        end: ends it.
    """

    programs: Programs
    shelf: Shelf
    uploads: Uploads
    settings: dict[str, str]
    token: str | None
    submit_token: str
    refresh_ms: int
    submits: bool
    most_uploaded: int
    keep_seconds: float
    end: Callable[[], None]
    log: RecentLines


def cluster_app(cluster: Cluster) -> Starlette:
    """Return the application."""
    jobs = SessionJobs(cluster.programs, cluster.shelf)
    home = Household(
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
        cluster.programs, cluster.uploads, cluster.submit_token, cluster.most_uploaded, cluster.end, cluster.submits
    )
    routes = [*session.routes(), *ElsewhereApi(jobs).routes(), *ClusterApi(home).routes()]
    more = [jobs.prometheus()]
    return assembled(routes, cluster.token, more, cluster.keep_seconds, change_token=cluster.submit_token)

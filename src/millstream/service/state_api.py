"""REST: state of a running job, from its latest complete checkpoint."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.checkpoint.inspect import Inspection, rows_as_json, states_as_json
from millstream.checkpoint.signing import signing_keys
from millstream.checkpoint.storage import storage_options
from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.common.errors import DamagedStateError, InvalidProgramError, MillstreamError
from millstream.common.pickles import load
from millstream.jobmaster.leases import Lease
from millstream.service.http import RequestError, answer, id_parameter
from millstream.service.jobs_api import JobsApi
from millstream.service.registry import Entry
from millstream.service.responses.tasks import milliseconds

_MAX_ROWS = 100
# How long a client's lease on a checkpoint lasts unless the client renews it.
LEASE_SECONDS = 60.0


class StateApi:
    """Handles requests under /jobs/:jobid/state."""

    def __init__(self, jobs: JobsApi) -> None:
        self._jobs = jobs

    def routes(self) -> list[Route]:
        """Return the routes and their handlers."""
        state, leases = "/jobs/{jobid}/state", "/jobs/{jobid}/state-leases"
        return [
            Route(state, self.states),
            Route(f"{state}/{{operator}}/{{name}}", self.rows),
            Route(leases, self.lease, methods=["POST"]),
            Route(f"{leases}/{{leaseid}}", self.renew, methods=["PUT"]),
            Route(f"{leases}/{{leaseid}}", self.release, methods=["DELETE"]),
        ]

    async def states(self, request: Request) -> Response:
        return answer(await self._read(self._jobs.entry(request), lambda i: {"operators": states_as_json(i)}))

    async def rows(self, request: Request) -> Response:
        operator, name = request.path_params["operator"], request.path_params["name"]
        key = request.query_params.get("key")
        entry = self._jobs.entry(request)
        return answer(await self._read(entry, lambda i: rows_as_json(i, operator, name, key, _MAX_ROWS)))

    # --- leases, for clients that read a checkpoint themselves

    async def lease(self, request: Request) -> Response:
        entry = self._jobs.entry(request)
        lease = _lease(entry, LEASE_SECONDS)
        header = {"lease": lease.id, "checkpoint": lease.checkpoint, "location": lease.location}
        return answer({**header, "seconds": LEASE_SECONDS}, 201)

    async def renew(self, request: Request) -> Response:
        entry, lease = self._jobs.entry(request), id_parameter(request, "leaseid", "lease id")
        if not entry.job.leases.renew(lease, LEASE_SECONDS):
            raise RequestError(404, f"There is no lease {lease}: it has expired.")
        return answer({"seconds": LEASE_SECONDS})

    async def release(self, request: Request) -> Response:
        self._jobs.entry(request).job.leases.release(id_parameter(request, "leaseid", "lease id"))
        return answer({})

    async def _read(self, entry: Entry, read: Callable[[Inspection], dict[str, Json]]) -> dict[str, Json]:
        """Read from the latest complete checkpoint, in another thread."""
        lease = _lease(entry)
        config = Configuration.from_dict(dict(entry.configuration))
        header = {"checkpoint": lease.checkpoint, "completed": milliseconds(lease.completed_at)}
        try:
            return {**header, **await asyncio.to_thread(_read_from, lease.location, config, read)}
        except InvalidProgramError as e:
            raise RequestError(404, str(e)) from None
        except DamagedStateError as e:
            if entry.view.outcome is not None:
                # The end of the job has deleted the checkpoint.
                raise RequestError(404, _no_checkpoint(entry.view.job_id)) from None
            raise RequestError(503, str(e)) from None
        except MillstreamError as e:
            raise RequestError(500, str(e)) from None
        finally:
            entry.job.leases.release(lease.id)


def _lease(entry: Entry, seconds: float = math.inf) -> Lease:
    """Lease the latest complete checkpoint of a job."""
    lease = entry.job.lease_checkpoint(seconds)
    if lease is None:
        raise RequestError(404, _no_checkpoint(entry.view.job_id))
    return lease


def _no_checkpoint(job_id: str) -> str:
    return (
        f"Job {job_id} has no complete checkpoint: set execution.checkpointing.interval, or trigger one with POST "
        "/jobs/:jobid/checkpoints."
    )


def _read_from(location: str, config: Configuration, read: Callable[[Inspection], dict[str, Json]]) -> dict[str, Json]:
    try:
        return read(Inspection.open(location, storage_options(config), load, signing_keys(config)))
    except FileNotFoundError as e:
        raise DamagedStateError(f"{location} was deleted while it was being read: {e}") from None

"""REST: the state of a job that runs, from its last complete checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.checkpoint.inspect import Inspection
from millstream.checkpoint.query import rows_as_json, states_as_json
from millstream.checkpoint.signing import signing_keys
from millstream.checkpoint.storage import storage_options
from millstream.common.configuration import Configuration
from millstream.common.errors import DamagedStateError, InvalidProgramError, MillstreamError
from millstream.common.pickles import load
from millstream.service.http import Refused, answer
from millstream.service.jobs_api import JobsApi
from millstream.service.pictures.tasks import milliseconds
from millstream.service.registry import Entry

_MOST_ROWS = 100
# A checkpoint may be superseded, and deleted, while it is read.
_TRIES = 3


class StateApi:
    """Answers for what is under /jobs/:jobid/state."""

    def __init__(self, jobs: JobsApi) -> None:
        self._jobs = jobs

    def routes(self) -> list[Route]:
        """Return the paths and who answers them."""
        state = "/jobs/{jobid}/state"
        return [Route(state, self.states), Route(f"{state}/{{operator}}/{{name}}", self.rows)]

    async def states(self, request: Request) -> Response:
        told = await self._read(self._jobs.entry(request), lambda i: {"operators": states_as_json(i)})
        return answer(told)

    async def rows(self, request: Request) -> Response:
        operator, name = request.path_params["operator"], request.path_params["name"]
        key = request.query_params.get("key")
        entry = self._jobs.entry(request)
        return answer(await self._read(entry, lambda i: rows_as_json(i, operator, name, key, _MOST_ROWS)))

    async def _read(self, entry: Entry, read: Callable[[Inspection], dict[str, Any]]) -> dict[str, Any]:
        """Read from the last complete checkpoint, beside what else is asked."""
        for last in range(_TRIES):
            latest = entry.view.checkpoints.latest
            if latest is None or latest.location is None:
                raise Refused(
                    404,
                    f"Job {entry.view.job_id} has no complete checkpoint to be asked: with "
                    "execution.checkpointing.interval it takes them, and with POST /jobs/:jobid/checkpoints one now.",
                )
            config = Configuration.from_dict(dict(entry.configuration))
            about = {"checkpoint": latest.id, "completed": milliseconds(latest.completed_at)}
            try:
                return {**about, **await asyncio.to_thread(_read_from, latest.location, config, read)}
            except InvalidProgramError as e:
                raise Refused(404, str(e)) from None
            except DamagedStateError as e:
                if last == _TRIES - 1:
                    raise Refused(503, str(e)) from None
            except MillstreamError as e:
                raise Refused(500, str(e)) from None
        raise AssertionError("the last try answers or refuses")


def _read_from(location: str, config: Configuration, read: Callable[[Inspection], dict[str, Any]]) -> dict[str, Any]:
    try:
        return read(Inspection.open(location, storage_options(config), load, signing_keys(config)))
    except FileNotFoundError as e:
        raise DamagedStateError(f"{location} was deleted while it was read: {e}") from None

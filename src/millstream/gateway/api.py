"""REST API of the SQL gateway, versions 1 to 4, for Flink's SQL client and JDBC driver."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.common.aliases import Json
from millstream.common.errors import MillstreamError
from millstream.gateway.completion import candidates
from millstream.gateway.operation import Operation, ResultPage
from millstream.gateway.row_formats import ROW_FORMATS, logical_type, rows_as_json
from millstream.gateway.script_text import script_at
from millstream.gateway.scripts import Scripts
from millstream.gateway.session import Outcome
from millstream.gateway.sessions import OpenSession, Sessions
from millstream.service.http import RequestError, answer, body_of
from millstream.service.responses.cluster import FLINK_VERSION
from millstream.sql.errors import CatalogException, SqlParserException, TableException, ValidationException

_GATEWAY = "org.apache.flink.table.gateway.api.utils.SqlGatewayException"
_OTHER = "java.lang.RuntimeException"
_JAVA_EXCEPTION = re.compile(r"(\w+Exception): ")
_API = "org.apache.flink.table.api"
_CLASSES: dict[type[Exception], str] = {
    SqlParserException: f"{_API}.SqlParserException",
    ValidationException: f"{_API}.ValidationException",
    TableException: f"{_API}.TableException",
    CatalogException: "org.apache.flink.table.catalog.exceptions.CatalogException",
}


def java_trace(action: str, error: Exception) -> str:
    """Return an error as a Java stack trace, whose last cause Flink's clients show.

    Example:
        >>> print(java_trace("Failed to closeSession.", ValidationException("No session x.")))  # doctest: +ELLIPSIS
        <Exception on server side:
        org.apache.flink.table.gateway.api.utils.SqlGatewayException: Failed to closeSession.
        Caused by: org.apache.flink.table.api.ValidationException: No session x.
        ...at millstream.gateway
        <BLANKLINE>
        End of exception on server side>
    """
    message = str(error) if isinstance(error, MillstreamError) else f"{type(error).__name__}: {error}"
    known = next((name for kind, name in _CLASSES.items() if isinstance(error, kind)), None)
    if known is None:
        # An error of a job under a Java class name keeps that name.
        match = _JAVA_EXCEPTION.match(message)
        known, message = (f"java.lang.{match[1]}", message[match.end() :]) if match else (_OTHER, message)
    # Clients extract the text between the last cause and its first stack frame.
    cause = f"Caused by: {known}: {message}\n\tat millstream.gateway"
    return f"<Exception on server side:\n{_GATEWAY}: {action}\n{cause}\n\nEnd of exception on server side>"


VERSIONS = (1, 2, 3, 4)
_SESSION = "/sessions/{session}"
_OPERATION = f"{_SESSION}/operations/{{operation}}"
_MATERIALIZED = f"{_SESSION}/materialized-tables/{{identifier}}/refresh"

Endpoint = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


class GatewayApi:
    """Answers for sessions and their statements."""

    def __init__(self, sessions: Sessions, scripts: Scripts) -> None:
        self._sessions = sessions
        self._scripts = scripts

    def routes(self) -> list[Route]:
        """Return the routes of all versions; paths without a version are routes of the newest."""
        paths: list[tuple[int, str, str, Endpoint]] = [
            (1, "GET", "/info", self.info),
            (1, "GET", "/api_versions", self.versions),
            (1, "POST", "/sessions", self.open),
            (1, "GET", _SESSION, self.settings),
            (1, "DELETE", _SESSION, self.close),
            (1, "POST", f"{_SESSION}/heartbeat", self.heartbeat),
            (1, "POST", f"{_SESSION}/statements", self.execute),
            (1, "GET", f"{_OPERATION}/status", self.status),
            (1, "POST", f"{_OPERATION}/cancel", self.cancel),
            (1, "DELETE", f"{_OPERATION}/close", self.close_operation),
            (1, "GET", f"{_OPERATION}/result/{{token}}", self.fetch),
            (2, "POST", f"{_SESSION}/configure-session", self.configure),
            (2, "GET", f"{_SESSION}/complete-statement", self.complete),
            (3, "POST", _MATERIALIZED, self.refresh),
            (4, "POST", f"{_SESSION}/scripts", self.deploy),
        ]
        return [
            Route(prefix + path, endpoint, methods=[method])
            for prefix, version in [*((f"/v{v}", v) for v in VERSIONS), ("", VERSIONS[-1])]
            for since, method, path, endpoint in paths
            if since <= version
        ]

    # --- the gateway

    async def info(self, _: Request) -> Response:
        """Return the gateway's information: clients check the Flink version."""
        return answer({"productName": "Apache Flink", "version": FLINK_VERSION})

    async def versions(self, _: Request) -> Response:
        return answer({"versions": [f"V{v}" for v in VERSIONS]})

    # --- sessions

    async def open(self, request: Request) -> Response:
        properties = _texts(await body_of(request), "properties")
        handle = await self._done("Failed to openSession.", lambda: self._sessions.open(properties))
        return answer({"sessionHandle": handle})

    async def settings(self, request: Request) -> Response:
        session = await self._session(request, "Failed to getSessionConfig.")
        return answer({"properties": session.session.settings})

    async def close(self, request: Request) -> Response:
        handle = _handle(request, "session")
        await self._done("Failed to closeSession.", lambda: self._sessions.close(handle))
        return answer({"status": "CLOSED"})

    async def heartbeat(self, request: Request) -> Response:
        await self._session(request, "Failed to trigger heartbeat.")
        return answer({})

    async def configure(self, request: Request) -> Response:
        session, body = await self._session(request, "Failed to configure session."), await body_of(request)
        statement = _text(body, "statement")
        await self._done("Failed to configure session.", lambda: session.session.configure(statement))
        return answer({})

    async def complete(self, request: Request) -> Response:
        session, body = await self._session(request, "Failed to completeStatement."), await body_of(request)
        text, position = _text(body, "statement"), _number(body, "position")
        words = await self._done("Failed to completeStatement.", session.session.vocabulary)
        return answer({"candidates": candidates(text, position, words)})

    # --- statements

    async def execute(self, request: Request) -> Response:
        session, body = await self._session(request, "Failed to execute statement."), await body_of(request)
        text, only_now = _text(body, "statement"), _texts(body, "executionConfig")
        operation = session.submit(lambda: session.session.execute(text, only_now), _number(body, "executionTimeout"))
        return answer({"operationHandle": operation.handle})

    async def status(self, request: Request) -> Response:
        _, operation = await self._operation(request, "Failed to getOperationInfo.")
        return answer({"status": operation.status})

    async def cancel(self, request: Request) -> Response:
        _, operation = await self._operation(request, "Failed to cancelOperation.")
        await self._done("Failed to cancelOperation.", operation.cancel)
        return answer({"status": operation.status})

    async def close_operation(self, request: Request) -> Response:
        session, operation = await self._operation(request, "Failed to closeOperation.")
        await self._done("Failed to closeOperation.", operation.close)
        del session.operations[operation.handle]
        return answer({"status": "CLOSED"})

    async def fetch(self, request: Request) -> Response:
        token, row_format = _token(request), _row_format(request)
        _, operation = await self._operation(request, "Failed to fetchResults.")

        def fetched() -> bytes:
            return _page_body(operation.fetch(token), row_format, _next_uri(request, row_format))

        page = await self._done("Failed to fetchResults.", fetched)
        return Response(page, media_type="application/json")

    async def refresh(self, request: Request) -> Response:
        """Fail the operation as Flink does for other tables; materialized tables are not supported."""
        session = await self._session(request, "Failed to refresh MaterializedTable.")
        identifier = request.path_params["identifier"]

        def refuse() -> Outcome:
            raise ValidationException(f"The table '{identifier}' is not a materialized table.")

        return answer({"operationHandle": session.submit(refuse).handle})

    async def deploy(self, request: Request) -> Response:
        """Run a script as an application with this session's settings; it may outlive the session."""
        action = "Failed to deploy script to cluster."
        session, body = await self._session(request, action), await body_of(request)
        text, uri, only_now = _text(body, "script"), _text(body, "scriptUri"), _texts(body, "executionConfig")

        def deployed() -> str:
            if not text.strip() and not uri:
                raise TableException("Please specify script content or uri.")
            if text.strip() and uri:
                raise TableException("Please specify either the script uri or the script content, but not both.")
            settings = {**session.session.settings, **only_now}
            return self._scripts.deploy(script_at(uri, settings) if uri else text, settings)

        return answer({"clusterID": await self._done(action, deployed)})

    # --- sessions and operations of requests

    async def _session(self, request: Request, action: str) -> OpenSession:
        handle = _handle(request, "session")
        return await self._done(action, lambda: self._sessions.find(handle))

    async def _operation(self, request: Request, action: str) -> tuple[OpenSession, Operation]:
        session, handle = await self._session(request, action), _handle(request, "operation")
        return session, await self._done(action, lambda: session.operation(handle))

    async def _done(self, action: str, call: Callable[[], T]) -> T:
        """Run a blocking call; report an error in the form that Flink's clients read."""
        try:
            return await run_in_threadpool(call)
        except Exception as e:
            raise RequestError(500, java_trace(action, e)) from e


def _page_body(page: ResultPage, row_format: str, next_uri: Callable[[int], str]) -> bytes:
    """Return the JSON of a page of rows."""
    following = {} if page.next_token is None else {"nextResultUri": next_uri(page.next_token)}
    outcome = page.outcome
    if outcome is None:
        return _json({"resultType": page.kind, **following}).encode()
    head = {"resultType": page.kind, "isQueryResult": outcome.is_query}
    if outcome.job_id is not None:
        head["jobID"] = outcome.job_id
    head["resultKind"] = "SUCCESS" if outcome.is_ok else "SUCCESS_WITH_CONTENT"
    columns = [{"name": f.name, "logicalType": logical_type(f.type), "comment": None} for f in outcome.fields.fields]
    rows = [r for b in page.batches for r in rows_as_json(b, outcome.fields, row_format, outcome.zone)]
    results = f'{{"columns":{_json(columns)},"rowFormat":"{row_format}","data":[{",".join(rows)}]}}'
    shown = [f"{_json(k)}:{_json(v)}" for k, v in head.items()] + [f'"results":{results}']
    shown += [f"{_json(k)}:{_json(v)}" for k, v in following.items()]
    return f"{{{','.join(shown)}}}".encode("utf-8", "surrogatepass")


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _next_uri(request: Request, row_format: str) -> Callable[[int], str]:
    base = re.sub(r"/result/[^/]*\Z", "/result/", request.url.path)
    # Version 1 has one format only.
    query = "" if base.startswith("/v1/") else f"?rowFormat={row_format}"
    return lambda token: f"{base}{token}{query}"


def _handle(request: Request, name: str) -> str:
    handle: str = request.path_params[name]
    try:
        return str(uuid.UUID(handle)) if len(handle) == 36 else _unresolved(f"path parameter ({name}_handle)", handle)
    except ValueError:
        return _unresolved(f"path parameter ({name}_handle)", handle)


def _token(request: Request) -> int:
    token: str = request.path_params["token"]
    if not re.fullmatch(r"-?\d{1,18}", token):
        _unresolved("path parameter (token)", token)
    return int(token)


def _row_format(request: Request) -> str:
    row_format = request.query_params.get("rowFormat", "JSON").upper()
    return row_format if row_format in ROW_FORMATS else _unresolved("query parameter (rowFormat)", row_format)


def _unresolved(parameter: str, value: str) -> str:
    raise RequestError(
        400, f'Bad request, could not parse parameters: Cannot resolve {parameter} from value "{value}".'
    )


def _text(body: dict[str, Json], name: str) -> str:
    value = body.get(name)
    return value if isinstance(value, str) else ""


def _number(body: dict[str, Json], name: str) -> int:
    value = body.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def _texts(body: dict[str, Json], name: str) -> dict[str, str]:
    values = body.get(name) or {}
    if not isinstance(values, dict):
        raise RequestError(400, f"{name} must be an object of strings.")
    return {str(k): str(v) for k, v in values.items()}

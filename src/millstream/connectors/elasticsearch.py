"""Elasticsearch and OpenSearch: writes records as documents with bulk requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple, Self, TypeAlias
from urllib.parse import SplitResult, urlsplit
from uuid import UUID

from millstream.common.aliases import Json, Key, Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.types import Row, RowKind
from millstream.common.unsupported import JAVA, missing_function
from millstream.connectors.base import CommitContext, Committer, DeliveryGuarantee, Sink, SinkWriter
from millstream.connectors.retries import Backoff, Retries, constant, exponential
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.context import RuntimeContext

__all__ = [
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "ElasticsearchSinkBuilderBase",
    "FlushBackoffType",
]

# Transient status codes: too many requests, and servers that are busy or starting.
TRANSIENT = {429, 502, 503, 504}
# A document: the fields of a record.
Document: TypeAlias = Mapping[str, Value]

_UNAUTHORIZED = {401, 403}
_PORT = 9200


@dataclass(frozen=True)
class Access:
    """Addresses, credentials and timeouts in seconds."""

    hosts: tuple[SplitResult, ...] = ()
    user: str | None = None
    password: str = field(default="", repr=False)
    prefix: str = ""
    connect_timeout: float = 10.0
    read_timeout: float = 30.0

    @property
    def address(self) -> str:
        return ", ".join(host.netloc.rpartition("@")[2] for host in self.hosts)

    def headers(self) -> dict[str, str]:
        if self.user is None:
            return {"Content-Type": "application/x-ndjson"}
        credentials = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Content-Type": "application/x-ndjson", "Authorization": f"Basic {credentials}"}


class Unavailable(Exception):
    """A transient failure: no server answers, or it is too busy."""


class Client:
    """Connects to one server at a time, and to the next one after a failure."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._connection: HTTPConnection | None = None
        self._host_index = 0

    def request(self, method: str, path: str, body: bytes | None = None) -> dict[str, Json]:
        """Return a response; raise Unavailable after a transient failure."""
        status, text = self._response(method, path, body)
        address = self._access.address
        if status in TRANSIENT:
            raise Unavailable(f"status {status}: {error_reason(text)}")
        if status in _UNAUTHORIZED:
            raise MillstreamError(
                f"ElasticsearchSink: {address} rejects this user ({status}): check set_connection_username(...) "
                "and set_connection_password(...)."
            )
        if status >= 400:
            raise MillstreamError(f"ElasticsearchSink: {address} refuses a request ({status}): {error_reason(text)}.")
        try:
            return dict(json.loads(text))
        except ValueError:
            raise MillstreamError(
                f"ElasticsearchSink: {address} is not Elasticsearch, its response begins with {text[:60]!r}: check "
                "set_hosts(...)."
            ) from None

    def _response(self, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        # The server may have closed an idle connection.
        if self._connection is not None:
            try:
                return self._send_once(self._connection, method, path, body)
            except (OSError, HTTPException):
                self.close()
        try:
            self._connection = self._connect()
            return self._send_once(self._connection, method, path, body)
        except (OSError, HTTPException) as e:
            self.close()
            self._host_index += 1
            raise Unavailable(str(e) or repr(e)) from e

    def _connect(self) -> HTTPConnection:
        access = self._access
        host = access.hosts[self._host_index % len(access.hosts)]
        connection_class = HTTPSConnection if host.scheme == "https" else HTTPConnection
        connection = connection_class(str(host.hostname), host.port or _PORT, timeout=access.connect_timeout)
        connection.connect()
        connection.sock.settimeout(access.read_timeout)
        return connection

    def _send_once(self, connection: HTTPConnection, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        connection.request(method, f"{self._access.prefix}{path}", body, self._access.headers())
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")

    def close(self) -> None:
        """Disconnect; the next request reconnects."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def bulk_body(actions: Sequence[tuple[str, ...]]) -> bytes:
    """Return the body of a bulk request: every action is one or two lines."""
    return "".join(f"{line}\n" for action in actions for line in action).encode()


def error_reason(text: str) -> str:
    """Return the reason of an error response, or the beginning of another response.

    Example:
        >>> error_reason('{"error": {"type": "x", "reason": "no such index", "caused_by": {"reason": "it is closed"}}}')
        'no such index (it is closed)'
    """
    try:
        error = json.loads(text)["error"]
        if not isinstance(error, dict):
            return str(error)
        cause = (error.get("caused_by") or {}).get("reason")
        return f"{error['reason']} ({cause})" if cause else str(error["reason"])
    except (ValueError, KeyError, TypeError):
        return text[:200]


class Action(NamedTuple):
    """A bulk action: index and id of its document, None for a generated id, and its lines."""

    document: tuple[str, str] | None
    lines: tuple[str, ...]


@dataclass(frozen=True)
class ElasticsearchEmitter:
    """Maps a record to an index and a document id. Records are dicts, or Rows with field names.

    Attributes:
        index: the index, or the field with its name.
        key_field: the field with the document id; by default the server generates one per record.
        is_dynamic: whether `index` is a field.

    Example:
        >>> emitter = ElasticsearchEmitter.dynamic_index("year", "id")
        >>> emitter.action({"year": 2026, "id": 7}).lines
        ('{"index": {"_index": "2026", "_id": "7"}}', '{"year": 2026, "id": 7}')
    """

    index: str
    key_field: str | None
    is_dynamic: bool

    @staticmethod
    def static_index(index: str, key_field: str | None = None, doc_type: str | None = None) -> ElasticsearchEmitter:
        """Write all records to one index; Elasticsearch 7 has no document types."""
        return ElasticsearchEmitter(index, key_field, False)

    @staticmethod
    def dynamic_index(
        index_field: str, key_field: str | None = None, doc_type: str | None = None
    ) -> ElasticsearchEmitter:
        """Write each record to the index named by a field."""
        return ElasticsearchEmitter(index_field, key_field, True)

    def action(self, record: Value) -> Action:
        """Return the action of a record; a retraction deletes its document.

        Example:
            >>> ElasticsearchEmitter.static_index("users", "id").action({"id": 7, "name": "Ann"}).lines
            ('{"index": {"_index": "users", "_id": "7"}}', '{"id": 7, "name": "Ann"}')
        """
        document = _document(record)
        # UPDATE_BEFORE too: UPDATE_AFTER may have another key; with the same key it replaces this action.
        deletes = isinstance(record, Row) and record.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
        if deletes and self.key_field is None:
            raise MillstreamError(
                f"ElasticsearchSink: {shorten(record)} deletes a document without an id: set the field with the id, as "
                "in ElasticsearchEmitter.static_index(index, key_field)."
            )
        index = str(_field(document, self.index)) if self.is_dynamic else self.index
        identity = None if self.key_field is None else (index, str(_field(document, self.key_field)))
        metadata = {"_index": index} if identity is None else {"_index": index, "_id": identity[1]}
        if deletes:
            return Action(identity, (json.dumps({"delete": metadata}),))
        return Action(identity, (json.dumps({"index": metadata}), _json_text(document)))


def _document(record: Value) -> Document:
    try:
        document = record.as_dict(recursive=True) if isinstance(record, Row) else record
    except TypeError:
        document = None
    if not isinstance(document, Mapping):
        raise MillstreamError(
            f"ElasticsearchSink takes dicts, or Rows with names, not {shorten(record)}: convert records with .map(...)."
        )
    return document


def _field(document: Document, name: str) -> Value:
    value = document.get(name)
    if value is None:
        raise MillstreamError(f"ElasticsearchSink: the record {shorten(document)} has no value in field {name!r}.")
    return value


def _json_text(document: Document) -> str:
    try:
        # NaN is not JSON.
        return json.dumps(document, default=_to_json, allow_nan=False)
    except (TypeError, ValueError) as e:
        raise MillstreamError(
            f"ElasticsearchSink: the record {shorten(document)} cannot be written as JSON: {e}."
        ) from None


def _to_json(value: Value) -> Json:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, date | datetime | time_of_day):
        return value.isoformat()
    if isinstance(value, Decimal):
        number = float(value)
        if value.is_finite() and Decimal(repr(number)) != value:
            raise ValueError(f"{value} has more digits than a JSON number; convert it to a string")
        return number
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{shorten(value)} is a {type(value).__name__}; convert it to a number, a string, a list or a dict")


class FlushBackoffType(Enum):
    """The back-off between retries of a bulk request."""

    CONSTANT = 0
    EXPONENTIAL = 1
    NONE = 2


@dataclass(frozen=True)
class _Settings:
    access: Access = field(default_factory=Access)
    emitter: ElasticsearchEmitter | None = None
    max_actions: int = 1000
    max_bytes: int = -1
    backoff: FlushBackoffType = FlushBackoffType.NONE
    retries: int = 0
    delay: float = 0.0

    def pauses(self) -> Backoff:
        return exponential(self.delay) if self.backoff is FlushBackoffType.EXPONENTIAL else constant(self.delay)


class _Writer(SinkWriter):
    """Sends full bulk requests, and the rest at the end of an epoch."""

    keeps_values = False

    def __init__(self, settings: _Settings) -> None:
        assert settings.emitter is not None
        self._settings = settings
        self._action = settings.emitter.action
        self._client = Client(settings.access)
        # Only the last action per document: a retried earlier one would overwrite it.
        self._pending: dict[Key, Action] = {}
        self._bytes = 0

    def begin(self, transaction: str) -> None:
        # Discards the actions of a failed epoch.
        self._clear()

    def _clear(self) -> None:
        self._pending, self._bytes = {}, 0

    def write(self, value: Value) -> None:
        action = self._action(value)
        pending, settings = self._pending, self._settings
        pending[len(pending) if action.document is None else action.document] = action
        self._bytes += sum(map(len, action.lines))
        if 0 < settings.max_actions <= len(pending) or 0 < settings.max_bytes <= self._bytes:
            self._flush()

    def prepare_commit(self, flush: bool) -> None:
        self._flush()

    def _flush(self) -> None:
        """Send pending actions, and retry failed ones as the back-off allows."""
        pending = list(self._pending.values())
        retries = Retries(self._settings.pauses(), self._settings.retries)
        while pending:
            try:
                pending, reason = self._send(pending)
            except Unavailable as e:
                reason = str(e)
            if pending and not retries.wait():
                raise MillstreamError(
                    f"ElasticsearchSink: {self._settings.access.address} does not accept {len(pending):,} documents: "
                    f"{reason.rstrip('.')}. Set retries with set_bulk_flush_backoff_strategy(...)."
                )
        self._clear()

    def _send(self, actions: Sequence[Action]) -> tuple[list[Action], str]:
        """Send a bulk request; return the actions to retry, and the reason."""
        response = self._client.request("POST", "/_bulk", bulk_body([action.lines for action in actions]))
        rejected: list[Action] = []
        reason = ""
        if not response["errors"]:
            return rejected, reason
        for action, item in zip(actions, response["items"], strict=True):
            ((operation, result),) = item.items()
            if result["status"] in TRANSIENT:
                rejected.append(action)
                reason = error_reason(json.dumps(result))
            elif result["status"] >= 400 and (operation, result["status"]) != ("delete", 404):
                raise MillstreamError(
                    f"ElasticsearchSink: index {result['_index']!r} rejects {shorten(action.lines[-1])}: "
                    f"{error_reason(json.dumps(result))}."
                )
        return rejected, reason

    def close(self) -> None:
        self._client.close()


class ElasticsearchSink(Sink):
    """Writes records to Elasticsearch 7 and later, or OpenSearch, at least once.

    With a key field a replayed record replaces its document; without, it is duplicated. See Elasticsearch7SinkBuilder
    for an example.
    """

    name = "Elasticsearch Sink"

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer(self._settings)

    def create_committer(self, context: CommitContext) -> Committer | None:
        """Return None; check that a server answers."""
        access, reason = self._settings.access, ""
        client = Client(access)
        for _ in access.hosts:
            try:
                client.request("GET", "/")
                return None
            except Unavailable as e:
                reason = str(e)
            finally:
                client.close()
        raise MillstreamError(f"ElasticsearchSink: {access.address} does not answer: {reason}. Check set_hosts(...).")


class ElasticsearchSinkBuilderBase:
    """Builds an ElasticsearchSink; see Elasticsearch7SinkBuilder for an example."""

    get_http_host_class = missing_function("get_http_host_class", JAVA)

    def __init__(self) -> None:
        self._settings = _Settings()

    def _with(self, settings: _Settings) -> Self:
        self._settings = settings
        return self

    def _with_access(self, access: Access) -> Self:
        return self._with(replace(self._settings, access=access))

    def set_emitter(self, emitter: ElasticsearchEmitter) -> Self:
        """Set the emitter. Required."""
        if not isinstance(emitter, ElasticsearchEmitter):
            raise InvalidProgramError(f"ElasticsearchSink takes an ElasticsearchEmitter, not {emitter!r}.")
        return self._with(replace(self._settings, emitter=emitter))

    def set_hosts(self, hosts: str | list[str]) -> Self:
        """Set the servers, such as `localhost:9200` or `https://host:9200`. Required.

        A failure switches to the next one.
        """
        urls = hosts if isinstance(hosts, list) else [hosts]
        servers = tuple(urlsplit(host if "://" in host else f"http://{host}") for host in urls)
        if not servers or not all(host.hostname and host.scheme in ("http", "https") for host in servers):
            raise InvalidProgramError(
                f"ElasticsearchSink: {hosts!r} are no addresses; use the form 'localhost:9200' or 'https://host:9200'."
            )
        return self._with_access(replace(self._settings.access, hosts=servers))

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> Self:
        """Accept NONE, the default, or AT_LEAST_ONCE; both write all records by the end of an epoch."""
        if delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            raise InvalidProgramError(
                "ElasticsearchSink: EXACTLY_ONCE is not supported; use AT_LEAST_ONCE and a key field, which makes "
                "writes idempotent."
            )
        return self

    def set_bulk_flush_max_actions(self, num_max_actions: int) -> Self:
        """Set the maximum documents per request, by default 1000; -1 for no limit."""
        _check_limit("set_bulk_flush_max_actions", num_max_actions)
        return self._with(replace(self._settings, max_actions=num_max_actions))

    def set_bulk_flush_max_size_mb(self, max_size_mb: int) -> Self:
        """Set the maximum size of a request in MiB, by default -1 for no limit."""
        _check_limit("set_bulk_flush_max_size_mb", max_size_mb)
        return self._with(replace(self._settings, max_bytes=max_size_mb << 20 if max_size_mb > 0 else -1))

    def set_bulk_flush_interval(self, interval_millis: int) -> Self:
        """Accept Flink's setting, without effect: each epoch sends all records."""
        return self

    def set_bulk_flush_backoff_strategy(
        self, flush_backoff_type: FlushBackoffType, max_retries: int, delay_millis: int
    ) -> Self:
        """Set the retries of failed actions and the delay between them, by default none."""
        retries = 0 if flush_backoff_type is FlushBackoffType.NONE else max_retries
        return self._with(
            replace(self._settings, backoff=flush_backoff_type, retries=retries, delay=delay_millis / 1000)
        )

    def set_connection_username(self, username: str) -> Self:
        """Set the user, by default none."""
        return self._with_access(replace(self._settings.access, user=username))

    def set_connection_password(self, password: str) -> Self:
        """Set the password, by default none."""
        return self._with_access(replace(self._settings.access, password=password))

    def set_connection_path_prefix(self, prefix: str) -> Self:
        """Set a prefix for the path of every request, by default none."""
        return self._with_access(
            replace(self._settings.access, prefix=f"/{prefix.strip('/')}" if prefix.strip("/") else "")
        )

    def set_connection_request_timeout(self, timeout: int) -> Self:
        """Accept Flink's setting, without effect: each subtask has its own connection."""
        return self

    def set_connection_timeout(self, timeout: int) -> Self:
        """Set the connection timeout in milliseconds, by default 10,000."""
        return self._with_access(replace(self._settings.access, connect_timeout=timeout / 1000))

    def set_socket_timeout(self, timeout: int) -> Self:
        """Set the response timeout in milliseconds, by default 30,000."""
        return self._with_access(replace(self._settings.access, read_timeout=timeout / 1000))

    def build(self) -> ElasticsearchSink:
        """Return the sink; an incomplete configuration is an error."""
        if not self._settings.access.hosts:
            raise InvalidProgramError("ElasticsearchSink: set the servers with set_hosts(...).")
        if self._settings.emitter is None:
            raise InvalidProgramError("ElasticsearchSink: set the index with set_emitter(...).")
        return ElasticsearchSink(self._settings)


def _check_limit(name: str, limit: int) -> None:
    if limit != -1 and limit <= 0:
        raise InvalidProgramError(f"ElasticsearchSink: {name}({limit}) must be larger than 0, or -1 for no limit.")


class Elasticsearch7SinkBuilder(ElasticsearchSinkBuilderBase):
    """Builds a sink for Elasticsearch 7 and later, or OpenSearch.

    Example:
        >>> sink = (
        ...     Elasticsearch7SinkBuilder()
        ...     .set_hosts(["https://search-1:9200", "https://search-2:9200"])
        ...     .set_emitter(ElasticsearchEmitter.static_index("users", "id"))
        ...     .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        ...     .set_bulk_flush_max_actions(500)
        ...     .set_bulk_flush_max_size_mb(5)
        ...     .set_bulk_flush_backoff_strategy(FlushBackoffType.EXPONENTIAL, 5, 1000)
        ...     .set_connection_username("me")
        ...     .set_connection_password("secret")
        ...     .set_connection_path_prefix("search")
        ...     .set_connection_timeout(5000)
        ...     .set_socket_timeout(10_000)
        ...     .build()
        ... )
        >>> sink.name
        'Elasticsearch Sink'
    """

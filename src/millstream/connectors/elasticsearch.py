"""Elasticsearch and OpenSearch: records as documents, by the bulk requests of their REST service."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple, Self
from urllib.parse import SplitResult, urlsplit
from uuid import UUID

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.types import Row, RowKind
from millstream.common.unsupported import JAVA, missing_function
from millstream.connectors.base import CommitContext, Committer, DeliveryGuarantee, Sink, SinkWriter
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.context import RuntimeContext

__all__ = [
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "ElasticsearchSinkBuilderBase",
    "FlushBackoffType",
]

# Answers that may be others the next time: too many requests, and servers that are busy or starting.
PASSING = {429, 502, 503, 504}
_REFUSED = {401, 403}
_PORT = 9200


@dataclass(frozen=True)
class Access:
    """Where the servers are, and how they are spoken to; times are in seconds."""

    hosts: tuple[SplitResult, ...] = ()
    user: str | None = None
    password: str = field(default="", repr=False)
    prefix: str = ""
    connect_timeout: float = 10.0
    read_timeout: float = 30.0

    @property
    def place(self) -> str:
        return ", ".join(host.netloc.rpartition("@")[2] for host in self.hosts)

    def headers(self) -> dict[str, str]:
        if self.user is None:
            return {"Content-Type": "application/x-ndjson"}
        who = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Content-Type": "application/x-ndjson", "Authorization": f"Basic {who}"}


class Unavailable(Exception):
    """No server answers, or it is too busy: what may be otherwise the next time."""


class Client:
    """Speaks to one server at a time, to the next one when that is gone."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._connection: HTTPConnection | None = None
        self._at = 0

    def ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """Return an answer; raise Unavailable where there is none for now."""
        status, text = self._answer(method, path, body)
        place = self._access.place
        if status in PASSING:
            raise Unavailable(f"it says {status}: {reason(text)}")
        if status in _REFUSED:
            raise MillstreamError(
                f"ElasticsearchSink: {place} does not let this user in ({status}): check set_connection_username(...) "
                "and set_connection_password(...)."
            )
        if status >= 400:
            raise MillstreamError(f"ElasticsearchSink: {place} refuses a request ({status}): {reason(text)}.")
        try:
            return dict(json.loads(text))
        except ValueError:
            raise MillstreamError(
                f"ElasticsearchSink: {place} is no Elasticsearch, its answer begins with {text[:60]!r}: check "
                "set_hosts(...)."
            ) from None

    def _answer(self, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        # A connection that was not used for a while may have been given up at the other end.
        if self._connection is not None:
            try:
                return self._sent(self._connection, method, path, body)
            except (OSError, HTTPException):
                self.close()
        try:
            self._connection = self._connected()
            return self._sent(self._connection, method, path, body)
        except (OSError, HTTPException) as e:
            self.close()
            self._at += 1
            raise Unavailable(str(e) or repr(e)) from e

    def _connected(self) -> HTTPConnection:
        access = self._access
        host = access.hosts[self._at % len(access.hosts)]
        make = HTTPSConnection if host.scheme == "https" else HTTPConnection
        connection = make(str(host.hostname), host.port or _PORT, timeout=access.connect_timeout)
        connection.connect()
        connection.sock.settimeout(access.read_timeout)
        return connection

    def _sent(self, connection: HTTPConnection, method: str, path: str, body: bytes | None) -> tuple[int, str]:
        connection.request(method, f"{self._access.prefix}{path}", body, self._access.headers())
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")

    def close(self) -> None:
        """Hang up; the next question connects anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def bulk_body(actions: Sequence[tuple[str, ...]]) -> bytes:
    """Return the body of a bulk request: every action is one or two lines."""
    return "".join(f"{line}\n" for action in actions for line in action).encode()


def reason(text: str) -> str:
    """Return why, from an answer that says so, or the beginning of one that does not.

    Example:
        >>> reason('{"error": {"type": "x", "reason": "no such index", "caused_by": {"reason": "it is closed"}}}')
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
    """What a record asks for: the document it is about, None for a new one each time, and the lines that say it."""

    about: tuple[str, str] | None
    lines: tuple[str, ...]


@dataclass(frozen=True)
class ElasticsearchEmitter:
    """Says into which index a record goes, and what the id of its document is. Records are dicts, or Rows with names.

    Attributes:
        index: the index, or the field that names it.
        key_field: the field whose value is the document's id; without, the server makes one up for every record.
        is_dynamic: whether `index` is a field.
    """

    index: str
    key_field: str | None
    is_dynamic: bool

    @staticmethod
    def static_index(index: str, key_field: str | None = None, doc_type: str | None = None) -> ElasticsearchEmitter:
        """Put all records into one index; types of documents are no more since Elasticsearch 7."""
        return ElasticsearchEmitter(index, key_field, False)

    @staticmethod
    def dynamic_index(
        index_field: str, key_field: str | None = None, doc_type: str | None = None
    ) -> ElasticsearchEmitter:
        """Put each record into the index that one of its fields names."""
        return ElasticsearchEmitter(index_field, key_field, True)

    def action(self, record: Any) -> Action:
        """Return what a record asks for: a row that takes one back, that its document is deleted.

        Example:
            >>> ElasticsearchEmitter.static_index("users", "id").action({"id": 7, "name": "Ann"}).lines
            ('{"index": {"_index": "users", "_id": "7"}}', '{"id": 7, "name": "Ann"}')
        """
        document = _document(record)
        # The row before a change, too: the one behind it may have another key, and if not it replaces this action.
        deletes = isinstance(record, Row) and record.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
        if deletes and self.key_field is None:
            raise MillstreamError(
                f"ElasticsearchSink: {shorten(record)} takes a document back, and which one is not said: name the "
                "field with its id, as in ElasticsearchEmitter.static_index(index, key_field)."
            )
        index = str(_field(document, self.index)) if self.is_dynamic else self.index
        about = None if self.key_field is None else (index, str(_field(document, self.key_field)))
        named = {"_index": index} if about is None else {"_index": index, "_id": about[1]}
        if deletes:
            return Action(about, (json.dumps({"delete": named}),))
        return Action(about, (json.dumps({"index": named}), _written(document)))


def _document(record: Any) -> Mapping[Any, Any]:
    try:
        document = record.as_dict(recursive=True) if isinstance(record, Row) else record
    except TypeError:
        document = None
    if not isinstance(document, Mapping):
        raise MillstreamError(
            f"ElasticsearchSink takes dicts, or Rows with names, not {shorten(record)}: .map(...) makes them so."
        )
    return document


def _field(document: Mapping[Any, Any], name: str) -> Any:
    found = document.get(name)
    if found is None:
        raise MillstreamError(f"ElasticsearchSink: the record {shorten(document)} has no value in field {name!r}.")
    return found


def _written(document: Mapping[Any, Any]) -> str:
    try:
        # What it calls NaN is not JSON.
        return json.dumps(document, default=_as_json, allow_nan=False)
    except (TypeError, ValueError) as e:
        raise MillstreamError(
            f"ElasticsearchSink: the record {shorten(document)} cannot be written as JSON: {e}."
        ) from None


def _as_json(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, date | datetime | time_of_day):
        return value.isoformat()
    if isinstance(value, Decimal):
        number = float(value)
        if value.is_finite() and Decimal(repr(number)) != value:
            raise ValueError(f"{value} has more digits than a number of JSON's keeps; make it a string")
        return number
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{shorten(value)} is a {type(value).__name__}; make it a number, a string, a list or a dict")


class FlushBackoffType(Enum):
    """Whether, and how patiently, a bulk request that fails is sent again."""

    CONSTANT = 0
    EXPONENTIAL = 1
    NONE = 2


@dataclass(frozen=True)
class _Settings:
    access: Access = field(default_factory=Access)
    emitter: ElasticsearchEmitter | None = None
    most_actions: int = 1000
    most_bytes: int = -1
    backoff: FlushBackoffType = FlushBackoffType.NONE
    retries: int = 0
    delay: float = 0.0

    def pause(self, attempt: int) -> float:
        return self.delay * 2**attempt if self.backoff is FlushBackoffType.EXPONENTIAL else self.delay


class _Writer(SinkWriter):
    """Writes bulk requests as they fill up; by the end of an epoch all of it is in its index."""

    keeps_values = False

    def __init__(self, settings: _Settings) -> None:
        assert settings.emitter is not None
        self._settings = settings
        self._action = settings.emitter.action
        self._client = Client(settings.access)
        # Of each document the last action only: sent again, the one before would come after it.
        self._waiting: dict[Any, Action] = {}
        self._bytes = 0

    def begin(self, transaction: str) -> None:
        # Of an epoch that did not get to its end.
        self._forget()

    def _forget(self) -> None:
        self._waiting, self._bytes = {}, 0

    def write(self, value: Any) -> None:
        action = self._action(value)
        waiting, settings = self._waiting, self._settings
        waiting[len(waiting) if action.about is None else action.about] = action
        self._bytes += sum(map(len, action.lines))
        if 0 < settings.most_actions <= len(waiting) or 0 < settings.most_bytes <= self._bytes:
            self._flush()

    def prepare_commit(self, flush: bool) -> None:
        self._flush()

    def _flush(self) -> None:
        """Send what waits, again what was not taken, as often as the strategy says."""
        waiting, why = list(self._waiting.values()), ""
        for attempt in range(self._settings.retries + 1):
            if not waiting:
                break
            if attempt:
                time.sleep(self._settings.pause(attempt - 1))
            try:
                waiting, why = self._send(waiting)
            except Unavailable as e:
                why = str(e)
        if waiting:
            raise MillstreamError(
                f"ElasticsearchSink: {self._settings.access.place} does not take what is to be written: "
                f"{why.rstrip('.')}. How often to try again is said by set_bulk_flush_backoff_strategy(...)."
            )
        self._forget()

    def _send(self, actions: Sequence[Action]) -> tuple[list[Action], str]:
        """Send a bulk request; return what is to be sent again, and why."""
        answer = self._client.ask("POST", "/_bulk", bulk_body([action.lines for action in actions]))
        again: list[Action] = []
        why = ""
        if not answer["errors"]:
            return again, why
        for action, item in zip(actions, answer["items"], strict=True):
            ((what, result),) = item.items()
            if result["status"] in PASSING:
                again.append(action)
                why = reason(json.dumps(result))
            elif result["status"] >= 400 and (what, result["status"]) != ("delete", 404):
                raise MillstreamError(
                    f"ElasticsearchSink: {shorten(action.lines[-1])} was not taken into index {result['_index']!r}: "
                    f"{reason(json.dumps(result))}."
                )
        return again, why

    def close(self) -> None:
        self._client.close()


class ElasticsearchSink(Sink):
    """Puts records into indexes of Elasticsearch 7 and later, or OpenSearch. At least once.

    With a key field a record that comes again after a failure replaces its document; without, it is there twice.
    """

    name = "Elasticsearch Sink"

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer(self._settings)

    def create_committer(self, context: CommitContext) -> Committer | None:
        """Return None, once a server has answered."""
        access, why = self._settings.access, ""
        client = Client(access)
        for _ in access.hosts:
            try:
                client.ask("GET", "/")
                return None
            except Unavailable as e:
                why = str(e)
            finally:
                client.close()
        raise MillstreamError(f"ElasticsearchSink: {access.place} does not answer: {why}. Check set_hosts(...).")


class ElasticsearchSinkBuilderBase:
    """Builds an ElasticsearchSink."""

    get_http_host_class = missing_function("get_http_host_class", JAVA)

    def __init__(self) -> None:
        self._settings = _Settings()

    def _with(self, **changes: Any) -> Self:
        self._settings = replace(self._settings, **changes)
        return self

    def _with_access(self, **changes: Any) -> Self:
        return self._with(access=replace(self._settings.access, **changes))

    def set_emitter(self, emitter: ElasticsearchEmitter) -> Self:
        """Say into which index records go."""
        if not isinstance(emitter, ElasticsearchEmitter):
            raise InvalidProgramError(f"ElasticsearchSink takes an ElasticsearchEmitter, not {emitter!r}.")
        return self._with(emitter=emitter)

    def set_hosts(self, hosts: str | list[str]) -> Self:
        """Say where servers are: `localhost:9200`, `https://host:9200`; the next one is taken when one is gone."""
        given = hosts if isinstance(hosts, list) else [hosts]
        found = tuple(urlsplit(host if "://" in host else f"http://{host}") for host in given)
        if not found or not all(host.hostname and host.scheme in ("http", "https") for host in found):
            raise InvalidProgramError(f"ElasticsearchSink: {hosts!r} does not say where servers are: 'localhost:9200'.")
        return self._with_access(hosts=found)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> Self:
        """Say NONE, which is the default, or AT_LEAST_ONCE: here all is written by the end of an epoch in both."""
        if delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            raise InvalidProgramError(
                "ElasticsearchSink: there is no EXACTLY_ONCE; say AT_LEAST_ONCE, and give documents ids by a key field."
            )
        return self

    def set_bulk_flush_max_actions(self, num_max_actions: int) -> Self:
        """Say how many documents a request has at most: 1000; -1 for no limit."""
        _check_limit("set_bulk_flush_max_actions", num_max_actions)
        return self._with(most_actions=num_max_actions)

    def set_bulk_flush_max_size_mb(self, max_size_mb: int) -> Self:
        """Say how large a request is at most, in MiB; -1, the default, for no limit."""
        _check_limit("set_bulk_flush_max_size_mb", max_size_mb)
        return self._with(most_bytes=max_size_mb << 20 if max_size_mb > 0 else -1)

    def set_bulk_flush_interval(self, interval_millis: int) -> Self:
        """Accepted for Flink's sake: nothing waits beyond the end of an epoch."""
        return self

    def set_bulk_flush_backoff_strategy(
        self, flush_backoff_type: FlushBackoffType, max_retries: int, delay_millis: int
    ) -> Self:
        """Say how often what was not taken is sent again, and after which pause; by default, never."""
        retries = 0 if flush_backoff_type is FlushBackoffType.NONE else max_retries
        return self._with(backoff=flush_backoff_type, retries=retries, delay=delay_millis / 1000)

    def set_connection_username(self, username: str) -> Self:
        """Say who asks."""
        return self._with_access(user=username)

    def set_connection_password(self, password: str) -> Self:
        """Give the user's password."""
        return self._with_access(password=password)

    def set_connection_path_prefix(self, prefix: str) -> Self:
        """Say what stands before the path of every request."""
        return self._with_access(prefix=f"/{prefix.strip('/')}" if prefix.strip("/") else "")

    def set_connection_request_timeout(self, timeout: int) -> Self:
        """Accepted for Flink's sake: each subtask has a connection of its own."""
        return self

    def set_connection_timeout(self, timeout: int) -> Self:
        """Say how many milliseconds a server may take to be reached: 10,000."""
        return self._with_access(connect_timeout=timeout / 1000)

    def set_socket_timeout(self, timeout: int) -> Self:
        """Say how many milliseconds a server may take to answer: 30,000."""
        return self._with_access(read_timeout=timeout / 1000)

    def build(self) -> ElasticsearchSink:
        """Return the sink; refuses what is not complete."""
        if not self._settings.access.hosts:
            raise InvalidProgramError("ElasticsearchSink: say where servers are with set_hosts(...).")
        if self._settings.emitter is None:
            raise InvalidProgramError("ElasticsearchSink: say into which index records go with set_emitter(...).")
        return ElasticsearchSink(self._settings)


def _check_limit(name: str, limit: int) -> None:
    if limit != -1 and limit <= 0:
        raise InvalidProgramError(f"ElasticsearchSink: {name}({limit}) must be larger than 0, or -1 for no limit.")


class Elasticsearch7SinkBuilder(ElasticsearchSinkBuilderBase):
    """Builds a sink for Elasticsearch 7 and later, or OpenSearch.

    Example:
        >>> sink = (
        ...     Elasticsearch7SinkBuilder()
        ...     .set_hosts("localhost:9200")
        ...     .set_emitter(ElasticsearchEmitter.static_index("users", "id"))
        ...     .build()
        ... )
    """

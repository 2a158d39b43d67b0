"""Elasticsearch and OpenSearch: records as documents, by the bulk requests of their REST service."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Self
from urllib.parse import urlsplit

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.unsupported import JAVA, missing_function
from millstream.connectors.base import CommitContext, Committer, DeliveryGuarantee, Sink, SinkWriter
from millstream.connectors.elasticsearch.client import (
    PASSING,
    Access,
    Client,
    Unavailable,
    bulk_body,
    reason,
)
from millstream.connectors.elasticsearch.documents import Action, ElasticsearchEmitter
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.context import RuntimeContext

__all__ = [
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "ElasticsearchSinkBuilderBase",
    "FlushBackoffType",
]


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

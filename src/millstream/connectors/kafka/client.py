"""The Kafka client library, its settings and its errors."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from millstream.common.errors import InvalidProgramError, MillstreamError, UnrecoverableError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin._metadata import ClusterMetadata

# A property of the client library.
Setting: TypeAlias = str | int | bool

log = logging.getLogger("millstream")

# Seconds that a broker may take to answer.
TIMEOUT = 20.0
# Seconds of one attempt; errors of the client are polled between attempts.
_ATTEMPT = 2.0

# Settings of Flink's connector and of Java's client that librdkafka does not know.
_NOT_CLIENTS = re.compile(
    r"key\.(de)?serializer|value\.(de)?serializer|partition\.discovery\.interval\.ms|client\.id\.prefix"
    r"|register\.consumer\.metrics|register\.producer\.metrics|commit\.offsets\.on\.checkpoint|max\.poll\.records"
    r"|default\.api\.timeout\.ms|flink\..*|setTransactionTimeout|transaction\.two\.phase.*|metric\.reporters"
    r"|interceptor\.classes|buffer\.memory|max\.block\.ms|delivery\.timeout\.ms\.java"
)
_JAAS = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


class Message(Protocol):
    """A consumed message. The library's own annotations allow None for each of these values."""

    def topic(self) -> str: ...

    def partition(self) -> int: ...

    def offset(self) -> int: ...

    def timestamp(self) -> tuple[int, int]: ...

    def leader_epoch(self) -> int | None: ...

    def key(self) -> bytes | None: ...

    def value(self) -> bytes | None: ...

    def headers(self) -> list[tuple[str, bytes | None]] | None: ...

    def error(self) -> KafkaError | None: ...


class KafkaFailure(MillstreamError):
    """Kafka refused a request or is not reachable."""


class RefusedRecordError(KafkaFailure, UnrecoverableError):
    """Kafka rejects a record permanently."""


# Errors caused by the record, not by brokers or the network.
_OF_THE_RECORD = frozenset({"INVALID_TIMESTAMP", "MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG_SIZE"})


def is_of_record(error: KafkaError) -> bool:
    """Return whether an error is caused by the record, so that a retry would fail again."""
    return error.name() in _OF_THE_RECORD


def client_settings(properties: Mapping[str, str]) -> dict[str, Setting]:
    """Translate the properties of Flink's connector to those of the client library.

    Example:
        >>> client_settings({"bootstrap.servers": "b:9092", "value.deserializer": "x"})["bootstrap.servers"]
        'b:9092'
    """
    settings: dict[str, Setting] = {
        # Its log would go to standard error; failures are raised as errors.
        "log_level": 0,
        # The default delays connections to new brokers, which costs half a second per transaction.
        "reconnect.backoff.ms": "10",
    }
    for key, value in properties.items():
        if key == "sasl.jaas.config":
            settings |= {f"sasl.{name}": text for name, text in _JAAS.findall(value)}
        elif key.startswith(("ssl.truststore.", "ssl.keystore.")) and not key.endswith(".password"):
            raise InvalidProgramError(
                f"Kafka: {key} is a setting of the Java client: use PEM files, with ssl.ca.location, "
                "ssl.certificate.location and ssl.key.location."
            )
        elif not _NOT_CLIENTS.fullmatch(key):
            settings[key] = value
    return settings


def library() -> ModuleType:
    """Return the client library, an optional package."""
    try:
        import confluent_kafka
    except ImportError:
        raise InvalidProgramError(
            "The Kafka connector needs the package confluent-kafka: run  pip install confluent-kafka  (or install "
            "millstream[kafka])."
        ) from None
    return confluent_kafka


def error_text(error: object) -> str:
    """Return the message of an error of the client."""
    text = error.str() if hasattr(error, "str") else error
    return str(text).strip().rstrip(".")


def reason(exception: Exception) -> str:
    """Return the message of an exception of the client."""
    return error_text(exception.args[0]) if exception.args else str(exception)


class Admin:
    """An admin client with bounded timeouts and readable errors."""

    def __init__(self, settings: Mapping[str, Setting], bootstrap: str) -> None:
        library()
        # An optional package.
        from confluent_kafka.admin import AdminClient

        self._bootstrap = bootstrap
        self._refused: str | None = None
        # Any: the annotations of the library lack callbacks.
        configuration: dict[str, Any] = {**settings, "error_cb": self._on_error}
        self.client = AdminClient(configuration)

    def _on_error(self, error: KafkaError) -> None:
        if error.name() == "_AUTHENTICATION":
            fix = "check sasl.username, sasl.password and sasl.mechanism"
            self._refused = f"rejects this user ({error_text(error)}): {fix}"
        elif error.name() == "_SSL":
            fix = "check ssl.ca.location and security.protocol"
            self._refused = f"does not accept TLS ({error_text(error)}): {fix}"

    def cluster(self) -> ClusterMetadata:
        """Return the brokers and topics."""
        exception = library().KafkaException
        end = time.monotonic() + TIMEOUT
        has_warned = False
        while True:
            try:
                return self.client.list_topics(timeout=_ATTEMPT)
            except exception as e:
                # The error callback runs only in poll.
                self.client.poll(0)
                if self._refused is not None:
                    raise KafkaFailure(f"Kafka at {self._bootstrap} {self._refused}.") from e
                if time.monotonic() > end:
                    raise KafkaFailure(
                        f"Kafka at {self._bootstrap} does not answer: {reason(e)}. Check bootstrap.servers, the "
                        "network, and security.protocol and sasl.* if the broker requires authentication."
                    ) from e
                if not has_warned:
                    text = "Kafka at %s does not answer yet (%s), retrying for %g s"
                    log.warning(text, self._bootstrap, reason(e), TIMEOUT)
                    has_warned = True

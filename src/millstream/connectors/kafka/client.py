"""What all parts of the Kafka connector need: the client library, its settings, and errors in a sentence."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream.common.errors import IncurableError, InvalidProgramError, MillstreamError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

# How long a broker may take to answer, in seconds.
log = logging.getLogger("millstream")

TIMEOUT = 20.0
# How long it is waited for one answer before it is asked what the matter is.
_ATTEMPT = 2.0

# Settings of Flink's connector and of Java's client that have no meaning for the client library.
_NOT_CLIENTS = re.compile(
    r"key\.(de)?serializer|value\.(de)?serializer|partition\.discovery\.interval\.ms|client\.id\.prefix"
    r"|register\.consumer\.metrics|register\.producer\.metrics|commit\.offsets\.on\.checkpoint|max\.poll\.records"
    r"|default\.api\.timeout\.ms|flink\..*|setTransactionTimeout|transaction\.two\.phase.*|metric\.reporters"
    r"|interceptor\.classes|buffer\.memory|max\.block\.ms|delivery\.timeout\.ms\.java"
)
_JAAS = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


class KafkaFailure(MillstreamError):
    """Kafka could not do what it was asked to."""


class RefusedRecordError(KafkaFailure, IncurableError):
    """Kafka does not take a record, however often it is sent."""


# What is wrong with a record, and not with the brokers or the way to them.
_OF_THE_RECORD = frozenset({"INVALID_TIMESTAMP", "MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG_SIZE"})


def is_of_record(error: Any) -> bool:
    """Tell whether an error of the client library's is the record's: it would be refused again."""
    return error.name() in _OF_THE_RECORD


def client_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings for the client library, from those that Flink's connector takes.

    Example:
        >>> client_settings({"bootstrap.servers": "b:9092", "value.deserializer": "x"})["bootstrap.servers"]
        'b:9092'
    """
    settings: dict[str, Any] = {
        # What it logs would go to standard error; what is wrong is told as an error.
        "log_level": 0,
        # It connects to a broker it has just heard of only after a pause: half a second before every transaction.
        "reconnect.backoff.ms": "10",
    }
    for key, value in properties.items():
        if key == "sasl.jaas.config":
            found = dict(_JAAS.findall(value))
            settings |= {f"sasl.{name}": text for name, text in found.items()}
        elif key.startswith(("ssl.truststore.", "ssl.keystore.")) and not key.endswith(".password"):
            raise InvalidProgramError(
                f"Kafka: {key} is a setting of Java's client: give PEM files instead, with ssl.ca.location, "
                "ssl.certificate.location and ssl.key.location."
            )
        elif not _NOT_CLIENTS.fullmatch(key):
            settings[key] = value
    return settings


def library() -> Any:
    """Return the client library, which is a package of its own."""
    try:
        import confluent_kafka
    except ImportError:
        raise InvalidProgramError(
            "The Kafka connector needs the package confluent-kafka: run  pip install confluent-kafka  (or install "
            "millstream[kafka])."
        ) from None
    return confluent_kafka


def said(error: KafkaError | Any) -> str:
    """Return what an error of the client says, in words."""
    text = error.str() if hasattr(error, "str") else str(error)
    return str(text).strip().rstrip(".")


def reason(exception: Exception) -> str:
    """Return what an exception of the client says."""
    return said(exception.args[0]) if exception.args else str(exception)


class Admin:
    """The client library's way to ask a cluster about itself. What is wrong is told in a sentence, in bounded time."""

    def __init__(self, settings: Mapping[str, Any], bootstrap: str) -> None:
        library()
        from confluent_kafka.admin import AdminClient

        self._bootstrap = bootstrap
        self._refused: str | None = None
        told: dict[str, Any] = {**settings, "error_cb": self._met}
        self.client = AdminClient(told)

    def _met(self, error: KafkaError) -> None:
        if error.name() == "_AUTHENTICATION":
            fix = "check sasl.username, sasl.password and sasl.mechanism"
            self._refused = f"does not let this user in ({said(error)}): {fix}"
        elif error.name() == "_SSL":
            fix = "check ssl.ca.location and security.protocol"
            self._refused = f"cannot be spoken to with TLS ({said(error)}): {fix}"

    def cluster(self) -> Any:
        """Return its brokers and topics."""
        exception = library().KafkaException
        end = time.monotonic() + TIMEOUT
        has_warned = False
        while True:
            try:
                return self.client.list_topics(timeout=_ATTEMPT)
            except exception as e:
                # Only then the client says what is the matter.
                self.client.poll(0)
                if self._refused is not None:
                    raise KafkaFailure(f"Kafka at {self._bootstrap} {self._refused}.") from e
                if time.monotonic() > end:
                    raise KafkaFailure(
                        f"Kafka at {self._bootstrap} does not answer: {reason(e)}. Check bootstrap.servers, the "
                        "network, and security.protocol and sasl.* if the broker asks who you are."
                    ) from e
                if not has_warned:
                    text = "Kafka at %s does not answer yet (%s), retrying for %g s"
                    log.warning(text, self._bootstrap, reason(e), TIMEOUT)
                    has_warned = True

"""What all parts of the Kafka connector need: the client library, its settings, and errors in a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millstream.common.errors import InvalidProgramError, MillstreamError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

# How long a broker may take to answer, in seconds.
TIMEOUT = 20.0

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


def client_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings for the client library, from those that Flink's connector takes.

    Example:
        >>> client_settings({"bootstrap.servers": "b:9092", "value.deserializer": "x"})["bootstrap.servers"]
        'b:9092'
    """
    # What it logs would go to standard error; what is wrong is told as an error.
    settings: dict[str, Any] = {"log_level": 0}
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


def unreachable(bootstrap: str, exception: Exception) -> KafkaFailure:
    """Return the error that says that no broker answers."""
    return KafkaFailure(
        f"Kafka at {bootstrap} does not answer: {reason(exception)}. Check bootstrap.servers, the network, and "
        "security.protocol and sasl.* if the broker asks who you are."
    )

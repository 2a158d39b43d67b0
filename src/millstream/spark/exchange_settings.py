"""Options of the exchange: its transport and encryption."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.setting import DurationSetting, at_least
from millstream.exchange.credentials import CertificateError, Identity, make_identity
from millstream.spark.heartbeat import HeartbeatSettings

EXCHANGE = "millstream.exchange"
TRANSPORT = "millstream.exchange.transport"
TLS_ENABLED = "security.ssl.internal.enabled"
# Timeout and interval of heartbeats of machines and slot processes.
HEARTBEAT_TIMEOUT = DurationSetting("heartbeat.timeout", 50_000, limit=at_least(1))
HEARTBEAT_INTERVAL = DurationSetting("heartbeat.interval", 10_000, limit=at_least(1))
_CERTIFICATE = "millstream.exchange.tls.certificate"
_KEY = "millstream.exchange.tls.key"
_TRUSTED = "millstream.exchange.tls.trusted"
# Flink's options, which name Java keystores.
_JAVA = tuple(f"security.ssl.{prefix}{store}" for prefix in ("internal.", "") for store in ("keystore", "truststore"))

E = TypeVar("E", bound=Enum)


class ExchangeChoice(Enum):
    """How blocks are exchanged: directly between resident slots, or through Spark's shuffle."""

    RESIDENT = "resident"
    SPARK = "spark"
    AUTO = "auto"


class Transport(Enum):
    """The transport between resident slots: Unix sockets or TCP."""

    UNIX = "unix"
    TCP = "tcp"
    AUTO = "auto"


@dataclass(frozen=True)
class ExchangeSettings:
    """The options of a program.

    Attributes:
        is_encrypted: whether TCP connections use TLS.
        files: the certificate; without one, each execution generates its own.
        heartbeat: interval and timeout of machines and slot processes.
    """

    choice: ExchangeChoice = ExchangeChoice.AUTO
    transport: Transport = Transport.AUTO
    is_encrypted: bool = False
    files: Identity | None = None
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)

    @staticmethod
    def read(config: Configuration) -> ExchangeSettings:
        """Read and check the options."""
        choice = _one_of(config, EXCHANGE, ExchangeChoice)
        transport = _one_of(config, TRANSPORT, Transport)
        heartbeat = HeartbeatSettings(HEARTBEAT_INTERVAL.read(config) / 1000, HEARTBEAT_TIMEOUT.read(config) / 1000)
        if not config.get_boolean(TLS_ENABLED, False):
            return ExchangeSettings(choice, transport, heartbeat=heartbeat)
        files = _files(config)
        try:
            # Even if slots are local: a wrong certificate must not surface only on a cluster.
            (files or make_identity()).context(is_server=True)
        except CertificateError as e:
            raise InvalidProgramError(str(e)) from None
        return ExchangeSettings(choice, transport, True, files, heartbeat)

    def identity(self) -> Identity | None:
        """Return the TLS identity of an execution, None without encryption."""
        return (self.files or make_identity()) if self.is_encrypted else None


def _one_of(config: Configuration, key: str, kind: type[E]) -> E:
    value = config.get_string(key, "auto")
    try:
        return kind(value.lower())
    except ValueError:
        names = ", ".join(choice.value for choice in kind)
        raise InvalidProgramError(f"{key} is {value!r}: it must be one of {names}.") from None


def _files(config: Configuration) -> Identity | None:
    certificate, key = config.get_string(_CERTIFICATE, ""), config.get_string(_KEY, "")
    java = next((name for name in _JAVA if config.contains_key(name)), None)
    if java is not None and not certificate:
        raise InvalidProgramError(
            f"{java} names a Java keystore, which millstream does not read: convert it "
            f"(openssl pkcs12 -in store.p12 -nodes) and set {_CERTIFICATE}, {_KEY} and {_TRUSTED} to the PEM files."
        )
    if bool(certificate) != bool(key):
        raise InvalidProgramError(f"Only one of {_CERTIFICATE} and {_KEY} is set: set both or neither.")
    if not certificate:
        return None
    return Identity(certificate, key, config.get_string(_TRUSTED, "") or certificate)

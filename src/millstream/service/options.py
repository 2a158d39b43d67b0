"""Options of the job service."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.private_files import read_private
from millstream.common.setting import DurationSetting, FlagSetting, IntegerSetting, TextSetting, at_least

PORT = TextSetting("rest.bind-port", None, ("rest.port", "web.port", "jobmanager.web.port"))
ADDRESS = TextSetting("rest.bind-address", None, ("web.address", "jobmanager.web.address"))
# The address for clients; also the bind address unless that is set.
OWN_ADDRESS = TextSetting("rest.address", None, ("jobmanager.rpc.address",))
TOKEN = TextSetting("millstream.rest.token", None)
# Other users can read a command line, but not a private file.
TOKEN_FILE = TextSetting("millstream.rest.token-file", None)
CERTIFICATE = TextSetting("millstream.rest.tls.certificate", None)
KEY = TextSetting("millstream.rest.tls.key", None)
SUBMIT = FlagSetting("web.submit.enable", True, ("jobmanager.web.submit.enable",))
MAX_UPLOAD = IntegerSetting("rest.server.max-content-length", 104_857_600, limit=at_least(1))
CACHE = DurationSetting("rest.cache.execution-graph.timeout", 1000)
REFRESH = DurationSetting("web.refresh-interval", 3000, ("jobmanager.web.refresh-interval",))

_AUTO = "auto"
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class ServiceOptions:
    """Where the service listens, and how clients authenticate.

    Attributes:
        ports: tried in order; 0 is any free port.
        address: the interface to listen on.
        token: the token that clients must send; None for no authentication, on loopback only.
        certificate, key: files for TLS; None without TLS.
        refresh_ms: how often pages refresh.
        cache_seconds: how long a response is cached.
        hostname: the host name that clients use, if configured.
    """

    ports: tuple[int, ...]
    address: str
    token: str | None
    certificate: str | None
    key: str | None
    refresh_ms: int
    cache_seconds: float
    hostname: str | None = None

    @staticmethod
    def read(config: Configuration) -> ServiceOptions | None:
        """Read and check the options; return None if no port is configured.

        Example:
            >>> options = ServiceOptions.read(Configuration.from_dict({"rest.port": "8081-8083"}))
            >>> options.address, options.ports
            ('127.0.0.1', (8081, 8082, 8083))
        """
        ports = PORT.read(config)
        if ports is None:
            return None
        options = ServiceOptions(
            tuple(_ports(ports)),
            ADDRESS.read(config) or OWN_ADDRESS.read(config) or "127.0.0.1",
            _token(config),
            CERTIFICATE.read(config),
            KEY.read(config),
            REFRESH.read(config),
            CACHE.read(config) / 1000,
            OWN_ADDRESS.read(config),
        )
        options._check()
        return options

    def _check(self) -> None:
        if not self.is_loopback and not self.token:
            raise InvalidProgramError(
                f"{ADDRESS.key} is {self.address}, which other machines can reach, and any client of the service can "
                f"stop jobs: set {TOKEN.key} to a secret, or {TOKEN_FILE.key} to a file that contains it, or leave the "
                "address at 127.0.0.1."
            )
        if (self.certificate is None) != (self.key is None):
            raise InvalidProgramError(f"TLS needs both {CERTIFICATE.key} and {KEY.key}: set the other one too.")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.address == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False

    @property
    def names(self) -> frozenset[str] | None:
        """Allowed host names besides those of this machine; None allows any, because a token is required."""
        if not self.is_loopback:
            return None
        return frozenset(name.lower() for name in (self.address, self.hostname) if name is not None)


def _token(config: Configuration) -> str | None:
    """Return the token that clients must send, from an option or a file; None for no authentication."""
    token, path = TOKEN.read(config), TOKEN_FILE.read(config)
    if path is None:
        return token
    if token is not None:
        raise InvalidProgramError(f"{TOKEN.key} and {TOKEN_FILE.key} are both set: remove one of them.")
    try:
        content = read_private(path).decode().strip()
    except OSError as e:
        raise InvalidProgramError(f"{TOKEN_FILE.key} is {path}, which cannot be read: {e.strerror}.") from None
    if not content:
        raise InvalidProgramError(f"{TOKEN_FILE.key} is {path}, which is empty: write the token to it.")
    return content


def _ports(text: str) -> Iterator[int]:
    """Yield the ports of an option such as `8081`, `8081-8090`, `50100,50200-50300`, `auto`."""
    for part in text.split(","):
        if part.strip().lower() in (_AUTO, "0"):
            yield 0
            continue
        match = _RANGE.fullmatch(part.strip())
        first, last = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
        if not 0 < first <= last < 1 << 16:
            raise InvalidProgramError(
                f"{PORT.key} (or rest.port) is {text!r}: it must be a port, a range such as 8081-8090, or auto."
            )
        yield from range(first, last + 1)

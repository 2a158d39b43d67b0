"""The settings of the job service."""

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
# Where clients look for it, and so where it is served unless that is said.
OWN_ADDRESS = TextSetting("rest.address", None, ("jobmanager.rpc.address",))
TOKEN = TextSetting("millstream.rest.token", None)
# Other users see what stands in a command line, and not what stands in a file.
TOKEN_FILE = TextSetting("millstream.rest.token-file", None)
CERTIFICATE = TextSetting("millstream.rest.tls.certificate", None)
KEY = TextSetting("millstream.rest.tls.key", None)
SUBMIT = FlagSetting("web.submit.enable", True, ("jobmanager.web.submit.enable",))
MOST_UPLOADED = IntegerSetting("rest.server.max-content-length", 104_857_600, limit=at_least(1))
KEEP = DurationSetting("rest.cache.execution-graph.timeout", 1000)
REFRESH = DurationSetting("web.refresh-interval", 3000, ("jobmanager.web.refresh-interval",))

_AUTO = "auto"
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class ServiceOptions:
    """Where the service is served, and to whom.

    Attributes:
        ports: to be tried one after the other; 0 is any that is free.
        address: the interface it listens at.
        token: what clients must show; None for nothing, on loopback only.
        certificate, key: files for TLS; None without.
        refresh_ms: how often pages ask again.
        keep_seconds: for how long an answer is also given to others who ask for the same.
        called: the name under which clients find it, if that is said.
    """

    ports: tuple[int, ...]
    address: str
    token: str | None
    certificate: str | None
    key: str | None
    refresh_ms: int
    keep_seconds: float
    called: str | None = None

    @staticmethod
    def read(config: Configuration) -> ServiceOptions | None:
        """Read and check the settings; None when nothing is to be served.

        Example:
            >>> options = ServiceOptions.read(Configuration.from_dict({"rest.port": "8081-8083"}))
            >>> options.address, options.ports
            ('127.0.0.1', (8081, 8082, 8083))
        """
        given = PORT.read(config)
        if given is None:
            return None
        options = ServiceOptions(
            tuple(_ports(given)),
            ADDRESS.read(config) or OWN_ADDRESS.read(config) or "127.0.0.1",
            _token(config),
            CERTIFICATE.read(config),
            KEY.read(config),
            REFRESH.read(config),
            KEEP.read(config) / 1000,
            OWN_ADDRESS.read(config),
        )
        options._check()
        return options

    def _check(self) -> None:
        if not self.is_loopback and not self.token:
            raise InvalidProgramError(
                f"{ADDRESS.key} is {self.address}, which others can reach, and who reaches the service can stop jobs: "
                f"set {TOKEN.key} to a secret that clients must show, or {TOKEN_FILE.key} to a file that holds it, or "
                "leave the address at 127.0.0.1."
            )
        if (self.certificate is None) != (self.key is None):
            raise InvalidProgramError(f"TLS needs both {CERTIFICATE.key} and {KEY.key}: give the other one too.")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.address == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return False

    @property
    def names(self) -> frozenset[str] | None:
        """What it is called besides this machine's names; None where any name will do, as a token is asked for."""
        if not self.is_loopback:
            return None
        return frozenset(name.lower() for name in (self.address, self.called) if name is not None)


def _token(config: Configuration) -> str | None:
    """Return what clients must show, from a setting or from a file; None for nothing."""
    token, path = TOKEN.read(config), TOKEN_FILE.read(config)
    if path is None:
        return token
    if token is not None:
        raise InvalidProgramError(f"{TOKEN.key} and {TOKEN_FILE.key} are both set: leave out one of them.")
    try:
        found = read_private(path).decode().strip()
    except OSError as e:
        raise InvalidProgramError(f"{TOKEN_FILE.key} is {path}, which cannot be read: {e.strerror}.") from None
    if not found:
        raise InvalidProgramError(f"{TOKEN_FILE.key} is {path}, which is empty: write the token to it.")
    return found


def _ports(given: str) -> Iterator[int]:
    """Yield the ports of a setting such as `8081`, `8081-8090`, `50100,50200-50300`, `auto`."""
    for part in given.split(","):
        if part.strip().lower() in (_AUTO, "0"):
            yield 0
            continue
        found = _RANGE.fullmatch(part.strip())
        first, last = (0, 0) if found is None else (int(found[1]), int(found[2] or found[1]))
        if not 0 < first <= last < 1 << 16:
            raise InvalidProgramError(
                f"{PORT.key} (or rest.port) is {given!r}: it must be a port, a range such as 8081-8090, or auto."
            )
        yield from range(first, last + 1)

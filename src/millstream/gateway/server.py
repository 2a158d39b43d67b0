"""Serves a SQL gateway and the jobs of its sessions at one address.

A statement can read and write all files of the gateway's user, and can restore state, which runs code. So clients must
send a token, even on the loopback interface, where other users could connect: the configured token, else a generated
one in a file that only this user can read.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from millstream.common.configuration import Configuration
from millstream.common.private_files import make_private_directory, runtime_directory, write_private
from millstream.common.setting import TextSetting
from millstream.datastream.launch_context import stop_watching, watch_jobs
from millstream.gateway.api import GatewayApi
from millstream.gateway.scripts import Scripts
from millstream.gateway.session import Session
from millstream.gateway.sessions import Sessions
from millstream.jobmaster.job import JobMaster
from millstream.service.app import make_app
from millstream.service.options import ADDRESS, OWN_ADDRESS, PORT, ServiceOptions
from millstream.service.registry import Registry
from millstream.service.server import PublicServer, Sampler, service_of

GATEWAY_PORT = TextSetting("sql-gateway.endpoint.rest.port", "8083", ("sql-gateway.endpoint.rest.bind-port",))
GATEWAY_BIND = TextSetting("sql-gateway.endpoint.rest.bind-address", None)
GATEWAY_ADDRESS = TextSetting("sql-gateway.endpoint.rest.address", None)
# Settings that are about the gateway's own address, not about jobs.
_OWN = ("rest.", "web.", "millstream.rest.", "sql-gateway.endpoint.")


class Gateway:
    """A SQL gateway that is served."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Set the settings of the gateway and its sessions."""
        config = Configuration.from_dict(dict(settings))
        self._initial_settings = {k: v for k, v in settings.items() if not k.startswith(_OWN)}
        self.registry = Registry()
        self.sessions = Sessions(self._begin, config)
        self.scripts = Scripts(self._begin, self.registry)
        options = _options(config)
        # Whether the token was generated, and is in a file.
        self._has_token_file = options.token is None
        self.token = options.token or secrets.token_urlsafe(32)
        options = replace(options, token=self.token)
        service = service_of(self.registry, settings, options.token, options.refresh_ms, options.cache_seconds)
        self._server = PublicServer(make_app(service, GatewayApi(self.sessions, self.scripts).routes()), options)
        self._sampler = Sampler(self.registry)

    @property
    def url(self) -> str:
        """The gateway's address."""
        return self._server.url

    @property
    def token_file(self) -> str | None:
        """The file of the generated token; None with a configured token."""
        port = self.url.rpartition(":")[2]
        return os.path.join(runtime_directory(), f"sql-gateway-{port}.token") if self._has_token_file else None

    def _begin(self, properties: Mapping[str, str]) -> Session:
        return Session({**self._initial_settings, **properties}, self.registry)

    def _register(self, job: JobMaster) -> Callable[[], None]:
        self.registry.add(job, self._initial_settings)
        return _no_op

    def start(self) -> None:
        """Start serving, on its own threads."""
        if self.token_file is not None:
            make_private_directory(os.path.dirname(self.token_file))
            write_private(self.token_file, self.token.encode())
        watch_jobs(self._register)
        self._sampler.start()
        self.sessions.start()
        self._server.start()

    def stop(self) -> None:
        """Close all sessions, and stop scripts and jobs."""
        if self.token_file is not None:
            with suppress(FileNotFoundError):
                os.remove(self.token_file)
        stop_watching(self._register)
        self.scripts.stop()
        self.sessions.stop()
        for entry in self.registry.entries():
            entry.job.cancel()
        for entry in self.registry.entries():
            entry.job.result.exception()
        self._sampler.stop()
        self._server.stop()


def _no_op() -> None:
    """Do nothing at the end of a job."""


def _options(config: Configuration) -> ServiceOptions:
    """Return the REST settings: the gateway's Flink keys override those of the job service."""
    service = Configuration(config)
    overrides = {
        PORT: GATEWAY_PORT.read(config),
        ADDRESS: GATEWAY_BIND.read(config),
        OWN_ADDRESS: GATEWAY_ADDRESS.read(config),
    }
    for setting, value in overrides.items():
        if value is not None:
            service.set_string(setting.key, value)
    options = ServiceOptions.read(service)
    assert options is not None
    return options

"""Serves the job service of this process on its own thread."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import uvicorn
from starlette.types import ASGIApp

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.jobmaster.output_listeners import listen
from millstream.service.app import Service, make_app
from millstream.service.archive import Archiver, write_to_archive_directory
from millstream.service.logs import JobOutput, RecentLines
from millstream.service.options import PORT, ServiceOptions
from millstream.service.otel import report
from millstream.service.registry import JOBS, Registry
from millstream.service.request_limits import GuardedProtocol, RequestChecks, limit_reads
from millstream.service.run_file import RunFile, TokenFile
from millstream.service.standby import Standby

_SAMPLE_SECONDS = 1.0
# How long the end of the program waits for clients to poll the results of their requests.
_RESULT_SECONDS = 3.0


class Server:
    """Serves an application on its own thread until `stop` is called or the process ends."""

    def __init__(self, app: ASGIApp, listener: socket.socket, tls: tuple[str, str] | None = None) -> None:
        """Prepare to serve an application.

        Args:
            app: the application.
            listener: a listening socket.
            tls: the certificate and key files.
        """
        self._socket = listener
        limit_reads(listener)
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            lifespan="off",
            http=GuardedProtocol,
            ws="none",
            ssl_certfile=tls[0] if tls else None,
            ssl_keyfile=tls[1] if tls else None,
            # The program handles signals itself.
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="millstream-rest", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join(5)
        self._socket.close()


class PublicServer:
    """A server that this user's clients find by its run file."""

    def __init__(
        self,
        app: ASGIApp,
        options: ServiceOptions,
        kind: str = "jobs",
        token: str | None = None,
        owned_directories: Sequence[str] = (),
        log: str | None = None,
    ) -> None:
        """Listen at the configured address.

        Args:
            app: the application.
            options: address and authentication.
            kind: the service's kind in the run file.
            token: the token for this user's clients if options have none; it is also written to a file.
            owned_directories: directories to delete if the process is killed.
            log: the log file.
        """
        listener = bound(options)
        tls = None if options.certificate is None or options.key is None else (options.certificate, options.key)
        self._server = Server(RequestChecks(app, options.names), listener, tls)
        host, port = listener.getsockname()[:2]
        # A wildcard address is reached by the machine's name.
        host = socket.getfqdn() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{host}:{port}"
        self._token = token or options.token
        # The generated token is in no configuration: scripts read it from this file.
        self.token_file = None if options.token is not None or token is None else TokenFile(port, token)
        self._run_file = RunFile(self.url, self._token, kind, owned_directories, log)

    def start(self) -> None:
        # The socket listens already, so early clients wait.
        self._run_file.write()
        if self.token_file is not None:
            self.token_file.write()
        self._server.start()

    def become(self, kind: str, owned_directories: Sequence[str] = (), log: str | None = None) -> None:
        """Replace the run file after the service has changed its kind."""
        self._run_file = RunFile(self.url, self._token, kind, owned_directories, log)
        self._run_file.write()

    def stop(self) -> None:
        """Stop serving."""
        self._run_file.remove()
        if self.token_file is not None:
            self.token_file.remove()
        self._server.stop()


class Sampler:
    """Samples the jobs of a registry every second, for rates."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._is_stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._sample, name="millstream-samples", daemon=True).start()

    def _sample(self) -> None:
        while not self._is_stopped.wait(_SAMPLE_SECONDS):
            self._registry.sample()

    def stop(self) -> None:
        self._is_stopped.set()


def bound(options: ServiceOptions) -> socket.socket:
    """Return a socket listening at the first free port."""
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    for port in options.ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.address, port))
            # Early clients wait until the server is ready.
            listener.listen()
        except OSError as e:
            listener.close()
            reason = e.strerror
            continue
        return listener
    ports = f"{options.ports[0]}" if len(options.ports) == 1 else f"{options.ports[0]} to {options.ports[-1]}"
    raise InvalidProgramError(
        f"The job service cannot listen at {options.address}, port {ports}: {reason}. Set {PORT.key} to another port, "
        "to a range such as 8081-8090, or to auto."
    )


_lock = threading.Lock()
# What `serve` has started, and whether a cluster's service replaces it.
_archivers: list[Archiver] = []
_servers: list[PublicServer] = []
_samplers: list[Sampler] = []
_served_by_cluster: list[bool] = []


def serve(config: Configuration) -> bool:
    """Start the configured service, archiver and reporters of this process, each once.

    Returns:
        Whether to register jobs with this configuration in `JOBS`.
    """
    with _lock:
        reports = report(config, JOBS)
        if _served_by_cluster:
            return False
        options = ServiceOptions.read(config)
        JOBS.configure(config)
        if not _archivers:
            _archivers.append(Archiver(Service(JOBS), write_to_archive_directory))
            _archivers[0].start()
        if options is not None and not _servers:
            _servers.append(_start(options, config))
        if (_servers or reports) and not _samplers:
            _samplers.append(Sampler(JOBS))
            _samplers[0].start()
        return True


@dataclass(frozen=True)
class StandbyServer:
    """The service of a leader candidate."""

    server: PublicServer
    standby: Standby
    app: ASGIApp

    @property
    def url(self) -> str:
        return self.server.url

    def lead(self, leads: Callable[[], bool]) -> None:
        """Serve the jobs of this process from now on, while it is the leader."""
        self.standby.lead(self.app, leads)
        self.server.become("jobs")


def serve_as_standby(config: Configuration, standby: Standby) -> StandbyServer | None:
    """Redirect clients to the leader until this process leads. Return None if no service is configured."""
    options = ServiceOptions.read(config)
    if options is None:
        return None
    with _lock:
        service = public_service(JOBS, config.to_dict(), options)
        server = PublicServer(standby, options, "standby", service.change_token)
        server.start()
        Sampler(JOBS).start()
        _servers.append(server)
    return StandbyServer(server, standby, make_app(service))


def disable_own_service() -> None:
    """Start no service in this process: it belongs to a cluster, which has one."""
    _served_by_cluster.append(True)


def _start(options: ServiceOptions, config: Configuration) -> PublicServer:
    service = public_service(JOBS, config.to_dict(), options)
    server = PublicServer(make_app(service), options, token=service.change_token)
    server.start()
    # Runs before the run file is removed: a client that stopped the last job polls the result once more.
    atexit.register(service.operations.wait_until_read, _RESULT_SECONDS)
    if not config.get_boolean("millstream.quiet", False):
        print(f"millstream: jobs are served at {server.url}", file=sys.stderr)
    return server


def public_service(registry: Registry, settings: Mapping[str, str], options: ServiceOptions) -> Service:
    """Return the service over a registry's jobs at an address that other users of the machine can reach.

    Without a configured token, all users may read, but only this user may change something: a savepoint writes files
    at a path the client chooses, with the permissions of this process.
    """
    service = service_of(registry, settings, options.token, options.refresh_ms, options.cache_seconds)
    return replace(service, change_token=options.token or secrets.token_urlsafe(32))


def service_of(
    registry: Registry, settings: Mapping[str, str], token: str | None, refresh_ms: int, cache_seconds: float = 0.0
) -> Service:
    """Return the service over a registry's jobs, with the log of this process."""
    lines, output = RecentLines(), JobOutput()
    logging.getLogger("millstream").addHandler(lines)
    listen(output)
    slots = os.cpu_count() or 1
    return Service(registry, settings, slots, token, refresh_ms, lines, output, cache_seconds=cache_seconds)

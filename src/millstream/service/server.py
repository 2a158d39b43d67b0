"""Serves the job service of this process, on a thread of its own."""

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
from millstream.service.archive import Archiver, put_where_settings_say
from millstream.service.connection_limits import GuardedProtocol, limit_reads
from millstream.service.logs import Heard, RecentLines
from millstream.service.options import PORT, ServiceOptions
from millstream.service.registry import JOBS, Registry
from millstream.service.reporting import report
from millstream.service.request_checks import Gate
from millstream.service.run_file import RunFile, TokenFile
from millstream.service.standby import Standby

_SAMPLE_SECONDS = 1.0
# How long the end of the program waits for clients to ask for the results of their requests.
_RESULT_SECONDS = 3.0


class Server:
    """Serves an application until the process ends, or `stop` is called; on a thread of its own."""

    def __init__(self, app: ASGIApp, listener: socket.socket, tls: tuple[str, str] | None = None) -> None:
        """Take an application, to be served.

        Args:
            app: the application.
            listener: where it is served; it listens already.
            tls: the files of certificate and key.
        """
        self._socket = listener
        limit_reads(listener)
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            lifespan="off",
            http=GuardedProtocol,
            # There are none here.
            ws="none",
            ssl_certfile=tls[0] if tls else None,
            ssl_keyfile=tls[1] if tls else None,
            # What listens for signals is the program's own.
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
    """A server that clients of this user find: at an address, with a run file that says where."""

    def __init__(
        self,
        app: ASGIApp,
        options: ServiceOptions,
        kind: str = "jobs",
        token: str | None = None,
        leavings: Sequence[str] = (),
        log: str | None = None,
    ) -> None:
        """Take an application, to be served.

        Args:
            app: the application.
            options: where, and to whom.
            kind: what it is, for who looks for it.
            token: what this user's clients show, when it is not what all must show; it is also in a file.
            leavings: directories that nobody needs without it.
            log: the file it logs to.
        """
        listener = bound(options)
        tls = None if options.certificate is None or options.key is None else (options.certificate, options.key)
        self._server = Server(Gate(app, options.names), listener, tls)
        host, port = listener.getsockname()[:2]
        # Who listens everywhere is found by the machine's name.
        host = socket.getfqdn() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{host}:{port}"
        self._token = token or options.token
        # Settings have not said it: who sends requests by other means finds it there.
        self.token_file = None if options.token is not None or token is None else TokenFile(port, token)
        self._run_file = RunFile(self.url, self._token, kind, leavings, log)

    def start(self) -> None:
        # Who comes before the server is ready waits: it listens already.
        self._run_file.write()
        if self.token_file is not None:
            self.token_file.write()
        self._server.start()

    def become(self, kind: str, leavings: Sequence[str] = (), log: str | None = None) -> None:
        """Tell who looks for it that it is something else now."""
        self._run_file = RunFile(self.url, self._token, kind, leavings, log)
        self._run_file.write()

    def stop(self) -> None:
        """Stop serving."""
        self._run_file.remove()
        if self.token_file is not None:
            self.token_file.remove()
        self._server.stop()


class Sampler:
    """Notes how the jobs of a registry are, every second, for as long as rates may be asked for."""

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
    """Return a socket at the first port that is free."""
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    for port in options.ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.address, port))
            # From now on: who comes before the server is ready waits.
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
# What was begun as settings say, and whether somebody else sees to it.
_archivers: list[Archiver] = []
_servers: list[PublicServer] = []
_samplers: list[Sampler] = []
_seen_to: list[bool] = []


def serve(config: Configuration) -> bool:
    """Serve, archive and report the jobs of this process as the settings say; each once, the address told once.

    Returns:
        Whether a job with these settings belongs among those of this process.
    """
    with _lock:
        reports = report(config, JOBS)
        if _seen_to:
            return False
        options = ServiceOptions.read(config)
        JOBS.configure(config)
        if not _archivers:
            _archivers.append(Archiver(Service(JOBS), put_where_settings_say))
            _archivers[0].start()
        if options is not None and not _servers:
            _servers.append(_start(options, config))
        if (_servers or reports) and not _samplers:
            _samplers.append(Sampler(JOBS))
            _samplers[0].start()
        return True


@dataclass(frozen=True)
class StandbyServer:
    """The service of a process that may lead one day."""

    server: PublicServer
    standby: Standby
    app: ASGIApp

    @property
    def url(self) -> str:
        return self.server.url

    def lead(self, leads: Callable[[], bool]) -> None:
        """Answer for the jobs of this process from now on, for as long as it leads."""
        self.standby.lead(self.app, leads)
        self.server.become("jobs")


def serve_behind(config: Configuration, standby: Standby) -> StandbyServer | None:
    """Serve the jobs of this process once it leads; until then say where the leader is. None if nothing is served."""
    options = ServiceOptions.read(config)
    if options is None:
        return None
    with _lock:
        service = open_to_all(JOBS, config.to_dict(), options)
        server = PublicServer(standby, options, "standby", service.change_token)
        server.start()
        Sampler(JOBS).start()
        _servers.append(server)
    return StandbyServer(server, standby, make_app(service))


def leave_to_cluster() -> None:
    """Let settings start no service here: the cluster that this process belongs to has one."""
    _seen_to.append(True)


def _start(options: ServiceOptions, config: Configuration) -> PublicServer:
    service = open_to_all(JOBS, config.to_dict(), options)
    server = PublicServer(make_app(service), options, token=service.change_token)
    server.start()
    # Before the run file goes: a client that stopped the last job asks once more what came of it.
    atexit.register(service.operations.wait_until_read, _RESULT_SECONDS)
    if not config.get_boolean("millstream.quiet", False):
        print(f"millstream: jobs are served at {server.url}", file=sys.stderr)
    return server


def open_to_all(registry: Registry, settings: Mapping[str, str], options: ServiceOptions) -> Service:
    """Return the service over the jobs of this process at an address that other users of the machine can reach.

    Where settings have said no token, all may look, and only this user may change something: who has a savepoint taken
    has files written where he says, as the user of this process.
    """
    service = service_of(registry, settings, options.token, options.refresh_ms, options.keep_seconds)
    return replace(service, change_token=options.token or secrets.token_urlsafe(32))


def service_of(
    registry: Registry, settings: Mapping[str, str], token: str | None, refresh_ms: int, keep_seconds: float = 0.0
) -> Service:
    """Return the service over the jobs of this process, with the process's log."""
    lines, heard = RecentLines(), Heard()
    logging.getLogger("millstream").addHandler(lines)
    listen(heard)
    slots = os.cpu_count() or 1
    return Service(registry, settings, slots, token, refresh_ms, lines, heard, keep_seconds=keep_seconds)

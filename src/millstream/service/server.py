"""Serves the job service of this process, on a thread of its own."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Mapping

import uvicorn

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.service.app import Service, make_app
from millstream.service.logs import RecentLines
from millstream.service.options import PORT, ServiceOptions
from millstream.service.registry import JOBS, Registry
from millstream.service.run_file import RunFile

_SAMPLE_SECONDS = 1.0


class Server:
    """A service that is served until the process ends, or `stop` is called."""

    def __init__(self, options: ServiceOptions, registry: Registry, settings: Mapping[str, str]) -> None:
        self._socket = _bound(options)
        self._registry = registry
        self._is_stopped = threading.Event()
        lines = RecentLines()
        logging.getLogger("millstream").addHandler(lines)
        app = make_app(
            Service(
                registry=registry,
                settings=settings,
                slots=os.cpu_count() or 1,
                token=options.token,
                refresh_ms=options.refresh_ms,
                lines=lines,
            )
        )
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            lifespan="off",
            ssl_certfile=options.certificate,
            ssl_keyfile=options.key,
            # What listens for signals is the program's own.
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        host, port = self._socket.getsockname()[:2]
        self.url = f"{'https' if options.certificate else 'http'}://{host}:{port}"
        self._run_file = RunFile(self.url, options.token)
        self._thread = threading.Thread(target=self._serve, name="millstream-rest", daemon=True)
        self._sampler = threading.Thread(target=self._sample, name="millstream-samples", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._sampler.start()
        self._run_file.write()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def _sample(self) -> None:
        while not self._is_stopped.wait(_SAMPLE_SECONDS):
            self._registry.sample()

    def stop(self) -> None:
        """Stop serving."""
        self._is_stopped.set()
        self._server.should_exit = True
        self._thread.join(5)
        self._run_file.remove()
        self._socket.close()


def _bound(options: ServiceOptions) -> socket.socket:
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
_server: Server | None = None


def serve(config: Configuration) -> Server | None:
    """Serve the jobs of this process if the settings say so; once, and with the address told once."""
    global _server
    options = ServiceOptions.read(config)
    if options is None:
        return None
    with _lock:
        if _server is None:
            JOBS.configure(config)
            _server = Server(options, JOBS, config.to_dict())
            _server.start()
            if not config.get_boolean("millstream.quiet", False):
                print(f"millstream: jobs are served at {_server.url}", file=sys.stderr)
        return _server

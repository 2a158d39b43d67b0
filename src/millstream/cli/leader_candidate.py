"""Leader election for commands: waits for leadership, runs an application under it, restarts as a standby."""

from __future__ import annotations

import json
import math
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NoReturn

import click

from millstream.common.configuration import Configuration
from millstream.common.errors import JobSuspendedError
from millstream.leader.cas_cells import Cells, OvertakenError
from millstream.leader.election_runner import ElectionRunner
from millstream.leader.leadership import Leadership, lead
from millstream.leader.options import HaOptions
from millstream.service.server import serve_as_standby
from millstream.service.standby import Standby

_POLL_SECONDS = 0.1


@dataclass
class Candidate:
    """This process in the election.

    Attributes:
        options: the options of high availability.
        cells: the state shared by all candidates.
        address: the address for clients while this process leads.
        deposed: the reason of the loss of leadership; None before.
    """

    options: HaOptions
    cells: Cells
    address: str
    on_deposed: Callable[[str], None] = lambda reason: None
    term: int | None = None
    deposed: str | None = None
    _elector: ElectionRunner = field(init=False)
    _is_leader: threading.Event = field(default_factory=threading.Event)

    def join_election(self) -> None:
        """Join the election."""
        name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._elector = ElectionRunner(self.cells, name, self.address, self.options.timing, self._lead, self._step_down)
        self._elector.start()

    def _lead(self, term: int) -> None:
        # A deposed process restarts, and must not lead again before.
        if self.deposed is None:
            self.term = term
            self._is_leader.set()

    def _step_down(self, reason: str) -> None:
        self.deposed = reason
        self.on_deposed(reason)

    def is_leader(self) -> bool:
        return self.deposed is None and self._elector.is_leader()

    def await_lead(self, is_cancelled: Callable[[], bool]) -> int | None:
        """Wait until this process leads; return the term, or None if cancelled."""
        cluster, report_at = self.options.cluster_id, time.monotonic() + self.options.timing.retry_period
        while not self._is_leader.wait(_POLL_SECONDS):
            if is_cancelled():
                return None
            if time.monotonic() > report_at:
                click.echo(f"millstream: this job manager is a standby of cluster '{cluster}'", err=True)
                report_at = math.inf
        assert self.term is not None
        click.echo(f"millstream: this job manager leads cluster '{cluster}', term {self.term}", err=True)
        return self.term

    def resign(self) -> None:
        """Leave the election, so that another candidate can lead at once."""
        self._elector.resign()
        self.cells.close()


def restart_as_standby(reason: str) -> NoReturn:
    """Restart this command as a standby: its work belongs to another leader now."""
    click.echo(f"millstream: this job manager lost leadership ({reason}): restarting as a standby", err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


# The cell of the application's exit code.
_APPLICATION = "application"


def run_with_ha(
    settings: dict[str, str], run: Callable[[], None], on_leadership_lost: Callable[[str], NoReturn]
) -> None:
    """Run a program's main; with high availability, once this process leads.

    Args:
        settings: the settings of the command line.
        run: runs the main.
        on_leadership_lost: called with the reason when another process leads; ends or restarts this one.
    """
    config = Configuration.from_dict(settings)
    options = HaOptions.read(config)
    if options is None:
        run()
    else:
        _run_as_leader(options, config, run, on_leadership_lost)


def _run_as_leader(
    options: HaOptions, config: Configuration, run: Callable[[], None], on_leadership_lost: Callable[[str], NoReturn]
) -> None:
    cells = options.open()
    standby = Standby(cells)
    server = serve_as_standby(config, standby)
    candidate = Candidate(options, cells, "" if server is None else server.url)
    candidate.join_election()
    term = candidate.await_lead(lambda: False)
    assert term is not None
    version = _await_turn(cells)
    leadership = Leadership(options, cells, term, options.cluster_id)
    candidate.on_deposed = leadership.end
    if candidate.deposed is not None:
        leadership.end(candidate.deposed)
    lead(leadership)
    if server is not None:
        server.lead(candidate.is_leader)
    try:
        run()
    except JobSuspendedError as e:
        if candidate.deposed is None:
            candidate.resign()
        on_leadership_lost(str(e))
    except BaseException as e:
        if candidate.deposed is not None:
            on_leadership_lost(candidate.deposed)
        if isinstance(e, Exception):
            _ended(cells, version, 1)
        candidate.resign()
        raise
    if candidate.deposed is not None:
        on_leadership_lost(candidate.deposed)
    _ended(cells, version, 0)
    candidate.resign()


def _await_turn(cells: Cells) -> Hashable:
    """Exit with the application's exit code if it has ended under an earlier leader."""
    data, version = cells.cell(_APPLICATION).read()
    if data is not None:
        code = int(json.loads(data)["code"])
        click.echo(
            "millstream: this application has already ended under another leader "
            f"({'successfully' if code == 0 else 'with an error'}): to run it again, set another "
            "high-availability.cluster-id, or delete its directory in high-availability.storageDir.",
            err=True,
        )
        sys.exit(code)
    return version


def _ended(cells: Cells, version: Hashable, code: int) -> None:
    """Record the application's exit code, unless another leader has."""
    try:
        cells.cell(_APPLICATION).write(json.dumps({"code": code}).encode(), version)
    except OvertakenError as e:
        click.echo(f"millstream: {e}", err=True)

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
        options: how job managers were made highly available.
        cells: what they share.
        address: where clients reach this process when it leads.
        deposed: why it leads no longer, once it does not.
    """

    options: HaOptions
    cells: Cells
    address: str
    on_deposed: Callable[[str], None] = lambda reason: None
    term: int | None = None
    deposed: str | None = None
    _elector: ElectionRunner = field(init=False)
    _has_news: threading.Event = field(default_factory=threading.Event)

    def stand(self) -> None:
        """Take part from now on."""
        name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._elector = ElectionRunner(self.cells, name, self.address, self.options.timing, self._lead, self._step_down)
        self._elector.start()

    def _lead(self, term: int) -> None:
        # Whoever has stepped down once starts anew, and does not lead again in between.
        if self.deposed is None:
            self.term = term
            self._has_news.set()

    def _step_down(self, reason: str) -> None:
        self.deposed = reason
        self.on_deposed(reason)

    def is_leader(self) -> bool:
        return self.deposed is None and self._elector.is_leader()

    def await_lead(self, is_over: Callable[[], bool]) -> int | None:
        """Wait until this process leads, and return the term; None when it shall wait no longer."""
        cluster, told_at = self.options.cluster_id, time.monotonic() + self.options.timing.retry_period
        while not self._has_news.wait(_POLL_SECONDS):
            if is_over():
                return None
            if time.monotonic() > told_at:
                click.echo(f"millstream: this job manager is a standby of cluster '{cluster}'", err=True)
                told_at = math.inf
        assert self.term is not None
        click.echo(f"millstream: this job manager leads cluster '{cluster}', term {self.term}", err=True)
        return self.term

    def resign(self) -> None:
        """Let others lead at once."""
        self._elector.resign()
        self.cells.close()


def start_anew(reason: str) -> NoReturn:
    """Begin this command again, as a standby: whatever it was doing belongs to another leader now."""
    click.echo(f"millstream: this job manager leads no longer ({reason}): it starts anew, as a standby", err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


# The cell that says what became of the application.
_APPLICATION = "application"


def run_led(settings: dict[str, str], run: Callable[[], None], give_way: Callable[[str], NoReturn]) -> None:
    """Run a program's main; if there are several job managers, once this process leads.

    Args:
        settings: the settings of the command line.
        run: runs the main.
        give_way: ends this process, or begins it anew, when another leads; it is told why.
    """
    config = Configuration.from_dict(settings)
    options = HaOptions.read(config)
    if options is None:
        run()
    else:
        _run_as_leader(options, config, run, give_way)


def _run_as_leader(
    options: HaOptions, config: Configuration, run: Callable[[], None], give_way: Callable[[str], NoReturn]
) -> None:
    cells = options.open()
    standby = Standby(cells)
    server = serve_as_standby(config, standby)
    candidate = Candidate(options, cells, "" if server is None else server.url)
    candidate.stand()
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
        give_way(str(e))
    except BaseException as e:
        if candidate.deposed is not None:
            give_way(candidate.deposed)
        if isinstance(e, Exception):
            _ended(cells, version, 1)
        candidate.resign()
        raise
    if candidate.deposed is not None:
        give_way(candidate.deposed)
    _ended(cells, version, 0)
    candidate.resign()


def _await_turn(cells: Cells) -> Hashable:
    """See whether the application has ended under an earlier leader: then this process does as that one did."""
    data, version = cells.cell(_APPLICATION).read()
    if data is not None:
        code = int(json.loads(data)["code"])
        click.echo(
            "millstream: this application has ended already, under another leader "
            f"({'well' if code == 0 else 'with an error'}). To run it again, give it another "
            "high-availability.cluster-id, or delete its directory in high-availability.storageDir.",
            err=True,
        )
        sys.exit(code)
    return version


def _ended(cells: Cells, version: Hashable, code: int) -> None:
    """Write down that the application has ended, unless another leader has it."""
    try:
        cells.cell(_APPLICATION).write(json.dumps({"code": code}).encode(), version)
    except OvertakenError as e:
        click.echo(f"millstream: {e}", err=True)

"""How a command takes part in an election: waits until it leads, hears when it does no longer, and starts anew."""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

import click

from millstream.leader.cas_cells import Cells
from millstream.leader.election_runner import ElectionRunner
from millstream.leader.options import HaOptions

_LOOK = 0.1


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
        while not self._has_news.wait(_LOOK):
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

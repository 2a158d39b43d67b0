"""An application with several job managers: its main runs on the one that leads."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable
from typing import NoReturn

import click

from millstream.cli.leader_candidate import Candidate
from millstream.common.configuration import Configuration
from millstream.common.errors import JobSuspendedError
from millstream.leader.cas_cells import Cells, OvertakenError
from millstream.leader.leadership import Leadership, lead
from millstream.leader.options import HaOptions
from millstream.service.server import serve_behind
from millstream.service.standby import Standby

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
    server = serve_behind(config, standby)
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

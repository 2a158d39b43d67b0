"""Streams as tables and tables as streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from millstream.datastream.bridge import Bridge
from millstream.datastream.data_stream import DataStream
from millstream.table.running import Runner

if TYPE_CHECKING:
    from millstream.table.table import Table
    from millstream.table.table_environment import TableEnvironment


class Streams:
    """Makes tables of streams and streams of tables."""

    def __init__(self, t_env: TableEnvironment, bridge: Bridge, runner: Runner) -> None:
        self._t_env = t_env
        self._bridge = bridge
        self._runner = runner

    def table(self, stream: DataStream[Any], fields: Sequence[Any]) -> Table:
        """Return a table of a stream's records."""
        raise NotImplementedError

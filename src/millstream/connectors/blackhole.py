"""The connector `blackhole`: discards all rows."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.operators.functions.context import RuntimeContext
from millstream.operators.sink import CommitContext, Sink, SinkWriter
from millstream.sql.columns.batch import Batch
from millstream.sql.connectors import Connector, TableContext, TableSink


class _Writer(SinkWriter):
    keeps_values = False

    def write(self, value: Batch) -> None:
        pass

    def prepare_commit(self, flush: bool) -> None:
        return None


class _Sink(Sink[Batch]):
    name = "blackhole"

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer()

    def create_committer(self, context: CommitContext) -> None:
        return None


class _Table(TableSink):
    def sink(self, columns: Sequence[str]) -> Sink[Batch]:
        return _Sink()


class BlackHoleConnector(Connector):
    """Discards all rows."""

    identifier = "blackhole"

    def table_sink(self, context: TableContext) -> TableSink:
        return _Table()

"""The connectors `print`, which writes each row as a line on standard output, and `blackhole`, which discards rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from millstream.formats.java_text import texts
from millstream.formats.options import Options
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.sink import CommitContext, Committer, Sink, SinkWriter
from millstream.sql.columns.batch import Batch
from millstream.sql.connector_contract import Connector, TableContext, TableSink
from millstream.sql.types import DataType

KINDS = ("+I", "-U", "+U", "-D")


class _Writer(SinkWriter):
    keeps_values = False

    def __init__(self, prefix: str, types: Sequence[DataType]) -> None:
        self._prefix = prefix
        self._types = types
        self._parts: list[str] = []

    def write(self, value: Batch) -> None:
        columns = [texts(c, t) for c, t in zip(value.columns, self._types, strict=True)]
        rows = zip(*columns, strict=True) if columns else [()] * len(value)
        for kind, row in zip(value.all_kinds().tolist(), rows, strict=True):
            self._parts.append(f"{self._prefix}{KINDS[kind]}[{', '.join(row)}]\n")

    def prepare_commit(self, flush: bool) -> str | None:
        text = "".join(self._parts)
        self._parts.clear()
        return text or None


class _Committer(Committer):
    # Lines are printed at the end of their epoch, without waiting for a checkpoint.
    transactional = False

    def __init__(self, to_stderr: bool) -> None:
        self._to_stderr = to_stderr

    def commit(self, committables: list[tuple[int, str]]) -> None:
        out = sys.stderr if self._to_stderr else sys.stdout
        for _, text in committables:
            out.write(text)
        out.flush()


class PrintBatches(Sink[Batch]):
    """Prints the rows of batches on the driver."""

    name = "print"

    def __init__(self, identifier: str, types: Sequence[DataType], to_stderr: bool) -> None:
        self._identifier = identifier
        self._types = list(types)
        self._to_stderr = to_stderr

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        parts = [self._identifier] if self._identifier else []
        if context.get_number_of_parallel_subtasks() > 1:
            parts.append(str(context.get_index_of_this_subtask() + 1))
        return _Writer(":".join(parts) + "> " if parts else "", self._types)

    def create_committer(self, context: CommitContext) -> Committer:
        return _Committer(self._to_stderr)


class _Table(TableSink):
    def __init__(self, context: TableContext) -> None:
        self._types = {c.name: c.type for c in context.table.columns}
        self._options = Options(context.table.options)

    def sink(self, columns: Sequence[str]) -> Sink[Batch]:
        identifier = self._options.text("print-identifier", "")
        to_stderr = self._options.flag("standard-error", False)
        return PrintBatches(identifier, [self._types[c] for c in columns], to_stderr)

    def parallelism(self) -> int | None:
        return self._options.integer_or_none("sink.parallelism")


class PrintConnector(Connector):
    """Writes rows as lines such as `+I[1, a]`."""

    identifier = "print"
    optional = frozenset(["print-identifier", "standard-error", "sink.parallelism"])

    def table_sink(self, context: TableContext) -> TableSink:
        return _Table(context)


class _DiscardingWriter(SinkWriter):
    keeps_values = False

    def write(self, value: Batch) -> None:
        pass

    def prepare_commit(self, flush: bool) -> None:
        return None


class _DiscardingSink(Sink[Batch]):
    name = "blackhole"

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _DiscardingWriter()

    def create_committer(self, context: CommitContext) -> None:
        return None


class _DiscardingTable(TableSink):
    def sink(self, columns: Sequence[str]) -> Sink[Batch]:
        return _DiscardingSink()


class BlackHoleConnector(Connector):
    """Discards all rows."""

    identifier = "blackhole"

    def table_sink(self, context: TableContext) -> TableSink:
        return _DiscardingTable()

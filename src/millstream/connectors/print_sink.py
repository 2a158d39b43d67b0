"""The sink behind print()."""

from __future__ import annotations

import sys
from collections.abc import Callable

from millstream.common.aliases import Value
from millstream.common.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TypeInformation
from millstream.connectors.base import CommitContext, Committer, Sink, SinkWriter
from millstream.jobmaster import output_listeners
from millstream.operators.functions.context import RuntimeContext


def _formatter(type_info: TypeInformation | None) -> Callable[[Value], str]:
    """Return the format of records: as in PyFlink, Python's for untyped records and rows, and Java's for others."""
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return str
    return type_info.python_text() if isinstance(type_info, RowTypeInfo) else type_info.format


class _Writer(SinkWriter):
    keeps_values = False

    def __init__(self, prefix: str, type_info: TypeInformation | None) -> None:
        self._prefix = prefix
        self._format = _formatter(type_info)
        self._lines: list[str] = []

    def write(self, value: Value) -> None:
        self._lines.append(f"{self._prefix}{self._format(value)}\n")

    def prepare_commit(self, flush: bool) -> str | None:
        text = "".join(self._lines)
        self._lines.clear()
        return text or None


class _Committer(Committer):
    # Lines are printed at the end of their epoch, without waiting for a checkpoint.
    transactional = False

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id

    def commit(self, committables: list[tuple[int, str]]) -> None:
        for _, text in committables:
            sys.stdout.write(text)
            output_listeners.notify_printed(self._job_id, text)
        sys.stdout.flush()


class PrintSink(Sink):
    """Prints records on the driver's standard output, at the end of their epoch.

    With more than one subtask each line begins with the number of its subtask, as in Flink.
    """

    name = "Print to Std. Out"

    def __init__(self, identifier: str | None, type_info: TypeInformation | None) -> None:
        self._identifier = identifier
        self._type_info = type_info
        # Rows are printed as the previous function returns them, without conversion.
        self.encodes = not isinstance(type_info, RowTypeInfo)

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        parts = [self._identifier] if self._identifier else []
        if context.get_number_of_parallel_subtasks() > 1:
            parts.append(str(context.get_index_of_this_subtask() + 1))
        return _Writer(":".join(parts) + "> " if parts else "", self._type_info)

    def create_committer(self, context: CommitContext) -> Committer:
        return _Committer(context.job_id)

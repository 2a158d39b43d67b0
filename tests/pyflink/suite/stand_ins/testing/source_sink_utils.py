"""The sink of PyFlink's Table tests, which is a Java class there: a connector `test-sink`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from millstream.connectors.registry import register_connector
from millstream.formats.java_text import texts
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.sink import CommitContext, Sink, SinkWriter
from millstream.sql.columns.batch import Batch
from millstream.sql.connector_contract import Connector, TableContext, TableSink
from millstream.sql.types import DataType

_KINDS = ("+I", "-U", "+U", "-D")
_rows: list[tuple[int, tuple[str, ...]]] = []


class _Writer(SinkWriter):
    keeps_values = False

    def __init__(self, types: Sequence[DataType]) -> None:
        self._types = types

    def write(self, value: Batch) -> None:
        columns = [texts(c, t) for c, t in zip(value.columns, self._types, strict=True)]
        _rows.extend(zip(value.all_kinds().tolist(), zip(*columns, strict=True), strict=True))

    def prepare_commit(self, flush: bool) -> None:
        return None


class _Sink(Sink[Batch]):
    name = "test-sink"

    def __init__(self, types: Sequence[DataType]) -> None:
        self._types = types

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer(self._types)

    def create_committer(self, context: CommitContext) -> None:
        return None


class _Table(TableSink):
    def __init__(self, context: TableContext) -> None:
        self._types = {c.name: c.type for c in context.table.columns}

    def sink(self, columns: Sequence[str]) -> Sink[Batch]:
        return _Sink([self._types[c] for c in columns])


@register_connector
class TestSinkConnector(Connector):
    identifier = "test-sink"

    def table_sink(self, context: TableContext) -> TableSink:
        return _Table(context)


def _take_rows() -> list[tuple[int, tuple[str, ...]]]:
    rows = list(_rows)
    _rows.clear()
    return rows


def results() -> list[str]:
    return retract_results()


def retract_results() -> list[str]:
    counts: Counter[str] = Counter()
    for kind, row in _take_rows():
        counts[f"{_KINDS[kind]}[{', '.join(row)}]"] += 1 if kind in (0, 2) else -1
    if counts and all(n < 0 for n in counts.values()):
        raise AssertionError("Received retracted rows which have not been accumulated.")
    return [text for text, n in counts.items() for _ in range(n)]


def upsert_results(keys: Sequence[int]) -> list[str]:
    latest: dict[tuple[Any, ...], str] = {}
    for kind, row in _take_rows():
        key = tuple(row[k] for k in keys)
        if kind in (0, 2):
            latest[key] = f"{_KINDS[kind]}[{', '.join(row)}]"
        else:
            latest.pop(key, None)
    return list(latest.values())

"""Planned queries over batches, which SQL tests run as jobs on any engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import AggregateCall, Column
from millstream.sql.optimizer.rules.aggregate_phases import split_aggregate
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.schema import INSERTS, Fields
from millstream.sql.types import DataTypes
from tests.support.sql_runs import Inputs, batch_of, fields, input_node, kinds_of, planned

_BIGINT, _STRING, _TIME = DataTypes.BIGINT(), DataTypes.STRING(), DataTypes.TIMESTAMP(3)
_COUNT, _SUM = AggregateCall("COUNT", (), _BIGINT), AggregateCall("SUM", (1,), _BIGINT)

Query = tuple[Planned, Inputs]


def _batches(columns: Fields, rows: list[Any], size: int) -> list[Batch]:
    kinds = kinds_of(columns)
    plain = [pa.int64() if pa.types.is_timestamp(k) else k for k in kinds]
    batches = [batch_of(rows[i : i + size], plain) for i in range(0, len(rows), size)]
    return [b.with_columns([c.view(k) for c, k in zip(b.columns, kinds, strict=True)]) for b in batches]


def _rows(count: int, seed: int) -> list[Any]:
    """Return rows of a key, a number and a time, of which some are retracted."""
    rng = np.random.default_rng(seed)
    rows: list[Any] = []
    for i in range(count):
        rows.append(("+I", None if i % 17 == 0 else f"key {rng.integers(20)}", int(rng.integers(6)), i * 40))
        if i % 5 == 4:
            rows.append(("-D", *rows[-3][1:])) if rows[-3][0] == "+I" else None
    return rows


def aggregate() -> Query:
    columns = fields(k=_STRING, n=_BIGINT, t=_TIME)
    source = input_node(columns, uid="aggregate-input")
    calls = (_COUNT, _SUM, AggregateCall("MAX", (1,), _BIGINT), AggregateCall("COUNT", (1,), _BIGINT, distinct=True))
    out = fields(k=_STRING, c=_BIGINT, s=_BIGINT, m=_BIGINT, d=_BIGINT)
    query = planned(nodes.Aggregate(out, source.node, (0,), calls), source, uid="aggregate")
    return query, [(source, _batches(columns, _rows(150, 1), 13))]


def join() -> Query:
    columns = fields(k=_STRING, n=_BIGINT, t=_TIME)
    left, right = input_node(columns, uid="join-left"), input_node(columns, uid="join-right")
    out = fields(k=_STRING, n=_BIGINT, t=_TIME, k2=_STRING, n2=_BIGINT, t2=_TIME)
    node = nodes.Join(out, left.node, right.node, nodes.JoinKind.FULL, (0, 1), (0, 1), (False, False))
    query = planned(node, left, right, uid="join")
    inputs = [(left, _batches(columns, _rows(60, 2), 9)), (right, _batches(columns, _rows(60, 3), 7))]
    return query, inputs


def _in_time(name: str, size: int = 11) -> tuple[Planned, Planned, list[Batch]]:
    columns = fields(k=_STRING, n=_BIGINT, t=_TIME)
    source = input_node(columns, INSERTS, f"{name}-input")
    rows = [row for row in _rows(200, 4) if row[0] == "+I"]
    # Some rows are out of order, and a few are late.
    rows = [(*r[:3], r[3] - 700 * (i % 7 == 0) - 3000 * (i % 41 == 40)) for i, r in enumerate(rows)]
    node = nodes.Watermark(columns, source.node, 2, Column(_TIME, 2))
    marked = planned(node, source, changes=INSERTS, uid=f"{name}-watermark")
    return source, marked, _batches(columns, rows, size)


def hop() -> Query:
    source, marked, batches = _in_time("hop")
    out = fields(k=_STRING, c=_BIGINT, s=_BIGINT, start=_TIME, end=_TIME)
    spec = nodes.WindowSpec(nodes.WindowKind.HOP, 2, True, 1000, 500)
    node = nodes.WindowAggregate(out, marked.node, spec, (0,), (_COUNT, _SUM), ("start", "end"))
    return planned(node, marked, changes=INSERTS, uid="hop"), [(source, batches)]


def phases() -> Query:
    """Return cumulative windows in two phases."""
    # Few keys and large batches: else the local phase does not aggregate.
    source, marked, batches = _in_time("phases", 37)
    calls = (_COUNT, _SUM, AggregateCall("MAX", (1,), _BIGINT))
    out = fields(k=_BIGINT, c=_BIGINT, s=_BIGINT, m=_BIGINT, start=_TIME, end=_TIME)
    spec = nodes.WindowSpec(nodes.WindowKind.CUMULATE, 2, True, 1500, 500)
    node = split_aggregate(nodes.WindowAggregate(out, marked.node, spec, (1,), calls, ("start", "end")), False, {})
    assert isinstance(node, nodes.GlobalWindowAggregate)
    local = planned(node.local, marked, changes=INSERTS, uid="phases-local")
    return planned(node, local, changes=INSERTS, uid="phases"), [(source, batches)]


def session() -> Query:
    source, marked, batches = _in_time("session")
    out = fields(k=_STRING, c=_BIGINT, start=_TIME, end=_TIME)
    spec = nodes.WindowSpec(nodes.WindowKind.SESSION, 2, True, 300)
    node = nodes.WindowAggregate(out, marked.node, spec, (0,), (_COUNT,), ("start", "end"))
    return planned(node, marked, changes=INSERTS, uid="session"), [(source, batches)]


def session_rows() -> Query:
    source, marked, batches = _in_time("session-rows")
    out = fields(k=_STRING, n=_BIGINT, t=_TIME, start=_TIME, end=_TIME, time=_TIME)
    node = nodes.WindowTable(out, marked.node, nodes.WindowSpec(nodes.WindowKind.SESSION, 2, True, 300, partition=(0,)))
    return planned(node, marked, changes=INSERTS, uid="session-rows"), [(source, batches)]


def top() -> Query:
    columns = fields(k=_STRING, n=_BIGINT, t=_TIME)
    source = input_node(columns, uid="top-input")
    node = nodes.Rank(columns, source.node, (0,), ((1, True, False), (2, False, True)), "ROW_NUMBER", 1, 2, False)
    return planned(node, source, uid="top"), [(source, _batches(columns, _rows(100, 5), 10))]


QUERIES: dict[str, Callable[[], Query]] = {
    f.__name__: f for f in (aggregate, join, hop, phases, session, session_rows, top)
}

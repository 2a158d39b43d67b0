"""MATCH_RECOGNIZE on the bare operator: any split into batches, with restarts, gives the same matches."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from millstream.sql.operators.query_context import Session
from millstream.sql.operators.rank.match_recognize import MatchOperator
from millstream.sql.plan import nodes
from millstream.sql.translate import arrow_types
from tests.support.sql_planning import Session as Planning
from tests.support.sql_runs import Bare, batch_of

_DECLARED = (
    "CREATE TABLE prices (k STRING, v BIGINT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts) "
    "WITH ('connector' = 'none')"
)
_PATTERN = (
    "SELECT * FROM prices MATCH_RECOGNIZE (PARTITION BY k ORDER BY {} MEASURES FIRST(D.v) AS f, LAST(D.v) AS l, "
    "SUM(D.v) AS s, U.v AS u ONE ROW PER MATCH AFTER MATCH SKIP {} PATTERN (S D+ U) {} DEFINE D AS D.v < 10 AND (LAST("
    "D.v, 1) IS NULL OR D.v < LAST(D.v, 1)), U AS U.v > LAST(D.v) AND U.v > 2)"
)


def _operator(order: str = "ts", skip: str = "PAST LAST ROW", within: str = "") -> tuple[MatchOperator, dict[str, Any]]:
    planning = Planning()
    planning.run(_DECLARED)
    (planned,) = planning.planned(_PATTERN.format(order, skip, within))
    match = planned
    while not isinstance(match.node, nodes.Match):
        (match,) = match.inputs
    kinds = arrow_types(match.inputs[0])
    operator = MatchOperator(match.node.spec, kinds, arrow_types(match), Session())
    return operator, dict(zip(match.node.input.fields.names, kinds, strict=True))


def _batch(rows: list[tuple[Any, ...]], kinds: dict[str, Any]) -> Any:
    values = [{"k": k, "v": v, "ts": t}.get for k, v, t in rows]
    plain = [pa.int64() if pa.types.is_timestamp(kind) else kind for kind in kinds.values()]
    batch = batch_of([("+I", *(get(name) for name in kinds)) for get in values], plain)
    return batch.with_columns([c.view(kind) for c, kind in zip(batch.columns, kinds.values(), strict=True)])


@pytest.mark.parametrize("within", ["", "WITHIN INTERVAL '0.006' SECOND"])
@pytest.mark.parametrize("skip", ["PAST LAST ROW", "TO NEXT ROW", "TO LAST D"])
@pytest.mark.parametrize("seed", range(6))
def test_match_recognize_is_independent_of_batches_and_restarts(seed: int, skip: str, within: str) -> None:
    def run(in_batches: bool) -> list[Any]:
        r = Random(seed)
        operator, kinds = _operator(skip=skip, within=within)
        bare = Bare(operator)
        time, pending = 1, list[Any]()
        for _ in range(60):
            time += r.choice([0, 0, 1, 2])
            pending.append((r.choice("ab"), r.randint(0, 12), time + r.choice([0, 0, 1, -1])))
            watermark = r.random() < 0.3
            if in_batches or watermark:
                bare.take(_batch(pending, kinds))
                pending = []
            if in_batches:
                bare.restart()
            if watermark:
                operator.on_watermark(time - 2)
        bare.take(_batch(pending, kinds)) if pending else None
        operator.on_watermark((1 << 63) - 1)
        return sorted(bare.changes(), key=repr)

    expected = run(False)
    assert len(expected) > 2
    assert run(True) == expected


def test_match_recognize_emits_with_watermark_and_drops_late_rows() -> None:
    operator, kinds = _operator()
    bare = Bare(operator)
    bare.take(_batch([("a", 11, 3), ("a", 5, 4), ("a", 9, 6), ("a", 4, 5)], kinds))
    operator.on_watermark(5)
    assert bare.changes() == []
    bare.take(_batch([("a", 1, 5)], kinds))
    operator.on_watermark(6)
    assert bare.changes() == [("+I", "a", 5, 4, 9, 9)]


def test_match_recognize_within_discards_partial_matches() -> None:
    operator, kinds = _operator(within="WITHIN INTERVAL '0.010' SECOND")
    bare = Bare(operator)
    bare.take(_batch([("a", 11, 1), ("a", 5, 2)], kinds))
    operator.on_watermark(5)
    assert len(operator._keys) == 1
    operator.on_watermark(20)
    assert len(operator._keys) == 0


def test_match_recognize_in_processing_time_uses_arrival_order() -> None:
    now = [100]
    operator, kinds = _operator("p", within="WITHIN INTERVAL '0.010' SECOND")
    bare = Bare(operator, clock=lambda: now[0])
    bare.take(_batch([("a", 11, None), ("a", 5, None)], kinds))
    now[0] = 105
    bare.take(_batch([("a", 7, None)], kinds))
    assert bare.changes() == [("+I", "a", 5, 5, 5, 7)]
    bare.take(_batch([("b", 11, None), ("b", 5, None)], kinds))
    assert operator.next_wake() is not None
    now[0] = 117
    operator.on_processing_time()
    assert len(operator._keys) == 0

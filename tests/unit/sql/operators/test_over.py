"""OVER operators against a row-by-row model: any split into batches gives the same result."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from millstream.sql.errors import TableException
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.over.over_batch import BatchOverOperator
from millstream.sql.operators.over.over_time import OverOperator
from millstream.sql.plan.nodes import OverSpec
from millstream.sql.types import DataTypes
from millstream.table import EnvironmentSettings, TableEnvironment
from tests.support.sql_runs import Bare, batch_of

_KINDS = [pa.string(), pa.int64(), pa.timestamp("ms")]
_BIGINT = DataTypes.BIGINT()
_NAMES = ["COUNT", "SUM", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE"]
_CALLS = [AggregateCall(name, (1,), _BIGINT) for name in _NAMES]
_CALLS.append(AggregateCall("COUNT", (1,), _BIGINT, distinct=True))

Row = tuple[Any, ...]


def _rows(r: Random) -> list[Row]:
    return [(r.choice("ab"), r.choice([None, 1, 2, 3, 5]), r.randint(1, 60)) for _ in range(r.randint(1, 50))]


def _aggregates(frame: list[Row]) -> Row:
    values = [row[1] for row in frame if row[1] is not None]
    if not values:
        return 0, None, None, None, None, None, 0
    return len(values), sum(values), min(values), max(values), values[0], values[-1], len(set(values))


def _model(steps: list[Any], rows: bool, preceding: int | None) -> list[Row]:
    """Return the output of Flink's operators: at each watermark, the rows of each key in time order."""
    done: dict[str, list[Row]] = {}
    pending: list[Row] = []
    watermark, out = -(1 << 62), []
    for step in steps:
        if not isinstance(step, int):
            last = done.get(step[0], [])
            passed = watermark if preceding is None else (last[-1][2] if last else 0)
            pending += [step] if step[2] > passed else []
            continue
        due = sorted((w for w in pending if w[2] <= step), key=lambda w: w[2])
        pending, watermark = [w for w in pending if w[2] > step], step
        for key in {w[0] for w in due}:
            mine = [w for w in due if w[0] == key]
            before = done.setdefault(key, [])
            whole = before + mine
            for i, row in enumerate(mine, len(before)):
                if rows:
                    frame = whole[0 if preceding is None else max(0, i - preceding) : i + 1]
                else:
                    lower_bound = -(1 << 62) if preceding is None else row[2] - preceding
                    frame = [w for w in whole if lower_bound <= w[2] <= row[2]]
                out.append((*row, *_aggregates(frame)))
            done[key] = whole
        if not rows and preceding is not None:
            for key in [k for k, rows_ in done.items() if rows_[-1][2] + preceding + preceding // 2 + 1 <= step]:
                del done[key]
    return sorted(out, key=repr)


@pytest.mark.parametrize("seed", range(24))
def test_over_aggregate_equals_the_model_for_any_batches(seed: int) -> None:
    r = Random(seed)
    rows, preceding = r.random() < 0.5, r.choice([None, 0, 1, 3, 20])
    steps: list[Any] = []
    watermark = 0
    for row in _rows(r):
        steps.append(row)
        if r.random() < 0.2:
            watermark = max(watermark, r.randint(watermark, 70))
            steps.append(watermark)
    steps.append(1 << 62)
    restarts, bare = r.random() < 0.5, Bare(OverOperator([0], 2, rows, preceding, _CALLS, _KINDS))
    pending: list[Row] = []
    for step in steps:
        if not isinstance(step, int):
            pending.append(("+I", *step))
        if pending and (isinstance(step, int) or r.random() < 0.3):
            bare.take(batch_of(pending, _KINDS))
            pending = []
            if restarts:
                bare.restart()
        if isinstance(step, int):
            bare.operator.on_watermark(step)
    emitted = [(*c[1:3], c[3].timestamp() * 1000, *c[4:]) for c in _utc(bare)]
    assert sorted(((k, v, round(t), *more) for k, v, t, *more in emitted), key=repr) == _model(steps, rows, preceding)


def _utc(bare: Bare) -> list[Row]:
    from datetime import UTC

    return [(*c[:3], c[3].replace(tzinfo=UTC), *c[4:]) for c in bare.changes()]


def test_over_processing_time_emits_peers_after_their_millisecond() -> None:
    now = [10]
    kinds = [pa.string(), pa.int64(), pa.timestamp("ms", "UTC")]
    calls = [AggregateCall("SUM", (1,), _BIGINT)]
    operator = OverOperator([0], None, False, 5, calls, kinds)
    bare = Bare(operator, clock=lambda: now[0])
    for value in (1, 2):
        bare.take(batch_of([("+I", "a", value, None)], kinds))
        operator.on_processing_time()
    assert bare.changes() == [] and operator.next_wake() == 11
    for time, value in ((11, 4), (15, 8), (16, 16)):
        now[0] = time
        operator.on_processing_time()
        bare.take(batch_of([("+I", "a", value, None)], kinds))
    operator.finish()
    assert [(c[2], c[4]) for c in bare.changes()] == [(1, 3), (2, 3), (4, 7), (8, 15), (16, 28)]


def test_over_partition_state_expires_when_untouched() -> None:
    now = [0]
    operator = OverOperator([0], None, True, 1, [AggregateCall("SUM", (1,), _BIGINT)], _KINDS, ttl=50)
    bare = Bare(operator, clock=lambda: now[0])
    for time, key, value in ((0, "a", 1), (10, "b", 2), (49, "a", 4), (70, "b", 8), (80, "a", 16)):
        now[0] = time
        bare.take(batch_of([("+I", key, value, None)], _KINDS))
    assert [c[4] for c in bare.changes()] == [1, 2, 5, 8, 20]


@pytest.mark.parametrize("seed", range(12))
def test_over_frames_in_batch_equal_the_model(seed: int) -> None:
    r = Random(seed)
    input_rows = _rows(r)
    rows, descending = r.random() < 0.5, r.random() < 0.5
    start, end = r.choice([(None, 0), (-2, 0), (-3, 2), (1, 4), (0, None), (None, None), (-4, -1)])
    over = OverSpec((0,), ((2, descending, False),), rows, start, end, tuple(_CALLS))
    bare = Bare(BatchOverOperator(over, _KINDS), batch=True)
    for i in range(0, len(input_rows), 7):
        bare.take(batch_of([("+I", *row) for row in input_rows[i : i + 7]], _KINDS))
    bare.operator.finish()
    sign = -1 if descending else 1
    expected = []
    for key in "ab":
        mine = sorted((g for g in input_rows if g[0] == key), key=lambda g: sign * g[2])
        for i, row in enumerate(mine):
            if rows:
                low, high = 0 if start is None else max(0, i + start), len(mine) if end is None else i + end + 1
                frame = mine[low : max(high, 0)]
            else:
                away = [sign * (other[2] - row[2]) for other in mine]
                inside = [(start is None or a >= start) and (end is None or a <= end) for a in away]
                frame = [other for other, is_in in zip(mine, inside, strict=True) if is_in]
            expected.append((*row, *_aggregates(frame)))
    emitted = [(*c[1:3], round(c[3].timestamp() * 1000), *c[4:]) for c in _utc(bare)]
    assert sorted(emitted, key=repr) == sorted(expected, key=repr)


_RANKED = (
    "SELECT n, r FROM (SELECT n, {}() OVER (ORDER BY n) AS r FROM (VALUES (1), (1), (2), (3)) AS t(n)) WHERE r <= 2"
)


@pytest.mark.parametrize(("function", "rows"), [("RANK", [(1, 1), (1, 1)]), ("DENSE_RANK", [(1, 1), (1, 1), (2, 2)])])
def test_over_rank_functions_in_batch_and_rejected_in_streaming(function: str, rows: list[Row]) -> None:
    t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    t_env.get_config().set("millstream.engine", "local")
    with t_env.execute_sql(_RANKED.format(function)).collect() as results:
        assert [tuple(row) for row in results] == rows
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    with pytest.raises(TableException, match=rf"^{function}\(\) on streaming table is not supported currently"):
        t_env.execute_sql(_RANKED.format(function))

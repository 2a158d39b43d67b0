"""Time-dependent SQL operators restore from savepoints and checkpoints at another parallelism exactly once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import AggregateCall, Call, Column, Constant
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import JoinKind, Planned
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import DataTypes
from millstream.testing import LocalJob, save_checkpoint, save_savepoint, start_from
from tests.support.sql_runs import batch_of, changes_of, collecting, fields, input_node, kinds_of, planned, run

_BIGINT, _TIME = DataTypes.BIGINT(), DataTypes.TIMESTAMP(3)
_INPUT = fields(k=DataTypes.STRING(), v=_BIGINT, ts=_TIME)
_TIMED = Fields((*_INPUT.fields[:2], Field("ts", _TIME, TimeAttribute.ROWTIME)))
_BOTH = Fields((*_TIMED.fields, *(replace(f, name=f"{f.name}0") for f in _TIMED.fields)))
_BY_TIME = ((2, False, True),)


def _watched(source: Planned) -> Planned:
    late = Call(_TIME, "-", (Column(_TIME, 2), Constant(DataTypes.INTERVAL(DataTypes.SECOND(3)), 1000)))
    return planned(nodes.Watermark(_TIMED, source.node, 2, late), source, uid="watermark")


def _over(timed: Planned) -> Planned:
    calls = (AggregateCall("SUM", (1,), _BIGINT), AggregateCall("MAX", (1,), _BIGINT))
    out = Fields((*_TIMED.fields, Field("s", _BIGINT), Field("m", _BIGINT)))
    return planned(nodes.Over(out, timed.node, nodes.OverSpec((0,), _BY_TIME, True, -2, 0, calls)), timed)


def _window(timed: Planned) -> Planned:
    spec = nodes.WindowSpec(nodes.WindowKind.TUMBLE, 2, True, 10_000)
    out = Fields((*_TIMED.fields, Field("ws", _TIME), Field("we", _TIME), Field("wt", _TIME)))
    return planned(nodes.WindowTable(out, timed.node, spec), timed, uid="window")


def _rank(timed: Planned) -> Planned:
    table = _window(timed)
    spec = nodes.WindowSpec(nodes.WindowKind.TUMBLE, 5, True, 10_000)
    order, row = ((1, True, False),), "ROW_NUMBER"
    rank = nodes.WindowRank(
        table.node.fields, table.node, (0, 3, 4), order, row, 1, 2, False, window=spec, has_window=(3, 4)
    )
    return planned(rank, table)


def _interval(timed: Planned) -> Planned:
    join = nodes.IntervalJoin(
        _BOTH, timed.node, timed.node, JoinKind.FULL, (0,), (0,), (False,), None, 2, 2, True, -900, 900
    )
    return planned(join, timed, timed)


def _temporal(timed: Planned) -> Planned:
    join = nodes.TemporalJoin(_BOTH, timed.node, timed.node, JoinKind.LEFT, (0,), (0,), (False,), None, 2, 2, True)
    return planned(join, timed, timed)


def _batches() -> list[Batch]:
    r = Random(5)
    rows = [("+I", f"k{r.randrange(9)}", r.randrange(50), i * 300 + r.choice([0, 0, 700])) for i in range(200)]
    return [batch_of(rows[i : i + 20], kinds_of(_INPUT)) for i in range(0, 200, 20)]


@pytest.mark.parametrize("savepoint", [True, False])
@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("make", [_over, _rank, _interval, _temporal])
def test_sql_rescaling_is_exactly_once(make: object, after: int, savepoint: bool, tmp_path: Path) -> None:
    assert callable(make)
    source, batches = input_node(_INPUT), _batches()
    query = make(_watched(source))
    expected = Counter(run(query, [(source, batches)]))
    assert len(expected) > 50
    env, sink = collecting(query, [(source, batches)], 2)
    job = LocalJob(env, epoch_sizes=lambda: 1)
    for _ in range(5):
        job.run_epoch()
    saved = (save_savepoint if savepoint else save_checkpoint)(job, tmp_path)
    got = Counter(changes_of(sink.results()))
    assert 0 < got.total() < expected.total()
    env, sink = collecting(query, [(source, batches)], after)
    start_from(env, saved, epoch_sizes=lambda: 2).run()
    assert got + Counter(changes_of(sink.results())) == expected

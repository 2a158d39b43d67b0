"""The cost of a state TTL: batches of 1,000 rows for operators that retain a million rows.

    python -m bench.sql_expiring

CPU time of one core for each batch, with a clock that advances so that as many rows expire as arrive.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
from tests.support.sql_runs import Bare

from millstream.operators.base import Operator
from millstream.sql.columns.batch import Batch
from millstream.sql.operators.aggregate.group_aggregate import GroupAggregateOperator
from millstream.sql.operators.rank.deduplicate import LastRowOperator

STATE_ROWS, ROWS, BATCHES = 1_000_000, 1_000, 200
_KINDS = [pa.int64(), pa.int64()]
# A batch every 10 ms: the TTL is the time in which the retained rows arrive.
_EVERY = 10
_TTL = STATE_ROWS // ROWS * _EVERY


def _batch(first: int, rows: int) -> Batch:
    numbers = pa.array(np.arange(first, first + rows))
    return Batch([numbers, numbers], None, rows)


def _milliseconds(operator: Operator) -> float:
    now = [0]
    bare, first = Bare(operator, lambda: now[0]), 0
    for _ in range(STATE_ROWS // ROWS):
        bare.take(_batch(first, ROWS))
        now[0] += _EVERY
        first += ROWS
    bare.out.clear()
    started = time.process_time()
    for _ in range(BATCHES):
        bare.take(_batch(first, ROWS))
        bare.out.clear()
        now[0] += _EVERY
        first += ROWS
    return (time.process_time() - started) / BATCHES * 1000


if __name__ == "__main__":
    for name, operator in (
        ("last row", LastRowOperator([0], _KINDS, ttl=_TTL)),
        ("distinct", GroupAggregateOperator([0], [], _KINDS, ttl=_TTL)),
    ):
        print(
            f"{name}: {_milliseconds(operator):.2f} ms per batch of {ROWS:,} rows, {STATE_ROWS:,} in state", flush=True
        )

"""Nexmark events (`bench/sql/nexmark.py`), and all its queries over them."""

from __future__ import annotations

from collections import Counter

import pytest
from bench.sql.nexmark import ddl
from bench.sql.nexmark_events import COLUMNS
from bench.sql.nexmark_here import environment

from millstream.connectors.datagen.table import Block
from tests.sql.nexmark_answers import NAMES, final_rows

EVENTS = 5000


def _rows(start: int, end: int) -> list[tuple[object, ...]]:
    block = Block(start, end - start, start, end)
    return list(zip(*(column.column(block).to_pylist() for column in COLUMNS.values()), strict=True))


def test_nexmark_event_depends_only_on_its_number() -> None:
    whole = _rows(0, 1000)
    assert whole[:137] == _rows(0, 137)
    assert whole[137:411] == _rows(137, 411)
    assert len(set(map(str, whole))) == 1000


def test_nexmark_events_have_fixed_proportions() -> None:
    rows = _rows(100, 150)
    assert Counter(kind for kind, *_ in rows) == {0: 1, 1: 3, 2: 46}
    for kind, *members in rows:
        assert [member is not None for member in members] == [kind == k for k in range(3)]


# The windows of q12 depend on the clock; the result of q6 on the order of rows with equal times.
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("q6", "q12")])
def test_nexmark_query_result_is_independent_of_parallelism(name: str) -> None:
    one, two = (
        final_rows(environment(ddl(), {"millstream.engine": "local", "parallelism.default": str(p)}, EVENTS), name)
        for p in (1, 2)
    )
    assert one == two
    assert one

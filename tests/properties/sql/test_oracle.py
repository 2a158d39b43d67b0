"""Random SQL programs have DuckDB's results; `make sql-oracle` runs thousands."""

from __future__ import annotations

import pytest

from tests.sql.oracle.running import Skipped, difference, make

_PER_TEST = 12


@pytest.mark.parametrize("first", range(0, 8 * _PER_TEST, _PER_TEST))
def test_random_programs_match_duckdb(first: int) -> None:
    for seed in range(first, first + _PER_TEST):
        try:
            differences = difference(make(seed))
        except Skipped:
            continue
        assert differences is None, (
            f"{differences}\nrun `python -m tests.sql.oracle --seed {seed} --count 1` to shrink it"
        )

"""SQL beside what others answer: scripts that PyFlink has printed, random queries that SQLite answers."""

from __future__ import annotations

import pytest
from tests.sql import compare, oracle, reference

RECORDED = sorted(p.stem for p in compare.RECORDED.glob("*.txt"))


@pytest.mark.parametrize("name", RECORDED)
def test_scripts_print_what_pyflink_prints(name: str) -> None:
    expected = (compare.RECORDED / f"{name}.txt").read_text()
    assert compare.agreed(compare.here(name), expected) == expected


@pytest.mark.parametrize("seed", range(1000, 1010))
def test_random_queries_have_sqlites_answers(seed: int) -> None:
    assert oracle.check(oracle.Maker(seed), 10, batch_rows=1 + seed % 3) == 10


@pytest.mark.parametrize("seed", range(2000, 2003))
def test_neither_parallelism_nor_epochs_change_random_queries(seed: int) -> None:
    assert oracle.check_cuts(oracle.Maker(seed), 10) == 10


def test_the_reference_is_up_to_date() -> None:
    assert reference.PAGE.read_text() == reference.page(), "run `make sql-docs`"

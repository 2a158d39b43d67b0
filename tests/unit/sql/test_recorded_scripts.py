"""SQL scripts print the output recorded from PyFlink."""

from __future__ import annotations

import pytest

from tests.sql import compare, reference

RECORDED = sorted(p.stem for p in compare.RECORDED.glob("*.txt"))


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_scripts_print_the_output_of_pyflink(name: str) -> None:
    expected = (compare.RECORDED / f"{name}.txt").read_text()
    assert compare.with_expected_errors(compare.run_here(name), expected) == expected


def test_sql_reference_page_is_up_to_date() -> None:
    assert reference.PAGE.read_text() == reference.page(), "run `make sql-docs`"

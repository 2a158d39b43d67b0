"""The demo's check: results are compared with the generator, order by order."""

from __future__ import annotations

from datetime import datetime

from millstream.cli.demo_program import Order, Results, expected_totals, make_order, written_totals
from millstream.common.types import Row

NOON, LATER = datetime(2026, 5, 1, 12), datetime(2026, 5, 1, 12, 0, 10)


def test_expected_totals_cover_all_generated_orders() -> None:
    orders = [make_order(number) for number in range(1_000)]
    totals = expected_totals(1_000)
    assert sum(count for count, _ in totals.values()) == 1_000
    assert sum(total for _, total in totals.values()) == sum(order.amount for order in orders)
    assert totals["Graz"][0] == sum(order.city == "Graz" for order in orders)


def test_written_totals_add_up_windows_and_late_orders() -> None:
    results = Results.empty()
    results.add_windows([Row(NOON, "Ghent", 2, 30), Row(LATER, "Ghent", 1, 5), Row(NOON, "Graz", 1, 7)])
    results.add_late([Order(9, "Graz", "wine", 100, 0)])
    assert written_totals(results) == {"Ghent": (3, 35), "Porto": (0, 0), "Graz": (2, 107), "Turku": (0, 0)}
    assert results.repeated == 0


def test_results_count_rows_and_orders_that_are_written_again() -> None:
    results = Results.empty()
    for _ in range(2):
        results.add_windows([Row(NOON, "Ghent", 2, 30)])
        results.add_late([Order(9, "Graz", "wine", 100, 0)])
    assert results.repeated == 2

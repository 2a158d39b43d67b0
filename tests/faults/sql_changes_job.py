"""Fault injection for SQL aggregates and changes: user functions, both phases, mini-batches and upserts.

    python -m tests.faults.sql_changes_job <directory> [--fault SETTING] [--latest]

This command runs the job once, as a separate driver; `directory` holds its files and its checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.faults.job import NAME as NAME
from tests.faults.job import main
from tests.faults.sql_statements import LATEST_UPSERTS, SqlJob, Statement

from millstream.common import Row
from millstream.table import DataTypes, ListView, MapView, StreamTableEnvironment, Table
from millstream.table.expressions import call, col
from millstream.table.udf import AggregateFunction, TableAggregateFunction, udaf, udtaf

_BIGINT = DataTypes.BIGINT()


class ListSum(AggregateFunction[int, Row]):
    """Sum and count of values, all of which stay in a list: 1000 * sum + count."""

    def create_accumulator(self) -> Row:
        return Row(ListView(), 0)

    def accumulate(self, accumulator: Row, value: int) -> None:
        accumulator[0].add(value)
        accumulator[1] += 1

    def get_value(self, accumulator: Row) -> int:
        values, count = accumulator
        return int(sum(values) * 1000 + count)

    def get_accumulator_type(self) -> Any:
        return DataTypes.ROW(
            [DataTypes.FIELD("values", DataTypes.LIST_VIEW(_BIGINT)), DataTypes.FIELD("count", _BIGINT)]
        )

    def get_result_type(self) -> Any:
        return _BIGINT


class DistinctCount(AggregateFunction[int, Row]):
    """Counts the distinct values, some of which are retracted."""

    def create_accumulator(self) -> Row:
        return Row(MapView())

    def accumulate(self, accumulator: Row, value: int) -> None:
        counts = accumulator[0]
        counts[value] = counts[value] + 1 if counts.contains(value) else 1

    def retract(self, accumulator: Row, value: int) -> None:
        counts = accumulator[0]
        if counts[value] == 1:
            del counts[value]
        else:
            counts[value] = counts[value] - 1

    def get_value(self, accumulator: Row) -> int:
        return sum(1 for _ in accumulator[0])

    def get_accumulator_type(self) -> Any:
        return DataTypes.ROW([DataTypes.FIELD("counts", DataTypes.MAP_VIEW(_BIGINT, _BIGINT))])

    def get_result_type(self) -> Any:
        return _BIGINT


class TopTwo(TableAggregateFunction[Row, list[int]]):
    """The two greatest values."""

    def create_accumulator(self) -> list[int]:
        return []

    def accumulate(self, accumulator: list[int], value: int) -> None:
        accumulator[:] = sorted([*accumulator, value], reverse=True)[:2]

    def emit_value(self, accumulator: list[int]) -> Iterator[Row]:
        for rank, value in enumerate(accumulator, 1):
            yield Row(value, rank)

    def get_accumulator_type(self) -> Any:
        return DataTypes.ARRAY(_BIGINT)

    def get_result_type(self) -> Any:
        return DataTypes.ROW([DataTypes.FIELD("best", _BIGINT), DataTypes.FIELD("rn", _BIGINT)])


def _list_sums(t_env: StreamTableEnvironment) -> Table:
    return t_env.from_path("ns").group_by(col("k")).select(col("k"), call(udaf(ListSum()), col("v")))


# Every new row retracts the previous count of its group.
_COUNTS = "(SELECT n % 60 AS m, COUNT(*) AS c FROM ns GROUP BY n % 60)"


def _distinct_counts(t_env: StreamTableEnvironment) -> Table:
    counts = t_env.sql_query(f"SELECT m % 7 AS m, c FROM {_COUNTS}")
    return counts.group_by(col("m")).select(col("m"), call(udaf(DistinctCount()), col("c")))


def _top_two(t_env: StreamTableEnvironment) -> Table:
    best = t_env.from_path("ns").group_by(col("k")).flat_aggregate(udtaf(TopTwo())(col("v")).alias("best", "rn"))
    return best.select(col("k"), col("best"), col("rn"))


_WINDOW = "SELECT k, {}, COUNT(*), SUM(v), MAX(n) FROM {} GROUP BY k, window_start, window_end"
_START = "EXTRACT(EPOCH FROM window_start) * 1000 + EXTRACT(MILLISECOND FROM window_start) % 1000"


def _windowed(window: str, parts: str, operator: str, settings: dict[str, str] | None = None) -> Statement:
    text = f"(SELECT ns.*, {parts})"
    return Statement(
        _WINDOW.format(_START, f"TABLE({window})"), operator, _WINDOW.format("window_start", text), settings or {}
    )


def _steps(minimum: str, maximum: str, start: str) -> str:
    """Return windows that overlap; their ends are multiples of 100."""
    return (
        f"{start} AS window_start, e AS window_end FROM ns JOIN (SELECT n / 100 * 100 + 100 AS e FROM numbers UNION "
        f"SELECT n / 100 * 100 + 300 FROM numbers) ON e > {minimum} AND e <= {maximum}"
    )


_BATCHES = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "200 ms",
    "table.exec.mini-batch.size": "50",
}
_ONE_PHASE = {"table.optimizer.agg-phase-strategy": "ONE_PHASE"}
_EARLY = {"table.exec.emit.early-fire.enabled": "true", "table.exec.emit.early-fire.delay": "0 s"}
_EARLY_SUMS = "SELECT k, COUNT(*), SUM(v), MIN(n) FROM ns GROUP BY k, {}"
_TUMBLE = "TUMBLE(TABLE ns, DESCRIPTOR(at_time), INTERVAL '0.200' SECOND)"
_TUMBLED = "n / 200 * 200 AS window_start, n / 200 AS window_end FROM ns"
_HOP = "HOP(TABLE ns, DESCRIPTOR(at_time), INTERVAL '0.100' SECOND, INTERVAL '0.200' SECOND)"
_CUMULATE = "CUMULATE(TABLE ns, DESCRIPTOR(at_time), INTERVAL '0.100' SECOND, INTERVAL '0.300' SECOND)"
_ALL = "SELECT n % 30 AS m FROM evens {} ALL SELECT n % 45 AS m FROM thirds"
_PAIRED = """SELECT m FROM (SELECT m, ROW_NUMBER() OVER (PARTITION BY m) AS i FROM (SELECT n % 30 AS m FROM evens) AS a
    {} SELECT m, ROW_NUMBER() OVER (PARTITION BY m) FROM (SELECT n % 45 AS m FROM thirds) AS b)"""

JOB = SqlJob(
    {
        "sums": Statement("SELECT k, COUNT(*), SUM(v), MAX(v), MIN(n) FROM ns GROUP BY k", "GroupAggregate"),
        "distinct_counts": Statement(
            "SELECT k, COUNT(DISTINCT g), COUNT(DISTINCT v) FILTER (WHERE g < 20) FROM ns GROUP BY k", "GroupAggregate"
        ),
        # Values are retracted, including the maximum and the minimum.
        "of_counts": Statement(
            f"SELECT m % 7, COUNT(*), SUM(c), MIN(c), MAX(c) FROM {_COUNTS} AS t GROUP BY m % 7", "GroupAggregate"
        ),
        "of_all": Statement("SELECT COUNT(*), SUM(v), MIN(n) FROM ns", "GroupAggregate"),
        "distinct_rows": Statement("SELECT DISTINCT g FROM ns", "GroupAggregate"),
        "list_sums": Statement(_list_sums, "*ListSum*(v)", "SELECT k, SUM(v) * 1000 + COUNT(*) FROM ns GROUP BY k"),
        "function_distinct_counts": Statement(
            _distinct_counts, "*DistinctCount", f"SELECT m % 7, COUNT(DISTINCT c) FROM {_COUNTS} GROUP BY m % 7"
        ),
        "top_two": Statement(
            _top_two,
            "GroupTableAggregate",
            """SELECT k, v, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM ns)
                WHERE rn <= 2""",
        ),
        "mini_batches": Statement(
            "SELECT k, COUNT(*), SUM(v) FROM ns GROUP BY k", "GlobalGroupAggregate", None, _BATCHES
        ),
        "of_counts_in_mini_batches": Statement(
            f"SELECT m % 7, COUNT(*), SUM(c), MAX(c) FROM {_COUNTS} AS t GROUP BY m % 7",
            "GlobalGroupAggregate",
            None,
            _BATCHES,
        ),
        "distinct_in_mini_batches": Statement(
            "SELECT k, COUNT(DISTINCT g), SUM(v) FROM ns GROUP BY k", "DISTINCT(g) AS distinct$0", None, _BATCHES
        ),
        "tumble_window": _windowed(_TUMBLE, _TUMBLED, "GlobalWindowAggregate"),
        "tumble_window_in_one_phase": _windowed(_TUMBLE, _TUMBLED, "WindowAggregate", _ONE_PHASE),
        "hop_window": _windowed(_HOP, _steps("n", "n + 200", "e - 200"), "WindowAggregate"),
        "cumulate_window": _windowed(_CUMULATE, _steps("n", "n / 300 * 300 + 300", "n / 300 * 300"), "WindowAggregate"),
        "early": Statement(
            _EARLY_SUMS.format("TUMBLE(at_time, INTERVAL '0.200' SECOND)"),
            "WindowAggregate",
            _EARLY_SUMS.format("n / 200"),
            _EARLY,
        ),
        "intersect_all": Statement(_ALL.format("INTERSECT"), "Intersect(all=[true]", _PAIRED.format("INTERSECT")),
        "except_all": Statement(_ALL.format("EXCEPT"), "Minus(all=[true]", _PAIRED.format("EXCEPT")),
        "normalized": Statement("SELECT k, w FROM upserts", "ChangelogNormalize", LATEST_UPSERTS),
        "normalized_sums": Statement(
            "SELECT k % 9, COUNT(*), SUM(w) FROM upserts GROUP BY k % 9",
            "ChangelogNormalize",
            f"SELECT k % 9, COUNT(*), SUM(w) FROM ({LATEST_UPSERTS}) GROUP BY k % 9",
        ),
    }
)
build, expected, results = JOB.build, JOB.expected, JOB.results

if __name__ == "__main__":
    main(build, __doc__)

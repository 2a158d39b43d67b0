"""Programs with stateful user functions, and the results of apache-flink: aggregates, tables, pandas.

    python user_functions.py [NAME ...]    on a Python with apache-flink 2.3: runs the programs that are not recorded,
                                           or the given ones

Both systems run the same text: with `pyflink` there, with `millstream` here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if sys.prefix.endswith("pyflink"):
    from pyflink.common import Row
    from pyflink.table import DataTypes, ListView, MapView
    from pyflink.table.expressions import col
    from pyflink.table.udf import (
        AggregateFunction,
        AsyncScalarFunction,
        ScalarFunction,
        TableAggregateFunction,
        udaf,
        udf,
        udtaf,
        udtf,
    )
else:
    from millstream.common import Row
    from millstream.table import DataTypes, ListView, MapView
    from millstream.table.expressions import col
    from millstream.table.udf import (
        AggregateFunction,
        AsyncScalarFunction,
        ScalarFunction,
        TableAggregateFunction,
        udaf,
        udf,
        udtaf,
        udtf,
    )

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "user_functions.json"
_ROWS = [("a", 1, 1), ("b", 2, 3), ("a", 4, 5), ("a", 3, 2), ("b", None, 1), ("c", 5, 0), ("a", 4, 1)]


class WeightedAverage(AggregateFunction):  # type: ignore[misc]
    def create_accumulator(self) -> Any:
        return Row(0, 0)

    def get_value(self, accumulator: Any) -> Any:
        return None if accumulator[1] == 0 else accumulator[0] / accumulator[1]

    def accumulate(self, accumulator: Any, value: Any, weight: Any) -> None:
        if value is not None:
            accumulator[0] += value * weight
            accumulator[1] += weight

    def retract(self, accumulator: Any, value: Any, weight: Any) -> None:
        if value is not None:
            accumulator[0] -= value * weight
            accumulator[1] -= weight

    def merge(self, accumulator: Any, accumulators: Any) -> None:
        for other in accumulators:
            accumulator[0] += other[0]
            accumulator[1] += other[1]

    def get_result_type(self) -> Any:
        return DataTypes.DOUBLE()

    def get_accumulator_type(self) -> Any:
        return DataTypes.ROW([DataTypes.FIELD("f0", DataTypes.BIGINT()), DataTypes.FIELD("f1", DataTypes.BIGINT())])


class Joined(AggregateFunction):  # type: ignore[misc]
    """Values in a ListView, and the count of each in a MapView."""

    def create_accumulator(self) -> Any:
        return Row(ListView(), MapView())

    def get_value(self, accumulator: Any) -> Any:
        counts = ",".join(f"{k}={v}" for k, v in sorted(accumulator[1].items()))
        return "|".join(accumulator[0].get()) + f" {counts}"

    def accumulate(self, accumulator: Any, value: Any) -> None:
        accumulator[0].add(str(value))
        key = str(value)
        accumulator[1][key] = accumulator[1][key] + 1 if accumulator[1].contains(key) else 1

    def get_accumulator_type(self) -> Any:
        return DataTypes.ROW(
            [
                DataTypes.FIELD("f0", DataTypes.LIST_VIEW(DataTypes.STRING())),
                DataTypes.FIELD("f1", DataTypes.MAP_VIEW(DataTypes.STRING(), DataTypes.BIGINT())),
            ]
        )

    def get_result_type(self) -> Any:
        return DataTypes.STRING()


class CountAndSum(AggregateFunction):  # type: ignore[misc]
    def create_accumulator(self) -> Any:
        return Row(0, 0)

    def get_value(self, accumulator: Any) -> Any:
        return Row(accumulator[0], accumulator[1])

    def accumulate(self, accumulator: Any, row: Any) -> None:
        accumulator[0] += 1
        accumulator[1] += row[1] or 0

    def get_accumulator_type(self) -> Any:
        return "ROW<a BIGINT, b BIGINT>"

    def get_result_type(self) -> Any:
        return "ROW<a BIGINT, b BIGINT>"


class CountAndSumOf(CountAndSum):
    def accumulate(self, accumulator: Any, value: Any) -> None:
        accumulator[0] += 1
        accumulator[1] += value or 0

    def retract(self, accumulator: Any, value: Any) -> None:
        accumulator[0] -= 1
        accumulator[1] -= value or 0


class Top2(TableAggregateFunction):  # type: ignore[misc]
    def create_accumulator(self) -> Any:
        return [None, None]

    def accumulate(self, accumulator: Any, value: Any) -> None:
        if value is None:
            return
        if accumulator[0] is None or value > accumulator[0]:
            accumulator[1], accumulator[0] = accumulator[0], value
        elif accumulator[1] is None or value > accumulator[1]:
            accumulator[1] = value

    def emit_value(self, accumulator: Any) -> Any:
        for rank, value in enumerate(accumulator):
            if value is not None:
                yield Row(value, rank)

    def get_accumulator_type(self) -> Any:
        return "ARRAY<BIGINT>"

    def get_result_type(self) -> Any:
        return "ROW<v BIGINT, place BIGINT>"


class Counting(ScalarFunction):  # type: ignore[misc]
    """Counts in a metric, and adds a job parameter."""

    def open(self, function_context: Any) -> None:
        self.counter = function_context.get_metric_group().add_group("my").counter("calls")
        self.more = int(function_context.get_job_parameter("more", "100"))

    def eval(self, value: Any) -> Any:
        self.counter.inc(1)
        return (value or 0) + self.more


class Doubled(AsyncScalarFunction):  # type: ignore[misc]
    async def eval(self, value: Any) -> Any:
        return None if value is None else value * 2


class Flaky(AsyncScalarFunction):  # type: ignore[misc]
    """Fails three times for one value: as often as the call is retried."""

    def open(self, function_context: Any) -> None:
        self.failures = 0

    async def eval(self, value: Any) -> Any:
        if value == 5 and self.failures < 3:
            self.failures += 1
            raise ValueError("not now")
        return value


def _mean() -> Any:
    @udaf(result_type=DataTypes.DOUBLE(), func_type="pandas")  # type: ignore[untyped-decorator]
    def mean(values: Any) -> Any:
        return values.mean()

    return mean


def _table(t_env: Any) -> Any:
    return t_env.from_elements(_ROWS, DataTypes.ROW([DataTypes.FIELD(n, k) for n, k in _COLUMNS]))


_COLUMNS = [("k", DataTypes.STRING()), ("v", DataTypes.BIGINT()), ("w", DataTypes.BIGINT())]


def _sql(text: str, batch: bool = False, **functions: Any) -> Callable[[Any], Any]:
    def program(t_env: Any) -> Any:
        t_env.create_temporary_view("t", _table(t_env))
        for name, function in functions.items():
            t_env.create_temporary_system_function(name, function)
        return t_env.sql_query(text)

    program.batch = batch  # type: ignore[attr-defined]
    return program


def _api(make: Callable[[Any], Any], batch: bool = False) -> Callable[[Any], Any]:
    def program(t_env: Any) -> Any:
        t_env.get_config().set("pipeline.global-job-parameters", "more:7")
        return make(_table(t_env))

    program.batch = batch  # type: ignore[attr-defined]
    return program


_WAVG = {"wavg": udaf(WeightedAverage())}
_INNER = "(SELECT k, COUNT(*) AS c, SUM(v) AS v, MAX(w) AS w FROM t GROUP BY k)"
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "aggregate": _sql("SELECT k, wavg(v, w), COUNT(*) FROM t GROUP BY k", **_WAVG),
    "aggregate of all": _sql("SELECT wavg(v, w) FROM t", **_WAVG),
    "aggregate of updates": _sql(f"SELECT c, wavg(v, w) FROM {_INNER} GROUP BY c", **_WAVG),
    "distinct aggregate": _sql("SELECT k, total(DISTINCT v) FROM t GROUP BY k", total=udaf(CountAndSumOf())),
    "aggregate with a filter": _sql("SELECT k, wavg(v, w) FILTER (WHERE w > 1) FROM t GROUP BY k", **_WAVG),
    "views": _sql("SELECT k, joined(v) FROM t GROUP BY k", joined=udaf(Joined())),
    "pandas in batch": _sql("SELECT k, mean(v) FROM t GROUP BY k", True, mean=_mean()),
    "pandas over in batch": _sql(
        "SELECT k, v, mean(v) OVER (PARTITION BY k ORDER BY v, w ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
        True,
        mean=_mean(),
    ),
    "pandas in a stream": _sql("SELECT k, mean(v) FROM t GROUP BY k", mean=_mean()),
    "aggregate of rows": _api(
        lambda t: (
            t.group_by(col("k")).aggregate(udaf(CountAndSum()).alias("n", "s")).select(col("k"), col("n"), col("s"))
        )
    ),
    "aggregate of columns": _api(
        lambda t: (
            t.group_by(col("k"))
            .aggregate(udaf(CountAndSumOf())(col("v")).alias("n", "s"))
            .select(col("k"), col("s"), col("n"))
        )
    ),
    "aggregate of a table": _api(lambda t: t.aggregate(udaf(CountAndSum()).alias("n", "s")).select(col("n"), col("s"))),
    "flat aggregate": _api(
        lambda t: (
            t.group_by(col("k"))
            .flat_aggregate(udtaf(Top2())(col("v")).alias("best", "place"))
            .select(col("k"), col("best"), col("place"))
        )
    ),
    "flat aggregate of a table": _api(
        lambda t: t.flat_aggregate(udtaf(Top2())(col("v"))).select(col("v"), col("place"))
    ),
    "flat aggregate, then an aggregate": _api(
        lambda t: (
            t.group_by(col("k"))
            .flat_aggregate(udtaf(Top2())(col("v")).alias("best", "place"))
            .select(col("k"), col("best"))
            .group_by(col("k"))
            .select(col("k"), col("best").sum.alias("s"))
        )
    ),
    "map": _api(
        lambda t: t.map(
            udf(lambda row: Row(row[0], (row[1] or 0) + row[2]), result_type="ROW<k STRING, s BIGINT>")
        ).alias("k", "s")
    ),
    "map on pandas": _api(
        lambda t: t.map(
            udf(lambda rows: rows[["k", "w"]], result_type="ROW<k STRING, s BIGINT>", func_type="pandas")
        ).alias("k", "s")
    ),
    "aggregate of rows on pandas": _api(
        lambda t: (
            t.group_by(col("k"))
            .aggregate(
                udaf(
                    lambda rows: (rows.w.mean(), rows.v.max()),
                    result_type="ROW<a DOUBLE, b BIGINT>",
                    func_type="pandas",
                ).alias("m", "b")
            )
            .select(col("k"), col("m"), col("b"))
        ),
        True,
    ),
    "flat map": _api(
        lambda t: t.flat_map(
            udtf(
                lambda row: [(row[0], i) for i in range(row[2] or 0)],
                result_types=[DataTypes.STRING(), DataTypes.BIGINT()],
            )
        ).alias("k", "i")
    ),
    "metrics and parameters": _api(lambda t: t.select(col("k"), udf(Counting(), result_type="BIGINT")(col("v")))),
    "async": _api(lambda t: t.select(col("k"), udf(Doubled(), result_type="BIGINT")(col("v")))),
    "async that fails at first": _api(lambda t: t.select(col("k"), udf(Flaky(), result_type="BIGINT")(col("v")))),
}
# In BATCH, and among rows that are emitted together, the order is undefined.
UNORDERED = {"pandas in batch", "pandas over in batch", "aggregate of rows on pandas"}


def _value_text(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, Row) else str(value)


def changes(program: Callable[[Any], Any], t_env: Any) -> list[str]:
    """Return the changes of a program's table, or its error in one line."""
    try:
        with program(t_env).execute().collect() as rows:
            return [f"{row.get_row_kind()} {', '.join(map(_value_text, row))}" for row in rows]
    except Exception as e:
        lines = [line.strip() for line in str(e).splitlines()]
        errors = [line.split("Exception: ", 1)[1] for line in lines if "Exception: " in line]
        return [f"error: {errors[-1] if errors else lines[0]}"]


def is_batch(program: Callable[[Any], Any]) -> bool:
    return bool(getattr(program, "batch", False))


def record(names: Sequence[str]) -> None:
    """Run the programs on Flink and record the results."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    results = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name in names or [n for n in PROGRAMS if n not in results]:
        settings = EnvironmentSettings.in_batch_mode() if is_batch(PROGRAMS[name]) else None
        t_env = TableEnvironment.create(settings or EnvironmentSettings.in_streaming_mode())
        t_env.get_config().set("parallelism.default", "1").set("python.fn-execution.bundle.size", "1")
        t_env.get_config().set("python.executable", sys.executable)
        t_env.get_config().set("python.client.executable", sys.executable)
        results[name] = changes(PROGRAMS[name], t_env)
        print(name, len(results[name]), results[name][:1], flush=True)
        retained = {n: results[n] for n in PROGRAMS if n in results}
        RECORDED.write_text(json.dumps(retained, indent=1) + "\n")


if __name__ == "__main__":
    record(sys.argv[1:])

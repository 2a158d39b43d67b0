"""Stateful user functions give the results of apache-flink (`tests/sql/user_functions.py`)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pyarrow as pa
import pytest

from millstream.common.errors import MillstreamError
from millstream.operators.base import Operator
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.group_aggregate import GroupAggregateOperator, TableAggregateOperator
from millstream.sql.operators.aggregate.object_accumulators import in_session
from millstream.sql.operators.query_context import Session
from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
from millstream.table.expressions import col, lit
from millstream.table.udf import AggregateFunction, AsyncScalarFunction, udaf, udf, udtaf
from millstream.table.window import Over, Tumble
from tests.sql.user_functions import PROGRAMS, RECORDED, UNORDERED, Joined, Top2, WeightedAverage, changes, is_batch
from tests.support.sql_runs import Bare, batch_of, changes_of

_FLINKS: dict[str, list[str]] = json.loads(RECORDED.read_text())
_KINDS = [pa.string(), pa.int64(), pa.int64()]


def _environment(batch: bool = False) -> TableEnvironment:
    settings = EnvironmentSettings.in_batch_mode() if batch else EnvironmentSettings.in_streaming_mode()
    t_env = TableEnvironment.create(settings)
    t_env.get_config().set("parallelism.default", "1").set("millstream.engine", "local")
    return t_env


@pytest.mark.parametrize("name", PROGRAMS)
def test_user_function_program_matches_flink(name: str) -> None:
    results, expected = changes(PROGRAMS[name], _environment(is_batch(PROGRAMS[name]))), _FLINKS[name]
    if expected[0].startswith("error: "):
        assert results[0].startswith(expected[0].removesuffix("."))
    elif name in UNORDERED:
        assert sorted(results) == sorted(expected)
    else:
        assert results == expected


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.startswith("flat aggregate")])
def test_table_aggregate_explain_matches_flink(name: str) -> None:
    explanation = PROGRAMS[name](_environment()).explain()
    # Flink's message, except for the function's name.
    keys = "{}" if "of a table" in name else "{0}"
    assert f"LogicalTableAggregate(group=[{keys}], tableAggregate=[[" in explanation
    assert "GroupTableAggregate(" in explanation.partition("== Optimized Physical Plan ==")[2]


def _operator(function: Any, table: bool = False) -> Operator:
    types = (DataTypes.BIGINT(),) * (2 if isinstance(function, WeightedAverage) else 1)
    user = (udtaf if table else udaf)(function)
    call = AggregateCall("f", (1, 2)[: len(types)], user.result_type, user=user, argument_types=types)
    (ready,) = in_session([call], Session())
    if table:
        return TableAggregateOperator([0], ready, _KINDS)
    return GroupAggregateOperator([0], [ready], _KINDS, retracts=isinstance(function, WeightedAverage))


@pytest.mark.parametrize("function", [WeightedAverage(), Joined(), Top2()], ids=lambda f: type(f).__name__)
def test_user_aggregate_accumulators_restore_from_files(function: Any) -> None:
    rows = [("+I", k, v, w) for k, v, w in [("a", 1, 1), ("b", 2, 3), ("a", 4, 5), ("b", 7, 1), ("a", 3, 2)]]
    uninterrupted = Bare(_operator(function, isinstance(function, Top2)))
    uninterrupted.take(batch_of(rows, _KINDS))
    restarted = Bare(_operator(function, isinstance(function, Top2)))
    for row in rows:
        restarted.take(batch_of([row], _KINDS))
        restarted.restart()
    assert changes_of(restarted.out) == uninterrupted.changes()


def test_table_aggregate_handles_retractions_and_ttl() -> None:
    class Members(Top2):
        def create_accumulator(self) -> Any:
            return []

        def accumulate(self, accumulator: Any, value: Any) -> None:
            accumulator.append(value)

        def retract(self, accumulator: Any, value: Any) -> None:
            accumulator.remove(value)

    bare = Bare(_operator(Members(), True))
    rows = [("-D", "a", 1, 0), ("+I", "a", 1, 0), ("+I", "a", 2, 0), ("-D", "a", 1, 0), ("-D", "a", 2, 0)]
    bare.take(batch_of(rows, _KINDS))
    reported = [("+I", 1, 0), ("-D", 1, 0), ("+I", 1, 0), ("+I", 2, 1), ("-D", 1, 0), ("-D", 2, 1), ("+I", 2, 0)]
    assert bare.changes() == [(k, "a", v, p) for k, v, p in [*reported, ("-D", 2, 0)]]


def test_user_aggregates_run_in_windows_and_over_frames() -> None:
    t_env = _environment()
    t_env.execute_sql(
        "CREATE TABLE ids (n BIGINT, k AS n % 2, ts AS TO_TIMESTAMP_LTZ(n * 1000, 3), WATERMARK FOR ts AS ts) WITH ("
        "'connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '6')"
    )
    mean = udaf(lambda v: v.mean(), result_type=DataTypes.DOUBLE(), func_type="pandas")
    table = t_env.from_path("ids")
    window = Tumble.over(lit(4).seconds).on(col("ts")).alias("w")
    grouped = table.window(window).group_by(col("k"), col("w")).select(col("k"), mean(col("n")).alias("m"))
    assert sorted(map(tuple, grouped.execute().collect())) == [(0, 2.0), (0, 5.0), (1, 2.0), (1, 5.0)]
    over = Over.partition_by(col("k")).order_by(col("ts")).preceding(lit(2).seconds).alias("o")
    summed = table.over_window(over).select(col("n"), mean(col("n")).over(col("o")))
    assert sorted(map(tuple, summed.execute().collect())) == [
        (1, 1.0),
        (2, 2.0),
        (3, 2.0),
        (4, 3.0),
        (5, 4.0),
        (6, 5.0),
    ]
    joined = table.window(window).group_by(col("k"), col("w")).aggregate(udaf(Joined())(col("n")).alias("j"))
    assert sorted(map(tuple, joined.select(col("j")).execute().collect())) == [
        ("1|3 1=1,3=1",), ("2 2=1",), ("4|6 4=1,6=1",), ("5 5=1",),
    ]  # fmt: skip


def test_user_function_error_names_function_and_row() -> None:
    class Failing(WeightedAverage):
        def accumulate(self, accumulator: Any, value: Any, weight: Any) -> None:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no") as error:
        Bare(_operator(Failing())).take(batch_of([("+I", "a", 1, 2)], _KINDS))
    assert error.value.__notes__ == ["in the aggregate function Failing, for the row (1, 2)"]


def test_user_functions_open_and_close_with_subtask() -> None:
    seen: list[Any] = []

    class Watched(WeightedAverage):
        def open(self, function_context: Any) -> None:
            seen.append(function_context.get_index_of_this_subtask())

        def close(self) -> None:
            seen.append("closed")

    bare = Bare(_operator(Watched()))
    assert seen == [0]
    bare.operator.close()
    assert seen == [0, "closed"]
    assert issubclass(Watched, AggregateFunction)


def _results_of(function: AsyncScalarFunction, **settings: str) -> list[Any]:
    t_env = _environment()
    for key, value in settings.items():
        t_env.get_config().set(f"table.exec.async-scalar.{key.replace('_', '-')}", value)
    t_env.execute_sql(
        "CREATE TABLE ids (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
        "'fields.n.start' = '1', 'fields.n.end' = '5000')"
    )
    called = udf(function, result_type=DataTypes.BIGINT())
    return [row[0] for row in t_env.from_path("ids").select(called(col("n"))).execute().collect()]


def test_async_function_keeps_its_event_loop() -> None:
    """A client is bound to the loop that created it, and rows arrive in several batches."""

    class Client(AsyncScalarFunction):
        loop: Any = None

        async def eval(self, value: int) -> int:
            self.loop = self.loop or asyncio.get_running_loop()
            assert self.loop is asyncio.get_running_loop()
            return -value

    assert _results_of(Client()) == [-n for n in range(1, 5001)]


def test_async_function_limits_concurrent_calls() -> None:
    class Counting(AsyncScalarFunction):
        now = 0

        async def eval(self, value: int) -> int:
            self.now += 1
            await asyncio.sleep(0)
            previous, self.now = self.now, self.now - 1
            return previous

    assert max(_results_of(Counting())) == 10
    assert max(_results_of(Counting(), max_concurrent_operations="3")) == 3


def test_async_function_timeout_or_failure_fails_job() -> None:
    class Silent(AsyncScalarFunction):
        async def eval(self, value: int) -> int:
            await asyncio.get_running_loop().create_future()
            return value

    class Failing(AsyncScalarFunction):
        calls = 0

        async def eval(self, value: int) -> int:
            self.calls += 1
            raise ValueError(f"call {self.calls}")

    late = r"The async function Silent has not returned within 0.05 s \('table.exec.async-scalar.timeout'\) for the row"
    with pytest.raises(MillstreamError, match=late):
        _results_of(Silent(), timeout="50 ms")
    with pytest.raises(MillstreamError, match="ValueError: call 3\n"):
        _results_of(Failing(), max_concurrent_operations="1", max_attempts="2", retry_delay="1 ms")
    with pytest.raises(MillstreamError, match="ValueError: call 1\n"):
        _results_of(Failing(), max_concurrent_operations="1", retry_strategy="NO_RETRY")


@pytest.mark.parametrize(
    ("key", "value"), [("max_attempts", "often"), ("timeout", "long"), ("retry_strategy", "SOMETIMES")]
)
def test_async_function_rejects_invalid_options(key: str, value: str) -> None:
    class Identity(AsyncScalarFunction):
        async def eval(self, value: int) -> int:
            return value

    with pytest.raises(MillstreamError, match=f"Could not parse value '{value}' for 'table.exec.async-scalar."):
        _results_of(Identity(), **{key: value})

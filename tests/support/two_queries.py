"""A job of two equal statement sets over one stream, and the content of its savepoints."""

from __future__ import annotations

from typing import Any

from millstream.checkpoint.inspect import Inspection
from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.common.job_client import JobClient
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.table import StreamTableEnvironment
from millstream.table.expressions import col
from tests.support.helpers import job_of

STATEMENT = "INSERT INTO s SELECT n % 10, COUNT(*), MAX(n) FROM v GROUP BY n % 10"


def started(settings: Configuration) -> JobClient:
    """Start the job, in one subtask."""
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.set_parallelism(1)
    t_env = StreamTableEnvironment.create(env)
    source = NumberSequenceSource(1, 1_000_000_000)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()).uid("numbers")
    t_env.create_temporary_view("v", numbers, col("n"))
    t_env.execute_sql("CREATE TABLE s (k BIGINT, c BIGINT, m BIGINT) WITH ('connector' = 'blackhole')")
    for _ in range(2):
        t_env.create_statement_set().add_insert_sql(STATEMENT).attach_as_datastream()
    return env.execute_async("two queries")


def has_counted(client: Any) -> bool:
    """Return whether every aggregate has received rows."""
    view = job_of(client).view
    progress = [view.progress.subtasks.get((v.id, 0)) for v in view.plan.vertices if not v.is_source]
    return all(one is not None and one.records_in for one in progress)


def counted(path: str) -> dict[str, int]:
    """Return the count of each aggregate of a savepoint, by uid; check that each record counted once."""
    inspection, counts = Inspection.open(path), {}
    for operator in inspection.operators():
        if not operator.name.startswith("GroupAggregate"):
            continue
        rows: list[Any] = [r.value for state in operator.states for r in inspection.rows(operator, state)]
        assert operator.uid is not None
        counts[operator.uid] = sum(count for count, *_ in rows)
        assert counts[operator.uid] == max(max_value for _, max_value, *_ in rows)
    return counts

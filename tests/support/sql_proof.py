"""Queries that must give the same rows for any epoch boundaries, failures and parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

from millstream.common import Row, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.operators.diagnostics.failures import SubtaskFailed
from millstream.table import ChangelogMode, Schema, StreamTableEnvironment, Table
from millstream.testing import ABORT, CollectSink, LocalJob, ManualClock, TestingSource, ValuesTable

_TYPE = Types.ROW_NAMED(
    ["id", "side", "k", "v", "at"], [Types.LONG(), Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()]
)
_VIEWS = [
    "CREATE TEMPORARY VIEW l AS SELECT id, k, v, ts, p FROM t WHERE side = 'L'",
    "CREATE TEMPORARY VIEW r AS SELECT id AS rid, k AS rk, v AS rv, ts AS rts FROM t WHERE side = 'R'",
    "CREATE TEMPORARY VIEW versions AS SELECT rk, rv, rts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY rk ORDER BY "
    "rts DESC) AS rn FROM r) WHERE rn = 1",
]
# Rows per wall-clock time, and the milliseconds between two such times.
_BEAT, _PAUSE = 10, 400

Settings = Mapping[str, str]
Sink = CollectSink | ValuesTable


@dataclass(frozen=True)
class Case:
    """A query and its settings.

    Args:
        query: SQL over the views, or a function that returns a table of an environment.
        settings: of the table environment.
        functions: user functions, by name.
        late: whether some rows are late; else some are out of order, and none is late.
        clock: whether the result depends on the wall clock, which then advances between rows, equally in every run.
        whole: whether all changes are compared, in any order; else the final rows.
        like: the query whose result it must have, if that is another one.
        unlike: the query whose result it must not have: it would have it if no state expired.
        upserts: whether the rows are those of a table `latest`, of which only the last of each key counts.
        into: the columns of a table with a key that the query's rows are written to; SQL only.
    """

    query: str | Callable[[StreamTableEnvironment], Table]
    settings: Settings = field(default_factory=dict)
    functions: Mapping[str, Any] = field(default_factory=dict)
    late: bool = False
    clock: bool = False
    whole: bool = True
    like: str | None = None
    unlike: str | None = None
    upserts: bool = False
    into: str = ""


@cache
def rows_of(late: bool) -> tuple[Row, ...]:
    """Return rows slightly out of order, whose keys pause for a while."""
    r = Random(7)
    rows = [
        Row(
            i,
            r.choice("LR"),
            f"k{(r.randrange(4) + i // 20) % 7}",
            r.randrange(6),
            i * 90 + r.randrange(4) * 100 + i % 89,
        )
        for i in range(160)
    ]
    if late:
        rows = [Row(*row[:4], max(0, row[4] - 3500 * (i % 11 == 10))) for i, row in enumerate(rows)]
    return tuple(rows)


def program(case: Case, parallelism: int, rows: Sequence[Any]) -> tuple[StreamExecutionEnvironment, Sink]:
    """Return a program of a query over rows, and the sink of its changes."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    t_env = StreamTableEnvironment.create(env)
    t_env.get_config().set("table.local-time-zone", "UTC")
    for key, value in case.settings.items():
        t_env.get_config().set(key, value)
    for name, function in case.functions.items():
        t_env.create_temporary_system_function(name, function)
    # Many queries depend on the order of a key's rows.
    source = env.from_source(TestingSource(rows, 1000), WatermarkStrategy.no_watermarks(), "rows").set_parallelism(1)
    typed = source.map(lambda row: row, _TYPE).set_parallelism(1)
    schema = Schema.new_builder().column("id", "BIGINT").column("side", "STRING")
    schema.column("k", "STRING NOT NULL").column("v", "BIGINT").column("at", "BIGINT")
    if case.upserts:
        latest = t_env.from_changelog_stream(typed, schema.primary_key("k").build(), ChangelogMode.upsert())
        t_env.create_temporary_view("latest", latest)
    else:
        schema.column_by_expression("ts", "TO_TIMESTAMP_LTZ(`at`, 3)").watermark("ts", "ts - INTERVAL '1' SECOND")
        schema.column_by_expression("p", "PROCTIME()")
        t_env.create_temporary_view("t", t_env.from_data_stream(typed, schema.build()))
        for view in _VIEWS:
            t_env.execute_sql(view)
    if case.into:
        written = ValuesTable()
        t_env.execute_sql(f"CREATE TABLE o ({case.into}) WITH {written.options}")
        t_env.create_statement_set().add_insert_sql(f"INSERT INTO o {case.query}").attach_as_datastream()
        return env, written
    table = t_env.sql_query(case.query) if isinstance(case.query, str) else case.query(t_env)
    sink = CollectSink()
    t_env.to_changelog_stream(table).sink_to(sink).set_parallelism(1)
    return env, sink


class Played:
    """A job that runs epoch by epoch; the wall clock advances when all rows of its current time are read.

    Args:
        env: the program.
        elements: the elements of its source.
        sizes: returns the maximum elements of an epoch, which never reads rows of two times.
        make: creates the job; by default one without a snapshot.
        read: the number of elements read before.
    """

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        elements: Sequence[Any],
        sizes: Callable[[], int],
        clocked: bool,
        make: Callable[..., LocalJob] = LocalJob,
        read: int = 0,
    ) -> None:
        self.read = read
        self._sizes, self._clock = sizes, ManualClock()
        # The arrival time of each element.
        self._times: list[int] = []
        rows = 0
        for element in elements:
            self._times.append(rows // _BEAT * _PAUSE if clocked else 0)
            rows += element is not ABORT
        self.job = make(env, clock=self._clock, epoch_sizes=lambda: self._size)  # type: ignore[has-type]
        self._size = 0

    def epoch(self) -> None:
        """Run one epoch."""
        ahead = self._times[self.read :]
        if ahead and not self.job.execution.sources_with_pending_input():
            self._clock.set(ahead[0])
            same = next((i for i, time in enumerate(ahead) if time != ahead[0]), len(ahead))
            self._size = min(self._sizes(), same)
        else:
            self._size = 1
        self.read += min(self.job.run_epoch() and self._size, len(ahead))

    def run(self, restarts: int = 0, until: int = 1 << 20, dies: Callable[[], bool] = lambda: False) -> None:
        """Run to the end, or until a number of elements is read.

        Args:
            restarts: the maximum number of failures after which the last good epoch is restored.
            until: the number of elements.
            dies: returns after each epoch whether all processes die.
        """
        job = self.job
        while not job.is_finished and self.read < until:
            before = job.snapshot() if restarts else None
            try:
                self.epoch()
                if dies():
                    job.restart_slots()
                elif job.has_requests:
                    job.finish_requests()
            except SubtaskFailed:
                if before is None:
                    raise
                restarts -= 1
                job.restore(before)


def result_of(case: Case, *sinks: Sink) -> Counter[str]:
    """Return the compared result: the changes, or the final rows."""
    rows = Counter[str]()
    for row in (row for sink in sinks for row in sink.results()):
        kind, values = str(row.get_row_kind()), repr(tuple(row))
        if case.whole:
            rows[f"{kind} {values}"] += 1
        else:
            rows[values] += 1 if kind in ("+I", "+U") else -1
    return Counter({values: count for values, count in rows.items() if count})

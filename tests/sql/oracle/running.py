"""Runs a program in several modes and in DuckDB, compares the final rows, and shrinks a program that differs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb

from millstream.common.types import Row, RowKind
from millstream.datastream import StreamExecutionEnvironment
from millstream.sql.errors import TableException, ValidationException
from millstream.table import ChangelogMode, EnvironmentSettings, StreamTableEnvironment
from millstream.testing import CollectSink, LocalEnvironment, LocalJob, ValuesTable

from .generator import Generator
from .relations import TYPES, Relation, on_stream
from .tables import TABLES, Table, TableMaker

Answer = Counter[tuple[Any, ...]]

# Programs with more rows are skipped.
_MAX_ROWS = 3000
# DuckDB divides doubles; this divides decimals, rounding half up.
_HALF_UP = """CREATE MACRO half_up(n, d) AS CAST(
    (2 * abs(n::HUGEINT) + abs(d::HUGEINT)) // (2 * abs(d::HUGEINT)) * sign(n) * sign(d) AS DECIMAL(38, 0))"""
_UNTIL = """CREATE OR REPLACE VIEW v_until AS SELECT id, s, d, ts, until FROM (
    SELECT *, coalesce(lead(ts) OVER (PARTITION BY id ORDER BY ts), TIMESTAMP '9999-01-01') AS until FROM v_history
) AS h WHERE NOT is_deleted"""


class Skipped(Exception):
    """DuckDB cannot run the program, or its result has too many rows."""


@dataclass(frozen=True)
class Mode:
    """A mode in which a program runs."""

    name: str
    parallelism: int = 1
    batch_rows: int = 1000
    epochs: int | None = None

    def __str__(self) -> str:
        epochs = "" if self.epochs is None else f", epochs by seed {self.epochs}"
        return f"{self.name} at parallelism {self.parallelism}{epochs}"


@dataclass(frozen=True)
class Case:
    """A program, its tables and its modes."""

    seed: int
    program: Relation
    tables: dict[str, Table]
    modes: tuple[Mode, ...]


@dataclass(frozen=True)
class Difference:
    """A difference from the expected result, and its mode."""

    case: Case
    mode: Mode
    summary: str

    def __str__(self) -> str:
        text = self.case.program.rendered()
        used = _used(self.case)
        rows = [f"  {t.name}: {[(k.name, *map(str, v)) for k, v in t.changes]}" for t in used]
        lines = [f"seed {self.case.seed}, {self.mode}: {self.summary}", f"  {text.flink}"]
        if text.duck != text.flink:
            lines.append(f"  in DuckDB: {text.duck}")
        return "\n".join([*lines, *rows])


def make(seed: int) -> Case:
    """Return the case of a seed."""
    r = random.Random(seed)
    tables = TableMaker(r).tables()
    program = Generator(r).program()
    streaming = Mode("streaming", r.randint(1, 3), r.randint(1, 4), r.randrange(1 << 20))
    modes = [streaming]
    if program.in_batch:
        modes.append(Mode("batch", r.randint(1, 2)))
    if r.random() < 0.25:
        modes.append(Mode("mini-batch", r.randint(1, 2), r.randint(1, 4), r.randrange(1 << 20)))
    if r.random() < 0.25 and _reads_one_changelog(program):
        modes.append(Mode("row by row", 1, 1, 0))
    if program.key and r.random() < 0.5:
        modes.append(Mode("upserts", 1, r.randint(1, 4), r.randrange(1 << 20)))
    return Case(seed, program, tables, tuple(modes))


def _reads_one_changelog(program: Relation) -> bool:
    """Return whether the order of a program's changes is that of one table's rows."""
    leaves = program.leaves()
    return len(leaves) == 1 and leaves[0].label in ("t", "u", "k", "c") and "self join" not in program.labels()


def difference(case: Case) -> Difference | None:
    """Return the first difference between a program's result and DuckDB's."""
    query = case.program.rendered().duck
    _oracle().fill(_used(case))
    in_batch = _oracle().answer(query)
    on_a_stream = _oracle().answer(on_stream(query)) if on_stream(query) != query else in_batch
    for mode in case.modes:
        expected = in_batch if mode.name == "batch" else on_a_stream
        if mode.name == "upserts":
            expected = _with_key(case.program, expected)
        try:
            answer = _answer(case, mode)
        except Skipped:
            raise
        except Exception as e:
            return Difference(case, mode, f"{type(e).__name__}: {e}")
        if answer != expected and not (answer == in_batch and _has_aggregate_over_no_rows(case, mode)):
            return Difference(case, mode, f"too many here {dict(answer - expected)}, missing {dict(expected - answer)}")
    return None


def smallest(original: Difference) -> Difference:
    """Return a difference of the same kind with few operators and rows, found by a short search."""
    case = replace(original.case, modes=(original.mode,))
    best = replace(original, case=case)
    shrinking = True
    while shrinking:
        shrinking = False
        for candidate in _smaller(best.case):
            try:
                smaller_difference = difference(candidate)
            except Skipped:
                continue
            if smaller_difference is not None and _kind(smaller_difference) == _kind(original):
                best, shrinking = smaller_difference, True
                break
    return best


def _kind(difference: Difference) -> str:
    return difference.summary.split(" ")[0]


def _smaller(case: Case) -> Iterator[Case]:
    for program in (*case.program.inputs, *case.program.smaller()):
        if program.depth <= case.program.depth and len(program.rendered().flink) < len(case.program.rendered().flink):
            yield replace(case, program=program)
    for table in _used(case):
        for candidate in table.smaller():
            yield replace(case, tables={**case.tables, table.name: candidate})
    mode = case.modes[0]
    if mode.epochs is not None:
        yield replace(case, modes=(replace(mode, epochs=None, batch_rows=1000),))
    if mode.parallelism > 1:
        yield replace(case, modes=(replace(mode, parallelism=mode.parallelism - 1),))


def _used(case: Case) -> list[Table]:
    words = set(case.program.rendered().flink.replace(".", " ").replace(")", " ").replace(",", " ").split())
    return [t for t in case.tables.values() if t.name in words]


# --- DuckDB


class Oracle:
    """DuckDB with the tables of one case."""

    def __init__(self) -> None:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "default_null_order": "nulls_first_on_asc_last_on_desc",
            "threads": 1,
        }
        self._database = duckdb.connect(config=settings)
        self._database.execute(_HALF_UP)

    def fill(self, tables: Iterable[Table]) -> None:
        """Load the rows of tables."""
        for table in tables:
            definition = TABLES[table.name]
            columns = ", ".join(f"{name} {TYPES[kind][1]}" for name, kind in definition.columns.items())
            self._make(table.name, columns, table.final_rows())
            if table.name == "v":
                history = [(*row, kind is RowKind.DELETE) for kind, row in table.changes]
                self._make("v_history", f"{columns}, is_deleted BOOLEAN", history)
                self._database.execute(_UNTIL)

    def _make(self, name: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
        self._database.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")
        if rows:
            marks = f"({', '.join('?' * len(rows[0]))})"
            self._database.execute(
                f"INSERT INTO {name} VALUES {', '.join([marks] * len(rows))}", [v for r in rows for v in r]
            )

    def answer(self, query: str) -> Answer:
        """Return the rows of a query."""
        try:
            rows = self._database.execute(query).fetchmany(_MAX_ROWS + 1)
        except (duckdb.OutOfRangeException, duckdb.ConversionException, duckdb.InvalidInputException) as e:
            raise Skipped(str(e)) from e
        if len(rows) > _MAX_ROWS:
            raise Skipped("too many rows")
        return Counter(tuple(map(_plain, row)) for row in rows)


@cache
def _oracle() -> Oracle:
    return Oracle()


def _plain(value: Any) -> Any:
    return value.normalize() + 0 if isinstance(value, Decimal) else value


# --- Millstream


def _answer(case: Case, mode: Mode) -> Answer:
    if mode.name == "upserts":
        return _upserted(case, mode)
    changes = _changes(case, mode)
    if mode.name == "row by row":
        at_once = _changes(case, Mode("streaming"))
        if [(row.get_row_kind(), tuple(row)) for row in changes] != [(r.get_row_kind(), tuple(r)) for r in at_once]:
            raise AssertionError(f"the changes {changes} are {at_once} if all rows arrive at once")
    return _final_rows(changes)


def _environment(case: Case, mode: Mode) -> tuple[LocalEnvironment, StreamTableEnvironment]:
    env = LocalEnvironment()
    env.set_parallelism(mode.parallelism)
    batch = mode.name == "batch"
    settings = EnvironmentSettings.in_batch_mode() if batch else EnvironmentSettings.in_streaming_mode()
    t_env = StreamTableEnvironment.create(env, settings)
    if mode.name == "mini-batch":
        for key, value in (("enabled", "true"), ("allow-latency", "1 s"), ("size", "5")):
            t_env.get_config().set(f"table.exec.mini-batch.{key}", value)
    for table in _used(case):
        _declare(t_env, table, mode)
    return env, t_env


def _changes(case: Case, mode: Mode) -> list[Row]:
    """Return the changelog of a program."""
    env, t_env = _environment(case, mode)
    return _run(env, t_env, case.program.rendered().flink, mode)


def _has_aggregate_over_no_rows(case: Case, mode: Mode) -> bool:
    """Return whether the query alone makes an aggregate's input empty: a stream emits its row then, too."""
    _, t_env = _environment(case, mode)
    _, plan = t_env.explain_sql(case.program.rendered().flink).split("== Optimized Execution Plan ==")
    return "Values(tuples=[[{" in plan


def _declare(t_env: StreamTableEnvironment, table: Table, mode: Mode) -> None:
    if mode.name == "batch":
        source = ValuesTable(table.final_rows(), batch_rows=mode.batch_rows, subtasks=mode.parallelism)
    else:
        # Changes of a row are ordered, which requires a single subtask.
        subtasks = mode.parallelism if table.definition.changes == "inserts" else 1
        source = ValuesTable(table.rows(), table.mode(), batch_rows=mode.batch_rows, subtasks=subtasks)
    t_env.execute_sql(f"CREATE TABLE {table.name} ({table.declaration()}) WITH {source.options}")


def _run(env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, query: str, mode: Mode) -> list[Row]:
    sink = CollectSink()
    table = t_env.sql_query(query)
    stream = t_env.to_data_stream(table) if mode.name == "batch" else t_env.to_changelog_stream(table)
    stream.sink_to(sink).set_parallelism(1)
    r = random.Random(mode.epochs)
    row_by_row = mode.name == "row by row"
    job = LocalJob(env, epoch_sizes=None if mode.epochs is None else lambda: 1 if row_by_row else r.randint(1, 4))
    while not job.is_finished:
        job.run_epoch()
        if row_by_row:
            # Restart all processes after each row.
            job.restart_slots()
    return sink.results()


def _key_positions(program: Relation) -> list[int]:
    return [index for index, c in enumerate(program.columns) if c.name in program.key]


def _with_key(program: Relation, rows: Answer) -> Answer:
    """Return the rows that a table with a primary key accepts."""
    positions = _key_positions(program)
    result = Counter({row: n for row, n in rows.items() if all(row[p] is not None for p in positions)})
    if len({tuple(row[p] for p in positions) for row in result}) < result.total():
        raise Skipped("a smaller program has not the key of the larger one")
    return result


def _upserted(case: Case, mode: Mode) -> Answer:
    """Write a program's rows as upserts to a table with a primary key, and return its rows."""
    _, t_env = _environment(case, mode)
    program = case.program
    sink = ValuesTable((), ChangelogMode.upsert())
    columns = ", ".join(f"{c.name} {TYPES[c.kind][0]}" for c in program.columns)
    key = ", ".join(program.key)
    t_env.execute_sql(f"CREATE TABLE o ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH {sink.options}")
    tests = " AND ".join(f"{name} IS NOT NULL" for name in program.key)
    t_env.execute_sql(f"INSERT INTO o SELECT * FROM ({program.rendered().flink}) AS program WHERE {tests}").wait()
    positions = _key_positions(program)
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in sink.results():
        values = tuple(map(_plain, row))
        name = tuple(values[p] for p in positions)
        if row.get_row_kind() is RowKind.DELETE:
            if name not in rows:
                raise AssertionError(f"the row of key {name} is deleted, but does not exist")
            del rows[name]
        else:
            rows[name] = values
    return Counter(rows.values())


def _final_rows(rows: Iterable[Row]) -> Answer:
    counts: Answer = Counter()
    for row in rows:
        counts[tuple(map(_plain, row))] += -1 if row.get_row_kind().name in ("UPDATE_BEFORE", "DELETE") else 1
    if any(n < 0 for n in counts.values()):
        raise AssertionError(f"retracted rows do not exist: {dict(-counts)}")
    return +counts


def is_refused(difference: Difference) -> bool:
    """Return whether Millstream rejected a program with an error message."""
    return difference.summary.startswith((TableException.__name__, ValidationException.__name__))

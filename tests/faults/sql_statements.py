"""Jobs of many SQL statements, each with SQLite's result for the same numbers.

Several sources emit consecutive numbers; SQLite has them as tables of the same names, in which a row's time is its
number. So most queries are their own oracle: SQLite executes the same text.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.job import environment

from millstream.common import Configuration, Row, RowKind, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.table import Schema, StatementSet, StreamTableEnvironment, Table
from millstream.table.changelog_mode import ChangelogMode

# They start above 0, because some operators of Flink treat the time 0 as missing.
FIRST, RECORDS, KEYS, RATE = 400, 1200, 11, 1200
# Keys of the lookup table; the numbers have more keys.
LOOKUP_KEYS = 8

Fact = tuple[Any, ...]
TableQuery = str | Callable[[StreamTableEnvironment], Table]

# Each of them is a separate source; one subtask reads `ones`, so that its rows are in order.
_NUMBERS = """CREATE TABLE {0} (
    n BIGINT, k AS n % {keys}, g AS n % 100, v AS n * 7919 % 1009, at_time AS TO_TIMESTAMP_LTZ(n, 3), p AS PROCTIME(),
    WATERMARK FOR at_time AS at_time
) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}'{more},
    'fields.n.kind' = 'sequence', 'fields.n.start' = '{first}', 'fields.n.end' = '{last}')"""
_TABLES = {"ns": "", "ms": "", "ones": ", 'scan.parallelism' = '1'"}
_VIEWS = (
    "CREATE TEMPORARY VIEW evens AS SELECT * FROM ns WHERE n % 2 = 0",
    "CREATE TEMPORARY VIEW thirds AS SELECT * FROM ms WHERE n % 3 = 0",
    "CREATE TEMPORARY VIEW rare AS SELECT * FROM ms WHERE n % 15 = 0",
    # From rows in order: a row older than the last one of its key is no version, as in Flink.
    """CREATE TEMPORARY VIEW last_thirds AS SELECT k, n, at_time FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at_time DESC) AS rn FROM ones WHERE n % 3 = 0)
        WHERE rn = 1""",
    # Bursts of 50 numbers, with pauses of the same length.
    "CREATE TEMPORARY VIEW bursts AS SELECT * FROM ns WHERE n / 50 % 2 = 0",
)
# The final rows of `upserts`, as SQLite computes them from all its messages.
LATEST_UPSERTS = """SELECT k, w FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY n DESC) AS rn FROM upserts)
    WHERE rn = 1 AND NOT is_deletion"""
_ORACLE_NUMBERS = f"SELECT n, n % {KEYS} AS k, n % 100 AS g, n * 7919 % 1009 AS v, n AS at_time, n AS p FROM numbers"


@dataclass(frozen=True)
class Statement:
    """A query, the operator that it tests, and its SQLite equivalent.

    Attributes:
        query: in SQL, or a function that creates a table; all its columns are integers.
        operator: the operator's name in its EXPLAIN output.
        answer: the same in SQLite; None if the text is the same.
        settings: of the table environment that plans it.
        key: the number of primary key columns of its table in SQLite; 0 for files, where every change counts.
    """

    query: TableQuery
    operator: str
    answer: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    key: int = 0

    def oracle_text(self) -> str:
        """Return the statement for SQLite."""
        if self.answer is not None:
            return self.answer
        assert isinstance(self.query, str)
        return self.query


class SqlJob:
    """A job of statements.

    Args:
        statements: by the names of their target tables.
    """

    def __init__(self, statements: Mapping[str, Statement]) -> None:
        self.statements = statements

    def build(self, directory: Path, config: Configuration) -> StreamExecutionEnvironment:
        """Return an environment with the job."""
        env = environment(directory, config)
        self.add_to(env, directory)
        return env

    def add_to(self, env: StreamExecutionEnvironment, directory: Path) -> None:
        """Add the job to an environment."""
        t_env = self._table_environment(env, directory)
        settings = [dict(s) for s in {tuple(sorted(s.settings.items())) for s in self.statements.values()}]
        for group_settings in sorted(settings, key=str):
            names = [name for name, statement in self.statements.items() if dict(statement.settings) == group_settings]
            with _set(t_env, group_settings):
                self._statement_set(t_env, names).attach_as_datastream()

    def plans(self, env: StreamExecutionEnvironment, directory: Path) -> dict[str, str]:
        """Return each statement's EXPLAIN output."""
        t_env, plans = self._table_environment(env, directory), {}
        for name, statement in self.statements.items():
            with _set(t_env, statement.settings):
                plans[name] = self._statement_set(t_env, [name]).explain()
        return plans

    def _table_environment(self, env: StreamExecutionEnvironment, directory: Path) -> StreamTableEnvironment:
        t_env = StreamTableEnvironment.create(env)
        _declare(env, t_env, directory)
        self._declare_sinks(t_env, directory)
        return t_env

    def _statement_set(self, t_env: StreamTableEnvironment, names: Sequence[str]) -> StatementSet:
        statements = t_env.create_statement_set()
        for name in names:
            query = self.statements[name].query
            statements.add_insert(name, t_env.sql_query(query) if isinstance(query, str) else query(t_env))
        return statements

    def _declare_sinks(self, t_env: StreamTableEnvironment, directory: Path) -> None:
        with closing(sqlite3.connect(directory / "tables.db")) as database:
            for name, statement in self.statements.items():
                names = [f"c{i}" for i in range(_width(statement))]
                columns = ", ".join(f"{c} BIGINT" for c in names)
                key = ", ".join(names[: statement.key])
                if statement.key:
                    database.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns}, PRIMARY KEY ({key}))")
                    columns += f", PRIMARY KEY ({key}) NOT ENFORCED"
                    where = f"'connector' = 'jdbc', 'url' = '{_url(directory)}', 'table-name' = '{name}'"
                else:
                    path = directory / name
                    where = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'debezium-json'"
                t_env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({where})")

    def expected(self) -> Counter[Fact]:
        """Return SQLite's results."""
        with closing(_oracle()) as database:
            return Counter(
                (name, *row)
                for name, statement in self.statements.items()
                for row in database.execute(statement.oracle_text())
            )

    def results(self, directory: Path) -> Counter[Fact]:
        """Return the final rows of the changes in finished files, and the rows of the tables."""
        facts: Counter[Fact] = Counter()
        for name, statement in self.statements.items():
            if statement.key:
                with closing(sqlite3.connect(directory / "tables.db")) as database:
                    facts.update((name, *row) for row in database.execute(f"SELECT * FROM {name}"))
                continue
            for row, more in _changes(directory / name):
                facts[(name, *row)] += more
        return Counter({fact: count for fact, count in facts.items() if count})


@contextmanager
def _set(t_env: StreamTableEnvironment, settings: Mapping[str, str]) -> Iterator[None]:
    for key, value in settings.items():
        t_env.execute_sql(f"SET '{key}' = '{value}'")
    yield
    for key in settings:
        t_env.execute_sql(f"RESET '{key}'")


def _changes(directory: Path) -> Iterator[tuple[Fact, int]]:
    for path in directory.glob("part-*"):
        for change in map(json.loads, path.read_text().splitlines()):
            row = change["after"] or change["before"]
            yield tuple(row.values()), 1 if change["op"] == "c" else -1


# --- sources


def _declare(env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, directory: Path) -> None:
    """Declare the tables of the statements; unused ones are not read."""
    t_env.get_config().set("table.local-time-zone", "UTC")
    for name, more in _TABLES.items():
        t_env.execute_sql(_NUMBERS.format(name, keys=KEYS, rate=RATE, more=more, first=FIRST, last=FIRST + RECORDS - 1))
    for view in _VIEWS:
        t_env.execute_sql(view)
    _declare_changes(env, t_env, "versions", _version)
    _declare_changes(env, t_env, "upserts", _upsert)
    with closing(sqlite3.connect(directory / "tables.db")) as database:
        database.execute("CREATE TABLE IF NOT EXISTS lookup_table (k BIGINT PRIMARY KEY, w BIGINT)")
        database.executemany("INSERT OR REPLACE INTO lookup_table VALUES (?, ?)", _lookup_rows())
        database.commit()
    t_env.execute_sql(
        "CREATE TABLE lookup_table (k BIGINT, w BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'jdbc', "
        f"'url' = '{_url(directory)}', 'table-name' = 'lookup_table')"
    )


def _declare_changes(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, name: str, change: Callable[[int], Row]
) -> None:
    """Declare an upsert table from a source with one subtask."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n)
    source = DataGeneratorSource(lambda i: FIRST + i, RECORDS, RATE)
    numbers = env.from_source(source, strategy, name, Types.LONG()).uid(f"numbers of {name}").set_parallelism(1)
    kind = Types.ROW_NAMED(["k", "w"], [Types.LONG(), Types.LONG()])
    changes = numbers.map(change, kind).uid(name).set_parallelism(1)
    schema = (
        Schema.new_builder()
        .column("k", "BIGINT NOT NULL")
        .column("w", "BIGINT")
        .column_by_metadata("at_time", "TIMESTAMP_LTZ(3)", "rowtime")
        .watermark("at_time", "SOURCE_WATERMARK()")
        .primary_key("k")
        .build()
    )
    t_env.create_temporary_view(name, t_env.from_changelog_stream(changes, schema, ChangelogMode.upsert()))


def _version(n: int) -> Row:
    row = Row(n // 7 % KEYS, n)
    row.set_row_kind(RowKind.UPDATE_AFTER)
    return row


def _upsert(n: int) -> Row:
    """Return a row that updates or deletes the row of its key."""
    row = Row(n % 100, n)
    row.set_row_kind(RowKind.DELETE if n % 29 == 0 else RowKind.UPDATE_AFTER)
    return row


def _lookup_rows() -> list[tuple[int, int]]:
    return [(k, k * 100 + 7) for k in range(LOOKUP_KEYS)]


def _url(directory: Path) -> str:
    return f"jdbc:sqlite:{directory / 'tables.db'}"


def _width(statement: Statement) -> int:
    """Return the number of columns of a result."""
    with closing(_oracle(0)) as database:
        return len(database.execute(statement.oracle_text()).description)


def _oracle(records: int = RECORDS) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")
    database.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(FIRST, FIRST + records)])
    for name in _TABLES:
        # Tables, because SQLite would recompute a view for each row of another table.
        database.execute(f"CREATE TABLE {name} AS {_ORACLE_NUMBERS}")
        database.execute(f"CREATE INDEX {name}_k ON {name} (k, n)")
    for view in _VIEWS:
        database.execute(view)
    database.execute(f"CREATE TABLE versions AS SELECT n, n / 7 % {KEYS} AS k, n AS w FROM numbers")
    database.execute("CREATE TABLE upserts AS SELECT n, n % 100 AS k, n AS w, n % 29 = 0 AS is_deletion FROM numbers")
    database.execute("CREATE TABLE lookup_table (k BIGINT PRIMARY KEY, w BIGINT)")
    database.executemany("INSERT INTO lookup_table VALUES (?, ?)", _lookup_rows())
    return database

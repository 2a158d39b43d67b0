"""Jobs of many SQL statements, each with the answer that SQLite gives for the same numbers.

Numbers, one after the other, come from several sources; SQLite has them as tables of the same names, in which a row's
time is its number. So most queries are their own oracle: SQLite is asked the same text.
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

# They begin where a time is not that of 1970, which for some operators of Flink is as if there had been none.
FIRST, RECORDS, KEYS, RATE = 400, 1200, 11, 1200
# Keys of what is looked up; those of numbers are more.
LOOKED_UP = 8

Fact = tuple[Any, ...]
Asked = str | Callable[[StreamTableEnvironment], Table]

# Each of them a source of its own; `ones` is read by one subtask, so that its rows come in order.
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
    # Of rows in order: one that comes behind a later one of its key is no version, in Flink either.
    """CREATE TEMPORARY VIEW last_thirds AS SELECT k, n, at_time FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at_time DESC) AS rn FROM ones WHERE n % 3 = 0)
        WHERE rn = 1""",
    # Numbers come in bursts of 50 with a pause as long.
    "CREATE TEMPORARY VIEW bursts AS SELECT * FROM ns WHERE n / 50 % 2 = 0",
)
# The rows that `upserts` has at the end, as SQLite finds them in all that was said.
UPSERTED = """SELECT k, w FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY n DESC) AS rn FROM upserts)
    WHERE rn = 1 AND NOT is_deletion"""
_SAID = f"SELECT n, n % {KEYS} AS k, n % 100 AS g, n * 7919 % 1009 AS v, n AS at_time, n AS p FROM numbers"


@dataclass(frozen=True)
class Statement:
    """A query, the operator that it tests, and its SQLite equivalent.

    Attributes:
        query: in SQL, or a function that makes a table; all its columns are whole numbers.
        operator: the operator's name in its EXPLAIN output.
        answer: the same in SQLite; None where the text is the same.
        settings: with which it is planned.
        key: how many columns are the primary key of a table of SQLite's that it changes; 0 where every change goes
            into files.
    """

    query: Asked
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
        statements: by the name of the table each writes to.
    """

    def __init__(self, statements: Mapping[str, Statement]) -> None:
        self.statements = statements

    def build(self, directory: Path, config: Configuration) -> StreamExecutionEnvironment:
        """Return an environment with the job in it."""
        env = environment(directory, config)
        self.add_to(env, directory)
        return env

    def add_to(self, env: StreamExecutionEnvironment, directory: Path) -> None:
        """Add the job to an environment."""
        t_env = self._declared(env, directory)
        settings = [dict(s) for s in {tuple(sorted(s.settings.items())) for s in self.statements.values()}]
        for chosen in sorted(settings, key=str):
            names = [name for name, statement in self.statements.items() if dict(statement.settings) == chosen]
            with _set(t_env, chosen):
                self._together(t_env, names).attach_as_datastream()

    def plans(self, env: StreamExecutionEnvironment, directory: Path) -> dict[str, str]:
        """Return each statement's EXPLAIN output."""
        t_env, reported = self._declared(env, directory), {}
        for name, statement in self.statements.items():
            with _set(t_env, statement.settings):
                reported[name] = self._together(t_env, [name]).explain()
        return reported

    def _declared(self, env: StreamExecutionEnvironment, directory: Path) -> StreamTableEnvironment:
        t_env = StreamTableEnvironment.create(env)
        _declare(env, t_env, directory)
        self._declare_sinks(t_env, directory)
        return t_env

    def _together(self, t_env: StreamTableEnvironment, names: Sequence[str]) -> StatementSet:
        together = t_env.create_statement_set()
        for name in names:
            query = self.statements[name].query
            together.add_insert(name, t_env.sql_query(query) if isinstance(query, str) else query(t_env))
        return together

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
    """Declare what statements read; nothing of it is read that none asks for."""
    t_env.get_config().set("table.local-time-zone", "UTC")
    for name, more in _TABLES.items():
        t_env.execute_sql(_NUMBERS.format(name, keys=KEYS, rate=RATE, more=more, first=FIRST, last=FIRST + RECORDS - 1))
    for view in _VIEWS:
        t_env.execute_sql(view)
    _declare_changes(env, t_env, "versions", _version)
    _declare_changes(env, t_env, "upserts", _upsert)
    with closing(sqlite3.connect(directory / "tables.db")) as database:
        database.execute("CREATE TABLE IF NOT EXISTS looked_up (k BIGINT PRIMARY KEY, w BIGINT)")
        database.executemany("INSERT OR REPLACE INTO looked_up VALUES (?, ?)", _looked_up())
        database.commit()
    t_env.execute_sql(
        "CREATE TABLE looked_up (k BIGINT, w BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'jdbc', "
        f"'url' = '{_url(directory)}', 'table-name' = 'looked_up')"
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
    """Return a row that updates or deletes that of its key."""
    row = Row(n % 100, n)
    row.set_row_kind(RowKind.DELETE if n % 29 == 0 else RowKind.UPDATE_AFTER)
    return row


def _looked_up() -> list[tuple[int, int]]:
    return [(k, k * 100 + 7) for k in range(LOOKED_UP)]


def _url(directory: Path) -> str:
    return f"jdbc:sqlite:{directory / 'tables.db'}"


def _width(statement: Statement) -> int:
    """Return how many columns an answer has."""
    with closing(_oracle(0)) as database:
        return len(database.execute(statement.oracle_text()).description)


def _oracle(records: int = RECORDS) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")
    database.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(FIRST, FIRST + records)])
    for name in _TABLES:
        # Tables, since SQLite would recompute a view for each row of another.
        database.execute(f"CREATE TABLE {name} AS {_SAID}")
        database.execute(f"CREATE INDEX {name}_k ON {name} (k, n)")
    for view in _VIEWS:
        database.execute(view)
    database.execute(f"CREATE TABLE versions AS SELECT n, n / 7 % {KEYS} AS k, n AS w FROM numbers")
    database.execute("CREATE TABLE upserts AS SELECT n, n % 100 AS k, n AS w, n % 29 = 0 AS is_deletion FROM numbers")
    database.execute("CREATE TABLE looked_up (k BIGINT PRIMARY KEY, w BIGINT)")
    database.executemany("INSERT INTO looked_up VALUES (?, ?)", _looked_up())
    return database

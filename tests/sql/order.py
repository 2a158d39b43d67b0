"""Random changelogs through every operator into every kind of sink; the sink's rows are compared with SQLite's.

    python -m tests.sql.order [--count 2000] [--seed 0]     (`make sql-order`)

Rows of two tables are inserted, updated and deleted at random, with changing group and join keys. A query over them
runs in 1 to 4 subtasks, with random epoch boundaries and process restarts; some jobs are rescaled. If the changes of
one key reach a sink out of order, the sink has too many or too few rows.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.common import Row, RowKind, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import ChangelogMode, Schema, StreamTableEnvironment
from millstream.testing import CollectSink, LocalJob, TestingSource, ValuesTable
from millstream.testing.local_job import MemoryStorage

COLUMNS = "id BIGINT, g BIGINT, v BIGINT"
KEYED = f"{COLUMNS}, PRIMARY KEY (id) NOT ENFORCED"
_REMOVALS = (RowKind.UPDATE_BEFORE, RowKind.DELETE)
_TYPE = Types.ROW_NAMED(["id", "g", "v"], [Types.LONG()] * 3)
Values = tuple[Any, ...]
Changes = list[tuple[RowKind, Values]]


@dataclass(frozen=True)
class Query:
    """A query over t and u, and a table for its rows.

    Args:
        text: the query; its columns are named as those of the table.
        columns: of the table.
        key: its primary key.
        settings: of the table environment.
    """

    text: str
    columns: str
    key: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def key_positions(self) -> list[int]:
        """The positions of the primary key columns."""
        names = [column.split()[0] for column in self.columns.split(", ")]
        return [names.index(name) for name in self.key.split(", ")]


_ROW, _PAIR = "id BIGINT NOT NULL, g BIGINT, v BIGINT", "id BIGINT NOT NULL, g BIGINT, v BIGINT, w BIGINT"
_GROUP, _BOTH = "g BIGINT NOT NULL, n BIGINT, s BIGINT", "g BIGINT NOT NULL, v BIGINT NOT NULL"
_RANKED = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v DESC, id) AS rn FROM t)"
_COUNTS = "SELECT g, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY g"
_UNION = "SELECT id, g, v FROM t UNION ALL SELECT id + 100 AS id, g, v FROM u"
_TWO_PHASES = (
    ("table.exec.mini-batch.enabled", "true"),
    ("table.exec.mini-batch.allow-latency", "1 s"),
    ("table.exec.mini-batch.size", "3"),
)

QUERIES: dict[str, Query] = {
    "rows": Query("SELECT id, g, v FROM t", _ROW, "id"),
    "filter": Query("SELECT id, g, v FROM t WHERE v > 2", _ROW, "id"),
    "filter-by-key": Query("SELECT id, g, v FROM t WHERE id > 2", _ROW, "id"),
    "filters": Query("SELECT id, g, v FROM t WHERE v > 1 AND id < 6 AND g <> v", _ROW, "id"),
    "larger-key": Query("SELECT id, g, v FROM t", "id BIGINT NOT NULL, g BIGINT NOT NULL, v BIGINT", "id, g"),
    "groups": Query(_COUNTS, _GROUP, "g"),
    "groups-in-two-phases": Query(_COUNTS, _GROUP, "g", _TWO_PHASES),
    "having": Query(f"{_COUNTS} HAVING COUNT(*) > 1", _GROUP, "g"),
    "groups-of-groups": Query(
        "SELECT n AS g, COUNT(*) AS n, SUM(s) AS s FROM (SELECT g, COUNT(*) AS n, MAX(v) AS s FROM t GROUP BY g) "
        "GROUP BY n",
        _GROUP,
        "g",
    ),
    "top-n": Query(f"SELECT id, g, v FROM {_RANKED} WHERE rn <= 2", _ROW, "id"),
    "top-1": Query(f"SELECT id, g, v FROM {_RANKED} WHERE rn = 1", _ROW, "id"),
    "top-1-of-group": Query(f"SELECT g, id AS n, v AS s FROM {_RANKED} WHERE rn = 1", _GROUP, "g"),
    "ranks": Query(
        f"SELECT g, rn, id AS n FROM {_RANKED} WHERE rn <= 3",
        "g BIGINT NOT NULL, rn BIGINT NOT NULL, n BIGINT",
        "g, rn",
    ),
    "first-groups": Query(f"SELECT * FROM ({_COUNTS}) ORDER BY n DESC, g LIMIT 2", _GROUP, "g"),
    "first-group": Query(f"SELECT * FROM ({_COUNTS}) ORDER BY g LIMIT 1", _GROUP, "g"),
    "join": Query("SELECT t.id, t.g, t.v, u.v AS w FROM t JOIN u ON t.g = u.id", _PAIR, "id"),
    "join-by-key": Query("SELECT t.id, t.g, t.v, u.v AS w FROM t JOIN u ON t.id = u.id", _PAIR, "id"),
    "join-under-condition": Query(
        "SELECT t.id, t.g, t.v, u.v AS w FROM t JOIN u ON t.id = u.id AND t.v < u.v", _PAIR, "id"
    ),
    "join-by-more-than-key": Query(
        "SELECT t.id, t.g, t.v, u.v AS w FROM t JOIN u ON t.id = u.id AND t.g = u.g", _PAIR, "id"
    ),
    "left-join": Query("SELECT t.id, t.g, t.v, u.v AS w FROM t LEFT JOIN u ON t.g = u.id", _PAIR, "id"),
    "left-join-by-key": Query("SELECT t.id, t.g, t.v, u.v AS w FROM t LEFT JOIN u ON t.id = u.id", _PAIR, "id"),
    "full-join-by-key": Query(
        "SELECT COALESCE(t.id, u.id) AS id, t.g, t.v, u.v AS w FROM t FULL JOIN u ON t.id = u.id", _PAIR, "id"
    ),
    "join-of-groups": Query(
        "SELECT a.g AS id, a.n AS g, b.n AS v FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) AS a LEFT JOIN "
        "(SELECT g, COUNT(*) AS n FROM u GROUP BY g) AS b ON a.g = b.g",
        _ROW,
        "id",
    ),
    "exists": Query("SELECT id, g, v FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.g = t.g)", _ROW, "id"),
    "not-exists": Query("SELECT id, g, v FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.g = t.g)", _ROW, "id"),
    "union-all": Query(_UNION, _ROW, "id"),
    "union-all-and-filter": Query(f"SELECT id, g, v + 1 AS v FROM ({_UNION}) AS x WHERE v > 1", _ROW, "id"),
    "union-all-with-one-group": Query(
        "SELECT id, g, v FROM t UNION ALL SELECT 1000 AS id, COUNT(*) AS g, SUM(v) AS v FROM t HAVING COUNT(*) > 0",
        _ROW,
        "id",
    ),
    "groups-of-union-all": Query(f"SELECT g, COUNT(*) AS n, SUM(v) AS s FROM ({_UNION}) AS x GROUP BY g", _GROUP, "g"),
    "union": Query("SELECT g, v FROM t UNION SELECT g, v FROM u", _BOTH, "g, v"),
    "intersect": Query("SELECT g, v FROM t INTERSECT SELECT g, v FROM u", _BOTH, "g, v"),
    "except": Query("SELECT g, v FROM t EXCEPT SELECT g, v FROM u", _BOTH, "g, v"),
    "over": Query(
        "SELECT id, g, SUM(v) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS v "
        "FROM t",
        _ROW,
        "id",
    ),
    "distinct": Query("SELECT g, COUNT(DISTINCT v) AS n, MIN(v) AS s FROM t GROUP BY g", _GROUP, "g"),
    "top-n-of-groups": Query(
        "SELECT g, n, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY n ORDER BY s DESC, g) AS rn FROM "
        f"({_COUNTS})) WHERE rn <= 2",
        _GROUP,
        "g",
    ),
    "top-n-then-join": Query(
        f"SELECT x.id, x.g, x.v, u.v AS w FROM (SELECT id, g, v FROM {_RANKED} WHERE rn <= 2) AS x LEFT JOIN u "
        "ON x.v = u.id",
        _PAIR,
        "id",
    ),
}
SOURCES = ("retract", "upsert", "files", "stream", "upsert-stream")
SINKS = ("upsert", "retract", "keyed-retract", "jdbc", "files", "stream")


class Difference(Exception):
    """A sink's rows differ from the expected rows."""


def changelog(r: random.Random, count: int) -> Changes:
    """Return random changes of a table whose key is its first column."""
    live: dict[int, Values] = {}
    changes: Changes = []
    for _ in range(count):
        key = r.randrange(8)
        row = (key, r.randrange(4), r.randrange(6))
        old = live.get(key)
        if old is None:
            changes.append((RowKind.INSERT, row))
        elif r.random() < 0.25:
            changes.append((RowKind.DELETE, live.pop(key)))
            continue
        else:
            changes += [(RowKind.UPDATE_BEFORE, old), (RowKind.UPDATE_AFTER, row)]
        live[key] = row
    return changes


def final_rows(changes: Iterable[tuple[RowKind, Values]]) -> Counter[Values]:
    """Return the final rows of a retract changelog."""
    counts: Counter[Values] = Counter()
    for kind, row in changes:
        counts[row] += -1 if kind in _REMOVALS else 1
        if counts[row] < 0:
            raise Difference(f"{row} is retracted before it is inserted")
    return +counts


def expected(query: Query, tables: dict[str, Changes]) -> Counter[Values]:
    """Return SQLite's rows."""
    with closing(sqlite3.connect(":memory:")) as oracle:
        for name, changes in tables.items():
            oracle.execute(f"CREATE TABLE {name} (id INTEGER, g INTEGER, v INTEGER)")
            oracle.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", final_rows(changes).elements())
        return Counter(oracle.execute(query.text).fetchall())


# --- sources


def _rows(changes: Changes) -> list[Row]:
    rows = []
    for kind, values in changes:
        row = Row(*values)
        row.set_row_kind(kind)
        rows.append(row)
    return rows


def as_upserts(changes: Changes) -> Changes:
    """Return changes as upserts."""
    return [(kind, row) for kind, row in changes if kind is not RowKind.UPDATE_BEFORE]


def debezium(changes: Changes) -> list[str]:
    """Return changes as Debezium writes them."""
    lines, before = [], None
    for kind, values in changes:
        row = dict(zip(("id", "g", "v"), values, strict=True))
        if kind is RowKind.UPDATE_BEFORE:
            before = row
        elif kind is RowKind.DELETE:
            lines.append({"before": row, "after": None, "op": "d"})
        else:
            lines.append({"before": before, "after": row, "op": "u" if before else "c"})
            before = None
    return [json.dumps(line) for line in lines]


def _declaration(changes: Changes, kind: str, r: random.Random, directory: Path) -> str:
    """Return the declaration of a table with these changes; its files are in a directory."""
    size = r.randrange(1, 4)
    if kind == "retract":
        options = ValuesTable(_rows(changes), ChangelogMode.all(), batch_rows=size).options
        return f"({r.choice([COLUMNS, KEYED])}) WITH {options}"
    if kind == "upsert":
        options = ValuesTable(_rows(as_upserts(changes)), ChangelogMode.upsert(), batch_rows=size).options
        return f"({KEYED}) WITH {options}"
    lines, parts = debezium(changes), r.randrange(1, 14)
    directory.mkdir()
    for part in range(parts):
        part_lines = lines[len(lines) * part // parts : len(lines) * (part + 1) // parts]
        (directory / f"part-{part}.json").write_text("".join(f"{line}\n" for line in part_lines))
    return f"({KEYED}) WITH ('connector' = 'filesystem', 'path' = '{directory}', 'format' = 'debezium-json')"


def _declare(
    env: StreamExecutionEnvironment, t_env: StreamTableEnvironment, name: str, changes: Changes, kind: str, text: str
) -> None:
    if text:
        t_env.execute_sql(f"CREATE TABLE {name} {text}")
    else:
        upserts = kind == "upsert-stream"
        source = TestingSource(_rows(as_upserts(changes) if upserts else changes), 1000)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), name).set_parallelism(1)
        typed_rows = stream.map(lambda row: row, _TYPE).set_parallelism(1)
        schema = Schema.new_builder().column("id", "BIGINT NOT NULL").column("g", "BIGINT").column("v", "BIGINT")
        mode = ChangelogMode.upsert() if upserts else ChangelogMode.all()
        schema = schema.primary_key("id") if upserts else schema
        t_env.create_temporary_view(name, t_env.from_changelog_stream(typed_rows, schema.build(), mode))


# --- sinks


def by_key(changes: Iterable[tuple[RowKind, Values]], key: Sequence[int]) -> Counter[Values]:
    """Return the final rows of changes that replace rows by key."""
    rows: dict[Values, Values] = {}
    for kind, row in changes:
        position = tuple(row[k] for k in key)
        if kind in _REMOVALS:
            rows.pop(position, None)
        else:
            rows[position] = row
    return Counter(rows.values())


def _of_files(directory: Path) -> Counter[Values]:
    """Return the final rows of changelog files; there is no order between files."""
    counts: Counter[Values] = Counter()
    for part in directory.rglob("*"):
        if part.is_file() and not part.name.startswith((".", "_")):
            for line in part.read_text().splitlines():
                change = json.loads(line)
                for side, sign in (("before", -1), ("after", 1)):
                    if change[side] is not None:
                        counts[tuple(change[side].values())] += sign
    if any(count < 0 for count in counts.values()):
        raise Difference(f"retracted and never inserted: {-counts}")
    return +counts


@dataclass(frozen=True)
class QuerySink:
    """The sink of a query.

    Args:
        declaration: of its table; empty for a sink of the DataStream API.
        read: returns its rows.
        sink: of the DataStream API.
        rescales: whether a rescaled job leaves nothing uncommitted in it.
    """

    declaration: str
    read: Callable[[], Counter[Values]]
    sink: CollectSink | None = None
    rescales: bool = True


class TableStorage:
    """The systems that store the tables.

    Args:
        directory: for the tables' files.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def source(self, name: str, changes: Changes, kind: str, r: random.Random) -> str:
        """Return the declaration of a table with these changes; empty for a stream."""
        return "" if kind.endswith("stream") else _declaration(changes, kind, r, self.directory / name)

    def sink(self, query: Query, kind: str, r: random.Random) -> QuerySink:
        """Return a sink for the rows of a query."""
        keyed = f"{query.columns}, PRIMARY KEY ({query.key}) NOT ENFORCED"
        if kind == "jdbc":
            return self._database(query, keyed)
        if kind == "files":
            out = self.directory / "out"
            options = f"('connector' = 'filesystem', 'path' = '{out}', 'format' = 'debezium-json')"
            return QuerySink(f"({query.columns}) WITH {options}", lambda: _of_files(out), rescales=False)
        if kind == "stream":
            stream = CollectSink()
            return QuerySink("", lambda: final_rows(_results(stream)), stream)
        table = ValuesTable((), ChangelogMode.upsert() if kind == "upsert" else ChangelogMode.all())
        declaration = f"({query.columns if kind == 'retract' else keyed}) WITH {table.options}"
        if kind == "upsert":
            return QuerySink(declaration, lambda: by_key(_results(table), query.key_positions))
        return QuerySink(declaration, lambda: final_rows(_results(table)))

    def _database(self, query: Query, keyed: str) -> QuerySink:
        file = self.directory / "o.db"
        with closing(sqlite3.connect(str(file))) as database:
            database.execute(f"CREATE TABLE o ({query.columns}, PRIMARY KEY ({query.key}))")

        def read() -> Counter[Values]:
            with closing(sqlite3.connect(str(file))) as database:
                return Counter(database.execute("SELECT * FROM o").fetchall())

        return QuerySink(
            f"({keyed}) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{file}', 'table-name' = 'o')", read
        )


def _results(table: ValuesTable | CollectSink) -> Changes:
    return [(row.get_row_kind(), tuple(row)) for row in table.results()]


# --- runs


class Run:
    """A query over random changes, run to the end.

    Args:
        name: of the query.
        source, sink: their kinds.
        seed: of all random choices.
        changes: the approximate number of changes per table.
        storage: the systems that store the tables.
    """

    def __init__(self, name: str, source: str, sink: str, seed: int, changes: int, table_storage: TableStorage) -> None:
        self._random = r = random.Random(f"{name} {source} {sink} {seed}")
        self.query, self._source = QUERIES[name], source
        self.tables = {"t": changelog(r, changes), "u": changelog(r, changes)}
        self._declarations = {n: table_storage.source(n, c, source, r) for n, c in self.tables.items()}
        self._query_sink = table_storage.sink(self.query, sink, r)

    def _program(self, parallelism: int) -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
        t_env = StreamTableEnvironment.create(env)
        for key, value in self.query.settings:
            t_env.get_config().set(key, value)
        for name, changes in self.tables.items():
            _declare(env, t_env, name, changes, self._source, self._declarations[name])
        if self._query_sink.sink is None:
            t_env.execute_sql(f"CREATE TABLE o {self._query_sink.declaration}")
            t_env.create_statement_set().add_insert_sql(f"INSERT INTO o {self.query.text}").attach_as_datastream()
        else:
            t_env.to_changelog_stream(t_env.sql_query(self.query.text)).sink_to(self._query_sink.sink)
        return env

    def run(self, parallelism: int) -> None:
        """Run the job to its end."""
        r = self._random
        max_changes, restarts, rescales = r.choice([1, 5, 100]), r.choice([0.0, 0.3]), r.choice([0.0, 0.1])
        rescales *= self._query_sink.rescales
        storage = MemoryStorage()
        job = LocalJob(self._program(parallelism), epoch_sizes=lambda: r.randint(1, max_changes), storage=storage)
        while not job.is_finished:
            job.run_epoch()
            if r.random() < restarts:
                job.restart_slots()
            if r.random() < rescales and not job.is_finished:
                snapshot = job.snapshot()
                job.close()
                program = self._program(r.randint(1, 4))
                job = LocalJob(
                    program, epoch_sizes=lambda: r.randint(1, max_changes), snapshot=snapshot, storage=storage
                )
        job.close()

    def compare(self) -> None:
        """Raise Difference if the sink's rows differ from SQLite's."""
        actual = self._query_sink.read()
        expected_rows = expected(self.query, self.tables)
        if actual != expected_rows:
            raise Difference(f"too many {actual - expected_rows}, missing {expected_rows - actual}")


def check(
    name: str,
    source: str,
    sink: str,
    parallelism: int,
    seed: int,
    changes: int = 30,
    table_storage: Callable[[Path], TableStorage] = TableStorage,
) -> None:
    """Run a query over random changes; raise Difference if the result differs from SQLite's."""
    with tempfile.TemporaryDirectory() as directory:
        run = Run(name, source, sink, seed, changes, table_storage(Path(directory)))
        try:
            run.run(parallelism)
            run.compare()
        except Difference as e:
            raise Difference(f"{name}, {source} to {sink}, parallelism {parallelism}, seed {seed}: {e}") from None


def cases(
    seed: int, count: int, sources: Sequence[str] = SOURCES, sinks: Sequence[str] = SINKS
) -> Iterable[tuple[str, str, str, int, int]]:
    """Yield random cases: a query, a source, a sink, a parallelism and a seed, each query and sink in turn."""
    r, names = random.Random(seed), list(QUERIES)
    for i in range(seed, seed + count):
        yield names[i % len(names)], r.choice(sources), sinks[i // len(names) % len(sinks)], r.randint(1, 4), i


def main(
    about: str | None,
    count: int,
    sources: Sequence[str] = SOURCES,
    sinks: Sequence[str] = SINKS,
    table_storage: Callable[[Path], TableStorage] = TableStorage,
) -> None:
    """Run the cases selected by the command line, and print those that differ."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--query", default="")
    options = parser.parse_args()
    failed = done = 0
    for case in cases(options.seed, options.count, sources, sinks):
        if options.query in ("", case[0]):
            done += 1
            try:
                check(*case, table_storage=table_storage)
            except Exception as e:
                failed += 1
                print(f"{case}: {type(e).__name__}: {e}", flush=True)
    print(f"{done} changelogs, {failed} with differences")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main(__doc__, 2000)

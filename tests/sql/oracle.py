"""Random queries whose answers SQLite knows: the same text, the same rows, in streaming, by mini-batch and in batch.

    python tests/sql/oracle.py [--count 2000] [--seed 0]     (`make sql-oracle`)

Queries are over small tables with nulls and duplicates. Only what both systems mean alike is used: no division by what
may be zero, no average of whole numbers, no order where it is not asked for. Each query is also run in two and three
subtasks with epochs cut anywhere, which must leave the same rows; and where it reads one table, twice in one subtask,
at once and row by row with all processes new after each epoch, which must make the same changes in the same order.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from millstream.common.types import Row
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import EnvironmentSettings, StreamTableEnvironment
from millstream.testing import CollectSink, LocalEnvironment, LocalJob, ValuesTable

TABLES = {"t": ("a", "b", "s"), "u": ("c", "d", "v")}
_LETTERS = ["x", "y", "z", "xy", None]
Rows = list[tuple[Any, ...]]


class Maker:
    """Makes random tables and queries."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def rows(self, most: int = 12) -> Rows:
        r = self._random
        numbers = [*range(-2, 5), None]
        return [(r.choice(numbers), r.randrange(4), r.choice(_LETTERS)) for _ in range(r.randrange(most))]

    # --- expressions

    def number(self, columns: list[str], depth: int = 0) -> str:
        r = self._random
        kind = r.randrange(10 if depth < 2 else 2)
        if kind == 0 or not columns:
            return str(r.randrange(5))
        if kind in (1, 2):
            return r.choice(columns)
        if kind in (3, 4):
            return f"({self.number(columns, depth + 1)} {r.choice('+-*')} {self.number(columns, depth + 1)})"
        if kind == 5:
            return f"COALESCE({self.number(columns, depth + 1)}, {r.randrange(5)})"
        if kind == 6:
            return f"({self.number(columns, depth + 1)} / {r.randrange(1, 4)})"
        if kind == 7:
            return f"NULLIF({self.number(columns, depth + 1)}, {r.randrange(5)})"
        if kind == 8:
            return f"ABS({self.number(columns, depth + 1)})"
        condition = self.condition(columns, [], depth + 1)
        return (
            f"CASE WHEN {condition} THEN {self.number(columns, depth + 1)} ELSE {self.number(columns, depth + 1)} END"
        )

    def text(self, columns: list[str]) -> str:
        r = self._random
        column = r.choice(columns)
        return r.choice([column, f"UPPER({column})", f"({column} || 'q')", f"SUBSTR({column}, 1, 1)"])

    def condition(self, numbers: list[str], texts: list[str], depth: int = 0) -> str:
        r = self._random
        kind = r.randrange(9 if depth < 2 else 4)
        operator = r.choice(["=", "<>", "<", "<=", ">", ">="])
        if kind == 0 and texts:
            return f"{self.text(texts)} {operator} '{r.choice('xyz')}'"
        if kind <= 2:
            return f"{self.number(numbers, 2)} {operator} {self.number(numbers, 1)}"
        if kind == 3:
            return f"{r.choice(numbers + texts)} IS {r.choice(['', 'NOT '])}NULL"
        if kind in (4, 5):
            word = r.choice(["AND", "OR"])
            return f"({self.condition(numbers, texts, depth + 1)} {word} {self.condition(numbers, texts, depth + 1)})"
        if kind == 6:
            return f"NOT ({self.condition(numbers, texts, depth + 1)})"
        if kind == 7:
            members = ", ".join(str(r.randrange(5)) for _ in range(r.randrange(1, 4)))
            return f"{r.choice(numbers)} {r.choice(['', 'NOT '])}IN ({members})"
        return f"{r.choice(numbers)} BETWEEN {r.randrange(3)} AND {r.randrange(2, 5)}"

    # --- queries

    def query(self) -> str:
        r = self._random
        kind = r.randrange(10)
        if kind < 4:
            return self.plain()
        if kind < 7:
            return self.grouped()
        if kind < 9:
            return self.joined()
        return r.choice([self.combined, self.combined, self.ranked, self.limited])()

    def _order(self) -> str:
        """Return an order in which no two rows that differ are alike."""
        columns = ["a", "b", "s"]
        self._random.shuffle(columns)
        return ", ".join(f"{c}{self._random.choice(['', ' DESC'])}" for c in columns)

    def ranked(self) -> str:
        r = self._random
        numbered = f"ROW_NUMBER() OVER (PARTITION BY {r.choice(['b', 's', 'a'])} ORDER BY {self._order()})"
        shown = r.choice(["a, b, s", "a, b, s, rn"])
        ranked = f"SELECT a, b, s, {numbered} AS rn FROM t{self._where(['b', 'a'], ['s'])}"
        return f"SELECT {shown} FROM ({ranked}) AS r WHERE rn <= {r.randrange(1, 4)}"

    def limited(self) -> str:
        offset = self._random.choice(["", " OFFSET 1"])
        return f"SELECT a, b, s FROM t ORDER BY {self._order()} LIMIT {self._random.randrange(1, 5)}{offset}"

    def _where(self, numbers: list[str], texts: list[str]) -> str:
        r = self._random
        if r.random() < 0.15:
            return f" WHERE {numbers[0]} {r.choice(['', 'NOT '])}IN (SELECT d FROM u)" if numbers[0] == "b" else ""
        return f" WHERE {self.condition(numbers, texts)}" if r.random() < 0.6 else ""

    def plain(self) -> str:
        items = f"{self.number(['a', 'b'])} AS p, {self.text(['s'])} AS q"
        distinct = "DISTINCT " if self._random.random() < 0.3 else ""
        return f"SELECT {distinct}{items} FROM t{self._where(['b', 'a'], ['s'])}"

    def grouped(self) -> str:
        r = self._random
        aggregates = ["COUNT(*)", "COUNT(a)", "SUM(a)", "MIN(a)", "MAX(b)", "COUNT(DISTINCT a)", "SUM(b + 1)", "MAX(s)"]
        chosen = r.sample(aggregates, r.randrange(1, 4))
        if r.random() < 0.3:
            chosen.append(f"COUNT(*) FILTER (WHERE {self.condition(['a', 'b'], ['s'], 2)})")
        items = ", ".join(f"{a} AS g{i}" for i, a in enumerate(chosen))
        key = r.choice(["b", "s", "a", "b + 1", "UPPER(s)"])
        if r.random() < 0.2:
            second = r.choice(["s", "a"])
            return f"SELECT b, {second}, {items} FROM t{self._where(['b', 'a'], ['s'])} GROUP BY b, {second}"
        having = f" HAVING {chosen[0]} > {r.randrange(3)}" if r.random() < 0.3 and "s" not in chosen[0].lower() else ""
        return f"SELECT {key} AS k, {items} FROM t{self._where(['b', 'a'], ['s'])} GROUP BY {key}{having}"

    def joined(self) -> str:
        r = self._random
        kind = r.choice(["JOIN", "LEFT JOIN"])
        on = r.choice(["a = c", "b = d", "s = v", "a = c AND b = d", "b = d AND a < c"])
        items = f"{self.number(['a', 'b', 'c', 'd'], 1)} AS p, s, v"
        where = f" WHERE {self.condition(['a', 'b'], ['s'])}" if r.random() < 0.4 else ""
        joined = f"SELECT {items} FROM t {kind} u ON {on}{where}"
        if r.random() < 0.3:
            return f"SELECT s, COUNT(*) AS n, MAX(p) AS m FROM ({joined}) AS j GROUP BY s"
        return joined

    def combined(self) -> str:
        r = self._random
        operator = r.choice(["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
        right = (
            f"SELECT d, v FROM u WHERE {self.condition(['c', 'd'], ['v'])}"
            if r.random() < 0.5
            else "SELECT d, v FROM u"
        )
        return f"SELECT b, s FROM t {operator} {right}"


class Difference(Exception):
    """What one query gives here and there."""


def check(maker: Maker, queries: int, batch_rows: int = 1) -> int:
    """Ask both systems some queries over one pair of tables; return how many there were."""
    tables = {name: maker.rows() for name in TABLES}
    oracle = sqlite3.connect(":memory:")
    for name, columns in TABLES.items():
        oracle.execute(f"CREATE TABLE {name} ({columns[0]} INTEGER, {columns[1]} INTEGER, {columns[2]} TEXT)")
        oracle.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", tables[name])
    environments = {mode: _environment(mode, tables, batch_rows) for mode in ("streaming", "mini-batch", "batch")}
    for _ in range(queries):
        query = maker.query()
        expected = Counter(oracle.execute(query).fetchall())
        for mode, t_env in environments.items():
            found = _answer(t_env, query)
            if found != expected:
                told = f"{mode}: {query}\n  tables {tables}"
                raise Difference(f"{told}\n  too many here {found - expected}\n  missing {expected - found}")
    return queries


def check_cuts(maker: Maker, queries: int) -> int:
    """Run some queries in several subtasks and with epochs cut anywhere: none may change a result."""
    tables = {name: maker.rows() for name in TABLES}
    for _ in range(queries):
        query = maker.query()
        at_once = _run(query, tables, 1, 100)
        expected = _left(query, at_once)
        for parallelism in (2, 3):
            r = random.Random(f"{query} {parallelism}")
            found = _left(query, _run(query, tables, parallelism, r.randint(1, 3), lambda r=r: r.randint(1, 4)))  # type: ignore[misc]
            if found != expected:
                raise Difference(f"parallelism {parallelism}: {query}\n  tables {tables}\n  {found} is not {expected}")
        if " u" not in query:
            row_by_row = _run(query, tables, 1, 1, lambda: 1, restarts=True)
            if row_by_row != at_once:
                raise Difference(f"changes: {query}\n  tables {tables}\n  {row_by_row} is not {at_once}")
    return queries


def _run(
    query: str,
    tables: dict[str, Rows],
    parallelism: int,
    batch_rows: int,
    sizes: Callable[[], int] | None = None,
    restarts: bool = False,
) -> list[Row]:
    """Return the changes that a query makes of tables."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    t_env = StreamTableEnvironment.create(env)
    _declare(t_env, tables, batch_rows, parallelism)
    sink = CollectSink()
    t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(sink).set_parallelism(1)
    job = LocalJob(env, epoch_sizes=sizes)
    while not job.is_finished:
        job.run_epoch()
        if restarts:
            job.restart_slots()
    return sink.results()


def _environment(mode: str, tables: dict[str, Rows], batch_rows: int) -> StreamTableEnvironment:
    settings = EnvironmentSettings.in_batch_mode() if mode == "batch" else EnvironmentSettings.in_streaming_mode()
    t_env = StreamTableEnvironment.create(LocalEnvironment(), settings)
    if mode == "mini-batch":
        for key, value in (("enabled", "true"), ("allow-latency", "1 s"), ("size", "5")):
            t_env.get_config().set(f"table.exec.mini-batch.{key}", value)
    _declare(t_env, tables, batch_rows)
    return t_env


def _declare(t_env: StreamTableEnvironment, tables: dict[str, Rows], batch_rows: int, subtasks: int = 1) -> None:
    for name, columns in TABLES.items():
        source = ValuesTable(tables[name], batch_rows=batch_rows, subtasks=subtasks)
        declared = f"{columns[0]} BIGINT, {columns[1]} BIGINT, {columns[2]} STRING"
        t_env.execute_sql(f"CREATE TABLE {name} ({declared}) WITH {source.options}")


def _answer(t_env: StreamTableEnvironment, query: str) -> Counter[tuple[Any, ...]]:
    return _left(query, t_env.execute_sql(query).collect())


def _left(query: str, rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    """Return the rows that are left when all changes are made."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        found[tuple(row)] += -1 if row.get_row_kind().name in ("UPDATE_BEFORE", "DELETE") else 1
    if any(n < 0 for n in found.values()):
        raise Difference(f"{query}: rows are taken back that were not there: {-found}")
    return +found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    asked = failed = 0
    while asked < options.count:
        seed = options.seed + asked
        try:
            check(Maker(seed), 10, batch_rows=1 + seed % 3)
            check_cuts(Maker(seed), 10)
        except Exception as e:
            failed += 1
            print(f"seed {seed}: {type(e).__name__}: {e}", flush=True)
        asked += 10
        if asked % 500 == 0:
            print(f"{asked} of {options.count} queries ...", file=sys.stderr, flush=True)
    print(f"{asked} queries, {failed} tables with differences")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

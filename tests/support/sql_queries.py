"""Random queries that SQLite supports, too: joins, groups, set operations, and subqueries in all positions."""

from __future__ import annotations

from random import Random

TABLES = {"t": "abc", "u": "def", "w": "ghi"}
_AGGREGATES = ("MAX", "MIN", "SUM", "COUNT")
_COMPARED = ("=", "<", ">", "<=", ">=", "<>")


class Queries:
    """Generates queries over three tables of three INT columns each."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def rows(self, count: int) -> list[tuple[int | None, ...]]:
        """Return rows of a table."""
        return [tuple(self._random.choice([None, 0, 1, 2, 3]) for _ in range(3)) for _ in range(count)]

    def _one(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _often(self, share: float) -> bool:
        return self._random.random() < share

    # --- conditions

    def _condition(self, columns: str, depth: int = 0) -> str:
        column, other = self._one(*columns), self._one(*columns)
        kinds = [
            f"{column} = {other}",
            f"{column} {self._one(*_COMPARED)} {self._random.randrange(4)}",
            f"{column} IS {self._one('NULL', 'NOT NULL')}",
            f"{column} IN (1, 2)",
            f"{column} + {other} > 2",
        ]
        if depth < 2 and self._often(0.2):
            sides = self._condition(columns, depth + 1), self._condition(columns, depth + 1)
            return f"({sides[0]} {self._one('AND', 'OR')} {sides[1]})"
        return self._random.choice(kinds)

    def _inside(self, around: str) -> tuple[str, str, list[str]] | None:
        """Return a table outside the enclosing query, its columns, and possibly correlated conditions."""
        free = [t for t in ("u", "w") if not set(TABLES[t]) & set(around)]
        if not free:
            return None
        table = self._one(*free)
        columns, where = TABLES[table], []
        if self._often(0.7):
            where.append(f"{self._one(*columns)} = {self._one(*around)}")
            if self._often(0.3):
                where.append(f"{self._one(*columns)} {self._one('<', '>', '<>')} {self._one(*around)}")
        if self._often(0.4):
            where.append(self._condition(columns))
        return table, columns, where

    def _about_a_query(self, around: str, depth: int = 0) -> str:
        """Return a condition with a subquery."""
        inside = self._inside(around)
        if inside is None:
            return self._condition(around)
        table, columns, where = inside
        if depth == 0 and self._often(0.2):
            where.append(self._about_a_query(around + columns, 1))
        rows = f"FROM {table}{_where(where)}"
        negated = "NOT " if self._often(0.4) else ""
        kind = self._random.randrange(5)
        if kind == 0:
            return f"{negated}EXISTS (SELECT 1 {rows})"
        if kind < 3:
            return f"{self._one(*around)} {negated}IN (SELECT {self._one(*columns)} {rows})"
        value = f"(SELECT {self._one(*_AGGREGATES)}({self._one(*columns)}) {rows})"
        return f"{self._one(*around)} {self._one('=', '<', '>')} {value}"

    # --- queries

    def _relation(self) -> tuple[str, str]:
        kind = self._random.randrange(4)
        if kind < 2:
            return "t", "abc"
        if kind == 2:
            join = self._one("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
            more = f" AND {self._condition('abcdef')}" if self._often(0.4) else ""
            return f"t {join} u ON {self._one(*'abc')} = {self._one(*'def')}{more}", "abcdef"
        return "t, u", "abcdef"

    def query(self) -> str:
        """Return a query."""
        relation, columns = self._relation()
        where = [self._condition(columns)] if self._often(0.5) else []
        if self._often(0.7):
            test = self._about_a_query(columns)
            where.append(f"({test} OR {self._condition(columns)})" if self._often(0.25) else test)
        rows = f"FROM {relation}{_where(where)}"
        kind = self._random.randrange(5)
        if kind == 0:
            return self._grouped(columns, rows)
        if kind == 1:
            operator = self._one("UNION", "UNION ALL", "EXCEPT", "INTERSECT")
            return f"SELECT {self._one(*columns)} AS x {rows} {operator} SELECT {self._one(*'ghi')} FROM w"
        if kind == 2 and (inside := self._inside(columns)) is not None:
            table, own, tests = inside
            value = f"(SELECT {self._one(*_AGGREGATES)}({self._one(*own)}) FROM {table}{_where(tests)})"
            return f"SELECT {columns[0]}, {columns[1]}, {value} AS s {rows}"
        if kind == 3:
            return f"SELECT DISTINCT {self._one(*columns)}, {self._one(*columns)} AS y {rows}"
        return f"SELECT {', '.join(columns)} {rows}"

    def _grouped(self, columns: str, rows: str) -> str:
        key, value = self._one(*columns), self._one(*columns)
        having = f" HAVING COUNT(*) > {self._random.randrange(3)}" if self._often(0.4) else ""
        distinct = f"COUNT(DISTINCT {self._one(*columns)}) AS d"
        aggregates = f"COUNT(*) AS n, SUM({value}) AS s, MAX({value}) AS m, {distinct}"
        return f"SELECT {key}, {aggregates} {rows} GROUP BY {key}{having}"

    # --- queries with a key

    def by_key(self) -> str:
        """Return a query of three columns whose first one is unique."""
        tested = self._one("", " WHERE c > 0", " WHERE b IS NOT NULL", " WHERE a <> 1")
        having = self._one("", " HAVING COUNT(*) > 1", " HAVING SUM(c) > 2")
        join = self._one("JOIN", "LEFT JOIN")
        number = self._aggregate
        return self._one(
            f"SELECT a, {number('b')}, {number('c')} FROM t{tested} GROUP BY a{having}",
            f"SELECT a, {number('n')}, {number('m')} FROM (SELECT a, c, {number('b')} AS n, {number('b')} AS m "
            f"FROM t{tested} GROUP BY a, c) GROUP BY a{having.replace('SUM(c)', 'SUM(n)')}",
            f"SELECT x.a, x.n, y.m FROM (SELECT a, {number('b')} AS n FROM t{tested} GROUP BY a{having}) x {join} "
            f"(SELECT d, {number('e')} AS m FROM u GROUP BY d) y ON x.a = y.d",
            f"SELECT n, COUNT(*), MIN(a) FROM (SELECT a, {number('b')} AS n FROM t GROUP BY a) GROUP BY n",
            f"SELECT a, {number('e')}, COUNT(*) FROM t {join} u ON {self._one('a = d', 'c = f', 'b = e')}{tested} "
            "GROUP BY a",
            f"SELECT a, n, 0 FROM (SELECT a, {number('c')} AS n FROM t{tested} GROUP BY a) "
            f"WHERE n {self._one('>', '<>', '=')} 1",
            f"SELECT c, MAX(a), COUNT(*) FROM t WHERE a {self._one('', 'NOT ')}IN (SELECT d FROM u WHERE f > 0) "
            "GROUP BY c",
            "SELECT z, SUM(y), COUNT(*) FROM (SELECT a AS z, c AS y FROM t UNION ALL SELECT d, f FROM u) GROUP BY z",
        )

    def _aggregate(self, column: str) -> str:
        plain = [f"{name}({column})" for name in _AGGREGATES]
        return self._one(*plain, "COUNT(*)", f"COUNT(DISTINCT {column})")

    def changes(self, upserts: bool) -> tuple[list[tuple[str, tuple[int | None, ...]]], list[tuple[int | None, ...]]]:
        """Return changes of a table by its first column, as (kind, row), and the final rows."""
        left: dict[int, tuple[int | None, ...]] = {}
        changes: list[tuple[str, tuple[int | None, ...]]] = []
        for _ in range(self._random.randrange(1, 14)):
            key = self._random.randrange(4)
            row = (key, self._random.choice([None, 0, 1, 2]), self._random.choice([0, 1, 2, 3]))
            if key not in left:
                changes.append(("+I", row))
            elif self._often(0.25):
                changes.append(("-D", left.pop(key)))
                continue
            else:
                changes += [("+U", row)] if upserts else [("-U", left[key]), ("+U", row)]
            left[key] = row
        return changes, list(left.values())


def _where(tests: list[str]) -> str:
    return f" WHERE {' AND '.join(tests)}" if tests else ""

"""Random SQL programs: operators over operators, three to five deep."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import count

from .event_time import EventTime
from .expressions import KINDS, Expressions
from .relations import NOT_EMPTY, Column, Piece, Relation, Sql, cast, joined, sql
from .tables import TABLES

_PLAIN = [name for name in TABLES if name != "v"]


class Generator:
    """Generates programs."""

    def __init__(self, r: random.Random) -> None:
        self._random = r
        self._numbers = count()
        self._event_time = EventTime(r, self._column, self._aggregates)
        self._operators: list[tuple[int, Callable[[int], Relation]]] = [
            (3, self._projected),
            (2, self._filtered),
            (5, self._grouped),
            (1, self._grouping_sets),
            (6, self._joined),
            (2, self._self_joined),
            (3, self._semi_joined),
            (3, self._scalar),
            (4, self._combined),
            (1, self._distinct),
            (4, self._top_n),
            (1, self._limited),
            (1, self._unnested),
            (1, self._over),
        ]

    def program(self) -> Relation:
        """Return a program."""
        return self._relation(self._random.choice([2, 3, 3, 4]))

    # --- parts

    def _column(self, kind: str) -> Column:
        return Column(f"c{next(self._numbers)}", kind)

    def _alias(self) -> str:
        return f"r{next(self._numbers)}"

    def _relation(self, depth: int) -> Relation:
        if depth <= 0:
            return self._leaf()
        weights = [weight for weight, _ in self._operators]
        return self._random.choices([make for _, make in self._operators], weights)[0](depth - 1)

    def _other(self, depth: int) -> Relation:
        """Return a second input, with less depth, so that programs are finite."""
        return self._relation(self._random.randint(0, max(0, min(depth, 1))))

    def _leaf(self) -> Relation:
        if self._random.random() < 0.25:
            return self._event_time.relation()
        table = self._random.choice(_PLAIN)
        definition = TABLES[table]
        names = list(definition.columns)
        if self._random.random() < 0.5:
            names = self._random.sample(names, self._random.randint(1, len(names)))
        columns = tuple(self._column(definition.columns[name]) for name in names)
        # A time attribute is not allowed in every operator; a plain timestamp is.
        values: list[Piece] = [cast(n, "time") if n == definition.rowtime else n for n in names]
        key = tuple(c.name for c, n in zip(columns, names, strict=True) if n == definition.key)
        text = sql("SELECT {} FROM {}", _items(values, columns), table)
        return Relation(text, columns, label=table, key=key)

    def _expressions(self, columns: Sequence[Column]) -> Expressions:
        return Expressions(self._random, columns)

    def _aggregates(self, columns: Sequence[Column], max_count: int = 3) -> tuple[list[Piece], tuple[Column, ...]]:
        aggregates = [self._expressions(columns).aggregate() for _ in range(self._random.randint(1, max_count))]
        return [text for text, _ in aggregates], tuple(self._column(kind) for _, kind in aggregates)

    def _some(self, columns: Sequence[Column], max_count: int) -> list[Column]:
        return self._random.sample(list(columns), self._random.randint(1, min(max_count, len(columns))))

    def _where(self, columns: Sequence[Column], often: float) -> Sql:
        if self._random.random() >= often:
            return sql("")
        return sql(" WHERE {}", self._expressions(columns).condition())

    # --- operators with one input

    def _projected(self, depth: int) -> Relation:
        below = self._relation(depth)
        kinds = [self._random.choice(KINDS) for _ in range(self._random.randint(1, 4))]
        columns = tuple(self._column(kind) for kind in kinds)
        values: list[Piece] = [self._expressions(below.columns).of(kind) for kind in kinds]
        text = sql(
            "SELECT {} FROM ({}) AS {}{}",
            _items(values, columns),
            "{0}",
            self._alias(),
            self._where(below.columns, 0.3),
        )
        return Relation(text, columns, (below,), "project")

    def _filtered(self, depth: int) -> Relation:
        below = self._relation(depth)
        text = sql("SELECT * FROM ({}) AS {}{}", "{0}", self._alias(), self._where(below.columns, 1.0))
        return Relation(text, below.columns, (below,), "filter", below.key)

    def _distinct(self, depth: int) -> Relation:
        below = self._relation(depth)
        chosen = self._some(below.columns, 3)
        columns = tuple(self._column(c.kind) for c in chosen)
        text = sql(
            "SELECT DISTINCT {} FROM ({}) AS {}", _items([c.name for c in chosen], columns), "{0}", self._alias()
        )
        return Relation(text, columns, (below,), "distinct", tuple(c.name for c in columns))

    def _grouped(self, depth: int) -> Relation:
        below = self._relation(depth)
        values, aggregates = self._aggregates(below.columns)
        having = None
        if self._random.random() < 0.25:
            test, number = self._random.choice([">", "<", "="]), self._random.randint(1, 3)
            having = sql("{} COUNT(*) {} {}", Sql(" HAVING", f"{NOT_EMPTY.duck} AND"), test, str(number))
        if self._random.random() < 0.15:
            text = sql(
                "SELECT {} FROM ({}) AS {}{}", _items(values, aggregates), "{0}", self._alias(), having or NOT_EMPTY
            )
            return Relation(text, aggregates, (below,), "aggregate")
        keys = self._some(below.columns, 2)
        columns = tuple(self._column(c.kind) for c in keys)
        names = ", ".join(c.name for c in keys)
        items = _items([*(c.name for c in keys), *values], (*columns, *aggregates))
        where = self._where(below.columns, 0.25)
        text = sql(
            "SELECT {} FROM ({}) AS {}{} GROUP BY {}{}", items, "{0}", self._alias(), where, names, having or sql("")
        )
        return Relation(text, (*columns, *aggregates), (below,), "group", tuple(c.name for c in columns))

    def _grouping_sets(self, depth: int) -> Relation:
        below = self._relation(depth)
        keys = self._some(below.columns, 2)
        names = [c.name for c in keys]
        values, aggregates = self._aggregates(below.columns, 2)
        columns = tuple(self._column(c.kind) for c in keys)
        sets = self._random.choice(
            [f"ROLLUP ({', '.join(names)})", f"CUBE ({', '.join(names)})", f"GROUPING SETS (({names[0]}), ())"]
        )
        if sets.startswith("GROUPING"):
            names, columns = names[:1], columns[:1]
        marked = self._column("int")
        values.append(cast(f"GROUPING({names[0]})", "int"))
        columns = (*columns, *aggregates, marked)
        text = sql(
            "SELECT {} FROM ({}) AS {} GROUP BY {}{}",
            _items([*names, *values], columns),
            "{0}",
            self._alias(),
            sets,
            Sql("", " HAVING COUNT(*) > 0"),
        )
        return Relation(text, columns, (below,), "grouping sets")

    def _order(self, below: Relation) -> str:
        """Return an order that is total up to identical rows."""
        shuffled = [c.name for c in self._random.sample(list(below.columns), len(below.columns))]
        if below.key and self._random.random() < 0.6:
            shuffled = list(below.key)
        return ", ".join(f"{name}{self._random.choice(['', ' DESC'])}" for name in shuffled)

    def _top_n(self, depth: int) -> Relation:
        below = self._relation(depth)
        r = self._random
        split = self._some(below.columns, 2) if r.random() < 0.8 else []
        partition = f"PARTITION BY {', '.join(c.name for c in split)} " if split else ""
        number = self._column("int")
        shown = below.columns if r.random() < 0.5 else (*below.columns, number)
        test = r.choice(["= 1", "<= 1", "<= 2", "<= 3", "< 3", "= 2", "BETWEEN 2 AND 3"])
        ranked = sql(
            "SELECT *, ROW_NUMBER() OVER ({}ORDER BY {}) AS {} FROM ({}) AS {}",
            partition,
            self._order(below),
            number.name,
            "{0}",
            self._alias(),
        )
        names = ", ".join(c.name for c in shown)
        text = sql("SELECT {} FROM ({}) AS {} WHERE {} {}", names, ranked, self._alias(), number.name, test)
        return Relation(text, shown, (below,), "top-n", below.key)

    def _limited(self, depth: int) -> Relation:
        below = self._relation(depth)
        limit = f"LIMIT {self._random.randint(1, 4)}{self._random.choice(['', ' OFFSET 1'])}"
        text = sql("SELECT * FROM ({}) AS {} ORDER BY {} {}", "{0}", self._alias(), self._order(below), limit)
        return Relation(text, below.columns, (below,), "limit", below.key)

    def _unnested(self, depth: int) -> Relation:
        below = self._relation(depth)
        kind = self._random.choice([c.kind for c in below.columns])
        members = joined(
            ", ", [self._expressions(below.columns).of(kind, 1) for _ in range(self._random.randint(1, 3))]
        )
        column, alias, other = self._column(kind), self._alias(), self._alias()
        array = sql("{}[{}]", Sql("ARRAY", ""), members)
        text = sql(
            "SELECT {}.*, {}.{} FROM ({}) AS {} CROSS JOIN UNNEST({}) AS {}({})",
            alias,
            other,
            column.name,
            "{0}",
            alias,
            array,
            other,
            column.name,
        )
        return Relation(text, (*below.columns, column), (below,), "unnest")

    def _over(self, depth: int) -> Relation:
        """Return running aggregates over updating rows."""
        below = self._relation(depth)
        value, kind = self._random.choice(
            [(f"SUM({c.name})", c.kind) for c in below.of_kind("int", "dbl")] or [("COUNT(*)", "int")]
        )
        column = self._column(kind)
        split, by = self._random.choice(below.columns).name, self._random.choice(below.columns).name
        item = sql("{} OVER (PARTITION BY {} ORDER BY {})", value, split, by)
        text = sql("SELECT *, {} AS {} FROM ({}) AS {}", cast(item, kind), column.name, "{0}", self._alias())
        return Relation(text, (*below.columns, column), (below,), "over")

    # --- operators with two inputs

    def _equalities(self, left: Relation, right: Relation) -> list[str]:
        pairs = [(a.name, b.name) for a in left.columns for b in right.columns if a.kind == b.kind]
        keyed = [(a, b) for a, b in pairs if a in left.key or b in right.key]
        if keyed and self._random.random() < 0.5:
            pairs = keyed
        return [f"{a} = {b}" for a, b in self._random.sample(pairs, min(len(pairs), self._random.choice([1, 1, 2])))]

    def _joined(self, depth: int) -> Relation:
        left, right = self._relation(depth), self._other(depth)
        if self._random.random() < 0.3:
            left, right = right, left
        return self._join(left, right)

    def _join(self, left: Relation, right: Relation) -> Relation:
        r = self._random
        both = (*left.columns, *right.columns)
        tests: list[Piece] = list(self._equalities(left, right))
        kind = r.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        if not tests:
            kind = "JOIN"
        if r.random() < 0.3 or not tests:
            tests.append(self._expressions(both).comparison(1))
        text = sql(
            "SELECT {} FROM ({}) AS {} {} ({}) AS {} ON {}{}",
            ", ".join(c.name for c in both),
            "{0}",
            self._alias(),
            kind,
            "{1}",
            self._alias(),
            joined(" AND ", tests),
            self._where(both, 0.2),
        )
        return Relation(text, both, (left, right), "join" if kind == "JOIN" else kind.split()[0].lower() + " join")

    def _self_joined(self, depth: int) -> Relation:
        """Return one query joined with itself."""
        below = self._relation(depth)
        r = self._random
        one, two, name = self._alias(), self._alias(), self._alias()
        columns = tuple(self._column(c.kind) for c in (*below.columns, *below.columns))
        a = r.choice(below.columns)
        b = r.choice([c for c in below.columns if c.kind == a.kind])
        more = f" AND {one}.{a.name} IS NOT NULL" if r.random() < 0.2 else ""
        items = _items([f"{t}.{c.name}" for t in (one, two) for c in below.columns], columns)
        text = sql(
            "WITH {} AS ({}) SELECT {} FROM {} AS {} {} {} AS {} ON {}.{} = {}.{}{}",
            name,
            "{0}",
            items,
            name,
            one,
            r.choice(["JOIN", "LEFT JOIN", "FULL JOIN"]),
            name,
            two,
            one,
            a.name,
            two,
            b.name,
            more,
        )
        return Relation(text, columns, (below,), "self join")

    def _semi_joined(self, depth: int) -> Relation:
        left, right = self._relation(depth), self._other(depth)
        r = self._random
        negated = r.choice(["", "NOT "])
        pairs = [(a, b) for a in left.columns for b in right.columns if a.kind == b.kind]
        if not pairs:
            return self._join(left, right)
        a, b = r.choice(pairs)
        where = self._where(right.columns, 0.3)
        if r.random() < 0.5:
            test = sql("{} {}IN (SELECT {} FROM ({}) AS {}{})", a.name, negated, b.name, "{1}", self._alias(), where)
        else:
            more = (
                sql(" AND {}", self._expressions((*left.columns, *right.columns)).comparison(1))
                if r.random() < 0.3
                else sql("")
            )
            test = sql(
                "{}EXISTS (SELECT 1 FROM ({}) AS {} WHERE {} = {}{})",
                negated,
                "{1}",
                self._alias(),
                b.name,
                a.name,
                more,
            )
        if r.random() < 0.15:
            test = sql("({} OR {})", test, self._expressions(left.columns).condition(1))
        text = sql("SELECT * FROM ({}) AS {} WHERE {}", "{0}", self._alias(), test)
        return Relation(text, left.columns, (left, right), "anti join" if negated else "semi join", left.key)

    def _scalar(self, depth: int) -> Relation:
        left, right = self._relation(depth), self._other(depth)
        r = self._random
        value, kind = self._expressions(right.columns).aggregate()
        where = sql("")
        pairs = [(a, b) for a in left.columns for b in right.columns if a.kind == b.kind]
        if pairs and r.random() < 0.6:
            a, b = r.choice(pairs)
            where = sql(" WHERE {} = {}", b.name, a.name)
        query = sql("(SELECT {} FROM ({}) AS {}{})", value, "{1}", self._alias(), where)
        if r.random() < 0.5:
            column = self._column(kind)
            text = sql("SELECT *, {} AS {} FROM ({}) AS {}", query, column.name, "{0}", self._alias())
            return Relation(text, (*left.columns, column), (left, right), "scalar subquery")
        test = sql("{} {} {}", self._expressions(left.columns).of(kind, 1), r.choice(["=", "<", ">="]), query)
        text = sql("SELECT * FROM ({}) AS {} WHERE {}", "{0}", self._alias(), test)
        return Relation(text, left.columns, (left, right), "scalar subquery", left.key)

    def _combined(self, depth: int) -> Relation:
        left, right = self._relation(depth), self._other(depth)
        kinds = [c.kind for c in self._some(left.columns, 3)]
        columns = tuple(self._column(kind) for kind in kinds)
        sides: list[Piece] = []
        for index, side in enumerate((left, right)):
            values: list[Piece] = [
                self._random.choice([c.name for c in side.of_kind(k)] or [cast("NULL", k)])  # type: ignore[misc]
                for k in kinds
            ]
            sides.append(sql("SELECT {} FROM ({}) AS {}", _items(values, columns), f"{{{index}}}", self._alias()))
        operator = self._random.choice(
            ["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]
        )
        text = sql("SELECT * FROM ({} {} {}) AS {}", sides[0], operator, sides[1], self._alias())
        return Relation(text, columns, (left, right), operator.lower())


def _items(values: Sequence[Piece], columns: Sequence[Column]) -> Sql:
    """Return the items of a select list."""
    return joined(", ", [sql("{} AS {}", v, c.name) for v, c in zip(values, columns, strict=True)])

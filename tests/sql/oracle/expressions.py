"""Random expressions over typed columns: only those with equal semantics in both systems, or a translation for each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from .relations import Column, Piece, Sql, cast, joined, sql

_COMPARED = ("=", "<>", "<", "<=", ">", ">=")
# The types of generated expressions.
KINDS = ("int", "text", "dec", "dbl", "time", "date", "bool")


class Expressions:
    """Generates expressions of a type over some columns."""

    def __init__(self, r: random.Random, columns: Sequence[Column]) -> None:
        self._random = r
        self._columns = columns
        self._makers: dict[str, Callable[[int], Sql]] = {
            "int": self._int,
            "text": self._text,
            "dec": self._dec,
            "dbl": self._dbl,
            "time": self._time,
            "date": self._date,
            "bool": lambda depth: sql("({})", self.condition(depth)),
        }

    def of(self, kind: str, depth: int = 0) -> Sql:
        """Return an expression of a type."""
        columns = [c.name for c in self._columns if c.kind == kind]
        if columns and (depth >= 2 or self._random.random() < 0.5):
            return sql(self._random.choice(columns))
        if depth >= 2:
            return self.constant(kind)
        if self._random.random() < 0.15:
            return self._any(kind, depth)
        return self._makers[kind](depth)

    def constant(self, kind: str) -> Sql:
        """Return a constant."""
        r = self._random
        if r.random() < 0.1:
            return cast("NULL", kind)
        constants = {
            "int": lambda: str(r.randint(0, 4)),
            "text": lambda: f"'{r.choice(['x', 'y', 'xy', ''])}'",
            "dec": lambda: r.choice(["0.50", "1.25", "3.33"]),
            "dbl": lambda: r.choice(["CAST(0.5 AS DOUBLE)", "CAST(1.25 AS DOUBLE)"]),
            "time": lambda: f"TIMESTAMP '2024-02-2{r.choice('89')} 00:00:0{r.randrange(9)}'",
            "date": lambda: f"DATE '2024-02-2{r.randint(7, 9)}'",
            "bool": lambda: r.choice(["TRUE", "FALSE"]),
        }
        literal = sql(constants[kind]())
        return cast(literal, kind) if kind in ("int", "text", "dec") else literal

    def _any(self, kind: str, depth: int) -> Sql:
        """Return the generators that are available for every type."""
        a, b, d = self.of(kind, depth + 1), self.of(kind, depth + 1), depth + 1
        form = self._random.randrange(4)
        if form == 0:
            return sql("COALESCE({}, {})", a, b)
        if form == 1:
            return sql("NULLIF({}, {})", a, b)
        if form == 2:
            return sql("CASE WHEN {} THEN {} END", self.condition(d), a)
        return sql("CASE WHEN {} THEN {} ELSE {} END", self.condition(d), a, b)

    def _int(self, depth: int) -> Sql:
        r, d = self._random, depth + 1
        form = r.randrange(9)
        if form <= 1:
            return sql("({} {} {})", self.of("int", d), r.choice("+-"), self.of("int", d))
        if form == 2:
            return sql("({} * {})", self.of("int", d), str(r.randint(2, 3)))
        if form == 3:
            return sql("({} {} {})", self.of("int", d), Sql("/", "//"), str(r.randint(2, 3)))
        if form == 4:
            return sql("MOD({}, {})", self.of("int", d), str(r.randint(2, 4)))
        if form == 5:
            return sql("{}({})", r.choice(["ABS", "SIGN"]), self.of("int", d)) if r.random() < 0.5 else self._length(d)
        if form == 6:
            value = self.of(r.choice(["dec", "dbl"]), d)
            return cast(Sql(value.flink, f"trunc({value.duck})"), "int")
        if form == 7:
            unit = r.choice(["SECOND", "MINUTE", "DAY", "MONTH"])
            return cast(
                sql("EXTRACT({} FROM {})", unit, self.of("date" if unit in ("DAY", "MONTH") else "time", d)), "int"
            )
        return self.constant("int")

    def _length(self, depth: int) -> Sql:
        text = self.of("text", depth)
        return cast(sql("{}({})", Sql("CHAR_LENGTH", "length"), text), "int")

    def _text(self, depth: int) -> Sql:
        r, d = self._random, depth + 1
        form = r.randrange(6)
        if form == 0:
            return sql("{}({})", r.choice(["UPPER", "LOWER", "TRIM", "REVERSE"]), self.of("text", d))
        if form == 1:
            return sql("({} || {})", self.of("text", d), self.of("text", d))
        if form == 2:
            return sql("SUBSTRING({}, {}, {})", self.of("text", d), str(r.randint(1, 2)), str(r.randint(1, 2)))
        if form == 3:
            return cast(self.of(r.choice(["int", "dec", "date"]), d), "text")
        if form == 4:
            return sql("REPLACE({}, 'x', 'q')", self.of("text", d))
        return self.constant("text")

    def _dec(self, depth: int) -> Sql:
        r, d = self._random, depth + 1
        form = r.randrange(6)
        if form <= 1:
            return cast(
                sql("({} {} {})", self.of("dec", d), r.choice("+-"), self.of(r.choice(["dec", "int"]), d)), "dec"
            )
        if form == 2:
            return cast(sql("({} * {})", self.of("dec", d), r.choice(["0.35", "1.5", "2"])), "dec")
        if form == 3:
            return cast(self.of("int", d), "dec")
        if form == 4:
            # DuckDB's quotients of decimals are doubles.
            a, by = self.of("dec", d), r.choice([2, 3, 8])
            return cast(
                Sql(f"({a.flink} / {by})", f"(half_up(CAST({a.duck} * 100 AS HUGEINT) * 10000, {by}) * 0.000001)"),
                "dec",
            )
        return self.constant("dec")

    def _dbl(self, depth: int) -> Sql:
        r, d = self._random, depth + 1
        form = r.randrange(4)
        if form == 0:
            return sql("({} {} {})", self.of("dbl", d), r.choice("+-"), self.of("dbl", d))
        if form == 1:
            return sql("({} * {})", self.of("dbl", d), r.choice(["2", "CAST(0.5 AS DOUBLE)"]))
        if form == 2:
            return cast(self.of("int", d), "dbl")
        return self.constant("dbl")

    def _time(self, depth: int) -> Sql:
        r, d = self._random, depth + 1
        form = r.randrange(3)
        if form == 0:
            amount, unit = r.randint(1, 9), r.choice(["SECOND", "MINUTE", "HOUR", "DAY"])
            return sql("({} {} INTERVAL '{}' {})", self.of("time", d), r.choice("+-"), str(amount), unit)
        if form == 1:
            return cast(self.of("date", d), "time")
        return self.constant("time")

    def _date(self, depth: int) -> Sql:
        form = self._random.randrange(2)
        if form == 0:
            return cast(self.of("time", depth + 1), "date")
        return self.constant("date")

    # --- conditions

    def condition(self, depth: int = 0) -> Sql:
        """Return a condition."""
        r, d = self._random, depth + 1
        form = r.randrange(11 if depth < 2 else 5)
        if form <= 2:
            return self.comparison(depth)
        if form == 3 and self._columns:
            return sql("{} IS {}NULL", r.choice(self._columns).name, r.choice(["", "NOT "]))
        if form == 4:
            booleans = [c.name for c in self._columns if c.kind == "bool"]
            return sql("{}{}", r.choice(["", "NOT "]), r.choice(booleans)) if booleans else self.comparison(depth)
        if form in (5, 6):
            return sql("({} {} {})", self.condition(d), r.choice(["AND", "OR"]), self.condition(d))
        if form == 7:
            return sql("NOT ({})", self.condition(d))
        if form == 8:
            kind = r.choice(["int", "text", "dec", "date"])
            members = joined(", ", [self.constant(kind) for _ in range(r.randint(1, 3))])
            return sql("{} {}IN ({})", self.of(kind, d), r.choice(["", "NOT "]), members)
        if form == 9:
            return sql(
                "({}) IS {}{}", self.condition(d), r.choice(["", "NOT "]), r.choice(["TRUE", "FALSE", "UNKNOWN"])
            )
        if form == 10 and r.random() < 0.5:
            return sql("{} {}LIKE '{}'", self.of("text", d), r.choice(["", "NOT "]), r.choice(["x%", "%y", "_", "%"]))
        kind = r.choice(["int", "dec", "time", "dbl"])
        return sql(
            "{} {}BETWEEN {} AND {}", self.of(kind, d), r.choice(["", "NOT "]), self.of(kind, d), self.of(kind, d)
        )

    def comparison(self, depth: int) -> Sql:
        """Return a comparison of two values."""
        kind = self._random.choice([c.kind for c in self._columns] or ["int"])
        operator: Piece = self._random.choice(_COMPARED)
        if self._random.random() < 0.1:
            operator = self._random.choice(["IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
        other = self.of("int" if kind == "dec" and self._random.random() < 0.3 else kind, depth + 1)
        return sql("{} {} {}", self.of(kind, depth + 1), operator, other)

    # --- aggregates

    def aggregate(self) -> tuple[Sql, str]:
        """Return an aggregate and its type."""
        r = self._random
        kind = r.choice([c.kind for c in self._columns] or ["int"])
        value = self.of(kind, 1)
        call, arguments = self._aggregate(kind, value)
        if r.random() < 0.2:
            test = self.condition(1)
            call = Sql(
                *(f"{text} FILTER (WHERE {t})" for text, t in ((call.flink, test.flink), (call.duck, test.duck)))
            )
            if "//" in call.duck or "half_up" in call.duck:
                return sql("COUNT({}) FILTER (WHERE {})", value, test), "int"
        return (cast(call, arguments) if arguments in ("int", "dec") else call), arguments

    def _aggregate(self, kind: str, value: Sql) -> tuple[Sql, str]:
        r = self._random
        choice = r.randrange(6)
        if choice == 0:
            return sql("COUNT(*)"), "int"
        if choice == 1:
            return sql("COUNT({}{})", r.choice(["", "DISTINCT "]), value), "int"
        if kind in ("int", "dec", "dbl") and choice <= 4:
            if choice == 4:
                return self._average(kind, value)
            return sql("SUM({}{})", "DISTINCT " if r.random() < 0.2 else "", value), kind
        if kind == "bool":
            return sql("COUNT({})", value), "int"
        return sql("{}({})", r.choice(["MIN", "MAX"]), value), kind

    def _average(self, kind: str, value: Sql) -> tuple[Sql, str]:
        if kind == "int":
            return Sql(f"AVG({value.flink})", f"(SUM({value.duck}) // COUNT({value.duck}))"), kind
        if kind == "dec":
            exact = f"half_up(CAST(SUM({value.duck}) * 100 AS HUGEINT) * 10000, COUNT({value.duck})) * 0.000001"
            return Sql(f"AVG({value.flink})", exact), kind
        return sql("AVG({})", value), kind

"""Random queries over tables with event time: windows, running aggregates, first and last rows, joins over time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from .relations import Column, Piece, Relation, Sql, cast, joined, sql
from .tables import TABLES

Aggregates = Callable[[Sequence[Column], int], tuple[list[Piece], tuple[Column, ...]]]


def _columns_of(table: str) -> list[Column]:
    return [Column(name, kind) for name, kind in TABLES[table].columns.items()]


class EventTime:
    """Generates queries whose operators need event time.

    Args:
        r: the source of random choices.
        column: returns the name of a column of a type.
        aggregates: generates aggregates over columns.
    """

    def __init__(self, r: random.Random, column: Callable[[str], Column], aggregates: Aggregates) -> None:
        self._random = r
        self._column = column
        self._aggregates = aggregates

    def relation(self) -> Relation:
        """Return a query."""
        makers = [self._windowed, self._windowed, self._over, self._deduplicated, self._interval_joined]
        return self._random.choice([*makers, self._temporal_joined, self._window_joined, self._window_top_n])()

    # --- windows

    def _window(self, table: str, kinds: Sequence[str] = ("tumble", "hop", "cumulate", "session")) -> tuple[Sql, str]:
        """Return the rows of a table with their windows."""
        kind = self._random.choice(kinds)
        step = self._random.choice([3, 5, 10])
        size = step * self._random.choice([1, 2, 3]) if kind != "tumble" else step
        columns = ", ".join(TABLES[table].columns)
        if kind == "session":
            return self._session(table, columns), kind
        arguments = {
            "tumble": f"INTERVAL '{size}' SECOND",
            "hop": f"INTERVAL '{step}' SECOND, INTERVAL '{size}' SECOND",
            "cumulate": f"INTERVAL '{step}' SECOND, INTERVAL '{size}' SECOND",
        }[kind]
        flink = f"TABLE({kind.upper()}(TABLE {table}, DESCRIPTOR(ts), {arguments}))"
        bucket = f"time_bucket(INTERVAL {step if kind == 'hop' else size} SECOND, ts, TIMESTAMP '1970-01-01')"
        many = f"range({size // step}) AS steps(i)"
        starts, ends = {
            "tumble": (bucket, f"{bucket} + INTERVAL {size} SECOND"),
            "hop": (
                f"{bucket} - i * INTERVAL {step} SECOND",
                f"{bucket} - i * INTERVAL {step} SECOND + INTERVAL {size} SECOND",
            ),
            "cumulate": (bucket, f"{bucket} + (i + 1) * INTERVAL {step} SECOND"),
        }[kind]
        belongs = f" WHERE ts < {ends}" if kind == "cumulate" else ""
        source = table if kind == "tumble" else f"{table}, {many}"
        duck = f"(SELECT {columns}, {starts} AS window_start, {ends} AS window_end FROM {source}{belongs}) AS windowed"
        return Sql(flink, duck), kind

    def _session(self, table: str, columns: str) -> Sql:
        gap = self._random.choice([3, 5, 10])
        flink = f"TABLE(SESSION(TABLE {table} PARTITION BY s, DESCRIPTOR(ts), INTERVAL '{gap}' SECOND))"
        first = f"CASE WHEN ts - lag(ts) OVER (PARTITION BY s ORDER BY ts) <= INTERVAL {gap} SECOND THEN 0 ELSE 1 END"
        marked = f"(SELECT *, {first} AS first FROM {table}) AS marked"
        numbered = f"SELECT {columns}, sum(first) OVER (PARTITION BY s ORDER BY ts) AS number FROM {marked}"
        session = "OVER (PARTITION BY s, number)"
        bounds = f"min(ts) {session} AS window_start, max(ts) {session} + INTERVAL {gap} SECOND AS window_end"
        return Sql(flink, f"(SELECT {columns}, {bounds} FROM ({numbered}) AS numbered) AS windowed")

    def _windowed(self) -> Relation:
        table = self._random.choice(["e", "g"])
        rows, kind = self._window(table)
        inside = [c for c in _columns_of(table) if c.name != "ts"]
        values, aggregates = self._aggregates(inside, 3)
        names = ["s"] if kind == "session" or self._random.random() < 0.5 else []
        bounds = self._random.choice([["window_start", "window_end"], ["window_start"], ["window_end"], []])
        kinds = {"s": "text", "window_start": "time", "window_end": "time"}
        shown = [*names, *bounds]
        columns = (*(self._column(kinds[n]) for n in shown), *aggregates)
        items = joined(", ", [sql("{} AS {}", v, c.name) for v, c in zip([*shown, *values], columns, strict=True)])
        keys = ", ".join(["window_start", "window_end", *names])
        text = sql("SELECT {} FROM {} GROUP BY {}", items, rows, keys)
        return Relation(text, columns, label=f"{kind} window")

    def _window_top_n(self) -> Relation:
        rows, _ = self._window("e", ("tumble", "hop"))
        limit = self._random.randint(1, 2)
        names = ["id", "s", "d", "window_end"]
        columns = tuple(self._column(kind) for kind in ("int", "text", "dec", "time"))
        order = self._random.choice(["ts", "ts DESC", "d, ts", "id DESC, ts"])
        split = self._random.choice(["", ", s"])
        number = f"ROW_NUMBER() OVER (PARTITION BY window_start, window_end{split} ORDER BY {order}) AS rn"
        items = ", ".join(f"{n} AS {c.name}" for n, c in zip(names, columns, strict=True))
        text = sql("SELECT {} FROM (SELECT *, {} FROM {}) AS ranked WHERE rn <= {}", items, number, rows, str(limit))
        return Relation(text, columns, label="window top-n")

    def _window_joined(self) -> Relation:
        state = self._random.getstate()
        left, _ = self._window("e", ("tumble", "hop"))
        self._random.setstate(state)
        right, _ = self._window("g", ("tumble", "hop"))
        kind = self._random.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = self._random.choice(["lw.s = rw.s", "lw.id = rw.id", "lw.b = rw.a"])
        names = ["lw.id", "lw.d", "rw.id", "rw.x", "lw.window_start", "rw.window_end"]
        columns = tuple(self._column(k) for k in ("int", "dec", "int", "dbl", "time", "time"))
        items = ", ".join(f"{n} AS {c.name}" for n, c in zip(names, columns, strict=True))
        text = sql(
            "SELECT {} FROM (SELECT * FROM {}) AS lw {} (SELECT * FROM {}) AS rw ON {} "
            "AND lw.window_start = rw.window_start AND lw.window_end = rw.window_end",
            items,
            left,
            kind,
            right,
            on,
        )
        return Relation(text, columns, label="window join")

    # --- rows in time order

    def _over(self) -> Relation:
        r = self._random
        table = r.choice(["e", "g"])
        names = [n for n in TABLES[table].columns if n != "ts"]
        number = r.choice(["id", "b" if table == "e" else "a"])
        values = r.sample(
            [f"SUM({number})", "COUNT(*)", f"MIN({number})", f"MAX({number})", f"COUNT({number})"], r.randint(1, 2)
        )
        frames = [
            "ROWS BETWEEN UNBOUNDED PRECEDING",
            f"ROWS BETWEEN {r.randint(0, 2)} PRECEDING",
            f"RANGE BETWEEN INTERVAL '{r.choice([2, 5, 9])}' SECOND PRECEDING",
        ]
        frame = r.choice(["", *(f"{start} AND CURRENT ROW" for start in frames)])
        window = f"({r.choice(['', 'PARTITION BY s '])}ORDER BY ts {frame})"
        columns = (*(self._column(TABLES[table].columns[n]) for n in names), *(self._column("int") for _ in values))
        shown: list[Piece] = [*names, *(cast(f"{v} OVER {window}", "int") for v in values)]
        items = joined(", ", [sql("{} AS {}", v, c.name) for v, c in zip(shown, columns, strict=True)])
        return Relation(sql("SELECT {} FROM {}", items, table), columns, label="over time")

    def _deduplicated(self) -> Relation:
        table = self._random.choice(["e", "g"])
        names = list(TABLES[table].columns)
        columns = tuple(self._column(TABLES[table].columns[n]) for n in names)
        values = [cast(n, "time") if n == "ts" else n for n in names]
        items = joined(", ", [sql("{} AS {}", v, c.name) for v, c in zip(values, columns, strict=True)])
        split = self._random.choice(["s", "id", "id, s"])
        order = self._random.choice(["ts", "ts DESC"])
        test = self._random.choice(["= 1", "= 1", "<= 2"])
        text = sql(
            "SELECT {} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}) AS rn FROM {}) AS numbered "
            "WHERE rn {}",
            items, split, order, table, test,
        )  # fmt: skip
        return Relation(text, columns, label="deduplicate")

    # --- joins over time

    def _interval_joined(self) -> Relation:
        r = self._random
        before, behind = r.randint(0, 9), r.randint(0, 9)
        kind = r.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = r.choice(["e.s = g.s", "e.id = g.id", "e.b = g.a"])
        names = ["e.id", "e.d", "e.s", "g.x", "g.a"]
        columns = tuple(self._column(k) for k in ("int", "dec", "text", "dbl", "int"))
        items = ", ".join(f"{n} AS {c.name}" for n, c in zip(names, columns, strict=True))
        bounds = f"e.ts BETWEEN g.ts - INTERVAL '{before}' SECOND AND g.ts + INTERVAL '{behind}' SECOND"
        return Relation(sql(f"SELECT {items} FROM e {kind} g ON {on} AND {bounds}"), columns, label="interval join")

    def _temporal_joined(self) -> Relation:
        kind = self._random.choice(["JOIN", "LEFT JOIN"])
        names = ["e.id", "e.s", "{v}.id", "{v}.s", "{v}.d"]
        columns = tuple(self._column(k) for k in ("int", "text", "int", "text", "dec"))
        items = ", ".join(f"{n} AS {c.name}" for n, c in zip(names, columns, strict=True))
        key = self._random.choice(["id", "b"])
        flink = f"SELECT {items.replace('{v}', 'v')} FROM e {kind} v FOR SYSTEM_TIME AS OF e.ts ON e.{key} = v.id"
        # In DuckDB, v_until has each version with the start time of the next.
        valid = f"e.{key} = w.id AND e.ts >= w.ts AND e.ts < w.until"
        duck = f"SELECT {items.replace('{v}', 'w')} FROM e {kind} v_until AS w ON {valid}"
        return Relation(Sql(flink, duck), columns, label="temporal join", streaming_only=True)

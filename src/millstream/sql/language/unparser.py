"""Converts syntax trees to SQL, with quoted names and upper-case keywords."""

from __future__ import annotations

from collections.abc import Callable

from millstream.sql.language import syntax as s

_OR, _AND, _NOT, _IS, _COMPARISON, _MATCHING, _SUM, _PRODUCT, _SIGN = 22, 24, 26, 28, 30, 32, 40, 60, 80
_PRECEDENCES = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(["=", "<>", "<", "<=", ">", ">="], _COMPARISON),
    **dict.fromkeys(["+", "-"], _SUM),
    **dict.fromkeys(["*", "/", "%", "||"], _PRODUCT),
}
_MATCHING_WORDS = ("LIKE", "ILIKE", "RLIKE", "SIMILAR TO")
_WITHOUT_PARENTHESES = frozenset(
    ["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_USER"]
)


def name(part: str) -> str:
    """Return a quoted name."""
    return f"`{part.replace('`', '``')}`"


def path(parts: tuple[str, ...]) -> str:
    """Return a quoted name of several parts."""
    return ".".join(map(name, parts))


def string(text: str) -> str:
    """Return a string literal."""
    return "'" + text.replace("'", "''") + "'"


def to_sql(e: s.Expression) -> str:
    """Return an expression as SQL."""
    return _Unparser(lambda parts: parts).expression(e, 0)


def query_to_sql(query: s.Query, full: Callable[[tuple[str, ...]], tuple[str, ...]]) -> str:
    """Return a query as SQL; `full` qualifies table names."""
    return _Unparser(full).query(query)


class _Unparser:
    def __init__(self, full: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
        self._full = full
        self._named: set[str] = set()

    # --- expressions

    def expression(self, e: s.Expression, min_precedence: int) -> str:
        text, precedence = self._bound(e)
        return f"({text})" if precedence < min_precedence else text

    def _bound(self, e: s.Expression) -> tuple[str, int]:
        if isinstance(e, s.Call):
            return self._call(e)
        if isinstance(e, s.In):
            operands = self.query(e.operands) if isinstance(e.operands, s.Query) else self._list(e.operands)
            return f"{self.expression(e.value, _MATCHING)} {'NOT ' if e.negated else ''}IN ({operands})", _MATCHING
        if isinstance(e, s.Quantified):
            operands = self.query(e.operands) if isinstance(e.operands, s.Query) else self._list(e.operands)
            left = self.expression(e.value, _COMPARISON)
            return f"{left} {e.operator} {e.quantifier} ({operands})", _COMPARISON
        return self._plain(e), 100

    def _plain(self, e: s.Expression) -> str:
        if isinstance(e, s.Name):
            return path(e.parts)
        if isinstance(e, s.Star):
            return f"{path(e.parts)}.*" if e.parts else "*"
        if isinstance(e, s.Literal):
            return _literal(e)
        if isinstance(e, s.Interval):
            units = e.first if e.first == e.last else f"{e.first} TO {e.last}"
            return f"INTERVAL {'-' if e.negative else ''}{string(e.text)} {units}"
        if isinstance(e, s.Symbol):
            return e.word
        if isinstance(e, s.Cast):
            return f"{'TRY_CAST' if e.lenient else 'CAST'}({self.expression(e.value, 0)} AS {e.type})"
        if isinstance(e, s.Case):
            return self._case(e)
        if isinstance(e, s.Field):
            return f"{self.expression(e.value, 99)}.{name(e.name)}"
        if isinstance(e, s.Exists):
            return f"EXISTS ({self.query(e.query)})"
        if isinstance(e, s.Subquery):
            return f"({self.query(e.query)})"
        if isinstance(e, s.TableArgument):
            return self._table_argument(e)
        if isinstance(e, s.Json):
            return self._json(e)
        if isinstance(e, s.GroupingSets):
            return self._sets(e)
        raise NotImplementedError(type(e).__name__)

    def _list(self, members: tuple[s.Expression, ...]) -> str:
        return ", ".join(self.expression(m, 0) for m in members)

    def _call(self, e: s.Call) -> tuple[str, int]:
        precedence = _PRECEDENCES.get(e.name)
        if precedence is not None and len(e.arguments) == 2:
            left, right = e.arguments
            return f"{self.expression(left, precedence)} {e.name} {self.expression(right, precedence + 1)}", precedence
        if e.name == "NOT":
            return self._not(e)
        if e.name in ("UNARY -", "UNARY +"):
            return f"{e.name[-1]}{self.expression(e.arguments[0], _SIGN)}", _SIGN
        if e.name.startswith("IS "):
            first = self.expression(e.arguments[0], _IS)
            rest = f" {self.expression(e.arguments[1], _COMPARISON)}" if len(e.arguments) > 1 else ""
            return f"{first} {e.name}{rest}", _IS
        if e.name in _MATCHING_WORDS or e.name.startswith("BETWEEN"):
            return self._matched(e, ""), _MATCHING
        return self._special(e), 100

    def _not(self, e: s.Call) -> tuple[str, int]:
        inner = e.arguments[0]
        if isinstance(inner, s.Call) and (inner.name in _MATCHING_WORDS or inner.name.startswith("BETWEEN")):
            return self._matched(inner, "NOT "), _MATCHING
        return f"NOT {self.expression(inner, _NOT)}", _NOT

    def _matched(self, e: s.Call, negated: str) -> str:
        arguments = [self.expression(a, _SUM) for a in e.arguments]
        if e.name.startswith("BETWEEN"):
            kind = "SYMMETRIC" if e.name.endswith("SYMMETRIC") else "ASYMMETRIC"
            return f"{arguments[0]} {negated}BETWEEN {kind} {arguments[1]} AND {arguments[2]}"
        escape = f" ESCAPE {arguments[2]}" if len(arguments) > 2 else ""
        return f"{arguments[0]} {negated}{e.name} {arguments[1]}{escape}"

    def _special(self, e: s.Call) -> str:
        if e.name == "ITEM":
            return f"{self.expression(e.arguments[0], 99)}[{self.expression(e.arguments[1], 0)}]"
        arguments = [self.expression(a, 0) for a in e.arguments]
        if e.name in ("ARRAY", "MAP") and not (e.arguments and isinstance(e.arguments[0], s.Subquery)):
            return f"{e.name}[{', '.join(arguments)}]"
        if e.name == "INTERVAL":
            return f"INTERVAL {arguments[0]} {arguments[1]}"
        if e.name == "EXTRACT":
            return f"EXTRACT({arguments[0]} FROM {arguments[1]})"
        if e.name == "POSITION":
            return f"POSITION({arguments[0]} IN {arguments[1]})"
        if e.name == "TRIM":
            return f"TRIM({arguments[0]} {arguments[1]} FROM {arguments[2]})"
        if e.name in ("FLOOR", "CEIL") and len(arguments) == 2 and isinstance(e.arguments[1], s.Symbol):
            return f"{e.name}({arguments[0]} TO {arguments[1]})"
        if e.name in _WITHOUT_PARENTHESES and not arguments:
            return e.name
        if e.names:
            arguments = [f"{n} => {g}" for n, g in zip(e.names, arguments, strict=True)]
        return self._function(e, arguments)

    def _function(self, e: s.Call, arguments: list[str]) -> str:
        called = (
            e.name.upper() if e.name.isascii() and e.name.replace("_", "").isalnum() else path(tuple(e.name.split(".")))
        )
        order = f" ORDER BY {self._order(e.order)}" if e.order else ""
        nulls = {None: "", True: " IGNORE NULLS", False: " RESPECT NULLS"}[e.nulls]
        text = f"{called}({'DISTINCT ' if e.distinct else ''}{', '.join(arguments)}{order}){nulls}"
        if e.condition is not None:
            text += f" FILTER (WHERE {self.expression(e.condition, 0)})"
        if e.over is not None:
            text += f" OVER {name(e.over) if isinstance(e.over, str) else self._window(e.over)}"
        return text

    def _window(self, w: s.Window) -> str:
        parts = [name(w.base)] if w.base else []
        if w.partition:
            parts.append(f"PARTITION BY {self._list(w.partition)}")
        if w.order:
            parts.append(f"ORDER BY {self._order(w.order)}")
        if w.unit is not None and w.start is not None:
            bounds = self._bound_of(w.start)
            if w.end is not None:
                bounds = f"BETWEEN {bounds} AND {self._bound_of(w.end)}"
            parts.append(f"{w.unit} {bounds}")
        return f"({' '.join(parts)})"

    def _bound_of(self, b: s.Bound) -> str:
        if b.side == 0:
            return "CURRENT ROW"
        distance = "UNBOUNDED" if b.distance is None else self.expression(b.distance, _SUM)
        return f"{distance} {'PRECEDING' if b.side < 0 else 'FOLLOWING'}"

    def _order(self, keys: tuple[s.SortKey, ...]) -> str:
        shown = []
        for key in keys:
            nulls = {None: "", True: " NULLS FIRST", False: " NULLS LAST"}[key.nulls_first]
            shown.append(f"{self.expression(key.value, 0)}{' DESC' if key.descending else ''}{nulls}")
        return ", ".join(shown)

    def _case(self, e: s.Case) -> str:
        value = f" {self.expression(e.value, 0)}" if e.value is not None else ""
        branches = "".join(
            f" WHEN {self.expression(when, 0)} THEN {self.expression(then, 0)}" for when, then in e.branches
        )
        otherwise = f" ELSE {self.expression(e.otherwise, 0)}" if e.otherwise is not None else ""
        return f"CASE{value}{branches}{otherwise} END"

    def _table_argument(self, e: s.TableArgument) -> str:
        partition = f" PARTITION BY ({self._list(e.partition)})" if e.partition else ""
        order = f" ORDER BY {self._order(e.order)}" if e.order else ""
        return f"TABLE {self.relation(e.table)}{partition}{order}"

    def _json(self, e: s.Json) -> str:
        arguments = [self.expression(a, 0) for a in e.arguments]
        if e.name in ("JSON_OBJECT", "JSON_OBJECTAGG"):
            arguments = [f"KEY {k} VALUE {v}" for k, v in zip(arguments[::2], arguments[1::2], strict=True)]
        text = ", ".join(arguments)
        if e.returning is not None:
            text += f" RETURNING {e.returning}"
        if e.wrapper is not None:
            text += {"WITHOUT": " WITHOUT WRAPPER"}.get(e.wrapper, f" WITH {e.wrapper} WRAPPER")
        for when, given_word in (("EMPTY", e.empty), ("ERROR", e.error)):
            if given_word is not None:
                word = given_word if isinstance(given_word, str) else f"DEFAULT {self.expression(given_word, 0)}"
                text += f" {word} ON {when}"
        if e.null is not None:
            text += f" {e.null} ON NULL"
        tail = f" FILTER (WHERE {self.expression(e.condition, 0)})" if e.condition is not None else ""
        return f"{e.name}({text}){tail}"

    def _sets(self, e: s.GroupingSets) -> str:
        word = "GROUPING SETS" if e.kind == "SETS" else e.kind
        shown = [self._sets(x) if isinstance(x, s.GroupingSets) else f"({self._list(x)})" for x in e.sets]
        return f"{word} ({', '.join(shown)})"

    # --- queries

    def query(self, q: s.Query) -> str:
        if isinstance(q, s.Select):
            return self._select(q)
        if isinstance(q, s.Values):
            return "VALUES " + ", ".join(f"ROW({self._list(row)})" for row in q.rows)
        if isinstance(q, s.TableQuery):
            return f"TABLE {self.relation(q.table)}"
        if isinstance(q, s.SetOperation):
            word = f"{q.operator}{' ALL' if q.all else ''}"
            return f"{self._operand(q.left)}\n{word}\n{self._operand(q.right)}"
        if isinstance(q, s.Ordered):
            return self._ordered(q)
        assert isinstance(q, s.With)
        tables = []
        for called, columns, inner in q.tables:
            listed = f" ({', '.join(map(name, columns))})" if columns else ""
            tables.append(f"{name(called)}{listed} AS ({self.query(inner)})")
            self._named.add(called)
        return f"WITH {', '.join(tables)} {self.query(q.query)}"

    def _operand(self, q: s.Query) -> str:
        text = self.query(q)
        return f"({text})" if isinstance(q, (s.Ordered, s.SetOperation, s.With)) else text

    def _ordered(self, q: s.Ordered) -> str:
        text = self._operand(q.query) if isinstance(q.query, (s.Ordered, s.With)) else self.query(q.query)
        if q.order:
            text += f"\nORDER BY {self._order(q.order)}"
        if q.offset is not None:
            text += f"\nOFFSET {self.expression(q.offset, 0)} ROWS"
        if q.limit is not None:
            text += f"\nFETCH NEXT {self.expression(q.limit, 0)} ROWS ONLY"
        return text

    def _select(self, q: s.Select) -> str:
        items = ", ".join(
            self.expression(i.value, 0) + (f" AS {name(i.alias)}" if i.alias is not None else "") for i in q.items
        )
        text = f"SELECT {_hints(q.hints)}{'DISTINCT ' if q.distinct else ''}{items}"
        if q.relation is not None:
            text += f"\nFROM {self.relation(q.relation)}"
        if q.where is not None:
            text += f"\nWHERE {self.expression(q.where, 0)}"
        if q.group is not None:
            text += f"\nGROUP BY {self._list(q.group)}"
        if q.having is not None:
            text += f"\nHAVING {self.expression(q.having, 0)}"
        if q.windows:
            text += "\nWINDOW " + ", ".join(f"{name(n)} AS {self._window(w)}" for n, w in q.windows)
        if q.qualify is not None:
            text += f"\nQUALIFY {self.expression(q.qualify, 0)}"
        return text

    # --- relations

    def relation(self, r: s.Relation) -> str:
        if isinstance(r, s.TableName):
            return self._table(r)
        if isinstance(r, s.Aliased):
            columns = f" ({', '.join(map(name, r.columns))})" if r.columns else ""
            return f"{self.relation(r.relation)} AS {name(r.name)}{columns}"
        if isinstance(r, s.Derived):
            return f"{'LATERAL ' if r.lateral else ''}({self.query(r.query)})"
        if isinstance(r, s.Join):
            return self._join(r)
        if isinstance(r, s.TableFunction):
            return f"{'LATERAL ' if r.lateral else ''}TABLE({self.expression(r.call, 0)})"
        if isinstance(r, s.Unnest):
            return f"UNNEST({self._list(r.values)}){' WITH ORDINALITY' if r.ordinality else ''}"
        if isinstance(r, s.Matched):
            return self._match_recognize(r)
        raise NotImplementedError(type(r).__name__)

    def _match_recognize(self, r: s.Matched) -> str:
        parts = []
        if r.partition:
            parts.append(f"PARTITION BY {self._list(r.partition)}")
        if r.order:
            parts.append(f"ORDER BY {self._order(r.order)}")
        if r.measures:
            parts.append("MEASURES " + ", ".join(f"{self.expression(e, 0)} AS {name(n)}" for e, n in r.measures))
        if r.rows:
            parts.append("ALL ROWS PER MATCH" if r.rows == "ALL" else "ONE ROW PER MATCH")
        if r.skip:
            parts.append(f"AFTER MATCH SKIP {' '.join((r.skip[0], *map(name, r.skip[1:])))}")
        parts.append(f"PATTERN ({' '.join(map(_step, r.pattern))})")
        if r.within is not None:
            parts.append(f"WITHIN {self.expression(r.within, 0)}")
        if r.subsets:
            sets = (f"{name(n)} = ({', '.join(map(name, members))})" for n, members in r.subsets)
            parts.append(f"SUBSET {', '.join(sets)}")
        if r.define:
            parts.append("DEFINE " + ", ".join(f"{name(n)} AS {self.expression(e, 0)}" for n, e in r.define))
        return f"{self.relation(r.relation)} MATCH_RECOGNIZE (\n" + "\n".join(parts) + "\n)"

    def _table(self, r: s.TableName) -> str:
        parts = r.parts if len(r.parts) == 1 and r.parts[0] in self._named else self._full(r.parts)
        hints = f" {_hints(r.hints).rstrip()}" if r.hints else ""
        when = f" FOR SYSTEM_TIME AS OF {self.expression(r.as_of, 0)}" if r.as_of is not None else ""
        return f"{path(parts)}{hints}{when}"

    def _join(self, r: s.Join) -> str:
        natural = "NATURAL " if r.natural else ""
        left = self.relation(r.left)
        right = f"({self.relation(r.right)})" if isinstance(r.right, s.Join) else self.relation(r.right)
        text = f"{left}\n{natural}{r.kind} JOIN {right}"
        if r.condition is not None:
            text += f" ON {self.expression(r.condition, 0)}"
        if r.using:
            text += f" USING ({', '.join(map(name, r.using))})"
        return text


def _hints(hints: tuple[s.Hint, ...]) -> str:
    if not hints:
        return ""
    shown = []
    for hint in hints:
        inside = [f"{string(k)}={string(v)}" for k, v in hint.options] or [string(w) for w in hint.words]
        shown.append(f"{hint.name}({', '.join(inside)})" if inside else hint.name)
    return f"/*+ {', '.join(shown)} */ "


def _literal(e: s.Literal) -> str:
    if e.kind == "STRING":
        return string(e.text)
    if e.kind == "BINARY":
        return f"X'{e.text}'"
    if e.kind in ("DATE", "TIME", "TIMESTAMP"):
        return f"{e.kind} {string(e.text)}"
    return e.text


def _step(step: s.PatternStep) -> str:
    if step.min_count == step.max_count == 1:
        return name(step.variable)
    upper = "" if step.max_count is None else str(step.max_count)
    simple = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((step.min_count, step.max_count))
    return f"{name(step.variable)}{simple or f'{{{step.min_count},{upper}}}'}{'?' if step.reluctant else ''}"

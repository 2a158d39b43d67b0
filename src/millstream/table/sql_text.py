"""Writes an expression of the Table API as SQL, for declarations that a catalog keeps as text."""

from __future__ import annotations

from millstream.common.errors import InvalidProgramError
from millstream.sql.language import syntax
from millstream.sql.types import quoted
from millstream.table.api_syntax import TimeMark
from millstream.table.summary import summary

_INFIX = frozenset(["+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||"])
_INFIX_WORDS = frozenset(["LIKE", "SIMILAR TO", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
_BARE = frozenset(["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"])


def name_as_sql(name: str) -> str:
    """Return a name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def as_sql(tree: syntax.Expression) -> str:
    """Return the SQL that is read as this tree.

    Example:
        >>> as_sql(syntax.Call("-", (syntax.Name(("ts",)), syntax.Interval("5", False, "SECOND", "SECOND"))))
        "(`ts` - INTERVAL '5' SECOND)"
    """
    match tree:
        case syntax.Name(parts):
            return ".".join(map(name_as_sql, parts))
        case syntax.Literal("STRING", text):
            return quoted(text)
        case syntax.Literal("BINARY", text):
            return f"x'{text}'"
        case syntax.Literal(("DATE" | "TIME" | "TIMESTAMP") as kind, text):
            return f"{kind} {quoted(text)}"
        case syntax.Literal(_, text):
            return text
        case syntax.Interval():
            return _interval(tree)
        case syntax.Cast(value, type_, lenient):
            return f"{'TRY_CAST' if lenient else 'CAST'}({as_sql(value)} AS {type_})"
        case syntax.Field(value, name):
            return f"{as_sql(value)}.{name_as_sql(name)}"
        case syntax.Case(None, branches, otherwise):
            whens = " ".join(f"WHEN {as_sql(a)} THEN {as_sql(b)}" for a, b in branches)
            return f"CASE {whens} ELSE {'NULL' if otherwise is None else as_sql(otherwise)} END"
        case syntax.In(value, among, negated) if isinstance(among, tuple):
            return f"{as_sql(value)} {'NOT ' if negated else ''}IN ({', '.join(map(as_sql, among))})"
        case syntax.Call():
            return _call(tree)
        case TimeMark(_, "PROCTIME"):
            return "PROCTIME()"
    raise InvalidProgramError(f"{summary(tree)} cannot be kept in a catalog: write it in SQL.")


def _interval(tree: syntax.Interval) -> str:
    fraction = f", {tree.fraction}" if tree.fraction is not None and tree.first == "SECOND" else ""
    digits = f"({tree.precision}{fraction})" if tree.precision is not None else ""
    last = f" TO {tree.last}" if tree.last != tree.first else ""
    return f"INTERVAL {'-' if tree.negative else ''}{quoted(tree.text)} {tree.first}{digits}{last}"


def _call(tree: syntax.Call) -> str:
    arguments = [a.word if isinstance(a, syntax.Symbol) else as_sql(a) for a in tree.arguments]
    name = tree.name
    if name in _INFIX or name in _INFIX_WORDS:
        return f"({arguments[0]} {name} {arguments[1]})"
    if name in ("NOT", "UNARY -", "UNARY +"):
        return f"({name.removeprefix('UNARY ')} {arguments[0]})"
    if name.startswith("IS "):
        return f"({arguments[0]} {name})"
    if name == "BETWEEN":
        return f"({arguments[0]} BETWEEN {arguments[1]} AND {arguments[2]})"
    if name == "ITEM":
        return f"{arguments[0]}[{arguments[1]}]"
    if name in ("ARRAY", "MAP"):
        return f"{name}[{', '.join(arguments)}]"
    if name in ("FLOOR", "CEIL") and len(arguments) == 2:
        return f"{name}({arguments[0]} TO {arguments[1]})"
    if name == "EXTRACT":
        return f"EXTRACT({arguments[0]} FROM {arguments[1]})"
    if name == "TRIM":
        return f"TRIM({arguments[0]} {arguments[1]} FROM {arguments[2]})"
    if name == "POSITION":
        return f"POSITION({arguments[0]} IN {arguments[1]})"
    if name in _BARE:
        return name
    distinct = "DISTINCT " if tree.distinct else ""
    return f"{name}({distinct}{', '.join(arguments)})"

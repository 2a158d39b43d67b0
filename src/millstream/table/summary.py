"""How an expression of the Table API is written in plans and errors."""

from __future__ import annotations

from millstream.sql.language import syntax
from millstream.table.api_syntax import (
    Chosen,
    FieldAt,
    InlineCall,
    OverNamed,
    Range,
    RowInterval,
    TimeMark,
    WindowBound,
)

# What the Table API calls the operators of SQL.
OPERATORS = {
    "+": "plus",
    "-": "minus",
    "*": "times",
    "/": "divide",
    "%": "mod",
    "UNARY -": "minusPrefix",
    "=": "equals",
    "<>": "notEquals",
    "<": "lessThan",
    "<=": "lessThanOrEqual",
    ">": "greaterThan",
    ">=": "greaterThanOrEqual",
    "AND": "and",
    "OR": "or",
    "NOT": "not",
    "ITEM": "at",
    "SOURCE_WATERMARK": "SOURCE_WATERMARK",
}


def summary(tree: syntax.Expression, names: tuple[str, ...] = ()) -> str:
    """Return an expression as text: a name, a value, or a function with its arguments in parentheses.

    Example:
        >>> summary(syntax.Call("+", (syntax.Name(("a",)), syntax.Literal("INTEGER", "1"))), ("b",))
        "as(plus(a, 1), 'b')"
    """
    if names:
        return f"as({summary(tree)}, {', '.join(map(repr, names))})"
    match tree:
        case syntax.Name(parts):
            return ".".join(parts)
        case syntax.Literal("STRING", text):
            return "'" + text.replace("'", "''") + "'"
        case syntax.Literal(_, text):
            return text
        case syntax.Interval():
            return str(_units(tree))
        case syntax.Symbol(word):
            return word
        case syntax.Cast(syntax.Literal() as value, type_) if not type_.is_nullable:
            # What lit() makes of a value and its type.
            return summary(value)
        case syntax.Cast(value, type_, lenient):
            return f"{'try_cast' if lenient else 'cast'}({summary(value)}, {type_})"
        case syntax.Field(value, name):
            return f"get({summary(value)}, {name})"
        case syntax.Call("NOT", (syntax.Call("BETWEEN", arguments),)):
            return _function("notBetween", arguments)
        case syntax.Call(name, arguments):
            return _function(OPERATORS.get(name) or _camel(name), arguments)
        case syntax.Json(name, arguments):
            return _function(_camel(name), arguments)
        case InlineCall(function, arguments):
            return _function(function.name, arguments)
        case syntax.Case(None, ((condition, value),), otherwise) if otherwise is not None:
            return _function("ifThenElse", (condition, value, otherwise))
        case syntax.In(value, among) if isinstance(among, tuple):
            return _function("in", (value, *among))
    return _special(tree)


# How many months, or milliseconds, a unit has.
_LENGTHS = {"YEAR": 12, "MONTH": 1, "DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1000}


def _units(tree: syntax.Interval) -> int | str:
    if tree.first != tree.last:
        return f"'{tree.text}' {tree.first} TO {tree.last}"
    count = round(float(tree.text) * _LENGTHS[tree.first])
    return -count if tree.negative else count


def _special(tree: syntax.Expression) -> str:
    match tree:
        case FieldAt(value, index):
            return f"get({summary(value)}, {index})"
        case OverNamed(value, window):
            return f"over({summary(value)}, {window})"
        case WindowBound(window, kind):
            return f"{kind.lower()}({summary(window)})"
        case TimeMark(value, kind):
            return f"{kind.lower()}({summary(value)})"
        case RowInterval(rows):
            return f"{rows} rows"
        case Range(start, end):
            return f"rangeTo({start}, {end})"
        case Chosen(members, left_out):
            return _function("withoutColumns" if left_out else "withColumns", members)
    return type(tree).__name__.lower()


def _function(name: str, arguments: tuple[syntax.Expression, ...]) -> str:
    return f"{name}({', '.join(map(summary, arguments))})"


def _camel(name: str) -> str:
    first, *rest = name.replace("$", "").replace(" ", "_").split("_")
    return first.lower() + "".join(word.capitalize() for word in rest)

"""SQL text of Table API expressions and declarations: written for catalogs and plans, and parsed from arguments."""

from __future__ import annotations

from millstream.common.errors import InvalidProgramError
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog.tables import CatalogTable, ColumnKind
from millstream.sql.ddl.declarations import declared
from millstream.sql.language import statements as s
from millstream.sql.language import syntax
from millstream.sql.language.errors import SqlParserException
from millstream.sql.language.lexer import Kind, tokens_of
from millstream.sql.language.statement_grammar import StatementGrammar
from millstream.sql.language.syntax import Expression
from millstream.sql.language.type_grammar import read_type
from millstream.sql.types import DataType, quoted
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
    raise InvalidProgramError(f"{summary(tree)} cannot be stored in a catalog: write it in SQL.")


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


# The Table API's names of SQL operators.
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
            # A literal of lit() with a type.
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


# The months or milliseconds of a unit.
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
        case Chosen(members, excluded):
            return _function("withoutColumns" if excluded else "withColumns", members)
    return type(tree).__name__.lower()


def _function(name: str, arguments: tuple[syntax.Expression, ...]) -> str:
    return f"{name}({', '.join(map(summary, arguments))})"


def _camel(name: str) -> str:
    first, *rest = name.replace("$", "").replace(" ", "_").split("_")
    return first.lower() + "".join(word.capitalize() for word in rest)


def read_expression(text: str) -> Expression:
    """Parse an expression."""
    grammar = StatementGrammar(text)
    expression = grammar.expression()
    if not grammar.is_at_end:
        grammar.refuse()
    return expression


def read_data_type(text: str) -> DataType:
    """Return the type that a text names.

    Example:
        >>> str(read_data_type("map<string, int>"))
        'MAP<STRING, INT>'
    """
    grammar = StatementGrammar(text)
    data_type = read_type(grammar, intervals=True)
    if not grammar.is_at_end:
        grammar.refuse()
    return data_type


def read_path(text: str) -> tuple[str, ...]:
    """Return the parts of a name such as `db.t`, with or without backquotes; keywords are names, too."""
    *tokens, _ = tokens_of(text)
    names, dots = tokens[::2], tokens[1::2]
    words = all(t.kind in (Kind.WORD, Kind.QUOTED) for t in names)
    if not names or not words or len(names) != len(dots) + 1 or any(t.text != "." for t in dots):
        raise SqlParserException(f"Invalid SQL identifier {text}.")
    return tuple(t.text for t in names)


def as_data_type(data_type: DataType | str) -> DataType:
    """Return a type that may be specified as text."""
    return read_data_type(data_type) if isinstance(data_type, str) else data_type


def resolved_declaration(binder: Binder, table: CatalogTable) -> CatalogTable:
    """Return a declaration checked as CREATE TABLE is, with all its types."""
    columns = tuple(
        s.Column(
            c.name,
            None if c.kind is ColumnKind.COMPUTED else c.type,
            None if c.expression is None else s.SourceExpression(read_expression(c.expression), c.expression),
            c.kind is ColumnKind.METADATA,
            c.metadata_key,
            c.virtual,
            c.comment,
        )
        for c in table.columns
    )
    watermarks: tuple[s.Watermark, ...] = ()
    if table.watermark is not None:
        name, text = table.watermark
        watermarks = (s.Watermark((name,), s.SourceExpression(read_expression(text), text)),)
    key = s.PrimaryKey(table.primary_key, table.primary_key_name) if table.primary_key else None
    statement = s.CreateTable(
        ("described",),
        columns,
        watermarks,
        key,
        table.comment,
        partition=table.partition,
        options=tuple(table.options.items()),
    )
    return declared(binder, statement, None)

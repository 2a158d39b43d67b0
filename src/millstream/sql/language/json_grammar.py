"""Parses JSON functions, which have clauses of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.language.syntax import Expression, Json
from millstream.sql.language.type_grammar import read_type
from millstream.sql.types import DataType

if TYPE_CHECKING:
    from millstream.sql.language.expression_grammar import ExpressionGrammar

FUNCTIONS = (
    *("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS"),
    *("JSON_OBJECT", "JSON_ARRAY", "JSON_OBJECTAGG", "JSON_ARRAYAGG"),
)


def read(g: ExpressionGrammar) -> Expression:
    """Parse a JSON function."""
    token = g.skip()
    g.need("(")
    name = token.upper
    if name in ("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS"):
        result = _path_function(g, name, token.position)
    elif name == "JSON_OBJECT":
        result = _object(g, token.position)
    elif name == "JSON_ARRAY":
        values = () if g.one_of(")", "NULL", "ABSENT") and _ends(g) else tuple(g.list_of(g.expression))
        result = Json(name, values, null=_on_null(g), position=token.position)
    elif name == "JSON_OBJECTAGG":
        g.take("KEY")
        result = Json(name, _pair(g), null=_on_null(g), position=token.position)
    else:
        result = Json(name, (g.expression(),), null=_on_null(g), position=token.position)
    g.need(")")
    if not name.endswith("AGG") or not g.take("FILTER"):
        return result
    condition = g.in_parentheses(lambda: (g.need("WHERE"), g.expression())[1])
    return Json(name, result.arguments, null=result.null, condition=condition, position=token.position)


def _ends(g: ExpressionGrammar) -> bool:
    """Return whether the arguments end or a null clause follows."""
    return g.next_is(")") or g.ahead(1).upper == "ON"


def _object(g: ExpressionGrammar, position: int) -> Json:
    members: list[Expression] = []
    if not (g.one_of(")", "NULL", "ABSENT") and _ends(g)):
        while True:
            if g.next_is("KEY") and g.ahead(1).upper not in (",", ")", "VALUE", ":"):
                g.skip()
            members += _pair(g)
            if not g.take(","):
                break
    return Json("JSON_OBJECT", tuple(members), null=_on_null(g), position=position)


def _pair(g: ExpressionGrammar) -> tuple[Expression, ...]:
    key = g.expression()
    g.need_one_of("VALUE", ":", ",")
    return key, g.expression()


def _on_null(g: ExpressionGrammar) -> str | None:
    word = g.one_of("NULL", "ABSENT")
    if word is None:
        return None
    g.need(word, "ON", "NULL")
    return word


def _path_function(g: ExpressionGrammar, name: str, position: int) -> Json:
    document = g.expression()
    g.need(",")
    path = g.expression()
    returning: DataType | None = read_type(g) if g.take("RETURNING") else None
    wrapper = _wrapper(g) if name == "JSON_QUERY" else None
    behaviours: dict[str, str | Expression] = {}
    while (result := _behaviour(g)) is not None:
        when = g.need_one_of("EMPTY", "ERROR")
        if when in behaviours:
            g.refuse_at(position, f"{name} has two ON {when} clauses")
        behaviours[when] = result
    return Json(
        name,
        (document, path),
        returning,
        behaviours.get("EMPTY"),
        behaviours.get("ERROR"),
        wrapper=wrapper,
        position=position,
    )


def _wrapper(g: ExpressionGrammar) -> str | None:
    if g.take("WITHOUT"):
        g.take("ARRAY")
        g.need("WRAPPER")
        return "WITHOUT"
    if not g.take("WITH"):
        return None
    kind = g.take_one_of("CONDITIONAL", "UNCONDITIONAL") or "UNCONDITIONAL"
    g.take("ARRAY")
    g.need("WRAPPER")
    return kind


def _behaviour(g: ExpressionGrammar) -> str | Expression | None:
    """Parse the behaviour of ON EMPTY or ON ERROR, up to the ON."""
    if g.take("DEFAULT"):
        result: str | Expression = g.expression()
    else:
        word = g.take_one_of("NULL", "ERROR", "TRUE", "FALSE", "UNKNOWN", "EMPTY")
        if word is None:
            return None
        result = f"EMPTY {g.need_one_of('ARRAY', 'OBJECT')}" if word == "EMPTY" else word
    g.need("ON")
    return result

"""Binds TO_CHANGELOG and FROM_CHANGELOG: conversions between a changelog and append-only rows with an op column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.scope import Refused, Scope
from millstream.sql.expressions import Constant
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import FromChangelog, Node, ToChangelog
from millstream.sql.schema import Changes, Field, Fields
from millstream.sql.types import DataTypes, VarCharType

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder

_PARAMETERS = ("INPUT", "OP", "OP_MAPPING")
_CHANGES = tuple(c.name for c in Changes)
FUNCTIONS = frozenset(["TO_CHANGELOG", "FROM_CHANGELOG"])


def changelog_table(binder: Binder, call: syntax.Call, outer: Scope | None) -> Node:
    """Return the node of TO_CHANGELOG or FROM_CHANGELOG."""
    name = call.name.upper()
    if binder.batch:
        raise Refused(f"{name} is for streaming mode: in batch there are only final rows", call.position)
    given = _by_name(name, call)
    data = given["INPUT"]
    if not isinstance(data, syntax.TableArgument):
        raise Refused(f"The first argument of {name} is a table: TABLE t", data.position)
    if data.partition:
        raise Refused(f"{name} takes rows one by one: leave PARTITION BY out", data.position)
    node = binder.relation(data.table, outer)[0]
    op = _op(given.get("OP"))
    mapping = _mapping(binder, given["OP_MAPPING"]) if "OP_MAPPING" in given else [(c, c) for c in _CHANGES]
    return _to(node, op, mapping, call) if name == "TO_CHANGELOG" else _from(node, op, mapping, call)


def _by_name(name: str, call: syntax.Call) -> dict[str, syntax.Expression]:
    names = [n.upper() for n in call.names] if call.names else list(_PARAMETERS[: len(call.arguments)])
    unknown = [n for n in names if n not in _PARAMETERS]
    if unknown or len(call.arguments) > len(_PARAMETERS) or "INPUT" not in names:
        what = f"has no argument {unknown[0].lower()}; it has" if unknown else "takes"
        raise Refused(f"{name} {what} input, op and op_mapping", call.position)
    return dict(zip(names, call.arguments, strict=True))


def _op(given: syntax.Expression | None) -> str:
    if given is None:
        return "op"
    if isinstance(given, syntax.Call) and given.name == "DESCRIPTOR" and len(given.arguments) == 1:
        (column,) = given.arguments
        if isinstance(column, syntax.Name) and len(column.parts) == 1:
            return column.parts[0]
    raise Refused("The argument op is a column: DESCRIPTOR(name)", given.position)


def _mapping(binder: Binder, given: syntax.Expression) -> list[tuple[str, str]]:
    """Return the pairs of a constant map."""
    value = binder.folded(ExpressionBinder(binder, Scope()).bind(given))
    pairs = value.value if isinstance(value, Constant) else None
    if not isinstance(pairs, list) or not all(isinstance(text, str) for pair in pairs for text in pair):
        raise Refused("The argument op_mapping is a constant MAP of strings: MAP['INSERT', 'I']", given.position)
    return [(key, text) for key, text in pairs]


def _split(mapping: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return one pair per word of the keys, which may be comma-separated lists."""
    return [(one.strip(), text) for key, text in mapping for one in key.split(",")]


def _to(node: Node, op: str, mapping: list[tuple[str, str]], call: syntax.Call) -> Node:
    mapping = _split(mapping)
    _check([kind for kind, _ in mapping], call)
    if op in node.fields.names:
        raise Refused(
            f"Field names must be unique. Found duplicates: [{op}]: name another column with op", call.position
        )
    plain = tuple(Field(f.name, f.type) for f in node.fields.fields)
    return ToChangelog(Fields((Field(op, DataTypes.STRING()), *plain)), node, tuple(mapping))


def _from(node: Node, op: str, mapping: list[tuple[str, str]], call: syntax.Call) -> Node:
    kinds = [kind for _, kind in mapping]
    _check(kinds, call)
    if op not in node.fields.names:
        raise Refused(f"The op column '{op}' does not exist in the input schema", call.position)
    place = node.fields.names.index(op)
    if not isinstance(node.fields[place].type, VarCharType):
        raise Refused(
            f"The op column '{op}' must be of type STRING, but it is {node.fields[place].type}", call.position
        )
    if ("UPDATE_AFTER" in kinds) != ("UPDATE_BEFORE" in kinds):
        raise Refused("op_mapping must have both UPDATE_BEFORE and UPDATE_AFTER, or neither", call.position)
    rest = tuple(Field(f.name, f.type) for i, f in enumerate(node.fields.fields) if i != place)
    return FromChangelog(Fields(rest), node, place, tuple(_split(mapping)))


def _check(kinds: list[str], call: syntax.Call) -> None:
    unknown = [k for k in kinds if k not in _CHANGES]
    if unknown:
        raise Refused(f"op_mapping has '{unknown[0]}', which is none of {', '.join(_CHANGES)}", call.position)
    if len(set(kinds)) < len(kinds):
        twice = next(k for k in kinds if kinds.count(k) > 1)
        raise Refused(f"op_mapping has {twice} twice: put several words into one key, with commas", call.position)

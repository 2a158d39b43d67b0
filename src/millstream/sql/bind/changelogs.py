"""Binds TO_CHANGELOG and FROM_CHANGELOG: conversions between a changelog and append-only rows with an op column."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.scope import BindError, Scope
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
        raise BindError(f"{name} requires streaming mode: in batch mode a table has only final rows", call.position)
    arguments = _by_name(name, call)
    data = arguments["INPUT"]
    if not isinstance(data, syntax.TableArgument):
        raise BindError(f"The first argument of {name} must be a table: TABLE t", data.position)
    if data.partition:
        raise BindError(f"{name} has row semantics: remove PARTITION BY", data.position)
    node = binder.relation(data.table, outer)[0]
    op = _op(arguments.get("OP"))
    mapping = _mapping(binder, arguments["OP_MAPPING"]) if "OP_MAPPING" in arguments else [(c, c) for c in _CHANGES]
    return _to_changelog(node, op, mapping, call) if name == "TO_CHANGELOG" else _from(node, op, mapping, call)


def _by_name(name: str, call: syntax.Call) -> dict[str, syntax.Expression]:
    names = [n.upper() for n in call.names] if call.names else list(_PARAMETERS[: len(call.arguments)])
    unknown = [n for n in names if n not in _PARAMETERS]
    if unknown or len(call.arguments) > len(_PARAMETERS) or "INPUT" not in names:
        problem = f"has no argument {unknown[0].lower()}; it has" if unknown else "takes"
        raise BindError(f"{name} {problem} input, op and op_mapping", call.position)
    return dict(zip(names, call.arguments, strict=True))


def _op(argument: syntax.Expression | None) -> str:
    if argument is None:
        return "op"
    if isinstance(argument, syntax.Call) and argument.name == "DESCRIPTOR" and len(argument.arguments) == 1:
        (column,) = argument.arguments
        if isinstance(column, syntax.Name) and len(column.parts) == 1:
            return column.parts[0]
    raise BindError("The argument op must be a column: DESCRIPTOR(name)", argument.position)


def _mapping(binder: Binder, argument: syntax.Expression) -> list[tuple[str, str]]:
    """Return the pairs of a constant map."""
    value = binder.folded(ExpressionBinder(binder, Scope()).bind(argument))
    pairs = value.value if isinstance(value, Constant) else None
    if not isinstance(pairs, list) or not all(isinstance(text, str) for pair in pairs for text in pair):
        raise BindError(
            "The argument op_mapping must be a constant MAP of strings: MAP['INSERT', 'I']", argument.position
        )
    return [(key, text) for key, text in pairs]


def _split(mapping: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return one pair per word of the keys, which may be comma-separated lists."""
    return [(one.strip(), text) for key, text in mapping for one in key.split(",")]


def _to_changelog(node: Node, op: str, mapping: list[tuple[str, str]], call: syntax.Call) -> Node:
    mapping = _split(mapping)
    _check([kind for kind, _ in mapping], call)
    if op in node.fields.names:
        raise BindError(
            f"Field names must be unique. Found duplicates: [{op}]: choose another name in op", call.position
        )
    plain = tuple(Field(f.name, f.type) for f in node.fields.fields)
    return ToChangelog(Fields((Field(op, DataTypes.STRING()), *plain)), node, tuple(mapping))


def _from(node: Node, op: str, mapping: list[tuple[str, str]], call: syntax.Call) -> Node:
    kinds = [kind for _, kind in mapping]
    _check(kinds, call)
    if op not in node.fields.names:
        raise BindError(f"The op column '{op}' does not exist in the input schema", call.position)
    op_index = node.fields.names.index(op)
    if not isinstance(node.fields[op_index].type, VarCharType):
        raise BindError(
            f"The op column '{op}' must be of type STRING, but it is {node.fields[op_index].type}", call.position
        )
    if ("UPDATE_AFTER" in kinds) != ("UPDATE_BEFORE" in kinds):
        raise BindError("op_mapping must have both UPDATE_BEFORE and UPDATE_AFTER, or neither", call.position)
    rest = tuple(Field(f.name, f.type) for i, f in enumerate(node.fields.fields) if i != op_index)
    return FromChangelog(Fields(rest), node, op_index, tuple(_split(mapping)))


def _check(kinds: list[str], call: syntax.Call) -> None:
    unknown = [k for k in kinds if k not in _CHANGES]
    if unknown:
        raise BindError(f"op_mapping has '{unknown[0]}', which is none of {', '.join(_CHANGES)}", call.position)
    if len(set(kinds)) < len(kinds):
        duplicate = next(k for k in kinds if kinds.count(k) > 1)
        raise BindError(f"op_mapping has {duplicate} twice: combine them in one comma-separated key", call.position)

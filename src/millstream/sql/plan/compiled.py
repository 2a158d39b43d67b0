"""Compiled plans as JSON: `COMPILE PLAN` writes the planner's result, `EXECUTE PLAN` runs it unchanged.

A plan is a list of operators in topological order, with name, id and traits. Values without a JSON type are objects
with a key that begins with `$`: `$type`, `$enum`, `$set`, .., or a record tag. Sources, sinks and user functions are
not stored: loading creates them again from the tables and functions that the plan names.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Protocol

from millstream.common.aliases import Json, Value
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.connector_contract import TableSink, TableSource
from millstream.sql.errors import TableException
from millstream.sql.expressions import UserFunction
from millstream.sql.language.reader import Reader
from millstream.sql.language.type_grammar import read_type
from millstream.sql.plan import nodes as n
from millstream.sql.plan.records import ENUMS, INPUTS, RECORDS, RecordEncoder, arguments_of
from millstream.sql.types import DataType, RawType

VERSION = "2.3"
_FORMAT = 3


class NameResolver(Protocol):
    """Resolves names in a plan."""

    def function_path(self, function: UserFunction) -> tuple[str, ...]:
        """Return the path under which a user function is registered, or raise TableException."""

    def function(self, path: tuple[str, ...]) -> UserFunction:
        """Return the user function of a path, or raise TableException."""

    def table(self, name: tuple[str, ...], planned: CatalogTable) -> CatalogTable:
        """Return the current catalog entry of a table."""

    def source(self, name: tuple[str, ...], table: CatalogTable) -> TableSource:
        """Return the source of a table."""

    def sink(self, name: tuple[str, ...], table: CatalogTable) -> TableSink:
        """Return the sink of a table."""


def as_json(plans: Sequence[n.Planned], resolver: NameResolver, batch: bool) -> str:
    """Return plans as JSON text."""
    writer = _Writer(resolver)
    ends = [writer.index_of(p) for p in plans]
    content = {"flinkVersion": VERSION, "millstreamFormat": _FORMAT, "batch": batch}
    content |= {"nodes": writer.nodes, "ends": ends}
    return json.dumps(content, indent=2)


def from_json(text: str, resolver: NameResolver, batch: bool) -> list[n.Planned]:
    """Return the plans in a JSON text."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise TableException(f"Cannot load the plan: it is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("millstreamFormat") != _FORMAT:
        raise TableException(
            "Cannot load the plan: it was not compiled by this version of millstream; compile the statement again."
        )
    if content["batch"] != batch:
        mode = "batch" if content["batch"] else "streaming"
        raise TableException(f"Cannot load the plan: it was compiled in {mode} mode.")
    return _Reader(resolver).plans(content)


class _Writer:
    """Writes each operator once, even if several read it."""

    def __init__(self, resolver: NameResolver) -> None:
        self._encoder = RecordEncoder(
            lambda function: list(resolver.function_path(function)), INPUTS | {"source", "sink"}, _type_text
        )
        self._indexes: dict[int, int] = {}
        self.nodes: list[dict[str, Json]] = []

    def index_of(self, planned: n.Planned) -> int:
        """Return an operator's index in the list, after adding it and its inputs."""
        if id(planned) not in self._indexes:
            inputs = [self.index_of(p) for p in planned.inputs]
            _check(planned)
            self.nodes.append(
                {
                    "id": len(self.nodes) + 1,
                    "description": planned.name,
                    "uid": planned.uid,
                    "inputs": inputs,
                    "traits": self._encoder.value(planned.traits),
                    "node": self._encoder.value(planned.node),
                }
            )
            self._indexes[id(planned)] = len(self.nodes)
        return self._indexes[id(planned)]


def _check(planned: n.Planned) -> None:
    """Reject nodes that a plan cannot restore."""
    node = planned.node
    if isinstance(node, n.StreamScan):
        raise TableException(f"A plan that reads a DataStream cannot be compiled: {planned.name}.")
    table = node.scan if isinstance(node, n.LookupJoin) else node
    if isinstance(table, (n.Scan, n.Sink)) and "connector" not in table.table.options:
        raise TableException(f"A plan that reads rows of the program cannot be compiled: {'.'.join(table.name)}.")


def _type_text(kind: DataType) -> str:
    if isinstance(kind, RawType):
        raise TableException(f"A plan with a column of type {kind} cannot be compiled.")
    return str(kind)


class _Reader:
    """Creates operators from JSON."""

    def __init__(self, resolver: NameResolver) -> None:
        self._resolver = resolver
        self._read: dict[int, n.Planned] = {}
        self._types: dict[str, DataType] = {}

    def plans(self, content: dict[str, Json]) -> list[n.Planned]:
        """Return the root operators of a plan."""
        for one in content["nodes"]:
            inputs = tuple(self._read[i] for i in one["inputs"])
            node = self._node(one["node"], [p.node for p in inputs])
            self._read[one["id"]] = n.Planned(node, inputs, self._value(one["traits"]), one["description"], one["uid"])
        return [self._read[i] for i in content["ends"]]

    def _node(self, encoded: dict[str, Json], inputs: Sequence[n.Node]) -> n.Node:
        kind, values = self._record(encoded)
        if kind is n.Union:
            return n.Union(**values, parts=tuple(inputs))
        values |= zip(("left", "right") if issubclass(kind, n.Double) else ("input",), inputs, strict=False)
        if issubclass(kind, (n.Scan, n.Sink)):
            name, table = values["name"], self._resolver.table(values["name"], values["table"])
            table = replace(table, options={**table.options, **dict(values.get("options", ()))})
            values["table"] = table
            if kind is n.Scan:
                values["source"] = self._resolver.source(name, table)
            else:
                values["sink"] = self._resolver.sink(name, table)
        node: n.Node = kind(**values)
        return node

    def _record(self, encoded: dict[str, Json]) -> tuple[type, dict[str, Value]]:
        tag = encoded["$record"]
        return RECORDS[tag], {k: self._value(v) for k, v in arguments_of(tag, encoded).items()}

    def _value(self, encoded: Json) -> Value:
        if isinstance(encoded, list):
            return tuple(self._value(v) for v in encoded)
        if not isinstance(encoded, dict):
            return encoded
        if "$record" in encoded:
            kind = RECORDS[encoded["$record"]]
            return self._node(encoded, ()) if issubclass(kind, n.Node) else kind(**self._record(encoded)[1])
        ((tag, content),) = encoded.items()
        return _DECODE[tag](self, content)

    def _type(self, text: str) -> DataType:
        if text not in self._types:
            self._types[text] = read_type(Reader(text), intervals=True)
        return self._types[text]


# Decodes the JSON values that RecordEncoder writes under each tag.
_DECODE: dict[str, Callable[[_Reader, Json], Value]] = {
    "$type": lambda reader, text: reader._type(text),
    "$enum": lambda _, named: ENUMS[named[0]][named[1]],
    "$set": lambda reader, members: frozenset(reader._value(m) for m in members),
    "$map": lambda reader, pairs: {k: reader._value(v) for k, v in pairs},
    "$decimal": lambda _, text: Decimal(text),
    "$bytes": lambda _, text: base64.b64decode(text),
    "$function": lambda reader, path: reader._resolver.function(tuple(path)),
}

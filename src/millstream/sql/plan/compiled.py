"""Plans as JSON: `COMPILE PLAN` writes what the planner made, `EXECUTE PLAN` runs it as it was made.

A plan is a list of operators, each behind those that it reads, with name, id and traits. What is not a value of JSON is
an object with one key that begins with `$`: `$type`, `$enum`, `$set`, .., or the name of a record. Sources, sinks
and functions of users are not written: they are made again of the tables and functions that the plan names.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from enum import Enum
from typing import Any, Protocol

from millstream.sql import expressions
from millstream.sql.catalog import tables
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.changes import Changes
from millstream.sql.connectors import TableSink, TableSource
from millstream.sql.errors import TableException
from millstream.sql.language.reader import Reader
from millstream.sql.language.type_grammar import read_type
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import DataType, RawType

VERSION = "2.3"
_FORMAT = 1
# Inputs are operators of their own.
_INPUTS = ("input", "left", "right", "parts")
_ENUMS = {e.__name__: e for e in (Changes, TimeAttribute, tables.ColumnKind, n.JoinKind, n.JoinStrategy, n.WindowKind)}
_RECORDS = {
    c.__name__: c
    for module in (expressions, n, tables)
    for c in vars(module).values()
    if isinstance(c, type) and is_dataclass(c) and c.__module__ == module.__name__
} | {"Field": Field, "Fields": Fields}


class Surroundings(Protocol):
    """What a plan refers to by name."""

    def function_path(self, function: Any) -> tuple[str, ...]:
        """Return under which path a user's function is known; refuses one that has none."""

    def function(self, path: tuple[str, ...]) -> Any:
        """Return the user's function of a path; refuses where there is none."""

    def table(self, name: tuple[str, ...], planned: CatalogTable) -> CatalogTable:
        """Return what is known of a table now."""

    def source(self, name: tuple[str, ...], table: CatalogTable) -> TableSource:
        """Return what reads a table."""

    def sink(self, name: tuple[str, ...], table: CatalogTable) -> TableSink:
        """Return what writes a table."""


def as_json(plans: Sequence[n.Planned], surroundings: Surroundings, batch: bool) -> str:
    """Return plans as text."""
    written = _Writer(surroundings)
    ends = [written.place(p) for p in plans]
    content = {"flinkVersion": VERSION, "millstreamFormat": _FORMAT, "batch": batch}
    content |= {"nodes": written.nodes, "ends": ends}
    return json.dumps(content, indent=2)


def from_json(text: str, surroundings: Surroundings, batch: bool) -> list[n.Planned]:
    """Return the plans of a text."""
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
    return _Reader(surroundings).plans(content)


class _Writer:
    """Writes operators once each, however many read them."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._places: dict[int, int] = {}
        self.nodes: list[dict[str, Any]] = []

    def place(self, planned: n.Planned) -> int:
        """Return the place of an operator in the list, with all that it reads before it."""
        if id(planned) not in self._places:
            inputs = [self.place(p) for p in planned.inputs]
            if isinstance(planned.node, n.StreamScan):
                raise TableException(f"A plan cannot be compiled that reads a DataStream: {planned.name}.")
            self.nodes.append(
                {
                    "id": len(self.nodes) + 1,
                    "description": planned.name,
                    "uid": planned.uid,
                    "inputs": inputs,
                    "traits": self._value(planned.traits),
                    "node": self._value(planned.node),
                }
            )
            self._places[id(planned)] = len(self.nodes)
        return self._places[id(planned)]

    def _value(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (tuple, list)):
            return [self._value(v) for v in value]
        tagged = self._tagged(value)
        if tagged is not None:
            return tagged
        if isinstance(value, DataType):
            return {"$type": _type_text(value)}
        if is_dataclass(value) and type(value).__name__ in _RECORDS:
            if isinstance(value, (n.Scan, n.Sink)) and "connector" not in value.table.options:
                name = ".".join(value.name)
                raise TableException(f"A plan cannot be compiled with rows of the program's own: {name}.")
            return {"$record": type(value).__name__} | {k: self._value(v) for k, v in _written(value)}
        return {"$function": list(self._surroundings.function_path(value))}

    def _tagged(self, value: Any) -> dict[str, Any] | None:
        if isinstance(value, Enum):
            return {"$enum": [type(value).__name__, value.name]}
        if isinstance(value, frozenset):
            return {"$set": sorted((self._value(v) for v in value), key=json.dumps)}
        if isinstance(value, dict):
            return {"$map": [[k, self._value(v)] for k, v in value.items()]}
        if isinstance(value, Decimal):
            return {"$decimal": str(value)}
        if isinstance(value, bytes):
            return {"$bytes": base64.b64encode(value).decode()}
        return None


def _written(value: Any) -> list[tuple[str, Any]]:
    """Return the fields of a record that are not made again when it is read."""
    skipped = _INPUTS if isinstance(value, n.Node) else ()
    left_out = (*skipped, *(("source",) if isinstance(value, n.Scan) else ()))
    left_out += ("sink",) if isinstance(value, n.Sink) else ()
    return [(f.name, getattr(value, f.name)) for f in fields(value) if f.name not in left_out]


def _type_text(kind: DataType) -> str:
    if isinstance(kind, RawType):
        raise TableException(f"A plan cannot be compiled with a column of type {kind}.")
    return str(kind)


class _Reader:
    """Makes operators of what was written."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._read: dict[int, n.Planned] = {}
        self._types: dict[str, DataType] = {}

    def plans(self, content: dict[str, Any]) -> list[n.Planned]:
        """Return the ends of a plan."""
        for one in content["nodes"]:
            inputs = tuple(self._read[i] for i in one["inputs"])
            node = self._node(one["node"], [p.node for p in inputs])
            self._read[one["id"]] = n.Planned(node, inputs, self._value(one["traits"]), one["description"], one["uid"])
        return [self._read[i] for i in content["ends"]]

    def _node(self, written: dict[str, Any], inputs: Sequence[n.Node]) -> n.Node:
        kind, values = self._record(written)
        if kind is n.Union:
            return n.Union(**values, parts=tuple(inputs))
        values |= zip(("left", "right") if issubclass(kind, n.Double) else ("input",), inputs, strict=False)
        if issubclass(kind, (n.Scan, n.Sink)):
            name, table = values["name"], self._surroundings.table(values["name"], values["table"])
            table = replace(table, options={**table.options, **dict(values["options"])})
            values["table"] = table
            if kind is n.Scan:
                values["source"] = self._surroundings.source(name, table)
            else:
                values["sink"] = self._surroundings.sink(name, table)
        node: n.Node = kind(**values)
        return node

    def _record(self, written: dict[str, Any]) -> tuple[type, dict[str, Any]]:
        values = {k: self._value(v) for k, v in written.items() if k != "$record"}
        return _RECORDS[written["$record"]], values

    def _value(self, written: Any) -> Any:
        if isinstance(written, list):
            return tuple(self._value(v) for v in written)
        if not isinstance(written, dict):
            return written
        if "$record" in written:
            kind = _RECORDS[written["$record"]]
            return self._node(written, ()) if issubclass(kind, n.Node) else kind(**self._record(written)[1])
        ((tag, content),) = written.items()
        return self._made[tag](self, content)

    def _type(self, text: str) -> DataType:
        if text not in self._types:
            self._types[text] = read_type(Reader(text), intervals=True)
        return self._types[text]

    _made: dict[str, Callable[[Any, Any], Any]] = {
        "$type": lambda self, text: self._type(text),
        "$enum": lambda _, named: _ENUMS[named[0]][named[1]],
        "$set": lambda self, members: frozenset(self._value(m) for m in members),
        "$map": lambda self, pairs: {k: self._value(v) for k, v in pairs},
        "$decimal": lambda _, text: Decimal(text),
        "$bytes": lambda _, text: base64.b64decode(text),
        "$function": lambda self, path: self._surroundings.function(tuple(path)),
    }

"""Plan records as JSON values, for compiled plans and for the hashes in uids of SQL operators.

A record is an object with its tag and those fields that differ from their default. So classes can be renamed or moved,
and fields with a default added, without changing compiled plans or losing state. Register a renamed field in
`FIELD_NAMES`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, fields
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING
from typing import cast as typed

from millstream.common.aliases import Json
from millstream.sql import expressions as e
from millstream.sql.catalog import tables
from millstream.sql.expressions import UserFunction
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Changes, Field, Fields, TimeAttribute
from millstream.sql.types import DataType

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Inputs are separate operators.
INPUTS = frozenset(["input", "left", "right", "parts"])

RECORDS: dict[str, type] = {
    "scan": n.Scan,
    "stream-scan": n.StreamScan,
    "values": n.Values,
    "project": n.Project,
    "filter": n.Filter,
    "calc": n.Calc,
    "watermark": n.Watermark,
    "correlate": n.Correlate,
    "expand": n.Expand,
    "aggregate": n.Aggregate,
    "table-aggregate": n.TableAggregate,
    "mini-batch": n.MiniBatch,
    "local-aggregate": n.LocalAggregate,
    "global-aggregate": n.GlobalAggregate,
    "window-table": n.WindowTable,
    "window-aggregate": n.WindowAggregate,
    "local-window-aggregate": n.LocalWindowAggregate,
    "global-window-aggregate": n.GlobalWindowAggregate,
    "over": n.Over,
    "rank": n.Rank,
    "window-rank": n.WindowRank,
    "deduplicate": n.Deduplicate,
    "match": n.Match,
    "join": n.Join,
    "window-join": n.WindowJoin,
    "interval-join": n.IntervalJoin,
    "temporal-join": n.TemporalJoin,
    "lookup-join": n.LookupJoin,
    "materialized-lookup-join": n.MaterializedLookupJoin,
    "union": n.Union,
    "set-operation": n.SetOperation,
    "sort": n.Sort,
    "changelog-normalize": n.ChangelogNormalize,
    "to-changelog": n.ToChangelog,
    "from-changelog": n.FromChangelog,
    "sink": n.Sink,
    "collect": n.Collected,
    "to-stream": n.ToStream,
    "window-spec": n.WindowSpec,
    "over-spec": n.OverSpec,
    "fires": n.Fires,
    "periodic-fires": n.PeriodicFires,
    "match-step": n.MatchStep,
    "match-reference": n.Reference,
    "match-definition": n.Definition,
    "retry": n.Retry,
    "traits": n.Traits,
    "column": e.Column,
    "constant": e.Constant,
    "call": e.Call,
    "user-call": e.UserCall,
    "aggregate-call": e.AggregateCall,
    "field": Field,
    "fields": Fields,
    "table": tables.CatalogTable,
    "table-column": tables.TableColumn,
}
ENUMS: dict[str, type[Enum]] = {
    "changes": Changes,
    "time-attribute": TimeAttribute,
    "column-kind": tables.ColumnKind,
    "join-kind": n.JoinKind,
    "join-strategy": n.JoinStrategy,
    "window-kind": n.WindowKind,
}
# (Tag, Python field name) -> field name in plans, where they differ.
FIELD_NAMES: dict[tuple[str, str], str] = {
    ("match-step", "min_times"): "least",
    ("match-step", "max_times"): "most",
}

_TAGS = {cls: tag for tag, cls in RECORDS.items()}
_ENUM_TAGS = {cls: tag for tag, cls in ENUMS.items()}


def tag_of(record: object) -> str:
    """Return the tag of a record."""
    return _TAGS[type(record)]


class RecordEncoder:
    """Encodes records as JSON values.

    Args:
        function: returns the JSON value of a user function.
        skipped: node fields to leave out, by their names in plans.
        type_text: returns the text of a type.
    """

    def __init__(
        self,
        function: Callable[[UserFunction], Json],
        skipped: Collection[str],
        type_text: Callable[[DataType], str] = str,
    ) -> None:
        self._function = function
        self._type_text = type_text
        self._skipped = skipped

    def value(self, value: object) -> Json:
        """Return the JSON value of a value in a plan."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (tuple, list)):
            return [self.value(v) for v in value]
        if isinstance(value, DataType):
            return {"$type": self._type_text(value)}
        if type(value) in _TAGS:
            return {"$record": tag_of(value)} | dict(self._fields(typed("DataclassInstance", value)))
        return self._other(value)

    def _fields(self, record: DataclassInstance) -> Iterator[tuple[str, Json]]:
        tag = tag_of(record)
        for field in fields(record):
            name, value = FIELD_NAMES.get((tag, field.name), field.name), getattr(record, field.name)
            if isinstance(record, n.Node) and name in self._skipped:
                continue
            if field.default is MISSING or value != field.default:
                yield name, self.value(value)

    def _other(self, value: object) -> Json:
        if isinstance(value, Enum):
            return {"$enum": [_ENUM_TAGS[type(value)], value.name]}
        if isinstance(value, frozenset):
            return {"$set": sorted((self.value(v) for v in value), key=json.dumps)}
        if isinstance(value, dict):
            return {"$map": [[k, self.value(v)] for k, v in value.items()]}
        if isinstance(value, Decimal):
            return {"$decimal": str(value)}
        if isinstance(value, bytes):
            return {"$bytes": base64.b64encode(value).decode()}
        return {"$function": self._function(value)}


def arguments_of(tag: str, encoded: dict[str, Json]) -> dict[str, Json]:
    """Return the fields of a record by their Python names."""
    names = {FIELD_NAMES.get((tag, f.name), f.name): f.name for f in fields(RECORDS[tag])}
    return {names[name]: value for name, value in encoded.items() if name != "$record"}

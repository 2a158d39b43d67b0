"""Stable tags: the names under which millstream writes its own objects to checkpoints and savepoints.

A pickle of a registered object holds `millstream.tags`, a tag, a version, and plain values: no module path, no class
name and no attribute name. A class can move, and its attributes can be renamed, without changing what is on disk:

    millstream.tags  time-window:1  (0, 10)

The values are positional. A field that is added at the end with a default needs no new version: older state has fewer
values. Any other change of the values gets a new version, and `reads` registers a reader for each older one.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from enum import Enum
from operator import attrgetter
from typing import SupportsIndex, TypeVar

from millstream.common.aliases import Value
from millstream.common.errors import DamagedStateError

# The module that pickles name. Pickles of every version hold it: it is never renamed.
NAMESPACE = "millstream.tags"

# Tag -> the module whose import registers it. To move a class, change its entry.
MODULES: dict[str, str] = {
    "cep-runs": "millstream.cep.automaton",
    "cep-always": "millstream.cep.conditions",
    "cep-and": "millstream.cep.conditions",
    "cep-atom": "millstream.cep.conditions",
    "cep-not": "millstream.cep.conditions",
    "cep-or": "millstream.cep.conditions",
    "cep-simple-condition": "millstream.cep.conditions",
    "cep-subtype": "millstream.cep.conditions",
    "cep-pattern-processor": "millstream.cep.dynamic",
    "cep-removed-pattern": "millstream.cep.dynamic",
    "cep-contiguity": "millstream.cep.quantifier",
    "cep-group-pattern": "millstream.cep.pattern",
    "cep-pattern": "millstream.cep.pattern",
    "cep-quantifier": "millstream.cep.quantifier",
    "cep-times": "millstream.cep.quantifier",
    "cep-within-type": "millstream.cep.quantifier",
    "cep-no-skip": "millstream.cep.skip",
    "cep-skip-past-last-event": "millstream.cep.skip",
    "cep-skip-to-element": "millstream.cep.skip",
    "cep-skip-to-next": "millstream.cep.skip",
    "duration": "millstream.common.time",
    "instant": "millstream.common.time",
    "time": "millstream.common.time",
    "row": "millstream.common.types",
    "row-kind": "millstream.common.types",
    "cdc-change": "millstream.connectors.cdc.changes",
    "mysql-split-range": "millstream.connectors.cdc.mysql.log",
    "mysql-binlog-seen": "millstream.connectors.cdc.mysql.offsets",
    "mysql-offset": "millstream.connectors.cdc.mysql.offsets",
    "postgres-begin": "millstream.connectors.cdc.postgres.pgoutput",
    "postgres-column": "millstream.connectors.cdc.postgres.pgoutput",
    "postgres-relation": "millstream.connectors.cdc.postgres.pgoutput",
    "postgres-offset": "millstream.connectors.cdc.postgres.log",
    "postgres-chunk-range": "millstream.connectors.cdc.postgres.splits",
    "postgres-log-range": "millstream.connectors.cdc.postgres.splits",
    "postgres-schema": "millstream.connectors.cdc.postgres.splits",
    "postgres-type": "millstream.connectors.cdc.postgres.values",
    "postgres-visibility": "millstream.connectors.cdc.postgres.splits",
    "cdc-progress": "millstream.connectors.cdc.incremental_snapshot",
    "file-position": "millstream.connectors.files.source",
    "file-split": "millstream.connectors.files.source",
    "file-split-range": "millstream.formats.file_format",
    "hybrid-position": "millstream.connectors.hybrid_source",
    "hybrid-split-range": "millstream.connectors.hybrid_source",
    "jdbc-split-range": "millstream.connectors.jdbc.source",
    "kafka-transaction": "millstream.connectors.kafka.producer",
    "part-file": "millstream.connectors.files.part_files",
    "staged-parts": "millstream.connectors.files.part_files",
    "rabbitmq-position": "millstream.connectors.rabbitmq.source",
    "bounded-out-of-orderness": "millstream.operators.watermarks",
    "no-watermarks": "millstream.operators.watermarks",
    "count-window": "millstream.operators.windows.windows",
    "global-window": "millstream.operators.windows.windows",
    "time-window": "millstream.operators.windows.windows",
    "batch": "millstream.sql.columns.batch",
    "highest-watermark": "millstream.sql.operators.io.watermark_assigner",
    "changed-rows": "millstream.state.column_table",
    "frozen-dict": "millstream.state.key_groups",
    "frozen-list": "millstream.state.key_groups",
    "frozen-nan": "millstream.state.key_groups",
    "appended-elements": "millstream.state.table",
    "changed-entries": "millstream.state.table",
    "removed-entry": "millstream.state.table",
    "staged-partitions": "millstream.connectors.files.partition_commit",
    "list-view": "millstream.table.data_view",
    "map-view": "millstream.table.data_view",
    "scripted-watermarks": "millstream.testing.sources",
    "per-element-watermarks": "millstream.testing.sources",
}

_Class = TypeVar("_Class", bound=type)
_Write = Callable[[Value], tuple[Value, ...]]
_Read = Callable[..., Value]
_READERS: dict[str, _Read] = {}


def tagged(
    tag: str, *, version: int = 1, write: _Write | None = None, read: _Read | None = None
) -> Callable[[_Class], _Class]:
    """Pickle objects of a class under a tag.

    Objects of subclasses are pickled as usual.

    Args:
        tag: the name on disk, an entry of `MODULES`.
        version: the version of the values.
        write: returns the values of an object; by default its fields in order.
        read: creates an object from the values; by default the class.
    """

    def decorate(cls: _Class) -> _Class:
        reader = reads(tag, version)(read or cls)
        values = write or _fields_of(cls)
        inherited: Callable[..., str | tuple[object, ...]] = cls.__reduce_ex__

        def __reduce_ex__(self: object, protocol: SupportsIndex) -> str | tuple[object, ...]:
            return (reader, values(self)) if self.__class__ is cls else inherited(self, protocol)

        type.__setattr__(cls, "__reduce_ex__", __reduce_ex__)
        return cls

    return decorate


def reads(tag: str, version: int) -> Callable[[_Read], _Read]:
    """Register the reader of a version of a tag; return the function that pickles name."""

    def register(read: _Read) -> _Read:
        name = f"{tag}:{version}"
        if tag not in MODULES or name in _READERS:
            raise ValueError(f"Tag {name!r} is not in MODULES, or it is registered twice.")

        def reader(*values: Value) -> Value:
            return read(*values)

        reader.__module__, reader.__name__, reader.__qualname__ = NAMESPACE, name, name
        _READERS[name] = reader
        return reader

    return register


def reader_of(name: str) -> _Read:
    """Return the reader of `tag:version`.

    Raises:
        AttributeError: the name is not of this form.
        DamagedStateError: this version of millstream does not know the tag, or not this version of it.
    """
    tag, colon, version = name.partition(":")
    if not colon:
        raise AttributeError(f"module {NAMESPACE!r} has no attribute {name!r}")
    if name not in _READERS and tag in MODULES:
        importlib.import_module(MODULES[tag])
    reader = _READERS.get(name)
    if reader is None:
        raise DamagedStateError(
            f"State holds a {tag!r} of version {version}, which this version of millstream does not know: a newer one "
            "wrote it."
        )
    return reader


def registered() -> list[str]:
    """Return all tags with versions, as pickles name them."""
    for module in set(MODULES.values()):
        importlib.import_module(module)
    return sorted(_READERS)


def _fields_of(cls: type) -> _Write:
    """Return a function that returns the fields of a named tuple, a dataclass or an enum member."""
    if issubclass(cls, Enum):
        return lambda member: (member.value,)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return tuple
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    if len(names) == 1:
        one = attrgetter(names[0])
        return lambda record: (one(record),)
    return attrgetter(*names)

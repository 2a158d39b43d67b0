"""The formats `debezium-json`, `canal-json` and `maxwell-json`: changes of a table as those programs tell them."""

from __future__ import annotations

import datetime as dt
import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from millstream.formats.base import Decoded, Malformed, MessageFormat
from millstream.formats.json.table import JsonFormat
from millstream.formats.options import Options
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from millstream.sql.errors import ValidationException
from millstream.sql.schema import ALL_CHANGES, Field
from millstream.sql.types import DataType, DataTypes

_FIX = "; a table whose updates lack the row before needs REPLICA IDENTITY FULL"
_JSON_OPTIONS = frozenset(
    [
        "ignore-parse-errors",
        "timestamp-format.standard",
        "map-null-key.mode",
        "map-null-key.literal",
        "encode.decimal-as-plain-number",
        "encode.ignore-null-fields",
    ]
)
_TEXT = DataTypes.STRING()
_POINT = DataTypes.TIMESTAMP_LTZ(3)

# What a change says of a row: the kind, and the row as JSON has it.
Told = Iterator[tuple[int, dict[str, Any]]]
# A key of metadata: its type, and how it is found in a message.
_Metadata = Mapping[str, tuple[DataType, Callable[[dict[str, Any]], Any]]]


class ChangeJsonFormat(MessageFormat):
    """Changes of rows as JSON: a message may tell of several rows, or of none.

    Attributes:
        program: whose messages they are, for errors.
        known: what messages say beside rows.
    """

    changes = ALL_CHANGES
    written = ALL_CHANGES
    optional = _JSON_OPTIONS
    program: ClassVar[str]
    known: ClassVar[_Metadata]

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self._json = JsonFormat(options, zone)
        self._lenient = options.flag("ignore-parse-errors", False)

    @abstractmethod
    def _told(self, found: dict[str, Any]) -> Told:
        """Yield what a message tells; raises ValueError or KeyError where it does not say what it must."""

    @abstractmethod
    def _message(self, row: str, is_there: bool) -> str:
        """Return the message of a row that is there now, or is not any more."""

    def _payload(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return the part of a message that is about the change."""
        return found

    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        rows: list[dict[str, Any]] = []
        kinds: list[int] = []
        places: list[int] = []
        objects: list[dict[str, Any]] = []
        for place, message in enumerate(messages):
            # A tombstone follows a delete in Kafka.
            found = self._json.read(message, place) if message and message.strip() else None
            if found is None:
                continue
            for kind, row in self._changes(found, place):
                kinds.append(kind)
                rows.append(row)
                places.append(place)
                objects.append(found)
        columns = self._json.columns(rows, fields, places)
        return Decoded(Batch(columns, np.array(kinds, np.int8), len(rows)), places, objects)

    def _changes(self, found: dict[str, Any], place: int) -> list[tuple[int, dict[str, Any]]]:
        try:
            return list(self._told(self._payload(found)))
        except (KeyError, ValueError, AttributeError, TypeError) as e:
            if self._lenient:
                return []
            why = f"it has no {e}" if isinstance(e, KeyError) else e
            raise Malformed(place, f"the {self.program} message is not usable: {why}") from None

    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        texts = self._json.objects(batch, fields)
        kinds = batch.all_kinds().tolist()
        return [
            self._message(text, kind in (INSERT, UPDATE_AFTER)).encode()
            for text, kind in zip(texts, kinds, strict=True)
        ]

    def metadata(self) -> Mapping[str, DataType]:
        return {key: kind for key, (kind, _) in self.known.items()}

    def metadata_values(self, key: str, decoded: Decoded) -> list[Any]:
        read = self.known[key][1]
        return [read(found) for found in decoded.objects]


def _row(found: Any, what: str, op: str, fix: str = "") -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"the '{what}' of '{op}' is missing{fix}")
    return found


def _point(milliseconds: Any) -> dt.datetime | None:
    if milliseconds is None:
        return None
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=int(milliseconds))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _texts(found: Any) -> dict[str, str | None] | None:
    return {k: _text(v) for k, v in found.items()} if isinstance(found, dict) else None


def _payload_of(found: dict[str, Any]) -> dict[str, Any]:
    inner = found.get("payload")
    return inner if isinstance(inner, dict) else found


def _source(found: dict[str, Any]) -> dict[str, Any]:
    inner = _payload_of(found).get("source")
    return inner if isinstance(inner, dict) else {}


class DebeziumJsonFormat(ChangeJsonFormat):
    """Changes: `c` and `r` insert `after`, `u` changes `before` to `after`, `d` deletes `before`."""

    identifier = "debezium-json"
    optional = _JSON_OPTIONS | {"schema-include"}
    program = "Debezium"
    known: ClassVar[_Metadata] = {
        "schema": (_TEXT, lambda m: _compact(m.get("schema"))),
        "ingestion-timestamp": (_POINT, lambda m: _point(_payload_of(m).get("ts_ms"))),
        "source.timestamp": (_POINT, lambda m: _point(_source(m).get("ts_ms"))),
        "source.database": (_TEXT, lambda m: _text(_source(m).get("db"))),
        "source.schema": (_TEXT, lambda m: _text(_source(m).get("schema"))),
        "source.table": (_TEXT, lambda m: _text(_source(m).get("table"))),
        "source.properties": (DataTypes.MAP(_TEXT, _TEXT), lambda m: _texts(_source(m)) if _source(m) else None),
    }

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self._enveloped = options.flag("schema-include", False)

    def _payload(self, found: dict[str, Any]) -> dict[str, Any]:
        return _row(found["payload"], "payload", "schema-include") if self._enveloped else found

    def _told(self, found: dict[str, Any]) -> Told:
        before, after, op = found.get("before"), found.get("after"), found.get("op")
        if op in ("c", "r"):
            yield INSERT, _row(after, "after", op)
        elif op == "u":
            yield UPDATE_BEFORE, _row(before, "before", op, _FIX)
            yield UPDATE_AFTER, _row(after, "after", op)
        elif op == "d":
            yield DELETE, _row(before, "before", op, _FIX)
        else:
            raise ValueError(f"its 'op' is {op!r}, which is none of c, r, u, d")

    def check_written(self) -> None:
        if self._enveloped:
            raise ValidationException(
                "Debezium JSON serialization doesn't support 'debezium-json.schema-include' option been set to true."
            )

    def _message(self, row: str, is_there: bool) -> str:
        return f'{{"before":null,"after":{row},"op":"c"}}' if is_there else f'{{"before":{row},"after":null,"op":"d"}}'


def _compact(value: Any) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"))


class CanalJsonFormat(ChangeJsonFormat):
    """Changes: lists `data` and, of an update, `old` with what was otherwise before."""

    identifier = "canal-json"
    optional = _JSON_OPTIONS | {"database.include", "table.include"}
    program = "Canal"
    known: ClassVar[_Metadata] = {
        "database": (_TEXT, lambda m: _text(m.get("database"))),
        "table": (_TEXT, lambda m: _text(m.get("table"))),
        "sql-type": (DataTypes.MAP(_TEXT, DataTypes.INT()), lambda m: m.get("sqlType")),
        "pk-names": (DataTypes.ARRAY(_TEXT), lambda m: m.get("pkNames")),
        "ingestion-timestamp": (_POINT, lambda m: _point(m.get("ts"))),
        "event-timestamp": (_POINT, lambda m: _point(m.get("es"))),
    }

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self._include = [
            (name, _pattern(options, f"{name}.include"))
            for name in ("database", "table")
            if f"{name}.include" in options
        ]

    def _told(self, found: dict[str, Any]) -> Told:
        if any(not pattern.fullmatch(str(found.get(name))) for name, pattern in self._include):
            return
        kind = found["type"]
        if kind == "CREATE":
            return
        if kind == "UPDATE":
            if not isinstance(found.get("old"), list):
                raise ValueError("the 'old' of an UPDATE is missing")
            for row, old in zip(found["data"], found["old"], strict=True):
                yield UPDATE_BEFORE, {**row, **old}
                yield UPDATE_AFTER, row
        elif kind in ("INSERT", "DELETE"):
            for row in found["data"]:
                yield (INSERT if kind == "INSERT" else DELETE), _row(row, "data", kind)
        else:
            raise ValueError(f"its 'type' is {kind!r}, which is none of INSERT, UPDATE, DELETE")

    def _message(self, row: str, is_there: bool) -> str:
        return f'{{"data":[{row}],"type":"{"INSERT" if is_there else "DELETE"}"}}'


def _pattern(options: Options, key: str) -> re.Pattern[str]:
    text = options.text(key, "")
    try:
        return re.compile(text)
    except re.error as e:
        raise ValidationException(
            f"Invalid value for option 'canal-json.{key}': {text!r} is no pattern: {e}."
        ) from None


class MaxwellJsonFormat(ChangeJsonFormat):
    """Changes: `data` and, of an update, `old` with what was otherwise before."""

    identifier = "maxwell-json"
    program = "Maxwell"
    known: ClassVar[_Metadata] = {
        "database": (_TEXT, lambda m: _text(m.get("database"))),
        "table": (_TEXT, lambda m: _text(m.get("table"))),
        "primary-key-columns": (DataTypes.ARRAY(_TEXT), lambda m: m.get("primary_key_columns")),
        "ingestion-timestamp": (_POINT, lambda m: _point(m.get("ts"))),
    }

    def _told(self, found: dict[str, Any]) -> Told:
        kind = found["type"]
        if kind in ("insert", "bootstrap-insert"):
            yield INSERT, _row(found["data"], "data", kind)
        elif kind == "update":
            yield UPDATE_BEFORE, {**found["data"], **found["old"]}
            yield UPDATE_AFTER, found["data"]
        elif kind == "delete":
            yield DELETE, _row(found["data"], "data", kind)
        elif kind not in ("bootstrap-start", "bootstrap-complete"):
            raise ValueError(f"its 'type' is {kind!r}, which is none of insert, update, delete")

    def _message(self, row: str, is_there: bool) -> str:
        return f'{{"data":{row},"type":"{"insert" if is_there else "delete"}"}}'

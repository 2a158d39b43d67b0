"""The format `debezium-json`: changes of a table as Debezium writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from millstream.sql.changes import ALL_CHANGES
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field
from millstream.table.connectors.options import Options
from millstream.table.formats.contract import Malformed, MessageFormat
from millstream.table.formats.json_format import JsonFormat

_FIX = "; a table whose updates lack the row before needs REPLICA IDENTITY FULL"


class DebeziumJsonFormat(MessageFormat):
    """Changes: `c` and `r` insert `after`, `u` changes `before` to `after`, `d` deletes `before`."""

    identifier = "debezium-json"
    optional = frozenset(
        [
            "schema-include",
            "ignore-parse-errors",
            "timestamp-format.standard",
            "map-null-key.mode",
            "map-null-key.literal",
            "encode.decimal-as-plain-number",
            "encode.ignore-null-fields",
        ]
    )
    changes = ALL_CHANGES
    written = ALL_CHANGES

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self._json = JsonFormat(options, zone)
        self._enveloped = options.flag("schema-include", False)
        self._lenient = options.flag("ignore-parse-errors", False)

    def decoded(self, messages: Sequence[bytes], fields: Sequence[Field]) -> Batch:
        rows: list[dict[str, Any]] = []
        kinds: list[int] = []
        places: list[int] = []
        for place, message in enumerate(messages):
            # A tombstone follows a delete in Kafka.
            if not message.strip():
                continue
            for kind, row in self._changes(message, place):
                kinds.append(kind)
                rows.append(row)
                places.append(place)
        return Batch(self._json.columns(rows, fields, places), np.array(kinds, np.int8), len(rows))

    def _changes(self, message: bytes, place: int) -> list[tuple[int, dict[str, Any]]]:
        found = self._json.read(message, place)
        if found is None:
            return []
        try:
            payload = found["payload"] if self._enveloped else found
            before, after, op = payload.get("before"), payload.get("after"), payload.get("op")
            if op in ("c", "r"):
                return [(INSERT, _row(after, "after", op))]
            if op == "u":
                return [(UPDATE_BEFORE, _row(before, "before", op)), (UPDATE_AFTER, _row(after, "after", op))]
            if op == "d":
                return [(DELETE, _row(before, "before", op))]
            raise ValueError(f"its 'op' is {op!r}, which is none of c, r, u, d")
        except (KeyError, ValueError, AttributeError) as e:
            if self._lenient:
                return []
            raise Malformed(place, f"the Debezium message is not usable: {e}") from None

    def check_written(self) -> None:
        if self._enveloped:
            raise ValidationException(
                "Debezium JSON serialization doesn't support 'debezium-json.schema-include' option been set to true."
            )

    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        texts = self._json.objects(batch, fields)
        kinds = batch.all_kinds().tolist()
        return [
            _written(text, kind in (INSERT, UPDATE_AFTER)).encode() for text, kind in zip(texts, kinds, strict=True)
        ]


def _row(found: Any, what: str, op: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"the '{what}' of op '{op}' is missing{_FIX}")
    return found


def _written(text: str, added: bool) -> str:
    before, after, op = ("null", text, "c") if added else (text, "null", "d")
    return f'{{"before":{before},"after":{after},"op":"{op}"}}'

"""Records as documents of Elasticsearch: the lines of bulk requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from millstream.common.errors import MillstreamError
from millstream.common.types import Row, RowKind
from millstream.operators.diagnostics.failures import shorten


class Action(NamedTuple):
    """What a record asks for: the document it is about, None for a new one each time, and the lines that say it."""

    about: tuple[str, str] | None
    lines: tuple[str, ...]


@dataclass(frozen=True)
class ElasticsearchEmitter:
    """Says into which index a record goes, and what the id of its document is. Records are dicts, or Rows with names.

    Attributes:
        index: the index, or the field that names it.
        key_field: the field whose value is the document's id; without, the server makes one up for every record.
        is_dynamic: whether `index` is a field.
    """

    index: str
    key_field: str | None
    is_dynamic: bool

    @staticmethod
    def static_index(index: str, key_field: str | None = None, doc_type: str | None = None) -> ElasticsearchEmitter:
        """Put all records into one index; types of documents are no more since Elasticsearch 7."""
        return ElasticsearchEmitter(index, key_field, False)

    @staticmethod
    def dynamic_index(
        index_field: str, key_field: str | None = None, doc_type: str | None = None
    ) -> ElasticsearchEmitter:
        """Put each record into the index that one of its fields names."""
        return ElasticsearchEmitter(index_field, key_field, True)

    def action(self, record: Any) -> Action:
        """Return what a record asks for: a row that takes one back, that its document is deleted.

        Example:
            >>> ElasticsearchEmitter.static_index("users", "id").action({"id": 7, "name": "Ann"}).lines
            ('{"index": {"_index": "users", "_id": "7"}}', '{"id": 7, "name": "Ann"}')
        """
        document = _document(record)
        # The row before a change, too: the one behind it may have another key, and if not it replaces this action.
        deletes = isinstance(record, Row) and record.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
        if deletes and self.key_field is None:
            raise MillstreamError(
                f"ElasticsearchSink: {shorten(record)} takes a document back, and which one is not said: name the "
                "field with its id, as in ElasticsearchEmitter.static_index(index, key_field)."
            )
        index = str(_field(document, self.index)) if self.is_dynamic else self.index
        about = None if self.key_field is None else (index, str(_field(document, self.key_field)))
        named = {"_index": index} if about is None else {"_index": index, "_id": about[1]}
        if deletes:
            return Action(about, (json.dumps({"delete": named}),))
        return Action(about, (json.dumps({"index": named}), _written(document)))


def _document(record: Any) -> Mapping[Any, Any]:
    try:
        document = record.as_dict(recursive=True) if isinstance(record, Row) else record
    except TypeError:
        document = None
    if not isinstance(document, Mapping):
        raise MillstreamError(
            f"ElasticsearchSink takes dicts, or Rows with names, not {shorten(record)}: .map(...) makes them so."
        )
    return document


def _field(document: Mapping[Any, Any], name: str) -> Any:
    found = document.get(name)
    if found is None:
        raise MillstreamError(f"ElasticsearchSink: the record {shorten(document)} has no value in field {name!r}.")
    return found


def _written(document: Mapping[Any, Any]) -> str:
    try:
        # What it calls NaN is not JSON.
        return json.dumps(document, default=_as_json, allow_nan=False)
    except (TypeError, ValueError) as e:
        raise MillstreamError(
            f"ElasticsearchSink: the record {shorten(document)} cannot be written as JSON: {e}."
        ) from None


def _as_json(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, date | datetime | time_of_day):
        return value.isoformat()
    if isinstance(value, Decimal):
        number = float(value)
        if value.is_finite() and Decimal(repr(number)) != value:
            raise ValueError(f"{value} has more digits than a number of JSON's keeps; make it a string")
        return number
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{shorten(value)} is a {type(value).__name__}; make it a number, a string, a list or a dict")

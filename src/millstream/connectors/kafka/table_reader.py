"""Makes batches of Kafka's messages: columns of keys and values, and what Kafka says of each message."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.errors import MillstreamError
from millstream.connectors.kafka.deserialization import KafkaBatchDeserializationSchema
from millstream.connectors.kafka.table_options import Messages
from millstream.formats.base import Decoded, Malformed, MessageFormat
from millstream.sql.columns.batch import DELETE, UPDATE_AFTER, Batch, Kinds
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.schema import Field
from millstream.sql.types import DataType, DataTypes

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_TIMESTAMP_TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")
_VALUE = "value."

METADATA: Mapping[str, DataType] = {
    "topic": DataTypes.STRING().not_null(),
    "partition": DataTypes.INT().not_null(),
    "headers": DataTypes.MAP(DataTypes.STRING().not_null(), DataTypes.BYTES()).not_null(),
    "leader-epoch": DataTypes.INT(),
    "offset": DataTypes.BIGINT().not_null(),
    "timestamp": DataTypes.TIMESTAMP_LTZ(3).not_null(),
    "timestamp-type": DataTypes.STRING().not_null(),
}

_READ: Mapping[str, Callable[[Any], Any]] = {
    "topic": lambda m: m.topic(),
    "partition": lambda m: m.partition(),
    "headers": lambda m: dict(m.headers() or ()),
    "leader-epoch": lambda m: m.leader_epoch(),
    "offset": lambda m: m.offset(),
    "timestamp": lambda m: _EPOCH + dt.timedelta(milliseconds=max(m.timestamp()[1], 0)),
    "timestamp-type": lambda m: _TIMESTAMP_TYPES[m.timestamp()[0]],
}


def metadata_of(messages: Messages) -> dict[str, DataType]:
    """Return what can be read beside the columns: what the format says, and Kafka."""
    return {**{f"{_VALUE}{k}": t for k, t in messages.value.metadata().items()}, **METADATA}


class TableMessages(KafkaBatchDeserializationSchema):
    """Reads messages as rows.

    Args:
        messages: how rows are in them.
        columns: which columns are wanted: physical ones, or keys of metadata.
        upserts: whether a message says what the row of its key is now; without a value the row is gone.
    """

    def __init__(self, messages: Messages, columns: Sequence[str], upserts: bool = False) -> None:
        self._messages = messages
        self._columns = list(columns)
        self._upserts = upserts

    def deserialize(self, messages: Sequence[Any]) -> Batch:
        about = self._messages
        gone = np.array([m.value() is None for m in messages], bool) if self._upserts else None
        values = _decoded(about.value, [m.value() for m in messages], about.value_fields, messages)
        if gone is not None and about.value.identifier == "raw":
            values = _without(values, gone)
        places = _places(values, len(messages))
        if about.key is None:
            return self._batch(messages, values, places, np.arange(len(places)), None)
        keys = _decoded(about.key, [m.key() for m in messages], about.key_fields, messages)
        key_rows = np.full(len(messages), -1, np.int64)
        key_rows[_places(keys, len(messages))] = np.arange(len(keys.batch))
        rows: NDArray[np.int64] = np.arange(len(places))
        if gone is not None:
            order = np.concatenate([places, np.flatnonzero(gone)])
            rows = np.concatenate([rows, np.full(int(gone.sum()), -1)])
            sorted_by_place = np.argsort(order, kind="stable")
            places, rows = order[sorted_by_place], rows[sorted_by_place]
        # A message without a key has no row.
        has_key = key_rows[places] >= 0
        return self._batch(messages, values, places[has_key], rows[has_key], (keys.batch, key_rows))

    def _batch(
        self,
        messages: Sequence[Any],
        values: Decoded,
        places: NDArray[np.int64],
        rows: NDArray[np.int64],
        keys: tuple[Batch, NDArray[np.int64]] | None,
    ) -> Batch:
        """Return the rows of messages.

        Args:
            messages: all of them.
            values: the rows of their values.
            places: of each row of the result, its message.
            rows: of each row of the result, that of `values`; -1 where the message has none.
            keys: the rows of their keys, and which is each message's.
        """
        taken = _Taken(rows, len(values.batch))
        columns = [self._column(c, messages, values, places, taken, keys) for c in self._columns]
        kinds: Kinds | None = None
        if self._upserts:
            kinds = np.where(rows < 0, np.int8(DELETE), np.int8(UPDATE_AFTER))
        elif values.batch.kinds is not None:
            kinds = values.batch.kinds[rows]
        return Batch(columns, kinds, len(rows))

    def _column(
        self,
        name: str,
        messages: Sequence[Any],
        values: Decoded,
        places: NDArray[np.int64],
        taken: _Taken,
        keys: tuple[Batch, NDArray[np.int64]] | None,
    ) -> pa.Array:
        about = self._messages
        if name in about.key_names and keys is not None and (self._upserts or name not in about.value_names):
            batch, key_rows = keys
            return batch.columns[about.key_names.index(name)].take(pa.array(key_rows[places]))
        if name in about.value_names:
            return taken.of(values.batch.columns[about.value_names.index(name)])
        if name.startswith(_VALUE):
            key = name.removeprefix(_VALUE)
            told = about.value.metadata_values(key, values)
            return taken.of(to_column(told, about.value.metadata()[key]))
        read = _READ[name]
        return to_column([read(messages[i]) for i in places.tolist()], METADATA[name])


class _Taken:
    """Which rows of columns are taken; of -1, null."""

    def __init__(self, rows: NDArray[np.int64], of: int) -> None:
        self._is_all = len(rows) == of and bool((rows == np.arange(of)).all())
        self._at = pa.array(rows, mask=rows < 0)

    def of(self, column: pa.Array) -> pa.Array:
        return column if self._is_all else column.take(self._at)


def _places(decoded: Decoded, count: int) -> NDArray[np.int64]:
    """Return of each row which message it was in."""
    return np.arange(count) if decoded.places is None else np.array(decoded.places, np.int64)


def _without(decoded: Decoded, gone: NDArray[np.bool_]) -> Decoded:
    """Return the rows of messages that have a value: the format `raw` makes one of nothing, too."""
    return Decoded(decoded.batch.filter(~gone), np.flatnonzero(~gone).tolist())


def _decoded(
    found: MessageFormat, bodies: Sequence[bytes | None], fields: Sequence[Field], messages: Sequence[Any]
) -> Decoded:
    try:
        return found.read_all(bodies, fields)
    except Malformed as e:
        message = messages[e.place]
        fix = ""
        if "ignore-parse-errors" in found.optional:
            fix = f" Correct it, or leave such messages out with '{found.options_begin}ignore-parse-errors' = 'true'."
        raise MillstreamError(
            f"Kafka: the message at offset {message.offset()} of partition {message.partition()} of topic "
            f"{message.topic()!r} cannot be read: {e.reason}.{fix}"
        ) from None

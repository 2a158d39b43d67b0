"""JSON messages of Debezium, Maxwell and Canal."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from millstream.common import Row, RowKind, Types
from millstream.common.errors import MillstreamError
from millstream.datastream.connectors.cdc import Change, JsonDebeziumDeserializationSchema
from millstream.datastream.formats.change_json import (
    CanalJsonDeserializationSchema,
    CanalJsonSerializationSchema,
    DebeziumJsonDeserializationSchema,
    DebeziumJsonSerializationSchema,
    MaxwellJsonDeserializationSchema,
    MaxwellJsonSerializationSchema,
)
from millstream.testing import LocalEnvironment

ROW = Types.ROW_NAMED(["id", "name", "weight"], [Types.INT(), Types.STRING(), Types.DOUBLE()])
OLD, NEW = {"id": 1, "name": "a", "weight": 1.5}, {"id": 1, "name": "b", "weight": 1.5}


def decoded(schema: Any, message: Any) -> list[tuple[Any, ...]]:
    rows = pickle.loads(pickle.dumps(schema)).deserialize_all(json.dumps(message).encode())
    return [(str(row.get_row_kind()), *row) for row in rows]


def test_debezium_json_deserializes_changes() -> None:
    schema = DebeziumJsonDeserializationSchema(ROW)
    assert decoded(schema, {"before": None, "after": OLD, "op": "r"}) == [("+I", 1, "a", 1.5)]
    update = {"before": OLD, "after": NEW, "op": "u", "source": {}}
    assert decoded(schema, update) == [("-U", 1, "a", 1.5), ("+U", 1, "b", 1.5)]
    assert decoded(schema, {"before": NEW, "after": None, "op": "d"}) == [("-D", 1, "b", 1.5)]
    assert schema.deserialize_all(b"") == []
    with_schema = DebeziumJsonDeserializationSchema(ROW, schema_include=True)
    assert len(decoded(with_schema, {"schema": {}, "payload": update})) == 2
    with pytest.raises(MillstreamError, match="the 'before' of 'u' is missing; .*REPLICA IDENTITY FULL"):
        decoded(schema, {**update, "before": None})
    with pytest.raises(MillstreamError, match="contains 2 rows: .*flat_map"):
        schema.deserialize(json.dumps(update).encode())


def test_debezium_json_reads_cdc_source_output() -> None:
    change = Change("u", "public.t", ("id", "name", "weight"), (0,), [1, "a", 1.5], [1, "b", 1.5], True, 5, {"lsn": 7})
    (text,) = JsonDebeziumDeserializationSchema().deserialize(change)
    rows = DebeziumJsonDeserializationSchema(ROW).deserialize_all(text.encode())
    assert [(str(r.get_row_kind()), r.name) for r in rows] == [("-U", "a"), ("+U", "b")]


def test_maxwell_json_deserializes_changes() -> None:
    schema = MaxwellJsonDeserializationSchema(ROW)
    assert decoded(schema, {"data": OLD, "type": "insert"}) == [("+I", 1, "a", 1.5)]
    update = {"data": NEW, "old": {"name": "a"}, "type": "update"}
    assert decoded(schema, update) == [("-U", 1, "a", 1.5), ("+U", 1, "b", 1.5)]
    assert decoded(schema, {"data": NEW, "type": "delete"}) == [("-D", 1, "b", 1.5)]
    assert decoded(schema, {"type": "bootstrap-start"}) == []
    with pytest.raises(MillstreamError, match="its 'type' is 'table-drop', which is none of"):
        decoded(schema, {"type": "table-drop"})


def test_canal_json_deserializes_changes_of_included_tables() -> None:
    schema = CanalJsonDeserializationSchema(ROW, table_include="products.*")
    about = {"database": "shop", "table": "products1", "isDdl": False}
    text = {"id": "1", "name": "b", "weight": "1.5"}
    update = {**about, "type": "UPDATE", "data": [text, text], "old": [{"name": "a"}, {"weight": "2"}]}
    assert decoded(schema, update) == [
        ("-U", 1, "a", 1.5),
        ("+U", 1, "b", 1.5),
        ("-U", 1, "b", 2.0),
        ("+U", 1, "b", 1.5),
    ]
    assert decoded(schema, {**about, "type": "INSERT", "data": [text]}) == [("+I", 1, "b", 1.5)]
    assert decoded(schema, {**about, "table": "orders", "type": "INSERT", "data": [text]}) == []
    assert decoded(schema, {**about, "type": "ALTER", "isDdl": True, "data": None}) == []


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("message", [b"not json", b"[]", b"{}", b'{"op": "x"}', b'{"op": "c", "after": null}'])
def test_debezium_json_rejects_or_ignores_unreadable_messages(message: bytes, lenient: bool) -> None:
    schema = DebeziumJsonDeserializationSchema(ROW, ignore_parse_errors=lenient)
    if lenient:
        assert schema.deserialize_all(message) == []
    else:
        with pytest.raises(MillstreamError, match="The Debezium message .* cannot be read: .*ignore_parse_errors"):
            schema.deserialize_all(message)


@pytest.mark.parametrize(
    ("write", "read", "written"),
    [
        (DebeziumJsonSerializationSchema, DebeziumJsonDeserializationSchema, {"op": "d"}),
        (MaxwellJsonSerializationSchema, MaxwellJsonDeserializationSchema, {"type": "delete"}),
        (CanalJsonSerializationSchema, CanalJsonDeserializationSchema, {"type": "DELETE"}),
    ],
)
def test_changelog_json_round_trips_in_a_job(write: Any, read: Any, written: dict[str, str]) -> None:
    rows = [Row.of_kind(kind, id=1, name="ä", weight=0.5) for kind in RowKind]
    message = json.loads(write(ROW).serialize(rows[1]))
    assert written.items() <= message.items()
    stream = LocalEnvironment().from_collection(rows).map(write(ROW).serialize).flat_map(read(ROW).deserialize_all)
    emitted = [(str(row.get_row_kind()), *row) for row in stream.execute_and_collect()]
    assert emitted == [(kind, 1, "ä", 0.5) for kind in ("+I", "-D", "+I", "-D")]

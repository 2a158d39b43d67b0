"""Changelog table formats: messages of Debezium, Canal and Maxwell, and omitted fields."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from millstream.formats.base import Malformed, create_message_format
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field
from millstream.sql.types import DataTypes

FIELDS = [Field("id", DataTypes.INT()), Field("name", DataTypes.STRING())]
KINDS = ("+I", "-U", "+U", "-D")


def rows(batch: Batch) -> list[tuple[str, Any, Any]]:
    ids, names = (c.to_pylist() for c in batch.columns)
    return [(KINDS[k], i, n) for k, i, n in zip(batch.all_kinds().tolist(), ids, names, strict=True)]


def read(name: str, *messages: Any, **options: str) -> list[tuple[str, Any, Any]]:
    full_options = {f"{name}.{k.replace('__', '.').replace('_', '-')}": v for k, v in options.items()}
    bodies = [m if isinstance(m, bytes) or m is None else json.dumps(m).encode() for m in messages]
    return rows(create_message_format(name, full_options, "UTC").read_all(bodies, FIELDS).batch)


UPDATED = [("-U", 1, "a"), ("+U", 1, "b")]


def test_changelog_table_formats_emit_update_before_and_after() -> None:
    row, old = {"id": 1, "name": "b"}, {"id": 1, "name": "a"}
    assert read("debezium-json", {"before": old, "after": row, "op": "u"}) == UPDATED
    # The other formats contain only the changed columns of the old row.
    assert read("maxwell-json", {"data": row, "old": {"name": "a"}, "type": "update"}) == UPDATED
    assert read("canal-json", {"data": [row], "old": [{"name": "a"}], "type": "UPDATE"}) == UPDATED
    was_null = {"data": [row], "old": [{"name": None}], "type": "UPDATE"}
    assert read("canal-json", was_null) == [("-U", 1, None), ("+U", 1, "b")]


def test_changelog_table_formats_handle_inserts_deletes_and_empty_messages() -> None:
    row = {"id": 1, "name": "a"}
    both = [("+I", 1, "a"), ("-D", 1, "a")]
    deletion = {"before": row, "after": None, "op": "d"}
    assert read("debezium-json", {"before": None, "after": row, "op": "r"}, deletion, None, b"") == both
    assert read("maxwell-json", {"data": row, "type": "insert"}, {"data": row, "type": "delete"}, None) == both
    two = {"data": [row, {"id": 2}], "type": "INSERT"}
    assert read("canal-json", two, {"data": None, "type": "CREATE"}) == [("+I", 1, "a"), ("+I", 2, None)]
    assert read("debezium-json", {"payload": {"after": row, "op": "c"}}, schema_include="true") == both[:1]


def test_canal_table_format_filters_by_database_and_table() -> None:
    reported = [{"data": [{"id": i}], "type": "INSERT", "database": d, "table": t} for i, (d, t) in enumerate(TABLES)]
    assert [i for _, i, _ in read("canal-json", *reported, database__include="shop.*", table__include="orders")] == [
        0,
        2,
    ]
    with pytest.raises(ValidationException, match="is not a regular expression"):
        read("canal-json", table__include="(")


TABLES = [("shop", "orders"), ("shop", "items"), ("shop2", "orders"), ("other", "orders")]


@pytest.mark.parametrize(
    ("name", "message", "error_text"),
    [
        ("debezium-json", {"op": "x"}, "its 'op' is 'x', which is none of c, r, u, d"),
        ("debezium-json", {"op": "u", "after": {"id": 1}}, "the 'before' of 'u' is missing; .*REPLICA IDENTITY FULL"),
        ("canal-json", {"data": [{"id": 1}], "type": "QUERY"}, "its 'type' is 'QUERY', which is none of"),
        ("canal-json", {"type": "INSERT"}, "the Canal message is not usable: it has no 'data'"),
        ("maxwell-json", {"data": {"id": 1}, "type": "x"}, "its 'type' is 'x', which is none of"),
        ("maxwell-json", b"nonsense", "nonsense is not a JSON object"),
        ("canal-json", {"data": [{"id": "x"}], "type": "INSERT"}, "field 'id' of .* is not of type INT"),
    ],
)
def test_changelog_table_formats_reject_or_ignore_malformed_messages(name: str, message: Any, error_text: str) -> None:
    good = b""
    with pytest.raises(Malformed, match=error_text) as error:
        read(name, good, message)
    assert error.value.index == 1
    rows = read(name, good, message, ignore_parse_errors="true")
    # An invalid field alone becomes null.
    assert rows == ([("+I", None, None)] if "INT" in error_text else [])


def test_changelog_table_formats_metadata_columns() -> None:
    message = {
        "data": [{"id": 1}, {"id": 2}],
        "type": "INSERT",
        "database": "shop",
        "table": "orders",
        "pkNames": ["id"],
        "sqlType": {"id": 4},
        "ts": 1500,
        "es": None,
    }
    canal = create_message_format("canal-json", {}, "UTC")
    decoded = canal.read_all([json.dumps(message).encode()], FIELDS)
    assert decoded.indices == [0, 0]
    reported = {key: canal.metadata_values(key, decoded) for key in canal.metadata()}
    assert reported == {
        "database": ["shop"] * 2,
        "table": ["orders"] * 2,
        "sql-type": [{"id": 4}] * 2,
        "pk-names": [["id"]] * 2,
        "ingestion-timestamp": [dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, dt.UTC)] * 2,
        "event-timestamp": [None] * 2,
    }

"""Avro with a schema registry."""

from __future__ import annotations

import json
import pickle
import socket
import time
from collections.abc import Iterator

import pytest

from millstream.common import Row
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.datastream.formats.avro import (
    ConfluentRegistryAvroDeserializationSchema,
    ConfluentRegistryAvroSerializationSchema,
    SchemaRegistry,
)
from millstream.operators.diagnostics.bad_records import FormatUnavailable
from tests.support.schema_registry import RegistryServer, registry_server

NAME = {"name": "name", "type": "string"}
OLD = json.dumps({"type": "record", "name": "Person", "fields": [NAME]})
NEW = json.dumps({"type": "record", "name": "Person", "fields": [NAME, {"name": "age", "type": "int", "default": 7}]})


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def writing(registry: RegistryServer, schema: str) -> ConfluentRegistryAvroSerializationSchema:
    return ConfluentRegistryAvroSerializationSchema.for_generic("people-value", schema, registry.url)


def reading(registry: RegistryServer, schema: str) -> ConfluentRegistryAvroDeserializationSchema:
    return ConfluentRegistryAvroDeserializationSchema.for_generic(schema, registry.url)


def test_registry_schema_writes_confluent_format_and_caches_schemas(registry: RegistryServer) -> None:
    writer = pickle.loads(pickle.dumps(writing(registry, OLD)))
    message = writer.serialize(Row(name="Ann"))
    assert message == b"\0\0\0\0\1" + b"\x06Ann"
    reader = pickle.loads(pickle.dumps(reading(registry, OLD)))
    assert [reader.deserialize(message) for _ in range(3)] == [Row(name="Ann")] * 3
    writer.serialize(Row(name="Bob"))
    assert registry.requested_paths == ["/subjects/people-value/versions", "/schemas/ids/1"]


def test_registry_schema_reads_versions_of_schema(registry: RegistryServer) -> None:
    old, new = (
        writing(registry, OLD).serialize(Row(name="Ann")),
        writing(registry, NEW).serialize(Row(name="Bob", age=8)),
    )
    assert registry.subjects == {"people-value": [1, 2]}
    reader = reading(registry, NEW)
    assert [reader.deserialize(m) for m in (old, new)] == [Row(name="Ann", age=7), Row(name="Bob", age=8)]
    assert reading(registry, OLD).deserialize(new) == Row(name="Bob")


def test_registry_schema_reports_unreadable_messages(registry: RegistryServer) -> None:
    reader = reading(registry, OLD)
    with pytest.raises(MillstreamError, match="does not begin with a schema id"):
        reader.deserialize(b"{}")
    with pytest.raises(MillstreamError, match="has no schema with id 9"):
        reader.deserialize(b"\0\0\0\0\x09x")
    with pytest.raises(MillstreamError, match="written with schema 1, cannot be converted"):
        reader.deserialize(writing(registry, OLD).serialize(Row(name="Ann"))[:-2])
    with pytest.raises(InvalidProgramError, match="must begin with http"):
        SchemaRegistry("localhost:8081")


def test_registry_failure_is_not_treated_as_bad_record(registry: RegistryServer) -> None:
    registry.user = "ann:secret"
    with pytest.raises(FormatUnavailable, match="rejects /subjects/.*: 401, Unauthorized"):
        writing(registry, OLD).serialize(Row(name="Ann"))
    config = {"basic.auth.user.info": "ann:secret"}
    known = ConfluentRegistryAvroSerializationSchema.for_generic("p", OLD, registry.url, config)
    assert known.serialize(Row(name="Ann")).startswith(b"\0\0\0\0\1")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        hangs = ConfluentRegistryAvroDeserializationSchema.for_generic(OLD, url, {"request.timeout.ms": "200"})
        with pytest.raises(FormatUnavailable, match="does not respond"):
            hangs.deserialize(b"\0\0\0\0\1x")
        assert time.monotonic() - began < 5

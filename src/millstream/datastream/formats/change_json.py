"""Debezium's, Maxwell's and Canal's JSON messages."""

from millstream.formats.changelog.messages import (
    CanalJsonDeserializationSchema,
    CanalJsonSerializationSchema,
    ChangeDeserializationSchema,
    DebeziumJsonDeserializationSchema,
    DebeziumJsonSerializationSchema,
    MaxwellJsonDeserializationSchema,
    MaxwellJsonSerializationSchema,
)

__all__ = [
    "CanalJsonDeserializationSchema",
    "CanalJsonSerializationSchema",
    "ChangeDeserializationSchema",
    "DebeziumJsonDeserializationSchema",
    "DebeziumJsonSerializationSchema",
    "MaxwellJsonDeserializationSchema",
    "MaxwellJsonSerializationSchema",
]

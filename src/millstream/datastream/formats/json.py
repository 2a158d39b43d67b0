"""JSON, under PyFlink's names."""

from millstream.formats.json.messages import JsonLinesFormat, JsonRowDeserializationSchema, JsonRowSerializationSchema

__all__ = ["JsonLinesFormat", "JsonRowDeserializationSchema", "JsonRowSerializationSchema"]

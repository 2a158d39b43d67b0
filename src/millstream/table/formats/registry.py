"""Finds formats by their identifiers, and reads their options."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from millstream.sql.errors import ValidationException
from millstream.table.connectors.options import Options
from millstream.table.formats.contract import TableFormat

_FORMATS = {
    "avro": "avro_format:AvroTableFormat",
    "csv": "csv_format:CsvFormat",
    "debezium-json": "debezium_format:DebeziumJsonFormat",
    "json": "json_format:JsonFormat",
    "orc": "arrow_formats:OrcFormat",
    "parquet": "arrow_formats:ParquetFormat",
    "raw": "raw_format:RawFormat",
}


def format_class(identifier: str) -> type[TableFormat]:
    """Return the format of an identifier."""
    if identifier not in _FORMATS:
        raise ValidationException(
            f"Could not find any format factory for identifier '{identifier}' in the classpath.\n\n"
            "Available factory identifiers are:\n\n" + "\n".join(sorted(_FORMATS))
        )
    module, _, name = _FORMATS[identifier].partition(":")
    found: type[TableFormat] = getattr(import_module(f"{__package__}.{module}"), name)
    return found


def format_options(prefix: str = "") -> frozenset[str]:
    """Return all options that formats have, with their names before them."""
    return frozenset(f"{prefix}{name}.{o}" for name in _FORMATS for o in format_class(name).optional)


def made_format(identifier: str, options: Mapping[str, str], zone: str) -> TableFormat:
    """Return a format with the options that begin with its name."""
    start = f"{identifier}."
    own = {key.removeprefix(start): value for key, value in options.items() if key.startswith(start)}
    return format_class(identifier)(Options(own), zone)

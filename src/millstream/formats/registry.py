"""Finds formats by their identifiers, and reads their options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module

from millstream.common.display_text import did_you_mean
from millstream.formats.base import MessageFormat, TableFormat
from millstream.formats.options import Options
from millstream.sql.errors import ValidationException

_FORMATS = {
    "avro": "avro.table:AvroTableFormat",
    "canal-json": "changelog.table:CanalJsonFormat",
    "csv": "csv.table:CsvFormat",
    "debezium-json": "changelog.table:DebeziumJsonFormat",
    "json": "json.table:JsonFormat",
    "maxwell-json": "changelog.table:MaxwellJsonFormat",
    "orc": "orc.table:OrcFormat",
    "parquet": "parquet.table:ParquetFormat",
    "raw": "raw:RawFormat",
}


# Those of messages, where they are others than in files.
_MESSAGES = {
    **{name: place for name, place in _FORMATS.items() if name not in ("orc", "parquet")},
    "avro": "avro.table_messages:AvroMessageFormat",
    "avro-confluent": "avro.table_messages:AvroConfluentFormat",
    "debezium-avro-confluent": "avro.table_messages:DebeziumAvroConfluentFormat",
}


def format_options_by_name() -> dict[str, frozenset[str]]:
    """Return the options of all formats, of files and of messages, without the names before them."""
    names = sorted({*_FORMATS, *_MESSAGES})
    places = [(name, [f for f in (_FORMATS, _MESSAGES) if name in f]) for name in names]
    return {name: frozenset().union(*(_found(name, f).optional for f in where)) for name, where in places}


def format_class(identifier: str) -> type[TableFormat]:
    """Return the format of an identifier."""
    return _found(identifier, _FORMATS)


def _found(identifier: str, formats: Mapping[str, str]) -> type[TableFormat]:
    if identifier not in formats:
        raise ValidationException(
            f"There is no format '{identifier}'{did_you_mean(identifier, formats) or '.'}\n\n"
            "Available formats are:\n\n" + "\n".join(sorted(formats))
        )
    module, _, name = formats[identifier].partition(":")
    found: type[TableFormat] = getattr(import_module(f"{__package__}.{module}"), name)
    return found


def format_options(prefix: str = "") -> frozenset[str]:
    """Return all options that formats have, with their names before them."""
    return frozenset(f"{prefix}{name}.{o}" for name in _FORMATS for o in format_class(name).optional)


def message_format_options(prefix: str = "") -> frozenset[str]:
    """Return all options that formats of messages have, with their names before them."""
    return frozenset(f"{prefix}{name}.{o}" for name in _MESSAGES for o in _found(name, _MESSAGES).optional)


def without_other_formats(
    options: frozenset[str], of_formats: frozenset[str], chosen: Iterable[tuple[str | None, str]]
) -> frozenset[str]:
    """Return options without those of formats that a table has not.

    Args:
        options: all that its connector takes.
        of_formats: those of them that are of formats.
        chosen: the formats it has, None for none, and what stands before the options of each.
    """
    starts = tuple(f"{prefix}{name}." for name, prefix in chosen if name is not None)
    return frozenset(o for o in options if o not in of_formats or o.startswith(starts))


def made_format(identifier: str, options: Mapping[str, str], zone: str) -> TableFormat:
    """Return a format with the options that begin with its name."""
    return format_class(identifier)(Options(options_of(identifier, options)), zone)


def made_message_format(identifier: str, options: Mapping[str, str], zone: str, prefix: str = "") -> MessageFormat:
    """Return a format of messages with the options that begin with a prefix and its name."""
    found = _found(identifier, _MESSAGES)(Options(options_of(identifier, options, prefix)), zone)
    assert isinstance(found, MessageFormat)
    found.options_begin = f"{prefix}{identifier}."
    return found


def options_of(identifier: str, options: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """Return the options that begin with a prefix and the name of a format, without both."""
    start = f"{prefix}{identifier}."
    return {key.removeprefix(start): value for key, value in options.items() if key.startswith(start)}

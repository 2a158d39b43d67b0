"""The options of Kafka tables: topics, start and end offsets, and the columns of keys and values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from millstream.common.fast_dataclass import fast_dataclass
from millstream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from millstream.formats.avro.table import AvroConfluentFormat
from millstream.formats.base import MessageFormat, create_message_format
from millstream.formats.options import Options
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field

_PAIR = re.compile(r"partition:(\d+),offset:(\d+)")
_DISCOVERY_MS = 300_000
_RESETS = {s.name.lower(): s for s in KafkaOffsetResetStrategy}


@fast_dataclass
class Topics:
    """The topics of a table: their names, or a pattern."""

    names: tuple[str, ...]
    pattern: str | None

    @property
    def only(self) -> str | None:
        """The topic, or None if there may be several."""
        return self.names[0] if len(self.names) == 1 else None


def topics_of(options: Options) -> Topics:
    """Return the topics of a table."""
    names = tuple(t.strip() for t in options.text("topic", "").split(";") if t.strip())
    pattern = options.text("topic-pattern", "") or None
    if names and pattern is not None:
        raise ValidationException("Option 'topic' and 'topic-pattern' shouldn't be set together.")
    if not names and pattern is None:
        raise ValidationException("Either 'topic' or 'topic-pattern' must be set.")
    return Topics(names, pattern)


def start_of(options: Options, topics: Topics) -> KafkaOffsetsInitializer:
    """Return the start offsets."""
    mode = options.one_of(
        "scan.startup.mode",
        "group-offsets",
        {m: m for m in ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets")},
    )
    return _initializer(options, mode, "startup", topics)


def stop_of(options: Options, topics: Topics) -> KafkaOffsetsInitializer | None:
    """Return the end offsets, or None for an unbounded source."""
    modes = ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
    mode = options.one_of("scan.bounded.mode", "unbounded", {m: m for m in modes})
    return None if mode == "unbounded" else _initializer(options, mode, "bounded", topics)


def _initializer(options: Options, mode: str, phase: str, topics: Topics) -> KafkaOffsetsInitializer:
    if mode == "earliest-offset":
        return KafkaOffsetsInitializer.earliest()
    if mode == "latest-offset":
        return KafkaOffsetsInitializer.latest()
    if mode == "group-offsets":
        reset = options.one_of("properties.auto.offset.reset", "none", _RESETS)
        if "properties.group.id" not in options:
            raise ValidationException(
                "Property group.id is required when using committed offset for offsets initializer: set "
                "'properties.group.id', or 'scan.startup.mode' = 'earliest-offset'."
            )
        return KafkaOffsetsInitializer.committed_offsets(reset)
    key = f"scan.{phase}.{'timestamp-millis' if mode == 'timestamp' else 'specific-offsets'}"
    if key not in options:
        raise ValidationException(f"'{key}' is required in '{mode}' {phase} mode but missing.")
    if mode == "timestamp":
        return KafkaOffsetsInitializer.timestamp(options.integer(key, 0))
    if topics.only is None:
        raise ValidationException("Currently Kafka source only supports specific offset for single topic.")
    offsets = _offsets(key, options.text(key, ""))
    return KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topics.only, p): o for p, o in offsets.items()})


def _offsets(key: str, text: str) -> dict[int, int]:
    """Parse `partition:0,offset:42;partition:1,offset:300`."""
    offsets: dict[int, int] = {}
    for part in text.split(";"):
        pair = _PAIR.fullmatch(part.replace(" ", ""))
        if pair is None:
            raise ValidationException(
                f"Invalid properties '{key}' should follow the format "
                f"'partition:0,offset:42;partition:1,offset:300', but is '{text}'."
            )
        offsets[int(pair[1])] = int(pair[2])
    return offsets


def client_properties(options: Options, prefix: str = "properties.") -> dict[str, str]:
    """Return the properties of the client, including the interval of partition discovery."""
    own = {k: v for k, v in options.under(prefix).items() if k != "auto.offset.reset"}
    interval_ms = options.duration("scan.topic-partition-discovery.interval", _DISCOVERY_MS)
    return {**own, "partition.discovery.interval.ms": str(interval_ms)}


@fast_dataclass
class Messages:
    """The formats and columns of a message's key and value.

    Attributes:
        physical: the columns of the table.
        key: the format of keys, or None.
        key_names, value_names: the names of their columns in the table.
        key_fields, value_fields: their columns in the formats, without the prefix of keys.
        value: the format of values.
    """

    physical: tuple[Field, ...]
    key: MessageFormat | None
    key_names: tuple[str, ...]
    key_fields: tuple[Field, ...]
    value: MessageFormat
    value_names: tuple[str, ...]
    value_fields: tuple[Field, ...]


def messages_of(table: CatalogTable, zone: str, topics: Topics, keys: Sequence[str] | None = None) -> Messages:
    """Return the layout of a table's messages.

    Args:
        table: the declaration.
        zone: the session's time zone.
        topics: the table's topics.
        keys: the columns of keys; by default those of the options.
    """
    options = Options(table.options)
    physical = tuple(Field(c.name, c.type) for c in table.physical)
    value = _format(table.options, zone)
    key = _key_format(table.options, zone)
    names = tuple(keys) if keys is not None else _key_names(options, physical, key is not None)
    prefix = options.text("key.fields-prefix", "")
    include = options.one_of("value.fields-include", "ALL", {"ALL": "ALL", "EXCEPT_KEY": "EXCEPT_KEY"})
    if prefix and include == "ALL":
        raise ValidationException(
            "A key prefix is not allowed when option 'value.fields-include' is set to 'ALL'. Set it to 'EXCEPT_KEY' "
            "instead to avoid field overlaps."
        )
    unprefixed = next((n for n in names if not n.startswith(prefix)), None)
    if unprefixed is not None:
        raise ValidationException(
            f"All fields in 'key.fields' must be prefixed with '{prefix}' when option 'key.fields-prefix' is set but "
            f"field '{unprefixed}' is not prefixed."
        )
    by_name = {f.name: f for f in physical}
    key_fields = tuple(Field(n.removeprefix(prefix), by_name[n].type) for n in names)
    value_fields = tuple(f for f in physical if include == "ALL" or f.name not in names)
    _set_subject(key, topics, "key")
    _set_subject(value, topics, "value")
    value.check(value_fields)
    if key is not None:
        key.check(key_fields)
    return Messages(physical, key, names, key_fields, value, tuple(f.name for f in value_fields), value_fields)


def _set_subject(message_format: MessageFormat | None, topics: Topics, part: str) -> None:
    """Set the schema registry's subject of keys or values."""
    if isinstance(message_format, AvroConfluentFormat) and topics.only is not None:
        message_format.set_default_subject(f"{topics.only}-{part}")


def _format(options: Mapping[str, str], zone: str) -> MessageFormat:
    common, value = options.get("format"), options.get("value.format")
    if common is not None and value is not None:
        raise ValidationException("Use 'format' or 'value.format', not both.")
    if common is None and value is None:
        raise ValidationException("Set 'format' or 'value.format': one of them is required.")
    return create_message_format(str(common or value), options, zone, "" if value is None else "value.")


def _key_format(options: Mapping[str, str], zone: str) -> MessageFormat | None:
    identifier = options.get("key.format")
    if identifier is None:
        if "key.fields" in options:
            raise ValidationException(
                "The option 'key.fields' can only be declared if a key format is defined using 'key.format'."
            )
        return None
    return create_message_format(identifier, options, zone, "key.")


def _key_names(options: Options, physical: Sequence[Field], has_format: bool) -> tuple[str, ...]:
    names = tuple(n.strip() for n in options.text("key.fields", "").split(";") if n.strip())
    if has_format and not names:
        raise ValidationException(
            "A key format 'key.format' requires the declaration of one or more of key fields using 'key.fields'."
        )
    known = [f.name for f in physical]
    missing = next((n for n in names if n not in known), None)
    if missing is not None:
        raise ValidationException(
            f"Could not find the field '{missing}' in the table schema for usage in the key format. A key field must "
            f"be a regular, physical column. The following columns can be selected in the 'key.fields' option: {known}"
        )
    return names

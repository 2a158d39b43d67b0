"""What the options of a Kafka table say: topics, where reading begins and ends, the columns of keys and values."""

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
    """Which topics a table is about: their names, or a pattern."""

    names: tuple[str, ...]
    pattern: str | None

    @property
    def only(self) -> str | None:
        """The topic, where there is one alone."""
        return self.names[0] if len(self.names) == 1 else None


def topics_of(options: Options) -> Topics:
    """Return the topics that options name."""
    names = tuple(t.strip() for t in options.text("topic", "").split(";") if t.strip())
    pattern = options.text("topic-pattern", "") or None
    if names and pattern is not None:
        raise ValidationException("Option 'topic' and 'topic-pattern' shouldn't be set together.")
    if not names and pattern is None:
        raise ValidationException("Either 'topic' or 'topic-pattern' must be set.")
    return Topics(names, pattern)


def start_of(options: Options, topics: Topics) -> KafkaOffsetsInitializer:
    """Return where reading begins."""
    mode = options.one_of(
        "scan.startup.mode",
        "group-offsets",
        {m: m for m in ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets")},
    )
    return _initializer(options, mode, "startup", topics)


def stop_of(options: Options, topics: Topics) -> KafkaOffsetsInitializer | None:
    """Return where reading ends; None for never."""
    modes = ("unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
    mode = options.one_of("scan.bounded.mode", "unbounded", {m: m for m in modes})
    return None if mode == "unbounded" else _initializer(options, mode, "bounded", topics)


def _initializer(options: Options, mode: str, what: str, topics: Topics) -> KafkaOffsetsInitializer:
    if mode == "earliest-offset":
        return KafkaOffsetsInitializer.earliest()
    if mode == "latest-offset":
        return KafkaOffsetsInitializer.latest()
    if mode == "group-offsets":
        reset = options.one_of("properties.auto.offset.reset", "none", _RESETS)
        if "properties.group.id" not in options:
            raise ValidationException(
                "Property group.id is required when using committed offset for offsets initializer: set "
                "'properties.group.id', or say with 'scan.startup.mode' = 'earliest-offset' where reading begins."
            )
        return KafkaOffsetsInitializer.committed_offsets(reset)
    key = f"scan.{what}.{'timestamp-millis' if mode == 'timestamp' else 'specific-offsets'}"
    if key not in options:
        raise ValidationException(f"'{key}' is required in '{mode}' {what} mode but missing.")
    if mode == "timestamp":
        return KafkaOffsetsInitializer.timestamp(options.whole(key, 0))
    if topics.only is None:
        raise ValidationException("Currently Kafka source only supports specific offset for single topic.")
    given = {KafkaTopicPartition(topics.only, p): at for p, at in _offsets(key, options.text(key, "")).items()}
    return KafkaOffsetsInitializer.offsets(given)


def _offsets(key: str, text: str) -> dict[int, int]:
    """Read `partition:0,offset:42;partition:1,offset:300`."""
    found: dict[int, int] = {}
    for part in text.split(";"):
        pair = _PAIR.fullmatch(part.replace(" ", ""))
        if pair is None:
            raise ValidationException(
                f"Invalid properties '{key}' should follow the format "
                f"'partition:0,offset:42;partition:1,offset:300', but is '{text}'."
            )
        found[int(pair[1])] = int(pair[2])
    return found


def client_properties(options: Options, prefix: str = "properties.") -> dict[str, str]:
    """Return the properties of the client, with how often new partitions are looked for."""
    own = {k: v for k, v in options.under(prefix).items() if k != "auto.offset.reset"}
    every = options.duration("scan.topic-partition-discovery.interval", _DISCOVERY_MS)
    return {**own, "partition.discovery.interval.ms": str(every)}


@fast_dataclass
class Messages:
    """How a row is in a message: which columns its key and its value have, and in which formats.

    Attributes:
        physical: the columns of the table.
        key: the format of keys; None without one.
        key_names, value_names: of those columns in the table.
        key_fields, value_fields: the same as the formats know them.
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
    """Return how rows of a table are in messages.

    Args:
        table: the declaration.
        zone: the session's time zone.
        topics: of the table.
        keys: the columns of keys, where the options do not say them.
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
    wrong = next((n for n in names if not n.startswith(prefix)), None)
    if wrong is not None:
        raise ValidationException(
            f"All fields in 'key.fields' must be prefixed with '{prefix}' when option 'key.fields-prefix' is set but "
            f"field '{wrong}' is not prefixed."
        )
    by_name = {f.name: f for f in physical}
    key_fields = tuple(Field(n.removeprefix(prefix), by_name[n].type) for n in names)
    value_fields = tuple(f for f in physical if include == "ALL" or f.name not in names)
    _about_topic(key, topics, "key")
    _about_topic(value, topics, "value")
    value.check(value_fields)
    if key is not None:
        key.check(key_fields)
    return Messages(physical, key, names, key_fields, value, tuple(f.name for f in value_fields), value_fields)


def _about_topic(found: MessageFormat | None, topics: Topics, what: str) -> None:
    if isinstance(found, AvroConfluentFormat) and topics.only is not None:
        found.set_default_subject(f"{topics.only}-{what}")


def _format(options: Mapping[str, str], zone: str) -> MessageFormat:
    plain, named = options.get("format"), options.get("value.format")
    if plain is not None and named is not None:
        raise ValidationException("Use 'format' or 'value.format', not both.")
    if plain is None and named is None:
        raise ValidationException(
            "One of 'format' and 'value.format' is required: say which one with 'format' = '...'."
        )
    return create_message_format(str(plain or named), options, zone, "" if named is None else "value.")


def _key_format(options: Mapping[str, str], zone: str) -> MessageFormat | None:
    named = options.get("key.format")
    if named is None:
        if "key.fields" in options:
            raise ValidationException(
                "The option 'key.fields' can only be declared if a key format is defined using 'key.format'."
            )
        return None
    return create_message_format(named, options, zone, "key.")


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

"""Finds table connectors by identifier, and checks their options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import TypeVar

from millstream.common.display_text import closest, did_you_mean
from millstream.common.errors import MillstreamError
from millstream.common.masking import masked, masked_text
from millstream.sql.connector_contract import Connector, TableContext, TableSink, TableSource
from millstream.sql.errors import ValidationException
from millstream.sql.types import quoted

ENTRY_POINTS = "millstream.connectors"
_IDENTIFIER = "connector"
# Options that every table may have.
_COMMON = frozenset(["property-version", "scan.parallelism", "sink.parallelism"])
BUILT_IN = {
    "blackhole": "millstream.connectors.print_and_blackhole:BlackHoleConnector",
    "datagen": "millstream.connectors.datagen.table:DataGenConnector",
    "filesystem": "millstream.connectors.files.table:FileSystemConnector",
    "jdbc": "millstream.connectors.jdbc.table:JdbcConnector",
    "kafka": "millstream.connectors.kafka.table:KafkaConnector",
    "mysql-cdc": "millstream.connectors.cdc.table:MySqlCdcConnector",
    "postgres-cdc": "millstream.connectors.cdc.table:PostgresCdcConnector",
    "print": "millstream.connectors.print_and_blackhole:PrintConnector",
    "upsert-kafka": "millstream.connectors.kafka.table:UpsertKafkaConnector",
}
_registered: dict[str, type[Connector]] = {}

_Created = TypeVar("_Created")
_Class = TypeVar("_Class", bound=type[Connector])


def register_connector(connector: _Class) -> _Class:
    """Register a connector in this program; usable as a decorator.

    Example:
        >>> from millstream.sql.connector_contract import Connector
        >>> @register_connector
        ... class Mine(Connector):
        ...     identifier = "mine"
    """
    _registered[connector.identifier] = connector
    return connector


@cache
def _installed() -> dict[str, str]:
    # Deferred: importing it takes time that built-in connectors do not need.
    from importlib.metadata import entry_points

    return {entry.name: entry.value for entry in entry_points(group=ENTRY_POINTS)}


def find_connector(identifier: str) -> Connector | None:
    """Return the connector with an identifier, or None."""
    if identifier in _registered:
        return _registered[identifier]()
    if identifier in BUILT_IN:
        module, _, name = BUILT_IN[identifier].partition(":")
        return _loaded(module, name)()
    if identifier in _installed():
        module, _, name = _installed()[identifier].partition(":")
        return _loaded(module, name)()
    return None


def _loaded(module: str, name: str) -> type[Connector]:
    connector: type[Connector] = getattr(import_module(module), name)
    return connector


def identifiers() -> list[str]:
    """Return the identifiers of all connectors."""
    return sorted({*BUILT_IN, *_registered, *_installed()})


class Connectors:
    """Creates sources and sinks of tables; errors name the table and its options, in Flink's words."""

    def source(self, context: TableContext) -> TableSource:
        """Return the source of a table."""
        return _create(context, "source", "reading", lambda c: c.table_source(context))

    def sink(self, context: TableContext) -> TableSink:
        """Return the sink of a table."""
        return _create(context, "sink", "writing", lambda c: c.table_sink(context))


def _create(context: TableContext, kind: str, purpose: str, make: Callable[[Connector], _Created]) -> _Created:
    try:
        connector = _connector_of(context)
        _check_options(connector, context.table.options)
        try:
            return make(connector)
        except NotImplementedError:
            raise ValidationException(
                f"Connector '{connector.identifier}' can only be used as a {'sink' if kind == 'source' else 'source'}. "
                f"It cannot be used as a {kind}."
            ) from None
    except MillstreamError as e:
        name = ".".join(context.name)
        shown = {key: masked_text(value) for key, value in masked(context.table.options).items()}
        options = "\n".join(f"{quoted(k)}={quoted(v)}" for k, v in sorted(shown.items()))
        raise ValidationException(
            f"Unable to create a {kind} for {purpose} table '{name}'.\n\nTable options are:\n\n{options}\n\n{e}"
        ) from e


def _connector_of(context: TableContext) -> Connector:
    identifier = context.table.options.get(_IDENTIFIER)
    if identifier is None:
        raise ValidationException(
            f"Table options do not contain an option key '{_IDENTIFIER}' for discovering a connector: say which "
            f"one with WITH ('{_IDENTIFIER}' = '...')."
        )
    connector = find_connector(identifier)
    if connector is None:
        raise ValidationException(
            f"There is no connector '{identifier}'{did_you_mean(identifier, identifiers()) or '.'}\n\n"
            "Available connectors are:\n\n" + "\n".join(identifiers())
        )
    return connector


def _check_options(connector: Connector, options: dict[str, str]) -> None:
    missing = sorted(connector.required - options.keys())
    if missing:
        raise ValidationException(
            "One or more required options are missing.\n\nMissing required options are:\n\n" + "\n".join(missing)
        )
    known = connector.options(options) | _COMMON | {_IDENTIFIER}
    unknown = sorted(key for key in options if not _is_known(key, known))
    if unknown:
        raise unsupported_options(connector.identifier, unknown, known)


def unsupported_options(identifier: str, unknown: Sequence[str], known: Iterable[str]) -> ValidationException:
    """Return the error for options that a connector does not support."""
    matches = [f"'{match}'" for match in (closest(key, known) for key in unknown) if match is not None]
    hint = f"\n\nDid you mean {', '.join(matches)}?" if matches else ""
    return ValidationException(
        f"Unsupported options found for '{identifier}'.\n\nUnsupported options:\n\n"
        + "\n".join(unknown)
        + hint
        + "\n\nSupported options:\n\n"
        + "\n".join(sorted(known))
    )


def _is_known(key: str, known: frozenset[str]) -> bool:
    """Return whether an option is known: by name, by a pattern with `#` for a name, or by a prefix."""
    if key in known:
        return True
    return any(_matches(key, k) for k in known if "#" in k or k.endswith(".*"))


def _matches(key: str, pattern: str) -> bool:
    if pattern.endswith(".*"):
        return key.startswith(pattern[:-1])
    before, _, after = pattern.partition("#")
    return key.startswith(before) and key.endswith(after) and len(key) > len(before) + len(after)

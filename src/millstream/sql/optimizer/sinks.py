"""Requirements of sinks: update kinds and upsert materialization."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from millstream.sql.errors import ValidationException
from millstream.sql.optimizer.changelog import Kinds
from millstream.sql.optimizer.upsert_keys import Keys
from millstream.sql.plan.nodes import Node, Scan, Single, Sink, StreamScan, ToStream
from millstream.sql.schema import INSERTS, Changes, TimeAttribute

# ON CONFLICT strategies that detect a second row of a primary key.
DETECTING = ("NOTHING", "ERROR")
_RETRACTS = "requires UPDATE_BEFORE (retract mode)"


def takes_new_halves(end: Single, keys: Keys) -> bool:
    """Return whether a sink needs only UPDATE_AFTER, because it upserts by key.

    Args:
        end: the end.
        keys: the upsert keys of its rows. If the primary key has columns outside of all of them, an update may change
            a row's primary key, and the row of the former one must be deleted.
    """
    if isinstance(end, Sink):
        takes = Changes.UPDATE_BEFORE not in end.sink.changes and end.materialize is None
        return takes and (not end.table.primary_key or frozenset(_primary_key(end)) in keys)
    return isinstance(end, ToStream) and end.upsert


def prepared(end: Single, kinds: Kinds, keys: Keys, settings: Mapping[str, str], batch: bool = False) -> Single:
    """Return the sink with its materialization key, if it needs one."""
    if not isinstance(end, Sink):
        return end
    _check_conflict(end, batch)
    primary = _primary_key(end)
    mode = _mode(settings)
    detects = end.conflict in DETECTING
    fits = any(key <= frozenset(primary) for key in keys)
    if mode == "AUTO" and not batch:
        _require_conflict(end, fits, settings)
    if not primary or mode == "NONE" or (kinds == INSERTS and mode != "FORCE" and not detects):
        return end
    takes_back = Changes.UPDATE_BEFORE in end.sink.changes
    if end.sink.changes == INSERTS or (takes_back and (mode != "FORCE" or Changes.UPDATE_BEFORE in kinds)):
        return end
    if mode == "FORCE" or not fits:
        upsert_key = min(keys, key=lambda key: (len(key), sorted(key)), default=frozenset())
        return replace(end, materialize=primary, upsert_key=tuple(sorted(upsert_key)) if detects else ())
    return end


def _check_conflict(end: Sink, batch: bool) -> None:
    """Reject an ON CONFLICT that cannot be executed."""
    if end.conflict is None:
        return
    name, changes = ".".join(end.name), end.sink.changes
    if changes == INSERTS or Changes.UPDATE_BEFORE in changes:
        takes = "only accepts INSERT (append-only) changes" if changes == INSERTS else _RETRACTS
        raise ValidationException(
            f"ON CONFLICT clause is only allowed for upsert sinks. The sink '{name}' is not an upsert sink because it "
            f"{takes}."
        )
    missing = [] if batch or end.conflict not in DETECTING else list(_without_watermarks(end.input))
    if missing:
        raise ValidationException(
            f"ON CONFLICT DO {end.conflict} requires all source tables to define watermarks, but the following "
            f"source(s) do not: {', '.join(missing)}. Please add a WATERMARK declaration to these tables."
        )


def _without_watermarks(node: Node) -> Iterator[str]:
    if isinstance(node, Scan) and node.table.watermark is None:
        yield ".".join(node.name)
    elif isinstance(node, StreamScan) and all(f.time is not TimeAttribute.ROWTIME for f in node.fields.fields):
        yield "a DataStream"
    for below in node.inputs:
        yield from _without_watermarks(below)


def _require_conflict(end: Sink, fits: bool, settings: Mapping[str, str]) -> None:
    """Reject a sink that may receive several rows per primary key without ON CONFLICT."""
    changes = end.sink.changes
    is_upsert = bool(end.table.primary_key) and changes != INSERTS and Changes.UPDATE_BEFORE not in changes
    required = settings.get("table.exec.sink.require-on-conflict", "false").strip().lower() == "true"
    if required and is_upsert and not fits and end.conflict is None:
        raise ValidationException(
            "The query has an upsert key that differs from the primary key of the sink table "
            f"'{'.'.join(end.name)}'. Please specify an ON CONFLICT clause to define how conflicts should be handled: "
            "ON CONFLICT DO DEDUPLICATE, DO ERROR or DO NOTHING."
        )


def _primary_key(end: Sink) -> tuple[int, ...]:
    return tuple(end.fields.names.index(k) for k in end.table.primary_key)


def _mode(settings: Mapping[str, str]) -> str:
    return settings.get("table.exec.sink.upsert-materialize", "AUTO").upper()

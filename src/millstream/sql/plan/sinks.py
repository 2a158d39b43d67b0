"""What stands before a sink: how it wants updates, and whether the last row of each key must be known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.sql.changes import INSERTS, Changes
from millstream.sql.plan.changelog import Kinds
from millstream.sql.plan.keys import Keys
from millstream.sql.plan.nodes import Single, Sink, ToStream


def takes_new_halves(end: Single, keys: Keys) -> bool:
    """Tell whether an end does with the new half of an update, for it goes by the key of the rows.

    Args:
        end: the end.
        keys: the upsert keys of its rows. Where the primary key has more columns than one of them, a row may get
            another primary key, and the row of its former one must go.
    """
    if isinstance(end, Sink):
        takes = Changes.UPDATE_BEFORE not in end.sink.changes and end.materialize is None
        return takes and (not end.table.primary_key or frozenset(_primary_key(end)) in keys)
    return isinstance(end, ToStream) and end.upsert


def prepared(end: Single, kinds: Kinds, keys: Keys, settings: Mapping[str, str]) -> Single:
    """Return the end with the key by which it is materialized, if it must be."""
    if not isinstance(end, Sink):
        return end
    primary = _primary_key(end)
    mode = _mode(settings)
    if not primary or mode == "NONE" or (kinds == INSERTS and mode != "FORCE"):
        return end
    takes_back = Changes.UPDATE_BEFORE in end.sink.changes
    if end.sink.changes == INSERTS or (takes_back and (mode != "FORCE" or Changes.UPDATE_BEFORE in kinds)):
        return end
    if mode == "FORCE" or not any(key <= frozenset(primary) for key in keys):
        return replace(end, materialize=primary)
    return end


def _primary_key(end: Sink) -> tuple[int, ...]:
    return tuple(end.fields.names.index(k) for k in end.table.primary_key)


def _mode(settings: Mapping[str, str]) -> str:
    return settings.get("table.exec.sink.upsert-materialize", "AUTO").upper()

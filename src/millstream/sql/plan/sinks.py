"""What stands before a sink: how it wants updates, and whether the last row of each key must be known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.sql.changes import INSERTS, Changes
from millstream.sql.plan.changelog import Kinds, Updates
from millstream.sql.plan.keys import Keys
from millstream.sql.plan.nodes import Single, Sink, ToStream


def wants(end: Single, kinds: Kinds) -> list[Updates]:
    """Return how an end takes updates, what it likes best first."""
    if isinstance(end, Sink) and Changes.UPDATE_BEFORE not in end.sink.changes and end.materialize is None:
        return [Updates.AFTER, Updates.PAIRS]
    if isinstance(end, ToStream) and end.upsert:
        return [Updates.AFTER, Updates.PAIRS]
    return [Updates.PAIRS]


def prepared(end: Single, kinds: Kinds, keys: Keys, settings: Mapping[str, str]) -> Single:
    """Return the end with the key by which it is materialized, if it must be."""
    if not isinstance(end, Sink):
        return end
    names = end.fields.names
    primary = tuple(names.index(k) for k in end.table.primary_key)
    mode = settings.get("table.exec.sink.upsert-materialize", "AUTO").upper()
    if not primary or mode == "NONE" or (kinds == INSERTS and mode != "FORCE"):
        return end
    if Changes.UPDATE_BEFORE in end.sink.changes and mode != "FORCE":
        return end
    if mode == "FORCE" or not any(key <= frozenset(primary) for key in keys):
        return replace(end, materialize=primary)
    return end

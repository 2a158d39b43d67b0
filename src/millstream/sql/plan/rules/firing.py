"""When windows are told besides at their end: the options table.exec.emit.*."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.common.configuration import parse_duration_ms
from millstream.sql.errors import TableException
from millstream.sql.plan import nodes as n

_EARLY, _LATE = "table.exec.emit.early-fire", "table.exec.emit.late-fire"
_LATENESS = "table.exec.emit.allow-lateness"


def fired(node: n.Node, settings: Mapping[str, str]) -> n.Node:
    """Return a window of a GROUP BY that is told when the options say."""
    early, late = (str(settings.get(f"{o}.enabled", "false")).lower() == "true" for o in (_EARLY, _LATE))
    if not isinstance(node, n.WindowAggregate) or not (early or late):
        return node
    if node.of_function:
        raise TableException(
            "Currently, window table function based aggregate doesn't support early-fire and late-fire configuration "
            f"'{_EARLY}.enabled' and '{_LATE}.enabled'."
        )
    for option, is_on in ((_EARLY, early), (_LATE, late)):
        if is_on and parse_duration_ms(str(settings.get(f"{option}.delay", "0 ms"))) > 0:
            raise TableException(f"{option}.delay can be 0 s only: windows are told with every row, not by the clock.")
    if node.counts is not None or node.window.kind is n.WindowKind.SESSION or not node.window.is_event_time:
        raise TableException(
            f"{_EARLY} and {_LATE} are for TUMBLE and HOP windows of event time: other windows are told at their end."
        )
    lateness = settings.get(_LATENESS, settings.get("table.exec.state.ttl", "0 ms")) if late else "0 ms"
    return replace(node, fires=n.Fires(early, parse_duration_ms(str(lateness))))

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
    if node.counts is not None or node.window.kind is n.WindowKind.SESSION or not node.window.is_event_time:
        raise TableException(
            f"{_EARLY} and {_LATE} are for TUMBLE and HOP windows of event time: other windows are told at their end."
        )
    early_delay, late_delay = _delay(settings, _EARLY, early), _delay(settings, _LATE, late)
    lateness = _lateness(settings, late_delay) if late else 0
    if early_delay or late_delay:
        return replace(node, fires=n.PeriodicFires(early and not early_delay, lateness, early_delay, late_delay))
    return replace(node, fires=n.Fires(early, lateness))


def _delay(settings: Mapping[str, str], option: str, is_on: bool) -> int:
    if not is_on:
        return 0
    if f"{option}.delay" not in settings:
        raise TableException(
            f"{option}.delay is not set: 0 s tells windows with every row, more tells them so often by the clock."
        )
    return parse_duration_ms(str(settings[f"{option}.delay"]))


def _lateness(settings: Mapping[str, str], delay: int) -> int:
    found = parse_duration_ms(str(settings.get(_LATENESS, settings.get("table.exec.state.ttl", "0 ms"))))
    if not found:
        raise TableException(
            f"The 'AFTER WATERMARK' emit strategy requires set '{_LATENESS}' or 'table.exec.state.ttl' in table config."
        )
    if delay > found:
        raise TableException(
            f"Allow-lateness [{found}ms] should not be smaller than Late-fire delay [{delay}ms] when enable late-fire "
            "emit strategy."
        )
    return found

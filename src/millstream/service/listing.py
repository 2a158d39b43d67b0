"""Metrics as clients read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.service.responses.metrics import Value, aggregated


def listed_metrics(found: Mapping[str, Value], wanted: list[str] | None) -> list[dict[str, str]]:
    """Return metrics: only their names when none is asked for, else the values as text."""
    if wanted is None:
        return [{"id": name} for name in sorted(found)]
    return [{"id": name, "value": str(found[name])} for name in wanted if name in found]


def aggregated_metrics(
    found: list[dict[str, Value]], wanted: list[str] | None, how: list[str] | None
) -> list[dict[str, Any]]:
    """Return metrics over several owners."""
    if wanted is None:
        return [{"id": name} for name in sorted({n for one in found for n in one})]
    shown = []
    for name in wanted:
        values = [v for one in found if isinstance(v := one.get(name), (int, float))]
        if values:
            chosen = how or ["min", "max", "avg", "sum", "skew"]
            shown.append({"id": name, **aggregated(values, chosen)})
    return shown

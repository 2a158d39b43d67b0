"""What the first of two phases gives to the second, by Flink's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.sql.expressions import AggregateCall

_VARIANCES = frozenset(["VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"])
# Aggregates of which what was kept of some rows can be put together with what was kept of others.
_TOGETHER = frozenset(["COUNT", "SUM", "$SUM0", "AVG", "MIN", "MAX", *_VARIANCES])
# The same, unless rows are taken back that may be in the other phase.
_TOGETHER_UNLESS_TAKEN_BACK = frozenset(["COLLECT", "ARRAY_AGG"])


def can_be_split(call: AggregateCall, retracts: bool) -> bool:
    """Tell whether an aggregate can be computed in two phases."""
    if call.user is not None or call.order:
        return False
    return call.function in _TOGETHER or (call.function in _TOGETHER_UNLESS_TAKEN_BACK and not retracts)


class Accumulated:
    """The names of what is kept.

    Attributes:
        names: for each aggregate.
        distinct: for each that is over distinct values, the name of those; None for others.
        tables: the names of all distinct values, with the first aggregate that is over them.
        rows: the name of the number of rows, where it is needed and no aggregate is it; None elsewhere.
    """

    def __init__(self, calls: Sequence[AggregateCall], retracts: bool) -> None:
        self.names: list[tuple[str, ...]] = []
        self.distinct: list[str | None] = []
        self.tables: dict[str, AggregateCall] = {}
        known: dict[Any, str] = {}
        number = 0
        for call in calls:
            kept = _kept(call, retracts)
            self.names.append(tuple(f"{name}${number + i}" for i, name in enumerate(kept)))
            number += len(kept)
            if call.distinct and call.arguments not in known:
                known[call.arguments] = f"distinct${len(known)}"
                self.tables[known[call.arguments]] = call
            self.distinct.append(known[call.arguments] if call.distinct else None)
        counts_rows = any(c.function == "COUNT" and not c.arguments and c.condition is None for c in calls)
        self.rows = f"count1${number}" if retracts and not counts_rows else None


def _kept(call: AggregateCall, retracts: bool) -> tuple[str, ...]:
    function = call.function
    if function == "COUNT":
        return ("count",) if call.arguments else ("count1",)
    if function == "AVG" or (function == "SUM" and retracts):
        return ("sum", "count")
    if function in _VARIANCES:
        return ("sum", "squares", "count")
    return ("sum",) if function == "$SUM0" else (function.lower(),)

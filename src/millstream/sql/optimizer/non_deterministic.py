"""Which functions may give another result each time."""

from __future__ import annotations

from millstream.sql.expressions import Call, Expression, UserCall, walk
from millstream.sql.functions.table import find

# UNIX_TIMESTAMP of a text is deterministic, but Flink does not tell it from that of now.
_CLOCKS = frozenset(["UNIX_TIMESTAMP"])


def non_deterministic(expression: Expression) -> str | None:
    """Return the name of the first function in an expression whose result may differ each time; None without one."""
    for part in walk(expression):
        if isinstance(part, UserCall) and not part.function.deterministic:
            return part.name
        function = find(part.function) if isinstance(part, Call) else None
        if function is not None and (not function.deterministic or function.name in _CLOCKS):
            return function.name
    return None

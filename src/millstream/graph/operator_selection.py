"""Which operator does the work of one that a program has. What comes out is the same; what it costs is not."""

from __future__ import annotations

from millstream.operators.base import Operator
from millstream.operators.windows import panes, sessions
from millstream.operators.windows.window_operator import WindowOperator
from millstream.state.backend import Backend


def physical(operator: Operator, backend: Backend) -> Operator:
    """Return the operator that runs, where state is kept in a backend: the given one, or one of its quick forms."""
    # These read and write a pane, or a key's sessions, as a whole, which only memory can afford.
    if type(operator) is not WindowOperator or backend is not Backend.HASHMAP:
        return operator
    if panes.fits(operator):
        return panes.PaneOperator.like(operator)
    return sessions.SessionOperator.like(operator) if sessions.fits(operator) else operator

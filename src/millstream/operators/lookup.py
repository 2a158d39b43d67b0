"""Lines of a loop that look a key up in a table of state."""

from __future__ import annotations

from collections.abc import Callable

from millstream.operators.base import Operator
from millstream.operators.codegen import CodeWriter
from millstream.state.key_groups import freeze
from millstream.state.table import MISSING


def look_up(
    w: CodeWriter,
    operator: Operator,
    found: str,
    key: str,
    value: str,
    overlay: str,
    base_get: str,
    look_at: Callable[[], None] = lambda: None,
) -> None:
    """Write the lines after which `found` is what a table has for a key, or MISSING, and the key is hashable.

    Args:
        w: what writes the loop.
        operator: the operator, and `value` the record, that an error in a line is told of.
        found: the variable to set.
        key: the variable of the key, which is set anew where a dict would not take it.
        value: the variable of the record.
        overlay: the table's changes.
        base_get: the `get` of what is below them.
        look_at: writes what is done with a value from there.
    """
    missing = w.bind(MISSING, "missing")
    with w.block("try:"):
        w.line(f"{found} = {overlay}[{key}]")
    with w.block("except KeyError:"):
        w.line(f"{found} = {base_get}({key}, {missing})")
        look_at()
    # An unhashable key, a list for example.
    with w.block("except TypeError:"):
        w.line(f"{key} = {w.bind(freeze, 'freeze')}({key})", operator, value)
        w.line(f"{found} = {overlay}[{key}] if {key} in {overlay} else {base_get}({key}, {missing})")
        look_at()

"""Lines of a loop that look a key up in a table of state."""

from __future__ import annotations

from collections.abc import Callable

from millstream.operators.base import Operator
from millstream.operators.codegen.code_writer import CodeWriter, Key
from millstream.state.key_groups import PLAIN_KEYS, freeze, hashable
from millstream.state.table import MISSING


def look_up(
    w: CodeWriter,
    operator: Operator,
    found: str,
    key: Key,
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
        key: the key, whose variable is set anew where a dict would not take it.
        value: the variable of the record.
        overlay: the table's changes.
        base_get: the `get` of what is below them.
        look_at: writes what is done with a value from there.
    """
    missing, k = w.bind(MISSING, "missing"), key.name
    again = f"{found} = {overlay}[{k}] if {k} in {overlay} else {base_get}({k}, {missing})"
    with w.block("try:"):
        w.line(f"{found} = {overlay}[{k}]")
    with w.block("except KeyError:"):
        w.line(f"{found} = {base_get}({k}, {missing})")
        if not key.hashable:
            # One with a NaN in it is never found as it is.
            with w.block(f"if {k}.__class__ not in {w.bind(PLAIN_KEYS, 'plain')}:"):
                w.line(f"{k} = {w.bind(hashable, 'hashable')}({k})", operator, value)
                w.line(again)
        look_at()
    if not key.hashable:
        # A list for example.
        with w.block("except TypeError:"):
            w.line(f"{k} = {w.bind(freeze, 'freeze')}({k})", operator, value)
            w.line(again)
            look_at()


def look_up_cell(w: CodeWriter, operator: Operator, found: str, key: Key, value: str, cells: str) -> None:
    """Write the lines after which `found` is what a dict has for a key, or None, and the key is hashable.

    The arguments are those of `look_up`; it takes a dict of values that are never None.
    """
    k = key.name
    with w.block("try:"):
        w.line(f"{found} = {cells}[{k}]")
    with w.block("except KeyError:"):
        w.line(f"{found} = None")
        if not key.hashable:
            with w.block(f"if {k}.__class__ not in {w.bind(PLAIN_KEYS, 'plain')}:"):
                w.line(f"{k} = {w.bind(hashable, 'hashable')}({k})", operator, value)
                w.line(f"{found} = {cells}.get({k})")
    if not key.hashable:
        with w.block("except TypeError:"):
            w.line(f"{k} = {w.bind(freeze, 'freeze')}({k})", operator, value)
            w.line(f"{found} = {cells}.get({k})")

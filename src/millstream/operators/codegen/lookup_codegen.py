"""Generated lookups of keys in state tables."""

from __future__ import annotations

from collections.abc import Callable

from millstream.operators.base import Operator
from millstream.operators.codegen.code_writer import CodeWriter, Key
from millstream.state.key_groups import PLAIN_KEYS, freeze, hashable
from millstream.state.table import MISSING


def look_up(
    w: CodeWriter,
    operator: Operator,
    target: str,
    key: Key,
    value: str,
    overlay: str,
    base_get: str,
    process: Callable[[], None] = lambda: None,
) -> None:
    """Write the lines that set `target` to the value of a key in a state table, or MISSING, and make the key hashable.

    Args:
        w: writes the loop.
        operator: the operator named in errors, with the record in `value`.
        target: the variable to set.
        key: the key; its variable is replaced if it is not hashable.
        value: the variable of the record.
        overlay: the table's overlay.
        base_get: the `get` of its base.
        process: writes lines that process a value from the base.
    """
    missing, k = w.bind(MISSING, "missing"), key.name
    retry = f"{target} = {overlay}[{k}] if {k} in {overlay} else {base_get}({k}, {missing})"
    with w.block("try:"):
        w.line(f"{target} = {overlay}[{k}]")
    with w.block("except KeyError:"):
        w.line(f"{target} = {base_get}({k}, {missing})")
        if not key.hashable:
            # A key that contains NaN never equals itself.
            with w.block(f"if {k}.__class__ not in {w.bind(PLAIN_KEYS, 'plain')}:"):
                w.line(f"{k} = {w.bind(hashable, 'hashable')}({k})", operator, value)
                w.line(retry)
        process()
    if not key.hashable:
        # An unhashable key, such as a list.
        with w.block("except TypeError:"):
            w.line(f"{k} = {w.bind(freeze, 'freeze')}({k})", operator, value)
            w.line(retry)
            process()


def look_up_cell(w: CodeWriter, operator: Operator, target: str, key: Key, value: str, cells: str) -> None:
    """Write the lines that set `target` to the value of a key in a dict, or None, and make the key hashable.

    The arguments are those of `look_up`; `cells` is a dict whose values are never None.
    """
    k = key.name
    with w.block("try:"):
        w.line(f"{target} = {cells}[{k}]")
    with w.block("except KeyError:"):
        w.line(f"{target} = None")
        if not key.hashable:
            with w.block(f"if {k}.__class__ not in {w.bind(PLAIN_KEYS, 'plain')}:"):
                w.line(f"{k} = {w.bind(hashable, 'hashable')}({k})", operator, value)
                w.line(f"{target} = {cells}.get({k})")
    if not key.hashable:
        with w.block("except TypeError:"):
            w.line(f"{k} = {w.bind(freeze, 'freeze')}({k})", operator, value)
            w.line(f"{target} = {cells}.get({k})")

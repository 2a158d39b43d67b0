"""Values that travel in batches must not change after they were emitted.

A record waits in a bucket until its batch is sent. User code may go on changing an object it has emitted
(an accumulator it updates in place, a buffer it clears), so a value that could still change is copied
when it is emitted: then it travels as it was at that moment, as if it had been sent at once.
"""

from __future__ import annotations

import dis
from types import CodeType, FunctionType
from typing import Any

from millstream.common.values import ATOMS, detach
from millstream.operators.codegen import CodeWriter, Var

_WRITES = ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_ATTR", "STORE_GLOBAL", "STORE_SLICE", "INPLACE", "IMPORT")

# Names that neither keep nor change what they are given.
_BUILTINS = frozenset(
    [
        "abs",
        "all",
        "any",
        "bool",
        "bytes",
        "chr",
        "dict",
        "divmod",
        "enumerate",
        "filter",
        "float",
        "frozenset",
        "int",
        "len",
        "list",
        "map",
        "max",
        "min",
        "ord",
        "pow",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "sorted",
        "str",
        "sum",
        "tuple",
        "zip",
    ]
)
_METHODS = frozenset(
    [
        "capitalize",
        "casefold",
        "count",
        "decode",
        "encode",
        "endswith",
        "find",
        "format",
        "get",
        "index",
        "isalnum",
        "isalpha",
        "isdigit",
        "isspace",
        "items",
        "join",
        "keys",
        "lower",
        "lstrip",
        "partition",
        "removeprefix",
        "removesuffix",
        "replace",
        "rfind",
        "rpartition",
        "rsplit",
        "rstrip",
        "split",
        "splitlines",
        "startswith",
        "strip",
        "title",
        "upper",
        "values",
        "zfill",
    ]
)


def detached(w: CodeWriter, value: Var) -> Var:
    """Write the lines that copy a value which its maker could still change."""
    if value.detached:
        return value
    atoms, copy, out, member = w.bind(ATOMS, "atoms"), w.bind(detach, "detach"), w.var(), w.var("m")
    w.line(f"{out} = {value.name}")
    with (
        w.block(f"if {out}.__class__ is tuple:"),
        w.block(f"for {member} in {out}:"),
        w.block(f"if {member}.__class__ not in {atoms}:"),
    ):
        w.line(f"{out} = {copy}({out})")
        w.line("break")
    with w.block(f"elif {out}.__class__ not in {atoms}:"):
        w.line(f"{out} = {copy}({out})")
    return value.renamed(out, True)


def keeps_nothing(function: Any) -> bool:
    """Tell whether a function can neither keep its arguments nor change them.

    True for plain functions that use nothing but their arguments, harmless builtins and the reading methods of
    strings and dicts: what they return is fresh or a part of their arguments. The answer may be a careful False.
    """
    if not isinstance(function, FunctionType) or function.__defaults__ or function.__kwdefaults__:
        return False
    try:
        captured = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a variable that is not set yet
        return False
    if any(c.__class__ not in ATOMS for c in captured):
        return False
    return _is_harmless(function.__code__, function.__globals__)


def _is_harmless(code: CodeType, module: dict[str, Any]) -> bool:
    for name in code.co_names:
        if name in _METHODS:
            continue
        if name in module:
            if module[name].__class__ not in ATOMS:
                return False
        elif name not in _BUILTINS:
            return False
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith(_WRITES):
            return False
        if instruction.opname == "BINARY_OP" and instruction.argrepr.endswith("="):
            return False
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return all(_is_harmless(c, module) for c in inner)

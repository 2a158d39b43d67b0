"""Copies emitted values that user code could still modify.

A record stays in a bucket until its block is sent. User code may modify an object after emitting it (an accumulator, a
buffer that it clears), so a mutable value is copied when it is emitted.
"""

from __future__ import annotations

import dis
from dataclasses import replace
from types import CodeType, FunctionType

from millstream.common.immutability import ATOMS, detach
from millstream.common.inferred_types import Anything, Fixed
from millstream.operators.codegen.code_writer import CodeWriter, Var
from millstream.operators.codegen.inline import BINARY_OPERATORS

_TESTS = ("TRUE", "FALSE", "NONE", "NOT_NONE")
# Bytecode operations of Python 3.11 to 3.13 that neither retain nor modify existing values.
_OPERATIONS = frozenset(
    [
        # Operations of the interpreter.
        *("RESUME", "NOP", "EXTENDED_ARG", "COPY_FREE_VARS", "MAKE_CELL", "PUSH_NULL", "PRECALL", "KW_NAMES"),
        *("TO_BOOL", "COPY", "SWAP", "POP_TOP", "END_FOR", "END_SEND"),
        # Local variables, and reads of others.
        *("LOAD_CONST", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_LOAD_FAST"),
        *("STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "DELETE_FAST"),
        *("LOAD_CLOSURE", "LOAD_DEREF", "STORE_DEREF", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"),
        # Operators, and new values.
        *("UNARY_POSITIVE", "UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT"),
        *("BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "BUILD_SLICE"),
        *("COMPARE_OP", "IS_OP", "CONTAINS_OP", "BUILD_STRING", "FORMAT_VALUE", "FORMAT_SIMPLE"),
        *("FORMAT_WITH_SPEC", "CONVERT_VALUE", "BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_MAP"),
        *("BUILD_CONST_KEY_MAP", "LIST_APPEND", "LIST_EXTEND", "LIST_TO_TUPLE", "SET_ADD", "SET_UPDATE", "MAP_ADD"),
        *("DICT_UPDATE", "DICT_MERGE", "UNPACK_SEQUENCE", "UNPACK_EX", "CALL_INTRINSIC_1"),
        # Jumps.
        *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"),
        *(f"POP_JUMP_{direction}IF_{test}" for direction in ("", "FORWARD_", "BACKWARD_") for test in _TESTS),
        *("GET_ITER", "FOR_ITER", "RETURN_VALUE", "RETURN_CONST"),
        *("RETURN_GENERATOR", "YIELD_VALUE", "GET_YIELD_FROM_ITER", "SEND"),
        *("RAISE_VARARGS", "RERAISE", "LOAD_ASSERTION_ERROR", "PUSH_EXC_INFO", "CHECK_EXC_MATCH", "POP_EXCEPT"),
        *("MATCH_MAPPING", "MATCH_SEQUENCE", "MATCH_KEYS", "GET_LEN"),
        # Calls of functions that are listed too.
        *("CALL", "CALL_FUNCTION_EX", "CALL_KW", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"),
    ]
)

# Names that neither retain nor modify their arguments.
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
    """Write the lines that copy a value which user code could still modify."""
    if value.detached:
        return value
    return _members_detached(w, value) or _whole_detached(w, value)


def _members_detached(w: CodeWriter, value: Var) -> Var | None:
    """Write the lines for a tuple with one mutable member; None for any other value."""
    members = w.members(value.name)
    if members is None or not isinstance(value.inferred_type, Fixed) or value.condition is not None:
        return None
    # Values with an inferred type are immutable. Several mutable members may be the same object: only a copy of the
    # whole tuple preserves that.
    unknown = [i for i, inferred_type in enumerate(value.inferred_type.members) if isinstance(inferred_type, Anything)]
    if len(unknown) > 1 or any(isinstance(inferred_type, Fixed) for inferred_type in value.inferred_type.members):
        return None
    out, copied = w.var(), list(members)
    for i in unknown:
        copied[i] = w.var("m")
        w.line(f"{copied[i]} = {members[i]}")
        with w.block(f"if {copied[i]}.__class__ not in {w.bind(ATOMS, 'atoms')}:"):
            w.line(f"{copied[i]} = {w.bind(detach, 'detach')}({copied[i]})")
    w.tuple_of(out, tuple(copied))
    return replace(value, name=out, detached=True)


def _whole_detached(w: CodeWriter, value: Var) -> Var:
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
    return replace(value, name=out, detached=True)


def keeps_nothing(function: object) -> bool:
    """Return whether a function can neither retain nor modify its arguments.

    True for plain functions that use nothing but their arguments, harmless builtins and the reading methods of strings
    and dicts, in listed operations: they return new values or members of their arguments. False if in doubt.
    """
    if not isinstance(function, FunctionType) or function.__defaults__ or function.__kwdefaults__:
        return False
    try:
        captured = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # an unset variable
        return False
    if any(c.__class__ not in ATOMS for c in captured):
        return False
    return _is_harmless(function.__code__, function.__globals__)


def _is_harmless(code: CodeType, module: dict[str, object]) -> bool:
    for name in code.co_names:
        if name in _METHODS:
            continue
        if name in module:
            if module[name].__class__ not in ATOMS:
                return False
        elif name not in _BUILTINS:
            return False
    if not all(_is_listed(i, code) for i in dis.get_instructions(code)):
        return False
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return all(_is_harmless(c, module) for c in inner)


def _is_listed(i: dis.Instruction, code: CodeType) -> bool:
    if i.opname == "BINARY_OP":
        # Augmented assignments modify the left side in place.
        return i.argrepr in BINARY_OPERATORS
    if i.opname == "STORE_DEREF":
        # A variable of an enclosing function would retain the value.
        return i.argval in code.co_cellvars
    return i.opname in _OPERATIONS

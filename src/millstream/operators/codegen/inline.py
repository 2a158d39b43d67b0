"""Turns a user's one-expression function into text that stands in the generated loop in place of a call.

`lambda t: t[0]` costs a tenth of the call that runs it, so a chain of such functions is faster written out. The
expression is read off the function's bytecode, which unlike its source is always there. What may be written out is
listed here; a function with anything else in it (a branch, a call, a statement) is called.
"""

from __future__ import annotations
import __future__

import dis
import inspect
import re
import sys
from collections.abc import Callable
from functools import reduce
from operator import or_
from types import CodeType, FunctionType, MethodType
from typing import Any

from millstream.common.fast_dataclass import fast_dataclass

Bind = Callable[[Any, str], str]
# Given a variable and a place, returns the text of that member of a tuple, None where it is not known.
Member = Callable[[str, int], str | None]

_LONGEST = 400
# The closure's own, the local variable's and the argument's to getrefcount.
REFERENCES_OF_ONE_OWNER = 3
# Constants that are written as they are; any other is bound to a name.
_PLAIN_CONSTANTS = (int, str, bytes, type(None))

# The bytecode operations that may be written out. Those of 3.11 are tested; what 3.12 and 3.13 have beside them is
# taken from the documentation of `dis`. A Python that is not listed writes nothing out.
SILENT = frozenset(["RESUME", "NOP", "COPY_FREE_VARS", "EXTENDED_ARG"])
_OF_ALL = SILENT.union(
    [
        *("LOAD_FAST", "LOAD_CONST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_ATTR"),
        *("UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT"),
        *("BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP", "IS_OP", "CONTAINS_OP"),
        *("BUILD_TUPLE", "BUILD_LIST", "RETURN_VALUE"),
    ]
)
OPERATIONS = {
    (3, 11): _OF_ALL,
    (3, 12): _OF_ALL | {"RETURN_CONST"},
    (3, 13): _OF_ALL | {"RETURN_CONST", "LOAD_FAST_LOAD_FAST", "TO_BOOL"},
}
_LISTED = OPERATIONS.get(sys.version_info[:2], frozenset())

# The operators among them.
_UNARY = {"UNARY_NEGATIVE": "-", "UNARY_NOT": "not ", "UNARY_INVERT": "~"}
BINARY_OPERATORS = frozenset(["+", "-", "*", "/", "//", "%", "**", "@", "<<", ">>", "&", "|", "^"])
_COMPARISONS = frozenset(["<", "<=", "==", "!=", ">", ">="])

_INFIX: dict[str, Callable[[dis.Instruction], str]] = {
    "BINARY_OP": lambda i: i.argrepr,
    "COMPARE_OP": lambda i: i.argval,
    "IS_OP": lambda i: "is not" if i.arg else "is",
    "CONTAINS_OP": lambda i: "not in" if i.arg else "in",
}

# A constant that is a place in a tuple, as it is written.
_PLACE = re.compile(r"\((\d+)\)")

# The operations of a function that only walks into its argument.
_PATH = SILENT | {"LOAD_FAST", "LOAD_CONST", "BINARY_SUBSCR", "LOAD_ATTR", "RETURN_VALUE"}

# A plain function's flags, and those that only say how its source was read.
_FLAGS = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_NESTED
_FLAGS |= reduce(or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names))


@fast_dataclass
class Expression:
    """A function's expression over variables.

    Attributes:
        text: the expression.
        members: the texts of the members where the expression puts a tuple together, else empty.
    """

    text: str
    members: tuple[str, ...] = ()


def _not_known(variable: str, place: int) -> str | None:
    return None


def inline(function: Any, arguments: list[str], bind: Bind, member: Member = _not_known) -> Expression | None:
    """Return a function's expression over variables, None when it must be called.

    Args:
        function: the callable.
        arguments: the variables that hold its arguments.
        bind: gives an object a name in the generated function.
        member: tells the members of variables that are tuples.
    """
    if isinstance(function, MethodType):
        return inline(function.__func__, [bind(function.__self__, "self"), *arguments], bind, member)
    if not isinstance(function, FunctionType) or not is_expression(function, len(arguments)):
        return None
    return _Reader(function, arguments, bind, member).read()


def is_path(function: Any) -> bool:
    """Tell whether a function of one argument only walks into it, by indexes, keys and attributes: `t[0]`, `o.city`."""
    return isinstance(function, FunctionType) and _is_listed(function.__code__, 1, _PATH & _LISTED)


def is_expression(function: FunctionType, arguments: int) -> bool:
    """Tell whether a function of so many arguments is one expression that may be written out."""
    return _is_listed(function.__code__, arguments, _LISTED)


def _is_listed(code: CodeType, arguments: int, operations: frozenset[str]) -> bool:
    """Tell whether a function takes so many plain arguments and does nothing but what is listed."""
    plain = not code.co_flags & ~_FLAGS and not code.co_kwonlyargcount and not code.co_cellvars
    if not plain or code.co_argcount != arguments:
        return False
    # Also of those behind the first return: they may handle an exception before it.
    return all(i.opname in operations and _is_plain(i) for i in dis.get_instructions(code))


def _is_plain(i: dis.Instruction) -> bool:
    """Tell whether an operation is used in a way that is listed."""
    if i.opname == "BINARY_OP":
        return i.argrepr in BINARY_OPERATORS
    if i.opname == "COMPARE_OP":
        return i.argval in _COMPARISONS
    if i.opname in ("LOAD_ATTR", "LOAD_GLOBAL"):
        # Else it is loaded to be called, together with what a call needs.
        return bool(i.argrepr == i.argval)
    return True


class _Reader:
    """Runs the bytecode of one function on texts instead of values."""

    def __init__(self, function: FunctionType, arguments: list[str], bind: Bind, member: Member) -> None:
        code = function.__code__
        self._function = function
        self._variables = dict(zip(code.co_varnames, arguments, strict=False))
        self._bind = bind
        self._member = member
        self._stack: list[str] = []
        # The tuple that was put together last.
        self._tuple = Expression("")

    def read(self) -> Expression | None:
        for instruction in dis.get_instructions(self._function.__code__):
            if instruction.opname == "RETURN_CONST":
                return Expression(self._constant(instruction.argval))
            if instruction.opname == "RETURN_VALUE":
                text = self._stack.pop()
                return self._tuple if text is self._tuple.text else Expression(text)
            if instruction.opname in SILENT:
                continue
            if not self._step(instruction) or sum(map(len, self._stack)) > _LONGEST:
                return None
        return None

    def _step(self, i: dis.Instruction) -> bool:
        """Follow one instruction; False when only a call can."""
        name, push = i.opname, self._stack.append
        if name == "LOAD_FAST":
            push(self._variables[i.argval])
        elif name == "LOAD_FAST_LOAD_FAST":
            self._stack += [self._variables[v] for v in i.argval]
        elif name == "LOAD_CONST":
            push(self._constant(i.argval))
        elif name == "LOAD_DEREF":
            return self._free_variable(i.argval)
        elif name == "LOAD_GLOBAL":
            if i.argval not in self._function.__globals__:
                return False
            push(f"{self._bind(self._function.__globals__, 'module')}[{i.argval!r}]")
        elif name == "LOAD_ATTR":
            push(f"{self._stack.pop()}.{i.argval}")
        elif name == "BINARY_SUBSCR":
            self._subscript()
        elif name in ("BUILD_TUPLE", "BUILD_LIST"):
            self._collect(i.arg or 0, "(%s,)" if name == "BUILD_TUPLE" else "[%s]")
        elif name in _UNARY:
            push(f"({_UNARY[name]}{self._stack.pop()})")
        elif name in _INFIX:
            right, left = self._stack.pop(), self._stack.pop()
            push(f"({left} {_INFIX[name](i)} {right})")
        elif name != "TO_BOOL":  # the `not` behind it asks the same
            return False
        return True

    def _subscript(self) -> None:
        index, container = self._stack.pop(), self._stack.pop()
        place = _PLACE.fullmatch(index)
        member = self._member(container, int(place[1])) if place else None
        self._stack.append(member or f"{container}[{index}]")

    def _collect(self, count: int, shape: str) -> None:
        members = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        text = shape % ", ".join(members) if members else shape.replace("%s,", "").replace("%s", "")
        if shape.startswith("("):
            self._tuple = Expression(text, tuple(members))
        self._stack.append(text)

    def _constant(self, value: Any) -> str:
        if value.__class__ in _PLAIN_CONSTANTS:
            return f"({value!r})" if isinstance(value, int) else repr(value)
        return self._bind(value, "const")

    def _free_variable(self, name: str) -> bool:
        free = self._function.__code__.co_freevars
        if name not in free or self._function.__closure__ is None:
            return False
        cell = self._function.__closure__[free.index(name)]
        if sys.getrefcount(cell) == REFERENCES_OF_ONE_OWNER:
            try:
                self._stack.append(self._bind(cell.cell_contents, "free"))
            except ValueError:  # not set, which only a call can say properly
                return False
        else:
            # Another function has the variable too and may set it.
            self._stack.append(f"{self._bind(cell, 'cell')}.cell_contents")
        return True

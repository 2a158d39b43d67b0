"""Inlines a user's one-expression function into the generated loop.

The expression of `lambda t: t[0]` costs a tenth of the call that runs it, so a chain of inlined functions is faster.
The expression is decompiled from the function's bytecode, which is always available, unlike its source. Only the listed
bytecode operations are inlined; a function with any other (a branch, a call, a statement) is called.
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

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass

# A user's function.
UserCallable = Callable[..., Value]
Bind = Callable[[object, str], str]
# Returns the expression of a member of a tuple variable, by index; None if it is unknown.
Member = Callable[[str, int], str | None]

# Maximum characters of an inlined expression.
_MAX_LENGTH = 400
# References to a cell that only one closure has: the closure's, the local variable's and getrefcount's argument.
REFERENCES_OF_ONE_OWNER = 3
# Constants that are written as literals; all others are bound to names.
_PLAIN_CONSTANTS = (int, str, bytes, type(None))

# The bytecode operations that can be inlined. Those of 3.11 are tested; the additional ones of 3.12 and 3.13 are from
# the documentation of `dis`. Other versions of Python inline nothing.
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

# An index of a tuple member, as a literal.
_INDEX = re.compile(r"\((\d+)\)")

# The operations of a function that only accesses members of its argument.
_PATH = SILENT | {"LOAD_FAST", "LOAD_CONST", "BINARY_SUBSCR", "LOAD_ATTR", "RETURN_VALUE"}

# The flags of a plain function, and those of `from __future__` imports.
_FLAGS = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_NESTED
_FLAGS |= reduce(or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names))


@fast_dataclass
class Expression:
    """A function's expression over variables.

    Attributes:
        text: the expression.
        members: the expressions of the members if the expression builds a tuple, else empty.
    """

    text: str
    members: tuple[str, ...] = ()


def _unknown(variable: str, index: int) -> str | None:
    return None


def inline(function: object, arguments: list[str], bind: Bind, member: Member = _unknown) -> Expression | None:
    """Return a function's expression over variables, None if it must be called.

    Args:
        function: the callable.
        arguments: the variables that hold its arguments.
        bind: binds an object to a name in the generated function.
        member: returns the expressions of members of tuple variables.
    """
    if isinstance(function, MethodType):
        return inline(function.__func__, [bind(function.__self__, "self"), *arguments], bind, member)
    if not isinstance(function, FunctionType) or not is_expression(function, len(arguments)):
        return None
    return _Reader(function, arguments, bind, member).read()


def is_path(function: object) -> bool:
    """Return whether a function of one argument only accesses indexes, keys and attributes: `t[0]`, `o.city`."""
    return isinstance(function, FunctionType) and _is_listed(function.__code__, 1, _PATH & _LISTED)


def is_expression(function: FunctionType, arguments: int) -> bool:
    """Return whether a function with this number of arguments is one expression that can be inlined."""
    return _is_listed(function.__code__, arguments, _LISTED)


def _is_listed(code: CodeType, arguments: int, operations: frozenset[str]) -> bool:
    """Return whether a function takes this number of plain arguments and has only listed operations."""
    plain = not code.co_flags & ~_FLAGS and not code.co_kwonlyargcount and not code.co_cellvars
    if not plain or code.co_argcount != arguments:
        return False
    # Also operations after the first return: they may handle an exception before it.
    return all(i.opname in operations and _is_plain(i) for i in dis.get_instructions(code))


def _is_plain(i: dis.Instruction) -> bool:
    """Return whether the form of an operation can be inlined."""
    if i.opname == "BINARY_OP":
        return i.argrepr in BINARY_OPERATORS
    if i.opname == "COMPARE_OP":
        return i.argval in _COMPARISONS
    if i.opname in ("LOAD_ATTR", "LOAD_GLOBAL"):
        # Otherwise it is loaded for a call.
        return bool(i.argrepr == i.argval)
    return True


class _Reader:
    """Interprets the bytecode of a function on expressions instead of values."""

    def __init__(self, function: FunctionType, arguments: list[str], bind: Bind, member: Member) -> None:
        code = function.__code__
        self._function = function
        self._variables = dict(zip(code.co_varnames, arguments, strict=False))
        self._bind = bind
        self._member = member
        self._stack: list[str] = []
        # The tuple that was built last.
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
            if not self._step(instruction) or sum(map(len, self._stack)) > _MAX_LENGTH:
                return None
        return None

    def _step(self, i: dis.Instruction) -> bool:
        """Interpret one instruction; return False if the function must be called."""
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
        elif name != "TO_BOOL":  # the following `not` tests the same
            return False
        return True

    def _subscript(self) -> None:
        index, container = self._stack.pop(), self._stack.pop()
        constant = _INDEX.fullmatch(index)
        member = self._member(container, int(constant[1])) if constant else None
        self._stack.append(member or f"{container}[{index}]")

    def _collect(self, count: int, template: str) -> None:
        members = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        text = template % ", ".join(members) if members else template.replace("%s,", "").replace("%s", "")
        if template.startswith("("):
            self._tuple = Expression(text, tuple(members))
        self._stack.append(text)

    def _constant(self, value: object) -> str:
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
            except ValueError:  # not set: only a call raises the proper error
                return False
        else:
            # Another function shares the variable and may set it.
            self._stack.append(f"{self._bind(cell, 'cell')}.cell_contents")
        return True

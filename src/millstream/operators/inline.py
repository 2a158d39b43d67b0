"""Turns a user's one-expression function into text that stands in the generated loop in place of a call.

`lambda t: t[0]` costs a tenth of the call that runs it, so a chain of such functions is faster written out. The
expression is read off the function's bytecode, which unlike its source is always there. Only straight-line
expressions are taken; anything else (a branch, a call, a statement) stays a call.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

Bind = Callable[[Any, str], str]

_LONGEST = 400
# The closure's own, the local variable's and the argument's to getrefcount.
_REFERENCES_OF_ONE_OWNER = 3
_SILENT = frozenset(["RESUME", "NOP", "CACHE", "COPY_FREE_VARS", "EXTENDED_ARG", "TO_BOOL"])
_UNARY = {"UNARY_NEGATIVE": "-", "UNARY_NOT": "not ", "UNARY_INVERT": "~"}
_PLAIN_CONSTANTS = (int, str, bytes, type(None))
_PATH = _SILENT | {"LOAD_FAST", "LOAD_CONST", "BINARY_SUBSCR", "LOAD_ATTR", "RETURN_VALUE"}


def inline(function: Any, arguments: list[str], bind: Bind) -> str | None:
    """Return the text of the function's expression over variables, None when it must be called.

    Args:
        function: the callable.
        arguments: the variables that hold its arguments.
        bind: gives an object a name in the generated function.
    """
    if isinstance(function, MethodType):
        return inline(function.__func__, [bind(function.__self__, "self"), *arguments], bind)
    if not isinstance(function, FunctionType) or not _takes(function.__code__, len(arguments)):
        return None
    return _Reader(function, arguments, bind).read()


def is_path(function: Any) -> bool:
    """Tell whether a function of one argument only walks into it, by indexes, keys and attributes: `t[0]`, `o.city`."""
    if not isinstance(function, FunctionType) or not _takes(function.__code__, 1):
        return False
    return all(i.opname in _PATH and not _loads_method(i) for i in dis.get_instructions(function.__code__))


def _takes(code: CodeType, count: int) -> bool:
    plain = not code.co_flags & (0x04 | 0x08 | 0x20 | 0x80 | 0x100 | 0x200)  # *args, **kwargs, generators, coroutines
    return plain and code.co_argcount == count and not code.co_kwonlyargcount and not code.co_cellvars


def _loads_method(instruction: dis.Instruction) -> bool:
    # From 3.12 loading a method is LOAD_ATTR with a bit set.
    return instruction.opname == "LOAD_ATTR" and instruction.argrepr != instruction.argval


class _Reader:
    """Runs the bytecode of one function on texts instead of values."""

    def __init__(self, function: FunctionType, arguments: list[str], bind: Bind) -> None:
        code = function.__code__
        self._function = function
        self._variables = dict(zip(code.co_varnames, arguments, strict=False))
        self._bind = bind
        self._stack: list[str] = []

    def read(self) -> str | None:
        for instruction in dis.get_instructions(self._function.__code__):
            if instruction.opname == "RETURN_CONST":
                return self._constant(instruction.argval)
            if instruction.opname == "RETURN_VALUE":
                return self._stack.pop()
            if instruction.opname in _SILENT:
                continue
            if not self._step(instruction) or sum(map(len, self._stack)) > _LONGEST:
                return None
        return None

    def _step(self, i: dis.Instruction) -> bool:
        """Follow one instruction; False when it is not one of ours."""
        name, push = i.opname, self._stack.append
        if name == "LOAD_FAST":
            push(self._variables[i.argval])
        elif name == "LOAD_FAST_LOAD_FAST":
            self._stack += [self._variables[v] for v in i.argval]
        elif name == "LOAD_CONST":
            push(self._constant(i.argval))
        elif name == "LOAD_DEREF":
            return self._free_variable(i.argval)
        elif name == "LOAD_GLOBAL" and i.argval in self._function.__globals__ and "NULL" not in i.argrepr:
            push(f"{self._bind(self._function.__globals__, 'module')}[{i.argval!r}]")
        elif name == "LOAD_ATTR" and not _loads_method(i):
            push(f"{self._stack.pop()}.{i.argval}")
        elif name == "BINARY_SUBSCR":
            index, container = self._stack.pop(), self._stack.pop()
            push(f"{container}[{index}]")
        elif name in ("BUILD_TUPLE", "BUILD_LIST"):
            self._collect(i.arg or 0, "(%s,)" if name == "BUILD_TUPLE" else "[%s]")
        elif name in _UNARY:
            push(f"({_UNARY[name]}{self._stack.pop()})")
        else:
            return self._infix(i)
        return True

    def _infix(self, i: dis.Instruction) -> bool:
        name = i.opname
        if name == "BINARY_OP" and not i.argrepr.endswith("="):
            operator = i.argrepr
        elif name == "COMPARE_OP":
            operator = i.argval
        elif name == "IS_OP":
            operator = "is not" if i.arg else "is"
        elif name == "CONTAINS_OP":
            operator = "not in" if i.arg else "in"
        else:
            return False
        right, left = self._stack.pop(), self._stack.pop()
        self._stack.append(f"({left} {operator} {right})")
        return True

    def _collect(self, count: int, shape: str) -> None:
        members = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        self._stack.append(shape % ", ".join(members) if members else shape.replace("%s,", "").replace("%s", ""))

    def _constant(self, value: Any) -> str:
        if value.__class__ in _PLAIN_CONSTANTS:
            return f"({value!r})" if isinstance(value, int) else repr(value)
        return self._bind(value, "const")

    def _free_variable(self, name: str) -> bool:
        free = self._function.__code__.co_freevars
        if name not in free or self._function.__closure__ is None:
            return False
        cell = self._function.__closure__[free.index(name)]
        if sys.getrefcount(cell) == _REFERENCES_OF_ONE_OWNER:
            try:
                self._stack.append(self._bind(cell.cell_contents, "free"))
            except ValueError:  # not set, which only a call can say properly
                return False
        else:
            # Another function has the variable too and may set it.
            self._stack.append(f"{self._bind(cell, 'cell')}.cell_contents")
        return True

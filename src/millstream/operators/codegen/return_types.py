"""Infers the result type of a function from its bytecode and argument types.

`lambda x: (x % 10, 1)` returns for an int a tuple of an int below 10 and 1: such a result need not be tested against
its declared type. Only functions that `operators/codegen/inline.py` can inline are interpreted.
"""

from __future__ import annotations

import dis
import inspect
import sys
from functools import reduce
from types import CodeType, FunctionType, MethodType

from millstream.common.inferred_types import ANYTHING, TRUTH, Fixed, InferredType, either, inferred_type_of
from millstream.operators.codegen.inline import REFERENCES_OF_ONE_OWNER, SILENT, is_expression
from millstream.operators.codegen.operator_types import binary, compared, subscript, unary


def result_of(function: object, arguments: list[InferredType]) -> InferredType:
    """Return the result type of a function for argument types."""
    if isinstance(function, MethodType):
        return result_of(function.__func__, [ANYTHING, *arguments])
    if not isinstance(function, FunctionType) or not is_expression(function, len(arguments)):
        return ANYTHING
    return Inference(function, arguments).run()


def elements_of(function: object) -> InferredType:
    """Return the type of the elements that a function yields, or returns in a list comprehension.

    Only tuples are inferred, as in `yield word, 1` and `[(w, 1) for w in words]`, with their constants.
    """
    if isinstance(function, MethodType):
        function = function.__func__
    if not isinstance(function, FunctionType):
        return ANYTHING
    steps = list(dis.get_instructions(function.__code__))
    if function.__code__.co_flags & inspect.CO_GENERATOR:
        return _operand_type(steps, "YIELD_VALUE")
    code = _comprehension(steps)
    return ANYTHING if code is None else _operand_type(list(dis.get_instructions(code)), "LIST_APPEND")


def _comprehension(steps: list[dis.Instruction]) -> CodeType | None:
    """Return the code of the list comprehension that a function returns, as Python 3.11 compiles it."""
    codes = [i.argval for i in steps if i.opname == "LOAD_CONST" and isinstance(i.argval, CodeType)]
    ends = [i.opname for i in steps[-4:]]
    once = sum(i.opname == "RETURN_VALUE" for i in steps) == 1 and not any(i.is_jump_target for i in steps)
    if len(codes) != 1 or codes[0].co_name != "<listcomp>" or not once:
        return None
    return codes[0] if ends == ["GET_ITER", "PRECALL", "CALL", "RETURN_VALUE"] else None


def _operand_type(steps: list[dis.Instruction], operation: str) -> InferredType:
    """Return the common type of all operands of an operation."""
    if any(i.opname == "GET_YIELD_FROM_ITER" for i in steps):
        return ANYTHING
    types = [_tuple_before(steps, index) for index, i in enumerate(steps) if i.opname == operation]
    return reduce(either, types) if types else ANYTHING


def _tuple_before(steps: list[dis.Instruction], index: int) -> InferredType:
    build = steps[index - 1]
    if build.opname != "BUILD_TUPLE":
        return ANYTHING
    start = index - 1 - (build.arg or 0)
    members = steps[max(start, 0) : index - 1]
    # No jump leads into these steps.
    straight = start >= 0 and not any(i.is_jump_target for i in steps[start + 1 : index + 1])
    if not straight or any(i.opname not in ("LOAD_FAST", "LOAD_CONST") for i in members):
        return ANYTHING
    return Fixed(tuple(inferred_type_of(i.argval) if i.opname == "LOAD_CONST" else ANYTHING for i in members))


class Inference:
    """Interprets the bytecode of a function on types instead of values."""

    def __init__(self, function: FunctionType, arguments: list[InferredType]) -> None:
        self._function = function
        self._variables = dict(zip(function.__code__.co_varnames, arguments, strict=False))
        self.stack: list[InferredType] = []

    def run(self) -> InferredType:
        for instruction in dis.get_instructions(self._function.__code__):
            if instruction.opname == "RETURN_CONST":
                return inferred_type_of(instruction.argval)
            if instruction.opname == "RETURN_VALUE":
                return self.stack.pop()
            if instruction.opname not in SILENT:
                self.step(instruction)
        return ANYTHING

    def step(self, i: dis.Instruction) -> None:
        name, push, pop = i.opname, self.stack.append, self.stack.pop
        if name == "LOAD_FAST":
            push(self._variables[i.argval])
        elif name == "LOAD_FAST_LOAD_FAST":
            self.stack += [self._variables[v] for v in i.argval]
        elif name == "LOAD_CONST":
            push(inferred_type_of(i.argval))
        elif name == "LOAD_DEREF":
            push(self._free_variable(i.argval))
        elif name == "LOAD_GLOBAL":
            # It may have changed when it is read.
            push(ANYTHING)
        elif name == "LOAD_ATTR":
            pop()
            push(ANYTHING)
        elif name == "BINARY_SUBSCR":
            index = pop()
            push(subscript(pop(), index))
        elif name == "BUILD_TUPLE":
            push(Fixed(self._take(i.arg or 0)))
        elif name == "BUILD_LIST":
            self._take(i.arg or 0)
            push(ANYTHING)
        elif name.startswith("UNARY_"):
            push(unary(name, pop()))
        elif name != "TO_BOOL":  # the following `not` tests the same
            self._infix(i)

    def _infix(self, i: dis.Instruction) -> None:
        right, left = self.stack.pop(), self.stack.pop()
        if i.opname == "BINARY_OP":
            self.stack.append(binary(i.argrepr, left, right))
        else:
            self.stack.append(compared(left, right) if i.opname == "COMPARE_OP" else TRUTH)

    def _take(self, count: int) -> tuple[InferredType, ...]:
        start = len(self.stack) - count
        types = tuple(self.stack[start:])
        del self.stack[start:]
        return types

    def _free_variable(self, name: str) -> InferredType:
        free, closure = self._function.__code__.co_freevars, self._function.__closure__
        if name not in free or closure is None:
            return ANYTHING
        cell = closure[free.index(name)]
        # Another function that shares the variable may set it.
        if sys.getrefcount(cell) != REFERENCES_OF_ONE_OWNER:
            return ANYTHING
        try:
            return inferred_type_of(cell.cell_contents)
        except ValueError:  # not set
            return ANYTHING

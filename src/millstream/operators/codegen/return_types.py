"""Infers the result type of a function from its bytecode and argument types.

`lambda x: (x % 10, 1)` returns for an int a tuple of an int below 10 and 1: such a result need not be tested against
its declared type. Only functions that `operators/codegen/inline.py` can inline are interpreted. Operations that raise
have no result, so they are ignored: None has no sum.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable
from functools import reduce
from types import CodeType, FunctionType, MethodType

from millstream.common.inferred_types import (
    ANYTHING,
    TEXT,
    TRUTH,
    Anything,
    Fixed,
    InferredType,
    Moved,
    Real,
    Some,
    Whole,
    either,
    inferred_type_of,
)
from millstream.operators.codegen.inline import REFERENCES_OF_ONE_OWNER, SILENT, is_expression

_Bounds = tuple[int | None, int | None]


def unary(operation: str, operand: InferredType) -> InferredType:
    """Return the type of `-x`, `~x` or `not x`, by the name of the bytecode operation."""
    if operation == "UNARY_NOT":
        return TRUTH
    number = _number(operand)
    if isinstance(number, Real):
        return Real() if operation == "UNARY_NEGATIVE" else ANYTHING
    if not isinstance(number, Whole):
        return ANYTHING
    low = None if number.high is None else -number.high
    high = None if number.low is None else -number.low
    if operation == "UNARY_NEGATIVE":
        return Whole(low, high)
    return Whole(None if low is None else low - 1, None if high is None else high - 1)


def compared(left: InferredType, right: InferredType) -> InferredType:
    """Return the type of a comparison; unknown objects may return anything."""
    return TRUTH if _compares_plainly(left) and _compares_plainly(right) else ANYTHING


def _compares_plainly(inferred_type: InferredType) -> bool:
    return isinstance(inferred_type, (Whole, Real)) or (isinstance(inferred_type, Some) and inferred_type.exact)


def subscript(container: InferredType, index: InferredType) -> InferredType:
    """Return the type of `container[index]`."""
    if isinstance(container, Fixed) and isinstance(index, Whole) and index.low is not None and index.low == index.high:
        width = len(container.members)
        return container.members[index.low] if -width <= index.low < width else ANYTHING
    return TEXT if _is(container, str) and isinstance(index, Whole) else ANYTHING


def _is(inferred_type: InferredType, kind: type) -> bool:
    return isinstance(inferred_type, Some) and inferred_type.exact and inferred_type.kind is kind


def binary(operator: str, left: InferredType, right: InferredType) -> InferredType:
    """Return the type of `left operator right`."""
    if operator == "+" and _is(left, str) and _is(right, str):
        return TEXT
    if operator == "+" and isinstance(left, Fixed) and isinstance(right, Fixed):
        return Fixed(left.members + right.members)
    a, b = _number(left), _number(right)
    if isinstance(a, Anything) or isinstance(b, Anything):
        return ANYTHING
    if isinstance(a, Whole) and isinstance(b, Whole):
        if operator == "/":
            return Real()
        rule = _WHOLE.get(operator)
        # `&`, `|` and `^` of two booleans are booleans.
        if rule is None or (_is(left, bool) and _is(right, bool) and operator in "&|^"):
            return ANYTHING
        return _moved(operator, a, b) or Whole(*rule(a, b))
    return Real() if operator in ("+", "-", "*", "/", "//", "%") else ANYTHING


def _number(inferred_type: InferredType) -> Whole | Real | Anything:
    if _is(inferred_type, bool):
        return Whole(0, 1)
    return inferred_type if isinstance(inferred_type, (Whole, Real)) else ANYTHING


def _sum(a: Whole, b: Whole) -> _Bounds:
    return _plus(a.low, b.low), _plus(a.high, b.high)


def _moved(operator: str, a: Whole, b: Whole) -> Moved | None:
    """Return the type of an int moved by another, None if only its bounds are known."""
    if operator == "+" and isinstance(b, Moved):
        a, b = b, a
    if operator not in ("+", "-") or not isinstance(a, Moved) or isinstance(b, Moved):
        return None
    if b.low is None or b.high is None:
        return None
    low, high = (b.low, b.high) if operator == "+" else (-b.high, -b.low)
    return Moved(
        _plus(a.low, low), _plus(a.high, high), base=a.base, min_step=a.min_step + low, max_step=a.max_step + high
    )


def _difference(a: Whole, b: Whole) -> _Bounds:
    return _plus(a.low, _minus(b.high)), _plus(a.high, _minus(b.low))


def _plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _minus(a: int | None) -> int | None:
    return None if a is None else -a


def _product(a: Whole, b: Whole) -> _Bounds:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None, None
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(corners), max(corners)


def _quotient(a: Whole, b: Whole) -> _Bounds:
    # A quotient rounded down is no further from 0 than the dividend.
    if a.size is None:
        return None, None
    if a.low is not None and a.low >= 0 and b.low is not None and b.low >= 0:
        return 0, a.high
    return -a.size, a.size


def _remainder(a: Whole, b: Whole) -> _Bounds:
    # It has the sign of the divisor and a smaller magnitude.
    low = None if b.low is None else min(b.low + 1, 0)
    high = None if b.high is None else max(b.high - 1, 0)
    return low, high


def _conjunction(a: Whole, b: Whole) -> _Bounds:
    # If one side is not negative, the result is at most that side.
    masks = [s.high for s in (a, b) if s.low is not None and s.low >= 0 and s.high is not None]
    return (0, min(masks)) if masks else (None, None)


def _shifted_down(a: Whole, b: Whole) -> _Bounds:
    return None if a.low is None else min(a.low, 0), None if a.high is None else max(a.high, 0)


def _unbounded(a: Whole, b: Whole) -> _Bounds:
    return None, None


# Rules for two ints whose result is an int.
_WHOLE: dict[str, Callable[[Whole, Whole], _Bounds]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "//": _quotient,
    "%": _remainder,
    "&": _conjunction,
    ">>": _shifted_down,
    "<<": _unbounded,
    "|": _unbounded,
    "^": _unbounded,
}


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
    returns_once = sum(i.opname == "RETURN_VALUE" for i in steps) == 1 and not any(i.is_jump_target for i in steps)
    if len(codes) != 1 or codes[0].co_name != "<listcomp>" or not returns_once:
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
    is_straight_line = start >= 0 and not any(i.is_jump_target for i in steps[start + 1 : index + 1])
    if not is_straight_line or any(i.opname not in ("LOAD_FAST", "LOAD_CONST") for i in members):
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

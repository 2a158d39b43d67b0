"""Vectorized arithmetic on ranges of ints, before the loop.

A number sequence arrives as ranges, and the first functions often do arithmetic. If the bounds prove that no result and
no intermediate value leaves 64 bits and that nothing is divided by zero, a function's expression means the same for a
numpy array as for each number. The loop then receives Python ints and booleans.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING

from millstream.common.aliases import Value
from millstream.common.inferred_types import ANYTHING, Fixed, InferredType, Some, Whole, within
from millstream.operators.codegen.code_writer import CodeWriter, Var
from millstream.operators.codegen.inline import UserCallable, inline, is_expression
from millstream.operators.codegen.return_types import Inference

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Shorter ranges are faster in a loop.
FEWEST = 100

_LONG = Whole(-(2**63), 2**63 - 1)
_OPERATORS = frozenset(["+", "-", "*", "//", "%", "&"])
_LOADS = frozenset(["LOAD_FAST", "LOAD_FAST_LOAD_FAST", "LOAD_CONST", "LOAD_DEREF"])
_CONSTANT = re.compile(r"\(-?\d+\)")
_NAME = re.compile(r"[^\W\d]\w*")

Loop = Callable[[Iterable[Value]], None]


class _Proof(Inference):
    """Interprets a function's bytecode on types, and proves that it means the same for arrays."""

    def __init__(self, function: FunctionType, arguments: list[InferredType]) -> None:
        super().__init__(function, arguments)
        self.holds = True

    def step(self, i: dis.Instruction) -> None:
        self.holds = self.holds and self._is_plain(i)
        super().step(i)
        result = self.stack[-1]
        parts = result.members if isinstance(result, Fixed) else (result,)
        self.holds = self.holds and all(_is_long(p) or _is_truth(p) for p in parts)

    def _is_plain(self, i: dis.Instruction) -> bool:
        if i.opname in _LOADS or i.opname in ("BUILD_TUPLE", "BINARY_SUBSCR"):
            return True
        if i.opname == "UNARY_NEGATIVE":
            return _is_long(self.stack[-1])
        if i.opname not in ("BINARY_OP", "COMPARE_OP") or not all(map(_is_long, self.stack[-2:])):
            return False
        return i.opname == "COMPARE_OP" or (i.argrepr in _OPERATORS and not self._may_divide_by_zero(i.argrepr))

    def _may_divide_by_zero(self, operator: str) -> bool:
        return operator in ("//", "%") and within(Whole(0, 0), self.stack[-1])


def _is_long(inferred_type: InferredType) -> bool:
    return isinstance(inferred_type, Whole) and within(inferred_type, _LONG)


def _is_truth(inferred_type: InferredType) -> bool:
    return isinstance(inferred_type, Some) and inferred_type.kind is bool


def works_on_columns(function: object, argument: InferredType) -> bool:
    """Return whether a function's expression means the same for arrays as the function for their elements.

    Args:
        function: a user function of one argument.
        argument: the type of its argument: ints, or tuples of ints.
    """
    arguments = [argument]
    if isinstance(function, MethodType):
        function, arguments = function.__func__, [ANYTHING, argument]
    if not isinstance(function, FunctionType) or not is_expression(function, len(arguments)):
        return False
    if any(i.opname == "RETURN_CONST" for i in dis.get_instructions(function.__code__)):
        return False
    proof = _Proof(function, arguments)
    proof.run()
    return proof.holds


class Columns:
    """The lines before the loop, and the arrays they have computed.

    Args:
        w: writes the lines.
        source: the type of the numbers.
    """

    def __init__(self, w: CodeWriter, source: Whole) -> None:
        self._w = w
        self._names = {"x"}
        self.value = Var("x", None, detached=True, inferred_type=source)
        w.line(f"x = {w.bind(_column_of(), 'column')}(batch)")

    def map(self, operator: object, function: UserCallable) -> bool:
        """Write the lines of a map; return whether it can be vectorized."""
        w, value = self._w, self.value
        texts = self._texts(function)
        # Constants need no array, but but the loop needs at least one array to iterate over.
        if not all(self._is_column(t) or _CONSTANT.fullmatch(t) for t in texts) or not any(map(self._is_column, texts)):
            return False
        out = w.var()
        w.assign(out, operator, value.name, function, value.name)
        self._names.update(m for m in w.members(out) or (out,) if not _CONSTANT.fullmatch(m))
        self.value = value.renamed(out, True, w.result(function, value.inferred_type))
        return True

    def filter(self, function: UserCallable) -> bool:
        """Write the lines of a filter; return whether it can be vectorized."""
        w = self._w
        texts = self._texts(function)
        if len(texts) != 1 or not self._is_column(texts[0]):
            return False
        mask = w.var("kept")
        is_truth = _is_truth(w.result(function, self.value.inferred_type))
        w.line(f"{mask} = {texts[0]}" if is_truth else f"{mask} = {texts[0]} != 0")
        for name in self._record_arrays():
            w.line(f"{name} = {name}[{mask}]")
        return True

    def _texts(self, function: UserCallable) -> tuple[str, ...]:
        """Return the expressions of a function's result, several for a tuple; none if it cannot be vectorized."""
        if not works_on_columns(function, self.value.inferred_type):
            return ()
        expression = inline(function, [self.value.name], self._w.bind, self._w.member)
        return () if expression is None else expression.members or (expression.text,)

    def head(self) -> tuple[str, Var]:
        """Return the head of the loop over the arrays, and its record."""
        w, value = self._w, self.value
        variables = {name: w.var("m") for name in self._record_arrays()}
        members, lists = w.members(value.name), ", ".join(f"{name}.tolist()" for name in variables)
        out = variables.get(value.name) or w.var()
        if members is not None:
            w.tuple_of(out, tuple(variables.get(m, m) for m in members))
        over = lists if len(variables) == 1 else f"zip({lists})"
        return f"for {', '.join(variables.values())} in {over}:", value.renamed(out, True, value.inferred_type)

    def _record_arrays(self) -> list[str]:
        """Return the names of the arrays that the record consists of."""
        members = self._w.members(self.value.name) or (self.value.name,)
        return [m for m in dict.fromkeys(members) if m in self._names]

    def _is_column(self, text: str) -> bool:
        return not self._names.isdisjoint(_NAME.findall(text))


def _column_of() -> Callable[[range], NDArray[np.int64]]:
    """Return a function that converts a range to an array."""
    # Imported here, because the import takes longer than many short jobs.
    import numpy as np

    return lambda numbers: np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)


def vectorized_in_bounds(columns: Loop, loop: Loop, bounds: Whole) -> Loop:
    """Return a function that processes ranges within the bounds vectorized, and other batches in a loop.

    Numbers may exceed the program's bounds: the restored split ranges may be those of another sequence.
    """
    low, high = bounds.low, bounds.high
    assert low is not None and high is not None

    def run(batch: Iterable[Value]) -> None:
        if isinstance(batch, range) and len(batch) >= FEWEST and low <= batch[0] <= batch[-1] <= high:
            columns(batch)
        else:
            loop(batch)

    return run

"""Result types of Python's operators for inferred operand types.

Operations that raise have no result, so they are ignored: None has no sum.
"""

from __future__ import annotations

from collections.abc import Callable

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
)

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

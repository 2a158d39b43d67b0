"""Vectorized evaluation of expressions over batches; expressions are compiled once per job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.numpy_arrays import NumpyColumn
from millstream.sql.errors import TableException
from millstream.sql.expressions import Call, Column, Constant, Expression, UserCall, columns_of, replaced, walk
from millstream.sql.functions.function import (
    JSON_CONSTRUCTORS,
    Datum,
    EvaluationContext,
    Function,
    SharedExpression,
    Site,
)
from millstream.sql.functions.table import functions
from millstream.sql.functions.vectors import as_array, from_stored, scattered, stored

_Evaluate = Callable[[Batch], Datum]
_BOOLEAN = t.DataTypes.BOOLEAN()


def compiled(expression: Expression, context: EvaluationContext) -> Callable[[Batch], pa.Array]:
    """Return a function that evaluates an expression for a batch.

    Example:
        >>> from millstream.sql.functions.table import call
        >>> a = Column(t.DataTypes.INT(), 0)
        >>> add = compiled(call("+", [a, Constant(t.DataTypes.INT(False), 1)]), EvaluationContext())
        >>> add(Batch([pa.array([1, None, 2147483647], pa.int32())])).to_pylist()
        [2, None, -2147483648]
    """
    evaluate = _compile(folded(expression, context), context)
    return lambda batch: as_array(evaluate(batch), len(batch))


def condition(expression: Expression, context: EvaluationContext) -> Callable[[Batch], NDArray[np.bool_]]:
    """Return a function that evaluates a condition to a mask; null counts as false."""
    evaluate = _compile(folded(expression, context), context)
    return lambda batch: _mask(evaluate(batch), len(batch))


def narrow_condition(
    expression: Expression, context: EvaluationContext
) -> tuple[list[int], Callable[[Batch], NDArray[np.bool_]]]:
    """Return the columns that a condition uses, and its evaluator for batches of only those columns."""
    needed = sorted(columns_of(expression))
    return needed, condition(_rebased(expression, needed), context)


def compiled_all(
    expressions: Sequence[Expression], context: EvaluationContext
) -> tuple[list[_Evaluate], Callable[[], None]]:
    """Return evaluators of expressions and a function that discards cached values; common parts are computed once.

    Other expressions compiled in this context share the cache. Discard it after each batch.
    """
    all_folded = [folded(e, context) for e in expressions]
    seen: set[str] = set()
    for part in (p for e in all_folded for p in walk(e) if isinstance(p, (Call, UserCall))):
        # Keyed by text: 0.0 and -0.0 are equal, and a list has no hash.
        name = repr(part)
        if name in seen and name not in context.shared and is_same_each_time(part):
            context.shared[name] = SharedExpression()
        seen.add(name)
    shared = list(context.shared.values())

    def clear_shared() -> None:
        for shared_expression in shared:
            shared_expression.clear()

    return [_as_arrays(_compile(e, context)) for e in all_folded], clear_shared


def _as_arrays(evaluate: _Evaluate) -> _Evaluate:
    return lambda batch: as_array(evaluate(batch), len(batch))


def is_same_each_time(expression: Expression) -> bool:
    """Return whether repeated evaluation of an expression for a row has the same result."""
    return all(
        part.function.deterministic if isinstance(part, UserCall) else functions()[part.function].deterministic
        for part in walk(expression)
        if isinstance(part, (Call, UserCall))
    )


def _mask(value: Datum, rows: int) -> NDArray[np.bool_]:
    if isinstance(value, pa.Scalar):
        return np.full(rows, bool(value.as_py()))
    result = pc.fill_null(value, False) if value.null_count else value
    return result.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


# --- constants

_NO_ROWS = Batch([], rows=1)


def folded(expression: Expression, context: EvaluationContext | None = None) -> Expression:
    """Return an expression with constants folded.

    Calls that fail are kept: they may never be evaluated. Without a context, context-dependent calls are kept too.
    """
    if isinstance(expression, (Call, UserCall)):
        arguments = tuple(a if is_json_in_json(expression, a) else folded(a, context) for a in expression.arguments)
        if isinstance(expression, UserCall):
            return UserCall(expression.type, expression.name, expression.function, arguments)
        expression = Call(expression.type, expression.function, arguments, expression.options)
        function = functions()[expression.function]
        if not function.deterministic or not all(isinstance(a, Constant) for a in arguments):
            return expression
        if context is None and _depends_on_zone(expression):
            return expression
        try:
            value = _compile(expression, context or EvaluationContext())(_NO_ROWS)
        except TableException:
            return expression
        return Constant(expression.type, stored(as_array(value, 1))[0])
    return expression


def _depends_on_zone(expression: Call) -> bool:
    """Return whether a call's result may depend on the session time zone."""
    kinds = (expression.type, *(a.type for a in expression.arguments))
    return expression.function in ("FROM_UNIXTIME", "UNIX_TIMESTAMP") or any("_LTZ" in str(k) for k in kinds)


def is_json_in_json(outer: Expression, inner: Expression) -> bool:
    """Return whether an argument is JSON inside other JSON, which only a call shows."""
    if not isinstance(outer, Call) or not isinstance(inner, Call):
        return False
    if inner.function not in JSON_CONSTRUCTORS:
        return False
    if outer.function == "JSON_STRING":
        return inner.function != "JSON"
    is_key = outer.function == "JSON_OBJECT" and inner in outer.arguments[::2]
    return outer.function in JSON_CONSTRUCTORS and not is_key


def nested_json(outer: Call) -> Call:
    """Return a call with casts and COALESCE around JSON arguments removed.

    As in Flink, which drops a redundant CAST, and a COALESCE of a value that is not null, before it looks for JSON.
    """
    if outer.function not in ("JSON_OBJECT", "JSON_ARRAY", "JSON_STRING"):
        return outer
    arguments = list(outer.arguments)
    # Keys of an object are text.
    values = slice(1, None, 2) if outer.function == "JSON_OBJECT" else slice(None)
    arguments[values] = map(_bare_json, arguments[values])
    return replace(outer, arguments=tuple(arguments))


def _bare_json(argument: Expression) -> Expression:
    inner = argument
    while isinstance(inner, Call) and inner.function in ("CAST", "COALESCE"):
        below = inner.arguments[0]
        if not below.type.is_same_but_null(inner.type) or (inner.function == "COALESCE" and below.type.is_nullable):
            return argument
        inner = below
    return inner if isinstance(inner, Call) and makes_json(inner) else argument


def makes_json(e: Expression) -> bool:
    """Return whether an expression calls a function that returns JSON."""
    return isinstance(e, Call) and e.function in ("JSON_OBJECT", "JSON_ARRAY")


def scalar(constant: Constant) -> pa.Scalar:
    """Return the value of a constant."""
    kind = arrow_type(constant.type)
    if pa.types.is_nested(kind):
        return from_stored([constant.value], kind)[0]
    return pa.scalar(constant.value, kind)


# --- compiling


def _compile(expression: Expression, context: EvaluationContext) -> _Evaluate:
    if isinstance(expression, Column):
        index = expression.index
        return lambda batch: batch.columns[index]
    if isinstance(expression, Constant):
        value = scalar(expression)
        return lambda batch: value
    shared_expression: SharedExpression | None = context.shared.get(repr(expression)) if context.shared else None
    if shared_expression is None:
        return _compile_new(expression, context)
    if shared_expression.evaluate is None:
        shared_expression.evaluate = _compile_new(expression, context)
    return shared_expression


def _compile_new(expression: Expression, context: EvaluationContext) -> _Evaluate:
    if isinstance(expression, UserCall):
        return _user_call(expression, context)
    assert isinstance(expression, Call)
    form = _FORMS.get(expression.function, _call)
    return form(expression, context)


def _call(expression: Call, context: EvaluationContext) -> _Evaluate:
    function: Function = functions()[expression.function]
    kernel = function.kernel
    if kernel is None:
        raise TableException(f"{expression.function} cannot be used in this expression.")
    types = tuple(a.type for a in expression.arguments)
    callers = tuple(a.function if isinstance(a, Call) else "" for a in expression.arguments)
    site = Site(function.name, expression.type, types, expression.options, context, callers)
    arguments = [_compile(a, context) for a in expression.arguments]
    kind = arrow_type(expression.type)

    def evaluate(batch: Batch) -> Datum:
        values = [a(batch) for a in arguments]
        try:
            result = kernel(site, len(batch), values)
            return result if result.type == kind else result.cast(kind)
        except pa.ArrowException as e:
            reported = ", ".join(map(str, types))
            raise TableException(f"{site.name}({reported}) cannot be computed: {e}") from e

    return evaluate


def _user_call(expression: UserCall, context: EvaluationContext) -> _Evaluate:
    arguments = [_compile(a, context) for a in expression.arguments]
    types = [a.type for a in expression.arguments]
    call = context.opened(expression.function, expression.name, types, expression.type)

    def evaluate(batch: Batch) -> Datum:
        rows = len(batch)
        return call([as_array(a(batch), rows) for a in arguments], rows)

    return evaluate


def can_fail(expression: Expression) -> bool:
    """Return whether evaluation may fail or calls user code, so that it must be limited to the rows that need it."""
    for part in walk(expression):
        if isinstance(part, UserCall):
            return True
        if isinstance(part, Call):
            if part.function == "CAST":
                # Deferred import: the registry loads all functions.
                from millstream.sql.functions import casts

                if casts.can_fail(part.arguments[0].type, part.type):
                    return True
            elif functions()[part.function].fails:
                return True
    return False


# --- conditional evaluation


def _rebased(expression: Expression, needed: Sequence[int]) -> Expression:
    """Return an expression rebased to a batch of only some columns."""
    positions = {index: position for position, index in enumerate(needed)}

    def rebase(part: Expression) -> Expression | None:
        return Column(part.type, positions[part.index]) if isinstance(part, Column) else None

    return replaced(expression, rebase)


class _PartialEvaluator:
    """An expression that can be evaluated for some rows of a batch."""

    def __init__(self, expression: Expression, context: EvaluationContext) -> None:
        self._needed = sorted(columns_of(expression))
        self._evaluate_all = _compile(expression, context)
        self._evaluate_part = _compile(_rebased(expression, self._needed), context)
        self._type = arrow_type(expression.type)
        self.can_fail = can_fail(expression)

    def all(self, batch: Batch) -> Datum:
        """Return the values of all rows."""
        return self._evaluate_all(batch)

    def of_rows(self, batch: Batch, rows: NumpyColumn) -> pa.Array:
        """Return the values of some rows."""
        if len(rows) == len(batch):
            return as_array(self._evaluate_all(batch), len(batch))
        positions = pa.array(rows)
        part = Batch([batch.columns[i].take(positions) for i in self._needed], rows=len(rows))
        return as_array(self._evaluate_part(part), len(rows))


def _logical(expression: Call, context: EvaluationContext) -> _Evaluate:
    """AND and OR: the right operand is evaluated only where the left one does not decide."""
    left = _compile(expression.arguments[0], context)
    right = _PartialEvaluator(expression.arguments[1], context)
    operation = pc.and_kleene if expression.function == "AND" else pc.or_kleene
    if not right.can_fail:
        return lambda batch: operation(left(batch), right.all(batch))
    decides = expression.function == "OR"

    def evaluate(batch: Batch) -> Datum:
        first = left(batch)
        if isinstance(first, pa.Scalar):
            return first if first.as_py() is decides else operation(first, right.all(batch))
        undecided = np.flatnonzero(~_mask(pc.equal(first, decides), len(batch)))
        if not len(undecided):
            return first
        if len(undecided) == len(batch):
            return operation(first, right.all(batch))
        second = scattered([(undecided, right.of_rows(batch, undecided))], len(batch), pa.bool_())
        return operation(first, second)

    return evaluate


def _case(expression: Call, context: EvaluationContext) -> _Evaluate:
    """CASE: conditions and values in turn, then the default."""
    arguments = expression.arguments
    conditions = [_PartialEvaluator(c, context) for c in arguments[:-1:2]]
    values = [_PartialEvaluator(v, context) for v in (*arguments[1:-1:2], arguments[-1])]
    kind = arrow_type(expression.type)
    if not any(part.can_fail for part in (*conditions, *values)) and not pa.types.is_nested(kind):
        return _case_of_all(conditions, values, kind)
    return _case_of_some(conditions, values, kind)


def _case_of_all(
    conditions: Sequence[_PartialEvaluator], values: Sequence[_PartialEvaluator], kind: pa.DataType
) -> _Evaluate:
    """Evaluate all branches for all rows, which is faster where nothing can fail."""

    def evaluate(batch: Batch) -> Datum:
        result = values[-1].all(batch)
        for test, value in zip(reversed(conditions), reversed(values[:-1]), strict=True):
            truth = test.all(batch)
            if isinstance(truth, pa.Scalar):
                result = value.all(batch) if truth.as_py() else result
                continue
            truth = pc.fill_null(truth, False) if truth.null_count else truth
            result = pc.if_else(truth, value.all(batch), result)
        return result if result.type == kind else result.cast(kind)

    return evaluate


def _case_of_some(
    conditions: Sequence[_PartialEvaluator], values: Sequence[_PartialEvaluator], kind: pa.DataType
) -> _Evaluate:
    def evaluate(batch: Batch) -> Datum:
        remaining = np.arange(len(batch))
        parts: list[tuple[NumpyColumn, pa.Array]] = []
        for test, value in zip(conditions, values[:-1], strict=True):
            if not len(remaining):
                break
            truth = _mask(test.of_rows(batch, remaining), len(remaining))
            if truth.any():
                chosen = remaining[truth]
                parts.append((chosen, value.of_rows(batch, chosen).cast(kind)))
            remaining = remaining[~truth]
        if len(remaining):
            parts.append((remaining, values[-1].of_rows(batch, remaining).cast(kind)))
        return scattered(parts, len(batch), kind)

    return evaluate


def _if(expression: Call, context: EvaluationContext) -> _Evaluate:
    return _case(expression, context)


def _coalesce(expression: Call, context: EvaluationContext) -> _Evaluate:
    """COALESCE and IFNULL: the first value that is not null."""
    values = [_PartialEvaluator(v, context) for v in expression.arguments]
    kind = arrow_type(expression.type)
    any_can_fail = any(v.can_fail for v in values[1:]) or pa.types.is_nested(kind)

    def of_all(batch: Batch) -> Datum:
        return pc.coalesce(*(v.all(batch) for v in values))

    def of_some(batch: Batch) -> Datum:
        first = as_array(values[0].all(batch), len(batch))
        for value in values[1:]:
            missing = np.flatnonzero(first.is_null().to_numpy(zero_copy_only=False))
            if not len(missing):
                break
            present = np.flatnonzero(first.is_valid().to_numpy(zero_copy_only=False))
            parts = [(present, first.take(pa.array(present))), (missing, value.of_rows(batch, missing).cast(kind))]
            first = scattered(parts, len(batch), kind)
        return first

    return of_some if any_can_fail else of_all


_FORMS: dict[str, Callable[[Call, EvaluationContext], _Evaluate]] = {
    "AND": _logical,
    "OR": _logical,
    "CASE": _case,
    "IF": _if,
    "COALESCE": _coalesce,
    "IFNULL": _coalesce,
}

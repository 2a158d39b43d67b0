"""Constant folding and factoring of conditions."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.errors import TableException, ValidationException
from millstream.sql.expressions import Call, Constant, Expression, UserCall, conjunction, conjuncts, disjunction
from millstream.sql.functions.evaluate import folded, is_json_in_json, makes_json, nested_json
from millstream.sql.functions.table import find
from millstream.sql.optimizer.rules.filter_pushdown import is_stable
from millstream.sql.plan import nodes as n
from millstream.sql.types import BooleanType, DecimalType, IntegralType


def fold_constants(node: n.Node) -> n.Node:
    """Fold constants in a node's expressions and drop conditions that are always true."""
    if isinstance(node, n.Project):
        return replace(node, expressions=tuple(map(simplified, node.expressions)))
    if isinstance(node, n.Calc):
        return _calc(node)
    if isinstance(node, n.Filter):
        condition = simplified(node.condition)
        if isinstance(condition, Constant):
            return node.input if condition.value is True else n.Values(node.fields, ())
        return replace(node, condition=condition)
    if isinstance(node, n.Join) and node.condition is not None:
        condition = simplified(node.condition)
        always = isinstance(condition, Constant) and condition.value is True
        return replace(node, condition=None if always else condition)
    if isinstance(node, n.Correlate):
        left = None if node.condition is None else simplified(node.condition)
        always = isinstance(left, Constant) and left.value is True
        arguments = tuple(map(simplified, node.arguments))
        return replace(node, arguments=arguments, condition=None if always else left)
    if type(node) is n.Aggregate and not node.keys and _is_empty(node.input):
        return _of_nothing(node)
    if isinstance(node, n.Watermark):
        return replace(node, strategy=simplified(node.strategy))
    return node


def _is_empty(node: n.Node) -> bool:
    """Return whether a relation is known to be empty when the query is planned."""
    if isinstance(node, n.Sort) and node.limit == 0:
        return True
    if isinstance(node, (n.Project, n.Calc, n.Filter, n.Sort)):
        return _is_empty(node.input)
    return isinstance(node, n.Values) and not node.rows


def _of_nothing(node: n.Aggregate) -> n.Node:
    """Return the single row of a global aggregate over no rows, as Flink does: streaming would emit none."""
    row = []
    for call in node.calls:
        if call.user is None and call.function == "COUNT":
            row.append(Constant(call.type, 0))
        elif call.user is None and call.function in ("SUM", "MIN", "MAX"):
            row.append(Constant(call.type, None))
        else:
            return node
    return n.Values(node.fields, (tuple(row),))


def _calc(node: n.Calc) -> n.Node:
    condition = None if node.condition is None else simplified(node.condition)
    if isinstance(condition, Constant):
        if condition.value is not True:
            return n.Values(node.fields, ())
        condition = None
    return replace(node, expressions=tuple(map(simplified, node.expressions)), condition=condition)


# Functions that evaluate their arguments lazily.
_GUARDS = frozenset(["CASE", "IF", "COALESCE", "IFNULL", "AND", "OR", "TRY_CAST"])


_JSON_ALONE = (
    "The JSON() function is currently only supported inside JSON_ARRAY() or as the VALUE param of JSON_OBJECT(). "
    'Example: JSON_OBJECT(\'a\', JSON(\'{"key": "value"}\')) or JSON_ARRAY(JSON(\'{"key": "value"}\')).'
)


def simplified(e: Expression, guarded: bool = False) -> Expression:
    """Return an expression with constants folded and redundant conditions removed.

    Args:
        e: the expression.
        guarded: whether the expression may never be evaluated.
    """
    if isinstance(e, UserCall):
        return UserCall(e.type, e.name, e.function, tuple(simplified(a, guarded) for a in e.arguments))
    if not isinstance(e, Call):
        return e
    if e.function == "JSON":
        # Constants inside JSON functions are handled below.
        raise ValidationException(_JSON_ALONE)
    e = nested_json(e)
    guarded_below = guarded or e.function in _GUARDS
    arguments = tuple(a if is_json_in_json(e, a) else simplified(a, guarded_below) for a in e.arguments)
    result = Call(e.type, e.function, arguments, e.options)
    function = find(e.function)
    if result.arguments and function is not None and all(isinstance(a, Constant) for a in result.arguments):
        if not guarded and e.function in ("/", "%", "MOD") and _is_zero(result.arguments[1]):
            raise TableException("Division by zero")
        # JSON stays a call, so that an enclosing JSON function does not treat it as text.
        return folded(result) if function.deterministic and not makes_json(result) else result
    return _logic(result)


def _is_zero(e: Expression) -> bool:
    return isinstance(e, Constant) and isinstance(e.type, (IntegralType, DecimalType)) and e.value == 0


def _logic(e: Call) -> Expression:
    if e.function == "AND":
        tests = conjuncts(e)
        if any(isinstance(t, Constant) and t.value is False for t in tests):
            return Constant(BooleanType(False), False)
        remaining = list(dict.fromkeys(t for t in tests if not (isinstance(t, Constant) and t.value is True)))
        return conjunction(remaining)
    if e.function == "OR":
        sides = list(e.arguments)
        if any(isinstance(s, Constant) and s.value is True for s in sides):
            return Constant(BooleanType(False), True)
        remaining = [s for s in sides if not (isinstance(s, Constant) and s.value is False)]
        if not remaining:
            return Constant(BooleanType(False), False)
        return remaining[0] if len(remaining) == 1 else Call(e.type, "OR", tuple(remaining), e.options)
    return e


def factor_conditions(node: n.Node) -> n.Node:
    """Factor common operands out of an OR in a filter's or join's condition."""
    if isinstance(node, (n.Filter, n.Join)) and node.condition is not None:
        tests = conjuncts(node.condition)
        result = [part for test in tests for part in conjuncts(factored(test))]
        if result != list(tests):
            return replace(node, condition=conjunction(list(dict.fromkeys(result))))
    return node


def factored(test: Expression) -> Expression:
    """Return `(a AND b) OR (a AND c)` as `a AND (b OR c)`, which is equivalent for unknown values too."""
    if not (isinstance(test, Call) and test.function == "OR"):
        return test
    sides = [conjuncts(side) for side in _sides(test)]
    common = [t for t in dict.fromkeys(sides[0]) if is_stable(t) and all(t in side for side in sides[1:])]
    if not common:
        return test
    rests = [[t for t in side if t not in common] for side in sides]
    if not all(rests):
        # One operand is implied by all others.
        return conjunction(common)
    return conjunction([*common, disjunction([conjunction(rest) for rest in rests])])


def _sides(test: Expression) -> list[Expression]:
    if isinstance(test, Call) and test.function == "OR":
        return [side for argument in test.arguments for side in _sides(argument)]
    return [test]

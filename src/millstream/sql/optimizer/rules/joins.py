"""Join keys, interval joins, lookup joins and the join algorithm in BATCH."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.sql.bind.tables import retry_of
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.expressions import Call, Column, Constant, Expression, columns_of, conjunction, conjuncts, replaced
from millstream.sql.optimizer.rewrite import inlined, moved, shifted
from millstream.sql.plan import nodes as n
from millstream.sql.plan.nodes import Calc, Join, JoinKind, Node
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import DataTypes, DayTimeIntervalType

_EQUALITIES = {"=": False, "IS NOT DISTINCT FROM": True}


def find_equal_keys(node: Node) -> Node:
    """Extract equalities between both sides from a join's condition as its keys."""
    if not isinstance(node, Join) or node.condition is None:
        return node
    width = len(node.left.fields)
    extra_left: list[Expression] = []
    extra_right: list[Expression] = []
    keys: list[tuple[int, int, bool]] = list(zip(node.left_keys, node.right_keys, node.null_safe, strict=True))
    rest: list[Expression] = []
    for test in conjuncts(node.condition):
        pair = _sides(test, width)
        if pair is None:
            if not (isinstance(test, Constant) and test.value is True):
                rest.append(test)
            continue
        left, right, null_safe = pair
        a = _key_index(left, extra_left, width)
        b = _key_index(shifted(right, -width), extra_right, len(node.right.fields))
        if (a, b, null_safe) not in keys:
            keys.append((a, b, null_safe))
    condition = conjunction(rest) if rest else None
    result = replace(
        node,
        left_keys=tuple(k[0] for k in keys),
        right_keys=tuple(k[1] for k in keys),
        null_safe=tuple(k[2] for k in keys),
        condition=condition,
    )
    if not extra_left and not extra_right:
        return result
    return _with_computed_keys(result, extra_left, extra_right)


def _sides(test: Expression, width: int) -> tuple[Expression, Expression, bool] | None:
    """Return the left and right operand of an equality between both inputs of a join."""
    if not isinstance(test, Call) or test.function not in _EQUALITIES:
        return None
    a, b = test.arguments
    ca, cb = columns_of(a), columns_of(b)
    if not ca or not cb:
        return None
    if max(ca) < width <= min(cb):
        return a, b, _EQUALITIES[test.function]
    if max(cb) < width <= min(ca):
        return b, a, _EQUALITIES[test.function]
    return None


def _key_index(e: Expression, extra: list[Expression], width: int) -> int:
    if isinstance(e, Column):
        return e.index
    if e not in extra:
        extra.append(e)
    return width + extra.index(e)


def _with_computed_keys(node: Join, left: list[Expression], right: list[Expression]) -> Node:
    """Compute keys that are not columns below the join, and drop them above it."""
    old_width, right_width = len(node.left.fields), len(node.right.fields)
    new_left, new_right = _extended(node.left, left), _extended(node.right, right)
    by = len(left)

    def shift_right(e: Expression) -> Expression:
        return replaced(
            e,
            lambda c: Column(c.type, c.index + by) if isinstance(c, Column) and c.index >= old_width else None,
        )

    condition = None if node.condition is None else shift_right(node.condition)
    semi = node.kind in (JoinKind.SEMI, JoinKind.ANTI)
    if semi:
        fields = new_left.fields
    else:
        own = node.fields.fields
        fields = Fields(
            (
                *own[:old_width],
                *new_left.fields.fields[old_width:],
                *own[old_width:],
                *new_right.fields.fields[right_width:],
            )
        )
    joined = replace(node, fields=fields, left=new_left, right=new_right, condition=condition)
    indexes = list(range(old_width))
    if not semi:
        indexes += [old_width + by + i for i in range(right_width)]
    columns = tuple(Column(node.fields[i].type, k) for i, k in enumerate(indexes))
    return Calc(node.fields, joined, columns)


def _extended(node: Node, extra: list[Expression]) -> Node:
    if not extra:
        return node
    columns = [Column(f.type, i) for i, f in enumerate(node.fields.fields)]
    new = [Field(f"$f{len(columns) + i}", e.type) for i, e in enumerate(extra)]
    return Calc(Fields((*node.fields.fields, *new)), node, (*columns, *extra))


# The time columns of both sides, and the bounds of right time - left time.
_Bound = tuple[tuple[int, int], int | None, int | None]
_OPERATORS = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def find_interval_join(node: n.Node) -> n.Node:
    """Convert a Join that bounds the times of both sides to an IntervalJoin."""
    if type(node) is not n.Join or node.kind in (n.JoinKind.SEMI, n.JoinKind.ANTI):
        return node
    lower: int | None = None
    upper: int | None = None
    times: tuple[int, int] | None = None
    rest: list[Expression] = []
    whole, (node, equal) = node, _without_times(node)
    bounds: list[tuple[Expression | None, _Bound | None]] = [(None, b) for b in equal]
    bounds += [(test, _bound(test, node)) for test in conjuncts(node.condition)]
    for test, result in bounds:
        if result is None or (times is not None and result[0] != times):
            assert test is not None
            rest.append(test)
            continue
        times = result[0]
        min_bound, max_bound = result[1], result[2]
        if min_bound is not None:
            lower = min_bound if lower is None else max(lower, min_bound)
        if max_bound is not None:
            upper = max_bound if upper is None else min(upper, max_bound)
    if times is None or lower is None or upper is None:
        return whole
    return n.IntervalJoin(
        node.fields,
        node.left,
        node.right,
        node.kind,
        node.left_keys,
        node.right_keys,
        node.null_safe,
        conjunction(rest) if rest else None,
        times[0],
        times[1],
        node.left.fields[times[0]].time is TimeAttribute.ROWTIME,
        lower,
        upper,
    )


def _without_times(node: n.Join) -> tuple[n.Join, list[_Bound]]:
    """Return a join without time attributes among its keys, and the bounds of at most one such pair."""
    for i, (left, right) in enumerate(zip(node.left_keys, node.right_keys, strict=True)):
        time = node.left.fields[left].time
        if time is None or node.right.fields[right].time is not time:
            continue
        key_indexes = [k for k in range(len(node.left_keys)) if k != i]
        result = replace(
            node,
            left_keys=tuple(node.left_keys[k] for k in key_indexes),
            right_keys=tuple(node.right_keys[k] for k in key_indexes),
            null_safe=tuple(node.null_safe[k] for k in key_indexes),
        )
        return result, [((left, right), 0, 0)]
    return node, []


def _bound(test: Expression, node: n.Join) -> _Bound | None:
    """Return the time columns of both sides and the bounds that a condition sets on right time - left time."""
    if not isinstance(test, Call) or test.function not in _OPERATORS:
        return None
    a, b = (_time(x) for x in test.arguments)
    if a is None or b is None:
        return None
    operator = test.function
    width = len(node.left.fields)
    if a[0] >= width:
        a, b, operator = b, a, _OPERATORS[operator]
    if not (a[0] < width <= b[0]):
        return None
    left, right = a[0], b[0] - width
    attributes = node.left.fields[left].time, node.right.fields[right].time
    if attributes[0] is None or attributes[0] is not attributes[1]:
        return None
    distance = a[1] - b[1]
    # left + a <operator> right + b bounds right - left by a - b.
    if operator == "=":
        return (left, right), distance, distance
    if operator in (">", ">="):
        return (left, right), None, distance - (operator == ">")
    return (left, right), distance + (operator == "<"), None


def _time(e: Expression) -> tuple[int, int] | None:
    """Return the column and the milliseconds added to it."""
    if isinstance(e, Column):
        return e.index, 0
    if isinstance(e, Call) and e.function in ("+", "-") and len(e.arguments) == 2:
        first, second = e.arguments
        if isinstance(first, Constant) and e.function == "+":
            first, second = second, first
        inner = _time(first)
        if inner is not None and isinstance(second, Constant) and isinstance(second.type, DayTimeIntervalType):
            return inner[0], inner[1] + (second.value if e.function == "+" else -second.value)
    return None


_DISABLED = "table.exec.disabled-operators"
# Flink's operator names. Aggregates have a single operator here, which cannot be disabled.
_STRATEGIES = (
    *("NestedLoopJoin", "ShuffleHashJoin", "BroadcastHashJoin", "SortMergeJoin", "HashJoin"),
    *("HashAgg", "SortAgg"),
)
# The strategies that each of them disables.
_SWITCHES = {
    n.JoinStrategy.HASH: {"HashJoin", "ShuffleHashJoin"},
    n.JoinStrategy.MERGE: {"SortMergeJoin"},
    n.JoinStrategy.LOOP: {"NestedLoopJoin"},
}
_HINTED = {
    "SHUFFLE_HASH": n.JoinStrategy.HASH,
    "BROADCAST": n.JoinStrategy.HASH,
    "SHUFFLE_MERGE": n.JoinStrategy.MERGE,
    "NEST_LOOP": n.JoinStrategy.LOOP,
}


def choose_strategy(node: n.Node, settings: Mapping[str, str]) -> n.Node:
    """Choose the join algorithm."""
    if type(node) is not n.Join:
        return node
    disabled = _disabled(settings)
    # The best first.
    ways = list(n.JoinStrategy) if node.left_keys else [n.JoinStrategy.LOOP]
    able = [s for s in ways if not _SWITCHES[s] & disabled]
    if not able:
        raise TableException(
            f"'{_DISABLED}' = '{settings[_DISABLED]}' leaves no operator for a join"
            f"{'' if node.left_keys else ' without an equality'}: remove {ways[0].value} from it."
        )
    hinted = [_HINTED[hint] for hint in node.hints]
    chosen = next((s for s in hinted if s in able), able[0])
    return replace(_without_keys(node) if chosen is n.JoinStrategy.LOOP else node, join_strategy=chosen)


def _without_keys(node: n.Join) -> n.Join:
    """Return a join with its equalities moved to the condition."""
    tests: list[Expression] = []
    for a, b, null_safe in zip(node.left_keys, node.right_keys, node.null_safe, strict=True):
        left = Column(node.left.fields[a].type, a)
        right = Column(node.right.fields[b].type, len(node.left.fields) + b)
        tests.append(Call(DataTypes.BOOLEAN(), "IS NOT DISTINCT FROM" if null_safe else "=", (left, right)))
    tests += conjuncts(node.condition)
    condition = conjunction(tests) if tests else None
    return replace(node, left_keys=(), right_keys=(), null_safe=(), condition=condition)


def _disabled(settings: Mapping[str, str]) -> set[str]:
    names = {name.strip() for name in settings.get(_DISABLED, "").split(",") if name.strip()}
    unknown = sorted(names - set(_STRATEGIES))
    if unknown:
        raise ValidationException(f"'{_DISABLED}' names '{unknown[0]}', which is none of {', '.join(_STRATEGIES)}.")
    return names


_CAPACITY = "table.exec.async-lookup.buffer-capacity"
# Maximum concurrent lookups: each uses a connection.
_MAX_LOOKUPS = 8


def find_lookup_join(node: n.Node, settings: Mapping[str, str]) -> n.Node:
    """Convert a processing-time temporal join to a lookup join, if the connector supports it."""
    if not isinstance(node, n.TemporalJoin) or node.is_event_time:
        return node
    scan, expressions, condition = _looked_up(node.right)
    if scan is None or scan.source.lookup((), ()) is None:
        return node
    pairs: list[tuple[int, int]] = []
    tests: list[Expression] = [] if node.condition is None else [node.condition]
    width = len(node.left.fields)
    for left, right, null_safe in zip(node.left_keys, node.right_keys, node.null_safe, strict=True):
        result = expressions[right]
        if isinstance(result, Column) and not null_safe and scan.columns[result.index] in _physical(scan):
            pairs.append((left, result.index))
        else:
            tests.append(_equal(node, left, width + right, null_safe))
    if not pairs:
        raise TableException(
            f"Temporal table join requires an equality condition on fields of table [{'.'.join(scan.name)}]."
        )
    scan, expressions, condition, keys = _narrowed(scan, expressions, condition, [k for _, k in pairs])
    hint = dict(node.hint)
    return n.LookupJoin(
        node.fields,
        node.left,
        scan,
        node.kind,
        tuple(i for i, _ in pairs),
        keys,
        expressions,
        condition,
        conjunction(tests) if tests else None,
        retry_of(hint),
        _at_once(hint, settings),
    )


def _looked_up(node: n.Node) -> tuple[n.Scan | None, tuple[Expression, ...], Expression | None]:
    """Return the scan below projections and filters, their expressions, and their condition."""
    if isinstance(node, n.Scan):
        return node, tuple(Column(f.type, i) for i, f in enumerate(node.fields.fields)), None
    if not isinstance(node, (n.Calc, n.Project, n.Filter, n.Watermark)):
        return None, (), None
    scan, below, left = _looked_up(node.input)
    if scan is None or isinstance(node, n.Watermark):
        return scan, below, left
    condition = None if isinstance(node, n.Project) else node.condition
    if condition is not None:
        tests = [inlined(condition, below)] if left is None else [left, inlined(condition, below)]
        left = conjunction(tests)
    if isinstance(node, n.Filter):
        return scan, below, left
    return scan, tuple(inlined(e, below) for e in node.expressions), left


def _physical(scan: n.Scan) -> set[str]:
    return {c.name for c in scan.table.physical}


def _equal(node: n.TemporalJoin, left: int, right: int, null_safe: bool) -> Expression:
    types = [*node.left.fields.types, *node.right.fields.types]
    columns = (Column(types[left], left), Column(types[right], right))
    return Call(DataTypes.BOOLEAN(), "IS NOT DISTINCT FROM" if null_safe else "=", columns)


def _narrowed(
    scan: n.Scan, expressions: tuple[Expression, ...], condition: Expression | None, keys: list[int]
) -> tuple[n.Scan, tuple[Expression, ...], Expression | None, tuple[int, ...]]:
    """Return a scan of only the used columns, with everything over it renumbered."""
    used = {c for e in expressions for c in columns_of(e)} | set(keys)
    used |= set() if condition is None else columns_of(condition)
    columns_used = sorted(used)
    mapping = {old: new for new, old in enumerate(columns_used)}
    result = replace(
        scan,
        fields=Fields(tuple(scan.fields[i] for i in columns_used)),
        columns=tuple(scan.columns[i] for i in columns_used),
        filters=(),
        limit=None,
    )
    tested = None if condition is None else moved(condition, mapping)
    return result, tuple(moved(e, mapping) for e in expressions), tested, tuple(mapping[k] for k in keys)


def _at_once(hint: Mapping[str, str], settings: Mapping[str, str]) -> int:
    if hint.get("async", "false").lower() != "true":
        return 1
    return max(min(int(hint.get("capacity", settings.get(_CAPACITY, "100"))), _MAX_LOOKUPS), 1)

"""EXPLAIN ESTIMATED_COST: estimated rows per operator and cumulative cost.

There are no statistics, so it uses rules of thumb as Flink does: a table has 100 million rows, and a condition has a
selectivity by its kind. The planner does not use the figures; they compare two ways to write a query.
"""

from __future__ import annotations

from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.java_text import java_number
from millstream.sql.expressions import Call, Expression, conjuncts
from millstream.sql.optimizer.upsert_keys import exchanges
from millstream.sql.plan import nodes as n
from millstream.sql.types import DataType, IntegralType

_TABLE = 100_000_000.0
_SHARES = {"=": 0.15, "<": 0.5, "<=": 0.5, ">": 0.5, ">=": 0.5, "IS NOT NULL": 0.9, "IS NULL": 0.1}
_SHARE = 0.25
# Ratio of groups to input rows in an aggregate, and of pairs to rows of the larger side in an equi-join.
_GROUPS = 0.1
_KEEPS = (
    n.Aggregate,
    n.TableAggregate,
    n.WindowAggregate,
    n.Rank,
    n.Deduplicate,
    n.ChangelogNormalize,
    n.Join,
    n.SetOperation,
    n.Over,
    n.Match,
    n.Sort,
)


@fast_dataclass
class Cost:
    """The cumulative cost of an operator in rows and bytes."""

    rows: float = 0.0
    cpu: float = 0.0
    io: float = 0.0
    network: float = 0.0
    memory: float = 0.0

    def plus(self, other: Cost) -> Cost:
        return Cost(
            self.rows + other.rows,
            self.cpu + other.cpu,
            self.io + other.io,
            self.network + other.network,
            self.memory + other.memory,
        )

    def __str__(self) -> str:
        words = ("rows", "cpu", "io", "network", "memory")
        return "{" + ", ".join(f"{java_number(getattr(self, word), False)} {word}" for word in words) + "}"


class Costs:
    """Cost estimates of plans, one per operator."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[n.Planned, float, Cost]] = {}

    def text(self, planned: n.Planned, exchanged: bool = False) -> str:
        """Return EXPLAIN's text for an operator or the exchange behind it."""
        rows, cost = self._of(planned)
        if exchanged:
            cost = cost.plus(_exchange(planned, rows))
        return f"rowcount = {java_number(rows, False)}, cumulative cost = {cost}"

    def _of(self, planned: n.Planned) -> tuple[float, Cost]:
        result = self._known.get(id(planned))
        if result is None:
            below = [self._of(p) for p in planned.inputs]
            rows = _rows(planned.node, [r for r, _ in below])
            read = sum(r for r, _ in below)
            size = rows * _width(planned)
            own = Cost(
                rows=rows,
                cpu=rows + read,
                io=size if isinstance(planned.node, n.Scan) else 0.0,
                memory=size if isinstance(planned.node, _KEEPS) else 0.0,
            )
            for input_, keys, (input_rows, cost) in zip(planned.inputs, exchanges(planned), below, strict=True):
                own = own.plus(cost if keys is None else cost.plus(_exchange(input_, input_rows)))
            # Holding the operator keeps its id() unique.
            result = self._known[id(planned)] = (planned, rows, own)
        return result[1], result[2]


def _exchange(planned: n.Planned, rows: float) -> Cost:
    return Cost(rows=rows, cpu=rows, network=rows * _width(planned))


def _rows(node: n.Node, below: list[float]) -> float:
    if isinstance(node, n.Values):
        return float(len(node.rows))
    if isinstance(node, n.Scan):
        return min(_TABLE, float(node.limit)) if node.limit is not None else _TABLE
    if not below:
        return _TABLE
    if isinstance(node, (n.Calc, n.Filter)):
        return below[0] * share_of(node.condition)
    if isinstance(node, (n.Aggregate, n.TableAggregate, n.WindowAggregate, n.Deduplicate)):
        return below[0] * _GROUPS if node.keys else 1.0
    if isinstance(node, n.Sort) and node.limit is not None:
        return min(below[0], float(node.limit))
    if isinstance(node, n.Join):
        return max(below) if node.left_keys else below[0] * below[1] * share_of(node.condition)
    return sum(below)


def share_of(condition: Expression | None) -> float:
    """Return the estimated selectivity of a condition."""
    share = 1.0
    for test in conjuncts(condition):
        share *= _SHARES.get(test.function, _SHARE) if isinstance(test, Call) else _SHARE
    return share


def _width(planned: n.Planned) -> float:
    return sum(_bytes(kind) for kind in planned.node.fields.types)


def _bytes(kind: DataType) -> float:
    return 8.0 if isinstance(kind, IntegralType) else 12.0

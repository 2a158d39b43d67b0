"""EXPLAIN ESTIMATED_COST: how many rows each operator is thought to have, and what all below it costs.

Nothing is known of tables, so it is a rule of thumb, as Flink's is without statistics: a table has 100 million rows, a
condition leaves a share by its kind. The planner does not ask; the figures are for comparing two ways to write a query.
"""

from __future__ import annotations

from millstream.common.fast_dataclass import record
from millstream.common.java_text import java_number
from millstream.sql.expressions import Call, Expression, conjuncts
from millstream.sql.optimizer.upsert_keys import exchanges
from millstream.sql.plan import nodes as n
from millstream.sql.types import DataType, IntegralType

_TABLE = 100_000_000.0
_SHARES = {"=": 0.15, "<": 0.5, "<=": 0.5, ">": 0.5, ">=": 0.5, "IS NOT NULL": 0.9, "IS NULL": 0.1}
_SHARE = 0.25
# How much of its input a group aggregate has groups, and a join of keys pairs of the larger side's rows.
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


@record
class Cost:
    """What an operator costs with all that it reads, in rows and bytes."""

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
    """Estimates of plans, each operator once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[n.Planned, float, Cost]] = {}

    def text(self, planned: n.Planned, exchanged: bool = False) -> str:
        """Return what EXPLAIN says of an operator, or of the exchange behind it."""
        rows, cost = self._of(planned)
        if exchanged:
            cost = cost.plus(_exchange(planned, rows))
        return f"rowcount = {java_number(rows, False)}, cumulative cost = {cost}"

    def _of(self, planned: n.Planned) -> tuple[float, Cost]:
        found = self._known.get(id(planned))
        if found is None:
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
            for input_, keys, (given, cost) in zip(planned.inputs, exchanges(planned), below, strict=True):
                own = own.plus(cost if keys is None else cost.plus(_exchange(input_, given)))
            # The operator is kept, so that its id stays its own.
            found = self._known[id(planned)] = (planned, rows, own)
        return found[1], found[2]


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
    """Return the share of rows that a condition is thought to leave."""
    share = 1.0
    for test in conjuncts(condition):
        share *= _SHARES.get(test.function, _SHARE) if isinstance(test, Call) else _SHARE
    return share


def _width(planned: n.Planned) -> float:
    return sum(_bytes(kind) for kind in planned.node.fields.types)


def _bytes(kind: DataType) -> float:
    return 8.0 if isinstance(kind, IntegralType) else 12.0

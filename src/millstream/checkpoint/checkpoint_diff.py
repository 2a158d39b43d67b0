"""Differences between two checkpoints or savepoints, state by state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from millstream.checkpoint.inspect import Inspection, OperatorInfo, StateInfo
from millstream.checkpoint.state_rows import Address, StateRow
from millstream.common.aliases import Value
from millstream.common.pickles import dump

Rows = dict[Address, StateRow]


@dataclass(frozen=True)
class RowDifference:
    """A row that was added, removed or changed; the missing side is None."""

    before: StateRow | None
    after: StateRow | None

    @property
    def sign(self) -> str:
        return "+" if self.before is None else "-" if self.after is None else "~"

    @property
    def row(self) -> StateRow:
        """The row of either side, for its key and namespace."""
        row = self.after or self.before
        assert row is not None
        return row


@dataclass
class StateDifference:
    """The differences of a state.

    Attributes:
        operator: the uid or name of the operator.
        state: the name of the state.
        only_in: "first" or "second" if only one of the two has the state.
        examples: the first rows that differ.
    """

    operator: str
    state: str
    only_in: str | None = None
    added: int = 0
    removed: int = 0
    changed: int = 0
    unchanged: int = 0
    examples: list[RowDifference] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.changed)


def differences(first: Inspection, second: Inspection, examples: int = 5) -> Iterator[StateDifference]:
    """Compare two checkpoints; operators are matched by id, states by name.

    Args:
        first: the earlier one.
        second: the later one.
        examples: how many differing rows to collect per state.
    """
    for operator in _either(first, second):
        before, after = _states(first, operator.id), _states(second, operator.id)
        for name in dict.fromkeys((*before, *after)):
            difference = StateDifference(operator.label, name[1])
            if name not in before or name not in after:
                difference.only_in = "first" if name in before else "second"
            rows = _rows(first, operator, before.get(name)), _rows(second, operator, after.get(name))
            _compare(difference, *rows, examples)
            if rows[0] or rows[1] or difference.only_in:
                yield difference


def _either(first: Inspection, second: Inspection) -> Iterator[OperatorInfo]:
    for operator_id in dict.fromkeys((*first.vertices, *second.vertices)):
        yield (first if operator_id in first.vertices else second).operator(operator_id)


def _states(inspection: Inspection, operator_id: str) -> dict[tuple[str, str], StateInfo]:
    if operator_id not in inspection.vertices:
        return {}
    states = {(s.scope, s.name): s for s in inspection.operator(operator_id).states}
    return {name: s for name, s in states.items() if not s.is_internal or _has_rows(inspection, operator_id, s)}


def _has_rows(inspection: Inspection, operator_id: str, state: StateInfo) -> bool:
    return any(s.name == state.name and s.rows for s in inspection.counted(operator_id).states)


def _rows(inspection: Inspection, operator: OperatorInfo, state: StateInfo | None) -> Rows:
    if state is None:
        return {}
    return dict(inspection.addressed_rows(operator, state))


def _compare(difference: StateDifference, before: Rows, after: Rows, examples: int) -> None:
    for address in dict.fromkeys((*before, *after)):
        old, new = before.get(address), after.get(address)
        if old is None:
            difference.added += 1
        elif new is None:
            difference.removed += 1
        elif is_same(old.value, new.value):
            difference.unchanged += 1
            continue
        else:
            difference.changed += 1
        if len(difference.examples) < examples:
            difference.examples.append(RowDifference(old, new))


def is_same(left: Value, right: Value) -> bool:
    """Return whether two values are equal; if == is inconclusive, compare their stored form.

    Example:
        >>> is_same(float("nan"), float("nan")), is_same([1], [2])
        (True, False)
    """
    try:
        if left == right:
            return True
    except Exception:
        # Not every == returns a bool.
        pass
    return type(left) is type(right) and dump(left) == dump(right)

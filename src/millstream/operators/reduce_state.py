"""The state of a reduce, and what its generated loops may assume of the values in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millstream.common.aliases import Key, Value
from millstream.common.inferred_types import InferredType
from millstream.operators.codegen.sum_headroom import HeadroomMeter
from millstream.state.keyed import KeyedState
from millstream.state.kinds import REDUCING
from millstream.state.table import MISSING


class ReduceState:
    """The value of each key.

    Attributes:
        table: the state table.
        cells: the members of values that are tuples, while an epoch changes them in place; newer than the table.
    """

    TABLE = "_reduce"

    def __init__(self, state: KeyedState) -> None:
        self.table = state.table(self.TABLE, REDUCING)
        self.cells: dict[Key, list[Value]] = {}

    def stored(self, key: Key) -> Value:
        """Return the value of a key in the table, or MISSING."""
        overlay = self.table.overlay
        return overlay[key] if key in overlay else self.table.base.get(key, MISSING)

    def write_cells(self) -> None:
        """Write the cells to the table."""
        if self.cells:
            self.table.overlay.update(zip(self.cells, map(tuple, self.cells.values()), strict=True))
            self.cells.clear()

    @property
    def is_empty(self) -> bool:
        """Whether the table has no rows."""
        return not any(True for _ in self.table.rows())

    def values(self) -> Iterator[Value]:
        """Yield the values in the table."""
        return (value for _, value in self.table.rows())


class ValueAssumptions:
    """Tracks whether all values have the inferred type that generated loops assume, and enough headroom.

    Args:
        write_back: writes cached values to the state, before a loop with another assumption runs.

    Attributes:
        type_holds: whether the first value of every key had the assumed type, so that all later values have it too.
        has_untested: whether there may be values of other types: from an earlier program, or from a loop over other
            records.
        meter: the headroom that values have used.
    """

    def __init__(self, write_back: Callable[[], None]) -> None:
        self.type_holds = True
        self.has_untested = False
        self.meter = HeadroomMeter()
        self._write_back = write_back
        self._type: InferredType | None = None

    def assume(self, value_type: InferredType) -> bool:
        """Start a loop that assumes a type of all values; return whether all tested values have it."""
        if self._type != value_type:
            # Loops over records of several kinds leave values of several types.
            self.has_untested = self.has_untested or self._type is not None
            self._write_back()
            self._type = value_type
        return self.type_holds

    def has_headroom(self, share: int, in_cells: bool) -> bool:
        """Count the headroom that a batch may use; return whether no value can leave its declared type in it.

        Args:
            share: the headroom that its records may use, of FULL_HEADROOM.
            in_cells: whether the loop puts values into cells, where they are tested.
        """
        return self.meter.take(share, self.has_untested, in_cells)

"""What aggregates come to after each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.sql.columns.numpy_arrays import Valid
from millstream.sql.operators.aggregate.segments import Ints


class Running(Protocol):
    """The results of an aggregate after each row and, behind those, before the first row of each segment."""

    def differs(self, before: Ints, after: Ints) -> NDArray[np.bool_]:
        """Tell whether the results at some places differ from those at others."""

    def take(self, places: Ints) -> pa.Array:
        """Return the results at some places."""


class RunningNumbers:
    """Results that are numbers in numpy."""

    def __init__(
        self,
        values: NDArray[Any],
        begins: NDArray[Any],
        valid: Valid,
        valid_begins: Valid,
        column: Callable[[NDArray[Any], Valid], pa.Array],
    ) -> None:
        self._values = np.concatenate([values, begins])
        self._valid = None
        if valid is not None and valid_begins is not None:
            self._valid = np.concatenate([valid, valid_begins])
        self._column = column

    def differs(self, before: Ints, after: Ints) -> NDArray[np.bool_]:
        differs: NDArray[np.bool_] = self._values[after] != self._values[before]
        if self._valid is None:
            return differs
        now, then = self._valid[after], self._valid[before]
        changed: NDArray[np.bool_] = (now != then) | (now & then & differs)
        return changed

    def take(self, places: Ints) -> pa.Array:
        return self._column(self._values[places], None if self._valid is None else self._valid[places])


class RunningObjects:
    """Results that are Python objects."""

    def __init__(self, values: list[Any], column: Callable[[list[Any]], pa.Array]) -> None:
        self._values = values
        self._column = column

    def differs(self, before: Ints, after: Ints) -> NDArray[np.bool_]:
        values, pairs = self._values, zip(before.tolist(), after.tolist(), strict=True)
        return np.fromiter((values[a] != values[b] for b, a in pairs), np.bool_, len(after))

    def take(self, places: Ints) -> pa.Array:
        values = self._values
        return self._column([values[i] for i in places.tolist()])

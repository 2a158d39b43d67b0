"""The contents of windows, and the results of firing windows.

A `Contents` retains a window's records, or the value they are combined into, in a state table whose rows are (key,
window). A `Result` computes the output from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from millstream.common.aliases import Key, Value
from millstream.common.immutability import detach
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.windows.windows import AnyWindow, Window
from millstream.state import kinds
from millstream.state.descriptors import Aggregator
from millstream.state.kinds import StateKind
from millstream.state.table import StateTable

if TYPE_CHECKING:
    from millstream.operators.windows.window_operator import ProcessWindowContext

Row = tuple[Key, AnyWindow]


class Contents(ABC):
    """The form in which a window's records are retained."""

    kind: ClassVar[StateKind]

    def __init__(self) -> None:
        self.table: StateTable

    @abstractmethod
    def add(self, row: Row, value: Value, timestamp: int | None) -> None: ...

    @abstractmethod
    def get(self, row: Row) -> Value:
        """Return the input of the window function, None if the window is empty."""

    @abstractmethod
    def merge(self, target: Row, sources: list[Row]) -> None: ...

    def clear(self, row: Row) -> None:
        self.table.remove(row)


class Listed(Contents):
    """All records, in arrival order."""

    kind = kinds.LIST

    def add(self, row: Row, value: Value, timestamp: int | None) -> None:
        self.table.append(row, detach(value))

    def get(self, row: Row) -> Value:
        return detach(self.table.get(row))

    def merge(self, target: Row, sources: list[Row]) -> None:
        for source in sources:
            for element in self.table.get(source) or ():
                self.table.append(target, element)
            self.table.remove(source)


class Stamped(Listed):
    """All records with their timestamps, for evictors."""

    def add(self, row: Row, value: Value, timestamp: int | None) -> None:
        self.table.append(row, (detach(value), timestamp))

    def replace(self, row: Row, elements: list[tuple[Value, int | None]]) -> None:
        if elements:
            self.table.put(row, elements)
        else:
            self.table.remove(row)


class Reduced(Contents):
    """One value, into which records are reduced as they arrive."""

    kind = kinds.REDUCING

    def __init__(self, reduce: Callable[[Value, Value], Value]) -> None:
        super().__init__()
        self.reduce = reduce

    def add(self, row: Row, value: Value, timestamp: int | None) -> None:
        before = self.table.get(row)
        self.table.put(row, detach(value if before is None else self.reduce(detach(before), value)))

    def get(self, row: Row) -> Value:
        return detach(self.table.get(row))

    def merge(self, target: Row, sources: list[Row]) -> None:
        values = [v for r in (target, *sources) if (v := self.table.get(r)) is not None]
        for source in sources:
            self.table.remove(source)
        if values:
            merged = detach(values[0])
            for value in values[1:]:
                merged = self.reduce(merged, detach(value))
            self.table.put(target, detach(merged))


class Aggregated(Contents):
    """An accumulator, into which records are aggregated as they arrive."""

    kind = kinds.AGGREGATING

    def __init__(self, function: Aggregator) -> None:
        super().__init__()
        self.function = function

    def add(self, row: Row, value: Value, timestamp: int | None) -> None:
        before = self.table.get(row)
        accumulator = self.function.create_accumulator() if before is None else detach(before)
        self.table.put(row, detach(self.function.add(value, accumulator)))

    def get(self, row: Row) -> Value:
        accumulator = self.table.get(row)
        return None if accumulator is None else self.function.get_result(detach(accumulator))

    def merge(self, target: Row, sources: list[Row]) -> None:
        accumulators = [a for r in (target, *sources) if (a := self.table.get(r)) is not None]
        for source in sources:
            self.table.remove(source)
        if accumulators:
            merged = detach(accumulators[0])
            for accumulator in accumulators[1:]:
                merged = self.function.merge(merged, detach(accumulator))
            self.table.put(target, detach(merged))


class WindowFunctionKind:
    """How a window function is called, and whether the contents are one value or all records."""

    def __init__(self, function: UserFunction, method: str, keyed: bool, one_value: bool) -> None:
        self.function = function
        self.method = method
        self.keyed = keyed
        self.one_value = one_value

    def call(self, key: Key, context: ProcessWindowContext, window: Window, contents: Value) -> Iterable[Value] | None:
        """Apply the function; `process` gets a context, `apply` the window itself."""
        elements = [contents] if self.one_value else contents
        about = context if self.method == "process" else window
        function: Callable[..., Iterable[Value] | None] = self.function.function
        function = getattr(function, self.method, function)
        return function(key, about, elements) if self.keyed else function(about, elements)


class PassThrough:
    """No window function: the combined value itself is the result."""

    function = None

    def call(self, key: Key, context: ProcessWindowContext, window: Window, contents: Value) -> Iterable[Value] | None:
        return (contents,)


class Combining:
    """After an evictor: combines the remaining records, and then calls the function."""

    def __init__(self, combine: Callable[[list[Value]], Value], result: WindowFunctionKind | PassThrough) -> None:
        self._combine = combine
        self._result = result
        self.function = result.function

    def call(self, key: Key, context: ProcessWindowContext, window: Window, contents: Value) -> Iterable[Value] | None:
        if not contents:
            return None
        return self._result.call(key, context, window, self._combine(contents))


Result = WindowFunctionKind | PassThrough | Combining

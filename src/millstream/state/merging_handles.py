"""The state objects of user code to which values are added, and which windows can merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from millstream.common.aliases import Value
from millstream.common.immutability import detach
from millstream.state.descriptors import Aggregator
from millstream.state.handles import State
from millstream.state.table import KeyCell, StateTable


class AppendingState(State):
    """State to which values are added: the base of lists, reducing and aggregating state."""

    __slots__ = ()

    def get(self) -> Value:
        """Return the contents; what they are depends on the kind of state."""
        raise NotImplementedError(f"{type(self).__name__} must implement get()")

    def add(self, value: Value) -> None:
        """Add a value."""
        raise NotImplementedError(f"{type(self).__name__} must implement add()")


class MergingState(AppendingState):
    """State that can be merged when windows merge: the base of lists, reducing and aggregating state."""

    __slots__ = ()


class ListState(MergingState):
    """A list per key.

    Example:
        >>> from millstream.datastream import FlatMapFunction
        >>> from millstream.datastream.state import ListStateDescriptor
        >>> class Pairs(FlatMapFunction):
        ...     def open(self, runtime_context):
        ...         self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))
        ...     def flat_map(self, value):
        ...         self.waiting.add(value)
        ...         if len(self.waiting.get()) == 2:
        ...             yield self.waiting.get()
        ...             self.waiting.clear()
        >>> list(env.from_collection([1, 2, 3, 4]).key_by(lambda value: 0).flat_map(Pairs()).execute_and_collect())
        [[1, 2], [3, 4]]
    """

    __slots__ = ()

    def add(self, value: Value) -> None:
        """Append a value.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ListStateDescriptor
            >>> class History(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.history = runtime_context.get_list_state(ListStateDescriptor("history"))
            ...     def map(self, value):
            ...         self.history.add(value)
            ...         return self.history.get()
            >>> list(env.from_collection([3, 1]).key_by(lambda value: 0).map(History()).execute_and_collect())
            [[3], [3, 1]]
        """
        self._table.append(self._cell.key, detach(self._coerced(value)))

    def add_all(self, values: Iterable[Value]) -> None:
        """Append several values.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ListStateDescriptor
            >>> class Words(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.words = runtime_context.get_list_state(ListStateDescriptor("words"))
            ...     def map(self, line):
            ...         self.words.add_all(line.split())
            ...         return self.words.get()
            >>> list(env.from_collection(["to be", "or"]).key_by(lambda line: 0).map(Words()).execute_and_collect())
            [['to', 'be'], ['to', 'be', 'or']]
        """
        for value in values:
            self.add(value)

    def get(self) -> list[Value]:
        """Return the elements of the current key in the order of their addition, as a list; empty if there are none.

        PyFlink returns an iterable.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ListStateDescriptor
            >>> class Before(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.before = runtime_context.get_list_state(ListStateDescriptor("before"))
            ...     def map(self, value):
            ...         values = self.before.get()
            ...         self.before.add(value)
            ...         return value, values
            >>> list(env.from_collection([3, 1, 4]).key_by(lambda value: 0).map(Before()).execute_and_collect())
            [(3, []), (1, [3]), (4, [3, 1])]
        """
        elements: list[Value] = detach(self._table.get(self._cell.key)) or []
        return elements

    def update(self, values: Iterable[Value]) -> None:
        """Replace the list; an empty one clears the state.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ListStateDescriptor
            >>> class LastTwo(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.last = runtime_context.get_list_state(ListStateDescriptor("last"))
            ...     def map(self, value):
            ...         self.last.update([*self.last.get(), value][-2:])
            ...         return self.last.get()
            >>> list(env.from_collection([1, 2, 3]).key_by(lambda value: 0).map(LastTwo()).execute_and_collect())
            [[1], [1, 2], [2, 3]]
        """
        content = [detach(self._coerced(v)) for v in values]
        if content:
            self._overlay[self._cell.key] = content
        else:
            self.clear()

    def __iter__(self) -> Iterator[Value]:
        return iter(self.get())


class ReducingState(MergingState):
    """One value per key, with which added values are combined.

    Example:
        >>> from millstream.datastream import MapFunction
        >>> from millstream.datastream.state import ReducingStateDescriptor
        >>> class Longest(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.longest = runtime_context.get_reducing_state(ReducingStateDescriptor("longest", max))
        ...     def map(self, word):
        ...         self.longest.add(len(word))
        ...         return self.longest.get()
        >>> list(env.from_collection(["to", "not", "be"]).key_by(lambda word: 0).map(Longest()).execute_and_collect())
        [2, 3, 3]
    """

    __slots__ = ("_reduce",)

    def __init__(self, table: StateTable, cell: KeyCell, reduce: Callable[[Value, Value], Value]) -> None:
        super().__init__(table, cell)
        self._reduce = reduce

    def add(self, value: Value) -> None:
        """Combine a value with the state by the reduce function of its descriptor.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ReducingStateDescriptor
            >>> total = ReducingStateDescriptor("total", lambda a, b: a + b)
            >>> class Total(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.total = runtime_context.get_reducing_state(total)
            ...     def map(self, sale):
            ...         self.total.add(sale[1])
            ...         return sale[0], self.total.get()
            >>> sales = env.from_collection([("tea", 3), ("pie", 5), ("tea", 4)])
            >>> list(sales.key_by(lambda sale: sale[0]).map(Total()).execute_and_collect())
            [('tea', 3), ('pie', 5), ('tea', 7)]
        """
        row = self._cell.key
        before = self._table.get(row)
        combined = value if before is None else self._reduce(detach(before), value)
        self._overlay[row] = detach(self._coerced(combined))

    def get(self) -> Value:
        """Return the reduced value, None if nothing was added.

        Example:
            >>> from millstream.datastream import MapFunction
            >>> from millstream.datastream.state import ReducingStateDescriptor
            >>> class Lowest(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.lowest = runtime_context.get_reducing_state(ReducingStateDescriptor("lowest", min))
            ...     def map(self, price):
            ...         before = self.lowest.get()
            ...         self.lowest.add(price)
            ...         return before, price
            >>> list(env.from_collection([5, 3, 4]).key_by(lambda price: "tea").map(Lowest()).execute_and_collect())
            [(None, 5), (5, 3), (3, 4)]
        """
        return detach(self._table.get(self._cell.key))


class AggregatingState(MergingState):
    """One accumulator per key, to which values are added; `get()` returns a result of another type.

    Example:
        >>> from millstream.datastream import AggregateFunction, MapFunction
        >>> from millstream.datastream.state import AggregatingStateDescriptor
        >>> class Average(AggregateFunction):
        ...     create_accumulator = lambda self: (0, 0)
        ...     add = lambda self, value, acc: (acc[0] + value, acc[1] + 1)
        ...     get_result = lambda self, acc: acc[0] / acc[1]
        ...     merge = lambda self, a, b: (a[0] + b[0], a[1] + b[1])
        >>> average = AggregatingStateDescriptor("average", Average())
        >>> class RunningAverage(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.average = runtime_context.get_aggregating_state(average)
        ...     def map(self, value):
        ...         self.average.add(value)
        ...         return self.average.get()
        >>> list(env.from_collection([3, 4, 8]).key_by(lambda value: 0).map(RunningAverage()).execute_and_collect())
        [3.0, 3.5, 5.0]
    """

    __slots__ = ("_function",)

    def __init__(self, table: StateTable, cell: KeyCell, function: Aggregator) -> None:
        super().__init__(table, cell)
        self._function = function

    def add(self, value: Value) -> None:
        """Add a value to the accumulator by the aggregate function of its descriptor.

        Example:
            >>> from millstream.datastream import AggregateFunction, MapFunction
            >>> from millstream.datastream.state import AggregatingStateDescriptor
            >>> class Distinct(AggregateFunction):
            ...     create_accumulator = lambda self: frozenset()
            ...     add = lambda self, value, acc: acc | {value}
            ...     get_result = lambda self, acc: len(acc)
            ...     merge = lambda self, a, b: a | b
            >>> visitors = AggregatingStateDescriptor("visitors", Distinct())
            >>> class Visitors(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.visitors = runtime_context.get_aggregating_state(visitors)
            ...     def map(self, user):
            ...         self.visitors.add(user)
            ...         return user, self.visitors.get()
            >>> users = env.from_collection(["ann", "bob", "ann"])
            >>> list(users.key_by(lambda user: 0).map(Visitors()).execute_and_collect())
            [('ann', 1), ('bob', 2), ('ann', 2)]
        """
        row = self._cell.key
        before = self._table.get(row)
        accumulator = self._function.create_accumulator() if before is None else detach(before)
        self._overlay[row] = detach(self._coerced(self._function.add(value, accumulator)))

    def get(self) -> Value:
        """Return the function's result over the added values, None if there are none.

        Example:
            >>> from millstream.datastream import AggregateFunction, MapFunction
            >>> from millstream.datastream.state import AggregatingStateDescriptor
            >>> class Joined(AggregateFunction):
            ...     create_accumulator = lambda self: ()
            ...     add = lambda self, value, acc: (*acc, value)
            ...     get_result = lambda self, acc: " ".join(acc)
            ...     merge = lambda self, a, b: a + b
            >>> words = AggregatingStateDescriptor("words", Joined())
            >>> class Before(MapFunction):
            ...     def open(self, runtime_context):
            ...         self.words = runtime_context.get_aggregating_state(words)
            ...     def map(self, word):
            ...         before = self.words.get()
            ...         self.words.add(word)
            ...         return before
            >>> list(env.from_collection(["to", "be", "or"]).key_by(lambda word: 0).map(Before()).execute_and_collect())
            [None, 'to', 'to be']
        """
        accumulator = self._table.get(self._cell.key)
        return None if accumulator is None else self._function.get_result(detach(accumulator))

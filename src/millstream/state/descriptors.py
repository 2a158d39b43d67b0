"""State descriptors: name, type and time to live of a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, WrongTypeError
from millstream.common.scalar_types import check_type
from millstream.common.setting import in_words
from millstream.common.typeinfo import ListTypeInfo, MapTypeInfo, TypeInformation
from millstream.state import kinds
from millstream.state.kinds import StateKind
from millstream.state.ttl_config import StateTtlConfig


class StateDescriptor:
    """The name and type of a state, and its time to live: the base of all descriptors.

    The name identifies the state in checkpoints and savepoints: a restored job finds it by its operator and this name.
    """

    kind: ClassVar[StateKind]

    def __init__(self, name: str, type_info: TypeInformation | None = None) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidProgramError(f"A state needs a name that is a non-empty string, not {name!r}.")
        check_type(type_info, f"The type of state {name!r}")
        self.name = name
        self.type_info = type_info
        # The type of added values.
        self.element_type = type_info
        self.ttl: StateTtlConfig | None = None

    def get_name(self) -> str:
        """Return the state's name.

        Example:
            >>> ValueStateDescriptor("count").get_name()
            'count'
        """
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire some time after they were written.

        Example:
            >>> from millstream.common import Time
            >>> from millstream.datastream.state import StateTtlConfig, ValueStateDescriptor
            >>> count = ValueStateDescriptor("count")
            >>> count.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
            >>> count.ttl.get_ttl().to_milliseconds()
            86400000
        """
        self.ttl = ttl_config

    def type_text(self) -> str:
        """Format the declared type; an empty string if there is none."""
        return "" if self.element_type is None else str(self.element_type.named())

    def life_text(self) -> str:
        """Format the time to live; an empty string if values do not expire."""
        return "" if self.ttl is None or not self.ttl.is_enabled() else in_words(self.ttl.ttl_ms)


def renamed(descriptor: StateDescriptor, name: str) -> StateDescriptor:
    """Return the same descriptor under another name."""
    copy = object.__new__(type(descriptor))
    copy.__dict__.update(descriptor.__dict__)
    copy.name = name
    return copy


class ValueStateDescriptor(StateDescriptor):
    """Describes state with one value per key.

    Example:
        >>> from millstream.common import Types
        >>> from millstream.datastream.state import ValueStateDescriptor
        >>> ValueStateDescriptor("count", Types.LONG()).type_info
        Long
    """

    kind = kinds.VALUE

    def __init__(self, name: str, value_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """Describes state with a list per key; the type is that of the elements.

    Example:
        >>> from millstream.common import Types
        >>> from millstream.datastream.state import ListStateDescriptor
        >>> ListStateDescriptor("waiting", Types.STRING()).type_info
        ListTypeInfo<String>
    """

    kind = kinds.LIST

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, elem_type_info)
        if elem_type_info is not None:
            self.type_info = ListTypeInfo(elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """Describes state with a map per key, or broadcast state.

    Example:
        >>> from millstream.common import Types
        >>> from millstream.datastream.state import MapStateDescriptor
        >>> MapStateDescriptor("clicks", Types.STRING(), Types.LONG()).type_info
        MapTypeInfo<String, Long>
    """

    kind = kinds.MAP

    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation | None = None,
        value_type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(name, value_type_info)
        check_type(key_type_info, f"The key type of state {name!r}")
        self.key_type_info = key_type_info
        if key_type_info is not None and value_type_info is not None:
            self.type_info = MapTypeInfo(key_type_info, value_type_info)

    def type_text(self) -> str:
        if self.key_type_info is None and self.element_type is None:
            return ""
        key, value = (t.named() if t is not None else "?" for t in (self.key_type_info, self.element_type))
        return f"{key} -> {value}"


class Reducer(Protocol):
    """A ReduceFunction, which the DataStream API above this package defines."""

    def reduce(self, value1: Value, value2: Value) -> Value: ...


class Aggregator(Protocol):
    """An AggregateFunction, which the DataStream API above this package defines."""

    def create_accumulator(self) -> Value: ...

    def add(self, value: Value, accumulator: Value) -> Value: ...

    def get_result(self, accumulator: Value) -> Value: ...

    def merge(self, acc_a: Value, acc_b: Value) -> Value: ...


class ReducingStateDescriptor(StateDescriptor):
    """Describes state that combines added values with a reduce function.

    Example:
        >>> from millstream.datastream.state import ReducingStateDescriptor
        >>> ReducingStateDescriptor("longest", max).get_reduce_function()(3, 5)
        5
    """

    kind = kinds.REDUCING

    def __init__(
        self,
        name: str,
        reduce_function: Reducer | Callable[[Value, Value], Value],
        type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(name, type_info)
        self.reduce_function = reduce_function
        if not callable(getattr(reduce_function, "reduce", reduce_function)):
            raise WrongTypeError(f"State {name!r} needs a reduce function, not {reduce_function!r}.")

    def reducer(self) -> Callable[[Value, Value], Value]:
        """Return the reduce function as a callable."""
        function = self.reduce_function
        return function.reduce if hasattr(function, "reduce") else function

    def get_reduce_function(self) -> Reducer | Callable[[Value, Value], Value]:
        """Return the reduce function, as it was given.

        Example:
            >>> ReducingStateDescriptor("longest", max).get_reduce_function() is max
            True
        """
        return self.reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Describes state that combines added values with an AggregateFunction.

    Example:
        >>> from millstream.datastream import AggregateFunction
        >>> from millstream.datastream.state import AggregatingStateDescriptor
        >>> class Distinct(AggregateFunction):
        ...     create_accumulator = lambda self: frozenset()
        ...     add = lambda self, value, acc: acc | {value}
        ...     get_result = lambda self, acc: len(acc)
        ...     merge = lambda self, a, b: a | b
        >>> AggregatingStateDescriptor("visitors", Distinct()).get_name()
        'visitors'
    """

    kind = kinds.AGGREGATING

    def __init__(self, name: str, agg_function: Aggregator, state_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, state_type_info)
        self.agg_function = agg_function
        missing = [m for m in ("create_accumulator", "add", "get_result") if not hasattr(agg_function, m)]
        if missing:
            raise WrongTypeError(
                f"State {name!r} needs an AggregateFunction; {agg_function!r} lacks {', '.join(missing)}."
            )

    def get_agg_function(self) -> Aggregator:
        """Return the AggregateFunction, as it was given.

        Example:
            >>> from millstream.datastream import AggregateFunction
            >>> class Count(AggregateFunction):
            ...     create_accumulator = lambda self: 0
            ...     add = lambda self, value, acc: acc + 1
            ...     get_result = lambda self, acc: acc
            ...     merge = lambda self, a, b: a + b
            >>> AggregatingStateDescriptor("count", Count()).get_agg_function().add("x", 3)
            4
        """
        return self.agg_function

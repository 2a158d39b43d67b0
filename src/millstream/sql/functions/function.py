"""Definitions of functions: accepted arguments, result type and kernel, and the services that kernels use."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import Constant, Expression, Option
from millstream.sql.types import DataType

if TYPE_CHECKING:
    from millstream.operators.functions.context import RuntimeContext

# Functions that return JSON, which is not quoted inside other JSON.
JSON_CONSTRUCTORS = frozenset(["JSON_OBJECT", "JSON_ARRAY", "JSON"])

# A column, or a scalar for all rows.
Datum: TypeAlias = "pa.Array | pa.Scalar"


class Kind(Enum):
    """The kind of a function."""

    SCALAR = "scalar"
    AGGREGATE = "aggregate"
    TABLE = "table"
    OVER = "over"


@fast_dataclass
class Arguments:
    """The arguments of a call while it is resolved.

    Attributes:
        types: their types.
        constants: constant arguments; None for others.
        options: arguments that are not values, as in `expressions.Call`.
    """

    types: tuple[DataType, ...]
    constants: tuple[Constant | None, ...] = ()
    options: tuple[Option, ...] = ()

    def __len__(self) -> int:
        return len(self.types)

    def constant(self, index: int) -> Value:
        """Return the value of a constant argument, else None."""
        result = self.constants[index] if index < len(self.constants) else None
        return None if result is None else result.value

    @property
    def any_nullable(self) -> bool:
        """Whether an argument is nullable."""
        return any(t.is_nullable for t in self.types)

    @staticmethod
    def of(arguments: Sequence[Expression], options: tuple[Option, ...] = ()) -> Arguments:
        """Return the arguments of expressions."""
        constants = tuple(a if isinstance(a, Constant) else None for a in arguments)
        return Arguments(tuple(a.type for a in arguments), constants, options)


@fast_dataclass
class Resolved:
    """The result of resolving a call.

    Attributes:
        type: the result type.
        arguments: the target types of casts; their nullability and length do not matter.
    """

    type: DataType
    arguments: tuple[DataType, ...]


@fast_dataclass
class Site:
    """A call site of a function in an expression.

    Attributes:
        name: the function's name.
        type: the result type.
        types: the argument types.
        options: arguments that are not values.
        context: the evaluation context.
        callers: per argument the function it calls; empty for others.
        memory: a kernel's state between batches, such as a random sequence.
    """

    name: str
    type: DataType
    types: tuple[DataType, ...]
    options: tuple[Option, ...]
    context: EvaluationContext
    callers: tuple[str, ...] = ()
    memory: dict[str, object] = field(default_factory=dict)


# Parameters: the call site, the number of rows and the arguments.
Kernel = Callable[[Site, int, Sequence[Datum]], Datum]
Rule = Callable[[Arguments], Resolved | None]


@fast_dataclass
class Function:
    """A built-in function.

    Attributes:
        name: its SQL name.
        rule: resolves arguments; returns None if it does not accept them.
        kernel: computes the result column; None for aggregates and lazy functions.
        forms: its signatures for error messages; `{}` is the name.
        api: its name in the Table API; empty if it has none.
        kind: its kind.
        deterministic: whether equal arguments have equal results.
        fails: whether some arguments raise an error, so that it is evaluated only for the rows that need it.
    """

    name: str
    rule: Rule
    kernel: Kernel | None = None
    forms: tuple[str, ...] = ()
    api: str = ""
    kind: Kind = Kind.SCALAR
    deterministic: bool = True
    fails: bool = False


class OpenedFunction(Protocol):
    """A scalar function in a subtask, after its `open`."""

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        """Return the results for argument columns, or for `rows` rows without arguments."""

    def close(self) -> None:
        """Release resources when the subtask ends."""


class OpenedAggregate(Protocol):
    """An aggregate function in a subtask, after its `open`."""

    def begin(self) -> Value:
        """Return a new accumulator."""

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        """Add a row; return the accumulator."""

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        """Retract a row; return the accumulator."""

    def value(self, accumulator: Value) -> Value:
        """Return the result, independent of later changes; for a table aggregate its rows."""

    def rows(self, columns: Sequence[pa.Array], count: int) -> list[tuple[Value, ...]]:
        """Return the arguments of rows."""

    def column(self, values: list[Value]) -> pa.Array:
        """Return results as a column."""

    def close(self) -> None:
        """Release resources when the subtask ends."""


class OpenedTableAggregate(OpenedAggregate, Protocol):
    """A table aggregate function in a subtask, after its `open`; its `value` is a list of rows."""

    def columns(self, rows: Sequence[tuple[Value, ...]]) -> list[pa.Array]:
        """Return result rows as columns."""


class UserFunction(Protocol):
    """A user function.

    Attributes:
        kind: scalar, table, aggregate or table_aggregate.
        input_types: the parameter types; None to accept any.
        deterministic: whether equal arguments have equal results.
    """

    kind: str
    input_types: list[DataType] | None
    deterministic: bool

    def opened(
        self, name: str, types: Sequence[DataType], result: DataType, context: EvaluationContext
    ) -> OpenedFunction:
        """Open it in a subtask for argument and result types."""


def _now() -> int:
    return int(time.time() * 1000)


class SharedExpression:
    """A common subexpression, evaluated once per batch."""

    def __init__(self) -> None:
        self.evaluate: Callable[[Batch], pa.Array | pa.Scalar] | None = None
        self._batch: Batch | None = None
        self._value: pa.Array | pa.Scalar = None

    def __call__(self, batch: Batch) -> pa.Array | pa.Scalar:
        if self._batch is not batch:
            assert self.evaluate is not None
            # A failed evaluation is not cached.
            self._batch = None
            self._value = self.evaluate(batch)
            self._batch = batch
        return self._value

    def clear(self) -> None:
        self._batch = self._value = None


@fast_dataclass
class EvaluationContext:
    """The context in which expressions are evaluated.

    Attributes:
        time_zone: the session time zone, `table.local-time-zone`.
        clock: returns the time in milliseconds since 1970.
        batch: whether all rows see `query_start` as CURRENT_TIMESTAMP.
        query_start: the start time of the query.
        watermark: the operator's watermark; None before the first.
        catalog, database: the current ones.
        runtime_context: passed to `open` of user functions; None outside a subtask.
        options: the configuration.
    """

    time_zone: str = "UTC"
    clock: Callable[[], int] = _now
    batch: bool = False
    query_start: int = field(default_factory=_now)
    watermark: Callable[[], int | None] = lambda: None
    catalog: str = "default_catalog"
    database: str = "default_database"
    runtime_context: RuntimeContext | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    _opened: dict[tuple[int, str, tuple[DataType, ...], DataType], OpenedFunction] = field(
        default_factory=dict, repr=False
    )
    # Common subexpressions by text, each computed once per batch; see `evaluate`.
    shared: dict[str, SharedExpression] = field(default_factory=dict, repr=False)

    def now(self) -> int:
        """Return the value of CURRENT_TIMESTAMP."""
        return self.query_start if self.batch else self.clock()

    def opened(self, function: UserFunction, name: str, types: Sequence[DataType], result: DataType) -> OpenedFunction:
        """Return a user function, opened once per context."""
        key = (id(function), name, tuple(types), result)
        match = self._opened.get(key)
        if match is None:
            match = self._opened[key] = function.opened(name, types, result, self)
        return match

    def close(self) -> None:
        """Close all user functions opened here."""
        for function in self._opened.values():
            function.close()
        self._opened.clear()

"""Definitions of functions: accepted arguments, result type and kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, TypeAlias

import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.expressions import Constant, Expression
from millstream.sql.functions.context import EvaluationContext
from millstream.sql.types import DataType

# An argument that is not a value: a keyword, a type, or an expression; each function checks its own.
Option: TypeAlias = Any
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

"""What a function is: which arguments it takes, the type of its result, and how a column of results is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, TypeAlias

import pyarrow as pa

from millstream.common.fast_dataclass import record
from millstream.sql.expressions import Constant, Expression
from millstream.sql.functions.context import EvaluationContext
from millstream.sql.types import DataType

# A column, or one value for all rows.
Value: TypeAlias = "pa.Array | pa.Scalar"


class Kind(Enum):
    """What a function makes of rows."""

    SCALAR = "scalar"
    AGGREGATE = "aggregate"
    TABLE = "table"
    OVER = "over"


@record
class Arguments:
    """What is known of the arguments of a call when it is resolved.

    Attributes:
        types: their types.
        constants: those that are constants; None for others.
        options: what is not a value, as in `expressions.Call`.
    """

    types: tuple[DataType, ...]
    constants: tuple[Constant | None, ...] = ()
    options: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.types)

    def constant(self, index: int) -> Any:
        """Return the value of an argument that is a constant, else None."""
        found = self.constants[index] if index < len(self.constants) else None
        return None if found is None else found.value

    @property
    def any_nullable(self) -> bool:
        """Whether one of them can be null."""
        return any(t.is_nullable for t in self.types)

    @staticmethod
    def of(arguments: Sequence[Expression], options: tuple[Any, ...] = ()) -> Arguments:
        """Return what is known of expressions."""
        constants = tuple(a if isinstance(a, Constant) else None for a in arguments)
        return Arguments(tuple(a.type for a in arguments), constants, options)


@record
class Resolved:
    """What came of looking at the types of arguments.

    Attributes:
        type: of the result.
        arguments: the types that the arguments are cast to; nullability and length say nothing in them.
    """

    type: DataType
    arguments: tuple[DataType, ...]


@record
class Site:
    """A place in an expression where a function is called.

    Attributes:
        name: of the function.
        type: of the result.
        types: of the arguments.
        options: what is not a value.
        context: where it is evaluated.
        callers: for each argument the function that it is a call of, empty for others.
        memory: what a kernel keeps between batches, such as a sequence of random numbers.
    """

    name: str
    type: DataType
    types: tuple[DataType, ...]
    options: tuple[Any, ...]
    context: EvaluationContext
    callers: tuple[str, ...] = ()
    memory: dict[str, Any] = field(default_factory=dict)


# Takes the place of the call, the number of rows and the arguments.
Kernel = Callable[[Site, int, Sequence[Value]], Value]
Rule = Callable[[Arguments], Resolved | None]


@record
class Function:
    """A function of the language.

    Attributes:
        name: in SQL.
        rule: which arguments it takes and what comes of them; None for arguments that it does not take.
        kernel: makes the column of results; None for what has none of its own (aggregates, special forms).
        forms: how it is called, for errors; `{}` stands for the name.
        api: the name of the Table API's expression for it, empty if there is none.
        kind: what it makes of rows.
        deterministic: whether the same arguments give the same result.
        fails: whether some arguments are errors, so that it is only evaluated where it is asked for.
    """

    name: str
    rule: Rule
    kernel: Kernel | None = None
    forms: tuple[str, ...] = ()
    api: str = ""
    kind: Kind = Kind.SCALAR
    deterministic: bool = True
    fails: bool = False

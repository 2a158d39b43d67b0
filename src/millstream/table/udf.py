"""User-defined functions: base classes, and the decorators that turn Python functions into SQL functions."""

from __future__ import annotations

import abc
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Generic, overload

from millstream.common.aliases import ACC, T, Value
from millstream.common.unsupported import missing_class
from millstream.sql.functions.function import EvaluationContext
from millstream.sql.types import DataType, MapType, RowType
from millstream.table.expression import Expression
from millstream.table.expressions import call
from millstream.table.sql_text import as_data_type
from millstream.table.udf_runtime.function_context import FunctionContext
from millstream.table.udf_runtime.user_aggregates import AggregateCall, opened_aggregate
from millstream.table.udf_runtime.user_calls import AsyncScalarCall, PandasCall, ScalarCall, TableCall, UserCallable

__all__ = [
    "AggregateFunction",
    "AsyncScalarFunction",
    "FunctionContext",
    "ScalarFunction",
    "TableAggregateFunction",
    "TableFunction",
    "udaf",
    "udf",
    "udtaf",
    "udtf",
]

_Types = Sequence[DataType] | DataType | Sequence[str] | str
# A plain function, or an object of a function class.
_UserCode = Value


class UserDefinedFunction(abc.ABC):
    """Base of user-defined functions."""

    def open(self, function_context: FunctionContext) -> None:
        """Prepare, once for a subtask, for example load a model; by default nothing."""

    def close(self) -> None:
        """Clean up, once for a subtask; by default nothing."""

    def is_deterministic(self) -> bool:
        """Return whether equal arguments give equal results, by default True."""
        return True


class ScalarFunction(UserDefinedFunction):
    """Computes a value from a row's arguments; `open` can prepare what all calls share.

    Example:
        >>> class Discount(ScalarFunction):
        ...     def open(self, function_context): self.rate = 0.9
        ...     def eval(self, price): return price * self.rate
        >>> discount = udf(Discount(), result_type="DOUBLE")
        >>> list(t_env.from_elements([(10,)], ["price"]).select(discount(col("price"))).execute().collect())
        [<Row(9.0)>]
    """

    @abc.abstractmethod
    def eval(self, *args: Value) -> Value:
        """Return the value for a row's arguments."""


class AsyncScalarFunction(UserDefinedFunction):
    """Computes a value from a row's arguments asynchronously: many calls run at once, results keep their order.

    Example:
        >>> class Ask(AsyncScalarFunction):
        ...     async def eval(self, name): return f"hello {name}"
        >>> ask = udf(Ask(), result_type="STRING")
        >>> list(t_env.from_elements([("ann",)], ["name"]).select(ask(col("name"))).execute().collect())
        [<Row('hello ann')>]
    """

    @abc.abstractmethod
    async def eval(self, *args: Value) -> Value:
        """Return the value for a row's arguments."""


class TableFunction(UserDefinedFunction):
    """Computes any number of rows from a row's arguments; a row of one column is a value, else a tuple.

    Example:
        >>> class Split(TableFunction):
        ...     def eval(self, text): yield from text.split()
        >>> split = udtf(Split(), result_types=["STRING"])
        >>> list(t_env.from_elements([("to be",)], ["text"]).flat_map(split(col("text"))).execute().collect())
        [<Row('to')>, <Row('be')>]
    """

    @abc.abstractmethod
    def eval(self, *args: Value) -> Value:
        """Yield or return the rows for a row's arguments."""


class ImperativeAggregateFunction(UserDefinedFunction, Generic[T, ACC]):
    """Base of aggregate functions, which update an accumulator row by row."""

    @abc.abstractmethod
    def create_accumulator(self) -> ACC:
        """Return an empty accumulator."""

    @abc.abstractmethod
    def accumulate(self, accumulator: ACC, *args: Value) -> None:
        """Add a row."""

    def retract(self, accumulator: ACC, *args: Value) -> None:
        """Retract a row; required if the input has updates."""
        raise RuntimeError("Method retract is not implemented")

    def merge(self, accumulator: ACC, accumulators: Iterable[ACC]) -> None:
        """Merge other accumulators into one; required for session windows."""
        raise RuntimeError("Method merge is not implemented")

    def get_result_type(self) -> DataType | str:
        """Return the type of the result, unless `udaf` or `udtaf` sets it."""
        raise RuntimeError("Method get_result_type is not implemented")

    def get_accumulator_type(self) -> DataType | str:
        """Return the type of the accumulator, unless `udaf` or `udtaf` sets it."""
        raise RuntimeError("Method get_accumulator_type is not implemented")


class AggregateFunction(ImperativeAggregateFunction[T, ACC]):
    """Computes a value from the rows of a group.

    Example:
        >>> class Product(AggregateFunction):
        ...     def create_accumulator(self): return [1]
        ...     def accumulate(self, accumulator, n): accumulator[0] *= n
        ...     def get_value(self, accumulator): return accumulator[0]
        >>> product = udaf(Product(), result_type="BIGINT", accumulator_type="ARRAY<BIGINT>")
        >>> t_env.from_elements([(2,), (3,)], ["n"]).select(product(col("n")).alias("all")).to_pandas()
           all
        0    6
    """

    @abc.abstractmethod
    def get_value(self, accumulator: ACC) -> T:
        """Return the result."""


class TableAggregateFunction(ImperativeAggregateFunction[T, ACC]):
    """Computes any number of rows from the rows of a group; see `udtaf` for an example."""

    @abc.abstractmethod
    def emit_value(self, accumulator: ACC) -> Iterable[T]:
        """Yield the result rows of a group; they replace its earlier ones."""


class UserDefinedFunctionWrapper:
    """A user-defined function with its types, as the decorators return it.

    Attributes:
        kind: scalar, table, aggregate or table_aggregate.
        name: the name in plans.
        alias_names: the names that `alias` gave to the result columns.
    """

    kind = "scalar"

    def __init__(
        self,
        func: _UserCode,
        input_types: _Types | None,
        func_type: str,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> None:
        if inspect.isclass(func) or (not isinstance(func, UserDefinedFunction) and not callable(func)):
            raise TypeError(f"Invalid function: not a function or callable (__call__ is not defined): {type(func)}")
        self.function: Value = func
        self.func_type = func_type
        self.input_types = _types(input_types)
        self.name = name or getattr(func, "__name__", None) or type(func).__name__
        own = func.is_deterministic() if isinstance(func, UserDefinedFunction) else True
        if deterministic is not None and isinstance(func, UserDefinedFunction) and deterministic != own:
            raise ValueError(
                f"Inconsistent deterministic: {deterministic} and {own}: is_deterministic() of {self.name} says "
                "otherwise."
            )
        self.deterministic = own if deterministic is None else deterministic
        self.alias_names: tuple[str, ...] = ()
        self.takes_row = False
        self.row_names: tuple[str, ...] = ()

    def __call__(self, *args: Value) -> Expression:
        return call(self, *args)

    def alias(self, *alias_names: str) -> UserDefinedFunctionWrapper:
        """Name the columns of its result."""
        self.alias_names = alias_names
        return self

    def taking_rows(self, names: Sequence[str]) -> UserDefinedFunctionWrapper:
        """Return the function for calls with the row as single argument, as in `map` and `flat_map`."""
        taking = copy(self)
        taking.takes_row = True
        taking.row_names = tuple(names)
        return taking

    @property
    def is_function_object(self) -> bool:
        """Whether the function is an object with `open` and `close`, not a plain Python function."""
        return isinstance(self.function, UserDefinedFunction)

    def opened(
        self, name: str, types: Sequence[DataType], result: DataType, context: EvaluationContext
    ) -> UserCallable:
        """Return the vectorized call for a subtask; the function is open already."""
        make = PandasCall if self.func_type == "pandas" else ScalarCall
        return make(self, types, result, context)


class UserDefinedScalarFunctionWrapper(UserDefinedFunctionWrapper):
    """Holds a scalar function, as `udf` returns it."""

    def __init__(
        self,
        func: _UserCode,
        input_types: _Types | None,
        result_type: DataType | str | None,
        func_type: str,
        deterministic: bool | None,
        name: str | None,
    ) -> None:
        super().__init__(func, input_types, func_type, deterministic, name)
        self.result_type = _result_type(result_type)


class UserDefinedAsyncScalarFunctionWrapper(UserDefinedScalarFunctionWrapper):
    """Holds an async scalar function, as `udf` returns it for a coroutine function."""

    def opened(
        self, name: str, types: Sequence[DataType], result: DataType, context: EvaluationContext
    ) -> AsyncScalarCall:
        """Return the vectorized call for a subtask; the function is open already."""
        return AsyncScalarCall(self, types, result, context)


class UserDefinedTableFunctionWrapper(UserDefinedFunctionWrapper):
    """Holds a table function, as `udtf` returns it."""

    kind = "table"

    def __init__(
        self,
        func: _UserCode,
        input_types: _Types | None,
        result_types: _Types | None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(func, input_types, "general", deterministic, name)
        if result_types is None:
            raise TypeError(
                f"Invalid result_type: udtf {self.name} needs result_types, a list of DataType or of str, or a ROW."
            )
        types = as_data_type(result_types) if isinstance(result_types, str) else result_types
        if isinstance(types, RowType):
            self.result_names: list[str] | None = types.field_names()
            self.result_types = types.field_types()
        else:
            self.result_names = None
            self.result_types = _types(types) or []

    def opened(
        self,
        name: str,
        types: Sequence[DataType],
        result: DataType | Sequence[DataType],
        context: EvaluationContext,
    ) -> TableCall:
        """Return the vectorized call for a subtask; `result` has the types of the rows."""
        results = [result] if isinstance(result, DataType) else result
        return TableCall(self, types, results, context)


class UserDefinedAggregateFunctionWrapper(UserDefinedFunctionWrapper):
    """Holds an aggregate function, as `udaf` and `udtaf` return it."""

    kind = "aggregate"

    def __init__(
        self,
        func: _UserCode,
        input_types: _Types | None,
        result_type: DataType | str | None,
        accumulator_type: DataType | str | None,
        func_type: str,
        deterministic: bool | None,
        name: str | None,
        is_table_aggregate: bool = False,
    ) -> None:
        super().__init__(func, input_types, func_type, deterministic, name)
        if accumulator_type is None and func_type == "general":
            accumulator_type = func.get_accumulator_type()
        if result_type is None:
            result_type = func.get_result_type()
        self.result_type = _result_type(result_type)
        self.accumulator_type = None if accumulator_type is None else as_data_type(accumulator_type)
        if is_table_aggregate:
            self.kind = "table_aggregate"

    def opened(
        self, name: str, types: Sequence[DataType], result: DataType, context: EvaluationContext
    ) -> AggregateCall:
        """Return the accumulator calls for a subtask; the function is open already."""
        return opened_aggregate(self, types, result, context)


def _types(types: _Types | None) -> list[DataType] | None:
    if types is None:
        return None
    result = []
    for one in types if isinstance(types, (list, tuple)) else [types]:
        if not isinstance(one, (DataType, str)):
            raise TypeError(f"Invalid input_type: input_type should be DataType or str but contains {one!r}")
        result.append(as_data_type(one))
    return result


def _result_type(result_type: DataType | str | None) -> DataType:
    if not isinstance(result_type, (DataType, str)):
        raise TypeError(f"Invalid returnType: returnType should be DataType or str but is {result_type!r}")
    return as_data_type(result_type)


def _check_kind(func_type: str, *kinds: str) -> None:
    if func_type not in kinds:
        raise ValueError(f"The func_type must be one of '{', '.join(kinds)}', got {func_type}.")


def _create_udf(
    f: _UserCode,
    input_types: _Types | None,
    result_type: DataType | str | None,
    func_type: str,
    deterministic: bool | None,
    name: str | None,
) -> UserDefinedScalarFunctionWrapper:
    awaited = f.eval if isinstance(f, AsyncScalarFunction) else f
    if inspect.iscoroutinefunction(awaited):
        if func_type == "pandas":
            raise ValueError("Async scalar functions do not support pandas func_type: use func_type='general'.")
        return UserDefinedAsyncScalarFunctionWrapper(f, input_types, result_type, func_type, deterministic, name)
    return UserDefinedScalarFunctionWrapper(f, input_types, result_type, func_type, deterministic, name)


@overload
def udf(
    f: Callable[..., Value] | ScalarFunction | AsyncScalarFunction | type,
    input_types: _Types | None = None,
    result_type: DataType | str | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> UserDefinedScalarFunctionWrapper: ...


@overload
def udf(
    f: None = None,
    input_types: _Types | None = None,
    result_type: DataType | str | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Callable[[Callable[..., Value]], UserDefinedScalarFunctionWrapper]: ...


def udf(
    f: Callable[..., Value] | ScalarFunction | AsyncScalarFunction | type | None = None,
    input_types: _Types | None = None,
    result_type: DataType | str | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> UserDefinedScalarFunctionWrapper | Callable[[Callable[..., Value]], UserDefinedScalarFunctionWrapper]:
    """Create a scalar function from a Python function or a ScalarFunction; also a decorator.

    With `func_type="pandas"` it takes and returns pandas.Series, many rows per call.

    Example:
        >>> @udf(result_type=DataTypes.BIGINT())
        ... def add(i, j):
        ...     return i + j
        >>> list(t_env.from_elements([(1, 2)], ["a", "b"]).select(add(col("a"), col("b"))).execute().collect())
        [<Row(3)>]
    """
    _check_kind(func_type, "general", "pandas")
    if f is None:
        return functools.partial(
            _create_udf,
            input_types=input_types,
            result_type=result_type,
            func_type=func_type,
            deterministic=deterministic,
            name=name,
        )
    return _create_udf(f, input_types, result_type, func_type, deterministic, name)


@overload
def udtf(
    f: Callable[..., Value] | TableFunction | type,
    input_types: _Types | None = None,
    result_types: _Types | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> UserDefinedTableFunctionWrapper: ...


@overload
def udtf(
    f: None = None,
    input_types: _Types | None = None,
    result_types: _Types | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Value]], UserDefinedTableFunctionWrapper]: ...


def udtf(
    f: Callable[..., Value] | TableFunction | type | None = None,
    input_types: _Types | None = None,
    result_types: _Types | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
) -> UserDefinedTableFunctionWrapper | Callable[[Callable[..., Value]], UserDefinedTableFunctionWrapper]:
    """Create a table function from a Python function that yields rows, or a TableFunction; also a decorator.

    Example:
        >>> @udtf(result_types=["STRING", "BIGINT"])
        ... def words(text):
        ...     for word in text.split():
        ...         yield word, len(word)
        >>> list(t_env.from_elements([("to be",)], ["text"]).flat_map(words(col("text"))).execute().collect())
        [<Row('to', 2)>, <Row('be', 2)>]
    """
    if f is None:
        return functools.partial(
            UserDefinedTableFunctionWrapper,
            input_types=input_types,
            result_types=result_types,
            deterministic=deterministic,
            name=name,
        )
    return UserDefinedTableFunctionWrapper(f, input_types, result_types, deterministic, name)


@overload
def udaf(
    f: Callable[..., Value] | AggregateFunction | type,
    input_types: _Types | None = None,
    result_type: DataType | str | None = None,
    accumulator_type: DataType | str | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> UserDefinedAggregateFunctionWrapper: ...


@overload
def udaf(
    f: None = None,
    input_types: _Types | None = None,
    result_type: DataType | str | None = None,
    accumulator_type: DataType | str | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Callable[[Callable[..., Value]], UserDefinedAggregateFunctionWrapper]: ...


def udaf(
    f: Callable[..., Value] | AggregateFunction | type | None = None,
    input_types: _Types | None = None,
    result_type: DataType | str | None = None,
    accumulator_type: DataType | str | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> UserDefinedAggregateFunctionWrapper | Callable[[Callable[..., Value]], UserDefinedAggregateFunctionWrapper]:
    """Create an aggregate function from an AggregateFunction; also a decorator.

    With `func_type="pandas"` it is a function of pandas.Series, one for each argument with the values of all rows of a
    group, a window or a frame, that returns one value.

    Example:
        >>> from millstream.table import DataTypes
        >>> @udaf(result_type=DataTypes.DOUBLE(), func_type="pandas")
        ... def mean(values):
        ...     return values.mean()
        >>> mean.kind
        'aggregate'
    """
    _check_kind(func_type, "general", "pandas")
    if func_type == "pandas" and isinstance(result_type, MapType):
        raise TypeError(f"Invalid returnType: Pandas UDAF doesn't support DataType type {result_type} currently")
    settings = (input_types, result_type, accumulator_type, func_type, deterministic, name)
    if f is None:
        return lambda f: UserDefinedAggregateFunctionWrapper(f, *settings)
    return UserDefinedAggregateFunctionWrapper(f, *settings)


@overload
def udtaf(
    f: Callable[..., Value] | TableAggregateFunction | type,
    input_types: _Types | None = None,
    result_type: DataType | str | None = None,
    accumulator_type: DataType | str | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> UserDefinedAggregateFunctionWrapper: ...


@overload
def udtaf(
    f: None = None,
    input_types: _Types | None = None,
    result_type: DataType | str | None = None,
    accumulator_type: DataType | str | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> Callable[[Callable[..., Value]], UserDefinedAggregateFunctionWrapper]: ...


def udtaf(
    f: Callable[..., Value] | TableAggregateFunction | type | None = None,
    input_types: _Types | None = None,
    result_type: DataType | str | None = None,
    accumulator_type: DataType | str | None = None,
    deterministic: bool | None = None,
    name: str | None = None,
    func_type: str = "general",
) -> UserDefinedAggregateFunctionWrapper | Callable[[Callable[..., Value]], UserDefinedAggregateFunctionWrapper]:
    """Create a table aggregate function from a TableAggregateFunction, for `flat_aggregate`.

    Example:
        >>> class Top2(TableAggregateFunction):
        ...     def create_accumulator(self): return []
        ...     def accumulate(self, accumulator, n): accumulator[:] = sorted([*accumulator, n])[-2:]
        ...     def emit_value(self, accumulator): yield from accumulator
        >>> top2 = udtaf(Top2(), result_type="BIGINT", accumulator_type="ARRAY<BIGINT>")
        >>> tops = t_env.from_elements([(3,), (1,), (2,)], ["n"]).flat_aggregate(top2(col("n")).alias("top"))
        >>> tops.select(col("top")).to_pandas()["top"].tolist()
        [2, 3]
    """
    if func_type != "general":
        raise ValueError(f"The func_type must be 'general', got {func_type}.")
    settings = (input_types, result_type, accumulator_type, func_type, deterministic, name, True)
    if f is None:
        return lambda f: UserDefinedAggregateFunctionWrapper(f, *settings)
    return UserDefinedAggregateFunctionWrapper(f, *settings)


_INSIDE = "it is internal to PyFlink; use udf(), udtf() and udaf()"
DelegatingScalarFunction = missing_class(__name__, "DelegatingScalarFunction", _INSIDE)
DelegatingAsyncScalarFunction = missing_class(__name__, "DelegatingAsyncScalarFunction", _INSIDE)
DelegationTableFunction = missing_class(__name__, "DelegationTableFunction", _INSIDE)
DelegatingPandasAggregateFunction = missing_class(__name__, "DelegatingPandasAggregateFunction", _INSIDE)
PandasAggregateFunctionWrapper = missing_class(__name__, "PandasAggregateFunctionWrapper", _INSIDE)

"""Calls of user-defined functions: vectorized for pandas functions, row by row for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.configuration import parse_duration_ms
from millstream.common.errors import MillstreamError, TypeMismatchError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.types import Row
from millstream.event_loop import Requests
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.value_conversion import to_column, to_python
from millstream.sql.errors import TableException
from millstream.sql.functions.function import EvaluationContext
from millstream.sql.types import DataType, RowType
from millstream.table.udf_runtime.function_context import function_context

if TYPE_CHECKING:
    import pandas

    from millstream.table.udf import UserDefinedFunctionWrapper, UserDefinedTableFunctionWrapper


class UserCallable:
    """A user's function in a subtask: opened, with the types of its arguments."""

    def __init__(
        self, function: UserDefinedFunctionWrapper, types: Sequence[DataType], context: EvaluationContext
    ) -> None:
        self.name = function.name
        self._types = list(types)
        self._zone = context.time_zone
        self._takes_row = function.takes_row
        self._names = tuple(function.row_names)
        self._user = function.function
        self._is_function_object = function.is_function_object
        if self._is_function_object:
            self._user.open(function_context(context.runtime_context))
        self._call = self._called(self._user)

    @staticmethod
    def _called(user: Value) -> Callable[..., Value]:
        """Return the function to call per row."""
        function: Callable[..., Value] = user.eval if hasattr(user, "eval") else user
        return function

    def close(self) -> None:
        """Close the function at the end of the subtask."""
        if self._is_function_object:
            self._user.close()

    def _python(self, columns: Sequence[pa.Array]) -> list[list[Value]]:
        values = self._values(columns)
        if not self._takes_row:
            return values
        return [Row.many(self._names, zip(*values, strict=True))]

    def _values(self, columns: Sequence[pa.Array]) -> list[list[Value]]:
        return [to_python(c, t, self._zone) for c, t in zip(columns, self._types, strict=True)]

    def _pandas(self, columns: Sequence[pa.Array]) -> list[pandas.Series | pandas.DataFrame]:
        """Return the arguments of a pandas function: a Series per column, or one DataFrame of the rows.

        As in PyFlink the fields of a ROW are columns of that DataFrame themselves.
        """
        series = [_as_pandas(c, t) for c, t in zip(columns, self._types, strict=True)]
        if not self._takes_row:
            return series
        import pandas

        named = [g.rename(n) if isinstance(g, pandas.Series) else g for g, n in zip(series, self._names, strict=True)]
        return [pandas.concat(named, axis=1)]

    def _annotate(self, error: BaseException, columns: Sequence[list[Value]], row: int) -> None:
        """Add the failing row to an error; the user's traceback comes first."""
        values = ", ".join(repr(c[row]) for c in columns) if columns and row < len(columns[0]) else ""
        error.add_note(f"in the function {self.name}, for the row ({values})")


class ScalarCall(UserCallable):
    """Calls a function row by row."""

    def __init__(
        self,
        function: UserDefinedFunctionWrapper,
        types: Sequence[DataType],
        result: DataType,
        context: EvaluationContext,
    ) -> None:
        super().__init__(function, types, context)
        self._result = result

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        """Return the column of results."""
        arguments = self._python(columns)
        results: list[Value] = []
        try:
            if arguments:
                results.extend(map(self._call, *arguments))
            else:
                results.extend(self._call() for _ in range(rows))
        except Exception as e:
            # The number of results so far is the index of the failing row.
            self._annotate(e, arguments, len(results))
            raise
        return result_column(self.name, results, self._result, self._zone)


class PandasCall(ScalarCall):
    """Calls a function with columns as pandas.Series."""

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        try:
            result = self._call(*self._pandas(columns))
        except Exception as e:
            e.add_note(f"in the pandas function {self.name}, for {rows} rows")
            raise
        if isinstance(self._result, RowType) and hasattr(result, "columns"):
            return pa.StructArray.from_arrays(
                [
                    _of_pandas(self.name, result[c], f.data_type, rows)
                    for c, f in zip(result.columns, self._result, strict=True)
                ],
                self._result.names,
            )
        return _of_pandas(self.name, result, self._result, rows)


def _as_pandas(column: pa.Array, kind: DataType) -> pandas.Series | pandas.DataFrame:
    """Return a column as pandas has it: a Series, or of a ROW a DataFrame of its fields."""
    if not isinstance(kind, RowType):
        return column.to_pandas()
    import pandas

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    # A null row has nulls for fields; a row inside it stays a column of dicts, which PyFlink refuses.
    return pandas.DataFrame({n: f.to_pandas() for n, f in zip(kind.names, column.flatten(), strict=True)})


def _of_pandas(name: str, result: Value, kind: DataType, rows: int) -> pa.Array:
    if not hasattr(result, "__len__") or isinstance(result, (str, bytes)):
        raise TypeMismatchError(f"The pandas function {name} has returned {result!r}: it must return a pandas.Series.")
    try:
        column = pa.Array.from_pandas(result, type=arrow_type(kind))
    except (pa.ArrowException, TypeError, ValueError) as e:
        raise TypeMismatchError(
            f"The pandas function {name} has returned values of another type than {kind}: {e}"
        ) from None
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if len(column) != rows:
        raise TableException(
            f"The pandas function {name} has returned {len(column)} values for {rows} rows: it must return one value "
            "for each row."
        )
    return column


def result_column(name: str, values: list[Value], kind: DataType, zone: str) -> pa.Array:
    """Return a function's result as a column."""
    try:
        return to_column(values, kind, zone)
    except TypeMismatchError as e:
        raise TypeMismatchError(f"The function {name} has returned a value of another type. {e}") from None


class TableCall(UserCallable):
    """Calls a table function row by row."""

    def __init__(
        self,
        function: UserDefinedTableFunctionWrapper,
        types: Sequence[DataType],
        results: Sequence[DataType],
        context: EvaluationContext,
    ) -> None:
        super().__init__(function, types, context)
        self._results = list(results)

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> tuple[list[int], list[pa.Array]]:
        """Return the number of result rows per row, and their columns."""
        arguments = self._python(columns)
        counts: list[int] = []
        result_rows: list[tuple[Value, ...]] = []
        for row in range(rows):
            before = len(result_rows)
            try:
                result_rows.extend(self._rows(self._call(*(c[row] for c in arguments))))
            except Exception as e:
                self._annotate(e, arguments, row)
                raise
            counts.append(len(result_rows) - before)
        result_columns = zip(*result_rows, strict=True) if result_rows else [()] * len(self._results)
        return counts, [
            result_column(self.name, list(c), k, self._zone) for c, k in zip(result_columns, self._results, strict=True)
        ]

    def _rows(self, returned: Value) -> Iterator[tuple[Value, ...]]:
        if returned is None:
            return
        width = len(self._results)
        several = [returned] if isinstance(returned, (tuple, Row, str)) else returned
        for row in several:
            members = tuple(row) if isinstance(row, (tuple, Row)) else (row,)
            if len(members) != width:
                raise TableException(
                    f"The table function {self.name} returned the row {row!r} of {len(members)} values, and its "
                    f"result_types have {width}."
                )
            yield members


_KEYS = "table.exec.async-scalar."
_CAPACITY, _TIMEOUT, _DELAY = f"{_KEYS}max-concurrent-operations", f"{_KEYS}timeout", f"{_KEYS}retry-delay"
_OLD_CAPACITY = f"{_KEYS}buffer-capacity"
_STRATEGY, _ATTEMPTS = f"{_KEYS}retry-strategy", f"{_KEYS}max-attempts"


@fast_dataclass
class AsyncPolicy:
    """Settings of asynchronous calls.

    Attributes:
        capacity: the maximum number of requests in flight.
        timeout: the maximum seconds for a row, over all attempts.
        retries: the maximum number of retries of a failed request.
        delay: the seconds between attempts.
    """

    capacity: int
    timeout: float
    retries: int
    delay: float

    @classmethod
    def of(cls, options: Mapping[str, str]) -> AsyncPolicy:
        """Return the configured settings."""
        retries = _option(options, _ATTEMPTS, "3", int)
        retries_enabled = options.get(_STRATEGY, "FIXED_DELAY").strip().upper() != "NO_RETRY"
        return cls(
            max(_option(options, _CAPACITY, options.get(_OLD_CAPACITY, "10"), int), 1),
            _option(options, _TIMEOUT, "3 min", parse_duration_ms) / 1000,
            retries if retries_enabled else 0,
            _option(options, _DELAY, "100 ms", parse_duration_ms) / 1000,
        )


def _option(options: Mapping[str, str], key: str, default: str, parse: Callable[[str], int]) -> int:
    text = options.get(key, default)
    try:
        return parse(str(text))
    except (ValueError, MillstreamError):
        raise TableException(f"Could not parse value '{text}' for '{key}'. An example is '{default}'.") from None


class AsyncScalarCall(ScalarCall):
    """Awaits a function for each row, with a limited number of rows in flight.

    Its event loop lives from `open()` to `close()` of the function, so that clients created in `open()` stay usable.
    """

    def __init__(
        self,
        function: UserDefinedFunctionWrapper,
        types: Sequence[DataType],
        result: DataType,
        context: EvaluationContext,
    ) -> None:
        self._policy = AsyncPolicy.of(context.options)
        # Before the function is opened, so that its clients find the loop they will run in.
        self._requests = Requests(self._policy.capacity)
        # Request numbers are never reused, so that late answers are recognized.
        self._number = 0
        super().__init__(function, types, result, context)

    def close(self) -> None:
        self._requests.stop()
        try:
            super().close()
        finally:
            self._requests.close()

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        arguments = self._python(columns)
        first, self._number = self._number, self._number + rows
        self._requests.start(
            [(first + row, partial(self._request, tuple(c[row] for c in arguments))) for row in range(rows)]
        )
        results: dict[int, Value] = {}
        while len(results) < rows:
            self._requests.wait(float("inf"))
            for number, value, error in self._requests.answers():
                if number < first:
                    continue
                if error is not None:
                    self._requests.cancel()
                    self._annotate(error, arguments, number - first)
                    raise error
                results[number] = value
        return result_column(self.name, [results[first + row] for row in range(rows)], self._result, self._zone)

    async def _request(self, arguments: tuple[Value, ...]) -> Value:
        return await self._requests.within(
            self._policy.timeout, self._attempts(arguments), partial(self._on_timeout, arguments)
        )

    async def _attempts(self, arguments: tuple[Value, ...]) -> Value:
        for _ in range(self._policy.retries):
            try:
                return await self._call(*arguments)
            except Exception:
                # The error of the last attempt is raised.
                await self._requests.sleep(self._policy.delay)
        return await self._call(*arguments)

    def _on_timeout(self, arguments: tuple[Value, ...]) -> NoReturn:
        raise TableException(
            f"The async function {self.name} has not returned within {self._policy.timeout:g} s ('{_TIMEOUT}') for the "
            f"row ({', '.join(map(repr, arguments))}). Async function call has timed out for input: {list(arguments)!r}"
        )

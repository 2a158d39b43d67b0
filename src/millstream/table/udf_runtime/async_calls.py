"""How async functions of users are called: a batch's rows at the same time, on an event loop that stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from millstream.common.configuration import parse_duration_ms
from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import record
from millstream.event_loop import Requests
from millstream.sql.errors import TableException
from millstream.sql.functions.context import EvaluationContext
from millstream.sql.types import DataType
from millstream.table.udf import UserDefinedAsyncScalarFunctionWrapper, UserDefinedFunctionWrapper
from millstream.table.udf_runtime.user_calls import PandasCall, ScalarCall, result_column

_KEYS = "table.exec.async-scalar."
_CAPACITY, _TIMEOUT, _DELAY = f"{_KEYS}max-concurrent-operations", f"{_KEYS}timeout", f"{_KEYS}retry-delay"
_OLD_CAPACITY = f"{_KEYS}buffer-capacity"
_STRATEGY, _ATTEMPTS = f"{_KEYS}retry-strategy", f"{_KEYS}max-attempts"


@record
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
        again = options.get(_STRATEGY, "FIXED_DELAY").strip().upper() != "NO_RETRY"
        return cls(
            max(_option(options, _CAPACITY, options.get(_OLD_CAPACITY, "10"), int), 1),
            _option(options, _TIMEOUT, "3 min", parse_duration_ms) / 1000,
            retries if again else 0,
            _option(options, _DELAY, "100 ms", parse_duration_ms) / 1000,
        )


def _option(options: Mapping[str, str], key: str, default: str, parse: Callable[[str], int]) -> int:
    text = options.get(key, default)
    try:
        return parse(str(text))
    except (ValueError, MillstreamError):
        raise TableException(f"Could not parse value '{text}' for '{key}'. An example is '{default}'.") from None


class AsyncScalarCall(ScalarCall):
    """Awaits a function for each row, some rows at a time.

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
            [(first + row, partial(self._answered, tuple(c[row] for c in arguments))) for row in range(rows)]
        )
        results: dict[int, Any] = {}
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

    async def _answered(self, arguments: tuple[Any, ...]) -> Any:
        return await self._requests.within(
            self._policy.timeout, self._attempts(arguments), partial(self._late, arguments)
        )

    async def _attempts(self, arguments: tuple[Any, ...]) -> Any:
        for _ in range(self._policy.retries):
            try:
                return await self._call(*arguments)
            except Exception:
                # The error of the last attempt is raised.
                await self._requests.sleep(self._policy.delay)
        return await self._call(*arguments)

    def _late(self, arguments: tuple[Any, ...]) -> Any:
        raise TableException(
            f"The async function {self.name} has not answered within {self._policy.timeout:g} s ('{_TIMEOUT}') for the "
            f"row ({', '.join(map(repr, arguments))}). Async function call has timed out for input: {list(arguments)!r}"
        )


def opened_scalar(
    function: UserDefinedFunctionWrapper, types: Sequence[DataType], result: DataType, context: EvaluationContext
) -> ScalarCall:
    """Return a scalar function that can be called with columns."""
    if isinstance(function, UserDefinedAsyncScalarFunctionWrapper):
        return AsyncScalarCall(function, types, result, context)
    make = PandasCall if function.func_type == "pandas" else ScalarCall
    return make(function, types, result, context)

"""Async I/O: a coroutine for every record, many at once, results in order or as they come.

The records of a batch wait until its end, or until a watermark, and their coroutines run together. So results never
overtake a watermark and every request is finished within its epoch: nothing is in flight at an epoch's end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.common.errors import InvalidProgramError
from millstream.operators.base import Downstream, Operator, OperatorSetup
from millstream.operators.codegen import CodeWriter, Key, Var
from millstream.operators.functions import UserFunction


class Requests(Protocol):
    """Runs requests at the same time; handed in, because it has a clock and sockets."""

    def run(
        self,
        request: Callable[[Any], Awaitable[Any]],
        values: list[Any],
        capacity: int,
        ordered: bool,
        take: Callable[[int, Any], None],
    ) -> None: ...

    async def sleep(self, seconds: float) -> None: ...

    async def within(self, seconds: float, request: Awaitable[Any]) -> Any: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class RetryPolicy:
    """When a request is made again.

    Attributes:
        attempts: how often at most, the first included.
        backoff_ms: the pause after an attempt, by its number from 1.
        on_result: whether a result asks for another attempt.
        on_exception: whether an exception does.
    """

    attempts: int
    backoff_ms: Callable[[int], float]
    on_result: Callable[[list[Any]], bool] | None
    on_exception: Callable[[Exception], bool] | None


class AsyncOperator(Operator):
    """Calls `async_invoke` for every record."""

    emits_later = True

    def __init__(
        self, function: UserFunction, timeout_ms: int, capacity: int, ordered: bool, retry: RetryPolicy | None
    ) -> None:
        self.function = function
        self.timeout = timeout_ms / 1000
        self.capacity = capacity
        self.ordered = ordered
        self.retry = retry
        # Few enough that time goes on meanwhile, and enough that most requests need not wait for the slowest.
        self.records_in_run = 4 * capacity

    def functions(self) -> list[UserFunction]:
        return [self.function]

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._waiting: list[tuple[Any, int | None]] = []
        self._requests: Requests | None = None

    def open(self) -> None:
        # Before the function is opened, so that its clients find the loop they will run in.
        self._requests = self.setup.requests()
        super().open()

    def close(self) -> None:
        super().close()
        if self._requests is not None:
            self._requests.close()

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        me = w.bind(self, "requests")
        w.line(f"{me}.take({value.name}, {value.timestamp})")
        w.after(f"{me}.flush()", self)

    def take(self, value: Any, timestamp: int | None) -> None:
        self._waiting.append((value, timestamp))

    def on_watermark(self, watermark: int) -> int | None:
        self.flush()
        return super().on_watermark(watermark)

    def finish(self) -> None:
        self.flush()

    def flush(self) -> None:
        """Make the requests that wait, and emit their results."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        assert self._requests is not None
        emit = self.setup.emit
        self._requests.run(
            self._request,
            [value for value, _ in waiting],
            self.capacity,
            self.ordered,
            lambda i, results: emit(results, waiting[i][1]),
        )

    async def _request(self, value: Any) -> list[Any]:
        assert self._requests is not None
        # The time covers all attempts, as in Flink.
        try:
            results = await self._requests.within(self.timeout, self._attempts(value))
        except TimeoutError:
            timeout = getattr(self.function.function, "timeout", None)
            if timeout is None:
                raise TimeoutError(f"The async request for {value!r} took longer than {self.timeout:g} s.") from None
            results = timeout(value)
        return self._checked(results, value)

    async def _attempts(self, value: Any) -> Any:
        retry = self.retry
        attempt = 1
        while True:
            try:
                results = await self.function.call(value)
                if retry is None or attempt >= retry.attempts or not _wants(retry.on_result, results):
                    return results
            except Exception as e:
                if retry is None or attempt >= retry.attempts or not _wants(retry.on_exception, e):
                    raise
            assert self._requests is not None
            await self._requests.sleep(retry.backoff_ms(attempt) / 1000)
            attempt += 1

    def _checked(self, results: Any, value: Any) -> list[Any]:
        if isinstance(results, (list, tuple)):
            return list(results)
        wrong = "cannot be none" if results is None else "should be of list type"
        raise InvalidProgramError(
            f"The result of AsyncFunction {wrong}; {self.function} gave {results!r} for {value!r}."
        )


def _wants(predicate: Callable[[Any], bool] | None, outcome: Any) -> bool:
    return predicate is not None and predicate(outcome)

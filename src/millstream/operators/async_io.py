"""Async I/O: a coroutine per record, many at once, with results in order or as they complete.

Requests continue between epochs. The inputs of requests in flight at the end of an epoch are operator state, a list
that is redistributed at another parallelism; a restore starts these requests again. A watermark waits for the results
of the requests before it, so the queue of requests in flight has a watermark behind each group of inputs:

    [inputs] watermark [inputs] watermark ... [inputs]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.immutability import detach
from millstream.operators.base import Advance, Downstream, OperatorSetup, OperatorSnapshot
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.object_reuse import detached
from millstream.operators.diagnostics.failures import FailedFor
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.stateful import FunctionsOperator
from millstream.state.kinds import LIST
from millstream.state.restored import SPLIT_LIST
from millstream.state.table import BY_NAME


class Input:
    """A record that waits for its results."""

    __slots__ = ("number", "results", "stage", "timestamp", "value")

    def __init__(self, number: int, value: Value, timestamp: int | None, stage: _Stage) -> None:
        self.number = number
        self.value = value
        self.timestamp = timestamp
        self.stage = stage
        self.results: list[Value] | None = None


class Fence(NamedTuple):
    """A marker that no result may overtake: a watermark, if any, and whether the input is idle."""

    watermark: int | None
    idle: bool


class _Stage:
    """The inputs between two fences."""

    __slots__ = ("fence", "left", "queue")

    def __init__(self) -> None:
        # The number of inputs not emitted yet.
        self.left = 0
        # The next inputs to emit: all in arrival order, or those with results in completion order.
        self.queue: deque[Input] = deque()
        self.fence: Fence | None = None


class InFlight:
    """The requests in flight of one subtask."""

    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered
        # All inputs not emitted yet, in arrival order.
        self._inputs: dict[int, Input] = {}
        # The last stage is open: it has no fence.
        self._stages: deque[_Stage] = deque([_Stage()])

    def __len__(self) -> int:
        return len(self._inputs)

    def add(self, number: int, value: Value, timestamp: int | None) -> None:
        """Add a request under a unique number."""
        stage = self._stages[-1]
        stage.left += 1
        request = self._inputs[number] = Input(number, value, timestamp, stage)
        if self._ordered:
            stage.queue.append(request)

    def fence(self, watermark: int | None) -> None:
        """Add a watermark, or None for idle, after the requests."""
        stage = self._stages[-1]
        if stage.left == 0 and len(self._stages) > 1:
            # No input since the previous fence: they are combined.
            stage = self._stages[-2]
        else:
            self._stages.append(_Stage())
        before = stage.fence.watermark if stage.fence is not None else None
        stage.fence = Fence(before, True) if watermark is None else Fence(watermark, False)

    def input_of(self, number: int) -> Input | None:
        """Return the input of a request, None if it is no longer in flight."""
        return self._inputs.get(number)

    def complete(self, request: Input, results: list[Value]) -> None:
        """Set the results of an input."""
        request.results = results
        if not self._ordered:
            request.stage.queue.append(request)

    def ready(self) -> Iterator[Input | Fence]:
        """Yield and remove the inputs and fences that can be emitted, in order."""
        while True:
            stage = self._stages[0]
            queue = stage.queue
            while queue and queue[0].results is not None:
                first = queue.popleft()
                stage.left -= 1
                del self._inputs[first.number]
                yield first
            if stage.left or stage.fence is None:
                return
            self._stages.popleft()
            yield stage.fence

    # --- snapshots

    def inputs(self) -> list[tuple[Value, int | None]]:
        """Return the values and timestamps of all inputs not emitted yet, in arrival order."""
        return [(i.value, i.timestamp) for i in self._inputs.values()]

    def fences(self) -> list[tuple[int, int | None, bool]]:
        """Return the fences, each with the number of inputs before it."""
        fences, before = [], 0
        for stage in self._stages:
            before += stage.left
            if stage.fence is not None:
                fences.append((before, *stage.fence))
        return fences

    def restore(
        self, inputs: Iterable[tuple[int, Value, int | None]], fences: Iterable[tuple[int, int | None, bool]]
    ) -> None:
        """Restore numbered inputs and the fences between them."""
        pending = deque(fences)
        for count, (number, value, timestamp) in enumerate(inputs, 1):
            self.add(number, value, timestamp)
            while pending and pending[0][0] == count:
                _, watermark, idle = pending.popleft()
                if watermark is not None:
                    self.fence(watermark)
                if idle:
                    self.fence(None)


# The table of the inputs of requests in flight, (value, timestamp) each, and its one row.
REQUESTS = f"{SPLIT_LIST}_requests"
_ROW = "operator"

# Responses are polled after a fraction of the time without any, within bounds in seconds.
_POLL_FRACTION, _MIN_POLL, _MAX_POLL = 1 / 8, 0.001, 0.05


class Requests(Protocol):
    """Runs requests concurrently; a service, because it has a clock, a thread and sockets."""

    def start(self, requests: list[tuple[int, Callable[[], Coroutine[object, None, Value]]]]) -> None: ...

    def answers(self) -> list[tuple[int, Value, Exception | None]]: ...

    def wait(self, seconds: float) -> bool: ...

    def cancel(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...

    async def sleep(self, seconds: float) -> None: ...

    async def within(self, seconds: float, request: Awaitable[Value], otherwise: Callable[[], Value]) -> Value: ...


@fast_dataclass
class RetryPolicy:
    """When a request is retried.

    Attributes:
        attempts: the maximum number of attempts, including the first.
        backoff_ms: the pause after an attempt, by its number from 1.
        on_result: whether a result is retried.
        on_exception: whether an exception is retried.
    """

    attempts: int
    backoff_ms: Callable[[int], float]
    on_result: Callable[[list[Value]], bool] | None
    on_exception: Callable[[Exception], bool] | None


class AsyncOperator(FunctionsOperator):
    """Calls `async_invoke` for every record."""

    identity = "async"

    emits_later = True
    has_operator_state = True
    # Responses may arrive at any time.
    follows_clock = True
    # Emits a watermark that has waited for requests, or None for idle.
    advance: Advance

    def __init__(
        self, function: UserFunction, timeout_ms: int, capacity: int, ordered: bool, retry: RetryPolicy | None
    ) -> None:
        self.function = function
        self.timeout = timeout_ms / 1000
        self.capacity = capacity
        self.ordered = ordered
        self.retry = retry

    def functions(self) -> list[UserFunction]:
        return [self.function]

    # --- life cycle

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.operator_state is not None
        self._table = setup.operator_state.table(REQUESTS, LIST, BY_NAME)
        setup.operator_state.when_loaded(self._on_loaded)
        self._in_flight = InFlight(self.ordered)
        # Numbers are unique, so that responses to cancelled requests are recognized.
        self._number = 0
        self._unsent: list[tuple[int, Value]] = []
        # Whether requests in flight differ from the table, and whether a loaded table replaces them.
        self._has_changed = False
        self._is_replaced = False
        self._fences: list[tuple[int, int | None, bool]] = []
        self._last_response = 0.0
        self._requests: Requests | None = None

    def open(self) -> None:
        # Before the function is opened, so that its clients find their event loop.
        self._requests = self.setup.requests(self.capacity)
        super().open()

    def close(self) -> None:
        # Stop requests before the function closes the objects that they use.
        if self._requests is not None:
            self._requests.stop()
        try:
            super().close()
        finally:
            self.end_requests()

    def end_requests(self) -> None:
        """Cancel the requests in flight and accept no new ones."""
        if self._requests is not None:
            self._requests.stop()
            self._requests.close()
            self._requests = None

    def snapshot(self, epoch: int) -> None:
        super().snapshot(epoch)
        if self._has_changed:
            self._has_changed = False
            inputs = self._in_flight.inputs()
            if inputs:
                self._table.put(_ROW, inputs)
            else:
                self._table.remove(_ROW)

    def runtime_snapshot(self) -> OperatorSnapshot:
        return {"fences": self._in_flight.fences()} if self._in_flight else None

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._fences = snapshot["fences"]
        self._on_loaded()

    # Fences are not redistributed: after a change of subtasks, a watermark after all requests arrives again.

    def _on_loaded(self) -> None:
        """Replace the requests in flight by those in the table, once the operator runs."""
        self._is_replaced = True

    def _catch_up(self) -> None:
        """Start the requests that were in flight in the restored snapshot."""
        if not self._is_replaced:
            return
        assert self._requests is not None
        self._requests.cancel()
        self._is_replaced, self._has_changed = False, False
        self._in_flight = InFlight(self.ordered)
        inputs = [(self._next_number(), value, timestamp) for value, timestamp in self._table.get(_ROW) or ()]
        self._in_flight.restore(inputs, self._fences)
        self._fences = []
        self._unsent = [(number, value) for number, value, _ in inputs]
        self._send()

    # --- requests

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        requests, value = w.bind(self, "requests"), detached(w, value)
        w.line(f"{requests}.take({value.name}, {value.timestamp})")
        w.after(f"{requests}.flush()", self)

    def take(self, value: Value, timestamp: int | None) -> None:
        """Add a record."""
        number = self._next_number()
        self._in_flight.add(number, value, timestamp)
        self._unsent.append((number, value))

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def flush(self) -> None:
        """Start the requests of added records, and emit responses."""
        self._send()
        self.emit_responses()

    def _send(self) -> None:
        if not self._unsent:
            return
        assert self._requests is not None
        unsent, self._unsent = self._unsent, []
        self._has_changed = True
        self._last_response = self.setup.services.stopwatch()
        # User code must not modify the value in state.
        self._requests.start([(number, partial(self._request, detach(value))) for number, value in unsent])

    def emit_responses(self) -> None:
        """Emit the results that have arrived, without waiting for more."""
        self._catch_up()
        assert self._requests is not None
        answers = self._requests.answers()
        if not answers:
            return
        self._last_response = self.setup.services.stopwatch()
        in_flight = self._in_flight
        for number, results, error in answers:
            request = in_flight.input_of(number)
            if request is None:
                continue
            if error is not None:
                raise FailedFor(self, request.value, request.timestamp) from error
            in_flight.complete(request, results)
        emit = self.setup.emit
        for element in in_flight.ready():
            if isinstance(element, Fence):
                if element.watermark is not None:
                    self.advance(element.watermark)
                if element.idle:
                    self.advance(None)
            else:
                self._has_changed = True
                emit(element.results, element.timestamp)

    @property
    def is_in_flight(self) -> bool:
        """Whether requests are in flight."""
        return bool(self._in_flight)

    @property
    def is_full(self) -> bool:
        """Whether the operator is at capacity."""
        return len(self._in_flight) >= self.capacity

    def wait(self, seconds: float) -> bool:
        """Wait for a response for at most a number of seconds; return whether there is one."""
        assert self._requests is not None
        return self._requests.wait(seconds)

    def poll_after_seconds(self) -> float | None:
        """Return the seconds until the next poll for responses; None without requests."""
        if not self._in_flight:
            return None
        silent = self.setup.services.stopwatch() - self._last_response
        return min(max(silent * _POLL_FRACTION, _MIN_POLL), _MAX_POLL)

    # --- time

    def on_watermark(self, watermark: int) -> int | None:
        self._catch_up()
        self.watermark = watermark
        if not self._in_flight:
            return watermark
        self._in_flight.fence(watermark)
        return None

    def on_idle(self) -> bool:
        self._catch_up()
        if self._in_flight:
            self._in_flight.fence(None)
        return not self._in_flight

    def on_processing_time(self) -> None:
        self.emit_responses()

    def finish(self) -> None:
        while self._in_flight:
            self.wait(float("inf"))
            self.emit_responses()

    # --- one request, on the thread of the event loop

    async def _request(self, value: Value) -> list[Value]:
        assert self._requests is not None
        # The time covers all attempts, as in Flink.
        results = await self._requests.within(self.timeout, self._attempts(value), partial(self._timed_out, value))
        return self._checked(results, value)

    def _timed_out(self, value: Value) -> Value:
        timeout = getattr(self.function.function, "timeout", None)
        if timeout is None:
            raise TimeoutError(f"The async request for {value!r} took longer than {self.timeout:g} s.")
        return timeout(value)

    async def _attempts(self, value: Value) -> Value:
        retry = self.retry
        attempt = 1
        while True:
            try:
                results = await self.function.call(value)
                if retry is None or attempt >= retry.attempts or not _matches(retry.on_result, results):
                    return results
            except Exception as e:
                if retry is None or attempt >= retry.attempts or not _matches(retry.on_exception, e):
                    raise
            assert self._requests is not None
            await self._requests.sleep(retry.backoff_ms(attempt) / 1000)
            attempt += 1

    def _checked(self, results: Value, value: Value) -> list[Value]:
        if isinstance(results, (list, tuple)):
            return list(results)
        wrong = "cannot be none" if results is None else "should be of list type"
        raise InvalidProgramError(
            f"The result of AsyncFunction {wrong}; {self.function} gave {results!r} for {value!r}."
        )


def _matches(predicate: Callable[[Value], bool] | None, outcome: Value) -> bool:
    return predicate is not None and predicate(outcome)

"""The queue of async requests in flight: inputs that wait for results, and watermarks behind them. Pure.

    [inputs] watermark [inputs] watermark ... [inputs]

Results are emitted in the order of their inputs, or as they complete; never past a watermark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from millstream.common.aliases import Value


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
        """Yield and remove what can be emitted, in order."""
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
        self, inputs: Iterable[tuple[int, Any, int | None]], fences: Iterable[tuple[int, int | None, bool]]
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

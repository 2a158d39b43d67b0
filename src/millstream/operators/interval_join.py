"""The interval join: pairs of two keyed streams whose timestamps are within bounds of each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.immutability import detach
from millstream.operators.base import Downstream, OperatorSetup
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.functions.metrics import Counter
from millstream.operators.functions.output_tag import OutputTag
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.runtime.timers import Timers
from millstream.operators.stateful import FunctionsOperator, TimerOperator
from millstream.operators.windows.window_operator import LATE_DROPPED, LATE_SHOWN
from millstream.state.descriptors import MapStateDescriptor
from millstream.state.handles import MapState
from millstream.state.timers import Timer


class IntervalJoinContext:
    """The context of a ProcessJoinFunction: the timestamps of the pair."""

    __slots__ = ("_left", "_right")

    def __init__(self) -> None:
        self._left = self._right = 0

    def get_left_timestamp(self) -> int:
        """Return the timestamp of the left record."""
        return self._left

    def get_right_timestamp(self) -> int:
        """Return the timestamp of the right record."""
        return self._right

    def get_timestamp(self) -> int:
        """Return the later of the two timestamps, which is that of the result."""
        return max(self._left, self._right)


class IntervalJoinOperator(TimerOperator, FunctionsOperator):
    """Retains the records of both sides while they can still join; joins a pair when its second record arrives."""

    identity = "interval-join"

    keyed = True
    uses_key = True
    inputs = 2
    tags_outputs = True

    _dropped: Counter

    def __init__(
        self,
        function: UserFunction,
        lower: int,
        upper: int,
        late_tags: tuple[OutputTag | None, OutputTag | None],
    ) -> None:
        self.function = function
        # Per side of the record: (lower, upper) bounds of the other side's timestamp relative to it.
        self.bounds = ((lower, upper), (-upper, -lower))
        self.late_tags = late_tags

    def functions(self) -> list[UserFunction]:
        return [self.function]

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.state is not None
        self.timers = Timers(setup.state)
        self._sides: tuple[MapState, MapState] = tuple(
            setup.state.handle(MapStateDescriptor(name)) for name in ("_left", "_right")
        )
        self._context = IntervalJoinContext()
        self._dropped = setup.context.get_metrics_group().counter(LATE_DROPPED)
        self.late_records: deque[tuple[Value, int, int]] = deque(maxlen=LATE_SHOWN)

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        self.set_key(w, key)
        many, out = w.var("r"), w.var()
        join = w.bind(self.join_left if input_index == 0 else self.join_right, "join")
        w.line(f"{many} = {join}({value.name}, {value.timestamp})", self, value.name)
        with w.block(f"if {many}:"), w.block(f"for {out}, {out}t in {many}:"):
            downstream(Var(out, f"{out}t", detached=False))

    def join_left(self, value: Value, timestamp: int | None) -> list[tuple[Value, int]]:
        return self._join(0, value, timestamp)

    def join_right(self, value: Value, timestamp: int | None) -> list[tuple[Value, int]]:
        return self._join(1, value, timestamp)

    def _join(self, side: int, value: Value, timestamp: int | None) -> list[tuple[Value, int]]:
        if timestamp is None:
            raise InvalidProgramError(
                "An interval join needs records with timestamps and this one has none: call "
                "assign_timestamps_and_watermarks(...) before key_by(...)."
            )
        if timestamp < self.watermark:
            return self._late(side, value, timestamp)
        own_side, other_side = self._sides[side], self._sides[1 - side]
        own_side.put(timestamp, [*(own_side.get(timestamp) or ()), value])
        lower, upper = self.bounds[side]
        results: list[tuple[Value, int]] = []
        for other_time, values in other_side.items():
            if timestamp + lower <= other_time <= timestamp + upper:
                for other in values:
                    results += self._pair(side, value, timestamp, other, other_time)
        self._register_cleanup(side, timestamp)
        return results

    def _late(self, side: int, value: Value, timestamp: int) -> list[tuple[Value, int]]:
        tag = self.late_tags[side]
        if tag is None:
            self._dropped.inc()
            self.late_records.append((value, timestamp, self.watermark))
            return []
        return [((tag, value), timestamp)]

    def _pair(
        self, side: int, value: Value, timestamp: int, other: Value, other_time: int
    ) -> Iterable[tuple[Value, int]]:
        context = self._context
        if side == 0:
            left, right, context._left, context._right = value, other, timestamp, other_time
        else:
            left, right, context._left, context._right = other, value, other_time, timestamp
        results = self.function.call(detach(left), detach(right), context)
        stamp = max(timestamp, other_time)
        return [(result, stamp) for result in results] if results is not None else []

    def _register_cleanup(self, side: int, timestamp: int) -> None:
        upper = self.bounds[side][1]
        assert self.setup.state is not None and self.timers is not None
        self.timers.event.register((timestamp + max(upper, 0), self.setup.state.cell.key, side))

    def on_event_timer(self, timer: Timer) -> None:
        """Remove records that no future record can join."""
        time, key, side = timer
        assert self.setup.state is not None
        self.setup.state.cell.key = key
        self._sides[side].remove(time - max(self.bounds[side][1], 0))

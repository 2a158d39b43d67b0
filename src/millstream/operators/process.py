"""process: a function of a record and a context that yields any number of records and side outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millstream.common.aliases import Key as UserKey
from millstream.common.aliases import Value
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.base import Downstream, OperatorSetup
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.runtime.timers import TimeDomain, Timers, TimerService
from millstream.operators.stateful import FunctionOperator, TimerOperator
from millstream.state.key_groups import thaw
from millstream.state.table import KeyCell
from millstream.state.timers import Timer


class ProcessContext:
    """The context of a process function."""

    __slots__ = ("_cell", "_domain", "_service", "_timestamp")

    def __init__(self, cell: KeyCell | None, service: TimerService) -> None:
        self._cell = cell
        self._service = service
        self._timestamp: int | None = None
        self._domain = TimeDomain.EVENT_TIME

    def timestamp(self) -> int:
        """Return the timestamp of the record or timer; -2^63 if there is none."""
        return MIN_WATERMARK if self._timestamp is None else self._timestamp

    def get_current_key(self) -> UserKey:
        """Return the key of the record."""
        if self._cell is None:
            raise AttributeError("get_current_key() needs a keyed stream: call key_by(...) before process(...).")
        return thaw(self._cell.key)

    def timer_service(self) -> TimerService:
        """Return the timer service."""
        return self._service

    def time_domain(self) -> TimeDomain:
        """Return the time domain of the firing timer."""
        return self._domain


class TimedOperator(TimerOperator, FunctionOperator):
    """Calls methods that yield any number of results, and `on_timer`."""

    tags_outputs = True

    # The context of `on_timer`.
    _context: ProcessContext

    def __init__(self, function: UserFunction, keyed: bool) -> None:
        super().__init__(function, keyed)
        self.emits_later = keyed and function.overrides("on_timer")

    def timer_service(self) -> TimerService:
        setup = self.setup
        if setup.state is not None:
            self.timers = Timers(setup.state)
        return TimerService(self, self.timers, setup.state, setup.clock, setup.context.get_task_name())

    def call(self, w: CodeWriter, method: str, context: ProcessContext, value: Var, downstream: Downstream) -> None:
        """Write the call of a method, and the loop over its results."""
        call, ctx = w.bind(getattr(self.function.function, method), "process"), w.bind(context, "ctx")
        many, out = w.var("r"), w.var()
        if value.timestamp is not None or self.inputs > 1 or self.emits_later:
            # Also without a timestamp: a previous record of the other input, or a timer, may have set one.
            w.line(f"{ctx}._timestamp = {value.timestamp}")
        w.line(f"{many} = {call}({value.name}, {ctx})", self, value.name)
        with w.block(f"if {many} is not None:"), w.block(f"for {out} in {many}:", self, value.name):
            downstream(value.renamed(out, False))

    def on_event_timer(self, timer: Timer) -> None:
        self._on_timer(timer, TimeDomain.EVENT_TIME)

    def on_processing_timer(self, timer: Timer) -> None:
        self._on_timer(timer, TimeDomain.PROCESSING_TIME)

    def _on_timer(self, timer: Timer, domain: TimeDomain) -> None:
        if not self.emits_later:
            return
        timestamp, key, _ = timer
        context = self._context
        assert self.setup.state is not None
        self.setup.state.cell.key = key
        context._timestamp, context._domain = timestamp, domain
        results = self.function.function.on_timer(timestamp, context)
        if results is not None:
            stamp = timestamp if domain is TimeDomain.EVENT_TIME else None
            self.setup.emit(one_by_one(results), stamp)


class ProcessOperator(TimedOperator):
    """Calls `process_element`, or `process_element1` and `2` with two inputs, and `on_timer`."""

    identity = "process"

    def __init__(
        self, function: UserFunction, keyed: bool = False, methods: tuple[str, ...] = ("process_element",)
    ) -> None:
        super().__init__(function, keyed)
        self.methods = methods
        self.inputs = len(methods)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._context = ProcessContext(setup.state.cell if setup.state is not None else None, self.timer_service())

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        self.set_key(w, key)
        self.call(w, self.methods[input_index], self._context, value, downstream)


def one_by_one(results: Iterable[Value]) -> Iterator[Value]:
    """Yield results from inside our own code, so that errors of a generator are attributed to the user."""
    yield from results


class CoMapOperator(FunctionOperator):
    """`map1` for the first input, `map2` for the second; a result of None is not emitted."""

    identity = "co-map"

    inputs = 2
    METHODS = ("map1", "map2")

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        self.set_key(w, key)
        call, out = w.bind(getattr(self.function.function, self.METHODS[input_index]), "map"), w.var()
        w.line(f"{out} = {call}({value.name})", self, value.name)
        with w.block(f"if {out} is not None:"):
            downstream(value.renamed(out, False))


class CoFlatMapOperator(FunctionOperator):
    """`flat_map1` for the first input, `flat_map2` for the second."""

    identity = "co-flat-map"

    inputs = 2
    METHODS = ("flat_map1", "flat_map2")

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        self.set_key(w, key)
        call = w.bind(getattr(self.function.function, self.METHODS[input_index]), "flat_map")
        many, out = w.var("r"), w.var()
        w.line(f"{many} = {call}({value.name})", self, value.name)
        with w.block(f"if {many} is not None:"), w.block(f"for {out} in {many}:", self, value.name):
            downstream(value.renamed(out, False))

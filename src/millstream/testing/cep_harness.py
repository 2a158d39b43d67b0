"""CepHarness: matches a pattern in the test's process, and explains why events did not match."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Unpack

from millstream.cep.automaton import Automaton
from millstream.cep.compiler import compile_pattern
from millstream.cep.functions import MatchContext, PatternProcessFunction
from millstream.cep.pattern import Pattern
from millstream.cep.stream import CEP
from millstream.cep.trace import Ended, Tracer
from millstream.common.aliases import Key, Value
from millstream.common.errors import InvalidProgramError
from millstream.datastream.data_stream import DataStream
from millstream.datastream.functions import KeySelector
from millstream.operators.functions.output_tag import OutputTag
from millstream.testing.stream_harness import HarnessSettings, StreamHarness


class _Matches(PatternProcessFunction):
    """Emits matches unchanged."""

    def process_match(self, match: Value, ctx: MatchContext) -> Iterable[Value]:
        return (match,)


class CepHarness(StreamHarness):
    """Runs a pattern and the function of its matches.

    Args:
        pattern: the pattern to match.
        function: processes matches, as in `PatternStream.process`; by default matches are the output.
        key_selector: the key of an event; without one all events are of one key.
        comparator: the order of events of one timestamp.
        late_data: the side output of late events.
        processing_time: whether to follow the wall clock.
        settings: those of `StreamHarness`.

    Example:
        >>> pattern = Pattern.begin("a").where(lambda e: e == "a").next("b").where(lambda e: e == "b")
        >>> with CepHarness(pattern) as harness:
        ...     for time, event in enumerate("abac"):
        ...         harness.process_element(event, timestamp=time)
        ...     harness.process_watermark(10)
        ...     harness.output()
        ...     print(harness.ended_partial_matches()[0])
        [{'a': ['a'], 'b': ['b']}]
        {'a': ['a']} in state b ended at event 'c' (3): take needs b.where
    """

    def __init__(
        self,
        pattern: Pattern,
        function: PatternProcessFunction[Value, Value] | Callable[..., Value] | None = None,
        key_selector: KeySelector[Value, Key] | Callable[[Value], Key] | int | str | None = None,
        *,
        comparator: Callable[[Value, Value], int] | None = None,
        late_data: OutputTag | None = None,
        processing_time: bool = False,
        **settings: Unpack[HarnessSettings],
    ) -> None:
        self._pattern = pattern
        self._key = key_selector
        self._comparator = comparator
        self._by_clock = processing_time
        self._seen: list[tuple[int, Value]] = []
        self._now = -(2**63)

        def build(stream: DataStream) -> DataStream:
            keyed = stream if key_selector is None else stream.key_by(key_selector)
            matches = CEP.pattern(keyed, pattern, comparator)
            if late_data is not None:
                matches = matches.side_output_late_data(late_data)
            if processing_time:
                matches = matches.in_processing_time()
            return matches.process(_Matches() if function is None else function)

        super().__init__(build, **settings)

    def process_elements(self, values: Iterable[Value], timestamp: int | None = None, input: int = 1) -> None:
        """Process several records in one epoch."""
        events = list(values)
        super().process_elements(events, timestamp, input)
        if timestamp is not None and timestamp > self._now:
            self._seen += [(timestamp, event) for event in events]

    def process_watermark(self, timestamp: int, input: int | None = None) -> None:
        """Advance the watermark."""
        super().process_watermark(timestamp, input)
        self._now = max(self._now, timestamp)

    def ended_partial_matches(self, key: Key = None) -> list[Ended]:
        """Return the partial matches of a key that ended without a match, and the reasons; in event time.

        Replays the harness's input up to the watermark.

        Args:
            key: the key; optional if all events have one key.
        """
        if self._by_clock:
            raise InvalidProgramError("ended_partial_matches() supports only patterns in event time.")
        tracer = Tracer(Automaton(compile_pattern(self._pattern)), self._comparator)
        events = [(t, e) for t, e in self._seen if t <= self._now and self._is_of(e, key)]
        tracer.fire(sorted(events, key=lambda seen: seen[0]), self._now)
        return tracer.ended

    def _is_of(self, event: Value, key: Key) -> bool:
        if self._key is None:
            return True
        selector = self._key
        if isinstance(selector, (int, str)):
            return bool(event[selector] == key)
        get_key = selector.get_key if hasattr(selector, "get_key") else selector
        return bool(get_key(event) == key)

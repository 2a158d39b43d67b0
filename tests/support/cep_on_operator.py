"""Run cases on the real operator, in the public test harness."""

from __future__ import annotations

import random
from typing import Any

from millstream.cep import CEP, PatternProcessFunction, TimedOutPartialMatchHandler
from millstream.common.errors import MillstreamError
from millstream.datastream import DataStream, OutputTag
from millstream.testing import ManualClock, StreamHarness
from tests.support.cep_cases import Case, pattern_of

LATE, TIMED_OUT = OutputTag("late"), OutputTag("timed out")


def _key_and_events(match: dict[str, list[Any]]) -> tuple[str, list[Any]]:
    events = [[name, [e[3] for e in events]] for name, events in match.items()]
    return next(iter(match.values()))[0][0], events


class Matches(PatternProcessFunction):
    def process_match(self, match: Any, ctx: Any) -> Any:
        yield ("match", *_key_and_events(match), ctx.timestamp())


class MatchesAndTimeOuts(Matches, TimedOutPartialMatchHandler):
    def process_timed_out_match(self, match: Any, ctx: Any) -> Any:
        yield TIMED_OUT, ("timeout", *_key_and_events(match), ctx.timestamp())


def by_value(a: Any, b: Any) -> int:
    return int(a[2] - b[2])


def built(case: Case, stream: DataStream) -> DataStream:
    """Return the matches of a case."""
    matches = CEP.pattern(stream.key_by(lambda e: e[0]), pattern_of(case), by_value if case["comparator"] else None)
    if case["late"]:
        matches = matches.side_output_late_data(LATE)
    if case["processing"]:
        matches = matches.in_processing_time()
    return matches.process(MatchesAndTimeOuts() if case["timeouts"] else Matches())


def answer(case: Case, restarts: random.Random | None = None, **settings: Any) -> dict[str, Any]:
    """Run a case on the operator.

    Args:
        case: the case.
        restarts: decides where to restore a snapshot at another parallelism; None for no restarts.
        settings: of the harness.
    """
    clock = ManualClock(0)
    lines: dict[str, list[Any]] = {}
    number = 0
    try:
        harness = _harness(case, 1, None, clock, settings)
    except MillstreamError as e:
        return {"error": str(e), "by_key": lines}
    try:
        for item in case["input"]:
            if item[0] == "e":
                _, key, name, value, timestamp = item
                event = (key, name, value, number)
                number += 1
                harness.process_element(event, None if case["processing"] else timestamp)
            elif item[0] == "w":
                harness.process_watermark(item[1])
            else:
                harness.set_processing_time(item[1])
            _collect(harness, case, lines)
            if restarts is not None and restarts.random() < 0.5:
                again = _harness(case, restarts.choice([1, 2, 3]), harness.snapshot(), clock, settings)
                harness.close()
                harness = again
        harness.close()
    except MillstreamError as e:
        _collect(harness, case, lines)
        return {"error": str(e), "by_key": lines}
    return {"by_key": lines}


def rows_left(case: Case) -> int:
    """Return how many rows of state remain after all events and watermarks of a case."""
    with _harness(case, 1, None, ManualClock(0), {}) as harness:
        for index, item in enumerate(case["input"]):
            if item[0] == "e":
                harness.process_element((*item[1:4], index), item[4])
            else:
                harness.process_watermark(item[1])
        return harness.num_keyed_state_entries()


def _harness(case: Case, parallelism: int, snapshot: Any, clock: ManualClock, settings: Any) -> StreamHarness:
    return StreamHarness(
        lambda stream: built(case, stream),
        side_outputs=[LATE, TIMED_OUT],
        parallelism=parallelism,
        snapshot=snapshot,
        clock=clock,
        **settings,
    )


def _collect(harness: StreamHarness, case: Case, lines: dict[str, list[Any]]) -> None:
    for value, stamp in [*harness.records(), *harness.side_records(TIMED_OUT)]:
        kind, key, events, timestamp = value
        assert stamp == (None if case["processing"] else timestamp)
        lines.setdefault(f"{key} {kind}", []).append([kind, key, events, timestamp])
    for event, stamp in harness.side_records(LATE):
        lines.setdefault(f"{event[0]} late", []).append(["late", event[0], event[3], stamp])
    harness.clear_output()


def expected(answer: dict[str, Any]) -> dict[str, list[Any]]:
    """Return Flink's result in the format of `answer`: by key and kind."""
    lines: dict[str, list[Any]] = {}
    for line in answer["out"]:
        lines.setdefault(f"{line[1]} {line[0]}", []).append(line)
    return lines

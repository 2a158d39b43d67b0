"""Patterns in streams: time, state, functions and errors of the operator."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.cep import (
    CEP,
    AfterMatchSkipStrategy,
    Pattern,
    PatternFlatSelectFunction,
    PatternProcessFunction,
    PatternProcessor,
    PatternSelectFunction,
    PatternTimeoutFunction,
    Removed,
    RichIterativeCondition,
    RichPatternSelectFunction,
    TimedOutPartialMatchHandler,
)
from millstream.common import Configuration, Duration, WatermarkStrategy
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.datastream import CheckpointedFunction, DataStream, OutputTag, RuntimeExecutionMode
from millstream.datastream.state import ListStateDescriptor
from millstream.testing import (
    ABORT,
    CepHarness,
    CollectSink,
    LocalEnvironment,
    StreamHarness,
    TestingSource,
    per_element_watermarks,
)
from tests.support.cep_cases import pattern_of, recorded
from tests.support.cep_on_operator import TIMED_OUT as TIMED_OUT_CASES
from tests.support.cep_on_operator import Matches, MatchesAndTimeOuts, by_value, expected

RECORDED = recorded()
LATE, TIMED_OUT = OutputTag("late"), OutputTag("timed out")


def is_(letter: str) -> Callable[[str], bool]:
    return lambda event: event[0] == letter


def a_then_b(join: str = "followed_by") -> Pattern:
    return getattr(Pattern.begin("a").where(is_("a")), join)("b").where(is_("b"))  # type: ignore[no-any-return]


def joined(match: dict[str, list[str]]) -> str:
    return " ".join(e for events in match.values() for e in events)


class Both(PatternProcessFunction, TimedOutPartialMatchHandler):
    def process_match(self, match: Any, ctx: Any) -> Any:
        yield joined(match)

    def process_timed_out_match(self, match: Any, ctx: Any) -> Any:
        yield TIMED_OUT, (joined(match), ctx.timestamp())


# --- time


def test_cep_operator_orders_events_by_time_and_side_outputs_late_ones() -> None:
    with CepHarness(a_then_b("next"), Both(), late_data=LATE, side_outputs=[LATE]) as harness:
        harness.process_element("b1", timestamp=7)
        harness.process_element("a1", timestamp=5)
        assert harness.output() == []
        harness.process_watermark(7)
        assert harness.records() == [("a1 b1", 7)]
        harness.process_element("a2", timestamp=7)
        harness.process_element("a3", timestamp=8)
        assert harness.side_records(LATE) == [("a2", 7)]


def test_cep_operator_counts_late_events_without_a_side_output() -> None:
    with CepHarness(a_then_b()) as harness:
        harness.process_watermark(10)
        harness.process_elements(["a", "b", "b"], timestamp=10)
        assert harness.metrics() == {"GlobalCepOperator.numLateRecordsDropped": 3}


def test_cep_operator_within_excludes_the_end_of_the_window() -> None:
    for distance, matched, late in ((9, ["a b"], []), (10, [], [("a", 15)])):
        with CepHarness(a_then_b().within(Duration.of_millis(10)), Both(), side_outputs=[TIMED_OUT]) as harness:
            harness.process_element("a", timestamp=5)
            harness.process_element("b", timestamp=5 + distance)
            harness.process_watermark(100)
            assert (harness.output(), harness.side_output(TIMED_OUT)) == (matched, late)


def test_cep_operator_within_clears_all_state() -> None:
    pattern = a_then_b().within(10)
    with CepHarness(pattern, Both(), lambda e: e[1:], side_outputs=[TIMED_OUT]) as harness:
        for key in range(20):
            harness.process_element(f"a{key}", timestamp=5)
        harness.process_watermark(5)
        assert harness.num_keyed_state_entries() == 20
        assert harness.state("_cep_runs", "3").timers == [15]
        harness.process_watermark(14)
        assert harness.side_output(TIMED_OUT) == []
        harness.process_watermark(15)
        assert len(harness.side_output(TIMED_OUT)) == 20
        assert harness.num_keyed_state_entries() == 0


def test_cep_operator_holds_no_state_for_a_key_without_partial_match() -> None:
    with CepHarness(a_then_b(), None, lambda e: e[1:]) as harness:
        harness.process_elements([f"c{n}" for n in range(50)], timestamp=1)
        assert harness.num_keyed_state_entries() == 50
        harness.process_watermark(1)
        assert harness.num_keyed_state_entries() == 0


def test_cep_operator_trailing_not_followed_by_matches_at_end_of_input() -> None:
    pattern = Pattern.begin("a").where(is_("a")).not_followed_by("b").where(is_("b")).within(10)
    with CepHarness(pattern, Both(), lambda e: e[1:]) as harness:
        harness.process_element("a1", timestamp=1)
        harness.process_element("a2", timestamp=1)
        harness.process_element("b2", timestamp=2)
        harness.process_watermark(5)
        harness.end_input()
        assert harness.records() == [("a1", 2**63 - 1)]
        assert harness.num_keyed_state_entries() == 0


def test_cep_operator_processing_time() -> None:
    pattern = a_then_b().within(10)
    with CepHarness(pattern, Both(), processing_time=True, side_outputs=[TIMED_OUT]) as harness:
        harness.set_processing_time(100)
        harness.process_element("a1")
        harness.process_element("b1")
        harness.process_element("a2")
        assert harness.records() == [("a1 b1", None)]
        harness.set_processing_time(110)
        assert harness.side_output(TIMED_OUT) == []
        harness.set_processing_time(111)
        assert harness.side_records(TIMED_OUT) == [(("a2", 110), None)]
        assert harness.num_keyed_state_entries() == 0


def test_cep_operator_comparator_in_processing_time_waits_a_millisecond() -> None:
    def backwards(a: str, b: str) -> int:
        return (a < b) - (a > b)

    with CepHarness(a_then_b("next"), Both(), comparator=backwards, processing_time=True) as harness:
        harness.set_processing_time(100)
        harness.process_element("a")
        again = harness.snapshot()
    with CepHarness(a_then_b("next"), Both(), comparator=backwards, processing_time=True, snapshot=again) as harness:
        harness.process_element("b")
        harness.set_processing_time(101)
        # In this order b precedes a, so the first pair does not match; a later b does.
        assert harness.output() == []
        harness.process_element("b")
        harness.set_processing_time(102)
        assert harness.output() == ["a b"]


def test_cep_operator_waits_for_a_lagging_input_but_not_an_idle_one() -> None:
    def build(one: DataStream, two: DataStream) -> DataStream:
        return CEP.pattern(one.union(two), a_then_b()).process(Both())

    harness = StreamHarness(build, 2)
    harness.process_element("a", timestamp=1, input=1)
    harness.process_element("b", timestamp=2, input=2)
    harness.process_watermark(5, 1)
    assert harness.output() == []
    harness.process_watermark(2, 2)
    assert harness.output() == ["a b"]


def test_cep_operator_rejects_events_without_timestamps() -> None:
    with pytest.raises(JobExecutionError, match="needs events with timestamps"):
        CepHarness(a_then_b()).process_element("a")


def test_cep_operator_in_batch_mode_gives_the_same_matches() -> None:
    env = LocalEnvironment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    data = [("a", 1, 5), ("b", 2, 1), ("b", 1, 9), ("a", 2, 3), ("b", 2, 4)]
    events = env.from_collection(data).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[2])
    )
    pattern = Pattern.begin("a").where(is_("a")).next("b").where(is_("b"))
    matches = CEP.pattern(events.key_by(lambda e: e[1]), pattern).select(lambda m: (m["a"][0], m["b"][0]))
    assert sorted(matches.execute_and_collect()) == [(("a", 1, 5), ("b", 1, 9)), (("a", 2, 3), ("b", 2, 4))]


# --- functions


class Select(PatternSelectFunction):
    def select(self, match: Any) -> Any:
        return joined(match)


class FlatSelect(PatternFlatSelectFunction):
    def flat_select(self, match: Any) -> Any:
        yield from match["a"]
        yield from match["b"]


class Timeout(PatternTimeoutFunction):
    def timeout(self, match: Any, timeout_timestamp: int) -> Any:
        return joined(match), timeout_timestamp


@pytest.mark.parametrize(
    ("build", "results", "timed_out"),
    [
        (lambda p: p.select(joined), ["a1 b1"], []),
        (lambda p: p.select(Select()), ["a1 b1"], []),
        (lambda p: p.select(TIMED_OUT, lambda m, t: (joined(m), t), joined), ["a1 b1"], [("a2", 25)]),
        (lambda p: p.select(TIMED_OUT, Timeout(), Select()), ["a1 b1"], [("a2", 25)]),
        (lambda p: p.flat_select(lambda m: m["b"] + m["a"]), ["b1", "a1"], []),
        (lambda p: p.flat_select(FlatSelect()), ["a1", "b1"], []),
        (lambda p: p.flat_select(TIMED_OUT, lambda m, t: [1, t], FlatSelect()), ["a1", "b1"], [1, 25]),
        (lambda p: p.flat_select(TIMED_OUT, lambda m, t: None, lambda m: None), [], []),
        (lambda p: p.process(lambda m, ctx: [ctx.timestamp(), (TIMED_OUT, 0)]), [2], [0]),
        (lambda p: p.process(Both()), ["a1 b1"], [("a2", 25)]),
    ],
)
def test_pattern_stream_select_and_flat_select_forms(build: Any, results: list[Any], timed_out: list[Any]) -> None:
    pattern = a_then_b().within(10)
    harness = StreamHarness(lambda stream: build(CEP.pattern(stream, pattern)), side_outputs=[TIMED_OUT])
    for time, event in ((1, "a1"), (2, "b1"), (15, "a2")):
        harness.process_element(event, timestamp=time)
    harness.process_watermark(100)
    assert (harness.output(), harness.side_output(TIMED_OUT)) == (results, timed_out)


def test_cep_operator_timed_out_match_rejects_main_output() -> None:
    class Wrong(Both):
        def process_timed_out_match(self, match: Any, ctx: Any) -> Any:
            yield "plain"

    harness = CepHarness(a_then_b().within(10), Wrong())
    harness.process_element("a", timestamp=1)
    with pytest.raises(JobExecutionError, match=r"yields \(OutputTag, value\) pairs and this is 'plain'"):
        harness.process_watermark(50)


def test_cep_operator_opens_and_closes_functions_and_conditions(tmp_path: Path) -> None:
    class Function(RichPatternSelectFunction):
        def open(self, runtime_context: Any) -> None:
            self.where = runtime_context.get_task_name()

        def close(self) -> None:
            (tmp_path / "function").touch()

        def select(self, match: Any) -> Any:
            return f"{joined(match)} in {self.where}"

    class Condition(RichIterativeCondition):
        def open(self, runtime_context: Any) -> None:
            super().open(runtime_context)
            with pytest.raises(InvalidProgramError, match="State is not supported."):
                runtime_context.get_state(None)

        def close(self) -> None:
            (tmp_path / "condition").touch()

        def filter(self, event: Any, ctx: Any) -> bool:
            return self.get_runtime_context().get_number_of_parallel_subtasks() == 1 and event[0] == "a"  # type: ignore[no-any-return]

    pattern = Pattern.begin("a").where(Condition())
    with StreamHarness(lambda stream: CEP.pattern(stream, pattern).select(Function())) as harness:
        harness.process_element("a", timestamp=1)
        harness.process_watermark(1)
        assert harness.output() == ["a in GlobalCepOperator"]
        assert list(tmp_path.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["condition", "function"]


def test_cep_operator_match_can_be_mutated_by_the_function() -> None:
    def mutate(match: Any, ctx: Any) -> Any:
        yield [list(e) for events in match.values() for e in events]
        match["a"][0].clear()

    pattern = Pattern.begin("a").where(lambda e: e[0] == "a").followed_by_any("b").where(lambda e: e[0] == "b")
    with CepHarness(pattern, mutate) as harness:
        for time, event in enumerate([["a"], ["b", 1], ["b", 2]]):
            harness.process_element(event, timestamp=time)
        harness.process_watermark(10)
        assert harness.output() == [[["a"], ["b", 1]], [["a"], ["b", 2]]]


# --- state


def test_cep_operator_with_rocksdb_backend() -> None:
    settings = Configuration.from_dict({"state.backend.type": "rocksdb"})
    with CepHarness(a_then_b().within(10), Both(), lambda e: e[1:], config=settings) as harness:
        harness.process_element("a1", timestamp=1)
        harness.process_element("b1", timestamp=5)
        harness.process_watermark(2)
        harness.process_element("b2", timestamp=6)
        harness.process_watermark(50)
        assert harness.output() == ["a1 b1"]
        assert harness.num_keyed_state_entries() == 0


def test_cep_operator_state_is_readable() -> None:
    with CepHarness(a_then_b(), Both(), lambda e: e[1:]) as harness:
        harness.process_element("a1", timestamp=1)
        harness.process_watermark(1)
        harness.process_element("b1", timestamp=5)
        assert repr(harness.state("_cep_runs", "1")) == "<runs: b after a=['a1']>"
        assert harness.state("_cep_events", "1") == [(5, "b1")]


def test_cep_operator_restore_names_removed_pattern_states() -> None:
    with CepHarness(a_then_b(), Both()) as harness:
        harness.process_element("a1", timestamp=1)
        harness.process_watermark(1)
        saved = harness.snapshot()
    other = Pattern.begin("a").where(is_("a")).next("c").where(is_("c"))
    harness = CepHarness(other, Both(), snapshot=saved)
    harness.process_element("c", timestamp=2)
    with pytest.raises(JobExecutionError, match=r"State b does not exist in the NFA\. The pattern has c, a"):
        harness.process_watermark(2)


def test_cep_operator_warns_once_about_many_partial_matches(caplog: pytest.LogCaptureFixture) -> None:
    pattern = Pattern.begin("n").one_or_more().allow_combinations().next("end").where(lambda e: e < 0)
    with caplog.at_level(logging.WARNING), CepHarness(pattern, None, lambda e: "the key") as harness:
        harness.process_elements(range(15), timestamp=1)
        harness.process_watermark(1)
        harness.process_element(15, timestamp=2)
        harness.process_watermark(2)
    (message,) = [r.message for r in caplog.records]
    # As soon as there are more than 10,000, although all of these events are before one watermark.
    # If a job ran in this process before, its logger name precedes the message.
    assert "Key 'the key' has 16,384 partial matches of pattern 'n end' in operator " in message


# --- errors


def test_cep_operator_condition_error_names_pattern_event_and_key() -> None:
    pattern = a_then_b().where(lambda event: 1 / 0)
    harness = CepHarness(pattern, Both(), lambda e: f"key of {e[1:]}")
    harness.process_element("a7", timestamp=1)
    harness.process_element("b7", timestamp=2)
    with pytest.raises(JobExecutionError) as failed:
        harness.process_watermark(9)
    message = str(failed.value)
    # The traceback contains only the user's line.
    assert message.count('  File "') == 1 and "lambda event: 1 / 0" in message
    assert "in a condition of pattern 'b', event 'b7', key 'key of 7'" in message
    assert "in operator 'CepOperator'" in message


def test_cep_operator_function_error_names_match_and_key() -> None:
    harness = CepHarness(a_then_b(), lambda match, ctx: 1 / 0, lambda e: 7)
    harness.process_element("a", timestamp=1)
    harness.process_element("b", timestamp=2)
    with pytest.raises(JobExecutionError) as failed:
        harness.process_watermark(9)
    assert "with the match {'a': ['a'], 'b': ['b']} of key 7" in str(failed.value)
    assert "ZeroDivisionError" in str(failed.value)


def test_cep_operator_skip_to_missing_element_raises() -> None:
    strategy = AfterMatchSkipStrategy.skip_to_first("b").throw_exception_on_miss()
    pattern = Pattern.begin("a", strategy).where(is_("a")).followed_by("b").where(is_("b")).optional()
    harness = CepHarness(pattern, Both())
    harness.process_element("a", timestamp=1)
    with pytest.raises(JobExecutionError, match=r"Could not skip to b\. No such element in the found match"):
        harness.process_watermark(9)


@pytest.mark.parametrize(
    ("build", "error_text"),
    [
        (lambda s: CEP.pattern(s, "a"), "created with Pattern.begin"),  # type: ignore[arg-type]
        (lambda s: CEP.pattern("a", a_then_b()), "takes a stream first"),  # type: ignore[arg-type]
        (lambda s: CEP.pattern(s, a_then_b(), 7), "A comparator is a function of two events"),  # type: ignore[arg-type]
        (lambda s: CEP.pattern(s, a_then_b()).select(), "it was given 0"),  # type: ignore[call-overload]
        (lambda s: CEP.pattern(s, a_then_b()).select(1), "takes a callable or an object with a method select"),  # type: ignore[call-overload]
        (lambda s: CEP.pattern(s, a_then_b()).select(Select), "give it an instance"),  # type: ignore[arg-type]
        (lambda s: CEP.pattern(s, a_then_b()).select("tag", joined, joined), "takes an OutputTag"),  # type: ignore[call-overload]
        (lambda s: CEP.pattern(s, a_then_b()).side_output_late_data("late"), "takes an OutputTag"),  # type: ignore[arg-type]
    ],
)
def test_cep_api_rejects_invalid_programs_before_the_job_starts(build: Any, error_text: str) -> None:
    with pytest.raises(InvalidProgramError, match=error_text):
        build(LocalEnvironment().from_collection(["a"]))


# --- exactly once


def test_cep_operator_is_exactly_once_across_failures() -> None:
    events: list[Any] = [(n % 7, "abac"[n // 7 % 4], n) for n in range(400)]
    for index in (300, 207, 113, 20):
        events.insert(index, ABORT)
    on_time, late = CollectSink(), CollectSink()
    for sink_of in (lambda elements: elements, lambda elements: [e for e in elements if e is not ABORT]):
        env = LocalEnvironment(restarts=9)
        stream = env.from_source(TestingSource(sink_of(events), batch_size=11)).assign_timestamps_and_watermarks(
            per_element_watermarks(lambda e, _: e[2])
        )
        pattern = (
            Pattern.begin("a").where(lambda e: e[1] == "a").followed_by_any("b").where(lambda e: e[1] == "b").within(60)
        )
        matches = CEP.pattern(stream.key_by(lambda e: e[0]), pattern).select(
            TIMED_OUT, lambda m, t: (m, t), lambda m: (m["a"][0], m["b"][0])
        )
        matches.sink_to(on_time)
        matches.get_side_output(TIMED_OUT).sink_to(late)
        env.execute()
        if any(e is ABORT for e in sink_of(events)):
            with_failures = on_time.results(), late.results()
            on_time, late = CollectSink(), CollectSink()
    assert sorted(with_failures[0]) == sorted(on_time.results()) and len(on_time.results()) > 20
    assert sorted(map(repr, with_failures[1])) == sorted(map(repr, late.results())) and len(late.results()) > 20


# --- dynamic patterns


def processor(id: str, version: int, first: str, second: str, **window: int) -> PatternProcessor:
    pattern = Pattern.begin("x").where(is_(first)).followed_by("y").where(is_(second))
    if window:
        pattern.within(window["within"])

    class EmitText(PatternProcessFunction, TimedOutPartialMatchHandler):
        def process_match(self, match: Any, ctx: Any) -> Any:
            yield f"{id} {version}: {joined(match)}"

        def process_timed_out_match(self, match: Any, ctx: Any) -> Any:
            yield TIMED_OUT, f"{id} {version}: {joined(match)}"

    return PatternProcessor(id, version, pattern, EmitText())


def dynamic(snapshot: Any = None, parallelism: int = 1) -> StreamHarness:
    return StreamHarness(
        lambda events, patterns: CEP.dynamic_patterns(events.key_by(lambda e: e[1:]), patterns),
        2,
        side_outputs=[TIMED_OUT],
        snapshot=snapshot,
        parallelism=parallelism,
    )


@pytest.mark.parametrize("restarts", [False, True])
def test_dynamic_patterns_are_added_changed_and_removed(restarts: bool) -> None:
    harness, emitted = dynamic(), []

    def step(*events: Any) -> None:
        nonlocal harness
        for input, event, time in events:
            harness.process_element(event, timestamp=time, input=input)
            if input == 1:
                harness.process_watermark(time)
            if restarts:
                emitted.extend([*harness.output(), *harness.side_output(TIMED_OUT)])
                harness = dynamic(harness.snapshot(), parallelism=1 + time % 3)

    step((2, processor("p", 1, "a", "b"), 0), (1, "a1", 1), (1, "b1", 2))
    # No event is matched twice, and a new pattern matches only later events.
    step((1, "a1", 3), (2, processor("q", 1, "a", "c", within=50), 3), (1, "c1", 4), (1, "b1", 5))
    # Processors with an older or the same version are ignored.
    step((2, processor("p", 1, "a", "d"), 5), (2, processor("p", 0, "a", "d"), 5), (1, "a1", 6), (1, "b1", 7))
    # Partial matches of the old version are discarded, and do not time out.
    step((1, "a2", 8), (2, processor("q", 2, "a", "d", within=50), 8), (1, "c2", 9), (1, "d2", 10), (1, "a2", 20))
    step((2, Removed("p"), 20), (1, "b2", 30), (1, "z", 100))
    emitted.extend([*harness.output(), *harness.side_output(TIMED_OUT)])
    assert sorted(emitted) == ["p 1: a1 b1", "p 1: a1 b1", "p 1: a1 b1", "q 2: a2"]
    assert harness.num_keyed_state_entries() == 0


def test_dynamic_patterns_buffered_events_use_the_version_at_their_time() -> None:
    harness = dynamic()
    harness.process_element(processor("p", 1, "a", "b"), timestamp=0, input=2)
    for time, event in enumerate(["a1", "b1", "c1"]):
        harness.process_element(event, timestamp=time + 1)
    harness.process_element(processor("p", 2, "a", "c"), timestamp=0, input=2)
    harness.process_watermark(10)
    assert harness.output() == ["p 2: a1 c1"]


@pytest.mark.parametrize("part", range(0, 60, 3))
def test_dynamic_patterns_match_like_static_ones(part: int) -> None:
    case, theirs = RECORDED[part * 25]
    if "error" in theirs or case["processing"]:
        return

    def build(events: DataStream, patterns: DataStream) -> DataStream:
        compare = by_value if case["comparator"] else None
        return CEP.dynamic_patterns(events.key_by(lambda e: e[0]), patterns, compare)

    harness = StreamHarness(build, 2, side_outputs=[LATE, TIMED_OUT_CASES])
    function = MatchesAndTimeOuts() if case["timeouts"] else Matches()
    harness.process_element(PatternProcessor("one", 1, pattern_of(case), function), timestamp=0, input=2)
    other = Pattern.begin("other").where(lambda e: e[1] == "c").within(3)
    harness.process_element(PatternProcessor("two", 1, other, lambda m, ctx: ()), timestamp=0, input=2)
    number = 0
    for item in case["input"]:
        if item[0] == "w":
            harness.process_watermark(item[1])
        else:
            harness.process_element((*item[1:4], number), timestamp=item[4])
            number += 1
    actual: dict[str, list[Any]] = {}
    for kind, key, events, timestamp in [*harness.output(), *harness.side_output(TIMED_OUT_CASES)]:
        actual.setdefault(f"{key} {kind}", []).append([kind, key, events, timestamp])
    assert actual == {k: v for k, v in expected(theirs).items() if not k.endswith("late")}


def test_dynamic_patterns_reject_other_elements() -> None:
    with pytest.raises(JobExecutionError, match=r"must contain PatternProcessor\(...\) and Removed\(id\), not 'p'"):
        dynamic().process_element("p", timestamp=0, input=2)
    with pytest.raises(InvalidProgramError, match="is an int"):
        PatternProcessor("p", "1", Pattern.begin("a"), joined)  # type: ignore[arg-type]


def test_cep_operator_function_can_have_operator_state() -> None:
    class Counting(PatternProcessFunction, CheckpointedFunction):
        def initialize_state(self, context: Any) -> None:
            self.count_state = context.get_operator_state_store().get_list_state(ListStateDescriptor("count"))
            self.count = sum(self.count_state.get())

        def snapshot_state(self, context: Any) -> None:
            self.count_state.update([self.count])

        def process_match(self, match: Any, ctx: Any) -> Any:
            self.count += 1
            yield self.count

    harness = CepHarness(Pattern.begin("a"), Counting())
    harness.process_elements(["a", "a"], timestamp=1)
    harness.process_watermark(1)
    harness = CepHarness(Pattern.begin("a"), Counting(), snapshot=harness.snapshot())
    harness.process_element("a", timestamp=2)
    harness.process_watermark(2)
    assert harness.output() == [3]

"""Patterns without an engine: rejected patterns, and matches equal to Flink's."""

from __future__ import annotations

import doctest
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from millstream.cep import (
    CEP,
    AfterMatchSkipStrategy,
    IterativeCondition,
    MalformedPatternError,
    Pattern,
    RichIterativeCondition,
    SimpleCondition,
    WithinType,
)
from millstream.cep.automaton import Automaton, PatternChangedError, Runs, Shrinking, add, keep, match_of, poll
from millstream.cep.compiler import compile_pattern
from millstream.cep.matcher import Matcher, WaitingEvents
from millstream.common.errors import InvalidProgramError
from millstream.common.pickles import dump
from millstream.common.time import Duration
from tests.support.paths import DOCS


def is_(letter: str) -> Callable[[str], bool]:
    return lambda event: event[0] == letter


def begin(name: str, **options: Any) -> Pattern:
    return Pattern.begin(name, **options).where(is_(name))


@contextmanager
def traced(trace: Callable[..., Any]) -> Iterator[None]:
    """Calls a trace function; afterwards the earlier one, which measures coverage, continues."""
    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(earlier)


def matches_of(pattern: Pattern, events: str) -> list[str]:
    """Return the matches of events that arrive one per millisecond."""
    automaton, runs = Automaton(compile_pattern(pattern)), Runs()
    matches = [m for index, event in enumerate(events.split()) for m in automaton.event(runs, event, index + 1)]
    return [" ".join(e for events in match_of(m).values() for e in events) for m in matches]


# --- documented answers


def test_cep_docs_examples_pass() -> None:
    page = DOCS / "reference" / "cep.md"
    outcome = doctest.testfile(str(page), module_relative=False)
    assert outcome.failed == 0 and outcome.attempted > 30


@pytest.mark.parametrize(
    ("join", "matches"),
    [("next", []), ("followed_by", ["a b1"]), ("followed_by_any", ["a b1", "a b2"])],
)
def test_pattern_contiguity(join: str, matches: list[str]) -> None:
    assert matches_of(getattr(begin("a"), join)("b").where(is_("b")), "a c b1 b2") == matches


@pytest.mark.parametrize(
    ("inner", "matches"),
    [
        ("consecutive", {"a b1 c", "a b2 c", "a b3 c"}),
        (None, {"a b1 c", "a b2 c", "a b3 c", "a b1 b2 c", "a b1 b2 b3 c", "a b2 b3 c"}),
        (
            "allow_combinations",
            {"a b1 c", "a b2 c", "a b3 c", "a b1 b2 c", "a b1 b2 b3 c", "a b2 b3 c", "a b1 b3 c"},
        ),
    ],
)
def test_pattern_loops(inner: str | None, matches: set[str]) -> None:
    loop = begin("a").followed_by_any("b").where(is_("b")).one_or_more()
    if inner is not None:
        getattr(loop, inner)()
    assert set(matches_of(loop.followed_by("c").where(is_("c")), "a b1 d b2 d b3 c")) == matches


@pytest.mark.parametrize(
    ("strategy", "matches"),
    [
        (AfterMatchSkipStrategy.no_skip(), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (AfterMatchSkipStrategy.skip_to_next(), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (AfterMatchSkipStrategy.skip_past_last_event(), ["b1 b2 b3 c"]),
        (AfterMatchSkipStrategy.skip_to_first("b"), ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
        (AfterMatchSkipStrategy.skip_to_last("b"), ["b1 b2 b3 c", "b3 c"]),
    ],
)
def test_after_match_skip_strategies(strategy: AfterMatchSkipStrategy, matches: list[str]) -> None:
    pattern = begin("b", skip_strategy=strategy).one_or_more().consecutive().next("c").where(is_("c"))
    assert matches_of(pattern, "b1 b2 b3 c") == matches


def test_not_followed_by_ends_with_an_optional_successor() -> None:
    pattern = (
        (begin("a").not_followed_by("b").where(is_("b")).followed_by("c").where(is_("c")).optional())
        .followed_by("d")
        .where(is_("d"))
    )
    assert matches_of(pattern, "a c b d") == ["a c d"]
    assert matches_of(pattern, "a b d") == []


# --- conditions


def test_pattern_accepts_conditions_of_every_form() -> None:
    class Big(SimpleCondition):
        def filter(self, event: int) -> bool:
            return event > 10

    class Rising(IterativeCondition):
        def filter(self, event: int, ctx: Any) -> bool:
            return all(event > e for e in ctx.get_events_for_pattern("n"))

    def count(condition: Any) -> int:
        automaton, runs = Automaton(compile_pattern(Pattern.begin("n").where(condition).times(2))), Runs()
        return sum(len(automaton.event(runs, n, index)) for index, n in enumerate([20, 5, 30, 11, 40]))

    assert count(lambda event: event > 10) == count(Big()) == count(SimpleCondition.of(lambda e: e > 10)) == 3
    assert count(Rising()) == count(lambda event, ctx: all(event > e for e in ctx.get_events_for_pattern("n"))) == 4
    assert count(lambda event, limit=10: event > limit) == 3


def test_pattern_rejects_invalid_conditions() -> None:
    with pytest.raises(InvalidProgramError, match="takes a function of the event"):
        Pattern.begin("a").where("a")
    with pytest.raises(InvalidProgramError, match="takes 3 arguments"):
        Pattern.begin("a").where(lambda a, b, c: True)


def test_simple_condition_is_evaluated_once_per_event() -> None:
    evaluated: list[int] = []
    begin = Pattern.begin("a").where(lambda e: e < 100)
    pattern = begin.followed_by_any("b").where(lambda e: evaluated.append(e) or False)  # type: ignore[func-returns-value]
    automaton, runs = Automaton(compile_pattern(pattern)), Runs()
    for n in range(50):
        automaton.event(runs, n, n)
    assert runs.queue is not None and len(runs.queue) == 51
    evaluated.clear()
    automaton.event(runs, 200, 200)
    assert evaluated == [200]


def test_conditions_are_evaluated_only_where_flink_does() -> None:
    # The second condition would raise for events that the first rejects.
    pattern = Pattern.begin("a").where(lambda e: isinstance(e, int)).where(lambda e: e > 1).next("b")
    automaton, runs = Automaton(compile_pattern(pattern)), Runs()
    assert not automaton.event(runs, "text", 1)
    assert runs.is_idle


def test_automaton_with_many_conditions_compiles_transitions_lazily() -> None:
    pattern = Pattern.begin("p0").where(lambda e: e % 2 == 0).optional()
    for n in range(1, 12):
        pattern = pattern.next(f"p{n}").where(lambda e, n=n: e % (n + 2) == 0).optional()
    automaton, runs = Automaton(compile_pattern(pattern)), Runs()
    assert len(automaton.event(runs, 6, 1)) == 3  # by 2, by 3 and by 6: each a match of one event


# --- state


def test_runs_pickle_each_event_once() -> None:
    pattern = Pattern.begin("a").where(lambda e: e[0] == 0).followed_by_any("b").where(lambda e: e[0] > 0).one_or_more()
    pattern.allow_combinations()
    automaton, runs = Automaton(compile_pattern(pattern)), Runs()
    for n in range(12):
        automaton.event(runs, (n, "x" * 100), n + 1)
    assert runs.queue is not None
    many, size = len(runs.queue), len(dump(runs))
    cells = {id(c) for run in runs.queue for c in _chain(run[2])}
    assert many > 2_000
    # At most one cell per run, since a run creates a cell when it takes an event.
    assert len(cells) <= many
    assert size < many * 200
    again = pickle.loads(dump(runs))
    assert [(r[0], r[1], match_of(r[2])) for r in again.queue] == [(r[0], r[1], match_of(r[2])) for r in runs.queue]


def test_runs_pickle_a_shared_history_once() -> None:
    history: Any = None
    for n in range(1_000):
        history = (history, "a", n, n, 0)
    longest = ((0, 0), "a", history)
    # Ten thousand runs share one history of a thousand events.
    few, many = Runs(), Runs()
    few.queue = [longest]
    many.queue = [(longest[0], "a", (longest[2], "a", "b", 2_000, n)) for n in range(10_000)]
    assert len(dump(many)) - len(dump(few)) < 10_000 * 80
    assert len(_chain(pickle.loads(dump(many)).queue[-1][2])) == 1_001


def _chain(cell: Any) -> list[Any]:
    cells = []
    while cell is not None:
        cells.append(cell)
        cell = cell[0]
    return cells


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("skip", ["no_skip", "skip_to_next", "skip_past_last_event"])
def test_automaton_cost_per_event_is_linear_in_the_runs(skip: str, times: int) -> None:
    pattern = begin("a", skip_strategy=getattr(AfterMatchSkipStrategy, skip)())
    automaton = Automaton(compile_pattern(pattern.followed_by_any("b").where(is_("b")).times(times)))
    steps = {}
    for many in (100, 1_000):
        runs = Runs()
        for n in range(many):
            automaton.event(runs, "a", n + 1)
        counter = [0]

        def trace(frame: Any, event: str, arg: Any, counter: list[int] = counter) -> Any:
            counter[0] += event == "line"
            return trace

        with traced(trace):
            automaton.event(runs, "b", many + 1)
        steps[many] = counter[0]
    assert steps[1_000] < 15 * steps[100]


def test_automaton_rejects_a_run_in_a_removed_state() -> None:
    runs = Runs()
    Automaton(compile_pattern(begin("a").next("b").where(is_("b")).times(2))).event(runs, "a", 1)
    other = Automaton(compile_pattern(begin("a").next("c").where(is_("c"))))
    with pytest.raises(PatternChangedError, match=r"State b:0 does not exist in the NFA\. The pattern has c, a"):
        other.event(runs, "b", 2)


def test_matcher_key_is_idle_after_its_runs_end() -> None:
    matcher = Matcher(Automaton(compile_pattern(begin("a").followed_by("b").where(is_("b")).within(10))))
    runs = Runs()
    assert matcher.fire(runs, [(5, "a")], 5) == []
    assert not runs.is_idle and runs.timers == [15]
    assert "b after a=['a']" in repr(runs)
    ((cell, timestamp, timed_out),) = matcher.fire(runs, [], 15)
    assert (match_of(cell), timestamp, timed_out) == ({"a": ["a"]}, 15, True)
    assert runs.is_idle


def test_matcher_registers_one_timer_per_start_time() -> None:
    plain = begin("a").followed_by("b").where(is_("b"))
    runs = Runs()
    Matcher(Automaton(compile_pattern(plain.within(10)))).fire(runs, [(4, "c"), (5, "a"), (6, "c"), (7, "a")], 7)
    # The second timer is registered when the first fires.
    assert runs.timers == [15]
    # A window since the previous event has no timer of its own: any timer ends an expired run. As in Flink, an event
    # registers a timer if an earlier event that was processed with it began a run.
    guarded = begin("a").followed_by("b").where(is_("b")).within(3, WithinType.PREVIOUS_AND_CURRENT).within(10)
    matcher, runs = Matcher(Automaton(compile_pattern(guarded))), Runs()
    matcher.fire(runs, [(4, "c"), (5, "a"), (6, "c")], 6)
    assert runs.timers == [15, 16]
    matcher.fire(runs, [(7, "c")], 7)
    assert runs.timers == [15, 16]
    # Nor has a run that began at 0.
    matcher, runs = Matcher(Automaton(compile_pattern(begin("a").followed_by("b").where(is_("b")).within(10)))), Runs()
    matcher.fire(runs, [(0, "a")], 0)
    assert runs.timers == [] and not runs.is_idle
    matcher.fire(runs, [(5, "a"), (6, "c")], 6)
    assert runs.timers == [15, 16]


# --- Java's heap


def test_priority_queue_orders_elements_as_java_does() -> None:
    # The arrays were printed by java.util.PriorityQueue of Java 17, comparing the first letter only.
    heap: list[Any] = []
    for element in ["d1", "b1", "c1", "a1", "b2", "a2", "d2", "a3"]:
        add(heap, (element[0], element))
    assert [e[1] for e in heap] == ["a1", "a3", "a2", "b1", "b2", "c1", "d2", "d1"]
    assert poll(heap)[1] == "a1"
    assert [e[1] for e in heap] == ["a3", "b1", "a2", "d1", "b2", "c1", "d2"]
    retained = keep(heap, "b")
    assert [e[1] for e in retained] == ["b1", "c1", "b2", "d1", "d2"]
    assert keep(retained, "a") is retained


def test_priority_queue_shrinks_to_the_same_order_as_a_rebuild() -> None:
    dice = random.Random(3)
    for size in range(60):
        heap: list[Any] = []
        for n in range(size):
            add(heap, (dice.randrange(20) if size % 2 else n // 3, n))
        shrinking = Shrinking(list(heap))
        for lower_bound in range(0, 24, dice.choice([1, 2, 5])):
            heap = keep(heap, lower_bound)
            shrinking.keep(lower_bound)
            assert shrinking.rest() == heap
            assert shrinking.least() == (heap[0][0] if heap else None)


# --- rejected patterns


@pytest.mark.parametrize(
    ("build", "error_text"),
    [
        (lambda: begin("a").next("a"), "Duplicate pattern name: a. Names must be unique"),
        (lambda: Pattern.begin(begin("a")).next("a"), "Duplicate pattern name: a"),
        (
            lambda: begin("a").one_or_more().times(2),
            "Already applied quantifier to this Pattern. Current quantifier is",
        ),
        (lambda: begin("a").times(0), "You should give a positive number greater than 0"),
        (lambda: begin("a").times(-1, 2), "The from should be a positive number"),
        (lambda: begin("a").times(3, 2), "The to should be a number greater than or equal to from: 3."),
        (lambda: begin("a").optional().optional(), "Optional already applied!"),
        (lambda: begin("a").not_next("b").optional(), "NOT pattern cannot be optional"),
        (
            lambda: begin("a").one_or_more().greedy().next("b").optional(),
            "Optional pattern cannot be preceded by greedy pattern",
        ),
        (lambda: begin("a").not_next("b").one_or_more(), "Option not applicable to NOT pattern"),
        (lambda: begin("a").not_next("b").greedy(), "Option not applicable to NOT pattern"),
        (lambda: begin("a").greedy(), "Option not applicable to singleton quantifier"),
        (lambda: begin("a").one_or_more().allow_combinations().greedy(), "Option not applicable to FollowedByAny"),
        (lambda: Pattern.begin(begin("a")).one_or_more().greedy(), "Option not applicable to group pattern"),
        (lambda: begin("a").consecutive(), "Consecutive not applicable to Quantifier"),
        (lambda: begin("a").one_or_more().consecutive().consecutive(), "Consecutive already applied!"),
        (lambda: begin("a").allow_combinations(), "Combinations not applicable to Quantifier"),
        (lambda: begin("a").one_or_more().allow_combinations().allow_combinations(), "Combinations already applied!"),
        (
            lambda: begin("a").one_or_more().allow_combinations().consecutive(),
            "You can apply either combinations or consecutive, not both!",
        ),
        (lambda: begin("a").until(is_("b")), "The until condition is only applicable to looping states."),
        (
            lambda: begin("a").one_or_more().until(is_("b")).until(is_("b")),
            "Only one until condition can be applied.",
        ),
        (lambda: Pattern.begin(begin("a")).where(is_("b")), "GroupPattern does not support where clause."),
        (lambda: Pattern.begin(begin("a")).or_(is_("b")), "GroupPattern does not support or clause."),
        (lambda: Pattern.begin(begin("a")).subtype(str), "GroupPattern does not support subtype clause."),
        (lambda: begin("a").optional().not_next("b"), "Specifying a pattern with an optional path to NOT"),
        (lambda: begin("a").optional().not_followed_by("b"), "Specifying a pattern with an optional path to NOT"),
        (lambda: begin("a").not_followed_by("b"), "NotFollowedBy is not supported without windowTime"),
        (
            lambda: begin("a", skip_strategy=AfterMatchSkipStrategy.skip_to_first("z")),
            "The pattern name specified in AfterMatchSkipStrategy can not be found in the given Pattern",
        ),
        (
            lambda: begin("a").within(5, WithinType.PREVIOUS_AND_CURRENT).within(4),
            "The window length between the previous and current event cannot be larger than",
        ),
        (lambda: Pattern.begin(begin("a").optional()).one_or_more(), "would never end"),
        (lambda: Pattern.begin(begin("a").optional()).not_next("b"), "Specifying a pattern with an optional path"),
        (lambda: Pattern.begin(""), "must not be empty and must not contain a colon"),
        (lambda: begin("a").next("b:0"), "must not be empty and must not contain a colon"),
        (lambda: begin("a").not_next(begin("b")), "a group cannot be negated"),  # type: ignore[arg-type]
        (lambda: begin("a").within("1 minute"), "for example Duration.of_minutes(10)"),  # type: ignore[arg-type]
    ],
)
def test_compile_pattern_rejects_malformed_patterns(build: Callable[[], Pattern], error_text: str) -> None:
    with pytest.raises(MalformedPatternError) as refused:
        compile_pattern(build())
    assert error_text in str(refused.value)


def test_compile_pattern_accepts_combinations_after_greedy() -> None:
    compile_pattern(begin("a").one_or_more().greedy().allow_combinations())


def test_cep_pattern_rejects_a_malformed_pattern_when_applied() -> None:
    from millstream.datastream import StreamExecutionEnvironment

    events = StreamExecutionEnvironment.get_execution_environment().from_collection(["a"])
    with pytest.raises(MalformedPatternError, match="within"):
        CEP.pattern(events, begin("a").not_followed_by("b"))


def test_compiled_pattern_can_be_empty() -> None:
    assert compile_pattern(begin("a").optional().next("b").times(0, 2)).can_be_empty()
    assert not compile_pattern(begin("a").optional().next("b")).can_be_empty()


def test_pattern_getters() -> None:
    pattern = begin("a").times(2, 3).within(Duration.of_seconds(1))
    times = pattern.get_times()
    assert times is not None and (times.get_from(), times.get_to(), times.get_window_size()) == (2, 3, None)
    assert pattern.get_window_size() == 1_000 and pattern.get_window_size(WithinType.PREVIOUS_AND_CURRENT) is None
    assert pattern.get_until_condition() is None and not pattern.get_after_match_skip_strategy().is_skip_strategy()


def test_rich_condition_without_context_names_the_cause() -> None:
    with pytest.raises(InvalidProgramError, match="must call super"):
        RichIterativeCondition().get_runtime_context()


# --- event buffer


def test_event_buffer_orders_by_time_and_arrival() -> None:
    chance = random.Random(3)
    buffer, model, number = WaitingEvents(), [], 0
    for _ in range(300):
        arrivals = [(chance.randrange(60), "key", number + n) for n in range(chance.choice([0, 1, 1, 5, 40]))]
        number += len(arrivals)
        model += arrivals
        buffer.add(sorted(arrivals, key=lambda e: e[0]))
        until = chance.randrange(-1, 70)
        due = sorted((e for e in model if e[0] <= until), key=lambda e: e[0])
        model = [e for e in model if e[0] > until]
        assert buffer.take(until) == due


def test_event_buffer_take_costs_nothing_per_buffered_event() -> None:
    buffer = WaitingEvents()
    buffer.add([(n + 1_000_000, "key", n) for n in range(20_000)])
    steps = 0

    def count(frame: Any, event: str, arg: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return count

    with traced(count):
        for n in range(500):
            buffer.add([(n, "key", n), (n + 900_000, "key", n)])
            assert len(buffer.take(n)) == 1
    assert steps < 500 * 200

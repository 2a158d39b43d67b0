"""Restart strategies: their decisions and configuration."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.common import Configuration, Duration, RestartStrategies, RestartStrategyConfiguration, Time
from millstream.common.errors import InvalidProgramError
from millstream.common.restart_strategy import configured_strategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobmaster.machine.restart import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
    restart_strategy,
)

UNLIMITED = 2**31 - 1

# Printed by the strategies of Flink 2.3.0 itself: name, arguments, then time=delay of each failure, x for the end; all
# in milliseconds. Longer sequences are truncated.
FLINK = """
rate 3 1165 485 : 1380=485 5348=485 8198=485 8198=485 8206=485 10701=485 11662=485 11669=485 11711=x
rate 1 856 448 : 41=448 3836=448 6051=448 6085=x
rate 3 1418 85 : 1400=85 5319=85 7334=85 10734=85 10756=85 10768=85 11474=x
rate 1 893 1 : 44=1 87=x
fixed 4 383 : 2718=383 3957=383 6533=383 6656=383 6685=x
fixed 2 11 : 3431=11 3438=11 6947=x
exp 31 40 1.6 4413 9 : 3282=31 3310=3 5667=40 6678=40 10037=40 11981=40 11990=31 12002=19 14009=40 14016=33
exp 14 358 1.9 3929 1 : 1570=14 1609=x
exp 51 1161 1.3 3960 7 : 70=51 3898=66 7793=86 11069=112 14169=145 15583=189 19314=246 19357=203 21310=x
exp 92 2627 2.9 1493 7 : 34=92 914=266 961=219 3356=92 5645=92 6297=266 6342=221 6362=201 8814=92 8829=77 8836=70
exp 6 1137 2.8 540 8 : 1281=6 1300=16 3456=6 4761=6 4787=16 6231=6 9379=6 9969=6 12233=6 12270=16
exp 16 728 1.2 3121 9 : 1=16 1054=19 4504=16 5863=19 8879=23 8881=21 9091=27 9129=33 10802=39
exp 29 2697 1.8 3285 9 : 20=29 48=1 2883=52 2901=34 2906=29 3958=93 4213=169 4257=125 4306=76 6485=304 7203=547
"""


def build(name: str, numbers: list[float]) -> RestartStrategy:
    if name == "rate":
        return FailureRate(int(numbers[0]), *numbers[1:])
    if name == "fixed":
        return FixedDelay(int(numbers[0]), numbers[1])
    return ExponentialDelay(*numbers[:4], jitter_factor=0.0, attempts=int(numbers[4]))  # type: ignore[arg-type, misc]


@pytest.mark.parametrize("line", FLINK.strip().splitlines())
def test_restart_strategy_decides_like_recorded_flink(line: str) -> None:
    description, failures = line.split(" : ")
    name, *numbers = description.split()
    strategy = build(name, [float(n) for n in numbers])
    for failure in failures.split():
        time, expected = failure.split("=")
        delay = strategy.failed(float(time))
        assert (delay is None) == (expected == "x"), failure
        # Flink truncates a backoff to whole milliseconds.
        assert delay is None or math.isclose(delay, float(expected), abs_tol=1.0), failure


def test_no_restart_ends_the_job_at_once() -> None:
    assert NoRestart().failed(0.0) is None


@given(st.integers(0, 5), st.integers(0, 10))
def test_fixed_delay_counts_attempts(attempts: int, failures: int) -> None:
    strategy = FixedDelay(attempts, 2.0)
    answers = [strategy.failed(float(i)) for i in range(failures)]
    assert answers == ([2.0] * attempts + [None] * 10)[:failures]


@given(st.integers(1, 4), st.integers(1, 10), st.lists(st.integers(0, 6), max_size=30))
@example(max_failures=1, interval=5, gaps=[0, 5])
@example(max_failures=1, interval=5, gaps=[0, 6])
def test_failure_rate_counts_failures_in_the_interval(max_failures: int, interval: int, gaps: list[int]) -> None:
    strategy = FailureRate(max_failures, interval, 3.0)
    times: list[int] = []
    for gap in gaps:
        times.append((times[-1] if times else 0) + gap)
        now = times[-1]
        recent = [t for t in times if now - interval <= t]
        assert strategy.failed(now) == (3.0 if len(recent) <= max_failures else None)


def test_failure_rate_bounds_its_memory() -> None:
    strategy = FailureRate(2, 10.0, 1.0)
    for i in range(1000):
        strategy.failed(i * 6.0)
    assert len(strategy._failures) <= 3


def exponential(jitter: float = 0.5, **changes: Any) -> ExponentialDelay:
    numbers = {
        "initial_backoff": 1.0,
        "max_backoff": 10.0,
        "multiplier": 2.0,
        "reset_threshold": 100.0,
        "jitter_factor": 0.1,
    }
    return ExponentialDelay(**{**numbers, "jitter": lambda: jitter, **changes})


def fail_at_each_restart(strategy: ExponentialDelay, failures: int, ran: float = 0.0) -> list[float | None]:
    now, delays = 1000.0, []
    for _ in range(failures):
        delay = strategy.failed(now)
        delays.append(delay)
        now += (delay or 0.0) + ran
    return delays


def test_exponential_delay_grows_to_its_maximum() -> None:
    assert fail_at_each_restart(exponential(), 7) == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_exponential_delay_resets_after_a_stable_run() -> None:
    assert fail_at_each_restart(exponential(), 4, ran=99.0) == [1.0, 2.0, 4.0, 8.0]
    assert fail_at_each_restart(exponential(), 4, ran=100.0) == [1.0, 1.0, 1.0, 1.0]


def test_exponential_delay_counts_attempts_since_the_reset() -> None:
    assert fail_at_each_restart(exponential(attempts=2), 4) == [1.0, 2.0, None, None]
    assert fail_at_each_restart(exponential(attempts=2), 4, ran=100.0) == [1.0, 1.0, 1.0, 1.0]


def test_exponential_delay_merges_failures_before_the_restart() -> None:
    strategy = exponential(attempts=1)
    assert strategy.failed(50.0) == 1.0
    assert strategy.failed(50.25) == 0.75
    assert strategy.failed(51.0) is None


def test_exponential_delay_tolerates_a_clock_set_back() -> None:
    strategy = exponential()
    strategy.failed(1e9)
    assert strategy.failed(0.0) == 10.0


@given(
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 0.99),
    st.floats(1.01, 5),
    st.integers(1, 30),
)
def test_exponential_delay_jitter_stays_in_bounds(
    jitter: float, factor: float, multiplier: float, failures: int
) -> None:
    strategy = exponential(jitter, jitter_factor=factor, multiplier=multiplier)
    for i, delay in enumerate(fail_at_each_restart(strategy, failures)):
        backoff = multiplier**i
        assert delay is not None
        assert 1.0 <= delay <= 10.0
        assert min(10.0, backoff * (1 - factor)) <= delay * (1 + 1e-9)
        assert delay <= max(1.0, backoff * (1 + factor)) * (1 + 1e-9)


def test_exponential_delay_jitter_reaches_both_bounds() -> None:
    low, high = exponential(0.0, jitter_factor=0.5), exponential(1.0, jitter_factor=0.5)
    assert fail_at_each_restart(low, 4) == [1.0, 1.0, 2.0, 4.0]
    assert fail_at_each_restart(high, 4) == [1.5, 3.0, 6.0, 10.0]


def test_exponential_delay_never_overflows() -> None:
    delays = fail_at_each_restart(exponential(multiplier=100.0, jitter_factor=1.0, jitter=0.9), 2000)
    assert delays[-1] == 10.0


def configured(settings: dict[str, str], checkpointing: bool = True) -> RestartStrategy:
    return restart_strategy(Configuration.from_dict(settings), checkpointing, jitter=lambda: 0.5)


def test_restart_strategy_default_depends_on_checkpointing() -> None:
    assert configured({}, checkpointing=False) == NoRestart()
    # Flink 2.3: RestartBackoffTimeStrategyFactoryLoader.getDefaultRestartStrategyFactory.
    default = configured({}, checkpointing=True)
    assert isinstance(default, ExponentialDelay)
    assert default == ExponentialDelay(1.0, 60.0, 1.5, 3600.0, 0.1, UNLIMITED, default.jitter)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", NoRestart()),
        ("off", NoRestart()),
        ("disable", NoRestart()),
        ("fixed-delay", FixedDelay(1, 1.0)),
        ("FixedDelay", FixedDelay(1, 1.0)),
        ("failure-rate", FailureRate(1, 60.0, 1.0)),
        ("failurerate", FailureRate(1, 60.0, 1.0)),
    ],
)
@pytest.mark.parametrize("key", ["restart-strategy.type", "restart-strategy"])
@pytest.mark.parametrize("checkpointing", [True, False])
def test_restart_strategy_types_and_their_defaults(
    key: str, name: str, expected: RestartStrategy, checkpointing: bool
) -> None:
    assert configured({key: name}, checkpointing) == expected


def test_exponential_delay_defaults() -> None:
    strategy = configured({"restart-strategy.type": "exponential-delay"})
    assert isinstance(strategy, ExponentialDelay)
    assert strategy == ExponentialDelay(1.0, 60.0, 1.5, 3600.0, 0.1, UNLIMITED, strategy.jitter)


def test_restart_strategy_type_key_overrides_the_deprecated_key() -> None:
    assert configured({"restart-strategy": "fixed-delay", "restart-strategy.type": "none"}) == NoRestart()


def test_restart_strategy_reads_every_key() -> None:
    fixed = {"type": "fixed-delay", "fixed-delay.attempts": "3", "fixed-delay.delay": "10 s"}
    rate = {
        "type": "failure-rate",
        "failure-rate.max-failures-per-interval": "4",
        "failure-rate.failure-rate-interval": "5 min",
        "failure-rate.delay": "250 ms",
    }
    exponential = {
        "type": "exponential-delay",
        "exponential-delay.initial-backoff": "2 s",
        "exponential-delay.max-backoff": "2 min",
        "exponential-delay.backoff-multiplier": "3",
        "exponential-delay.reset-backoff-threshold": "10 min",
        "exponential-delay.jitter-factor": "0.2",
        "exponential-delay.attempts-before-reset-backoff": "7",
    }
    say = [configured({f"restart-strategy.{k}": v for k, v in keys.items()}) for keys in (fixed, rate, exponential)]
    assert say[:2] == [FixedDelay(3, 10.0), FailureRate(4, 300.0, 0.25)]
    assert isinstance(say[2], ExponentialDelay)
    assert say[2] == ExponentialDelay(2.0, 120.0, 3.0, 600.0, 0.2, 7, say[2].jitter)
    assert [s.describe() for s in say] == [
        "restart strategy fixed-delay (attempts 3, delay 10 s)",
        "restart strategy failure-rate (failures 4 in 5 min, delay 250 ms)",
        "restart strategy exponential-delay (from 2 s to 2 min, multiplier 3.0, jitter 0.2, reset after 10 min, "
        "attempts 7)",
    ]
    assert NoRestart().describe() == "restart strategy none"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "often"}, "restart-strategy.type is 'often': it must be none, fixed-delay, failure-rate or expon"),
        ({"type": "fixed-delay", "fixed-delay.attempts": "-1"}, "fixed-delay.attempts is -1: it must be at least 0"),
        ({"type": "fixed-delay", "fixed-delay.delay": "soon"}, "fixed-delay.delay: 'soon' is not a duration"),
        ({"type": "failure-rate", "failure-rate.max-failures-per-interval": "0"}, "interval is 0: .* at least 1"),
        ({"type": "failure-rate", "failure-rate.failure-rate-interval": "0"}, "interval is 0 ms: .* at least 1 ms"),
        ({"type": "exponential-delay", "exponential-delay.backoff-multiplier": "1"}, "1.0: it must be greater than 1"),
        ({"type": "exponential-delay", "exponential-delay.jitter-factor": "1.1"}, "1.1: it must be from 0 to 1"),
        ({"type": "exponential-delay", "exponential-delay.initial-backoff": "2 min"}, "not be longer than .* 1 min"),
        ({"type": "exponential-delay", "exponential-delay.attempts-before-reset-backoff": "0"}, "at least 1"),
    ],
)
def test_restart_strategy_rejects_invalid_options(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        configured({f"restart-strategy.{k}": v for k, v in settings.items()})


MADE = [
    (RestartStrategies.no_restart(), NoRestart()),
    (RestartStrategies.fixed_delay_restart(3, 1500), FixedDelay(3, 1.5)),
    (RestartStrategies.fixed_delay_restart(3, timedelta(seconds=2)), FixedDelay(3, 2.0)),
    (RestartStrategies.failure_rate_restart(2, Time.minutes(1), Duration.of_seconds(1)), FailureRate(2, 60.0, 1.0)),
]


@pytest.mark.parametrize(("strategy", "expected"), MADE)
def test_set_restart_strategy_accepts_strategy_objects(
    strategy: RestartStrategyConfiguration, expected: RestartStrategy
) -> None:
    env = StreamExecutionEnvironment()
    with pytest.warns(DeprecationWarning, match="set restart-strategy.type"):
        env.set_restart_strategy(strategy)
    assert restart_strategy(env.get_configuration(), checkpointing=False) == expected
    with pytest.warns(DeprecationWarning, match="restart-strategy.type"):
        assert env.get_restart_strategy() == strategy
    assert hash(configured_strategy(env.get_configuration())) == hash(strategy)


def test_exponential_delay_restart_object() -> None:
    strategy = RestartStrategies.exponential_delay_restart(1000, 60_000, 2.0, 3_600_000, 0.5)
    config = Configuration()
    strategy.write_to(config)
    assert configured_strategy(config) == strategy
    decides = restart_strategy(config, checkpointing=False)
    assert isinstance(decides, ExponentialDelay)
    assert decides == ExponentialDelay(1.0, 60.0, 2.0, 3600.0, 0.5, UNLIMITED, decides.jitter)
    assert strategy.get_description() == (
        "exponential-delay (initial backoff 1 s, max backoff 1 min, backoff multiplier 2.0, "
        "reset backoff threshold 1 h, jitter factor 0.5, attempts before reset backoff unlimited)"
    )
    assert (strategy.get_max_backoff(), strategy.get_jitter_factor()) == (timedelta(minutes=1), 0.5)


def test_fall_back_restart_keeps_the_configuration() -> None:
    config = Configuration.from_dict({"restart-strategy.type": "none"})
    RestartStrategies.fall_back_restart().write_to(config)
    assert config.to_dict() == {"restart-strategy.type": "none"}
    assert configured_strategy(Configuration()) == RestartStrategies.fall_back_restart()


def test_restart_strategy_object_getters() -> None:
    fixed = RestartStrategies.fixed_delay_restart(3, 1500)
    assert (fixed.get_restart_attempts(), fixed.get_delay_between_attempts_interval()) == (
        3,
        timedelta(milliseconds=1500),
    )
    assert fixed != RestartStrategies.fixed_delay_restart(4, 1500)
    assert fixed != RestartStrategies.no_restart()
    rate = RestartStrategies.failure_rate_restart(2, 1000, 10)
    assert (rate.get_max_failure_rate(), rate.get_failure_interval()) == (2, timedelta(seconds=1))
    assert rate.get_delay_between_attempts_interval() == timedelta(milliseconds=10)


@pytest.mark.parametrize("attempts", [-1, "3", True])
def test_fixed_delay_restart_rejects_invalid_attempts(attempts: Any) -> None:
    with pytest.raises(InvalidProgramError, match="restart-strategy.fixed-delay.attempts is"):
        RestartStrategies.fixed_delay_restart(attempts, 1000)


def test_set_restart_strategy_rejects_other_objects() -> None:
    with pytest.warns(DeprecationWarning), pytest.raises(InvalidProgramError, match="not 'often'"):
        StreamExecutionEnvironment().set_restart_strategy("often")  # type: ignore[arg-type]

"""RestartStrategies: restart options.

`millstream.jobmaster.restart` implements the strategies.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Union

from millstream.common.aliases import Value
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.setting import (
    DurationSetting,
    FloatSetting,
    IntegerSetting,
    Limit,
    Setting,
    TextSetting,
    at_least,
    in_words,
)
from millstream.common.time import Duration, Time, to_millis

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]

# Flink's number for unlimited attempts.
UNLIMITED = 2**31 - 1

_LENGTH = at_least(0, in_words)
_SOME_TIME = at_least(1, in_words)

TYPE = TextSetting("restart-strategy.type", None, ("restart-strategy",))
FIXED_DELAY_ATTEMPTS = IntegerSetting("restart-strategy.fixed-delay.attempts", 1, limit=at_least(0))
FIXED_DELAY_DELAY = DurationSetting("restart-strategy.fixed-delay.delay", 1000, limit=_LENGTH)
FAILURE_RATE_FAILURES = IntegerSetting("restart-strategy.failure-rate.max-failures-per-interval", 1, limit=at_least(1))
FAILURE_RATE_INTERVAL = DurationSetting("restart-strategy.failure-rate.failure-rate-interval", 60_000, limit=_SOME_TIME)
FAILURE_RATE_DELAY = DurationSetting("restart-strategy.failure-rate.delay", 1000, limit=_LENGTH)
INITIAL_BACKOFF = DurationSetting("restart-strategy.exponential-delay.initial-backoff", 1000, limit=_SOME_TIME)
MAX_BACKOFF = DurationSetting("restart-strategy.exponential-delay.max-backoff", 60_000, limit=_SOME_TIME)
BACKOFF_MULTIPLIER = FloatSetting(
    "restart-strategy.exponential-delay.backoff-multiplier", 1.5, limit=Limit("greater than 1", lambda n: n > 1)
)
RESET_BACKOFF_THRESHOLD = DurationSetting(
    "restart-strategy.exponential-delay.reset-backoff-threshold", 3_600_000, limit=_SOME_TIME
)
JITTER_FACTOR = FloatSetting(
    "restart-strategy.exponential-delay.jitter-factor", 0.1, limit=Limit("from 0 to 1", lambda n: 0 <= n <= 1)
)
EXPONENTIAL_ATTEMPTS = IntegerSetting(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff", UNLIMITED, limit=at_least(1)
)

_SPELLINGS = {
    "none": "none", "off": "none", "disable": "none",
    "fixed-delay": "fixed-delay", "fixeddelay": "fixed-delay",
    "failure-rate": "failure-rate", "failurerate": "failure-rate",
    "exponential-delay": "exponential-delay", "exponentialdelay": "exponential-delay",
}  # fmt: skip

Length = Union[int, timedelta, Duration, Time]


def strategy_type(config: Configuration) -> str | None:
    """Return the configured type of strategy, None if unset.

    Example:
        >>> strategy_type(Configuration.from_dict({"restart-strategy": "FixedDelay"}))
        'fixed-delay'
    """
    name = TYPE.read(config)
    if name is None:
        return None
    if name.lower() not in _SPELLINGS:
        raise InvalidProgramError(
            f"{TYPE.key} is {name!r}: it must be none, fixed-delay, failure-rate or exponential-delay."
        )
    return _SPELLINGS[name.lower()]


def check_backoffs(initial: int, max_backoff: int) -> None:
    if initial > max_backoff:
        raise InvalidProgramError(
            f"{INITIAL_BACKOFF.key} is {in_words(initial)}: "
            f"it must not be longer than {MAX_BACKOFF.key}, which is {in_words(max_backoff)}."
        )


class RestartStrategyConfiguration:
    """A restart strategy with its parameters; equal if type and parameters are."""

    def __init__(self, *values: tuple[Setting[Value], Value]) -> None:
        self._values = values
        self._config = Configuration()
        for setting, value in values:
            setting.write(self._config, value)

    def get_description(self) -> str:
        """Return a description of the strategy."""
        (_, name), *numbers = self._values
        words = ", ".join(f"{s.key.rsplit('.', 1)[1].replace('-', ' ')} {_words(s, value)}" for s, value in numbers)
        return f"{name} ({words})" if words else str(name)

    def write_to(self, config: Configuration) -> None:
        """Set the strategy's options in a configuration."""
        config.add_all(self._config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._config == other._config

    def __hash__(self) -> int:
        return hash(self._config)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.get_description()})"


class RestartStrategies:
    """Creates restart strategies. Durations are milliseconds, a `timedelta` or a `Duration`.

    The options `restart-strategy.type` and `restart-strategy.<type>.*` are equivalent.

    Example:
        >>> RestartStrategies.fixed_delay_restart(3, 10_000).get_description()
        'fixed-delay (attempts 3, delay 10 s)'
    """

    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """No restarts: the first failure ends the job."""

        def __init__(self) -> None:
            super().__init__((TYPE, "none"))

    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A maximum number of restarts, each after the same delay."""

        def __init__(self, restart_attempts: int, delay_between_attempts_interval: Length) -> None:
            super().__init__(
                (TYPE, "fixed-delay"),
                (FIXED_DELAY_ATTEMPTS, restart_attempts),
                (FIXED_DELAY_DELAY, _millis(delay_between_attempts_interval)),
            )

        def get_restart_attempts(self) -> int:
            """Return the maximum number of restarts."""
            return FIXED_DELAY_ATTEMPTS.read(self._config)

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Return the delay before a restart."""
            return timedelta(milliseconds=FIXED_DELAY_DELAY.read(self._config))

    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts while the failure rate is not exceeded."""

        def __init__(
            self, max_failure_rate: int, failure_interval: Length, delay_between_attempts_interval: Length
        ) -> None:
            super().__init__(
                (TYPE, "failure-rate"),
                (FAILURE_RATE_FAILURES, max_failure_rate),
                (FAILURE_RATE_INTERVAL, _millis(failure_interval)),
                (FAILURE_RATE_DELAY, _millis(delay_between_attempts_interval)),
            )

        def get_max_failure_rate(self) -> int:
            """Return the maximum number of failures within the interval."""
            return FAILURE_RATE_FAILURES.read(self._config)

        def get_failure_interval(self) -> timedelta:
            """Return the interval in which failures are counted."""
            return timedelta(milliseconds=FAILURE_RATE_INTERVAL.read(self._config))

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Return the delay before a restart."""
            return timedelta(milliseconds=FAILURE_RATE_DELAY.read(self._config))

    class ExponentialDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts after a delay that grows with each failure."""

        def __init__(
            self,
            initial_backoff: Length,
            max_backoff: Length,
            backoff_multiplier: float,
            reset_backoff_threshold: Length,
            jitter_factor: float,
            attempts_before_reset_backoff: int = UNLIMITED,
        ) -> None:
            super().__init__(
                (TYPE, "exponential-delay"),
                (INITIAL_BACKOFF, _millis(initial_backoff)),
                (MAX_BACKOFF, _millis(max_backoff)),
                (BACKOFF_MULTIPLIER, backoff_multiplier),
                (RESET_BACKOFF_THRESHOLD, _millis(reset_backoff_threshold)),
                (JITTER_FACTOR, jitter_factor),
                (EXPONENTIAL_ATTEMPTS, attempts_before_reset_backoff),
            )
            check_backoffs(INITIAL_BACKOFF.read(self._config), MAX_BACKOFF.read(self._config))

        def get_initial_backoff(self) -> timedelta:
            """Return the delay after the first failure."""
            return timedelta(milliseconds=INITIAL_BACKOFF.read(self._config))

        def get_max_backoff(self) -> timedelta:
            """Return the longest delay."""
            return timedelta(milliseconds=MAX_BACKOFF.read(self._config))

        def get_backoff_multiplier(self) -> float:
            """Return the factor by which the delay grows."""
            return BACKOFF_MULTIPLIER.read(self._config)

        def get_reset_backoff_threshold(self) -> timedelta:
            """Return the time without a failure after which the delay is reset."""
            return timedelta(milliseconds=RESET_BACKOFF_THRESHOLD.read(self._config))

        def get_jitter_factor(self) -> float:
            """Return the random variation of the delay, as a fraction of it."""
            return JITTER_FACTOR.read(self._config)

        def get_attempts_before_reset_backoff(self) -> int:
            """Return the maximum number of restarts before the delay is reset."""
            return EXPONENTIAL_ATTEMPTS.read(self._config)

    class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
        """The configured strategy, or the default."""

        def __init__(self) -> None:
            super().__init__()

        def get_description(self) -> str:
            return "as configured"

    @staticmethod
    def no_restart() -> NoRestartStrategyConfiguration:
        """Do not restart: the first failure ends the job.

        Example:
            >>> RestartStrategies.no_restart().get_description()
            'none'
        """
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> FallbackRestartStrategyConfiguration:
        """Use the configured strategy, or the default.

        Example:
            >>> RestartStrategies.fall_back_restart().get_description()
            'as configured'
        """
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: Length
    ) -> FixedDelayRestartStrategyConfiguration:
        """Restart up to a number of times, each after the same delay.

        Example:
            >>> RestartStrategies.fixed_delay_restart(3, Duration.of_seconds(10)).get_description()
            'fixed-delay (attempts 3, delay 10 s)'
        """
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: Length, delay_interval: Length
    ) -> FailureRateRestartStrategyConfiguration:
        """Restart while there are not too many failures within an interval.

        Example:
            >>> strategy = RestartStrategies.failure_rate_restart(3, Duration.of_minutes(5), Duration.of_seconds(10))
            >>> strategy.get_description()
            'failure-rate (max failures per interval 3, failure rate interval 5 min, delay 10 s)'
        """
        return RestartStrategies.FailureRateRestartStrategyConfiguration(failure_rate, failure_interval, delay_interval)

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: Length,
        max_backoff: Length,
        backoff_multiplier: float,
        reset_backoff_threshold: Length,
        jitter_factor: float,
        attempts_before_reset_backoff: int = UNLIMITED,
    ) -> ExponentialDelayRestartStrategyConfiguration:
        """Restart after a growing delay; not in PyFlink, named as in Flink's Java API.

        Example:
            >>> strategy = RestartStrategies.exponential_delay_restart(1_000, 60_000, 2.0, 3_600_000, 0.1)
            >>> strategy.get_initial_backoff(), strategy.get_max_backoff(), strategy.get_backoff_multiplier()
            (datetime.timedelta(seconds=1), datetime.timedelta(seconds=60), 2.0)
        """
        return RestartStrategies.ExponentialDelayRestartStrategyConfiguration(
            initial_backoff,
            max_backoff,
            backoff_multiplier,
            reset_backoff_threshold,
            jitter_factor,
            attempts_before_reset_backoff,
        )


def configured_strategy(config: Configuration) -> RestartStrategyConfiguration:
    """Return the configured strategy."""
    kind = strategy_type(config)
    if kind is None:
        return RestartStrategies.fall_back_restart()
    if kind == "none":
        return RestartStrategies.no_restart()
    if kind == "fixed-delay":
        return RestartStrategies.fixed_delay_restart(FIXED_DELAY_ATTEMPTS.read(config), FIXED_DELAY_DELAY.read(config))
    if kind == "failure-rate":
        return RestartStrategies.failure_rate_restart(
            FAILURE_RATE_FAILURES.read(config), FAILURE_RATE_INTERVAL.read(config), FAILURE_RATE_DELAY.read(config)
        )
    return RestartStrategies.exponential_delay_restart(
        INITIAL_BACKOFF.read(config),
        MAX_BACKOFF.read(config),
        BACKOFF_MULTIPLIER.read(config),
        RESET_BACKOFF_THRESHOLD.read(config),
        JITTER_FACTOR.read(config),
        EXPONENTIAL_ATTEMPTS.read(config),
    )


def _millis(length: Length) -> int:
    if isinstance(length, timedelta):
        return length // timedelta(milliseconds=1)
    return to_millis(length)


def _words(setting: Setting[Value], value: Value) -> str:
    if isinstance(setting, DurationSetting):
        return in_words(value)
    return "unlimited" if value == UNLIMITED else str(value)

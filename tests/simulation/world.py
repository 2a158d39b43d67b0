"""The world: a virtual clock, scheduled events, faults and violated invariants."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import NoReturn

from millstream.common.errors import MillstreamError


class DriverDied(BaseException):
    """The driver's process was killed. Not an Exception, so that no code of the driver can catch it."""


class Violated(BaseException):
    """An invariant is violated; the schedule ends here."""


class Injected(MillstreamError):
    """An injected failure of an operation of the driver."""


@dataclass(order=True)
class Event:
    """A scheduled event.

    Attributes:
        of_driver: the driver that causes it; None if it is independent of drivers.
    """

    time: float
    number: int
    action: Callable[[], None] = field(compare=False)
    of_driver: int | None = field(compare=False, default=None)
    cancelled: bool = field(compare=False, default=False)


# The probability of each fault at each opportunity; a schedule scales each by one of _SCALES, so that schedules differ
# in their most frequent faults.
_RATES = {
    "crash": 0.006,
    "error": 0.006,
    "task": 0.25,
    "slot lost": 0.3,
    "write lost": 0.15,
    "write reported lost": 0.15,
    "write slow": 0.15,
    "result late": 0.15,
    "deletes rejected": 0.1,
    "kill": 0.3,
    "cancel": 0.1,
}
_SCALES = (0.0, 0.1, 0.3, 1.0, 3.0)

# The relative probability of a crash or an error at a step: higher at steps at which most errors are possible, lower
# where a driver only searches for a checkpoint.
_STEP_WEIGHTS = {
    "list": 0.2,
    "delete": 15.0,
    "commit": 5.0,
    "recover": 5.0,
    "abort": 5.0,
    "clean-up": 5.0,
    "manifest": 5.0,
}


@lru_cache
def _step_weight(step: str) -> float:
    return next((times for part, times in _STEP_WEIGHTS.items() if part in step), 1.0)


class Faults:
    """Draws faults, with an upper bound on each so that a job can end."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._left = random.choice((0, 1, 2, 3, 5, 8, 13, 20))
        self._rates = {kind: rate * random.choice(_SCALES) for kind, rate in _RATES.items()}
        # In most schedules, the first fault happens after the job has made progress.
        self.is_quiet = True
        self.quiet_for = random.choice((0.0, 1.0, 5.0)) * random.random()
        # Few schedules set the clock, but these do it often.
        self.clock_is_set = random.random() < 0.3
        self._clock_rate = 0.05 * self.clock_is_set
        self._clock_sets_left = 20
        self.happened: Counter[str] = Counter()

    def strikes(self, kind: str, times: float = 1.0) -> bool:
        """Return whether a fault happens here; `times` scales the probability."""
        if not self._left or self.is_quiet or self._random.random() >= self._rates[kind] * times:
            return False
        self._left -= 1
        self.happened[kind] += 1
        return True

    def sets_clock(self) -> bool:
        """Return whether the clock is set now; other faults are independent of this."""
        if self.is_quiet or self._clock_sets_left == 0 or self._random.random() >= self._clock_rate:
            return False
        self._clock_sets_left -= 1
        self.happened["clock set"] += 1
        return True


class World:
    """One schedule: it depends only on its seed."""

    def __init__(self, seed: int, verbose: bool = False) -> None:
        self.random = Random(seed)
        self.faults = Faults(self.random)
        self.now = 1_000.0
        # The offset of the drivers' clock.
        self._clock_error = 0.0
        # The number of the running driver.
        self.driver: int | None = None
        self.violation: str | None = None
        self.verbose = verbose
        self.log: list[str] = []
        self.steps = 0
        self._events: list[Event] = []
        self._number = 0
        self.after(self.faults.quiet_for, self._end_quiet)

    def _end_quiet(self) -> None:
        self.faults.is_quiet = False

    # --- the event log

    def note(self, text: str) -> None:
        """Add a line to the event log; check `verbose` first where formatting the line is expensive."""
        if self.verbose:
            driver = "-" if self.driver is None else self.driver
            self.log.append(f"{self.now - 1_000:9.3f}  driver {driver}  {text}")

    def violate(self, text: str) -> NoReturn:
        if self.violation is None:
            self.violation = text
            self.note(f"VIOLATION: {text}")
        raise Violated(text)

    # --- time

    def after(self, seconds: float, action: Callable[[], None], of_driver: int | None = None) -> None:
        """Schedule an action."""
        self._number += 1
        heapq.heappush(self._events, Event(self.now + seconds, self._number, action, of_driver))

    def clock(self) -> float:
        """Return the time of the drivers' clock, which may be set forwards or back."""
        if self.faults.sets_clock():
            self._clock_error = 10 * self.random.random() - 5
            self.note(f"the clock is {self._clock_error:.3f} s ahead")
        return self.now + self._clock_error

    def sleep(self, seconds: float) -> None:
        """Advance virtual time, and run the events in between."""
        if self._events and self._events[0].time <= self.now + seconds:
            self.wait(seconds, lambda: False)
        else:
            self.now += seconds

    def wait(self, seconds: float, until: Callable[[], bool]) -> None:
        """Advance virtual time until a condition holds, for at most a number of seconds."""
        end = self.now + seconds
        events = self._events
        while not until():
            if not events or events[0].time > end:
                self.now = end
                return
            event = self._pop()
            if not event.cancelled:
                self.now = max(self.now, event.time)
                event.action()

    def _pop(self) -> Event:
        return heapq.heappop(self._events)

    # --- the driver's steps

    def step(self, name: str) -> None:
        """Mark a point before or after an operation of the driver, at which it may die or an error may be injected."""
        self.check_alive()
        self.steps += 1
        if self.steps > 100_000:
            self.violate("the job does not end")
        self.sleep(self.random.random() * 0.005)
        times = _step_weight(name)
        if self.faults.strikes("crash", times):
            self.note(f"the driver dies at {name}")
            self.kill()
        self.check_alive()
        if self.faults.strikes("error", times):
            self.note(f"error at {name}")
            raise Injected(f"injected at {name}")

    def check_alive(self) -> None:
        """Stop the calling driver if it is dead or an invariant is violated."""
        if self.violation is not None:
            raise Violated(self.violation)
        if self.driver is None:
            raise DriverDied

    def kill(self) -> None:
        """Kill the driver at any point: its pending events may still happen, soon, late, or never."""
        for event in list(self._events):
            if event.of_driver is not None and event.of_driver == self.driver:
                event.cancelled = True
                if self.random.random() < 0.7:
                    delay = self._delay_after_death(event.time - self.now)
                    self.after(delay, event.action)
                    # The next driver may die soon after that event.
                    if self.faults.strikes("kill"):
                        self.after(delay + 0.3 * self.random.random(), self.kill_current_driver)
        self.driver = None

    def kill_current_driver(self) -> None:
        """Kill the running driver, if any; its next step raises an error."""
        if self.driver is not None:
            self.note("the driver is killed")
            self.kill()

    def _delay_after_death(self, planned: float) -> float:
        """Return the delay until a pending event of a dead driver."""
        if self.faults.clock_is_set:
            # No delay if the clock is set: a manifest that arrives after the deletion of its job's directory, with a
            # timestamp of a clock that was ahead, would count as the newest.
            return 0.0
        return planned + self.random.choice((0.0, 1.0, 8.0)) * self.random.random()

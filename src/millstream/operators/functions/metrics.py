"""Metrics a user's function can keep: counters, gauges, meters, distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Metric:
    """Something that a function measures."""


class Counter(Metric):
    """A number that goes up and down."""

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Count up."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Count down."""
        self._count -= n

    def get_count(self) -> int:
        """Return the count."""
        return self._count


class Meter(Metric):
    """Counts events, to be shown as a rate."""

    def __init__(self) -> None:
        self._count = 0

    def mark_event(self, value: int = 1) -> None:
        """Count events."""
        self._count += value

    def get_count(self) -> int:
        """Return how many there were."""
        return self._count


class Marks(int):
    """How many events a meter has counted; it is shown as a rate."""


class Distribution(Metric):
    """Remembers count, sum, least and greatest of the values it was given."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0
        self._min: int | None = None
        self._max: int | None = None

    def update(self, value: int) -> None:
        """Take a value."""
        self._count += 1
        self._sum += value
        self._min = value if self._min is None else min(self._min, value)
        self._max = value if self._max is None else max(self._max, value)

    def get_values(self) -> dict[str, Any]:
        """Return count, sum, least and greatest."""
        return {"count": self._count, "sum": self._sum, "min": self._min, "max": self._max}


class MetricGroup:
    """Metrics by name, in groups of groups."""

    def __init__(self, path: tuple[str, ...] = ()) -> None:
        self._path = path
        self._metrics: dict[str, Metric | Callable[[], Any]] = {}
        self._groups: dict[str, MetricGroup] = {}

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a group inside this one; with a value, one of key and value."""
        group = self._groups.setdefault(name, MetricGroup((*self._path, name)))
        return group if extra is None else group.add_group(extra)

    def counter(self, name: str) -> Counter:
        """Make a counter."""
        counter = Counter()
        self._metrics[name] = counter
        return counter

    def gauge(self, name: str, obj: Callable[[], Any]) -> None:
        """Make a gauge: a function that is asked for its value."""
        self._metrics[name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Make a meter."""
        meter = Meter()
        self._metrics[name] = meter
        return meter

    def distribution(self, name: str) -> Distribution:
        """Make a distribution."""
        distribution = Distribution()
        self._metrics[name] = distribution
        return distribution

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield every metric's dotted name and what it shows now."""
        for name, metric in self._metrics.items():
            if isinstance(metric, Counter):
                shown: Any = metric.get_count()
            elif isinstance(metric, Meter):
                shown = Marks(metric.get_count())
            elif isinstance(metric, Distribution):
                shown = metric.get_values()
            elif callable(metric):
                shown = metric()
            yield ".".join((*self._path, name)), shown
        for group in self._groups.values():
            yield from group.values()

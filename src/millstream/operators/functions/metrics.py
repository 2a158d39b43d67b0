"""Metrics of user functions: counters, gauges, meters, distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millstream.common.aliases import Value


class Metric:
    """A metric of a function."""


class Counter(Metric):
    """A count that can increase and decrease."""

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Increase the count."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Decrease the count."""
        self._count -= n

    def get_count(self) -> int:
        """Return the count."""
        return self._count


class Meter(Metric):
    """Counts events; shown as a rate."""

    def __init__(self) -> None:
        self._count = 0

    def mark_event(self, value: int = 1) -> None:
        """Count events."""
        self._count += value

    def get_count(self) -> int:
        """Return the number of events."""
        return self._count


class Marks(int):
    """The number of events of a meter; shown as a rate."""


class Distribution(Metric):
    """Tracks count, sum, minimum and maximum of its values."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0
        self._min: int | None = None
        self._max: int | None = None

    def update(self, value: int) -> None:
        """Add a value."""
        self._count += 1
        self._sum += value
        self._min = value if self._min is None else min(self._min, value)
        self._max = value if self._max is None else max(self._max, value)

    def get_values(self) -> dict[str, int | None]:
        """Return count, sum, minimum and maximum."""
        return {"count": self._count, "sum": self._sum, "min": self._min, "max": self._max}


class MetricGroup:
    """Metrics by name, in nested groups."""

    def __init__(self, path: tuple[str, ...] = ()) -> None:
        self._path = path
        self._metrics: dict[str, Metric | Callable[[], Value]] = {}
        self._groups: dict[str, MetricGroup] = {}

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a nested group; with a value, a key-value group."""
        group = self._groups.setdefault(name, MetricGroup((*self._path, name)))
        return group if extra is None else group.add_group(extra)

    def counter(self, name: str) -> Counter:
        """Create a counter."""
        counter = Counter()
        self._metrics[name] = counter
        return counter

    def gauge(self, name: str, obj: Callable[[], Value]) -> None:
        """Create a gauge from a function that returns its value."""
        self._metrics[name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Create a meter."""
        meter = Meter()
        self._metrics[name] = meter
        return meter

    def distribution(self, name: str) -> Distribution:
        """Create a distribution."""
        distribution = Distribution()
        self._metrics[name] = distribution
        return distribution

    def values(self) -> Iterator[tuple[str, Value]]:
        """Yield the dotted name and current value of every metric."""
        for name, metric in self._metrics.items():
            if isinstance(metric, Counter):
                shown: Value = metric.get_count()
            elif isinstance(metric, Meter):
                shown = Marks(metric.get_count())
            elif isinstance(metric, Distribution):
                shown = metric.get_values()
            elif callable(metric):
                shown = metric()
            yield ".".join((*self._path, name)), shown
        for group in self._groups.values():
            yield from group.values()

"""Metrics of user functions: counters, gauges, meters, distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millstream.common.aliases import Value


class Metric:
    """A metric of a function: the base of counters, meters and distributions."""


class Counter(Metric):
    """A count that can increase and decrease.

    Example:
        >>> from millstream.metrics import MetricGroup
        >>> counter = MetricGroup().counter("queued")
        >>> counter.inc(3)
        >>> counter.dec()
        >>> counter.get_count()
        2
    """

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Increase the count.

        Example:
            >>> counter = MetricGroup().counter("seen")
            >>> counter.inc()
            >>> counter.inc(10)
            >>> counter.get_count()
            11
        """
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Decrease the count.

        Example:
            >>> counter = MetricGroup().counter("seen")
            >>> counter.dec(2)
            >>> counter.get_count()
            -2
        """
        self._count -= n

    def get_count(self) -> int:
        """Return the count.

        Example:
            >>> MetricGroup().counter("seen").get_count()
            0
        """
        return self._count


class Meter(Metric):
    """Counts events; pages and reporters show their rate.

    Example:
        >>> from millstream.metrics import MetricGroup
        >>> meter = MetricGroup().meter("clicks")
        >>> meter.mark_event()
        >>> meter.get_count()
        1
    """

    def __init__(self) -> None:
        self._count = 0

    def mark_event(self, value: int = 1) -> None:
        """Count one event, or several.

        Example:
            >>> meter = MetricGroup().meter("clicks")
            >>> meter.mark_event()
            >>> meter.mark_event(4)
            >>> meter.get_count()
            5
        """
        self._count += value

    def get_count(self) -> int:
        """Return the number of events.

        Example:
            >>> MetricGroup().meter("clicks").get_count()
            0
        """
        return self._count


class Marks(int):
    """The number of events of a meter; shown as a rate."""


class Distribution(Metric):
    """Tracks count, sum, minimum and maximum of its values.

    Example:
        >>> from millstream.metrics import MetricGroup
        >>> sizes = MetricGroup().distribution("sizes")
        >>> for size in (3, 9, 4):
        ...     sizes.update(size)
        >>> sizes.get_values()
        {'count': 3, 'sum': 16, 'min': 3, 'max': 9}
    """

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0
        self._min: int | None = None
        self._max: int | None = None

    def update(self, value: int) -> None:
        """Add a value, an int.

        Example:
            >>> sizes = MetricGroup().distribution("sizes")
            >>> sizes.update(7)
            >>> sizes.get_values()
            {'count': 1, 'sum': 7, 'min': 7, 'max': 7}
        """
        self._count += 1
        self._sum += value
        self._min = value if self._min is None else min(self._min, value)
        self._max = value if self._max is None else max(self._max, value)

    def get_values(self) -> dict[str, int | None]:
        """Return count, sum, minimum and maximum.

        Example:
            >>> MetricGroup().distribution("sizes").get_values()
            {'count': 0, 'sum': 0, 'min': None, 'max': None}
        """
        return {"count": self._count, "sum": self._sum, "min": self._min, "max": self._max}


class MetricGroup:
    """Metrics by name, in nested groups; a function gets its own from the RuntimeContext.

    Example:
        >>> from millstream.datastream import MapFunction
        >>> from millstream.testing import OneInputHarness
        >>> class Count(MapFunction):
        ...     def open(self, runtime_context):
        ...         self.seen = runtime_context.get_metrics_group().counter("seen")
        ...     def map(self, value):
        ...         self.seen.inc()
        ...         return value
        >>> with OneInputHarness(Count()) as harness:
        ...     harness.process_elements(["a", "b"])
        ...     harness.metrics()
        {'Map.seen': 2}
    """

    def __init__(self, path: tuple[str, ...] = ()) -> None:
        self._path = path
        self._metrics: dict[str, Metric | Callable[[], Value]] = {}
        self._groups: dict[str, MetricGroup] = {}

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """Return a nested group; with a second name, the group of that name in it, as for a key and its value.

        Example:
            >>> group = MetricGroup()
            >>> group.add_group("shop", "berlin").counter("orders").inc()
            >>> dict(group.values())
            {'shop.berlin.orders': 1}
        """
        group = self._groups.setdefault(name, MetricGroup((*self._path, name)))
        return group if extra is None else group.add_group(extra)

    def counter(self, name: str) -> Counter:
        """Create a counter.

        Example:
            >>> group = MetricGroup()
            >>> group.counter("seen").inc(2)
            >>> dict(group.values())
            {'seen': 2}
        """
        counter = Counter()
        self._metrics[name] = counter
        return counter

    def gauge(self, name: str, obj: Callable[[], Value]) -> None:
        """Create a gauge from a function that returns its value.

        Example:
            >>> group, queue = MetricGroup(), ["a", "b"]
            >>> group.gauge("queued", lambda: len(queue))
            >>> dict(group.values())
            {'queued': 2}
        """
        self._metrics[name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """Create a meter, which counts events and is shown as a rate.

        Args:
            name: the name of the metric.
            time_span_in_seconds: accepted without effect.

        Example:
            >>> group = MetricGroup()
            >>> group.meter("clicks").mark_event(5)
            >>> dict(group.values())
            {'clicks': 5}
        """
        meter = Meter()
        self._metrics[name] = meter
        return meter

    def distribution(self, name: str) -> Distribution:
        """Create a distribution, which tracks count, sum, minimum and maximum.

        Example:
            >>> group = MetricGroup()
            >>> group.distribution("sizes").update(7)
            >>> dict(group.values())
            {'sizes': {'count': 1, 'sum': 7, 'min': 7, 'max': 7}}
        """
        distribution = Distribution()
        self._metrics[name] = distribution
        return distribution

    def values(self) -> Iterator[tuple[str, Value]]:
        """Yield the dotted name and current value of every metric.

        Example:
            >>> group = MetricGroup()
            >>> group.counter("seen").inc()
            >>> list(group.values())
            [('seen', 1)]
        """
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

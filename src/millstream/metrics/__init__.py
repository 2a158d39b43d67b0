"""PyFlink's import path of user metrics."""

from millstream.operators.functions.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]

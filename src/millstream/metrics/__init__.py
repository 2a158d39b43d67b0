"""Metrics that a user's function keeps, where PyFlink has them."""

from millstream.operators.functions.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]

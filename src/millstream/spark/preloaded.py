"""Loads what PySpark loads with the first call of Java, for processes that are forked later to share it."""

from __future__ import annotations

# Its converter of numpy's numbers asks there whether numpy is installed, and pandas, unittest and protobuf come along.
import pyspark.testing.utils  # noqa: F401

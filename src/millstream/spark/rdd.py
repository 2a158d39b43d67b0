"""RDDs of Python functions, built from Spark's own classes.

PySpark's RDD class would pickle its functions with cloudpickle, for each epoch.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.serializers import NoOpSerializer

SERIALIZER = NoOpSerializer()

# Spark calls it for each partition, with its number and elements.
PartitionFunction = Callable[[int, Iterable[bytes]], Iterator[bytes]]


def interpreter(context: SparkContext, chosen: str | None) -> str:
    """Return the Python executable of tasks: the configured one, or on this machine the current one."""
    own = sys.executable if str(context.master).startswith("local") else context.pythonExec
    return chosen or own


def partitions(context: SparkContext, count: int) -> Any:
    """Return an RDD with a number of partitions of one element each.

    Of a list: for a range, PySpark would add a Python task of its own.
    """
    return context.parallelize([0] * count, count)._jrdd.rdd()


def python_rdd(context: SparkContext, parent: Any, function: PartitionFunction, python: str) -> Any:
    """Return an RDD of a function's results. The function is pickled plainly."""
    jvm: Any = context._jvm
    wrapped = jvm.SimplePythonFunction(
        bytearray(pickle.dumps((function, None, SERIALIZER, SERIALIZER), 5)),
        context.environment,
        context._python_includes,
        python,
        context.pythonVer,
        [],
        context._javaAccumulator,
    )
    return jvm.PythonRDD(parent, wrapped, False, False)

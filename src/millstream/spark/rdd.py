"""RDDs of Python functions, put together from Spark's own parts.

PySpark's RDD class would wrap and pickle its functions with cloudpickle, and for every epoch anew.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.serializers import NoOpSerializer

SERIALIZER = NoOpSerializer()

# What Spark calls for each partition, with its number and its elements.
PartitionFunction = Callable[[int, Iterable[bytes]], Iterator[bytes]]


def interpreter(context: SparkContext, chosen: str | None) -> str:
    """Return the Python that tasks run: the chosen one, or on this machine the very one that runs here."""
    own = sys.executable if str(context.master).startswith("local") else context.pythonExec
    return chosen or own


def partitions(context: SparkContext, count: int) -> Any:
    """Return an RDD of so many partitions, with one element each: what is done there comes with the function.

    It is made of a list and not of a range, of which PySpark would make a Python task of its own, nested in ours.
    """
    return context.parallelize([0] * count, count)._jrdd.rdd()


def python_rdd(context: SparkContext, parent: Any, function: PartitionFunction, python: str) -> Any:
    """Return what a function makes of an RDD's partitions. The function is pickled plainly."""
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

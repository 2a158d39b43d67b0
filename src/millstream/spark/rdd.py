"""RDDs of Python functions, built from Spark's own classes.

PySpark's RDD class would pickle its functions with cloudpickle, for each epoch.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator

from pyspark import SparkContext
from pyspark.serializers import NoOpSerializer

from millstream.common.aliases import JavaObject
from millstream.spark.pyspark_internals import jvm, scala_rdd, simple_python_function

SERIALIZER = NoOpSerializer()

# Spark calls it for each partition, with its number and elements.
PartitionFunction = Callable[[int, Iterable[bytes]], Iterator[bytes]]


def interpreter(context: SparkContext, chosen: str | None) -> str:
    """Return the Python executable of tasks: the configured one, or on this machine the current one."""
    own = sys.executable if str(context.master).startswith("local") else context.pythonExec
    return chosen or own


def partitions(context: SparkContext, count: int) -> JavaObject:
    """Return an RDD with a number of partitions of one element each.

    Of a list: for a range, PySpark would add a Python task of its own.
    """
    return scala_rdd(context.parallelize([0] * count, count))


def python_rdd(context: SparkContext, parent: JavaObject, function: PartitionFunction, python: str) -> JavaObject:
    """Return an RDD of a function's results. The function is pickled plainly."""
    command = pickle.dumps((function, None, SERIALIZER, SERIALIZER), 5)
    return jvm().PythonRDD(parent, simple_python_function(context, command, python), False, False)

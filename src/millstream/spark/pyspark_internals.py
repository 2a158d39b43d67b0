"""PySpark's parts without a public API: all access to its private names is here.

This module does not import PySpark: a process that has not imported it has no Spark.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from socketserver import BaseServer

    from pyspark import RDD, SparkContext
    from pyspark.serializers import Serializer

    from millstream.common.aliases import JavaObject


def context_class() -> type[SparkContext] | None:
    """Return PySpark's class of contexts; None if this process has not imported PySpark."""
    return getattr(sys.modules.get("pyspark"), "SparkContext", None)


def active_context() -> SparkContext | None:
    """Return the running context of this process, if any."""
    contexts = context_class()
    return None if contexts is None else contexts._active_spark_context


def has_gateway() -> bool:
    """Return whether PySpark is connected to a JVM."""
    contexts = context_class()
    return contexts is not None and contexts._gateway is not None


def gateway() -> JavaObject:
    """Return the Py4J gateway of the connected JVM."""
    contexts = context_class()
    assert contexts is not None
    return contexts._gateway


def jvm() -> JavaObject:
    """Return the view of the connected JVM's classes."""
    contexts = context_class()
    assert contexts is not None
    return contexts._jvm


def connect_gateway() -> None:
    """Connect PySpark to the JVM that the environment names."""
    contexts = context_class()
    assert contexts is not None
    contexts._ensure_initialized()


def reset_gateway() -> None:
    """Reset PySpark's references to a dead JVM, so that another can be started."""
    contexts = context_class()
    assert contexts is not None
    contexts._active_spark_context = None
    contexts._gateway = None
    contexts._jvm = None


def scala_context(context: SparkContext) -> JavaObject:
    """Return the JVM's context behind a context of PySpark."""
    return context._jsc.sc()


def scala_rdd(rdd: RDD[int]) -> JavaObject:
    """Return the JVM's RDD behind an RDD of PySpark."""
    return rdd._jrdd.rdd()


def simple_python_function(context: SparkContext, command: bytes, python: str) -> JavaObject:
    """Return the JVM's description of a pickled function."""
    return jvm().SimplePythonFunction(
        bytearray(command),
        context.environment,
        context._python_includes,
        python,
        context.pythonVer,
        [],
        context._javaAccumulator,
    )


def accumulator_server(context: SparkContext) -> BaseServer:
    """Return the server to which workers send accumulator updates."""
    server: BaseServer = context._accumulatorServer
    return server


def results(info: JavaObject, serializer: Serializer) -> AbstractContextManager[Iterator[bytes]]:
    """Return the results that the JVM serves at an address."""
    from pyspark.util import _load_from_socket

    stream: AbstractContextManager[Iterator[bytes]] = _load_from_socket(info, serializer)
    return stream

"""The rows of a state as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.common.configuration import Configuration
from millstream.spark.session import get_context
from millstream.state.columns import column

__all__ = ["DataFrame", "SparkSession", "state_frame"]

COLUMNS = ("key", "namespace", "value")


def state_frame(rows: Iterable[tuple[Any, Any, Any]], session: SparkSession | None, config: Configuration) -> DataFrame:
    """Return rows (key, namespace, value) as a DataFrame with these columns.

    Args:
        rows: all of them are read here, on the driver.
        session: the Spark to use; without one, the program's own, started if there is none.
        config: the settings of a Spark that has to be started.
    """
    spark = session or SparkSession(get_context(config))
    all_rows = list(rows)
    table = pa.table({name: column(row[i] for row in all_rows) for i, name in enumerate(COLUMNS)})
    return spark.createDataFrame(table)

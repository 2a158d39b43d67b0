"""PySpark's read limits of stream readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadMaxRows


def max_rows(count: int) -> ReadMaxRows:
    """Return a read limit of at most `count` rows."""
    # A lazy import: it loads Spark SQL, which programs without such a source do not need.
    from pyspark.sql.streaming.datasource import ReadMaxRows

    return ReadMaxRows(count)

"""PySpark's words for how much a stream reader may return."""

from __future__ import annotations

from typing import Any


def max_rows(count: int) -> Any:
    """Return the read limit that asks for at most `count` rows."""
    # Here rather than above: it pulls in Spark SQL, which a program without such a source does not need.
    from pyspark.sql.streaming.datasource import ReadMaxRows

    return ReadMaxRows(count)

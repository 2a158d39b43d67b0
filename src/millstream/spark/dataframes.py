"""Spark DataFrames as sources and results of jobs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from millstream.common.aliases import Key, Value
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.common.typeinfo import TypeInformation, Types
from millstream.spark.session import get_context
from millstream.state.columns import column

__all__ = ["DataFrame", "SparkSession", "StagedQuery", "frame_of", "row_type", "session_of", "stage", "state_frame"]


# Prefix of unfinished directories, which readers skip.
_HIDDEN = "_"


def session_of(config: Configuration) -> SparkSession:
    """Return the program's SparkSession, starting Spark if necessary."""
    return SparkSession(get_context(config))


def frame_of(config: Configuration, tables: list[pa.Table]) -> DataFrame:
    """Return Arrow tables as a DataFrame."""
    return session_of(config).createDataFrame(pa.concat_tables(tables))


# --- DataFrames as sources

_TYPES: dict[type, Callable[[], TypeInformation]] = {
    spark_types.StringType: Types.STRING,
    spark_types.VarcharType: Types.STRING,
    spark_types.CharType: Types.STRING,
    spark_types.BooleanType: Types.BOOLEAN,
    spark_types.ByteType: Types.BYTE,
    spark_types.ShortType: Types.SHORT,
    spark_types.IntegerType: Types.INT,
    spark_types.LongType: Types.LONG,
    spark_types.FloatType: Types.FLOAT,
    spark_types.DoubleType: Types.DOUBLE,
    spark_types.DateType: Types.SQL_DATE,
    spark_types.TimestampType: Types.SQL_TIMESTAMP,
    spark_types.TimestampNTZType: Types.SQL_TIMESTAMP,
    spark_types.DecimalType: Types.BIG_DEC,
    spark_types.BinaryType: lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
}


def row_type(frame: DataFrame) -> TypeInformation:
    """Return the type of a DataFrame's rows."""
    return _type(frame.schema, "the rows")


def _type(spark_type: spark_types.DataType, column: str) -> TypeInformation:
    if isinstance(spark_type, spark_types.StructType):
        fields = [_type(field.dataType, f"column {field.name!r}") for field in spark_type.fields]
        return Types.ROW_NAMED(spark_type.names, fields)
    if isinstance(spark_type, spark_types.ArrayType):
        return Types.LIST(_type(spark_type.elementType, column))
    if isinstance(spark_type, spark_types.MapType):
        return Types.MAP(_type(spark_type.keyType, column), _type(spark_type.valueType, column))
    make_type = _TYPES.get(type(spark_type))
    if make_type is None:
        raise InvalidProgramError(
            f"from_spark(): {column} has the type {spark_type.simpleString()}, which streams do not support: cast it."
        )
    return make_type()


def stage(frame: DataFrame, directory: str) -> None:
    """Write a DataFrame as Parquet files, atomically."""
    if os.path.exists(directory):
        return
    hidden = os.path.join(os.path.dirname(directory), f"{_HIDDEN}{os.path.basename(directory)}")
    # Microseconds: few readers support Spark's older format.
    frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame.write.mode("overwrite").parquet(hidden)
    os.rename(hidden, directory)


class StagedQuery:
    """A streaming DataFrame whose batches are staged as Parquet files, each in its own directory."""

    def __init__(self, frame: DataFrame, directory: str) -> None:
        """Start the query, or resume one that stopped in this directory."""
        batches = os.path.join(directory, "batches")
        os.makedirs(batches, exist_ok=True)

        def take(batch: DataFrame, number: int) -> None:
            # A batch that Spark repeats after a failure is the same and already staged.
            stage(batch, os.path.join(batches, f"batch-{number}"))

        written = frame.writeStream.foreachBatch(take).option("checkpointLocation", os.path.join(directory, "query"))
        self._query = written.start()

    def check(self) -> None:
        """Raise the query's error if it has failed."""
        if not self._query.isActive and (error := self._query.exception()) is not None:
            reason = str(error).strip().splitlines()[0]
            raise JobExecutionError(f"from_spark(): the query of the streaming DataFrame failed: {reason}")

    def stop(self) -> None:
        self._query.stop()


def delete_staged(directory: str) -> None:
    """Delete staged batches."""
    shutil.rmtree(directory, ignore_errors=True)


COLUMNS = ("key", "namespace", "value")


def state_frame(
    rows: Iterable[tuple[Key, Value, Value]], session: SparkSession | None, config: Configuration
) -> DataFrame:
    """Return rows (key, namespace, value) as a DataFrame with these columns.

    Args:
        rows: read completely, on the driver.
        session: the Spark session; None for the program's own, which is started if necessary.
        config: the settings of a Spark that is started.
    """
    spark = session or SparkSession(get_context(config))
    all_rows = list(rows)
    table = pa.table({name: column(row[i] for row in all_rows) for i, name in enumerate(COLUMNS)})
    return spark.createDataFrame(table)

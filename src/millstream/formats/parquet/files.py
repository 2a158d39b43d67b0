"""Parquet files: row groups as records, rows for FileSource and FileSink."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.serialization import BulkWriter, RowDataBulkWriterFactory
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.common.types import Row
from millstream.formats.arrow_rows import arrow_schema, from_arrow, row_writer
from millstream.formats.file_access import FileAccess, FoundFile
from millstream.formats.file_format import BulkFormat, Extent, FileFormat, FileShare
from millstream.formats.text_values import check_row_type

__all__ = ["ParquetBulkWriters", "ParquetColumnarRowInputFormat"]


class RowGroups(FileFormat):
    """Reads Parquet files; a row group is the least that is read at once."""

    # How many rows are handed on at once.
    _batch_size = 2048

    @abstractmethod
    def _wanted(self, there: list[str]) -> list[str]:
        """Return which of a file's columns are read."""

    def _is_wanted(self, group: Any, names: list[str]) -> bool:
        """Tell whether a row group is read, by what is known of its columns, which have these names."""
        return True

    @abstractmethod
    def _records(self, batch: Any, path: str) -> list[Any]:
        """Return the records of a batch of those columns."""

    def measure(self, access: FileAccess, file: FoundFile) -> Extent:
        with access.open(file.path) as stream:
            about = _open(file.path, stream).metadata
        groups = about.num_row_groups
        return Extent(groups, about.num_rows / groups if about.num_rows else 1.0)

    def read(self, access: FileAccess, share: FileShare) -> Iterator[list[Any]]:
        with access.open(share.path) as stream:
            yield from self._read_groups(share.path, stream, range(share.start, share.end))

    def _read_groups(self, path: str, stream: BinaryIO, groups: range | None = None) -> Iterator[list[Any]]:
        """Yield the records of some row groups; of all when none are named."""
        parquet = _open(path, stream)
        there = parquet.schema_arrow.names
        # Without columns there would be no telling how many rows there are.
        chosen = self._wanted(there) or there[:1]
        all_groups = range(parquet.metadata.num_row_groups) if groups is None else groups
        names = [parquet.metadata.schema.column(i).path for i in range(parquet.metadata.num_columns)]
        numbers = [i for i in all_groups if self._is_wanted(parquet.metadata.row_group(i), names)]
        batches = parquet.iter_batches(self._batch_size, row_groups=numbers, columns=chosen)
        while (batch := _next_batch(batches, path)) is not None:
            yield self._records(batch, path)


def _open(path: str, stream: BinaryIO) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(stream)
    except (pa.ArrowException, OSError) as e:
        raise _incomplete(path, e) from None


def _next_batch(batches: Iterator[Any], path: str) -> Any:
    import pyarrow as pa

    try:
        return next(batches, None)
    except (pa.ArrowException, OSError) as e:
        raise _incomplete(path, e) from None


def _incomplete(path: str, error: Exception) -> MillstreamError:
    return MillstreamError(
        f"FileSource: {path} is not a complete Parquet file ({error}); take it out of the directory."
    )


def cast_column(batch: Any, name: str, arrow: Any, path: str, wanted: str) -> list[Any]:
    """Return a column's values as those of a type of Arrow.

    Args:
        batch: what was read.
        name: the column's.
        arrow: the type of Arrow.
        path: the file's.
        wanted: the type as the user knows it.
    """
    import pyarrow as pa

    try:
        values: list[Any] = batch.column(name).cast(arrow).to_pylist()
    except pa.ArrowException as e:
        raise MillstreamError(
            f"FileSource: column {name!r} of {path} does not fit the type {wanted}: {e}. Correct the type."
        ) from None
    return values


class ParquetColumnarRowInputFormat(RowGroups, BulkFormat):
    """Reads rows from Parquet files, by the names of their columns; a row group is the least that is read at once.

    A column that a file does not have is None. In Flink columns must be of primitive types; here arrays, maps and rows
    are read too.

    Args:
        row_type: a row type of Types, or of DataTypes.
        hadoop_config: accepted, without effect.
        batch_size: how many rows are handed on at once.
        is_utc_timestamp: accepted; timestamps are read as they were written, without a time zone.
        is_case_sensitive: whether the case of names matters.

    Example:
        >>> from millstream.common import Types
        >>> row_type = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
        >>> ParquetColumnarRowInputFormat(row_type).produced_type
        RowTypeInfo(id: Integer, name: String)
    """

    def __init__(
        self,
        row_type: TypeInformation,
        hadoop_config: Configuration | None = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        self._row_type = check_row_type(row_type, "ParquetColumnarRowInputFormat")
        self.produced_type = self._row_type
        if batch_size <= 0:
            raise InvalidProgramError(f"ParquetColumnarRowInputFormat: batch_size must be above 0, it is {batch_size}.")
        self._batch_size = batch_size
        self._case_sensitive = is_case_sensitive
        arrow_schema(self._row_type)

    def _wanted(self, there: list[str]) -> list[str]:
        return [name for name in self._columns(there) if name is not None]

    def _columns(self, there: list[str]) -> list[str | None]:
        """Return the name that each field has in a file, None where it has none."""
        by_name = {name if self._case_sensitive else name.lower(): name for name in there}
        names = self._row_type.get_field_names()
        return [by_name.get(name if self._case_sensitive else name.lower()) for name in names]

    def _records(self, batch: Any, path: str) -> list[Row]:
        names = tuple(self._row_type.get_field_names())
        types = self._row_type.get_field_types()
        columns = self._columns(batch.schema.names)
        values = []
        for name, field, arrow in zip(columns, types, arrow_schema(self._row_type), strict=True):
            if name is None:
                values.append([None] * batch.num_rows)
                continue
            found = cast_column(batch, name, arrow.type, path, str(field))
            convert = from_arrow(field)
            values.append(found if convert is None else [convert(v) for v in found])
        return Row.many(names, zip(*values, strict=True))


class ParquetBulkWriters:
    """Writes rows into Parquet files, for `FileSink.for_bulk_format`.

    Example:
        >>> import io
        >>> import pyarrow.parquet
        >>> from millstream.common import Row, Types
        >>> file = io.BytesIO()
        >>> row_type = Types.ROW_NAMED(["id", "tags"], [Types.INT(), Types.LIST(Types.STRING())])
        >>> writer = ParquetBulkWriters.for_row_type(row_type).open(file)
        >>> writer.add_element(Row(1, ["a", "b"]))
        >>> writer.finish()
        >>> pyarrow.parquet.read_table(file).to_pylist()
        [{'id': 1, 'tags': ['a', 'b']}]
    """

    @staticmethod
    def for_row_type(
        row_type: TypeInformation, hadoop_config: Configuration | None = None, utc_timestamp: bool = False
    ) -> RowDataBulkWriterFactory:
        """Return the factory of writers.

        Args:
            row_type: a row type of Types, or of DataTypes.
            hadoop_config: of its keys `parquet.compression` is read (snappy if not set).
            utc_timestamp: accepted; timestamps are written as they are, without a time zone.
        """
        checked = check_row_type(row_type, "ParquetBulkWriters.for_row_type()")
        arrow_schema(checked)
        compression = "snappy"
        if hadoop_config is not None:
            compression = hadoop_config.get_string("parquet.compression", compression).lower()
        return _ParquetWriterFactory(checked, "none" if compression == "uncompressed" else compression)


@dataclass(frozen=True)
class _ParquetWriterFactory(RowDataBulkWriterFactory):
    row_type: RowTypeInfo
    compression: str

    def get_row_type(self) -> RowTypeInfo:
        return self.row_type

    def open(self, file: BinaryIO) -> BulkWriter:
        from pyarrow.parquet import ParquetWriter

        return row_writer(
            "Parquet", self.row_type, ParquetWriter(file, arrow_schema(self.row_type), compression=self.compression)
        )

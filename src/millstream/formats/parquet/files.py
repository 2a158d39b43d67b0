"""Reading Parquet files by row groups, whatever becomes of the rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, BinaryIO

from millstream.common.errors import MillstreamError
from millstream.formats.file_access import FileAccess, FoundFile
from millstream.formats.file_format import Extent, FileFormat, FileShare


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

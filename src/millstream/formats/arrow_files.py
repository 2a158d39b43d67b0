"""Files that are written with Arrow, a batch of rows at a time: Parquet and ORC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from millstream.common.errors import MillstreamError, TypeMismatchError
from millstream.common.typeinfo import RowTypeInfo
from millstream.formats.arrow_types import Convert, arrow_schema, to_arrow
from millstream.operators.diagnostics.failures import shorten

__all__ = ["ArrowFile", "ArrowWriter", "row_writer"]

# The rows of a batch, which are a row group in a Parquet file.
BATCH_ROWS = 1 << 16


class ArrowFile(Protocol):
    """A file that takes batches, such as pyarrow.parquet.ParquetWriter."""

    def write_batch(self, batch: Any) -> None: ...

    def close(self) -> None: ...


class ArrowWriter:
    """Gathers records, makes columns of them, and writes those: a BulkWriter.

    Args:
        what: the name of the format, for errors.
        schema: of Arrow.
        fit: makes a record's fields, one for each column.
        columns: for each column what makes its values such as Arrow takes; None: they are.
        file: where batches go.
    """

    def __init__(
        self,
        what: str,
        schema: Any,
        fit: Callable[[Any], Sequence[Any]],
        columns: Sequence[Convert | None],
        file: ArrowFile,
    ) -> None:
        self._what = what
        self._schema = schema
        self._fit = fit
        self._columns = columns
        self._file = file
        self._rows: list[Sequence[Any]] = []

    def add_element(self, value: Any) -> None:
        self._rows.append(self._fit(value))
        if len(self._rows) >= BATCH_ROWS:
            self._write()

    def finish(self) -> None:
        if self._rows:
            self._write()
        self._file.close()

    def _write(self) -> None:
        import pyarrow as pa

        columns = zip(self._schema, self._columns, zip(*self._rows, strict=True), strict=True)
        arrays = [self._array(field, values if c is None else list(map(c, values))) for field, c, values in columns]
        self._file.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._rows = []

    def _array(self, field: Any, values: Sequence[Any]) -> Any:
        import pyarrow as pa

        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, OverflowError) as e:
            raise self._misfit(field, values, e) from None

    def _misfit(self, field: Any, values: Sequence[Any], error: Exception) -> MillstreamError:
        """Find the record whose value Arrow does not take."""
        import pyarrow as pa

        record = ""
        for value, row in zip(values, self._rows, strict=True):
            try:
                pa.array([value], field.type)
            except (pa.ArrowException, OverflowError) as e:
                record, error = f" of {shorten(row)}", e
                break
        return TypeMismatchError(f"{self._what}: field {field.name!r}{record} cannot be written: {error}.")


def row_writer(what: str, row_type: RowTypeInfo, file: ArrowFile) -> ArrowWriter:
    """Return a writer of rows."""
    convert = row_type.converter()
    assert convert is not None

    def fit(value: Any) -> Sequence[Any]:
        row: Sequence[Any] | None = convert(value)
        if row is None:
            raise TypeMismatchError(f"{what}: there is no row to write, but None.")
        return row

    columns = [to_arrow(field) for field in row_type.get_field_types()]
    return ArrowWriter(what, arrow_schema(row_type, what), fit, columns, file)

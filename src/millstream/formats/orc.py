"""ORC files, of rows and of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.serialization import BulkWriter, RowDataBulkWriterFactory
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.formats.arrow_rows import arrow_schema, row_writer
from millstream.formats.base import Comparison, FileTableFormat
from millstream.formats.file_access import FileAccess, FileStatus
from millstream.formats.file_format import BulkFormat, Extent, FileFormat, FileSplitRange
from millstream.formats.options import Options
from millstream.formats.parquet.table import BATCH_ROWS, as_columns, table_schema
from millstream.formats.text_values import check_row_type
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field
from millstream.sql.types import TimeType

if TYPE_CHECKING:
    from pyarrow.orc import ORCFile, ORCWriter

__all__ = ["OrcBulkWriters"]

_COMPRESSIONS = {"NONE": "uncompressed", "ZLIB": "zlib", "SNAPPY": "snappy", "LZ4": "lz4", "ZSTD": "zstd"}
# ORC's numeric settings, with pyarrow's names.
_NUMBERS = {
    "orc.stripe.size": "stripe_size",
    "orc.compress.size": "compression_block_size",
    "orc.row.index.stride": "row_index_stride",
}


class OrcBulkWriters:
    """Writes rows to ORC files, for `FileSink.for_bulk_format`.

    Example:
        >>> import io
        >>> import pyarrow.orc
        >>> from millstream.common import Row, Types
        >>> file = io.BytesIO()
        >>> row_type = Types.ROW_NAMED(["id", "tags"], [Types.INT(), Types.LIST(Types.STRING())])
        >>> writer = OrcBulkWriters.for_row_type(row_type).open(file)
        >>> writer.add_element(Row(1, ["a", "b"]))
        >>> writer.finish()
        >>> pyarrow.orc.read_table(file).to_pylist()
        [{'id': 1, 'tags': ['a', 'b']}]
    """

    @staticmethod
    def for_row_type(
        row_type: TypeInformation,
        writer_properties: Configuration | None = None,
        hadoop_config: Configuration | None = None,
    ) -> RowDataBulkWriterFactory:
        """Return the factory of writers.

        Timestamps are written as they are, without a time zone.

        Args:
            row_type: a row type of Types, or of DataTypes.
            writer_properties: ORC's settings `orc.compress` (ZLIB if not set), `orc.stripe.size`,
                `orc.compress.size` and `orc.row.index.stride`; others have no effect.
            hadoop_config: accepted, without effect.
        """
        checked = check_row_type(row_type, "OrcBulkWriters.for_row_type()")
        arrow_schema(checked, "ORC")
        return _OrcWriterFactory(checked, _options(writer_properties or Configuration()))


def _options(properties: Configuration) -> dict[str, str | int]:
    name = properties.get_string("orc.compress", "ZLIB").upper()
    if name not in _COMPRESSIONS:
        known = ", ".join(_COMPRESSIONS)
        raise InvalidProgramError(f"OrcBulkWriters: orc.compress is {name!r}; it must be one of {known}.")
    options: dict[str, str | int] = {"compression": _COMPRESSIONS[name]}
    for key, argument in _NUMBERS.items():
        if properties.contains_key(key):
            options[argument] = properties.get_integer(key, 0)
    return options


@dataclass(frozen=True)
class _OrcWriterFactory(RowDataBulkWriterFactory):
    row_type: RowTypeInfo
    options: dict[str, str | int]

    def get_row_type(self) -> RowTypeInfo:
        return self.row_type

    def open(self, file: BinaryIO) -> BulkWriter:
        return row_writer("ORC", self.row_type, _OrcFile(self.row_type, self.options, file))


class _OrcFile:
    """Writes Arrow batches to an ORC file."""

    def __init__(self, row_type: RowTypeInfo, options: dict[str, str | int], file: BinaryIO) -> None:
        from pyarrow.orc import ORCWriter

        self._writer = ORCWriter(file, **options)
        # A file without any table would have no footer.
        self._writer.write(arrow_schema(row_type, "ORC").empty_table())

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._writer.write(pa.Table.from_batches([batch]))

    def close(self) -> None:
        self._writer.close()


class _OrcFiles(BulkFormat):
    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = list(fields)

    def measure(self, access: FileAccess, file: FileStatus) -> Extent:
        with access.open(file.path) as stream:
            orc_file = _orc(file.path, stream)
        stripes = max(orc_file.nstripes, 1)
        return Extent(stripes, max(orc_file.nrows / stripes, 1.0))

    def read(self, access: FileAccess, split_range: FileSplitRange) -> Iterator[list[Batch]]:
        with access.open(split_range.path) as stream:
            file = _orc(split_range.path, stream)
            names = [f.name for f in self._fields if f.name in file.schema.names]
            for stripe in range(split_range.start, min(split_range.end, file.nstripes)):
                columns = file.read_stripe(stripe, names or file.schema.names[:1])
                for start in range(0, columns.num_rows, BATCH_ROWS):
                    yield [as_columns(columns.slice(start, BATCH_ROWS), self._fields, split_range.path)]


def _orc(path: str, stream: BinaryIO) -> ORCFile:
    from pyarrow.orc import ORCFile

    try:
        return ORCFile(stream)
    except (pa.ArrowException, OSError) as e:
        raise MillstreamError(f"{path} is not a complete ORC file ({e}); remove it from the directory.") from None


class _OrcWriter:
    """Writes batches to an ORC file: a BulkWriter."""

    def __init__(self, file: ORCWriter, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema

    def add_element(self, value: Batch) -> None:
        self._file.write(pa.Table.from_arrays(list(value.columns), schema=self._schema))

    def finish(self) -> None:
        self._file.close()


_ORC_CODECS = {"NONE": "UNCOMPRESSED", "ZLIB": "ZLIB", "SNAPPY": "SNAPPY", "LZ4": "LZ4", "ZSTD": "ZSTD"}


class OrcFormat(FileTableFormat):
    """ORC files."""

    identifier = "orc"
    optional = frozenset(["compress", "compress.size", "row.index.stride", "stripe.size"])

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self._writing = {
            "compression": options.one_of("compress", "ZLIB", _ORC_CODECS),
            "compression_block_size": options.bytes("compress.size", 64 << 10),
            "row_index_stride": options.integer("row.index.stride", 10_000),
            "stripe_size": options.bytes("stripe.size", 64 << 20),
        }

    def check(self, fields: Sequence[Field]) -> None:
        for field in fields:
            if isinstance(field.type, TimeType):
                raise ValidationException(f"The format 'orc' does not support the type {field.type} of '{field.name}'.")

    def reader(self, fields: Sequence[Field], filters: Sequence[Comparison] = ()) -> FileFormat:
        return _OrcFiles(fields)

    def writer(self, file: BinaryIO, fields: Sequence[Field]) -> BulkWriter:
        from pyarrow.orc import ORCWriter

        return _OrcWriter(ORCWriter(file, **self._writing), table_schema(fields))

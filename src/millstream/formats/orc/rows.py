"""ORC: rows into files for FileSink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, BinaryIO

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import BulkWriter, RowDataBulkWriterFactory
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.formats.arrow_rows import arrow_schema, row_writer
from millstream.formats.text_values import check_row_type

__all__ = ["OrcBulkWriters"]

_COMPRESSIONS = {"NONE": "uncompressed", "ZLIB": "zlib", "SNAPPY": "snappy", "LZ4": "lz4", "ZSTD": "zstd"}
# ORC's settings that are numbers, with what pyarrow calls them.
_NUMBERS = {
    "orc.stripe.size": "stripe_size",
    "orc.compress.size": "compression_block_size",
    "orc.row.index.stride": "row_index_stride",
}


class OrcBulkWriters:
    """Writes rows into ORC files, for `FileSink.for_bulk_format`.

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
            writer_properties: of ORC's settings, `orc.compress` (ZLIB if not set), `orc.stripe.size`,
                `orc.compress.size` and `orc.row.index.stride` are read.
            hadoop_config: accepted, without effect.
        """
        checked = check_row_type(row_type, "OrcBulkWriters.for_row_type()")
        arrow_schema(checked, "ORC")
        return _OrcWriterFactory(checked, _options(writer_properties or Configuration()))


def _options(properties: Configuration) -> dict[str, Any]:
    name = properties.get_string("orc.compress", "ZLIB").upper()
    if name not in _COMPRESSIONS:
        known = ", ".join(_COMPRESSIONS)
        raise InvalidProgramError(f"OrcBulkWriters: orc.compress is {name!r}; it must be one of {known}.")
    options: dict[str, Any] = {"compression": _COMPRESSIONS[name]}
    for key, argument in _NUMBERS.items():
        if properties.contains_key(key):
            options[argument] = properties.get_integer(key, 0)
    return options


@dataclass(frozen=True)
class _OrcWriterFactory(RowDataBulkWriterFactory):
    row_type: RowTypeInfo
    options: dict[str, Any]

    def get_row_type(self) -> RowTypeInfo:
        return self.row_type

    def open(self, file: BinaryIO) -> BulkWriter:
        return row_writer("ORC", self.row_type, _OrcFile(self.row_type, self.options, file))


class _OrcFile:
    """Takes batches, as the writer of Parquet files does."""

    def __init__(self, row_type: RowTypeInfo, options: dict[str, Any], file: BinaryIO) -> None:
        from pyarrow.orc import ORCWriter

        self._writer = ORCWriter(file, **options)
        # Without any table the file would not even have an end.
        self._writer.write(arrow_schema(row_type, "ORC").empty_table())

    def write_batch(self, batch: Any) -> None:
        import pyarrow as pa

        self._writer.write(pa.Table.from_batches([batch]))

    def close(self) -> None:
        self._writer.close()

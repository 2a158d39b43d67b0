"""The table format `orc`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from millstream.common.errors import MillstreamError
from millstream.common.serialization import BulkWriter
from millstream.formats.arrow_batches import BATCH_ROWS, arrow_schema, as_columns
from millstream.formats.base import FileTableFormat
from millstream.formats.file_access import FileAccess, FoundFile
from millstream.formats.file_format import BulkFormat, Extent, FileFormat, FileShare
from millstream.formats.options import Options
from millstream.formats.predicates import Comparison
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import ValidationException
from millstream.sql.schema import Field
from millstream.sql.types import TimeType


class _OrcFiles(BulkFormat):
    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = list(fields)

    def measure(self, access: FileAccess, file: FoundFile) -> Extent:
        with access.open(file.path) as stream:
            found = _orc(file.path, stream)
        stripes = max(found.nstripes, 1)
        return Extent(stripes, max(found.nrows / stripes, 1.0))

    def read(self, access: FileAccess, share: FileShare) -> Iterator[list[Any]]:
        with access.open(share.path) as stream:
            file = _orc(share.path, stream)
            names = [f.name for f in self._fields if f.name in file.schema.names]
            for stripe in range(share.start, min(share.end, file.nstripes)):
                found = file.read_stripe(stripe, names or file.schema.names[:1])
                for start in range(0, found.num_rows, BATCH_ROWS):
                    yield [as_columns(found.slice(start, BATCH_ROWS), self._fields, share.path)]


def _orc(path: str, stream: BinaryIO) -> Any:
    from pyarrow.orc import ORCFile

    try:
        return ORCFile(stream)
    except (pa.ArrowException, OSError) as e:
        raise MillstreamError(f"{path} is not a complete ORC file ({e}); take it out of the directory.") from None


class _OrcWriter:
    """Writes batches to an ORC file: a BulkWriter."""

    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema

    def add_element(self, value: Batch) -> None:
        self._file.write(pa.Table.from_arrays(list(value.columns), schema=self._schema))

    def finish(self) -> None:
        self._file.close()


_ORC_CODECS = {"NONE": "UNCOMPRESSED", "ZLIB": "ZLIB", "SNAPPY": "SNAPPY", "LZ4": "LZ4", "ZSTD": "ZSTD"}


class OrcFormat(FileTableFormat):
    """ORC files, column by column."""

    identifier = "orc"
    optional = frozenset(["compress", "compress.size", "row.index.stride", "stripe.size"])

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self._writing = {
            "compression": options.one_of("compress", "ZLIB", _ORC_CODECS),
            "compression_block_size": options.bytes("compress.size", 64 << 10),
            "row_index_stride": options.whole("row.index.stride", 10_000),
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

        return _OrcWriter(ORCWriter(file, **self._writing), arrow_schema(fields))

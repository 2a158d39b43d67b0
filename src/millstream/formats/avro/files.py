"""Avro files: AvroFormat reads them, AvroBulkWriters writes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

from millstream.common.aliases import Json, Value
from millstream.common.errors import MillstreamError, TypeMismatchError
from millstream.common.serialization import BulkWriter, BulkWriterFactory
from millstream.formats import file_format as file_formats
from millstream.formats.avro.schema import AvroSchema, avro_library, check_record_schema
from millstream.formats.avro.values import TAGGED, AvroMismatch, GenericRecordAvroTypeInfo, coercer, reader_schema
from millstream.formats.file_access import FileAccess, FileStatus
from millstream.formats.file_format import BYTES_PER_RECORD, BulkFormat, Extent, FileSplitRange
from millstream.operators.diagnostics.bad_records import BadRecord

__all__ = ["AvroBulkWriters", "AvroFormat"]

# The length of the sync marker in front of every block.
MARK_BYTES = 16
# Bytes per read while searching for the next sync marker.
SCAN_BYTES = 1 << 16


class AvroFormat(BulkFormat):
    """Reads records from Avro files, as dicts. Not in PyFlink, which has AvroInputFormat.

    Records are converted from the writer's schema to this one by Avro's schema resolution: a missing field needs a
    default, and surplus fields are ignored. Files are split between blocks, so large files are read in parallel.

    Example:
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> AvroFormat(schema).produced_type
        GenericRecordAvroTypeInfo<Point>
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = check_record_schema(schema, "AvroFormat")
        self.produced_type = GenericRecordAvroTypeInfo(schema)

    def measure(self, access: FileAccess, file: FileStatus) -> Extent:
        # Read at call time, because tests change them.
        min_units, max_units = file_formats.MIN_SPLIT_BYTES, file_formats.MAX_SPLIT_BYTES
        return Extent(file.size, 1 / BYTES_PER_RECORD, min_units, max_units)

    def read(self, access: FileAccess, split_range: FileSplitRange) -> Iterator[list[Value]]:
        """Yield the records of the blocks whose sync marker begins in the split range."""
        with access.open(split_range.path) as file:
            blocks = _Blocks(split_range.path, file, self._schema, self._reader_schema)
            has_block = blocks.go_to(split_range.start, split_range.end)
            while has_block and (mark := blocks.mark) < min(split_range.end, split_range.size - MARK_BYTES):
                try:
                    yield blocks.read()
                except MillstreamError as e:
                    if self.bad_records.fails:
                        raise
                    # Continue with the next block.
                    yield [BadRecord(f"{split_range.path}, the block at byte {mark + MARK_BYTES}", None, str(e))]
                    file.seek(0)
                    blocks = _Blocks(split_range.path, file, self._schema, self._reader_schema)
                    has_block = blocks.go_to(mark + MARK_BYTES, split_range.end)

    @cached_property
    def _reader_schema(self) -> Json:
        return reader_schema(self._schema)

    def __getstate__(self) -> dict[str, object]:
        return {"_schema": self._schema, "produced_type": self.produced_type}


class _Blocks:
    """Reads a file block by block."""

    def __init__(self, path: str, file: BinaryIO, schema: AvroSchema, reader_schema: Json) -> None:
        self._path = path
        self._file = file
        fastavro = avro_library()
        with _naming(path):
            self._blocks = fastavro.block_reader(file, reader_schema)
        # fastavro has read the header only, so the file's position is right after the first sync marker.
        self._first = file.tell() - MARK_BYTES
        written = {k: v for k, v in self._blocks.writer_schema.items() if not k.startswith("__")}
        expected = {k: v for k, v in schema.parsed.items() if not k.startswith("__")}
        # fastavro uses one default object for all records, which a user's function may mutate.
        self._coerce = None if written == expected else coercer(schema)

    @property
    def mark(self) -> int:
        """The position of the sync marker in front of the next block."""
        return self._file.tell() - MARK_BYTES

    def go_to(self, start: int, end: int) -> bool:
        """Seek to the first block whose sync marker begins in [start, end); return whether there is one."""
        if start <= self._first:
            return True
        file = self._file
        file.seek(self._first)
        sync_marker = file.read(MARK_BYTES)
        file.seek(start)
        offset, data = start, b""
        while offset < end and (more := file.read(SCAN_BYTES)):
            data += more
            if (index := data.find(sync_marker)) >= 0:
                file.seek(offset + index + MARK_BYTES)
                return True
            # A sync marker may span two reads.
            n_retained = min(len(data), MARK_BYTES - 1)
            offset += len(data) - n_retained
            data = data[len(data) - n_retained :]
        return False

    def read(self) -> list[Value]:
        with _naming(self._path):
            block = next(self._blocks, None)
            if block is None:
                raise EOFError("it ends within a block")
            records = list(block)
            return records if self._coerce is None else [self._coerce(record) for record in records]


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Add the file's name to errors; fastavro raises many kinds of errors for damaged files."""
    try:
        yield
    except Exception as e:
        if type(e).__name__ == "SchemaResolutionError":
            raise MillstreamError(
                f"FileSource: {path} was written with a schema that does not match the declared one: {e}."
            ) from None
        raise MillstreamError(
            f"FileSource: {path} is not a complete Avro file ({str(e) or type(e).__name__}); remove it from "
            "the directory."
        ) from None


class AvroBulkWriters:
    """Writes records to Avro files, for `FileSink.for_bulk_format`.

    Example:
        >>> import io
        >>> import fastavro
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> file = io.BytesIO()
        >>> writer = AvroBulkWriters.for_generic_record(schema).open(file)
        >>> writer.add_element({"x": 1})
        >>> writer.finish()
        >>> list(fastavro.reader(io.BytesIO(file.getvalue())))
        [{'x': 1}]
    """

    @staticmethod
    def for_generic_record(schema: AvroSchema, codec: str = "null") -> BulkWriterFactory:
        """Return the factory of writers of dicts, or of rows whose fields are in the schema's order.

        The stream's type need not be declared, as it must be in PyFlink.

        Args:
            schema: of a record.
            codec: the compression of blocks, one that fastavro supports; PyFlink has no such argument.
        """
        return _AvroWriterFactory(check_record_schema(schema, "AvroBulkWriters.for_generic_record()"), codec)


@dataclass(frozen=True)
class _AvroWriterFactory(BulkWriterFactory):
    schema: AvroSchema
    codec: str

    def open(self, file: BinaryIO) -> BulkWriter:
        return _AvroWriter(self.schema, self.codec, file)


class _AvroWriter:
    def __init__(self, schema: AvroSchema, codec: str, file: BinaryIO) -> None:
        avro_library()
        from fastavro.write import Writer

        self._coerce = coercer(schema, TAGGED)
        self._writer = Writer(file, schema.parsed, codec)

    def add_element(self, value: Value) -> None:
        try:
            record = self._coerce(value)
        except AvroMismatch as e:
            raise TypeMismatchError(f"Avro: {e}.") from None
        self._writer.write(record)

    def finish(self) -> None:
        self._writer.flush()

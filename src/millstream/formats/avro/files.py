"""Avro files: AvroFormat reads them, AvroBulkWriters writes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO

from millstream.common.errors import MillstreamError, TypeMismatchError
from millstream.common.serialization import BulkWriter, BulkWriterFactory
from millstream.formats import file_format as file_formats
from millstream.formats.avro.schema import AvroSchema, avro_library, check_record_schema
from millstream.formats.avro.values import TAGGED, AvroMisfit, GenericRecordAvroTypeInfo, fitter, reader_schema
from millstream.formats.file_access import FileAccess, FoundFile
from millstream.formats.file_format import BYTES_PER_RECORD, BulkFormat, Extent, FileShare
from millstream.operators.diagnostics.bad_records import BadRecord

__all__ = ["AvroBulkWriters", "AvroFormat"]

# The mark that stands before every block of records, the same in a whole file.
MARK_BYTES = 16
# So much is looked through at once for the next mark.
SCAN_BYTES = 1 << 16


class AvroFormat(BulkFormat):
    """Reads records from Avro's files, as dicts. Not in PyFlink, which has AvroInputFormat.

    A file is read by the schema it was written with and handed on by this one, as Avro's rules have it: fields may be
    missing that have a default, or be there that are not asked for. Files are cut between blocks, so that a large one
    is read in parallel.

    Example:
        >>> schema = AvroSchema('{"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}')
        >>> AvroFormat(schema).produced_type
        GenericRecordAvroTypeInfo<Point>
    """

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = check_record_schema(schema, "AvroFormat")
        self.produced_type = GenericRecordAvroTypeInfo(schema)

    def measure(self, access: FileAccess, file: FoundFile) -> Extent:
        # Looked up when asked for: tests make files small.
        least, most = file_formats.LEAST_SPLIT_BYTES, file_formats.MOST_SPLIT_BYTES
        return Extent(file.size, 1 / BYTES_PER_RECORD, least, most)

    def read(self, access: FileAccess, share: FileShare) -> Iterator[list[Any]]:
        """Yield the records of the blocks whose mark begins in the share."""
        with access.open(share.path) as file:
            blocks = _Blocks(share.path, file, self._schema, self._reader_schema)
            is_there = blocks.go_to(share.start, share.end)
            while is_there and (mark := blocks.mark) < min(share.end, share.size - MARK_BYTES):
                try:
                    yield blocks.read()
                except MillstreamError as e:
                    if self.bad_records.fails:
                        raise
                    # On with the next block that can be found.
                    yield [BadRecord(f"{share.path}, the block at byte {mark + MARK_BYTES}", None, str(e))]
                    file.seek(0)
                    blocks = _Blocks(share.path, file, self._schema, self._reader_schema)
                    is_there = blocks.go_to(mark + MARK_BYTES, share.end)

    @cached_property
    def _reader_schema(self) -> Any:
        return reader_schema(self._schema)

    def __getstate__(self) -> dict[str, Any]:
        return {"_schema": self._schema, "produced_type": self.produced_type}


class _Blocks:
    """Reads a file block by block."""

    def __init__(self, path: str, file: BinaryIO, schema: AvroSchema, reader_schema: Any) -> None:
        self._path = path
        self._file = file
        fastavro = avro_library()
        with _naming(path):
            self._blocks = fastavro.block_reader(file, reader_schema)
        # fastavro reads no further than it must, so the file stands behind the first mark.
        self._first = file.tell() - MARK_BYTES
        written = {k: v for k, v in self._blocks.writer_schema.items() if not k.startswith("__")}
        asked = {k: v for k, v in schema.parsed.items() if not k.startswith("__")}
        # What fastavro fills in for missing fields is one object for all records; a user's function may change it.
        self._fit = None if written == asked else fitter(schema)

    @property
    def mark(self) -> int:
        """Where the mark before the next block begins."""
        return self._file.tell() - MARK_BYTES

    def go_to(self, start: int, end: int) -> bool:
        """Go to the first block whose mark begins at `start` or behind it; say whether one was found.

        Nothing is looked for behind `end`.
        """
        if start <= self._first:
            return True
        file = self._file
        file.seek(self._first)
        wanted = file.read(MARK_BYTES)
        file.seek(start)
        at, data = start, b""
        while at < end and (more := file.read(SCAN_BYTES)):
            data += more
            if (found := data.find(wanted)) >= 0:
                file.seek(at + found + MARK_BYTES)
                return True
            # A mark may lie across the end of what was read.
            kept = min(len(data), MARK_BYTES - 1)
            at += len(data) - kept
            data = data[len(data) - kept :]
        return False

    def read(self) -> list[Any]:
        with _naming(self._path):
            block = next(self._blocks, None)
            if block is None:
                raise EOFError("it ends within a block")
            records = list(block)
            return records if self._fit is None else [self._fit(record) for record in records]


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Say in which file something went wrong; what fastavro raises for damaged files is of many kinds."""
    try:
        yield
    except Exception as e:
        if type(e).__name__ == "SchemaResolutionError":
            raise MillstreamError(
                f"FileSource: {path} was written with a schema that does not fit the one asked for: {e}."
            ) from None
        raise MillstreamError(
            f"FileSource: {path} is not a complete Avro file ({str(e) or type(e).__name__}); take it out of the "
            "directory."
        ) from None


class AvroBulkWriters:
    """Writes records into Avro's files, for `FileSink.for_bulk_format`.

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
        """Return the factory of writers: of dicts, or of rows whose fields stand in the schema's order.

        The stream's type need not be declared, as it must be in PyFlink.

        Args:
            schema: of a record.
            codec: how blocks are compressed, one of those that fastavro knows; PyFlink has no choice.
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

        self._fit = fitter(schema, TAGGED)
        self._writer = Writer(file, schema.parsed, codec)

    def add_element(self, value: Any) -> None:
        try:
            record = self._fit(value)
        except AvroMisfit as e:
            raise TypeMismatchError(f"Avro: {e}.") from None
        self._writer.write(record)

    def finish(self) -> None:
        self._writer.flush()

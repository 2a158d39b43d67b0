"""Infers the columns of CSV and JSON files from their first rows, and the types of partition columns.

The type of a column is the first one whose exact parser accepts all values, so a reader with the same parsers either
returns the value of the file or fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice

from millstream.common.aliases import Json, Value
from millstream.common.errors import InvalidProgramError
from millstream.formats.base import Malformed
from millstream.formats.column_text import exact_parser
from millstream.formats.csv.table import CsvFileFormat, read_header
from millstream.formats.file_access import FileAccess, FileStatus
from millstream.formats.file_format import FileFormat, FilePart, FileSplitRange, StreamFormat
from millstream.formats.json.table import JsonFormat, exact_reader
from millstream.sql import types as t
from millstream.sql.schema import Field

_STRING = t.DataTypes.STRING()
_TEXT_TYPES: tuple[t.DataType, ...] = (
    t.DataTypes.BOOLEAN(),
    t.DataTypes.BIGINT(),
    t.DataTypes.DOUBLE(),
    t.DataTypes.DATE(),
    t.DataTypes.TIMESTAMP(3),
    t.DataTypes.TIMESTAMP(6),
    t.DataTypes.TIMESTAMP_LTZ(3),
    t.DataTypes.TIMESTAMP_LTZ(6),
)
_JSON_TYPES: tuple[t.DataType, ...] = (t.DataTypes.BOOLEAN(), t.DataTypes.BIGINT(), t.DataTypes.DOUBLE())


class _Candidates:
    """The types that all values so far have, in order of preference."""

    def __init__(self, types: Sequence[t.DataType], reader: Callable[[t.DataType], Callable[[Value], Value]]) -> None:
        self._readers = {kind: reader(kind) for kind in types}
        self._is_empty = True

    def add(self, value: Value) -> None:
        self._is_empty = False
        for kind, read in list(self._readers.items()):
            try:
                read(value)
            except ValueError:
                del self._readers[kind]

    @property
    def type(self) -> t.DataType:
        """The type, STRING if there are no values."""
        return _STRING if self._is_empty else next(iter(self._readers), _STRING)


def partition_type(texts: Iterable[str]) -> t.DataType:
    """Return the type of a partition column: BIGINT, DATE or STRING.

    Example:
        >>> str(partition_type(["1", "2"])), str(partition_type(["2024-01-31"])), str(partition_type(["01", "02"]))
        ('BIGINT', 'DATE', 'STRING')
    """
    candidates = _Candidates([t.DataTypes.BIGINT(), t.DataTypes.DATE()], exact_parser)
    for text in texts:
        candidates.add(text)
    return candidates.type


# --- CSV


def csv_columns(csv: CsvFileFormat, access: FileAccess, files: Iterable[FileStatus], limit: int | None) -> list[Field]:
    """Return the columns of CSV files.

    Args:
        csv: the format.
        access: opens the files.
        files: the files; the names of the columns are those of the first one with a record.
        limit: the number of rows to read; None for all.
    """
    candidates: dict[str, _Candidates] = {}
    rows = 0
    for file in files:
        if not candidates:
            header = read_header(access, file.path, csv.dialect)
            if header is None:
                continue
            names = header.names if csv.has_header else [f"f{i}" for i in range(len(header.names))]
            candidates = {name: _Candidates(_TEXT_TYPES, exact_parser) for name in names}
            if len(candidates) < len(names):
                repeated = next(n for n in names if names.count(n) > 1)
                raise InvalidProgramError(f"The header of {file.path} has the column {repeated!r} twice; rename one.")
            reader = csv.file_reader([Field(name, _STRING) for name in names])
        for batch in _batches(reader, access, file):
            size = len(batch) if limit is None else min(limit - rows, len(batch))
            for column, types in zip(batch.columns, candidates.values(), strict=True):
                for text in column.slice(0, size).to_pylist():
                    # An empty field is null, or the empty string of a STRING.
                    if text:
                        types.add(text)
            rows += size
            if rows == limit:
                break
        if rows == limit:
            break
    return [Field(name, types.type) for name, types in candidates.items()]


def _batches(reader: FileFormat, access: FileAccess, file: FileStatus) -> Iterator[Value]:
    for batches in reader.read(access, FileSplitRange(0, file.path, 0, file.size, file.size, True)):
        yield from batches


# --- JSON


class _JsonType:
    """The type of the values of a field so far."""

    def __init__(self) -> None:
        self._scalars = _Candidates(_JSON_TYPES, exact_reader)
        self._has_scalars = False
        self._has_objects = False
        self._fields: dict[str, _JsonType] = {}
        self._element: _JsonType | None = None

    def add(self, value: Json) -> None:
        if value is None:
            return
        if isinstance(value, dict):
            self._has_objects = True
            for name, member in value.items():
                self._fields.setdefault(name, _JsonType()).add(member)
        elif isinstance(value, list):
            self._element = self._element or _JsonType()
            for element in value:
                self._element.add(element)
        else:
            self._has_scalars = True
            self._scalars.add(value)

    @property
    def fields(self) -> list[Field]:
        """The fields of the objects."""
        return [Field(name, kind.type) for name, kind in self._fields.items()]

    @property
    def type(self) -> t.DataType:
        """The type; STRING, the text of the JSON, for values of several kinds."""
        if self._has_objects + self._has_scalars + (self._element is not None) > 1:
            return _STRING
        # Without fields it is not a ROW.
        if self._fields:
            return t.DataTypes.ROW([t.DataTypes.FIELD(f.name, f.type) for f in self.fields])
        if self._element is not None:
            return t.DataTypes.ARRAY(self._element.type)
        return self._scalars.type


class _Documents(StreamFormat):
    """Reads the objects of files of JSON lines."""

    def __init__(self, json_format: JsonFormat) -> None:
        self._format = json_format

    def read_part(self, part: FilePart) -> Iterator[Collection[Json]]:
        for offset, block in part.blocks():
            yield from self._lines(part, offset, block)

    def _lines(self, part: FilePart, offset: int, block: bytes) -> Iterator[Collection[Json]]:
        for line in block.split(b"\n"):
            try:
                yield self._format.documents([line])[0]
            except Malformed as e:
                raise part.damaged(offset, e.reason, self._format.advice(e)) from None
            offset += len(line) + 1


def json_columns(json: JsonFormat, access: FileAccess, files: Iterable[FileStatus], limit: int | None) -> list[Field]:
    """Return the columns of files of JSON lines, in the order of their first value.

    Args:
        json: the format.
        access: opens the files.
        files: the files.
        limit: the number of rows to read; None for all.
    """
    whole = _JsonType()
    reader = _Documents(json)
    for document in islice((d for file in files for d in _batches(reader, access, file)), limit):
        whole.add(document)
    return whole.fields

"""Table formats: their contract, the predicates they may push down, and lookup by identifier."""

from __future__ import annotations

import datetime as dt
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import BinaryIO, ClassVar, Protocol

from millstream.common.aliases import Json, Value
from millstream.common.display_text import did_you_mean
from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.serialization import BulkWriter
from millstream.formats.file_format import FileFormat, FilePart, StreamFormat
from millstream.formats.options import Options
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.connector_contract import TableStatistics
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Call, Column, Constant, Expression
from millstream.sql.schema import INSERTS, Changes, Field
from millstream.sql.types import DataType

_MIRRORED = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_EPOCH_DAY = dt.date(1970, 1, 1)
# Types that Python, SQL and the statistics of files order alike.
_ORDERED = (t.IntegralType, t.DateType, t.CharType, t.VarCharType)


@fast_dataclass
class Comparison:
    """A comparison of a column with a constant.

    Attributes:
        name: the column.
        operator: one of = < > <= >=.
        value: the constant.
    """

    name: str
    operator: str
    value: Value


class ColumnStatistics(Protocol):
    """The statistics of a column chunk, as pyarrow returns them."""

    has_min_max: bool
    min: Value
    max: Value


def comparisons_of(conditions: Sequence[Expression], columns: Sequence[str]) -> list[Comparison]:
    """Return the conditions that can be pushed down to files or databases."""
    return [comparison for c in conditions if (comparison := _comparison(c, columns)) is not None]


def _comparison(condition: Expression, columns: Sequence[str]) -> Comparison | None:
    if not isinstance(condition, Call) or condition.function not in _MIRRORED or len(condition.arguments) != 2:
        return None
    left, right = condition.arguments
    operator = condition.function
    if isinstance(left, Constant):
        left, right, operator = right, left, _MIRRORED[operator]
    if not isinstance(left, Column) or not isinstance(right, Constant) or right.value is None:
        return None
    if not isinstance(left.type, _ORDERED):
        return None
    # SQL dates are days since 1970; statistics hold dates.
    value = _EPOCH_DAY + dt.timedelta(right.value) if isinstance(left.type, t.DateType) else right.value
    return Comparison(columns[left.index], operator, value)


def may_match(test: Comparison, statistics: ColumnStatistics | None) -> bool:
    """Return whether rows with these statistics may satisfy a comparison."""
    if statistics is None or not statistics.has_min_max:
        return True
    low, high, value = statistics.min, statistics.max, test.value
    if type(low) is not type(value) or type(high) is not type(value):
        return True
    if test.operator == "=":
        return bool(low <= value <= high)
    if test.operator in ("<", "<="):
        return bool(low < value or (test.operator == "<=" and low == value))
    return bool(high > value or (test.operator == ">=" and high == value))


# The advice for malformed rows.
FIX = (
    "Correct the line, or set '{0}.ignore-parse-errors' = 'true' to read malformed fields as null and to skip "
    "malformed lines."
)


def inference_advice(column: str | None) -> str:
    """Return the advice for rows that do not have the inferred columns or, in one column, not the inferred type."""
    schema = "columns with schema=" if column is None else f"type with schema={{{column!r}: DataTypes.STRING()}}"
    return f"Pass the {schema}, or infer the types from more rows with infer_rows=."


def inferred_columns(options: Options) -> frozenset[str] | None:
    """Return the columns whose types were inferred from the first rows of files; None for a declared table."""
    text = options.text("inferred-columns", "")
    return frozenset(json.loads(text)) if text else None


class Malformed(MillstreamError):
    """A message that does not conform to its format.

    Attributes:
        index: the index of the message.
        reason: the cause, without a full stop.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


class TableFormat(ABC):
    """A format of tables.

    Attributes:
        identifier: the name in `'format' = '...'`.
        optional: its options without the format's prefix; other options are rejected.
        changes: row kinds that it reads.
        written: row kinds that it writes.
    """

    identifier: ClassVar[str]
    optional: ClassVar[frozenset[str]] = frozenset()
    changes: ClassVar[frozenset[Changes]] = INSERTS
    written: ClassVar[frozenset[Changes]] = INSERTS

    def __init__(self, options: Options, zone: str) -> None:
        self.options = options
        self.zone = zone

    def check(self, fields: Sequence[Field]) -> None:
        """Fail if a column's type is not supported."""

    def check_written(self) -> None:
        """Fail if the options do not support writing."""


@fast_dataclass
class Decoded:
    """The rows of messages.

    Attributes:
        batch: the rows.
        indices: the index of each row's message; None if each message has one row.
        documents: the parsed message of each row, if the format has metadata.
    """

    batch: Batch
    indices: Sequence[int] | None = None
    documents: Sequence[Json] = ()


class MessageFormat(TableFormat):
    """A format of messages; in files each line is a message.

    Attributes:
        option_prefix: the prefix of its options in a declaration.
    """

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self.option_prefix = f"{self.identifier}."

    @abstractmethod
    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        """Return the rows of messages; raise Malformed for a bad one unless the options skip it.

        None is a Kafka message without a value.
        """

    def decoded(self, messages: Sequence[bytes], fields: Sequence[Field]) -> Batch:
        """Return the rows alone."""
        return self.read_all(messages, fields).batch

    def metadata(self) -> Mapping[str, DataType]:
        """Return the types of metadata columns by key."""
        return {}

    def metadata_values(self, key: str, decoded: Decoded) -> list[Value]:
        """Return the metadata of a key for each row."""
        raise NotImplementedError(key)

    @abstractmethod
    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        """Return a message for each row."""

    def file_reader(self, fields: Sequence[Field]) -> FileFormat:
        """Return a reader of files of messages; its records are batches of the fields."""
        return _Lines(self, fields)

    def advice(self, error: Malformed) -> str:
        """Return how to fix a malformed line of a file."""
        return FIX.format(self.identifier)

    def file_header(self, fields: Sequence[Field]) -> bytes:
        """Return the line that begins each file, without its line end; empty if files have none."""
        return b""


class _Lines(StreamFormat):
    """Reads lines of messages, one batch for each block of a file."""

    def __init__(self, message_format: MessageFormat, fields: Sequence[Field]) -> None:
        self._format = message_format
        self._fields = list(fields)

    @property
    def splittable(self) -> bool:
        return True

    def read_part(self, part: FilePart) -> Iterator[Collection[Batch]]:
        for offset, block in part.blocks():
            lines = block.split(b"\n")
            if not lines[-1]:
                lines.pop()
            try:
                yield [self._format.decoded(lines, self._fields)]
            except Malformed as e:
                start = offset + sum(len(line) + 1 for line in lines[: e.index])
                raise part.damaged(start, e.reason, self._format.advice(e)) from None


class FileTableFormat(TableFormat):
    """A format of whole files, such as Parquet."""

    @abstractmethod
    def reader(self, fields: Sequence[Field], filters: Sequence[Comparison] = ()) -> FileFormat:
        """Return a reader of batches of the fields; filters may, but need not, remove rows."""

    @abstractmethod
    def writer(self, file: BinaryIO, fields: Sequence[Field]) -> BulkWriter:
        """Return a writer of batches to a file."""

    def statistics(self, paths: Sequence[str], columns: Sequence[str]) -> TableStatistics | None:
        """Return statistics of columns in local files, or None if the format has none."""
        return None


_FORMATS = {
    "avro": "avro.table:AvroTableFormat",
    "canal-json": "changelog.table:CanalJsonFormat",
    "csv": "csv.table:CsvFileFormat",
    "debezium-json": "changelog.table:DebeziumJsonFormat",
    "json": "json.table:JsonFileFormat",
    "maxwell-json": "changelog.table:MaxwellJsonFormat",
    "orc": "orc:OrcFormat",
    "parquet": "parquet.table:ParquetFormat",
    "raw": "raw:RawFormat",
}


# Message formats, where they differ from file formats.
_MESSAGES = {
    **{name: path for name, path in _FORMATS.items() if name not in ("orc", "parquet")},
    "csv": "csv.table:CsvFormat",
    "json": "json.table:JsonFormat",
    "avro": "avro.table:AvroMessageFormat",
    "avro-confluent": "avro.table:AvroConfluentFormat",
    "debezium-avro-confluent": "avro.table:DebeziumAvroConfluentFormat",
}


def format_options_by_name() -> dict[str, frozenset[str]]:
    """Return the options of each format, for files and messages, without prefixes."""
    names = sorted({*_FORMATS, *_MESSAGES})
    registries = [(name, [f for f in (_FORMATS, _MESSAGES) if name in f]) for name in names]
    return {name: frozenset().union(*(_load(name, f).optional for f in fs)) for name, fs in registries}


def format_class(identifier: str) -> type[TableFormat]:
    """Return the class of a format."""
    return _load(identifier, _FORMATS)


def _load(identifier: str, formats: Mapping[str, str]) -> type[TableFormat]:
    if identifier not in formats:
        raise ValidationException(
            f"There is no format '{identifier}'{did_you_mean(identifier, formats) or '.'}\n\n"
            "Available formats are:\n\n" + "\n".join(sorted(formats))
        )
    module, _, name = formats[identifier].partition(":")
    loaded: type[TableFormat] = getattr(import_module(f"{__package__}.{module}"), name)
    return loaded


def format_options(prefix: str = "") -> frozenset[str]:
    """Return the options of all file formats, with prefixes."""
    return frozenset(f"{prefix}{name}.{o}" for name in _FORMATS for o in format_class(name).optional)


def message_format_options(prefix: str = "") -> frozenset[str]:
    """Return the options of all message formats, with prefixes."""
    return frozenset(f"{prefix}{name}.{o}" for name in _MESSAGES for o in _load(name, _MESSAGES).optional)


def without_other_formats(
    options: frozenset[str], of_formats: frozenset[str], chosen: Iterable[tuple[str | None, str]]
) -> frozenset[str]:
    """Return a connector's options without those of formats that a table does not use.

    Args:
        options: all options of the connector.
        of_formats: the options that belong to formats.
        chosen: the table's formats (None if not set) with the prefix of each.
    """
    starts = tuple(f"{prefix}{name}." for name, prefix in chosen if name is not None)
    return frozenset(o for o in options if o not in of_formats or o.startswith(starts))


def create_format(identifier: str, options: Mapping[str, str], zone: str) -> TableFormat:
    """Create a format with the options under its name."""
    return format_class(identifier)(Options(options_of(identifier, options)), zone)


def create_message_format(identifier: str, options: Mapping[str, str], zone: str, prefix: str = "") -> MessageFormat:
    """Create a message format with the options under a prefix and its name."""
    message_format = _load(identifier, _MESSAGES)(Options(options_of(identifier, options, prefix)), zone)
    assert isinstance(message_format, MessageFormat)
    message_format.option_prefix = f"{prefix}{identifier}."
    return message_format


def options_of(identifier: str, options: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """Return the options under a prefix and a format's name, without both."""
    start = f"{prefix}{identifier}."
    return {key.removeprefix(start): value for key, value in options.items() if key.startswith(start)}

"""Table formats: their contract, the predicates they may push down, and lookup by identifier."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, BinaryIO, ClassVar

from millstream.common.display_text import did_you_mean
from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import record
from millstream.common.serialization import BulkWriter
from millstream.formats.file_format import FileFormat, FilePart, StreamFormat
from millstream.formats.options import Options
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.connectors import TableStatistics
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Call, Column, Constant, Expression
from millstream.sql.schema import INSERTS, Changes, Field
from millstream.sql.types import DataType

_TURNED = {"=": "=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_FIRST = dt.date(1970, 1, 1)
# Whose order is that of Python's values, and that of the files' statistics.
_ORDERED = (t.IntegralType, t.DateType, t.CharType, t.VarCharType)


@record
class Comparison:
    """A column's value is equal to, below or above another.

    Attributes:
        name: the column's.
        operator: one of = < > <= >=.
        value: what it is compared with.
    """

    name: str
    operator: str
    value: Any


def comparisons_of(conditions: Sequence[Expression], columns: Sequence[str]) -> list[Comparison]:
    """Return those of some conditions that files can be asked about."""
    return [found for c in conditions if (found := _comparison(c, columns)) is not None]


def _comparison(condition: Expression, columns: Sequence[str]) -> Comparison | None:
    if not isinstance(condition, Call) or condition.function not in _TURNED or len(condition.arguments) != 2:
        return None
    left, right = condition.arguments
    operator = condition.function
    if isinstance(left, Constant):
        left, right, operator = right, left, _TURNED[operator]
    if not isinstance(left, Column) or not isinstance(right, Constant) or right.value is None:
        return None
    if not isinstance(left.type, _ORDERED):
        return None
    # A day is the number of days since 1970 here, and a day in statistics.
    value = _FIRST + dt.timedelta(right.value) if isinstance(left.type, t.DateType) else right.value
    return Comparison(columns[left.index], operator, value)


def may_pass(test: Comparison, statistics: Any) -> bool:
    """Tell whether some row of which there are statistics may pass a test."""
    if statistics is None or not statistics.has_min_max:
        return True
    least, most, value = statistics.min, statistics.max, test.value
    if type(least) is not type(value) or type(most) is not type(value):
        return True
    if test.operator == "=":
        return bool(least <= value <= most)
    if test.operator in ("<", "<="):
        return bool(least < value or (test.operator == "<=" and least == value))
    return bool(most > value or (test.operator == ">=" and most == value))


# What can be done about a row that is wrong.
FIX = (
    "Correct the line, or set '{0}.ignore-parse-errors' = 'true': then what cannot be read of a row is null, and a "
    "line that is no row is left out."
)


class Malformed(MillstreamError):
    """A message that is not what its format says.

    Attributes:
        place: which of the messages it is, from 0.
        reason: what is wrong, without a full stop.
    """

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        self.reason = reason


class TableFormat(ABC):
    """A format by its name.

    Attributes:
        identifier: the name in `'format' = '...'`.
        optional: its options, without the name that stands before them; others are refused.
        changes: what rows that are read can say.
        written: what rows that are written may say.
    """

    identifier: ClassVar[str]
    optional: ClassVar[frozenset[str]] = frozenset()
    changes: ClassVar[frozenset[Changes]] = INSERTS
    written: ClassVar[frozenset[Changes]] = INSERTS

    def __init__(self, options: Options, zone: str) -> None:
        self.options = options
        self.zone = zone

    def check(self, fields: Sequence[Field]) -> None:
        """Refuse columns of types that it cannot hold."""

    def check_written(self) -> None:
        """Refuse options with which it cannot be written."""


@record
class Decoded:
    """What was in messages.

    Attributes:
        batch: the rows.
        places: of each row which message it was in, from 0; None where each message had one.
        objects: of each row what else its message said, where the format has metadata.
    """

    batch: Batch
    places: Sequence[int] | None = None
    objects: Sequence[Any] = ()


class MessageFormat(TableFormat):
    """A format whose rows are messages, in a file each on a line of its own.

    Attributes:
        options_begin: what stands before its options in a declaration.
    """

    def __init__(self, options: Options, zone: str) -> None:
        super().__init__(options, zone)
        self.options_begin = f"{self.identifier}."

    @abstractmethod
    def read_all(self, messages: Sequence[bytes | None], fields: Sequence[Field]) -> Decoded:
        """Return the rows of messages; raises Malformed where one is wrong and the options do not say to skip it.

        A message of None is one that Kafka has nothing for.
        """

    def decoded(self, messages: Sequence[bytes], fields: Sequence[Field]) -> Batch:
        """Return the rows alone."""
        return self.read_all(messages, fields).batch

    def metadata(self) -> Mapping[str, DataType]:
        """Return what messages say beside their rows, by key."""
        return {}

    def metadata_values(self, key: str, decoded: Decoded) -> list[Any]:
        """Return what the message of each row says of a key."""
        raise NotImplementedError(key)

    @abstractmethod
    def encoded(self, batch: Batch, fields: Sequence[Field]) -> list[bytes]:
        """Return a message for each row."""

    def file_reader(self, fields: Sequence[Field]) -> FileFormat:
        """Return what reads files of messages; its records are batches of those columns."""
        return _Lines(self, fields)


class _Lines(StreamFormat):
    """Lines of messages, a batch for each block of a file."""

    def __init__(self, message_format: MessageFormat, fields: Sequence[Field]) -> None:
        self._format = message_format
        self._fields = list(fields)

    @property
    def splittable(self) -> bool:
        return True

    def read_part(self, part: FilePart) -> Iterator[Collection[Any]]:
        for offset, block in part.blocks():
            lines = block.split(b"\n")
            if not lines[-1]:
                lines.pop()
            try:
                yield [self._format.decoded(lines, self._fields)]
            except Malformed as e:
                at = offset + sum(len(line) + 1 for line in lines[: e.place])
                raise part.damaged(at, e.reason, FIX.format(self._format.identifier)) from None


class FileTableFormat(TableFormat):
    """A format of whole files, such as Parquet."""

    @abstractmethod
    def reader(self, fields: Sequence[Field], filters: Sequence[Comparison] = ()) -> FileFormat:
        """Return what reads files; its records are batches of those columns, without rows that fail a test or with."""

    @abstractmethod
    def writer(self, file: BinaryIO, fields: Sequence[Field]) -> BulkWriter:
        """Return what writes a file; its elements are batches."""

    def statistics(self, paths: Sequence[str], columns: Sequence[str]) -> TableStatistics | None:
        """Return statistics of local files and of some of their columns; None where the format keeps none."""
        return None


_FORMATS = {
    "avro": "avro.table:AvroTableFormat",
    "canal-json": "changelog.table:CanalJsonFormat",
    "csv": "csv.table:CsvFormat",
    "debezium-json": "changelog.table:DebeziumJsonFormat",
    "json": "json.table:JsonFormat",
    "maxwell-json": "changelog.table:MaxwellJsonFormat",
    "orc": "orc:OrcFormat",
    "parquet": "parquet.table:ParquetFormat",
    "raw": "raw:RawFormat",
}


# Those of messages, where they are others than in files.
_MESSAGES = {
    **{name: place for name, place in _FORMATS.items() if name not in ("orc", "parquet")},
    "avro": "avro.table:AvroMessageFormat",
    "avro-confluent": "avro.table:AvroConfluentFormat",
    "debezium-avro-confluent": "avro.table:DebeziumAvroConfluentFormat",
}


def format_options_by_name() -> dict[str, frozenset[str]]:
    """Return the options of all formats, of files and of messages, without the names before them."""
    names = sorted({*_FORMATS, *_MESSAGES})
    places = [(name, [f for f in (_FORMATS, _MESSAGES) if name in f]) for name in names]
    return {name: frozenset().union(*(_found(name, f).optional for f in where)) for name, where in places}


def format_class(identifier: str) -> type[TableFormat]:
    """Return the format of an identifier."""
    return _found(identifier, _FORMATS)


def _found(identifier: str, formats: Mapping[str, str]) -> type[TableFormat]:
    if identifier not in formats:
        raise ValidationException(
            f"There is no format '{identifier}'{did_you_mean(identifier, formats) or '.'}\n\n"
            "Available formats are:\n\n" + "\n".join(sorted(formats))
        )
    module, _, name = formats[identifier].partition(":")
    found: type[TableFormat] = getattr(import_module(f"{__package__}.{module}"), name)
    return found


def format_options(prefix: str = "") -> frozenset[str]:
    """Return all options that formats have, with their names before them."""
    return frozenset(f"{prefix}{name}.{o}" for name in _FORMATS for o in format_class(name).optional)


def message_format_options(prefix: str = "") -> frozenset[str]:
    """Return all options that formats of messages have, with their names before them."""
    return frozenset(f"{prefix}{name}.{o}" for name in _MESSAGES for o in _found(name, _MESSAGES).optional)


def without_other_formats(
    options: frozenset[str], of_formats: frozenset[str], chosen: Iterable[tuple[str | None, str]]
) -> frozenset[str]:
    """Return options without those of formats that a table has not.

    Args:
        options: all that its connector takes.
        of_formats: those of them that are of formats.
        chosen: the formats it has, None for none, and what stands before the options of each.
    """
    starts = tuple(f"{prefix}{name}." for name, prefix in chosen if name is not None)
    return frozenset(o for o in options if o not in of_formats or o.startswith(starts))


def made_format(identifier: str, options: Mapping[str, str], zone: str) -> TableFormat:
    """Return a format with the options that begin with its name."""
    return format_class(identifier)(Options(options_of(identifier, options)), zone)


def made_message_format(identifier: str, options: Mapping[str, str], zone: str, prefix: str = "") -> MessageFormat:
    """Return a format of messages with the options that begin with a prefix and its name."""
    found = _found(identifier, _MESSAGES)(Options(options_of(identifier, options, prefix)), zone)
    assert isinstance(found, MessageFormat)
    found.options_begin = f"{prefix}{identifier}."
    return found


def options_of(identifier: str, options: Mapping[str, str], prefix: str = "") -> dict[str, str]:
    """Return the options that begin with a prefix and the name of a format, without both."""
    start = f"{prefix}{identifier}."
    return {key.removeprefix(start): value for key, value in options.items() if key.startswith(start)}

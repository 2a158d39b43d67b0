"""SQL dialects of databases: names, statements, and values of columns."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
from collections.abc import Callable, Sequence

from millstream.common.aliases import Value
from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.connectors.jdbc.statements import conflict_clause
from millstream.formats.column_text import parser
from millstream.sql import types as t
from millstream.sql.errors import ValidationException

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MIDNIGHT = dt.datetime(1970, 1, 1)
_NESTED = (t.MapType, t.MultisetType, t.RowType)


@fast_dataclass
class Dialect:
    """The SQL of one kind of database.

    Attributes:
        name: postgresql, mysql or sqlite.
        placeholder: the placeholder of a parameter.
    """

    name: str
    placeholder: str

    @staticmethod
    def of(url: str) -> Dialect:
        """Return the dialect of a URL."""
        for prefix, name in (
            ("jdbc:postgresql:", "postgresql"),
            ("jdbc:mysql:", "mysql"),
            ("jdbc:mariadb:", "mysql"),
            ("jdbc:sqlite:", "sqlite"),
        ):
            if url.startswith(prefix):
                return Dialect(name, "?" if name == "sqlite" else "%s")
        raise ValidationException(
            f"Could not find any jdbc dialect factory that can handle url '{url}': use a "
            "jdbc:postgresql:, jdbc:mysql:, jdbc:mariadb: or jdbc:sqlite: URL."
        )

    def quoted(self, name: str) -> str:
        """Quote a name; as in Flink, PostgreSQL gets names with capitals unquoted, and folds them to lower case."""
        if self.name != "postgresql":
            # SQLite takes an unknown name in double quotes as a text.
            return f"`{name.replace('`', '``')}`"
        if _PLAIN.fullmatch(name) or not _WORD.fullmatch(name):
            return '"' + name.replace('"', '""') + '"'
        return name

    def table(self, name: str) -> str:
        """Quote the name of a table and its schema; a name that contains quotes stays as the user wrote it."""
        if any(c in name for c in '"`['):
            return name
        return ".".join(self.quoted(part) for part in name.split("."))

    def check(self, columns: Sequence[tuple[str, t.DataType]]) -> None:
        """Refuse columns whose types the database does not have."""
        for name, kind in columns:
            is_list = isinstance(kind, t.ArrayType) and self.name != "postgresql"
            if isinstance(kind, _NESTED) or is_list:
                raise ValidationException(
                    f"The {self.name} dialect doesn't support type: {kind} (column '{name}'); declare it as STRING."
                )

    # --- statements

    def inserted(self, table: str, columns: Sequence[str]) -> str:
        """Return the INSERT statement of a row."""
        parameters = ", ".join([self.placeholder] * len(columns))
        return f"INSERT INTO {self.table(table)} ({', '.join(map(self.quoted, columns))}) VALUES ({parameters})"

    def upserted(self, table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        """Return the statement that inserts a row, or updates the row with the same key."""
        quoted_columns, quoted_keys = [self.quoted(c) for c in columns], [self.quoted(k) for k in keys]
        conflict = conflict_clause(quoted_columns, quoted_keys, self.name == "mysql")
        return f"{self.inserted(table, columns)} {conflict}"

    def deleted(self, table: str, keys: Sequence[str]) -> str:
        """Return the DELETE statement of a key."""
        return f"DELETE FROM {self.table(table)} WHERE {self.equal(keys)}"

    def selected(self, table: str, columns: Sequence[str]) -> str:
        """Return the SELECT of columns, without conditions; without columns it only counts rows."""
        return f"SELECT {', '.join(map(self.quoted, columns)) or '1'} FROM {self.table(table)}"

    def equal(self, columns: Sequence[str]) -> str:
        """Return the condition that columns are equal to parameters."""
        return " AND ".join(f"{self.quoted(c)} = {self.placeholder}" for c in columns)

    # --- values

    def writer(self, kind: t.DataType) -> Callable[[Value], Value] | None:
        """Return a function that converts a value for the driver; None if that is not needed."""
        if self.name == "sqlite":
            return _sqlite_value if isinstance(kind, _TEMPORAL_OR_EXACT) else None
        if self.name == "mysql" and isinstance(kind, t.LocalZonedTimestampType):
            return lambda value: value.astimezone(dt.UTC).replace(tzinfo=None)
        return None


_TEMPORAL_OR_EXACT = (
    t.DecimalType,
    t.DateType,
    t.TimeType,
    t.TimestampType,
    t.LocalZonedTimestampType,
)


def _sqlite_value(value: Value) -> Value:
    """Return text for a time or decimal, which SQLite does not have."""
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return str(value)


def reader_of(kind: t.DataType) -> Callable[[Value], Value]:
    """Return a function that converts a driver's value to a column's type."""
    if isinstance(kind, (t.CharType, t.VarCharType)):
        return _text
    if isinstance(kind, (t.BinaryType, t.VarBinaryType)):
        return lambda value: value.encode() if isinstance(value, str) else bytes(value)
    if isinstance(kind, t.BooleanType):
        return lambda value: bool(int.from_bytes(value)) if isinstance(value, bytes) else bool(value)
    if isinstance(kind, t.IntegralType):
        return int
    if isinstance(kind, (t.FloatType, t.DoubleType)):
        return float
    if isinstance(kind, t.DecimalType):
        return lambda value: value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))
    if isinstance(kind, t.ArrayType):
        inner = reader_of(kind.element_type)
        return lambda value: [None if v is None else inner(v) for v in value]
    return _timed(kind)


def _timed(kind: t.DataType) -> Callable[[Value], Value]:
    parse = parser(kind, "SQL")

    def read(value: Value) -> Value:
        if isinstance(value, str):
            return parse(value)
        if isinstance(kind, t.DateType) and isinstance(value, dt.datetime):
            return value.date()
        if isinstance(kind, t.TimeType) and isinstance(value, dt.timedelta):
            # From MySQL.
            return (_MIDNIGHT + value).time()
        if isinstance(kind, t.TimestampType):
            if not isinstance(value, dt.datetime):
                return dt.datetime.combine(value, dt.time())
            return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo is not None else value
        return value

    return read


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode()
    return str(value)


def read_values(values: Sequence[Value], name: str, kind: t.DataType) -> list[Value]:
    """Convert a driver's values to those of a column."""
    read = reader_of(kind)
    converted = []
    for value in values:
        try:
            converted.append(None if value is None else read(value))
        except (ValueError, TypeError, ArithmeticError, AttributeError) as e:
            raise MillstreamError(
                f"JDBC: the value {value!r} of column '{name}' is not of type {kind} ({e}): declare the column with "
                "its type in the database."
            ) from None
    return converted

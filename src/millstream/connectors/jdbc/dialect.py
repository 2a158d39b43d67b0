"""How databases write what tables of SQL ask of them: names, statements, and values of columns."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.formats.column_text import parser
from millstream.sql import types as t
from millstream.sql.errors import ValidationException

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MIDNIGHT = dt.datetime(1970, 1, 1)
_NESTED = (t.MapType, t.MultisetType, t.RowType)


@fast_dataclass
class Dialect:
    """One kind of database.

    Attributes:
        name: of the kind: postgresql, mysql or sqlite.
        place: how a parameter is written.
    """

    name: str
    place: str

    @staticmethod
    def of(url: str) -> Dialect:
        """Return the kind of database that a URL is of."""
        for begins, name in (
            ("jdbc:postgresql:", "postgresql"),
            ("jdbc:mysql:", "mysql"),
            ("jdbc:mariadb:", "mysql"),
            ("jdbc:sqlite:", "sqlite"),
        ):
            if url.startswith(begins):
                return Dialect(name, "?" if name == "sqlite" else "%s")
        raise ValidationException(
            f"Could not find any jdbc dialect factory that can handle url '{url}': databases are reached at "
            "jdbc:postgresql:, jdbc:mysql:, jdbc:mariadb: and jdbc:sqlite: URLs."
        )

    def quoted(self, name: str) -> str:
        """Return a name as SQL has it. As in Flink, capitals mean nothing to PostgreSQL."""
        if self.name != "postgresql":
            # To SQLite a name in double quotes that no column has is a text.
            return f"`{name.replace('`', '``')}`"
        if _PLAIN.fullmatch(name) or not _WORD.fullmatch(name):
            return '"' + name.replace('"', '""') + '"'
        return name

    def table(self, name: str) -> str:
        """Return the name of a table, with what it is in; one that has quotes is as the user has written it."""
        if any(c in name for c in '"`['):
            return name
        return ".".join(self.quoted(part) for part in name.split("."))

    def check(self, columns: Sequence[tuple[str, t.DataType]]) -> None:
        """Refuse columns of types that no column of the database is of."""
        for name, kind in columns:
            is_list = isinstance(kind, t.ArrayType) and self.name != "postgresql"
            if isinstance(kind, _NESTED) or is_list:
                raise ValidationException(
                    f"The {self.name} dialect doesn't support type: {kind} (column '{name}'); declare it as STRING."
                )

    # --- statements

    def inserted(self, table: str, columns: Sequence[str]) -> str:
        """Return the statement that adds a row."""
        places = ", ".join([self.place] * len(columns))
        return f"INSERT INTO {self.table(table)} ({', '.join(map(self.quoted, columns))}) VALUES ({places})"

    def upserted(self, table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
        """Return the statement that adds a row, or changes the one with its key."""
        others = [self.quoted(c) for c in columns if c not in keys]
        if self.name == "mysql":
            changed = others or [self.quoted(k) for k in keys]
            return (
                f"{self.inserted(table, columns)} ON DUPLICATE KEY UPDATE "
                f"{', '.join(f'{c} = VALUES({c})' for c in changed)}"
            )
        changes = ", ".join(f"{c} = EXCLUDED.{c}" for c in others)
        what = f"DO UPDATE SET {changes}" if others else "DO NOTHING"
        return f"{self.inserted(table, columns)} ON CONFLICT ({', '.join(map(self.quoted, keys))}) {what}"

    def deleted(self, table: str, keys: Sequence[str]) -> str:
        """Return the statement that takes away the row of a key."""
        return f"DELETE FROM {self.table(table)} WHERE {self.equal(keys)}"

    def selected(self, table: str, columns: Sequence[str]) -> str:
        """Return the beginning of a statement that reads columns; of none, how many rows there are."""
        return f"SELECT {', '.join(map(self.quoted, columns)) or '1'} FROM {self.table(table)}"

    def equal(self, columns: Sequence[str]) -> str:
        """Return the condition that columns have values."""
        return " AND ".join(f"{self.quoted(c)} = {self.place}" for c in columns)

    # --- values

    def writer(self, kind: t.DataType) -> Callable[[Any], Any] | None:
        """Return what makes a value one that the driver takes; None where it takes it as it is."""
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


def _sqlite_value(value: Any) -> Any:
    """SQLite has neither times nor decimals: text, which sorts as they do."""
    if isinstance(value, dt.datetime):
        return value.isoformat(" ")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return str(value)


def reader_of(kind: t.DataType, zone: str) -> Callable[[Any], Any]:
    """Return what makes a value of a driver one of a column's type."""
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
        inner = reader_of(kind.element_type, zone)
        return lambda value: [None if v is None else inner(v) for v in value]
    return _timed(kind, zone)


def _timed(kind: t.DataType, zone: str) -> Callable[[Any], Any]:
    parse = parser(kind, "SQL")

    def read(value: Any) -> Any:
        if isinstance(value, str):
            return parse(value)
        if isinstance(kind, t.DateType) and isinstance(value, dt.datetime):
            return value.date()
        if isinstance(kind, t.TimeType) and isinstance(value, dt.timedelta):
            # MySQL's.
            return (_MIDNIGHT + value).time()
        if isinstance(kind, t.TimestampType):
            if not isinstance(value, dt.datetime):
                return dt.datetime.combine(value, dt.time())
            return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo is not None else value
        return value

    return read


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode()
    return str(value)


def read_values(values: Sequence[Any], name: str, kind: t.DataType, zone: str) -> list[Any]:
    """Return values of a driver as those of a column."""
    read = reader_of(kind, zone)
    found = []
    for value in values:
        try:
            found.append(None if value is None else read(value))
        except (ValueError, TypeError, ArithmeticError, AttributeError) as e:
            raise MillstreamError(
                f"JDBC: the value {value!r} of column '{name}' is not of type {kind} ({e}): declare the column with "
                "the type that it has in the database."
            ) from None
    return found

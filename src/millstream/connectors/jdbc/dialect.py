"""SQL dialects of databases: names, statements, and values of columns."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.connectors.jdbc.statements import conflict_clause
from millstream.sql import types as t
from millstream.sql.errors import ValidationException

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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

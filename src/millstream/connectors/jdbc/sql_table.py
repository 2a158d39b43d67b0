"""The statements of SqlSink: rows wait in a table of their own until they are moved into the user's."""

from __future__ import annotations

from dataclasses import dataclass

_QUOTES = '"`]'


@dataclass(frozen=True)
class Table:
    """A table that rows go to, by way of a table beside it that also has their transaction and their place in it.

    All names are as the user writes them in SQL, quoted or not. In the methods `p` is how a parameter is written.

    Attributes:
        keys: the columns that say which row is replaced; none when rows are only added.
        is_mysql: whether it is written in MySQL's words.
    """

    name: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()
    is_mysql: bool = False

    @property
    def staged(self) -> str:
        """The table rows wait in; all sinks into one table share it, so it has all of the table's columns."""
        return _extended(self.name, "__staged")

    def create_staged(self, is_sqlite: bool) -> list[str]:
        schema, dot, bare = self.name.rpartition(".")
        index, on = _extended(bare, "__staged_index"), self.staged
        if is_sqlite:
            # Here the schema stands at the index, elsewhere at the table.
            index, on = schema + dot + index, _extended(bare, "__staged")
        # MySQL has no index over a TEXT.
        text = "CHAR(200)" if self.is_mysql else "TEXT"
        return [
            f"CREATE TABLE IF NOT EXISTS {self.staged} AS SELECT CAST('' AS {text}) AS transaction_name, "
            f"0 AS transaction_row, original.* FROM {self.name} original WHERE 1 = 0",
            f"CREATE INDEX IF NOT EXISTS {index} ON {on} (transaction_name, transaction_row)",
        ]

    def probe_staged(self) -> str:
        return f"SELECT transaction_name, transaction_row, {self._columns} FROM {self.staged} WHERE 1 = 0"

    def stage(self, p: str) -> str:
        places = ", ".join([p] * (len(self.columns) + 2))
        return f"INSERT INTO {self.staged} (transaction_name, transaction_row, {self._columns}) VALUES ({places})"

    def stage_by_copy(self) -> str:
        return f"COPY {self.staged} (transaction_name, transaction_row, {self._columns}) FROM STDIN"

    def unstage(self, p: str) -> str:
        return f"DELETE FROM {self.staged} WHERE transaction_name = {p}"

    def sweep(self, prefix: str, p: str) -> str:
        # LIKE would give some characters of the prefix a meaning.
        return f"DELETE FROM {self.staged} WHERE SUBSTR(transaction_name, 1, {len(prefix)}) = {p}"

    def move(self, p: str) -> str:
        insert = f"INSERT INTO {self.name} ({self._columns}) SELECT {self._columns} FROM"
        if not self.keys:
            return f"{insert} {self.staged} WHERE transaction_name = {p} ORDER BY transaction_row"
        keys = ", ".join(self.keys)
        # One statement must not touch a row twice, so of rows with the same key only the last is moved. The database
        # says which keys are the same; to it an unknown one is like no other.
        counts = " OR ".join(["newest_first = 1", *(f"{key} IS NULL" for key in self.keys)])
        return (
            f"{insert} (SELECT {self._columns}, transaction_row, "
            f"ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY transaction_row DESC) AS newest_first "
            f"FROM {self.staged} WHERE transaction_name = {p}) AS waiting WHERE {counts} "
            f"ORDER BY transaction_row {self._on_conflict}"
        )

    @property
    def _on_conflict(self) -> str:
        others = [c for c in self.columns if c not in self.keys]
        if self.is_mysql:
            # With nothing to change a key is set to itself.
            changes = ", ".join(f"{c} = VALUES({c})" for c in others or self.keys[:1])
            return f"ON DUPLICATE KEY UPDATE {changes}"
        changes = ", ".join(f"{c} = excluded.{c}" for c in others)
        return f"ON CONFLICT ({', '.join(self.keys)}) " + (f"DO UPDATE SET {changes}" if changes else "DO NOTHING")

    def lock_staged(self, p: str) -> str:
        """Two that move the same rows meet here; in MySQL the numbers of rows do not tell it."""
        return f"SELECT transaction_row FROM {self.staged} WHERE transaction_name = {p} FOR UPDATE"

    @property
    def _columns(self) -> str:
        return ", ".join(self.columns)


def unquoted(name: str) -> str:
    """Return a column's name as it stands in a record."""
    return name[1:-1] if name[-1] in _QUOTES else name


def _extended(name: str, more: str) -> str:
    return f"{name[:-1]}{more}{name[-1]}" if name[-1] in _QUOTES else name + more

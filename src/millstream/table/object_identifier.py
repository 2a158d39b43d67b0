"""Identifiers of catalog objects."""

from __future__ import annotations

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.errors import ValidationException
from millstream.table.sql_text import name_as_sql


class ObjectPath:
    """A database and a name in it.

    Example:
        >>> str(ObjectPath("db", "t"))
        'db.t'
    """

    def __init__(self, database_name: str | None = None, object_name: str | None = None) -> None:
        if not database_name or not object_name:
            raise ValidationException(
                f"ObjectPath needs a database and a name, not {database_name!r}, {object_name!r}."
            )
        self._database = database_name
        self._name = object_name

    def __str__(self) -> str:
        return self.get_full_name()

    def __hash__(self) -> int:
        return hash((self._database, self._name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and (self._database, self._name) == (other._database, other._name)

    def get_database_name(self) -> str:
        """Return the database."""
        return self._database

    def get_object_name(self) -> str:
        """Return the name in the database."""
        return self._name

    def get_full_name(self) -> str:
        """Return both with a dot between them."""
        return f"{self._database}.{self._name}"

    def compare_to(self, other: ObjectPath) -> int:
        """Return -1, 0 or 1: compare with another identifier by full name."""
        own, theirs = self.get_full_name(), other.get_full_name()
        return (own > theirs) - (own < theirs)

    def __lt__(self, other: object) -> bool:
        return self.compare_to(other) < 0 if isinstance(other, ObjectPath) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self.compare_to(other) <= 0 if isinstance(other, ObjectPath) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self.compare_to(other) > 0 if isinstance(other, ObjectPath) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self.compare_to(other) >= 0 if isinstance(other, ObjectPath) else NotImplemented

    @staticmethod
    def from_string(full_name: str) -> ObjectPath:
        """Read `database.name`."""
        parts = full_name.split(".")
        if len(parts) != 2:
            raise ValidationException(f"'{full_name}' is no path of a database and a name.")
        return ObjectPath(*parts)


@fast_dataclass
class ObjectIdentifier:
    """A catalog, a database in it, and a name in that."""

    catalog_name: str
    database_name: str
    object_name: str

    def __str__(self) -> str:
        return self.as_serializable_string()

    @staticmethod
    def of(catalog_name: str, database_name: str, object_name: str) -> ObjectIdentifier:
        """Return the identifier of three names."""
        return ObjectIdentifier(catalog_name, database_name, object_name)

    def get_catalog_name(self) -> str:
        """Return the catalog."""
        return self.catalog_name

    def get_database_name(self) -> str:
        """Return the database."""
        return self.database_name

    def get_object_name(self) -> str:
        """Return the name in the database."""
        return self.object_name

    def to_object_path(self) -> ObjectPath:
        """Return it without the catalog."""
        return ObjectPath(self.database_name, self.object_name)

    def to_list(self) -> list[str]:
        """Return the three names."""
        return [self.catalog_name, self.database_name, self.object_name]

    def as_serializable_string(self) -> str:
        """Return it as SQL."""
        return ".".join(map(name_as_sql, self.to_list()))

    def as_summary_string(self) -> str:
        """Return it with dots."""
        return ".".join(self.to_list())

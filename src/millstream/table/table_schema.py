"""TableSchema: names and types of columns, in the form that older programs use."""

from __future__ import annotations

from millstream.sql.types import DataType, RowField, RowType

__all__ = ["TableSchema"]


class TableSchema:
    """The columns of a table.

    Example:
        >>> from millstream.table import DataTypes
        >>> TableSchema(["a"], [DataTypes.INT()]).get_field_names()
        ['a']
    """

    def __init__(self, field_names: list[str] | None = None, data_types: list[DataType] | None = None) -> None:
        self._names = list(field_names or [])
        self._types = list(data_types or [])

    def copy(self) -> TableSchema:
        """Return a copy."""
        return TableSchema(self._names, self._types)

    def get_field_data_types(self) -> list[DataType]:
        """Return the types of all columns."""
        return list(self._types)

    def get_field_data_type(self, field: int | str) -> DataType | None:
        """Return the type of a column by index or name, or None."""
        if not isinstance(field, (int, str)):
            raise TypeError(f"Expected field index or field name, got {field!r}")
        index = field if isinstance(field, int) else self._names.index(field) if field in self._names else -1
        return self._types[index] if 0 <= index < len(self._types) else None

    def get_field_count(self) -> int:
        """Return the number of columns."""
        return len(self._names)

    def get_field_names(self) -> list[str]:
        """Return the names of all columns."""
        return list(self._names)

    def get_field_name(self, field_index: int) -> str | None:
        """Return the name of a column, or None."""
        return self._names[field_index] if 0 <= field_index < len(self._names) else None

    def to_row_data_type(self) -> RowType:
        """Return the type of a row, which is never null itself."""
        fields = [RowField(n, t) for n, t in zip(self._names, self._types, strict=True)]
        return RowType(fields, nullable=False)

    def __repr__(self) -> str:
        lines = [f" |-- {n}: {t}\n" for n, t in zip(self._names, self._types, strict=True)]
        return "root\n" + "".join(lines)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableSchema) and (self._names, self._types) == (other._names, other._types)

    def __hash__(self) -> int:
        return hash((tuple(self._names), tuple(self._types)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    @classmethod
    def builder(cls) -> TableSchema.Builder:
        """Return a builder."""
        return TableSchema.Builder()

    class Builder:
        """Builds a schema."""

        def __init__(self) -> None:
            self._names: list[str] = []
            self._types: list[DataType] = []

        def field(self, name: str, data_type: DataType) -> TableSchema.Builder:
            """Add a column."""
            if not isinstance(name, str):
                raise TypeError(f"The name of a field should be a str, not {name!r}.")
            if not isinstance(data_type, DataType):
                raise TypeError(f"The type of field {name!r} should be a DataType, not {data_type!r}.")
            self._names.append(name)
            self._types.append(data_type)
            return self

        def build(self) -> TableSchema:
            """Return the schema."""
            return TableSchema(self._names, self._types)

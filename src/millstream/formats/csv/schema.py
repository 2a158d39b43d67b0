"""CsvSchema: the columns and the dialect of CSV files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeGuard

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import BasicTypeInfo, RowTypeInfo, TypeInformation, Types, as_type_information
from millstream.formats.csv.dialect import Column, CsvDialect, check_columns
from millstream.formats.text_values import DecimalSize

if TYPE_CHECKING:
    from millstream.sql.types import DataType

__all__ = ["CsvSchema", "CsvSchemaBuilder"]


@dataclass(frozen=True)
class CsvSchema:
    r"""Describes the columns and the dialect of CSV files; create it with `CsvSchema.builder()`.

    Example:
        >>> from millstream.common import Types
        >>> schema = (
        ...     CsvSchema.builder()
        ...     .add_number_column("id", Types.INT()).add_string_column("name").add_boolean_column("active")
        ...     .add_array_column("tags", "|", Types.STRING())
        ...     .set_column_separator(";").set_quote_char("'").set_escape_char("@").set_line_separator("\r\n")
        ...     .set_null_value("-").set_use_header().set_strict_headers()
        ...     .build()
        ... )
        >>> schema.row_type
        RowTypeInfo(id: Integer, name: String, active: Boolean, tags: ListTypeInfo<String>)
    """

    columns: tuple[Column, ...] = ()
    dialect: CsvDialect = field(default_factory=CsvDialect)
    null_value: str | None = None
    line_separator: str = "\n"
    array_separator: str = ";"
    use_header: bool = False
    strict_headers: bool = False
    skip_first_data_row: bool = False
    any_property_name: str | None = None

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Return a builder of a schema."""
        return CsvSchemaBuilder()

    @property
    def row_type(self) -> RowTypeInfo:
        """The type of the records."""
        return Types.ROW_NAMED([c.name for c in self.columns], [c.type_info for c in self.columns])

    def settled_columns(self) -> tuple[Column, ...]:
        """Return the columns, each with its own or the schema's separator of array elements."""
        return tuple(replace(c, separator=c.separator or self.array_separator) for c in self.columns)

    def size(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __str__(self) -> str:
        columns = ", ".join(f"{c.name}: {c.type_info}" for c in self.columns)
        return f"CsvSchema({columns}; header: {self.use_header}, separator: {self.dialect.separator!r})"

    __repr__ = __str__


class CsvSchemaBuilder:
    """Builds a CsvSchema; see CsvSchema for an example.

    Element and number types are types of Types or DataTypes.
    """

    def __init__(self) -> None:
        self._schema = CsvSchema()

    def build(self) -> CsvSchema:
        """Return the schema."""
        return self._schema

    def _set(self, **changes: Value) -> CsvSchemaBuilder:
        self._schema = replace(self._schema, **changes)
        return self

    def _set_dialect(self, **changes: Value) -> CsvSchemaBuilder:
        return self._set(dialect=replace(self._schema.dialect, **changes))

    # --- columns

    def _add(self, *columns: Column) -> CsvSchemaBuilder:
        check_columns(columns)
        return self._set(columns=(*self._schema.columns, *columns))

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of strings."""
        return self._add(Column(name, Types.STRING()))

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Add a boolean column; `true` in any case is true, any other text is false."""
        return self._add(Column(name, Types.BOOLEAN()))

    def add_number_column(self, name: str, number_type: TypeInformation | DataType | None = None) -> CsvSchemaBuilder:
        """Add a column of numbers, by default of Types.LONG()."""
        kind = _type(number_type, Types.LONG(), "add_number_column")
        return self._add(Column(name, kind, decimal=_decimal_size(number_type)))

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeInformation | DataType | None = None
    ) -> CsvSchemaBuilder:
        """Add a column of arrays, of Types.STRING() unless another type is given."""
        element = _type(element_type, Types.STRING(), "add_array_column")
        return self._add(Column(name, Types.LIST(element), separator, _decimal_size(element_type)))

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """Add the columns of another schema.

        Example:
            >>> ids = CsvSchema.builder().add_number_column("id").build()
            >>> CsvSchema.builder().add_columns_from(ids).add_string_column("name").build().size()
            2
        """
        return self._add(*schema.columns)

    def clear_columns(self) -> CsvSchemaBuilder:
        """Remove all columns."""
        return self._set(columns=())

    def size(self) -> int:
        """Return the number of columns."""
        return len(self._schema)

    def __len__(self) -> int:
        return len(self._schema)

    # --- characters

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Set the separator of columns, by default a comma."""
        return self._set_dialect(separator=_character("Column separator", char))

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """Set the quote character, by default a double quote."""
        return self._set_dialect(quote=_character("Quote char", char))

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Treat quotes like any other character; by default they are quotes."""
        return self._set_dialect(quote=None)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """Set the escape character, by default none."""
        return self._set_dialect(escape=_character("Escape char", char))

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """Use no escape character, the default."""
        return self._set_dialect(escape=None)

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Skip lines that begin with `#`, empty lines, and blanks at the start of lines; by default they are data."""
        return self._set_dialect(comments=allow)

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the line end for writing; readers accept `\\n`, `\\r\\n` and `\\r`."""
        return self._set(line_separator=separator)

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """Set the separator for array columns that were added with an empty one, by default a semicolon."""
        return self._set(array_separator=separator)

    def disable_array_element_separator(self) -> CsvSchemaBuilder:
        """Use no separator for array columns that were added with an empty one."""
        return self._set(array_separator="")

    def remove_array_element_separator(self, index: int) -> CsvSchemaBuilder:
        """Use the schema's separator of array elements for a column."""
        columns = list(self._schema.columns)
        columns[index] = replace(columns[index], separator="")
        return self._set(columns=tuple(columns))

    # --- rows

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Set the text of nulls; without one, readers return no nulls, and None is written as empty text."""
        return self._set(null_value=null_value)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Declare that files begin with a header of names, which readers skip and writers write; by default none."""
        return self._set(use_header=use)

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """Fail if the names in a file's header differ from those of the columns; by default they are ignored."""
        return self._set(strict_headers=strict)

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Skip the first line after the header; by default it is data."""
        return self._set(skip_first_data_row=skip)

    def set_any_property_name(self, name: str) -> CsvSchemaBuilder:
        """Ignore fields after the last column; by default they are an error."""
        return self._set(any_property_name=name)


def _type(type_info: TypeInformation | DataType | None, default: TypeInformation, method: str) -> TypeInformation:
    if type_info is None:
        return default
    kind = as_type_information(type_info) if hasattr(type_info, "type_information") else type_info
    if not isinstance(kind, BasicTypeInfo):
        raise InvalidProgramError(
            f"{method}() takes a basic type such as Types.INT() or DataTypes.INT(), not {type_info!r}."
        )
    return kind


class _Decimal(Protocol):
    precision: int
    scale: int


def _is_decimal(type_info: object) -> TypeGuard[_Decimal]:
    return hasattr(type_info, "precision") and hasattr(type_info, "scale")


def _decimal_size(type_info: object) -> DecimalSize | None:
    """Return the size of a decimal type of DataTypes; those of Types have no size."""
    return DecimalSize(type_info.precision, type_info.scale) if _is_decimal(type_info) else None


def _character(label: str, char: str) -> str:
    if len(char) != 1:
        raise InvalidProgramError(f"{label} must be a single char, got {char!r}.")
    return char

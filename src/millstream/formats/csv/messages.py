"""CSV messages: schemas that read and write rows."""

from __future__ import annotations

from dataclasses import replace

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.common.types import Row
from millstream.formats.csv.dialect import CsvDialect, CsvError, RowReader, RowWriter, columns_of
from millstream.formats.text_values import check_row_type
from millstream.operators.diagnostics.failures import shorten

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]


class _Builder:
    def __init__(self, type_info: TypeInformation) -> None:
        if type_info is None:
            raise InvalidProgramError("Type information must not be None: give a row type.")
        self._type = check_row_type(type_info, "A CSV schema")
        self._dialect = CsvDialect()
        self._array_separator = ";"


class CsvRowDeserializationSchema(DeserializationSchema):
    """Reads one row from each message.

    Example:
        >>> from millstream.common import Types
        >>> kind = Types.ROW_NAMED(["name", "age", "tags"], [Types.STRING(), Types.INT(), Types.LIST(Types.STRING())])
        >>> schema = (
        ...     CsvRowDeserializationSchema.Builder(kind)
        ...     .set_field_delimiter(",").set_quote_character('"').set_escape_character("@")
        ...     .set_array_element_delimiter("|").set_null_literal("-")
        ...     .set_allow_comments(True).set_ignore_parse_errors(True)
        ...     .build()
        ... )
        >>> schema.deserialize(b'"Ann, of York",-,a|b')
        Row(name='Ann, of York', age=None, tags=['a', 'b'])
    """

    def __init__(
        self, row_type: RowTypeInfo, dialect: CsvDialect, separator: str, null: str | None, lenient: bool
    ) -> None:
        self._type = row_type
        self._dialect = dialect
        self._rows = RowReader(columns_of(row_type, separator), null)
        self._lenient = lenient

    class Builder(_Builder):
        """Builds a CsvRowDeserializationSchema; see there for an example."""

        def __init__(self, type_info: TypeInformation) -> None:
            super().__init__(type_info)
            self._null: str | None = None
            self._lenient = False

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the separator of fields, by default a comma."""
            self._dialect = replace(self._dialect, separator=delimiter)
            return self

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether messages that begin with `#` are comments, without a row; by default they are data."""
            self._dialect = replace(self._dialect, comments=allow_comments)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the separator of array elements, by default a semicolon."""
            self._array_separator = delimiter
            return self

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the quote character, by default a double quote."""
            self._dialect = replace(self._dialect, quote=c)
            return self

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the escape character, by default none."""
            self._dialect = replace(self._dialect, escape=c)
            return self

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text of None; by default no text is."""
            self._null = null_literal
            return self

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            """Set whether malformed fields are None, and malformed messages skipped; by default both are errors."""
            self._lenient = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """Return the schema."""
            return CsvRowDeserializationSchema(
                self._type, self._dialect, self._array_separator, self._null, self._lenient
            )

    def deserialize(self, message: bytes) -> Row | None:
        try:
            text = message.decode()
            _, fields = next(self._dialect.exactly(text), (0, None))
            if fields is None:
                raise CsvError("it has no row")
            return self._rows.lenient_row(fields) if self._lenient else self._rows.row(fields)
        except (CsvError, UnicodeDecodeError) as e:
            if self._lenient:
                return None
            raise MillstreamError(
                f"The CSV message {shorten(message)} cannot be read: {e}. Correct it, or skip such messages with "
                "set_ignore_parse_errors(True)."
            ) from None

    def get_produced_type(self) -> TypeInformation:
        return self._type


class CsvRowSerializationSchema(SerializationSchema):
    """Writes each row as a line.

    Example:
        >>> from millstream.common import Row, Types
        >>> kind = Types.ROW_NAMED(["name", "age", "tags"], [Types.STRING(), Types.INT(), Types.LIST(Types.STRING())])
        >>> schema = (
        ...     CsvRowSerializationSchema.Builder(kind)
        ...     .set_field_delimiter(",").set_quote_character('"').set_escape_character("@")
        ...     .set_array_element_delimiter("|").set_null_literal("-").set_line_delimiter("")
        ...     .build()
        ... )
        >>> schema.serialize(Row("Ann, of York", None, ["a", "b"]))
        b'"Ann, of York",-,a|b'
    """

    def __init__(self, row_type: RowTypeInfo, dialect: CsvDialect, separator: str, null: str, line_end: str) -> None:
        self._rows = RowWriter(columns_of(row_type, separator), dialect, null, line_end)

    class Builder(_Builder):
        """Builds a CsvRowSerializationSchema; see there for an example."""

        def __init__(self, type_info: TypeInformation) -> None:
            super().__init__(type_info)
            self._null = ""
            self._line_end = "\n"

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the separator of fields, by default a comma."""
            self._dialect = replace(self._dialect, separator=c)
            return self

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the line end of each message, by default a newline; "" for none."""
            if delimiter not in ("\n", "\r", "\r\n", ""):
                raise InvalidProgramError(
                    f"set_line_delimiter({delimiter!r}): use '\\n', '\\r', '\\r\\n', or '' for none."
                )
            self._line_end = delimiter
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the separator of array elements, by default a semicolon."""
            self._array_separator = delimiter
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Write fields without quotes; by default those that need them are quoted."""
            self._dialect = replace(self._dialect, quote=None)
            return self

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the quote character, by default a double quote."""
            self._dialect = replace(self._dialect, quote=c)
            return self

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the escape character, by default none."""
            self._dialect = replace(self._dialect, escape=c)
            return self

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Set the text of None, by default nothing."""
            self._null = s
            return self

        def build(self) -> CsvRowSerializationSchema:
            """Return the schema."""
            return CsvRowSerializationSchema(
                self._type, self._dialect, self._array_separator, self._null, self._line_end
            )

    def serialize(self, element: Value) -> bytes:
        return self._rows.line(element).encode()

"""Expression methods for JSON."""

from __future__ import annotations

from enum import Enum
from typing import Self

from millstream.common.aliases import T
from millstream.sql.language import syntax
from millstream.sql.types import DataType, DataTypes
from millstream.table.api_syntax import Operand
from millstream.table.expression_operators import ExpressionBase, tree_of

_STRING = DataTypes.STRING()


class JsonType(Enum):
    """The kinds of JSON that IS JSON tests for."""

    VALUE = 0
    SCALAR = 1
    ARRAY = 2
    OBJECT = 3


class JsonExistsOnError(Enum):
    """The result of JSON_EXISTS on an error."""

    TRUE = 0
    FALSE = 1
    UNKNOWN = 2
    ERROR = 3


class JsonValueOnEmptyOrError(Enum):
    """The result of JSON_VALUE on an empty path or an error."""

    NULL = 0
    ERROR = 1
    DEFAULT = 2


class JsonQueryWrapper(Enum):
    """When JSON_QUERY wraps its result in an array."""

    WITHOUT_ARRAY = 0
    CONDITIONAL_ARRAY = 1
    UNCONDITIONAL_ARRAY = 2


class JsonQueryOnEmptyOrError(Enum):
    """The result of JSON_QUERY on an empty path or an error."""

    NULL = 0
    EMPTY_ARRAY = 1
    EMPTY_OBJECT = 2
    ERROR = 3


class JsonOnNull(Enum):
    """Whether nulls are written or omitted."""

    NULL = 0
    ABSENT = 1


class JsonExpression(ExpressionBase[T]):
    """JSON."""

    def is_json(self, json_type: JsonType | None = None) -> Self:
        """Return whether the text is JSON, or JSON of a kind."""
        return self._call(f"IS JSON {(json_type or JsonType.VALUE).name}")

    def json_exists(self, path: str, on_error: JsonExistsOnError | None = None) -> Self:
        """Return whether a path exists."""
        error = None if on_error is None else on_error.name
        return self._as(syntax.Json("JSON_EXISTS", (self._tree, tree_of(path)), error=error))

    def json_value(
        self,
        path: str,
        returning_type: DataType = _STRING,
        on_empty: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_empty: Operand = None,
        on_error: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_error: Operand = None,
    ) -> Self:
        """Return the single value that a path leads to."""

        def behaviour_of(behaviour: JsonValueOnEmptyOrError, default: Operand) -> str | syntax.Expression:
            return tree_of(default) if behaviour is JsonValueOnEmptyOrError.DEFAULT else behaviour.name

        empty, error = behaviour_of(on_empty, default_on_empty), behaviour_of(on_error, default_on_error)
        return self._as(syntax.Json("JSON_VALUE", (self._tree, tree_of(path)), returning_type, empty, error))

    def json_query(
        self,
        path: str,
        wrapping_behavior: JsonQueryWrapper = JsonQueryWrapper.WITHOUT_ARRAY,
        on_empty: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
        on_error: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
    ) -> Self:
        """Return the JSON that a path leads to."""
        wrapper = wrapping_behavior.name.removesuffix("_ARRAY")
        empty, error = (b.name.replace("_", " ") for b in (on_empty, on_error))
        document = (self._tree, tree_of(path))
        return self._as(syntax.Json("JSON_QUERY", document, None, empty, error, wrapper=wrapper))

    def json_quote(self) -> Self:
        """Write it as a JSON string."""
        return self._call("JSON_QUOTE")

    def json_unquote(self) -> Self:
        """Read a JSON string."""
        return self._call("JSON_UNQUOTE")

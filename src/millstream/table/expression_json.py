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
        """Return whether the text is JSON, or JSON of a kind.

        Example:
            >>> list(t_env.from_elements([lit("[1]").is_json()]).execute().collect())
            [<Row(True)>]
            >>> list(t_env.from_elements([lit("[1]").is_json(JsonType.OBJECT)]).execute().collect())
            [<Row(False)>]
        """
        return self._call(f"IS JSON {(json_type or JsonType.VALUE).name}")

    def json_exists(self, path: str, on_error: JsonExistsOnError | None = None) -> Self:
        """Return whether a path exists.

        Example:
            >>> list(t_env.from_elements([lit('{"a": 1}').json_exists("$.a")]).execute().collect())
            [<Row(True)>]
        """
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
        """Return the single value that a path leads to, as text or as `returning_type`; null for none, or on an error.

        Args:
            path: the JSON path, such as `$.a[0]`.
            returning_type: the type of the result, by default STRING.
            on_empty: what to do if the path leads nowhere, by default NULL.
            default_on_empty: the value for DEFAULT.
            on_error: what to do if the path leads to an object or an array, or the text is no JSON, by default NULL.
            default_on_error: the value for DEFAULT.

        Example:
            >>> document = lit('{"a": {"b": 1}}')
            >>> list(t_env.from_elements([document.json_value("$.a.b", DataTypes.INT())]).execute().collect())
            [<Row(1)>]
        """

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
        """Return the JSON object or array that a path leads to, as text.

        Args:
            path: the JSON path, such as `$.a[0]`.
            wrapping_behavior: when the result is wrapped in an array, by default never.
            on_empty: what to do if the path leads nowhere, by default NULL.
            on_error: what to do on an error, such as a single value as result, by default NULL.

        Example:
            >>> list(t_env.from_elements([lit('{"a": {"b": 1}}').json_query("$.a")]).execute().collect())
            [<Row('{"b":1}')>]
        """
        wrapper = wrapping_behavior.name.removesuffix("_ARRAY")
        empty, error = (b.name.replace("_", " ") for b in (on_empty, on_error))
        document = (self._tree, tree_of(path))
        return self._as(syntax.Json("JSON_QUERY", document, None, empty, error, wrapper=wrapper))

    def json_quote(self) -> Self:
        r"""Write the text as a JSON string: in quotes and with escapes.

        Example:
            >>> list(t_env.from_elements([lit('say "hi"').json_quote()]).execute().collect())
            [<Row('"say \\"hi\\""')>]
        """
        return self._call("JSON_QUOTE")

    def json_unquote(self) -> Self:
        """Read a JSON string: without quotes and escapes; other text is returned unchanged.

        Example:
            >>> list(t_env.from_elements([lit('"hi"').json_unquote()]).execute().collect())
            [<Row('hi')>]
        """
        return self._call("JSON_UNQUOTE")

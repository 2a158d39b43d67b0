"""What expressions can do with text, bytes and JSON."""

from __future__ import annotations

from enum import Enum
from typing import Any, Self

from millstream.sql.language import syntax
from millstream.sql.types import DataType, DataTypes
from millstream.table.expression_operators import ExpressionBase, T, tree_of

_STRING = DataTypes.STRING()


class JsonType(Enum):
    """What a JSON text can be asked to be."""

    VALUE = 0
    SCALAR = 1
    ARRAY = 2
    OBJECT = 3


class JsonExistsOnError(Enum):
    """What JSON_EXISTS says when the path is wrong."""

    TRUE = 0
    FALSE = 1
    UNKNOWN = 2
    ERROR = 3


class JsonValueOnEmptyOrError(Enum):
    """What JSON_VALUE gives when there is nothing, or something is wrong."""

    NULL = 0
    ERROR = 1
    DEFAULT = 2


class JsonQueryWrapper(Enum):
    """When JSON_QUERY puts what it finds into an array."""

    WITHOUT_ARRAY = 0
    CONDITIONAL_ARRAY = 1
    UNCONDITIONAL_ARRAY = 2


class JsonQueryOnEmptyOrError(Enum):
    """What JSON_QUERY gives when there is nothing, or something is wrong."""

    NULL = 0
    EMPTY_ARRAY = 1
    EMPTY_OBJECT = 2
    ERROR = 3


class JsonOnNull(Enum):
    """Whether nulls are written or left out."""

    NULL = 0
    ABSENT = 1


class TextExpression(ExpressionBase[T]):
    """Text, bytes and JSON."""

    def concat(self, other: Any) -> Self:
        """Return this text and another behind it."""
        return self._call("CONCAT", other)

    def starts_with(self, start_expr: Any) -> Self:
        """Tell whether it begins with another."""
        return self._call("STARTSWITH", start_expr)

    def ends_with(self, end_expr: Any) -> Self:
        """Tell whether it ends with another."""
        return self._call("ENDSWITH", end_expr)

    def substring(self, begin_index: Any, length: Any = None) -> Self:
        """Return a part of it, from a place that counts from 1."""
        return self._call("SUBSTRING", begin_index, length)

    def substr(self, begin_index: Any, length: Any = None) -> Self:
        """Return a part of it, from a place that counts from 1."""
        return self._call("SUBSTR", begin_index, length)

    def _trimmed(self, side: str, character: Any) -> Self:
        what = " " if character is None else character
        return self._as(syntax.Call("TRIM", (syntax.Symbol(side), tree_of(what), self._tree)))

    def trim_leading(self, character: Any = None) -> Self:
        """Take blanks, or something else, off the front."""
        return self._trimmed("LEADING", character)

    def trim_trailing(self, character: Any = None) -> Self:
        """Take blanks, or something else, off the end."""
        return self._trimmed("TRAILING", character)

    def trim(self, character: Any = None) -> Self:
        """Take blanks, or something else, off both ends."""
        return self._trimmed("BOTH", character)

    def replace(self, search: Any = None, replacement: Any = None) -> Self:
        """Replace a text wherever it stands in this one."""
        return self._call("REPLACE", search, replacement)

    def translate(self, from_str: Any, to_str: Any) -> Self:
        """Replace characters by others, each by the one at its place."""
        return self._call("TRANSLATE", from_str, to_str)

    @property
    def char_length(self) -> Self:
        """How many characters it has."""
        return self._call("CHAR_LENGTH")

    @property
    def upper_case(self) -> Self:
        """The text in upper case."""
        return self._call("UPPER")

    @property
    def lower_case(self) -> Self:
        """The text in lower case."""
        return self._call("LOWER")

    @property
    def init_cap(self) -> Self:
        """The text with every word's first letter in upper case."""
        return self._call("INITCAP")

    def like(self, pattern: Any = None, escape: Any = None) -> Self:
        """Tell whether it fits a pattern of `%` and `_`."""
        return self._call("LIKE", pattern, escape)

    def similar(self, pattern: Any = None) -> Self:
        """Tell whether it fits SQL's own kind of regular expression."""
        return self._call("SIMILAR TO", pattern)

    def position(self, haystack: Any = None) -> Self:
        """Return where it stands in another text, from 1; 0 where it does not."""
        return self._call("POSITION", haystack)

    def lpad(self, length: Any, pad: Any) -> Self:
        """Fill it up to a length on the left."""
        return self._call("LPAD", length, pad)

    def rpad(self, length: Any, pad: Any) -> Self:
        """Fill it up to a length on the right."""
        return self._call("RPAD", length, pad)

    def overlay(self, new_string: Any, starting: Any, length: Any = None) -> Self:
        """Replace a part of it, from a place that counts from 1."""
        return self._call("OVERLAY", new_string, starting, length)

    def regexp(self, regex: Any) -> Self:
        """Tell whether a regular expression is found in it."""
        return self._call("REGEXP", regex)

    def regexp_count(self, regex: Any) -> Self:
        """Count how often a regular expression is found."""
        return self._call("REGEXP_COUNT", regex)

    def regexp_replace(self, regex: Any, replacement: Any) -> Self:
        """Replace what a regular expression finds."""
        return self._call("REGEXP_REPLACE", regex, replacement)

    def regexp_extract(self, regex: Any, extract_index: Any = None) -> Self:
        """Return what a regular expression, or a group of it, finds."""
        return self._call("REGEXP_EXTRACT", regex, extract_index)

    def regexp_extract_all(self, regex: Any, extract_index: Any = None) -> Self:
        """Return all that a regular expression, or a group of it, finds."""
        return self._call("REGEXP_EXTRACT_ALL", regex, extract_index)

    def regexp_instr(self, regex: Any) -> Self:
        """Return where a regular expression is found first, from 1."""
        return self._call("REGEXP_INSTR", regex)

    def regexp_substr(self, regex: Any) -> Self:
        """Return what a regular expression finds first."""
        return self._call("REGEXP_SUBSTR", regex)

    @property
    def from_base64(self) -> Self:
        """The text that Base64 stands for."""
        return self._call("FROM_BASE64")

    @property
    def to_base64(self) -> Self:
        """The text in Base64."""
        return self._call("TO_BASE64")

    @property
    def ascii(self) -> Self:
        """The number of the first character."""
        return self._call("ASCII")

    @property
    def chr(self) -> Self:
        """The character of a number."""
        return self._call("CHR")

    def decode(self, charset: Any) -> Self:
        """Return the text of bytes."""
        return self._call("DECODE", charset)

    def encode(self, charset: Any) -> Self:
        """Return the bytes of text."""
        return self._call("ENCODE", charset)

    def left(self, length: Any) -> Self:
        """Return the first characters."""
        return self._call("LEFT", length)

    def right(self, length: Any) -> Self:
        """Return the last characters."""
        return self._call("RIGHT", length)

    def instr(self, s: Any) -> Self:
        """Return where another text stands in it, from 1."""
        return self._call("INSTR", s)

    def locate(self, s: Any, pos: Any = None) -> Self:
        """Return where it stands in another text, from 1, from a place on."""
        return self._call("LOCATE", s, pos)

    def url_decode(self) -> Self:
        """Read what a URL writes with `%`."""
        return self._call("URL_DECODE")

    def url_encode(self) -> Self:
        """Write as a URL does, with `%`."""
        return self._call("URL_ENCODE")

    def inet_aton(self) -> Self:
        """Return the number of an IPv4 address."""
        return self._call("INET_ATON")

    def inet_ntoa(self) -> Self:
        """Return the IPv4 address of a number."""
        return self._call("INET_NTOA")

    def parse_url(self, part_to_extract: Any, key: Any = None) -> Self:
        """Return a part of a URL."""
        return self._call("PARSE_URL", part_to_extract, key)

    def printf(self, *obj: Any) -> Self:
        """Fill a format with values."""
        return self._call("PRINTF", *obj)

    def ltrim(self, trim_str: Any = None) -> Self:
        """Take blanks, or some characters, off the front."""
        return self._call("LTRIM", trim_str)

    def rtrim(self, trim_str: Any = None) -> Self:
        """Take blanks, or some characters, off the end."""
        return self._call("RTRIM", trim_str)

    def btrim(self, trim_str: Any = None) -> Self:
        """Take blanks, or some characters, off both ends."""
        return self._call("BTRIM", trim_str)

    def repeat(self, n: Any) -> Self:
        """Return it so many times."""
        return self._call("REPEAT", n)

    @property
    def reverse(self) -> Self:
        """The text from its end to its beginning."""
        return self._call("REVERSE")

    def split_index(self, separator: Any, index: Any) -> Self:
        """Return one of the parts between separators, from 0."""
        return self._call("SPLIT_INDEX", separator, index)

    def str_to_map(self, list_delimiter: Any = None, key_value_delimiter: Any = None) -> Self:
        """Return the map that text such as `a=1,b=2` says."""
        if list_delimiter is None or key_value_delimiter is None:
            return self._call("STR_TO_MAP")
        return self._call("STR_TO_MAP", list_delimiter, key_value_delimiter)

    def elt(self, expr: Any, *exprs: Any) -> Self:
        """Return the one of some values that is at this place, from 1."""
        return self._call("ELT", expr, *exprs)

    def split(self, delimiter: Any) -> Self:
        """Return the parts between delimiters."""
        return self._call("SPLIT", delimiter)

    # --- hashes

    @property
    def md5(self) -> Self:
        """Its MD5 hash in hexadecimal."""
        return self._call("MD5")

    @property
    def sha1(self) -> Self:
        """Its SHA-1 hash in hexadecimal."""
        return self._call("SHA1")

    @property
    def sha224(self) -> Self:
        """Its SHA-224 hash in hexadecimal."""
        return self._call("SHA224")

    @property
    def sha256(self) -> Self:
        """Its SHA-256 hash in hexadecimal."""
        return self._call("SHA256")

    @property
    def sha384(self) -> Self:
        """Its SHA-384 hash in hexadecimal."""
        return self._call("SHA384")

    @property
    def sha512(self) -> Self:
        """Its SHA-512 hash in hexadecimal."""
        return self._call("SHA512")

    def sha2(self, hash_length: Any) -> Self:
        """Return its SHA-2 hash of so many bits, in hexadecimal."""
        return self._call("SHA2", hash_length)

    # --- JSON

    def is_json(self, json_type: JsonType | None = None) -> Self:
        """Tell whether it is JSON, or JSON of a kind."""
        return self._call(f"IS JSON {(json_type or JsonType.VALUE).name}")

    def json_exists(self, path: str, on_error: JsonExistsOnError | None = None) -> Self:
        """Tell whether a path leads to something."""
        error = None if on_error is None else on_error.name
        return self._as(syntax.Json("JSON_EXISTS", (self._tree, tree_of(path)), error=error))

    def json_value(
        self,
        path: str,
        returning_type: DataType = _STRING,
        on_empty: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_empty: Any = None,
        on_error: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_error: Any = None,
    ) -> Self:
        """Return the single value that a path leads to."""

        def said(behaviour: JsonValueOnEmptyOrError, default: Any) -> str | syntax.Expression:
            return tree_of(default) if behaviour is JsonValueOnEmptyOrError.DEFAULT else behaviour.name

        empty, error = said(on_empty, default_on_empty), said(on_error, default_on_error)
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

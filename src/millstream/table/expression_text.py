"""Expression methods for text and bytes."""

from __future__ import annotations

from typing import Self

from millstream.common.aliases import T
from millstream.sql.language import syntax
from millstream.table.api_syntax import Operand
from millstream.table.expression_operators import ExpressionBase, tree_of


class TextExpression(ExpressionBase[T]):
    """Text and bytes."""

    def concat(self, other: Operand) -> Self:
        """Append another text."""
        return self._call("CONCAT", other)

    def starts_with(self, start_expr: Operand) -> Self:
        """Return whether the text starts with another."""
        return self._call("STARTSWITH", start_expr)

    def ends_with(self, end_expr: Operand) -> Self:
        """Return whether the text ends with another."""
        return self._call("ENDSWITH", end_expr)

    def substring(self, begin_index: Operand, length: Operand = None) -> Self:
        """Return a substring; positions count from 1."""
        return self._call("SUBSTRING", begin_index, length)

    def substr(self, begin_index: Operand, length: Operand = None) -> Self:
        """Return a substring; positions count from 1."""
        return self._call("SUBSTR", begin_index, length)

    def _trimmed(self, side: str, character: Operand) -> Self:
        trimmed = " " if character is None else character
        return self._as(syntax.Call("TRIM", (syntax.Symbol(side), tree_of(trimmed), self._tree)))

    def trim_leading(self, character: Operand = None) -> Self:
        """Trim blanks, or another text, from the start."""
        return self._trimmed("LEADING", character)

    def trim_trailing(self, character: Operand = None) -> Self:
        """Trim blanks, or another text, from the end."""
        return self._trimmed("TRAILING", character)

    def trim(self, character: Operand = None) -> Self:
        """Trim blanks, or another text, from both ends."""
        return self._trimmed("BOTH", character)

    def replace(self, search: Operand = None, replacement: Operand = None) -> Self:
        """Replace all occurrences of a text."""
        return self._call("REPLACE", search, replacement)

    def translate(self, from_str: Operand, to_str: Operand) -> Self:
        """Replace each character in one text by the character at its position in another."""
        return self._call("TRANSLATE", from_str, to_str)

    @property
    def char_length(self) -> Self:
        """The number of characters."""
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

    def like(self, pattern: Operand = None, escape: Operand = None) -> Self:
        """Return whether the text matches a LIKE pattern."""
        return self._call("LIKE", pattern, escape)

    def similar(self, pattern: Operand = None) -> Self:
        """Return whether the text matches a SQL regular expression."""
        return self._call("SIMILAR TO", pattern)

    def position(self, haystack: Operand = None) -> Self:
        """Return the position in another text, from 1; 0 if absent."""
        return self._call("POSITION", haystack)

    def lpad(self, length: Operand, pad: Operand) -> Self:
        """Pad the text on the left to a length."""
        return self._call("LPAD", length, pad)

    def rpad(self, length: Operand, pad: Operand) -> Self:
        """Pad the text on the right to a length."""
        return self._call("RPAD", length, pad)

    def overlay(self, new_string: Operand, starting: Operand, length: Operand = None) -> Self:
        """Replace a substring; positions count from 1."""
        return self._call("OVERLAY", new_string, starting, length)

    def regexp(self, regex: Operand) -> Self:
        """Return whether a regular expression matches a part of the text."""
        return self._call("REGEXP", regex)

    def regexp_count(self, regex: Operand) -> Self:
        """Count the matches of a regular expression."""
        return self._call("REGEXP_COUNT", regex)

    def regexp_replace(self, regex: Operand, replacement: Operand) -> Self:
        """Replace the matches of a regular expression."""
        return self._call("REGEXP_REPLACE", regex, replacement)

    def regexp_extract(self, regex: Operand, extract_index: Operand = None) -> Self:
        """Return the first match of a regular expression, or of a group."""
        return self._call("REGEXP_EXTRACT", regex, extract_index)

    def regexp_extract_all(self, regex: Operand, extract_index: Operand = None) -> Self:
        """Return all matches of a regular expression, or of a group."""
        return self._call("REGEXP_EXTRACT_ALL", regex, extract_index)

    def regexp_instr(self, regex: Operand) -> Self:
        """Return the position of the first match of a regular expression, from 1."""
        return self._call("REGEXP_INSTR", regex)

    def regexp_substr(self, regex: Operand) -> Self:
        """Return the first match of a regular expression."""
        return self._call("REGEXP_SUBSTR", regex)

    @property
    def from_base64(self) -> Self:
        """The text decoded from Base64."""
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

    def decode(self, charset: Operand) -> Self:
        """Return the text of bytes."""
        return self._call("DECODE", charset)

    def encode(self, charset: Operand) -> Self:
        """Return the bytes of text."""
        return self._call("ENCODE", charset)

    def left(self, length: Operand) -> Self:
        """Return the first characters."""
        return self._call("LEFT", length)

    def right(self, length: Operand) -> Self:
        """Return the last characters."""
        return self._call("RIGHT", length)

    def instr(self, s: Operand) -> Self:
        """Return the position of another text, from 1."""
        return self._call("INSTR", s)

    def locate(self, s: Operand, pos: Operand = None) -> Self:
        """Return the position in another text, from 1, searching from a position."""
        return self._call("LOCATE", s, pos)

    def url_decode(self) -> Self:
        """Decode percent-encoding."""
        return self._call("URL_DECODE")

    def url_encode(self) -> Self:
        """Percent-encode for URLs."""
        return self._call("URL_ENCODE")

    def inet_aton(self) -> Self:
        """Return the number of an IPv4 address."""
        return self._call("INET_ATON")

    def inet_ntoa(self) -> Self:
        """Return the IPv4 address of a number."""
        return self._call("INET_NTOA")

    def parse_url(self, part_to_extract: Operand, key: Operand = None) -> Self:
        """Return a part of a URL."""
        return self._call("PARSE_URL", part_to_extract, key)

    def printf(self, *obj: Operand) -> Self:
        """Fill a format with values."""
        return self._call("PRINTF", *obj)

    def ltrim(self, trim_str: Operand = None) -> Self:
        """Trim blanks, or some characters, from the start."""
        return self._call("LTRIM", trim_str)

    def rtrim(self, trim_str: Operand = None) -> Self:
        """Trim blanks, or some characters, from the end."""
        return self._call("RTRIM", trim_str)

    def btrim(self, trim_str: Operand = None) -> Self:
        """Trim blanks, or some characters, from both ends."""
        return self._call("BTRIM", trim_str)

    def repeat(self, n: Operand) -> Self:
        """Repeat the text."""
        return self._call("REPEAT", n)

    @property
    def reverse(self) -> Self:
        """The reversed text."""
        return self._call("REVERSE")

    def split_index(self, separator: Operand, index: Operand) -> Self:
        """Return one of the parts between separators, from 0."""
        return self._call("SPLIT_INDEX", separator, index)

    def str_to_map(self, list_delimiter: Operand = None, key_value_delimiter: Operand = None) -> Self:
        """Parse text such as `a=1,b=2` to a map."""
        if list_delimiter is None or key_value_delimiter is None:
            return self._call("STR_TO_MAP")
        return self._call("STR_TO_MAP", list_delimiter, key_value_delimiter)

    def elt(self, expr: Operand, *exprs: Operand) -> Self:
        """Return the value at this index, from 1."""
        return self._call("ELT", expr, *exprs)

    def split(self, delimiter: Operand) -> Self:
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

    def sha2(self, hash_length: Operand) -> Self:
        """Return the SHA-2 hash of a bit length, in hexadecimal."""
        return self._call("SHA2", hash_length)

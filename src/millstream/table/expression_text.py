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
        """Append another text.

        Example:
            >>> list(t_env.from_elements([lit("to").concat("day")]).execute().collect())
            [<Row('today')>]
        """
        return self._call("CONCAT", other)

    def starts_with(self, start_expr: Operand) -> Self:
        """Return whether the text starts with another.

        Example:
            >>> list(t_env.from_elements([lit("today").starts_with("to")]).execute().collect())
            [<Row(True)>]
        """
        return self._call("STARTSWITH", start_expr)

    def ends_with(self, end_expr: Operand) -> Self:
        """Return whether the text ends with another.

        Example:
            >>> list(t_env.from_elements([lit("today").ends_with("day")]).execute().collect())
            [<Row(True)>]
        """
        return self._call("ENDSWITH", end_expr)

    def substring(self, begin_index: Operand, length: Operand = None) -> Self:
        """Return a substring from a position, counted from 1, to the end or of a length.

        Example:
            >>> list(t_env.from_elements([lit("today").substring(3), lit("today").substring(1, 2)]).execute().collect())
            [<Row('day')>, <Row('to')>]
        """
        return self._call("SUBSTRING", begin_index, length)

    def substr(self, begin_index: Operand, length: Operand = None) -> Self:
        """Return a substring from a position, counted from 1; the same as `substring`.

        Example:
            >>> list(t_env.from_elements([lit("today").substr(3)]).execute().collect())
            [<Row('day')>]
        """
        return self._call("SUBSTR", begin_index, length)

    def _trimmed(self, side: str, character: Operand) -> Self:
        trimmed = " " if character is None else character
        return self._as(syntax.Call("TRIM", (syntax.Symbol(side), tree_of(trimmed), self._tree)))

    def trim_leading(self, character: Operand = None) -> Self:
        """Trim blanks, or another text, from the start.

        Example:
            >>> list(t_env.from_elements([lit("xxto").trim_leading("x")]).execute().collect())
            [<Row('to')>]
        """
        return self._trimmed("LEADING", character)

    def trim_trailing(self, character: Operand = None) -> Self:
        """Trim blanks, or another text, from the end.

        Example:
            >>> list(t_env.from_elements([lit("toxx").trim_trailing("x")]).execute().collect())
            [<Row('to')>]
        """
        return self._trimmed("TRAILING", character)

    def trim(self, character: Operand = None) -> Self:
        """Trim blanks, or another text, from both ends.

        Example:
            >>> list(t_env.from_elements([lit("  to ").trim(), lit("xtox").trim("x")]).execute().collect())
            [<Row('to')>, <Row('to')>]
        """
        return self._trimmed("BOTH", character)

    def replace(self, search: Operand = None, replacement: Operand = None) -> Self:
        """Replace all occurrences of a text.

        Example:
            >>> list(t_env.from_elements([lit("to be").replace("be", "do")]).execute().collect())
            [<Row('to do')>]
        """
        return self._call("REPLACE", search, replacement)

    def translate(self, from_str: Operand, to_str: Operand) -> Self:
        """Replace each character in one text by the character at its position in another.

        Example:
            >>> list(t_env.from_elements([lit("2026-11-19").translate("-", "/")]).execute().collect())
            [<Row('2026/11/19')>]
        """
        return self._call("TRANSLATE", from_str, to_str)

    @property
    def char_length(self) -> Self:
        """The number of characters.

        Example:
            >>> list(t_env.from_elements([lit("today").char_length]).execute().collect())
            [<Row(5)>]
        """
        return self._call("CHAR_LENGTH")

    @property
    def upper_case(self) -> Self:
        """The text in upper case.

        Example:
            >>> list(t_env.from_elements([lit("to").upper_case]).execute().collect())
            [<Row('TO')>]
        """
        return self._call("UPPER")

    @property
    def lower_case(self) -> Self:
        """The text in lower case.

        Example:
            >>> list(t_env.from_elements([lit("TO").lower_case]).execute().collect())
            [<Row('to')>]
        """
        return self._call("LOWER")

    @property
    def init_cap(self) -> Self:
        """The text with every word's first letter in upper case.

        Example:
            >>> list(t_env.from_elements([lit("to be").init_cap]).execute().collect())
            [<Row('To Be')>]
        """
        return self._call("INITCAP")

    def like(self, pattern: Operand = None, escape: Operand = None) -> Self:
        """Return whether the text matches a LIKE pattern: `_` is one character, `%` any number.

        Example:
            >>> list(t_env.from_elements([lit("today").like("to%"), lit("100%").like("%!%", "!")]).execute().collect())
            [<Row(True)>, <Row(True)>]
        """
        return self._call("LIKE", pattern, escape)

    def similar(self, pattern: Operand = None) -> Self:
        """Return whether all of the text matches a SQL regular expression.

        Example:
            >>> list(t_env.from_elements([lit("today").similar("to(day|night)")]).execute().collect())
            [<Row(True)>]
        """
        return self._call("SIMILAR TO", pattern)

    def position(self, haystack: Operand = None) -> Self:
        """Return its position in another text, from 1; 0 if absent.

        Example:
            >>> list(t_env.from_elements([lit("day").position("today")]).execute().collect())
            [<Row(3)>]
        """
        return self._call("POSITION", haystack)

    def lpad(self, length: Operand, pad: Operand) -> Self:
        """Pad the text on the left to a length; a longer text is cut.

        Example:
            >>> list(t_env.from_elements([lit("7").lpad(3, "0")]).execute().collect())
            [<Row('007')>]
        """
        return self._call("LPAD", length, pad)

    def rpad(self, length: Operand, pad: Operand) -> Self:
        """Pad the text on the right to a length; a longer text is cut.

        Example:
            >>> list(t_env.from_elements([lit("to").rpad(4, ".")]).execute().collect())
            [<Row('to..')>]
        """
        return self._call("RPAD", length, pad)

    def overlay(self, new_string: Operand, starting: Operand, length: Operand = None) -> Self:
        """Replace a substring of the new text's length, or of a length; positions count from 1.

        Example:
            >>> list(t_env.from_elements([lit("today").overlay("Mon", 1, 2)]).execute().collect())
            [<Row('Monday')>]
        """
        return self._call("OVERLAY", new_string, starting, length)

    def regexp(self, regex: Operand) -> Self:
        """Return whether a regular expression matches a part of the text.

        Example:
            >>> list(t_env.from_elements([lit("order 17").regexp("[0-9]+")]).execute().collect())
            [<Row(True)>]
        """
        return self._call("REGEXP", regex)

    def regexp_count(self, regex: Operand) -> Self:
        """Count the matches of a regular expression.

        Example:
            >>> list(t_env.from_elements([lit("a1b22").regexp_count("[0-9]")]).execute().collect())
            [<Row(3)>]
        """
        return self._call("REGEXP_COUNT", regex)

    def regexp_replace(self, regex: Operand, replacement: Operand) -> Self:
        """Replace all matches of a regular expression.

        Example:
            >>> list(t_env.from_elements([lit("a1b22").regexp_replace("[0-9]+", "#")]).execute().collect())
            [<Row('a#b#')>]
        """
        return self._call("REGEXP_REPLACE", regex, replacement)

    def regexp_extract(self, regex: Operand, extract_index: Operand = None) -> Self:
        """Return the first match of a regular expression, or of a group of it, by its number.

        Example:
            >>> list(t_env.from_elements([lit("order 17").regexp_extract("order ([0-9]+)", 1)]).execute().collect())
            [<Row('17')>]
        """
        return self._call("REGEXP_EXTRACT", regex, extract_index)

    def regexp_extract_all(self, regex: Operand, extract_index: Operand = None) -> Self:
        """Return all matches of a regular expression, or of a group, by default the first group.

        Example:
            >>> list(t_env.from_elements([lit("a=1 b=2").regexp_extract_all("([a-z])=([0-9])", 2)]).execute().collect())
            [<Row(['1', '2'])>]
        """
        return self._call("REGEXP_EXTRACT_ALL", regex, extract_index)

    def regexp_instr(self, regex: Operand) -> Self:
        """Return the position of the first match of a regular expression, from 1.

        Example:
            >>> list(t_env.from_elements([lit("order 17").regexp_instr("[0-9]")]).execute().collect())
            [<Row(7)>]
        """
        return self._call("REGEXP_INSTR", regex)

    def regexp_substr(self, regex: Operand) -> Self:
        """Return the first match of a regular expression.

        Example:
            >>> list(t_env.from_elements([lit("order 17").regexp_substr("[0-9]+")]).execute().collect())
            [<Row('17')>]
        """
        return self._call("REGEXP_SUBSTR", regex)

    @property
    def from_base64(self) -> Self:
        """The text decoded from Base64.

        Example:
            >>> list(t_env.from_elements([lit("dG8=").from_base64]).execute().collect())
            [<Row('to')>]
        """
        return self._call("FROM_BASE64")

    @property
    def to_base64(self) -> Self:
        """The text in Base64.

        Example:
            >>> list(t_env.from_elements([lit("to").to_base64]).execute().collect())
            [<Row('dG8=')>]
        """
        return self._call("TO_BASE64")

    @property
    def ascii(self) -> Self:
        """The code of the first character.

        Example:
            >>> list(t_env.from_elements([lit("A").ascii]).execute().collect())
            [<Row(65)>]
        """
        return self._call("ASCII")

    @property
    def chr(self) -> Self:
        """The character of a code.

        Example:
            >>> list(t_env.from_elements([lit(65).chr]).execute().collect())
            [<Row('A')>]
        """
        return self._call("CHR")

    def decode(self, charset: Operand) -> Self:
        """Return the text of bytes in a charset.

        Example:
            >>> list(t_env.from_elements([lit(b"to").decode("UTF-8")]).execute().collect())
            [<Row('to')>]
        """
        return self._call("DECODE", charset)

    def encode(self, charset: Operand) -> Self:
        """Return the bytes of text in a charset.

        Example:
            >>> list(t_env.from_elements([lit("to").encode("UTF-8")]).execute().collect())
            [<Row(b'to')>]
        """
        return self._call("ENCODE", charset)

    def left(self, length: Operand) -> Self:
        """Return the first characters.

        Example:
            >>> list(t_env.from_elements([lit("today").left(2)]).execute().collect())
            [<Row('to')>]
        """
        return self._call("LEFT", length)

    def right(self, length: Operand) -> Self:
        """Return the last characters.

        Example:
            >>> list(t_env.from_elements([lit("today").right(3)]).execute().collect())
            [<Row('day')>]
        """
        return self._call("RIGHT", length)

    def instr(self, s: Operand) -> Self:
        """Return the position of another text in it, from 1; 0 if absent.

        Example:
            >>> list(t_env.from_elements([lit("today").instr("day")]).execute().collect())
            [<Row(3)>]
        """
        return self._call("INSTR", s)

    def locate(self, s: Operand, pos: Operand = None) -> Self:
        """Return its position in another text, from 1, searching from a position; 0 if absent.

        Example:
            >>> list(t_env.from_elements([lit("o").locate("to do"), lit("o").locate("to do", 3)]).execute().collect())
            [<Row(2)>, <Row(5)>]
        """
        return self._call("LOCATE", s, pos)

    def url_decode(self) -> Self:
        """Decode percent-encoding.

        Example:
            >>> list(t_env.from_elements([lit("a%20b").url_decode()]).execute().collect())
            [<Row('a b')>]
        """
        return self._call("URL_DECODE")

    def url_encode(self) -> Self:
        """Percent-encode for URLs.

        Example:
            >>> list(t_env.from_elements([lit("a b&c").url_encode()]).execute().collect())
            [<Row('a+b%26c')>]
        """
        return self._call("URL_ENCODE")

    def inet_aton(self) -> Self:
        """Return the number of an IPv4 address.

        Example:
            >>> list(t_env.from_elements([lit("127.0.0.1").inet_aton()]).execute().collect())
            [<Row(2130706433)>]
        """
        return self._call("INET_ATON")

    def inet_ntoa(self) -> Self:
        """Return the IPv4 address of a number.

        Example:
            >>> list(t_env.from_elements([lit(2130706433).inet_ntoa()]).execute().collect())
            [<Row('127.0.0.1')>]
        """
        return self._call("INET_NTOA")

    def parse_url(self, part_to_extract: Operand, key: Operand = None) -> Self:
        """Return a part of a URL, or a value of its query.

        The parts are HOST, PATH, QUERY, REF, PROTOCOL, AUTHORITY, FILE and USERINFO.

        Example:
            >>> list(t_env.from_elements([lit("http://example.org/a?q=1").parse_url("QUERY", "q")]).execute().collect())
            [<Row('1')>]
        """
        return self._call("PARSE_URL", part_to_extract, key)

    def printf(self, *obj: Operand) -> Self:
        """Fill a format with values.

        Example:
            >>> list(t_env.from_elements([lit("%s: %d").printf("to", 2)]).execute().collect())
            [<Row('to: 2')>]
        """
        return self._call("PRINTF", *obj)

    def ltrim(self, trim_str: Operand = None) -> Self:
        """Trim blanks, or some characters, from the start.

        Example:
            >>> list(t_env.from_elements([lit("xyto").ltrim("yx")]).execute().collect())
            [<Row('to')>]
        """
        return self._call("LTRIM", trim_str)

    def rtrim(self, trim_str: Operand = None) -> Self:
        """Trim blanks, or some characters, from the end.

        Example:
            >>> list(t_env.from_elements([lit("toxy").rtrim("yx")]).execute().collect())
            [<Row('to')>]
        """
        return self._call("RTRIM", trim_str)

    def btrim(self, trim_str: Operand = None) -> Self:
        """Trim blanks, or some characters, from both ends.

        Example:
            >>> list(t_env.from_elements([lit("xtoy").btrim("yx")]).execute().collect())
            [<Row('to')>]
        """
        return self._call("BTRIM", trim_str)

    def repeat(self, n: Operand) -> Self:
        """Repeat the text.

        Example:
            >>> list(t_env.from_elements([lit("to").repeat(2)]).execute().collect())
            [<Row('toto')>]
        """
        return self._call("REPEAT", n)

    @property
    def reverse(self) -> Self:
        """The reversed text.

        Example:
            >>> list(t_env.from_elements([lit("tip").reverse]).execute().collect())
            [<Row('pit')>]
        """
        return self._call("REVERSE")

    def split_index(self, separator: Operand, index: Operand) -> Self:
        """Return one of the parts between separators, from 0.

        Example:
            >>> list(t_env.from_elements([lit("to,be,or").split_index(",", 1)]).execute().collect())
            [<Row('be')>]
        """
        return self._call("SPLIT_INDEX", separator, index)

    def str_to_map(self, list_delimiter: Operand = None, key_value_delimiter: Operand = None) -> Self:
        """Parse text such as `a=1,b=2` to a map; the delimiters are regular expressions, by default `,` and `=`.

        Example:
            >>> list(t_env.from_elements([lit("a=1,b=2").str_to_map()]).execute().collect())
            [<Row({'a': '1', 'b': '2'})>]
        """
        if list_delimiter is None or key_value_delimiter is None:
            return self._call("STR_TO_MAP")
        return self._call("STR_TO_MAP", list_delimiter, key_value_delimiter)

    def elt(self, expr: Operand, *exprs: Operand) -> Self:
        """Return the value at this index, from 1.

        Example:
            >>> list(t_env.from_elements([lit(2).elt("to", "be", "or")]).execute().collect())
            [<Row('be')>]
        """
        return self._call("ELT", expr, *exprs)

    def split(self, delimiter: Operand) -> Self:
        """Return the parts between delimiters.

        Example:
            >>> list(t_env.from_elements([lit("to be").split(" ")]).execute().collect())
            [<Row(['to', 'be'])>]
        """
        return self._call("SPLIT", delimiter)

    # --- hashes

    @property
    def md5(self) -> Self:
        """Its MD5 hash in hexadecimal.

        Example:
            >>> list(t_env.from_elements([lit("to").md5]).execute().collect())
            [<Row('01b6e20344b68835c5ed1ddedf20d531')>]
        """
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
        """Return the SHA-2 hash of a bit length, in hexadecimal.

        Example:
            >>> list(t_env.from_elements([lit("to").sha2(256).left(16)]).execute().collect())
            [<Row('663ea1bfffe5038f')>]
        """
        return self._call("SHA2", hash_length)

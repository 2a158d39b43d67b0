"""The lexer, and reserved keywords."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from millstream.sql.language.errors import syntax_error


class Kind(Enum):
    """The kind of a token."""

    WORD = auto()
    QUOTED = auto()
    STRING = auto()
    BINARY = auto()
    INTEGER = auto()
    DECIMAL = auto()
    DOUBLE = auto()
    SYMBOL = auto()
    HINT = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token.

    Attributes:
        kind: its kind.
        text: a word or symbol as written; for names and strings the text between the quotes.
        upper: a word or symbol in upper case, for comparison with keywords; empty for quoted tokens.
        position, end: its start and end offset in the text.
    """

    kind: Kind
    text: str
    upper: str
    position: int
    end: int


_PATTERN = re.compile(
    r"""
      (?P<blank>\s+|--[^\n]*|/\*(?!\+).*?\*/)
    | (?P<hint>/\*\+|\*/)
    | (?P<unicode>[uU]&'(?:[^']|'')*')
    | (?P<binary>[xX]'[^']*')
    | (?P<charset>_[\w]+'(?:[^']|'')*')
    | (?P<string>[nN]?'(?:[^']|'')*')
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<double>(?:\d+(?:\.\d*)?|\.\d+)[eE][+-]?\d+)
    | (?P<decimal>\d+\.\d*|\.\d+)
    | (?P<integer>\d+)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<symbol><>|<=|>=|!=|\|\||=>|::|\.\.|[-+*/%<>=(),.;?:\[\]{}|^$])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\\\|\\\+([0-9a-fA-F]{6})|\\([0-9a-fA-F]{4})")


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text; the last is the end token."""
    result = list(_tokens(text))
    result.append(Token(Kind.END, "", "", len(text), len(text)))
    return result


def _tokens(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        match = _PATTERN.match(text, position)
        if match is None:
            raise _unknown(text, position)
        end = match.end()
        if match.lastgroup != "blank":
            yield _token(text, str(match.lastgroup), match.group(), position, end)
        position = end


def _unknown(text: str, position: int) -> Exception:
    unclosed = {"'": "A string is not closed", "`": "A quoted name is not closed", "/": "A comment is not closed"}
    if text[position] == '"':
        return syntax_error(
            text, position, "Names are quoted with backquotes (`), strings with single quotes: Encountered '\"'"
        )
    return syntax_error(text, position, unclosed.get(text[position], f"Encountered {text[position]!r}"))


def _token(text: str, group: str, lexeme: str, position: int, end: int) -> Token:
    if group == "word":
        return Token(Kind.WORD, lexeme, lexeme.upper(), position, end)
    if group == "symbol":
        return Token(Kind.SYMBOL, lexeme, lexeme, position, end)
    if group == "hint":
        return Token(Kind.HINT, lexeme, lexeme, position, end)
    if group == "quoted":
        name = lexeme[1:-1].replace("``", "`")
        if not name:
            raise syntax_error(text, position, "A name cannot be empty: Encountered '``'")
        return Token(Kind.QUOTED, name, "", position, end)
    if group in ("string", "charset"):
        return Token(Kind.STRING, _unquoted(lexeme), "", position, end)
    if group == "unicode":
        return Token(Kind.STRING, _ESCAPE.sub(_character, _unquoted(lexeme)), "", position, end)
    if group == "binary":
        return Token(Kind.BINARY, _hexadecimal(text, lexeme[2:-1], position), "", position, end)
    return Token(Kind[group.upper()], lexeme, "", position, end)


def _unquoted(lexeme: str) -> str:
    return lexeme[lexeme.index("'") + 1 : -1].replace("''", "'")


def _character(match: re.Match[str]) -> str:
    code = match.group(1) or match.group(2)
    return "\\" if code is None else chr(int(code, 16))


def _hexadecimal(text: str, digits: str, position: int) -> str:
    if len(digits) % 2 or not re.fullmatch("[0-9a-fA-F]*", digits):
        raise syntax_error(text, position, "Binary literal string must contain an even number of hexits")
    return digits


_RESERVED = """
ABS ALL ALLOCATE ALLOW ALTER AND ANY ARE ARRAY ARRAY_CONCAT_AGG ARRAY_MAX_CARDINALITY AS ASENSITIVE ASYMMETRIC AT
ATOMIC AUTHORIZATION AVG BEGIN BEGIN_FRAME BEGIN_PARTITION BETWEEN BIGINT BINARY BIT BITMAP BLOB BOOLEAN BOTH BUCKETS
BY BYTES CALL CALLED CARDINALITY CASCADED CASE CAST CATALOGS CEIL CEILING CHAR CHARACTER CHARACTER_LENGTH CHAR_LENGTH
CHECK CLASSIFIER CLOB CLOSE COALESCE COLLATE COLLECT COLUMN COMMENT COMMIT CONDITION CONNECT CONNECTIONS CONSTRAINT
CONTAINS CONTAINS_SUBSTR CONTINUOUS CONVERT CORR CORRESPONDING COUNT COVAR_POP COVAR_SAMP CREATE CROSS CUBE CUME_DIST
CURRENT CURRENT_CATALOG CURRENT_DATE CURRENT_DEFAULT_TRANSFORM_GROUP CURRENT_PATH CURRENT_ROLE CURRENT_ROW
CURRENT_SCHEMA CURRENT_TIME CURRENT_TIMESTAMP CURRENT_TRANSFORM_GROUP_FOR_TYPE CURRENT_USER CURSOR CYCLE DATABASES
DATE DATETIME DATETIME_TRUNC DATE_TRUNC DAY DEALLOCATE DEC DECIMAL DECLARE DEFAULT DEFINE DELETE DENSE_RANK DEREF
DESCRIBE DETERMINISTIC DISALLOW DISCONNECT DISTINCT DISTRIBUTED DISTRIBUTION DOT DOUBLE DROP DYNAMIC EACH ELEMENT ELSE
EMPTY END END-EXEC END_FRAME END_PARTITION EQUALS ESCAPE EVERY EXCEPT EXEC EXECUTE EXISTS EXP EXPLAIN EXTEND EXTENDED
EXTERNAL EXTRACT FALSE FETCH FILTER FIRST_VALUE FLOAT FLOOR FOR FOREIGN FRAME_ROW FREE FRESHNESS FRIDAY FROM FULL
FUNCTION FUNCTIONS FUSION GET GLOBAL GRANT GROUP GROUPING GROUPS GROUP_CONCAT HASH HAVING HOLD HOUR IDENTITY ILIKE
IMPORT IN INCLUDE INDICATOR INITIAL INNER INOUT INSENSITIVE INSERT INT INTEGER INTERSECT INTERSECTION INTERVAL INTO IS
JOIN JSON_ARRAY JSON_ARRAYAGG JSON_EXISTS JSON_OBJECT JSON_OBJECTAGG JSON_QUERY JSON_SCOPE JSON_VALUE LAG LANGUAGE
LARGE LAST_VALUE LATERAL LEAD LEADING LEFT LIKE LIKE_REGEX LIMIT LN LOCAL LOCALTIME LOCALTIMESTAMP LOWER MATCH MATCHES
MATCH_NUMBER MATCH_RECOGNIZE MATERIALIZED MAX MEASURES MEMBER MERGE METHOD MIN MINUS MINUTE MOD MODELS MODIFIES MODIFY
MODULE MODULES MONDAY MONTH MULTISET NATIONAL NATURAL NCHAR NCLOB NEW NEXT NO NONE NORMALIZE NOT NTH_VALUE NTILE NULL
NULLIF NUMERIC OCCURRENCES_REGEX OCTET_LENGTH OF OFFSET OLD OMIT ON ONE ONLY OPEN OR ORDER ORDINAL OUT OUTER OVER
OVERLAPS OVERLAY PARAMETER PARTITION PATTERN PER PERCENT PERCENTILE_CONT PERCENTILE_DISC PERCENT_RANK PERIOD PERMUTE
PIVOT PORTION POSITION POSITION_REGEX POWER PRECEDES PRECISION PREPARE PREV PRIMARY PROCEDURE PROCEDURES QUALIFY
QUARTERS RANGE RANK RAW READS REAL RECURSIVE REF REFERENCES REFERENCING REFRESH REFRESH_MODE REGR_AVGX REGR_AVGY
REGR_COUNT REGR_INTERCEPT REGR_R2 REGR_SLOPE REGR_SXX REGR_SXY REGR_SYY RELEASE RENAME RESET RESULT RESUME RETURN
RETURNS REVOKE RIGHT RLIKE ROLLBACK ROLLUP ROW ROWS ROW_NUMBER RUNNING SAFE_CAST SAFE_OFFSET SAFE_ORDINAL SATURDAY
SAVEPOINT SCALA SCOPE SCROLL SEARCH SECOND SEEK SELECT SENSITIVE SEPARATOR SESSION_USER SET SHOW SIMILAR SKIP SMALLINT
SOME SPECIFIC SPECIFICTYPE SQL SQLEXCEPTION SQLSTATE SQLWARNING SQRT START STATEMENT STATIC STDDEV_POP STDDEV_SAMP
STREAM STRING STRING_AGG STRUCTURED SUBMULTISET SUBSET SUBSTRING SUBSTRING_REGEX SUCCEEDS SUM SUNDAY SUSPEND SYMMETRIC
SYSTEM SYSTEM_TIME SYSTEM_USER TABLE TABLES TABLESAMPLE THEN THURSDAY TIME TIMESTAMP TIMESTAMP_DIFF TIMESTAMP_LTZ
TIMESTAMP_TRUNC TIMEZONE_HOUR TIMEZONE_MINUTE TIME_DIFF TIME_TRUNC TINYINT TO TRAILING TRANSLATE TRANSLATE_REGEX
TRANSLATION TREAT TRIGGER TRIM TRIM_ARRAY TRUE TRUNCATE TRY_CAST TUESDAY UESCAPE UNION UNIQUE UNKNOWN UNNEST UNPIVOT
UPDATE UPPER UPSERT USE USER USING VALUE VALUES VALUE_OF VARBINARY VARCHAR VARIANT VARYING VAR_POP VAR_SAMP VERSIONING
VIEWS WATERMARK WATERMARKS WEDNESDAY WEEKS WHEN WHENEVER WHERE WIDTH_BUCKET WINDOW WITH WITHIN WITHOUT YEAR
"""
# Reserved keywords that may be function names in a call.
_RESERVED_FUNCTION_NAMES = """
ABS AVG CARDINALITY CEILING CHAR CHARACTER_LENGTH CHAR_LENGTH COALESCE COLLECT COUNT COVAR_POP COVAR_SAMP CUME_DIST
CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DENSE_RANK ELEMENT EVERY EXP FIRST_VALUE FLOOR FUSION GROUPING HOUR
INTERSECTION LAG LAST_VALUE LEAD LEFT LN LOCALTIME LOCALTIMESTAMP LOWER MAX MIN MINUTE MOD MONTH NTH_VALUE NTILE
NULLIF OCTET_LENGTH PERCENTILE_CONT PERCENTILE_DISC PERCENT_RANK POWER RANK REGR_COUNT REGR_SXX REGR_SYY RIGHT
ROW_NUMBER SECOND SOME SQRT STDDEV_POP STDDEV_SAMP SUM TRANSLATE TRUNCATE UPPER USER VAR_POP VAR_SAMP YEAR
"""

RESERVED = frozenset(_RESERVED.split())
RESERVED_FUNCTIONS = frozenset(_RESERVED_FUNCTION_NAMES.split())

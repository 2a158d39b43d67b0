"""The expressions whose types and values are recorded on Flink in `values.tsv.gz`.

python -m tests.sql.expressions OUT     write them, one a line, for tests/sql/flink/Ask.java
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

# --- casts

SOURCES = [
    *("CAST(127 AS TINYINT)", "CAST(-3 AS SMALLINT)", "0", "1", "42", "300", "-129", "70000", "2147483647"),
    *("CAST(9223372036854775807 AS BIGINT)", "CAST(-5000000000 AS BIGINT)"),
    *("1.5", "-2.5", "12345.6789", "0.00001", "99999999999999999999.5", "CAST(NULL AS DECIMAL(5, 2))"),
    *("CAST(1.5 AS FLOAT)", "CAST(0.1 AS FLOAT)", "CAST(1.0E10 AS FLOAT)", "CAST(-1.0E-5 AS FLOAT)"),
    *("1.0E0", "-2.5E0", "1.0E20", "1.0E-5", "1.0E7", "9999999.0E0", "0.001E0", "123456.789E0", "-0.0E0"),
    *("CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)", "CAST('-Infinity' AS FLOAT)"),
    *("TRUE", "FALSE", "CAST(NULL AS BOOLEAN)", "CAST(NULL AS INT)", "CAST(NULL AS STRING)"),
    *("'12'", "' 12 '", "'-1'", "'+7'", "'1.5'", "'1.239'", "'-0.5'", "'abc'", "''", "' '", "'1e3'", "'12x'", "'.5'"),
    *("'5.'", "'128'", "'32768'", "'3000000000'", "'99999999999999999999'", "'0x1F'", "'1_000'", "'Infinity'", "'1d'"),
    *("'true'", "'T'", "'yes'", "'Y'", "'on'", "'off'", "'FALSE'", "'no'", "'n'", "'f'", "' true '", "'maybe'"),
    *("'2024-02-29'", "'2023-02-29'", "'2024-2-9'", "'2024-02'", "'2024'", "'2024-02-29 10:11:12'", "'2024-13-01'"),
    *("'2024-02-29 10:11:12.3456789'", "'2024-02-29T10:11:12'", "'2024-2-9 1:2:3'", "' 2024-02-29 '", "'10:11:12'"),
    *("'10:11:12.345'", "'10:11'", "'10'", "'25:00:00'", "'1:2:3'", "'9999-12-31 23:59:59.999'", "'0001-01-01'"),
    *("'hello world'", "'h\u00e9llo'", "CAST('ab' AS CHAR(5))", "CAST('hello' AS VARCHAR(3))"),
    *("x'4142'", "x'ff00'", "CAST(x'414243' AS BINARY(2))", "CAST(x'41' AS BINARY(3))", "CAST(x'414243' AS BYTES)"),
    *("DATE '2024-02-29'", "DATE '1969-12-31'", "TIME '10:11:12'", "CAST('10:11:12.345' AS TIME(3))"),
    *("TIMESTAMP '2024-02-29 10:11:12'", "TIMESTAMP '2024-02-29 10:11:12.345'", "TIMESTAMP '1969-12-31 23:59:59.9'"),
    *("TIMESTAMP '2024-02-29 10:11:12.123456789'", "TO_TIMESTAMP_LTZ(1700000000123, 3)", "TO_TIMESTAMP_LTZ(-1, 3)"),
    *("CAST(TO_TIMESTAMP_LTZ(1700000000, 0) AS TIMESTAMP_LTZ(6))", "INTERVAL '1 10:00:00' DAY TO SECOND"),
    *("INTERVAL '90' MINUTE", "INTERVAL '-1-2' YEAR TO MONTH", "INTERVAL '3' YEAR", "INTERVAL '1.5' SECOND"),
    *("ARRAY[1, 2, 3]", "ARRAY['a', NULL]", "ARRAY[1.5, 2]", "MAP['a', 1, 'b', 2]", "ROW(1, 'x', TRUE)"),
    *("ARRAY[DATE '2024-01-01']", "ARRAY[ARRAY[1], ARRAY[2, 3]]", "ROW(1, ROW('a', CAST(NULL AS INT)))"),
    *("MAP[1, ARRAY['x']]", "CAST(NULL AS ARRAY<INT>)", "ARRAY[1.0E0, 1.0E10]", "ARRAY[TRUE]"),
]
TARGETS = [
    *("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "DECIMAL(38, 10)", "DECIMAL(10, 0)"),
    *("BOOLEAN", "STRING", "CHAR(4)", "VARCHAR(3)", "BYTES", "BINARY(3)", "VARBINARY(2)", "DATE", "TIME(0)"),
    *("TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(0)"),
    *("ARRAY<STRING>", "ARRAY<BIGINT>", "MAP<STRING, BIGINT>", "ROW<a STRING, b STRING, c STRING>"),
]
_SIMPLE_TARGETS = TARGETS[:-4]
_TRIED = ("INT", "DOUBLE", "DECIMAL(5, 2)", "BOOLEAN", "DATE", "TIME(0)", "TIMESTAMP(3)")


def casts() -> Iterator[str]:
    for source in SOURCES:
        nested = source.startswith(("ARRAY", "MAP", "ROW", "CAST(NULL AS ARRAY"))
        for target in ("STRING", "VARCHAR(5)", *TARGETS[-4:]) if nested else _SIMPLE_TARGETS:
            yield f"CAST({source} AS {target})"
            if (source.startswith("'") and target in _TRIED) or "NaN" in source:
                yield f"TRY_CAST({source} AS {target})"


# --- operators

NUMBERS = [
    *("CAST(127 AS TINYINT)", "CAST(-128 AS TINYINT)", "CAST(32767 AS SMALLINT)", "2147483647", "7", "-1"),
    *("CAST(-9223372036854775808 AS BIGINT)", "CAST(3 AS BIGINT)", "CAST(1.5 AS FLOAT)", "2.5E0", "0.01", "-2.25"),
    *("12345678901234567890.123456789", "CAST(NULL AS INT)", "CAST(1 AS DECIMAL(38, 18))"),
]
COMPARED = [
    *("1", "CAST(1 AS BIGINT)", "1.0", "1.0E0", "CAST(0.1 AS FLOAT)", "'1'", "'a'", "TRUE", "CAST(NULL AS INT)"),
    *("DATE '2024-01-01'", "'2024-01-01'", "NULL", "TIMESTAMP '2024-01-01 00:00:00'", "TIME '10:00:00'", "x'41'"),
    *("TO_TIMESTAMP_LTZ(1704067200001, 3)", "INTERVAL '1' DAY", "INTERVAL '12' MONTH", "ARRAY[1, 2]", "MAP['a', 1]"),
    *("ROW(1, 'a')", "0.1", "CAST('a' AS CHAR(3))", "CAST('NaN' AS DOUBLE)"),
]


def arithmetic() -> Iterator[str]:
    for a, b in itertools.product(NUMBERS, NUMBERS):
        for operator in "+-*/%":
            yield f"{a} {operator} {b}"
    yield from (
        "1 / 0",
        "1.5 / 0",
        "1.5 / 0.0",
        "1.0E0 / 0",
        "0.0E0 / 0",
        "1 % 0",
        "MOD(7, 0)",
        "MOD(-7, 3)",
        "MOD(7.5, 2)",
    )
    yield from (f"-{n}" if not n.startswith("-") else f"-({n})" for n in NUMBERS)
    yield from ("+3", "-(-3)", "- 2.5", "NOT TRUE", "NOT CAST(NULL AS BOOLEAN)")


def comparisons() -> Iterator[str]:
    pairs = [("'abc '", "'abc'"), ("'b'", "'abc'"), ("FALSE", "TRUE"), ("INTERVAL '1' DAY", "INTERVAL '24' HOUR")]
    pairs += [("ARRAY[1, 2]", "ARRAY[1, 3]"), ("ROW(1, 'a')", "ROW(1, 'b')"), ("CAST(NULL AS STRING)", "'a'")]
    pairs += [("INTERVAL '1' YEAR", "INTERVAL '12' MONTH"), ("0.1E0", "CAST(0.1 AS FLOAT)"), ("1.50", "1.5")]
    yield from (f"{a} {operator} {b}" for a, b in pairs for operator in ("=", "<", ">", "<>"))
    for a, b in itertools.product(COMPARED, COMPARED):
        for operator in ("=", "<"):
            yield f"{a} {operator} {b}"
    for a, b in itertools.product(("1", "2", "CAST(NULL AS INT)"), ("1", "CAST(NULL AS INT)")):
        for operator in ("<>", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"):
            yield f"{a} {operator} {b}"
    truths = ("TRUE", "FALSE", "CAST(NULL AS BOOLEAN)")
    for a, b in itertools.product(truths, truths):
        yield from (f"{a} AND {b}", f"{a} OR {b}")
    for a in truths:
        yield from (f"{a} IS {word}" for word in ("TRUE", "FALSE", "UNKNOWN", "NOT TRUE", "NOT FALSE", "NOT UNKNOWN"))
    yield from (f"{a} IS {n}NULL" for a in ("1", "CAST(NULL AS INT)", "ARRAY[1]", "ROW(1, 2)") for n in ("", "NOT "))
    for value in ("1", "3", "5", "CAST(NULL AS INT)"):
        yield from (f"{value} BETWEEN 1 AND 3", f"{value} NOT BETWEEN 1 AND 3", f"{value} BETWEEN SYMMETRIC 3 AND 1")
        yield from (f"{value} IN (1, 2, 3)", f"{value} NOT IN (1, 2)", f"{value} IN (1, CAST(NULL AS INT))")
        yield from (f"{value} NOT IN (7, CAST(NULL AS INT))", f"{value} IN (1.0, 2.5)")
    yield from (
        "'a' IN ('a', 'b')",
        "'a' IN ('abc', 'b')",
        "DATE '2024-01-01' IN (DATE '2024-01-01')",
        "1 IN ('1', '2')",
    )
    yield from (
        "'b' BETWEEN 'a' AND 'c'",
        "1.5 BETWEEN 1 AND 2",
        "DATE '2024-01-02' BETWEEN '2024-01-01' AND '2024-01-03'",
    )


def conditions() -> Iterator[str]:
    values = [
        "1",
        "CAST(2 AS BIGINT)",
        "1.5",
        "2.5E0",
        "'a'",
        "'abc'",
        "CAST(NULL AS INT)",
        "CAST(NULL AS STRING)",
        "TRUE",
    ]
    values += ["DATE '2024-01-01'", "TIMESTAMP '2024-01-01 00:00:00.123'", "ARRAY[1]", "CAST('x' AS CHAR(3))"]
    for a, b in itertools.product(values, values):
        yield from (f"COALESCE({a}, {b})", f"CASE WHEN TRUE THEN {a} ELSE {b} END", f"IF(FALSE, {a}, {b})")
        yield from (f"NULLIF({a}, {b})", f"IFNULL({a}, {b})", f"GREATEST({a}, {b})", f"LEAST({a}, {b})")
    yield from (
        "CASE 1 WHEN 1 THEN 'one' WHEN 2 THEN 'two' END",
        "CASE 3 WHEN 1 THEN 'one' WHEN 2, 3 THEN 'more' END",
        "CASE WHEN CAST(NULL AS BOOLEAN) THEN 1 ELSE 2 END",
        "CASE WHEN FALSE THEN 1 / 0 ELSE 2 END",
        "CASE WHEN FALSE THEN 1 END",
        "COALESCE(CAST(NULL AS INT), CAST(NULL AS INT), 3)",
        "COALESCE(NULL, 1)",
        "IF(TRUE, 1, NULL)",
        "IF(CAST(NULL AS BOOLEAN), 1, 2)",
        "NULLIF(1, 1)",
        "GREATEST(1, 2, 3.5)",
        "LEAST(1, CAST(NULL AS INT))",
        "FALSE AND 1 / 0 = 1",
        "TRUE OR 1 / 0 = 1",
    )


# --- functions: name and argument lists, each written out

NULL_STRING, NULL_INT, NULL_DOUBLE = "CAST(NULL AS STRING)", "CAST(NULL AS INT)", "CAST(NULL AS DOUBLE)"
TEXTS = ("'Hello World'", "''", "'h\u00e9LLo \u00df'", "' a '", NULL_STRING, "CAST('ab' AS CHAR(4))", "'\u4f60\u597d'")
PLAIN_NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "CAST(3 AS TINYINT)",
    "CAST(-7 AS BIGINT)",
    "0.5",
    "1.25",
    "-2.5",
    "100.0",
    "0.5E0",
    "-1.5E0",
)
MORE_NUMBERS = ("CAST(1.5 AS FLOAT)", "1.0E308", "CAST('NaN' AS DOUBLE)", NULL_INT, NULL_DOUBLE, "12345.6789", "'2'")


def one_argument() -> Iterator[str]:
    texts = [
        "UPPER",
        "LOWER",
        "CHAR_LENGTH",
        "CHARACTER_LENGTH",
        "INITCAP",
        "REVERSE",
        "LTRIM",
        "RTRIM",
        "BTRIM",
        "ASCII",
    ]
    texts += [
        "MD5",
        "SHA1",
        "SHA224",
        "SHA256",
        "SHA384",
        "SHA512",
        "TO_BASE64",
        "FROM_BASE64",
        "URL_ENCODE",
        "URL_DECODE",
    ]
    texts += ["IS_ALPHA", "IS_DIGIT", "IS_DECIMAL", "HEX", "UNHEX", "JSON_QUOTE", "JSON_UNQUOTE", "TYPEOF", "TRIM"]
    for name in texts:
        yield from (f"{name}({text})" for text in TEXTS)
        yield f"{name}(1)"
        yield f"{name}('41')"
    numbers = [
        "ABS",
        "SQRT",
        "LN",
        "LOG10",
        "LOG2",
        "LOG",
        "EXP",
        "SIGN",
        "FLOOR",
        "CEIL",
        "CEILING",
        "ROUND",
        "TRUNCATE",
    ]
    numbers += ["SIN", "COS", "TAN", "COT", "ASIN", "ACOS", "ATAN", "SINH", "COSH", "TANH", "DEGREES", "RADIANS", "BIN"]
    numbers += ["HEX", "CHR", "TYPEOF", "INET_NTOA", "FROM_UNIXTIME"]
    for name in numbers:
        yield from (f"{name}({number})" for number in (*PLAIN_NUMBERS, *MORE_NUMBERS))


def math() -> Iterator[str]:
    pairs = [
        ("2", "3"),
        ("2.0E0", "0.5"),
        ("-8", "3"),
        ("0", "0"),
        (NULL_INT, "2"),
        ("2", NULL_INT),
        ("10", "100"),
        ("1.5", "2"),
    ]
    for name in ("POWER", "LOG", "ATAN2", "ROUND", "TRUNCATE", "RAND_INTEGER"):
        yield from (f"{name}({a}, {b})" for a, b in pairs)
    for name in ("ROUND", "TRUNCATE"):
        for value in (
            "1234.5678",
            "-1234.5678",
            "1234",
            "CAST(1234.5678 AS DOUBLE)",
            "CAST(1.255 AS FLOAT)",
            "99.995",
            "15",
        ):
            yield from (
                f"{name}({value}, {places})" for places in ("-3", "-2", "-1", "0", "1", "2", "3", "10", NULL_INT)
            )
    yield from (
        "ROUND(2.5)",
        "ROUND(-2.5)",
        "ROUND(2.5E0)",
        "ROUND(-2.5E0)",
        "ROUND(0.5E0)",
        "ROUND(CAST(5 AS TINYINT))",
    )
    yield from (
        "PI()",
        "E()",
        "PI",
        "RAND(42)",
        "RAND(0)",
        "RAND(-5)",
        "RAND_INTEGER(10, 100)",
        "RAND_INTEGER(42, 16)",
        "RAND_INTEGER(7, 1000)",
    )
    yield from ("CHAR_LENGTH(UUID())", "RAND() < 1", "RAND_INTEGER(5) < 5")
    yield from (
        f"{f}({v})"
        for f in ("CEIL", "FLOOR")
        for v in ("1.5", "-1.5", "1.5E0", "7", "CAST(-1.5 AS FLOAT)", "123456789.123")
    )
    yield from ("SIGN(-2.5)", "SIGN(0.0E0)", "ABS(-2147483648)", "ABS(CAST(-128 AS TINYINT))", "ABS(INTERVAL '-1' DAY)")
    yield from (
        "BIN(5)",
        "BIN(-5)",
        "BIN(CAST(5 AS BIGINT))",
        "HEX(255)",
        "HEX(-1)",
        "HEX('abc')",
        "HEX(x'ff0a')",
        "UNHEX('4D')",
        "UNHEX('4')",
        "UNHEX('zz')",
    )
    yield from (
        "CONV(10, 10, 2)",
        "LOG(2, 8)",
        "LOG(0, 8)",
        "LOG(-1)",
        "LN(0)",
        "SQRT(-1)",
        "POWER(2, -1)",
        "POWER(-2, 0.5)",
        "POWER(2, 100)",
        "EXP(1000)",
    )


def strings() -> Iterator[str]:
    for value in ("'hello'", "'h\u00e9llo\u4f60'", NULL_STRING, "''"):
        for start in ("-10", "-5", "-2", "0", "1", "2", "5", "6", "100", NULL_INT):
            yield f"SUBSTRING({value}, {start})"
            yield from (f"SUBSTRING({value}, {start}, {n})" for n in ("-1", "0", "1", "3", "100", NULL_INT))
        yield from (f"{f}({value}, {n})" for f in ("LEFT", "RIGHT", "REPEAT") for n in ("-1", "0", "2", "10", NULL_INT))
        for n in ("-1", "0", "2", "5", "8", NULL_INT):
            yield from (f"{f}({value}, {n}, {p})" for f in ("LPAD", "RPAD") for p in ("'xy'", "''", "'*'", NULL_STRING))
    yield from (
        "SUBSTRING('hello' FROM 2 FOR 3)",
        "SUBSTRING('hello' FROM 2)",
        "SUBSTR('hello', 2, 3)",
        "SUBSTR('hello', -3)",
        "SUBSTRING(x'414243', 2)",
    )
    for what in ("'x'", "'xy'", "' '", "''", NULL_STRING):
        for value in ("'xxaxyx'", "'  a '", "''", NULL_STRING):
            yield from (f"TRIM({side} {what} FROM {value})" for side in ("BOTH", "LEADING", "TRAILING"))
            yield from (f"{f}({value}, {what})" for f in ("LTRIM", "RTRIM", "BTRIM"))
    for needle in ("'l'", "'lo'", "'z'", "''", NULL_STRING):
        for value in ("'hello'", "''", NULL_STRING, "'h\u00e9llo'"):
            yield from (f"POSITION({needle} IN {value})", f"LOCATE({needle}, {value})", f"INSTR({value}, {needle})")
            yield from (f"LOCATE({needle}, {value}, {n})" for n in ("0", "1", "4", "9", "-1"))
            yield from (
                f"REPLACE({value}, {needle}, 'X')",
                f"STARTSWITH({value}, {needle})",
                f"ENDSWITH({value}, {needle})",
            )
            yield from (f"SPLIT({value}, {needle})", f"SPLIT_INDEX({value}, {needle}, 1)")
    yield from (f"SPLIT_INDEX('a,b,,c', ',', {n})" for n in ("-1", "0", "1", "2", "3", "4", NULL_INT))
    yield from (
        "SPLIT_INDEX('a1b1c', 49, 1)",
        "SPLIT('a,b,,c', ',')",
        "SPLIT('abc', '')",
        "SPLIT('a.b', '.')",
        "SPLIT('', ',')",
    )
    yield from (
        "CONCAT('a', 'b', 'c')",
        f"CONCAT('a', {NULL_STRING})",
        "CONCAT('a')",
        "CONCAT('a', 1)",
        "CONCAT(1, 2)",
        "CONCAT('a', 1.5, TRUE)",
    )
    yield from (
        "CONCAT_WS(',', 'a', 'b')",
        f"CONCAT_WS(',', 'a', {NULL_STRING}, 'c')",
        f"CONCAT_WS({NULL_STRING}, 'a', 'b')",
        "CONCAT_WS('-', 'a')",
        "CONCAT_WS('', 'a', '', 'b')",
    )
    yield from ("'a' || 'b'", f"'a' || {NULL_STRING}", "'a' || 1", "x'41' || x'42'", "ARRAY[1] || ARRAY[2]")
    for args in (
        "'hello' PLACING 'XX' FROM 2",
        "'hello' PLACING 'XX' FROM 2 FOR 3",
        "'hello' PLACING 'X' FROM 9",
        "'hello' PLACING 'X' FROM 0",
        "'hello' PLACING 'X' FROM -1",
        "'hello' PLACING '' FROM 2 FOR 2",
        "'hello' PLACING 'XXXXXXX' FROM 3",
        f"{NULL_STRING} PLACING 'X' FROM 1",
        "'hello' PLACING 'X' FROM 2 FOR -1",
        "'hello' PLACING 'X' FROM 2 FOR 100",
    ):
        yield f"OVERLAY({args})"
    yield from (
        "TRANSLATE('hello', 'el', 'ip')",
        "TRANSLATE('hello', 'elo', 'x')",
        "TRANSLATE('hello', '', 'x')",
        "TRANSLATE('hello', 'll', 'xy')",
        "TRANSLATE(CAST(NULL AS STRING), 'a', 'b')",
        "TRANSLATE('hello', 'l', '')",
    )
    yield from (f"ELT({n}, 'a', 'b', 'c')" for n in ("-1", "0", "1", "3", "4", NULL_INT))
    yield from (
        "ELT(1, x'41', x'42')",
        "CHR(65)",
        "CHR(321)",
        "CHR(-1)",
        "CHR(0)",
        "CHR(256)",
        "ASCII('A')",
        "ASCII('\u00e9')",
        "ASCII('\u4f60')",
    )
    yield from (
        "STR_TO_MAP('a=1,b=2')",
        "STR_TO_MAP('a:1;b:2', ';', ':')",
        "STR_TO_MAP('a')",
        "STR_TO_MAP('')",
        "STR_TO_MAP('a=1,a=2')",
        "STR_TO_MAP('a=1=2')",
        "STR_TO_MAP('k1=v1,k2')",
        "STR_TO_MAP(CAST(NULL AS STRING))",
        "STR_TO_MAP('a.1|b.2', '|', '.')",
    )
    url = "'http://user:pw@facebook.com:80/path/p1.php?query=1&b=2#Ref'"
    for part in ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO", "host", "XX"):
        yield f"PARSE_URL({url}, '{part}')"
    yield from (f"PARSE_URL({url}, 'QUERY', '{key}')" for key in ("query", "b", "c"))
    yield from (
        "PARSE_URL('no url', 'HOST')",
        "PARSE_URL(CAST(NULL AS STRING), 'HOST')",
        "PARSE_URL('http://a.b', 'PATH')",
        "PARSE_URL('http://a.b', 'QUERY')",
    )
    for charset in (
        "'UTF-8'",
        "'US-ASCII'",
        "'ISO-8859-1'",
        "'UTF-16'",
        "'UTF-16BE'",
        "'UTF-16LE'",
        "'nope'",
        NULL_STRING,
    ):
        yield from (
            f"ENCODE('h\u00e9', {charset})",
            f"DECODE(x'68c3a9', {charset})",
            f"DECODE(ENCODE('ab', {charset}), {charset})",
        )
    yield from (
        "URL_ENCODE('a b&c=d/e?\u00e9+~*-_.')",
        "URL_DECODE('a+b%26c%C3%A9')",
        "URL_DECODE('%zz')",
        "URL_DECODE('abc%')",
        "TO_BASE64('hello')",
        "FROM_BASE64('aGVsbG8=')",
        "FROM_BASE64('!!')",
        "TO_BASE64(FROM_BASE64('aGVsbG8='))",
    )
    yield from (
        "PRINTF('%d %s', 1, 'a')",
        "PRINTF('%05.2f|%x|%-5s|', 3.14159E0, 255, 'ab')",
        "PRINTF('%%')",
        "PRINTF('%d', 'x')",
        "PRINTF('%s', CAST(NULL AS STRING))",
        "PRINTF('%s %s', 1)",
        "PRINTF('%,d', 1234567)",
        "PRINTF('%e', 12345.678E0)",
        "PRINTF('%b', TRUE)",
        "PRINTF('%c', 65)",
        "PRINTF('%s', 1.5)",
        "PRINTF('%10s|', 'abc')",
        "PRINTF('%o %X', 8, 255)",
        "PRINTF('%+d', 5)",
    )
    yield from (f"SHA2('abc', {n})" for n in ("224", "256", "384", "512", "0", "1", NULL_INT))
    yield from (
        "IS_ALPHA('abc')",
        "IS_ALPHA('ab1')",
        "IS_DIGIT('123')",
        "IS_DIGIT('12a')",
        "IS_DIGIT('-12')",
        "IS_DECIMAL('1.5')",
        "IS_DECIMAL('-1')",
        "IS_DECIMAL('abc')",
        "IS_DECIMAL('1e3')",
        "IS_DECIMAL(1)",
        "IS_ALPHA(1)",
        "IS_DIGIT(1)",
        "IS_ALPHA('\u00e9')",
        "IS_DECIMAL('')",
    )
    yield from (
        "INITCAP('hello WORLD foo-bar x1y')",
        "INITCAP('\u00e9t\u00e9 d')",
        "INITCAP('a_b c.d')",
        "REVERSE('h\u00e9llo')",
    )
    yield from (
        f"INET_ATON('{a}')"
        for a in (
            "127.0.0.1",
            "255.255.255.255",
            "256.0.0.1",
            "1.2.3",
            "1.2",
            "1",
            "a.b.c.d",
            "",
            "1.2.3.4.5",
            "0.0.0.0",
        )
    )
    yield from (
        f"INET_NTOA({n})"
        for n in ("2130706433", "CAST(4294967295 AS BIGINT)", "0", "-1", "CAST(4294967296 AS BIGINT)", NULL_INT)
    )
    for value, pattern in itertools.product(
        ("'hello'", "'hel_o'", "'h%llo'", "''", "'a\\b'", NULL_STRING, "'HELLO'"),
        ("'h%'", "'%l%'", "'h_llo'", "'%'", "''", "'hello'", "'%o'", "'h\\%llo'", "'h%l%o'", NULL_STRING, "'a\\b'"),
    ):
        yield from (f"{value} LIKE {pattern}",)
    yield from (
        "'h%llo' LIKE 'h!%llo' ESCAPE '!'",
        "'hello' LIKE 'h!%llo' ESCAPE '!'",
        "'h_llo' LIKE 'h\\_llo' ESCAPE '\\'",
        "'hello' NOT LIKE 'h%'",
        "'a!b' LIKE 'a!!b' ESCAPE '!'",
        "'ab' LIKE 'a!b' ESCAPE '!'",
        "'a\nb' LIKE 'a_b'",
        "'a.b' LIKE 'a.b'",
        "'axb' LIKE 'a.b'",
        "'(a)' LIKE '(%)'",
    )
    yield from (
        "'abc' SIMILAR TO '(b|c)%'",
        "'abc' SIMILAR TO 'a(b|x)c'",
        "'abc' SIMILAR TO '[a-c]+'",
        "'abc' SIMILAR TO '_b_'",
        "'a1' SIMILAR TO '[[:ALPHA:]][[:DIGIT:]]'",
        "'abc' SIMILAR TO 'ab'",
        "'a%' SIMILAR TO 'a!%' ESCAPE '!'",
        "'abcabc' SIMILAR TO '(abc){2}'",
        "'abc' NOT SIMILAR TO 'a%'",
    )


def regular_expressions() -> Iterator[str]:
    patterns = [
        "'[0-9]+'",
        "'(\\w)(\\w*)'",
        "'^a.c$'",
        "'(?i)ABC'",
        "'a++b'",
        "'\\p{Alpha}+'",
        "'\\p{Lu}'",
        "'x*'",
        "''",
        "'('",
        "'[a-c&&[^b]]+'",
        "'(?<name>b)'",
        "'\\bfoo\\b'",
        "'a|b'",
        "'\\d{2,3}?'",
        "'(a)(b)?'",
        "'\\Qa.c\\E'",
        "'[^,]+'",
        "'\\h'",
        "'\\u0061'",
        NULL_STRING,
    ]
    values = ["'abc123'", "'foo bar'", "'aab a.c'", "''", NULL_STRING]
    for value, pattern in itertools.product(values, patterns):
        yield from (
            f"REGEXP({value}, {pattern})",
            f"REGEXP_REPLACE({value}, {pattern}, '<$0>')",
            f"REGEXP_EXTRACT({value}, {pattern})",
        )
        yield from (
            f"REGEXP_COUNT({value}, {pattern})",
            f"REGEXP_INSTR({value}, {pattern})",
            f"REGEXP_SUBSTR({value}, {pattern})",
        )
        yield f"REGEXP_EXTRACT_ALL({value}, {pattern})"
    for n in ("-1", "0", "1", "2", "3", NULL_INT):
        yield from (
            f"REGEXP_EXTRACT('100-200', '(\\d+)-(\\d+)', {n})",
            f"REGEXP_EXTRACT_ALL('100-200, 300-400', '(\\d+)-(\\d+)', {n})",
        )
    yield from (
        f"REGEXP_REPLACE('abc', '(a)(b)', {r})"
        for r in ("'$2$1'", "'\\$1'", "'$3'", "'$'", "'x\\\\y'", "'${x}'", "''", NULL_STRING)
    )
    yield from (
        "'abc' RLIKE 'a.c'",
        "REGEXP_REPLACE('foobar', 'oo|ar', '')",
        "REGEXP_REPLACE('a.b.c', '.', 'x')",
        "REGEXP_REPLACE('a.b.c', '\\.', 'x')",
    )


def times() -> Iterator[str]:
    stamps = [
        "TIMESTAMP '2024-02-29 13:45:06.789'",
        "TIMESTAMP '1969-12-31 23:59:59'",
        "TIMESTAMP '2023-01-01 00:00:00'",
        "DATE '2024-12-31'",
        "CAST(NULL AS TIMESTAMP(3))",
        "TO_TIMESTAMP_LTZ(1700000000123, 3)",
        "TIMESTAMP '2021-01-03 12:00:00.123456'",
    ]
    units = [
        "YEAR",
        "QUARTER",
        "MONTH",
        "WEEK",
        "DAY",
        "HOUR",
        "MINUTE",
        "SECOND",
        "MILLISECOND",
        "MICROSECOND",
        "NANOSECOND",
        "DOW",
        "DOY",
        "ISODOW",
        "ISOYEAR",
        "EPOCH",
        "DECADE",
        "CENTURY",
        "MILLENNIUM",
    ]
    for stamp in stamps:
        yield from (f"EXTRACT({unit} FROM {stamp})" for unit in units)
        yield from (
            f"{unit}({stamp})"
            for unit in (
                "YEAR",
                "QUARTER",
                "MONTH",
                "WEEK",
                "DAYOFYEAR",
                "DAYOFMONTH",
                "DAYOFWEEK",
                "HOUR",
                "MINUTE",
                "SECOND",
            )
        )
        yield from (
            f"{f}({stamp} TO {unit})"
            for f in ("FLOOR", "CEIL")
            for unit in (
                "YEAR",
                "QUARTER",
                "MONTH",
                "WEEK",
                "DAY",
                "HOUR",
                "MINUTE",
                "SECOND",
                "MILLISECOND",
                "DECADE",
                "CENTURY",
                "MILLENNIUM",
            )
        )
        yield from (
            f"TIMESTAMPADD({unit}, 3, {stamp})"
            for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
        )
        for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"):
            yield f"TIMESTAMPDIFF({unit}, {stamp}, TIMESTAMP '2024-03-01 13:45:06.788')"
            yield f"TIMESTAMPDIFF({unit}, TIMESTAMP '2025-01-30 00:00:00', {stamp})"
        for interval in (
            "INTERVAL '1' MONTH",
            "INTERVAL '1' YEAR",
            "INTERVAL '1' DAY",
            "INTERVAL '1' SECOND",
            "INTERVAL '0.001' SECOND",
            "INTERVAL '-13' MONTH",
            "INTERVAL '1 02:03:04.005' DAY TO SECOND",
        ):
            yield from (f"{stamp} + {interval}", f"{stamp} - {interval}")
        yield from (f"DATE_FORMAT({stamp}, '{p}')" for p in PATTERNS)
        yield from (
            f"CAST({stamp} AS STRING)",
            f"UNIX_TIMESTAMP(CAST({stamp} AS STRING))",
            f"TO_DATE(CAST({stamp} AS STRING))",
        )
    for stamp in ("TIME '10:11:12'", "CAST('10:11:12.345' AS TIME(3))"):
        yield from (f"EXTRACT({unit} FROM {stamp})" for unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND"))
        yield from (
            f"{stamp} + INTERVAL '{n}' {u}"
            for n, u in (("1", "HOUR"), ("20", "HOUR"), ("-11", "HOUR"), ("1.5", "SECOND"))
        )
        yield from (f"FLOOR({stamp} TO {u})" for u in ("HOUR", "MINUTE", "SECOND"))
        yield from (f"TIMESTAMPADD(HOUR, 5, {stamp})",)
    yield from (
        "INTERVAL '1' DAY + INTERVAL '2' HOUR",
        "INTERVAL '1' DAY * 3",
        "2 * INTERVAL '1' DAY",
        "INTERVAL '1' DAY / 2",
        "INTERVAL '1' YEAR + INTERVAL '2' MONTH",
        "INTERVAL '5' MONTH * 3",
        "INTERVAL '7' MONTH / 2",
        "INTERVAL '1' DAY - INTERVAL '36' HOUR",
        "INTERVAL '1' DAY * 1.5",
        "-INTERVAL '1' DAY",
        "INTERVAL '10' DAY",
        "INTERVAL '100' DAY(3)",
        "INTERVAL '1:02' HOUR TO MINUTE",
        "INTERVAL '5:06.7' MINUTE TO SECOND",
    )
    yield from (
        "DATE '2024-01-31' + INTERVAL '1' MONTH",
        "DATE '2024-01-01' + INTERVAL '25' HOUR",
        "DATE '2024-03-31' - INTERVAL '1' MONTH",
        "INTERVAL '1' DAY + DATE '2024-01-01'",
        "TIMESTAMP '2024-01-01 00:00:00' - TIMESTAMP '2023-01-01 00:00:00'",
        "DATE '2024-01-02' - DATE '2024-01-01'",
    )
    for text in (
        "'2024-02-29 13:45:06'",
        "'2024-02-29 13:45:06.789'",
        "'2024-02-29'",
        "'2023-02-29 00:00:00'",
        "'abc'",
        "''",
        NULL_STRING,
        "'2024-02-29T13:45:06'",
        "'2024-2-9 1:2:3'",
        "'0001-01-01 00:00:00'",
        "'9999-12-31 23:59:59'",
    ):
        yield from (
            f"TO_TIMESTAMP({text})",
            f"TO_DATE({text})",
            f"UNIX_TIMESTAMP({text})",
            f"CONVERT_TZ({text}, 'UTC', 'America/Los_Angeles')",
            f"TO_TIMESTAMP_LTZ({text})",
        )
        yield f"DATE_FORMAT({text}, 'yyyy/MM/dd HH')"
    for text, pattern in (
        ("'29/02/2024 13.45'", "'dd/MM/yyyy HH.mm'"),
        ("'2024-060'", "'yyyy-DDD'"),
        ("'20240229134506789'", "'yyyyMMddHHmmssSSS'"),
        ("'Feb 29, 2024'", "'MMM dd, yyyy'"),
        ("'2024-02-29 01:45 PM'", "'yyyy-MM-dd hh:mm a'"),
        ("'24-2-9'", "'yy-M-d'"),
        ("'2024-02-29T13:45:06Z'", "'yyyy-MM-dd''T''HH:mm:ss''Z'''"),
        ("'13:45'", "'HH:mm'"),
        ("'2024-02-29 13:45:06.123456'", "'yyyy-MM-dd HH:mm:ss.SSSSSS'"),
        ("'x'", "'yyyy'"),
        ("'2024'", "'yyyy'"),
        ("'2024-02'", "'yyyy-MM'"),
        ("'2024-02-29'", "'nope'"),
    ):
        yield from (
            f"TO_TIMESTAMP({text}, {pattern})",
            f"TO_DATE({text}, {pattern})",
            f"UNIX_TIMESTAMP({text}, {pattern})",
            f"TO_TIMESTAMP_LTZ({text}, {pattern})",
        )
    yield from (f"FROM_UNIXTIME({n})" for n in ("0", "1700000000", "-1", NULL_INT, "CAST(1700000000 AS BIGINT)"))
    yield from (
        f"FROM_UNIXTIME(1700000000, '{p}')" for p in ("yyyy-MM-dd", "HH:mm", "yyyy/MM/dd'T'HH:mm:ss", "E dd MMM")
    )
    yield from (
        "TO_TIMESTAMP_LTZ(1700000000, 0)",
        "TO_TIMESTAMP_LTZ(1700000000123, 3)",
        "TO_TIMESTAMP_LTZ(1700000000123)",
        "TO_TIMESTAMP_LTZ(CAST(NULL AS BIGINT), 3)",
        "TO_TIMESTAMP_LTZ(1.5E0, 0)",
        "TO_TIMESTAMP_LTZ(1.5, 3)",
        "TO_TIMESTAMP_LTZ(1700000000123456, 6)",
        "TO_TIMESTAMP_LTZ('2024-02-29 10:00:00', 'yyyy-MM-dd HH:mm:ss', 'Asia/Shanghai')",
        "TO_TIMESTAMP_LTZ(CAST(1 AS TINYINT), 0)",
        "TO_TIMESTAMP_LTZ(5, 9)",
    )
    yield from (
        f"CONVERT_TZ('2024-07-01 12:00:00', '{a}', '{b}')"
        for a, b in (
            ("UTC", "Europe/Berlin"),
            ("Europe/Berlin", "UTC"),
            ("America/New_York", "Asia/Tokyo"),
            ("GMT+08:00", "UTC"),
            ("nope", "UTC"),
            ("+05:30", "UTC"),
        )
    )
    for stamp in stamps:
        yield f"DATE_FORMAT({stamp}, CAST(NULL AS STRING))"
    yield from (
        "(DATE '2024-01-01', DATE '2024-01-10') OVERLAPS (DATE '2024-01-05', DATE '2024-01-20')",
        "(TIME '10:00:00', INTERVAL '1' HOUR) OVERLAPS (TIME '10:30:00', INTERVAL '1' HOUR)",
    )
    yield from (
        "CURRENT_DATE > DATE '2024-01-01'",
        "CURRENT_TIMESTAMP > TO_TIMESTAMP_LTZ(0, 3)",
        "NOW() IS NULL",
        "TYPEOF(NOW())",
        "TYPEOF(CURRENT_TIMESTAMP)",
        "TYPEOF(LOCALTIMESTAMP)",
        "TYPEOF(LOCALTIME)",
        "TYPEOF(CURRENT_TIME)",
        "TYPEOF(CURRENT_DATE)",
        "TYPEOF(PROCTIME())",
        "TYPEOF(CURRENT_ROW_TIMESTAMP())",
        "TYPEOF(UNIX_TIMESTAMP())",
        "CURRENT_DATABASE()",
    )


PATTERNS = [
    "yyyy-MM-dd HH:mm:ss",
    "yyyy/MM/dd",
    "yy.M.d",
    "EEEE, dd MMMM yyyy",
    "EEE MMM dd",
    "hh:mm a",
    "H:m:s",
    "SSS",
    "yyyy-MM-dd''T''HH:mm:ss.SSS",
    "D w W",
    "Q q",
    "uuuu G",
    "k K",
    "e c E",
    "n N A",
    "SSSSSSSSS",
    "LLLL",
    "yyyyMMddHHmmss",
    "F",
    "YYYY-ww",
    "B",
    "z",
    "XXX",
    "xx Z",
    "'''quoted'' yyyy'",
    "p2 H",
    "[yyyy]",
]
PATTERNS[-3] = "''quoted'' yyyy"


def collections() -> Iterator[str]:
    null_array = "CAST(NULL AS ARRAY<INT>)"
    arrays = [
        "ARRAY[1, 2, 3]",
        "ARRAY[3, NULL, 1, 3]",
        "ARRAY['b', 'a', 'b']",
        null_array,
        "ARRAY[1.5, 2]",
        "ARRAY[ARRAY[1], ARRAY[2]]",
    ]
    for a in arrays:
        yield from (
            f"{f}({a})"
            for f in (
                "CARDINALITY",
                "ARRAY_DISTINCT",
                "ARRAY_REVERSE",
                "ARRAY_MAX",
                "ARRAY_MIN",
                "ARRAY_SORT",
                "TYPEOF",
                "JSON_STRING",
            )
        )
        yield from (f"{a}[{i}]" for i in ("1", "2", "9", NULL_INT))
    for a in arrays[:2] + [null_array]:
        for x in ("1", "3", "7", NULL_INT, "CAST(3 AS BIGINT)", "1.5"):
            yield from (
                f"{f}({a}, {x})"
                for f in ("ARRAY_CONTAINS", "ARRAY_POSITION", "ARRAY_REMOVE", "ARRAY_APPEND", "ARRAY_PREPEND")
            )
        for b in ("ARRAY[3, 4]", "ARRAY[NULL, 1]", null_array, "ARRAY[CAST(3 AS BIGINT)]"):
            yield from (f"{f}({a}, {b})" for f in ("ARRAY_UNION", "ARRAY_CONCAT", "ARRAY_EXCEPT", "ARRAY_INTERSECT"))
        for s in ("-2", "-1", "0", "1", "2", "9", NULL_INT):
            yield f"ARRAY_SLICE({a}, {s})"
            yield from (f"ARRAY_SLICE({a}, {s}, {e})" for e in ("-1", "0", "1", "2", "9", NULL_INT))
        yield from (f"ARRAY_SORT({a}, {b})" for b in ("TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"))
        yield from (f"ARRAY_SORT({a}, {b}, {n})" for b in ("TRUE", "FALSE") for n in ("TRUE", "FALSE"))
    for a in ("ARRAY['a', NULL, 'c']", "CAST(NULL AS ARRAY<STRING>)", "ARRAY['x']"):
        yield from (
            f"ARRAY_JOIN({a}, ',')",
            f"ARRAY_JOIN({a}, ',', '*')",
            f"ARRAY_JOIN({a}, {NULL_STRING})",
            f"ARRAY_JOIN({a}, ',', {NULL_STRING})",
        )
    yield from (
        "ARRAY_JOIN(ARRAY[1, 2], ',')",
        "ARRAY_CONCAT(ARRAY[1])",
        "ARRAY_CONCAT(ARRAY[1], ARRAY[2], ARRAY[3])",
        "ELEMENT(ARRAY[7])",
        "ELEMENT(ARRAY[1, 2])",
        f"ELEMENT({null_array})",
        "ARRAY_CONTAINS(ARRAY['a'], 'a')",
        "ARRAY_MAX(ARRAY['a', 'c', 'b'])",
        "ARRAY_MAX(ARRAY[CAST(NULL AS INT)])",
    )
    maps = ["MAP['a', 1, 'b', 2]", "MAP['a', NULL, 'b', 2]", "CAST(NULL AS MAP<STRING, INT>)", "MAP[1, 'x']"]
    for m in maps:
        yield from (
            f"{f}({m})" for f in ("CARDINALITY", "MAP_KEYS", "MAP_VALUES", "MAP_ENTRIES", "TYPEOF", "JSON_STRING")
        )
        yield from (f"{m}[{k}]" for k in ("'a'", "'z'", "1"))
        yield f"MAP_UNION({m}, MAP['b', 9, 'c', 3])"
    yield from (
        "MAP_FROM_ARRAYS(ARRAY['a', 'b'], ARRAY[1, 2])",
        "MAP_FROM_ARRAYS(ARRAY['a'], ARRAY[1, 2])",
        "MAP_FROM_ARRAYS(CAST(NULL AS ARRAY<STRING>), ARRAY[1])",
        "MAP['a', 1, 'a', 2]",
        "MAP_UNION(MAP['a', 1])",
        "MAP['a', 1, 'b', 2.5]",
        "ARRAY[1, 2.5]",
        "ARRAY['a', 'abc']",
        "ARRAY[NULL, 1]",
        "ROW(1, 'a', NULL)",
        "ROW(1, 'a').EXPR$0",
        "(1, 2)",
        "CAST(ROW(1, 'a') AS ROW<x INT, y STRING>).y",
        "ARRAY[1, 2][1]",
        "ARRAY[ROW(1, 'a')][1]",
        "CARDINALITY(ARRAY[ARRAY[1, 2]])",
        "TYPEOF(ROW(1, 'a'))",
        "TYPEOF(1.5, TRUE)",
        "TYPEOF(CAST(NULL AS STRING))",
        "TYPEOF(NULL)",
        "TYPEOF('abc')",
        "TYPEOF(INTERVAL '1' DAY)",
        "TYPEOF(TIMESTAMP '2024-01-01 00:00:00')",
        "TYPEOF(MAP['a', 1], TRUE)",
    )
    yield from (
        "COALESCE(ARRAY[1], ARRAY[2])",
        "CASE WHEN TRUE THEN ARRAY[1] ELSE ARRAY[2, 3] END",
        "ARRAY[1, 2] = ARRAY[1, 2]",
        "MAP['a', 1] = MAP['a', 1]",
        "ROW(1, 2) = ROW(1, 2)",
        "ROW(1, CAST(NULL AS INT)) = ROW(1, CAST(NULL AS INT))",
        "ARRAY[1, NULL] = ARRAY[1, NULL]",
    )


def json() -> Iterator[str]:
    doc = '\'{"a": 1, "b": [1, 2, {"c": "x"}], "t": true, "n": null, "s": "q\\"r", "f": 1.50, "o": {"k": "v"}}\''
    paths = [
        "$.a",
        "$.b",
        "$.b[0]",
        "$.b[2].c",
        "$.b[*]",
        "$.z",
        "$",
        "$.t",
        "$.n",
        "$.s",
        "$.f",
        "$.o",
        "$.o.k",
        "lax $.a",
        "strict $.a",
        "strict $.z",
        "lax $.z",
        "$['a']",
        "$..c",
        "$.b[1,2]",
        "$.b[0:2]",
        "$.b[-1]",
        "$.*",
        "$.b.length()",
        '$.b[?(@.c == "x")]',
        "bad",
        "$.",
        "lax $.b.c",
    ]
    for path in paths:
        quoted = path.replace("'", "''")
        yield from (
            f"JSON_VALUE({doc}, '{quoted}')",
            f"JSON_QUERY({doc}, '{quoted}')",
            f"JSON_EXISTS({doc}, '{quoted}')",
            f"JSON_QUERY({doc}, '{quoted}' WITH CONDITIONAL ARRAY WRAPPER)",
            f"JSON_QUERY({doc}, '{quoted}' WITH UNCONDITIONAL ARRAY WRAPPER)",
        )
    for bad in (
        "'not json'",
        "''",
        "'{'",
        NULL_STRING,
        "'[1, 2]'",
        "'\"x\"'",
        "'1'",
        "'null'",
        "'{\"a\":1}x'",
        "'{a:1}'",
        "' {\"a\" : 1} '",
    ):
        yield from (
            f"JSON_VALUE({bad}, '$.a')",
            f"JSON_VALUE({bad}, '$')",
            f"JSON_QUERY({bad}, '$')",
            f"JSON_EXISTS({bad}, '$.a')",
            f"JSON_VALUE({bad}, 'strict $.a')",
            f"JSON_VALUE({bad}, 'lax $.a' ERROR ON ERROR)",
            f"JSON_EXISTS({bad}, '$.a' ERROR ON ERROR)",
            f"JSON_EXISTS({bad}, '$.a' TRUE ON ERROR)",
            f"JSON_EXISTS({bad}, 'strict $.a' UNKNOWN ON ERROR)",
        )
        yield from (
            f"{bad} IS JSON",
            f"{bad} IS JSON OBJECT",
            f"{bad} IS JSON ARRAY",
            f"{bad} IS JSON SCALAR",
            f"{bad} IS NOT JSON",
            f"{bad} IS JSON VALUE",
        )
    for kind in ("STRING", "INT", "INTEGER", "DOUBLE", "BOOLEAN", "BIGINT", "DECIMAL(5, 2)"):
        yield from (f"JSON_VALUE({doc}, '{p}' RETURNING {kind})" for p in ("$.a", "$.t", "$.f", "$.s", "$.z", "$.n"))
    yield from (
        f"JSON_VALUE({doc}, '$.z' DEFAULT 'd' ON EMPTY)",
        f"JSON_VALUE({doc}, '$.z' NULL ON EMPTY DEFAULT 'e' ON ERROR)",
        f"JSON_VALUE({doc}, '$.z' ERROR ON EMPTY)",
        f"JSON_VALUE({doc}, 'strict $.z' DEFAULT 'e' ON ERROR)",
        f"JSON_VALUE({doc}, 'strict $.z' ERROR ON ERROR)",
        f"JSON_VALUE({doc}, '$.b' ERROR ON ERROR)",
        f"JSON_VALUE({doc}, '$.b' DEFAULT 'e' ON ERROR)",
        f"JSON_VALUE({doc}, '$.z' RETURNING INT DEFAULT 5 ON EMPTY)",
        f"JSON_VALUE({doc}, '$.s' RETURNING INT DEFAULT 7 ON ERROR)",
        f"JSON_QUERY({doc}, '$.z' EMPTY ARRAY ON EMPTY)",
        f"JSON_QUERY({doc}, '$.z' EMPTY OBJECT ON EMPTY)",
        f"JSON_QUERY({doc}, '$.z' ERROR ON EMPTY)",
        f"JSON_QUERY({doc}, '$.a' EMPTY ARRAY ON ERROR)",
        f"JSON_QUERY({doc}, '$.a' ERROR ON ERROR)",
        f"JSON_QUERY({doc}, 'strict $.z' EMPTY OBJECT ON ERROR)",
        f"JSON_QUERY({doc}, '$.b' RETURNING ARRAY<STRING>)",
        "JSON_QUERY('[\"a\", \"b\"]', '$' RETURNING ARRAY<STRING>)",
        "JSON_QUERY('[1, 2]', '$' RETURNING ARRAY<STRING>)",
        "JSON_OBJECT()",
        "JSON_OBJECT('a' VALUE 1, 'b' VALUE 'x')",
        "JSON_OBJECT(KEY 'a' VALUE CAST(NULL AS STRING))",
        "JSON_OBJECT('a' VALUE CAST(NULL AS STRING) ABSENT ON NULL)",
        "JSON_OBJECT('a' VALUE JSON_OBJECT('b' VALUE 1))",
        "JSON_OBJECT('a' VALUE JSON_ARRAY(1, 2))",
        "JSON_OBJECT('a' VALUE 1.50, 'b' VALUE 1.5E0, 'c' VALUE TRUE, 'd' VALUE DATE '2024-01-01')",
        "JSON_OBJECT('a' VALUE TIMESTAMP '2024-01-01 10:00:00.123', 'b' VALUE x'4142', 'c' VALUE ARRAY[1, 2], 'd' VALUE MAP['k', 1], 'e' VALUE ROW(1, 'x'))",
        "JSON_OBJECT('z' VALUE 1, 'a' VALUE 2)",
        "JSON_OBJECT('a' VALUE JSON('{\"x\": [1, 2]}'))",
        "JSON_OBJECT('q' VALUE 'a\"b\\c\u00e9/')",
        "JSON_OBJECT('t' VALUE TIME '10:11:12', 'i' VALUE INTERVAL '1' DAY)",
        "JSON_OBJECT('t' VALUE TO_TIMESTAMP_LTZ(1700000000123, 3))",
        "JSON_ARRAY()",
        "JSON_ARRAY(1, 'x', TRUE)",
        "JSON_ARRAY(CAST(NULL AS INT), 1)",
        "JSON_ARRAY(CAST(NULL AS INT), 1 NULL ON NULL)",
        "JSON_ARRAY(JSON_ARRAY(1), JSON_OBJECT('a' VALUE 2))",
        "JSON_ARRAY(1.50, 1.0E10, CAST(1 AS TINYINT), CAST(1.5 AS FLOAT))",
    )
    for value in (
        "1",
        "1.5",
        "1.0E10",
        "'a\"b'",
        "TRUE",
        NULL_STRING,
        "ARRAY[1, NULL]",
        "MAP['a', 1]",
        "ROW(1, 'x')",
        "DATE '2024-01-01'",
        "TIMESTAMP '2024-01-01 10:00:00'",
        "TIMESTAMP '2024-01-01 10:00:00.123'",
        "x'4142'",
        "CAST(1.5 AS FLOAT)",
        "MAP['b', 1, 'a', 2]",
        "TIME '10:11:12'",
        "ARRAY[ROW(1, 2)]",
        "CAST(ROW(1, 'x') AS ROW<f INT, g STRING>)",
    ):
        yield f"JSON_STRING({value})"
    for value in ("'a\"b'", "'x'", "''", "'\n\t'", "'\u00e9'", "'a/b\\c'", "'\u4f60'", NULL_STRING):
        yield f"JSON_QUOTE({value})"
    for value in (
        "'\"abc\"'",
        "'abc'",
        '\'"a\\"b"\'',
        "'\"\\u0041\\n\"'",
        "'\"abc'",
        "'[1]'",
        "'\"\\q\"'",
        NULL_STRING,
        "''",
        "'\"\"'",
    ):
        yield f"JSON_UNQUOTE({value})"


def literals() -> Iterator[str]:
    yield from (
        "1",
        "2147483648",
        "99999999999999999999",
        "1.5",
        "0.001",
        "1e0",
        "1.5E-3",
        "'ab'",
        "''",
        "x'41'",
        "TRUE",
        "NULL",
        "DATE '2024-02-29'",
        "TIME '10:11:12'",
        "TIME '10:11:12.345'",
        "TIMESTAMP '2024-02-29 10:11:12'",
        "TIMESTAMP '2024-02-29 10:11:12.123456'",
        "INTERVAL '1' DAY",
        "INTERVAL '1-2' YEAR TO MONTH",
        "INTERVAL '1 10:00:00' DAY TO SECOND",
        "INTERVAL '10' SECOND",
        "INTERVAL '1.234' SECOND",
        "INTERVAL '-5' MINUTE",
        "U&'\\00e9'",
        "'it''s'",
        "-2147483648",
        "-9223372036854775808",
        "100.",
        ".5",
        "ARRAY[1, 2]",
        "MAP['a', 1]",
        "ROW(1, 'a')",
        "'a' 'b'",
        "1.50",
        "00012",
        "1e400",
        "INTERVAL '2' WEEK",
        "INTERVAL '2' QUARTER",
        "_UTF8'x'",
    )


def all_expressions() -> list[str]:
    """Return all expressions, each once."""
    makers = (
        literals,
        casts,
        arithmetic,
        comparisons,
        conditions,
        one_argument,
        math,
        strings,
        regular_expressions,
        times,
        collections,
        json,
    )
    return [e for e in dict.fromkeys(e for make in makers for e in make()) if "\n" not in e]


# --- aggregates: what follows SELECT

AGGREGATED = [
    *("CAST(1 AS TINYINT)", "CAST(1 AS SMALLINT)", "1", "CAST(1 AS BIGINT)", "CAST(1 AS FLOAT)", "1.0E0"),
    *("CAST(1.25 AS DECIMAL(10,2))", "CAST(1.25 AS DECIMAL(20,8))", "CAST('a' AS STRING)", "'ab'", "TRUE"),
    *("DATE '2024-01-01'", "TIMESTAMP '2024-01-01 00:00:00.123'", "TO_TIMESTAMP_LTZ(1,3)", "TIME '10:00:00'", "x'41'"),
    *("ARRAY[1]", "MAP['a',1]", "ROW(1,'a')", "INTERVAL '1' DAY", "INTERVAL '1' MONTH", "CAST(NULL AS INT)"),
    "CAST(NULL AS STRING)",
]
AGGREGATES = [
    *("COUNT(x)", "SUM(x)", "AVG(x)", "MIN(x)", "MAX(x)", "FIRST_VALUE(x)", "LAST_VALUE(x)", "LISTAGG(x)"),
    *("LISTAGG(x, ';')", "ARRAY_AGG(x)", "COLLECT(x)", "STDDEV_POP(x)", "STDDEV_SAMP(x)", "STDDEV(x)", "VAR_POP(x)"),
    *("VAR_SAMP(x)", "VARIANCE(x)", "PERCENTILE(x, 0.5)", "JSON_ARRAYAGG(x)", "JSON_OBJECTAGG('k' VALUE x)"),
    *("SUM(DISTINCT x)", "COUNT(DISTINCT x)", "SINGLE_VALUE(x)", "JSON_OBJECTAGG(x VALUE 1)"),
]
OVER = [
    *("LAG(x)", "LAG(x, 1)", "LAG(x, 1, x)", "LEAD(x)", "FIRST_VALUE(x)", "SUM(x)", "MAX(x)", "COUNT(x)"),
    *("ARRAY_AGG(x)", "AVG(x)"),
]
OF_TWO = [
    *(
        "COUNT(*)",
        "COUNT(*) FILTER (WHERE x > 0)",
        "SUM(x) FILTER (WHERE x > 0)",
        "COUNT(x, y)",
        "COUNT(DISTINCT x, y)",
    ),
    *("PERCENTILE(x, 0.5, 2)", "PERCENTILE(x, ARRAY[0.1, 0.9])", "PERCENTILE(x, 1)", "PERCENTILE(x, 0.5E0, y)"),
    *("APPROX_COUNT_DISTINCT(x)", "GROUPING(x)", "GROUP_ID()", "GROUPING_ID(x, y)", "JSON_ARRAYAGG(x NULL ON NULL)"),
    *("JSON_OBJECTAGG(KEY 'a' VALUE x ABSENT ON NULL)", "ARRAY_AGG(DISTINCT x)", "ARRAY_AGG(x IGNORE NULLS)"),
    *("LISTAGG(DISTINCT CAST(x AS STRING))", "COLLECT(DISTINCT x)", "MIN(x, y)", "SUM(x, y)", "AVG('a')"),
    "MAX(ARRAY[1])",
]
RANKING = [
    *("ROW_NUMBER()", "RANK()", "DENSE_RANK()", "NTILE(3)", "PERCENT_RANK()", "CUME_DIST()", "LAG(x, 2, 5)"),
    *("LAG(x, 1, 1.5)", "LAG(x, 1, CAST(NULL AS INT))", "LEAD(x, 1, 'a')", "SUM(x)", "LAST_VALUE(x)"),
]


def aggregates() -> Iterator[str]:
    """Yield aggregates of columns of all types, of groups and of all rows."""
    for value in AGGREGATED:
        for call in AGGREGATES:
            yield from (f"{call} FROM (SELECT {value} AS x){by}" for by in (" GROUP BY x", ""))
        yield from (f"{call} OVER (ORDER BY PROCTIME()) FROM (SELECT {value} AS x)" for call in OVER)
    for call in OF_TWO:
        yield from (f"{call} FROM (SELECT 1 AS x, 2 AS y){by}" for by in (" GROUP BY x, y", ""))
    yield from (f"{call} OVER (PARTITION BY y ORDER BY x) FROM (SELECT 1 AS x, 2 AS y)" for call in RANKING)

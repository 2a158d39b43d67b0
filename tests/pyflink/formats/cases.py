"""Edge cases of file and message formats; record.py runs them on PyFlink, a test on millstream.

Columns and fields are written `name:TYPE`, `name:TYPE[]` for arrays; settings are the builder's methods with their
arguments.
"""

from __future__ import annotations

SNA = ["s:STRING", "n:INT", "a:STRING[]"]
TYPES = ["b:BOOLEAN", "d:DOUBLE", "l:LONG", "ai:INT[]", "sm:SHORT", "ti:BYTE", "fl:FLOAT"]
INTS = ["s:STRING", "n:INT"]
# Types that py4j passes to Java with the correct boxed class.
BOXED = ["b:BOOLEAN", "d:DOUBLE", "n:INT", "ai:INT[]"]
TIMES = ["d:SQL_DATE", "t:SQL_TIME", "ts:SQL_TIMESTAMP", "dec:BIG_DEC", "i:BIG_INT"]


def _all(kind, fields, settings, *inputs):
    return [{"kind": kind, "fields": fields, "settings": settings, "input": i} for i in inputs]


CSV_READ = [
    *_all(
        "csv_read", SNA, [], "a,1,x;y\n", "a,1\n", "a\n", "\n", "", "a,1,x;y,extra\n", "a,1,x;y,", "a,1,x,,\n", "a,,\n"
    ),
    *_all("csv_read", SNA, [], ",1,x\n", '"",1,""\n', '"a,b",2,"x;y"\n', '"a""b",2,x\n', 'a"b,2,x\n', ' "a",2,x\n'),
    *_all("csv_read", SNA, [], '"a" ,2,x\n', '"a"b,2,x\n', '"a\nb",2,x\nc,3,y\n', '"a\n', "a, 5 ,x\n", "a,x,y\n"),
    *_all("csv_read", SNA, [], "a,1.5,y\n", "a,99999999999,y\n", "#c\na,1,x\n", "a\\,b,1,x\n", "a,1,x\r\nb,2,y\r\n"),
    *_all(
        "csv_read", SNA, [], "a,1,x\rb,2,y", "a,1,x\n\nb,2,y\n", " a ,1, x ; y \n", "a,1,;\n", "a,1,x;\n", "a,1,x;;y\n"
    ),
    *_all(
        "csv_read", SNA, [], "a,+7,x\n", "a,1,x\n\n", "null,1,x\n", "a,1,x\n   \nb,2,y\n", "\ufeffa,1,x\n", "a,0x10,x\n"
    ),
    *_all(
        "csv_read",
        SNA,
        [],
        'a,"12",x\n',
        "é,1,ü;ö\n",
        "\U0001f600,1,x",
        '"a\r\nb",2,x\n',
        '"a"\t,2,x\n',
        'a,1,"x""y;z"\n',
    ),
    *_all(
        "csv_read",
        SNA,
        [],
        "a,\u0661,x\n",
        "a,1_0,x\n",
        'a,1,"x',
        '"x"',
        '"""a""",1,"""b"";c"\n',
        "a,-0,x\n",
        "a, ,x\n",
    ),
    *_all("csv_read", SNA, [["set_escape_char", "\\"]], "a\\,b,1,x\n", '"a\\"b",1,x\n', "a\\nb\\tc\\0d,1,x\n"),
    *_all(
        "csv_read",
        SNA,
        [["set_escape_char", "\\"]],
        "a\\xb,1,x\n",
        "a\\\nb,1,x\n",
        "a\\\\,1,x\n",
        "x,1,a\\;b\n",
        "x,1,a\\",
    ),
    *_all(
        "csv_read", SNA, [["set_escape_char", "\\"]], '\\"a,1,x\n', '"a""b",1,x\n', '"a\\\nb",1,x\n', '"a\\\\",1,x\n'
    ),
    *_all(
        "csv_read", SNA, [["set_allow_comments"]], "#c\na,1,x\n", " #c\na,1,x\n", "a,1,#x\n", "#only\n", '"#a",1,x\n'
    ),
    *_all(
        "csv_read", SNA, [["set_allow_comments"]], 'a,1,x\n# "q\nb,2,y\n', "a,1,x\n#no end", "\n#c\na,1,x\n", "#a,1,x"
    ),
    *_all("csv_read", SNA, [["set_allow_comments"]], "a,1,x\n\nb,2,y\n", "a,1,x\n  \nb,2,y\n", "a,1,x\n  b,2,y\n"),
    *_all(
        "csv_read", SNA, [["set_null_value", "NULL"]], "NULL,1,x\n", '"NULL",1,x\n', "a,NULL,x\n", "a,1,NULL\n", ",,\n"
    ),
    *_all("csv_read", SNA, [["set_null_value", "NULL"]], "a,1,x;NULL\n", " NULL,1,x\n", "null,1,x\n", "a, NULL,x\n"),
    *_all("csv_read", SNA, [["set_null_value", ""]], ",1,x\n", '"",1,x\n', "a,,x\n", "a,1,\n", "a, ,x\n", "a,1,x;;y\n"),
    *_all(
        "csv_read", SNA, [["set_use_header"]], "s,n,a\na,1,x\n", "other,n\na,1,x\n", "", "s,n,a\n", '"s\nt",n\na,1,x\n'
    ),
    *_all("csv_read", SNA, [["set_use_header"], ["set_strict_headers"]], "s,n,a\na,1,x\n", "n,s,a\na,1,x\n", ""),
    *_all(
        "csv_read", SNA, [["set_use_header"], ["set_strict_headers"]], "s,n\na,1,x\n", "s,n,a,z\na,1,x\n", '"s", n ,a\n'
    ),
    *_all("csv_read", SNA, [["set_skip_first_data_row"]], "a,1,x\nb,2,y\n", "", "a\nb,2,y\n", '"a\nc",1\nb,2,y\n'),
    *_all("csv_read", SNA, [["set_skip_first_data_row"], ["set_use_header"]], "s,n,a\na,1,x\nb,2,y\n", "s,n,a\n"),
    *_all("csv_read", SNA, [["disable_quote_char"]], '"a",1,x\n', 'a"b,1,"x;y"\n'),
    *_all("csv_read", SNA, [["set_quote_char", "'"]], "'a,b',1,'x'\n", "'a''b',1,x\n", '"a",1,x\n'),
    *_all("csv_read", SNA, [["set_column_separator", "|"]], "a|1|x;y\n", "a|1|x,y\n", '"a|b"|1|x\n'),
    *_all("csv_read", SNA, [["set_column_separator", "\t"]], "a\t1\tx;y\n", '"a" \t1\tx\n'),
    *_all("csv_read", SNA, [["set_array_element_separator", "|"]], "a,1,x|y;z\n"),
    *_all("csv_read", SNA, [["disable_array_element_separator"]], "a,1,x;y\n"),
    *_all("csv_read", SNA, [["remove_array_element_separator", 2]], "a,1,x;y\n"),
    *_all("csv_read", SNA, [["set_any_property_name", "rest"]], "a,1,x,e1,e2\n", "a,1\n"),
    *_all("csv_read", SNA, [["set_line_separator", "|"]], "a,1,x\nb,2,y|z\n"),
    *_all("csv_read", TYPES, [], "true,1.5,7,1;2,7,8,1.1\n", "TRUE,1e3,-7,,40000,1,1\n", "yes,NaN, 8 ,1;x,1,1,1\n"),
    *_all(
        "csv_read", TYPES, [], "1,1,1,1,1,1,1\n", "0,,,,,,\n", "True,Infinity,1,1; 2,1,1,1e50\n", " true ,1,1,1,1,1,1\n"
    ),
    *_all(
        "csv_read", TYPES, [], "false,1_0,1,1,1,1,1\n", '"true","1","2","1;2","4","5","6"\n', "true,.5,1.0,1,1,1,1\n"
    ),
    *_all("csv_read", TYPES, [], "true,5.,9223372036854775808,1,1,1,1\n", "true,1,1,1;;2,1,1,1\n", "t,1f,1,1,1,1,2d\n"),
    *_all(
        "csv_read",
        TYPES,
        [],
        "t,-Infinity,1,1,1,300,1\n",
        "t,inf,1,1,1,1,1\n",
        "t,nan,1,1,1,1,1\n",
        "t,1, 1,1,1,1, 2 \n",
    ),
    *_all("csv_read", ["s:STRING"], [], "a\n\nb\n", "\n", " \n", "a", '""\n', ",\n", "a,\n"),
    *_all("csv_read", ["ai:INT[]"], [], "1;2\n", "\n", "1; 2 ;3\n", "1;\n"),
]

CSV_ROW = [
    *_all(
        "csv_row",
        INTS,
        [],
        "a,1",
        "a",
        "",
        "a,1,2",
        "a,",
        ",1",
        '"a",1',
        '"a,b",1',
        "a,x",
        "a, 1 ",
        "a,1\n",
        "a,1\r\n",
        "a,1\nb,2",
    ),
    *_all(
        "csv_row",
        INTS,
        [],
        '"a""b",1',
        '"a',
        "#a,1",
        "\n",
        '"a\nb",1',
        "a,1,",
        '"",1',
        '"a"b,1',
        "a,1.0",
        "a,99999999999",
    ),
    *_all(
        "csv_row",
        INTS,
        [["set_ignore_parse_errors", True]],
        "a,1",
        "a",
        "",
        "a,1,2",
        "a,",
        "a,x",
        '"a',
        "a,1,",
        '"a"b,1',
    ),
    *_all("csv_row", INTS, [["set_allow_comments", True]], "#a,1", "a,1", "a,#1", " #a,1"),
    *_all("csv_row", INTS, [["set_null_literal", "n/a"]], "n/a,1", "a,n/a", '"n/a",1', ",1", "a,"),
    *_all("csv_row", INTS, [["set_null_literal", ""]], ",1", "a,", '"",1'),
    *_all("csv_row", INTS, [["set_field_delimiter", ";"]], "a;1", "a,1"),
    *_all("csv_row", INTS, [["set_quote_character", "'"]], "'a,b',1", "'a''b',1"),
    *_all("csv_row", INTS, [["set_escape_character", "\\"]], "a\\,b,1", '"a\\"b",1', "a\\nb,1"),
    *_all("csv_row", SNA, [], "a,1,x;y", "a,1,", "a,1,x;", "a,1,;", "a,1", "a,1,x;;y", "a,1, x ; y "),
    *_all("csv_row", SNA, [["set_array_element_delimiter", ":"]], "a,1,x:y", "a,1,x;y"),
    *_all(
        "csv_row", TYPES, [], "true,1.5,7,1;2,7,8,1.1", "TRUE,1e3,-7,,40000,1,1", "yes,NaN, 8 ,1,1,1,1", "1,1,1,1,1,1,1"
    ),
    *_all("csv_row", TYPES, [], "t,.5,1,1; 2,1,1,1", "true,1,1,1,1,300,1", "true,1,1.0,1,1,1,1", " true ,1,1,1,1,1,1"),
]

CSV_WRITE = [
    *_all(
        "csv_write",
        SNA,
        [],
        ["a", 1, ["x", "y"]],
        ["a,b", 1, ["x"]],
        ['a"b', 1, []],
        ["a\nb", 1, ["x;y"]],
        ["", 1, [""]],
    ),
    *_all(
        "csv_write",
        SNA,
        [],
        [" a ", -1, ["x", None]],
        [None, None, None],
        ["é", 1, ["a,b"]],
        ["#a", 1, ["'"]],
        ["a\rb", 1, []],
    ),
    *_all(
        "csv_write",
        SNA,
        [],
        ["a b", 1, ["x y"]],
        ["a\tb", 1, ["x"]],
        ["0", 1, ["x"]],
        ["-", 1, ["x"]],
        ["a;b", 1, ["x"]],
    ),
    *_all(
        "csv_write", SNA, [], ["!", 1, ["x"]], ["+a", 1, ["x"]], ["a|b", 1, ["x"]], ["a'b", 1, ["x"]], ["\\", 1, ["x"]]
    ),
    *_all("csv_write", SNA, [["set_null_value", "NULL"]], [None, None, None], ["a", 1, ["x", None]], ["NULL", 1, []]),
    *_all("csv_write", SNA, [["set_column_separator", "|"]], ["a,b", 1, ["x", "y"]], ["a|b", 1, ["x"]]),
    *_all("csv_write", SNA, [["set_line_separator", "\r\n"]], ["a", 1, ["x"]], ["a\nb", 1, []]),
    *_all("csv_write", SNA, [["set_quote_char", "'"]], ["a,b", 1, ["x"]], ["a'b", 1, ["x"]], ['a"b', 1, ["x"]]),
    *_all("csv_write", SNA, [["disable_quote_char"]], ["a,b", 1, ["x"]], ['a"b', 1, ["x"]]),
    *_all("csv_write", SNA, [["set_escape_char", "\\"]], ["a,b", 1, ["x"]], ['a"b', 1, ["x"]], ["a\\b", 1, ["x"]]),
    *_all("csv_write", SNA, [["set_use_header"]], ["a", 1, ["x"]]),
    *_all("csv_write", SNA, [["set_array_element_separator", "|"]], ["a", 1, ["x", "y"]]),
    *_all("csv_write", BOXED, [], [True, 1.5, 7, [1, 2]], [False, 1e10, -7, []], [None] * 4, [True, 100.0, -1, [None]]),
    *_all(
        "csv_write", SNA, [], ["x" * 24, 1, ["x" * 25]], ["x" * 25, 1, ["x" * 12, "y" * 12]], ["\x7f", 1, ["\u00a0"]]
    ),
    *_all("csv_write", SNA, [["disable_quote_char"]], ["x" * 25, 1, ["a b"]], ["a\nb", 1, ["x"]]),
    *_all("csv_write", SNA, [["set_escape_char", "/"]], ["a/b", 1, ["\\"]], ["x" * 25 + '"/', 1, ["x"]]),
    *_all("csv_write", SNA, [["disable_quote_char"], ["set_escape_char", "/"]], ["a,b/\n", 1, ["x"]]),
]

CSV_ROW_WRITE = [
    *_all(
        "csv_row_write",
        INTS,
        [],
        ["a", 1],
        ["a,b", 1],
        ['a"b', 1],
        ["a\nb", 1],
        ["", 1],
        [None, None],
        [" a ", 1],
        ["é", 1],
    ),
    *_all("csv_row_write", INTS, [["set_null_literal", "n/a"]], [None, None], ["n/a", 1]),
    *_all("csv_row_write", INTS, [["set_field_delimiter", ";"]], ["a;b", 1], ["a,b", 1]),
    *_all("csv_row_write", INTS, [["set_line_delimiter", "\r\n"]], ["a", 1]),
    *_all("csv_row_write", INTS, [["set_line_delimiter", ""]], ["a", 1]),
    *_all("csv_row_write", INTS, [["disable_quote_character"]], ["a,b", 1], ['a"b', 1]),
    *_all("csv_row_write", INTS, [["set_quote_character", "'"]], ["a,b", 1], ["a'b", 1]),
    *_all("csv_row_write", INTS, [["set_escape_character", "\\"]], ['a"b', 1], ["a\\b", 1]),
    *_all(
        "csv_row_write",
        SNA,
        [],
        ["a", 1, ["x", "y"]],
        ["a", 1, []],
        ["a", 1, [None]],
        ["a", 1, None],
        ["a", 1, ["x,y"]],
    ),
    *_all("csv_row_write", SNA, [["set_array_element_delimiter", "|"]], ["a", 1, ["x", "y"]]),
    *_all(
        "csv_row_write", TYPES, [], [True, 1.5, 7, [1, 2], 3, 4, 0.5], [False, 1e10, -7, [], 3, 4, -1e-5], [None] * 7
    ),
]

JSON_ROW = [
    *_all(
        "json_row",
        INTS,
        [],
        '{"s":"a","n":1}',
        '{"n":1}',
        "{}",
        '{"s":null,"n":null}',
        '{"s":1,"n":"2"}',
        "[]",
        "null",
        '"x"',
    ),
    *_all(
        "json_row",
        INTS,
        [],
        "",
        "{",
        '{"s":"a","n":1.7}',
        '{"s":{"x":1},"n":1}',
        '{"s":"a","n":true}',
        '{"s":true,"n":""}',
    ),
    *_all(
        "json_row",
        INTS,
        [],
        '{"s":"a","n":1} x',
        '{"s":"a","n":1,"z":2}',
        '{"s":"é\\u00fc","n":1}',
        '{"s":["x"],"n":"x"}',
    ),
    *_all(
        "json_row",
        INTS,
        [],
        '{"s":1.50,"n":99999999999}',
        "{'s':'a'}",
        '{"s":"a","s":"b","n":1}',
        '{"s":NaN,"n":1}',
        " 1 ",
    ),
    *_all("json_row", INTS, [["fail_on_missing_field"]], '{"s":"a","n":1}', '{"n":1}', '{"s":null,"n":1}'),
    *_all(
        "json_row",
        INTS,
        [["ignore_parse_errors"]],
        "{",
        '{"s":"a","n":"x"}',
        '{"n":1}',
        "",
        '{"s":"a","n":1}',
        "[]",
        "null",
    ),
    *_all("json_row", SNA, [], '{"s":"a","n":1,"a":["x",null,2]}', '{"a":[]}', '{"a":null}', '{"a":"x"}', '{"a":{}}'),
    *_all(
        "json_row",
        TYPES,
        [],
        '{"b":true,"d":1,"l":7,"ai":[1,"2"],"sm":3,"ti":4,"fl":0.1}',
        '{"b":"true","d":"1.5","l":"7"}',
    ),
    *_all(
        "json_row",
        TYPES,
        [],
        '{"b":1}',
        '{"b":"yes"}',
        '{"sm":40000}',
        '{"ti":300}',
        '{"fl":1e50}',
        '{"d":true}',
        '{"l":1.9}',
    ),
    *_all(
        "json_row",
        TYPES,
        [],
        '{"sm":"40000"}',
        '{"ti":"x"}',
        '{"d":"x"}',
        '{"l":" 7 "}',
        '{"d":"NaN"}',
        '{"b":" true "}',
    ),
]

TIMED = [
    *_all("json_row", TIMES, [], '{"d":"2020-01-02","t":"12:12:43Z","ts":"1990-10-14T12:12:43Z","dec":1.23,"i":123}'),
    *_all(
        "json_row",
        TIMES,
        [],
        '{"ts":"1990-10-14T12:12:43.123Z"}',
        '{"ts":"1990-10-14T12:12:43"}',
        '{"t":"12:12:43"}',
        '{"d":1}',
    ),
    *_all(
        "json_row",
        TIMES,
        [],
        '{"ts":"1990-10-14 12:12:43"}',
        '{"ts":1}',
        '{"dec":"1.230"}',
        '{"dec":1.230}',
        '{"i":1.5}',
    ),
    *_all("csv_row", TIMES, [], "2020-01-02,12:12:43,1990-10-14 12:12:43,1.230,99999999999999999999"),
    *_all(
        "csv_row", TIMES, [], "2020-01-02,12:12:43,1990-10-14 12:12:43.5, 1 , 2 ", "x,12:12:43,1990-10-14 12:12:43,1,1"
    ),
    *_all(
        "csv_row", TIMES, [], "2020-01-02,12:12:43,1990-10-14T12:12:43,1,1", "2020-01-02,12:12,1990-10-14 12:12:43,1,1"
    ),
]

JSON_ROW_WRITE = [
    *_all("json_row_write", INTS, [], ["a", 1], [None, None], ['a"b\\\n\t', 1], ["é\u2028/\x01", 1], ["\U0001f600", 1]),
    *_all("json_row_write", SNA, [], ["a", 1, ["x", None]], ["a", 1, []], ["a", 1, None]),
    *_all(
        "json_row_write", TYPES, [], [True, 1.5, 7, [1, 2], 3, 4, 0.5], [False, 1e10, -7, [], 3, 4, -1e-5], [None] * 7
    ),
    *_all("json_row_write", TYPES, [], [True, 100.0, 2**62, [None], -3, -4, 0.1]),
]

TEXT = _all(
    "text",
    [],
    [],
    "a\nb\n",
    "a\r\nb\r\n",
    "a\rb",
    "a\n\nb",
    "",
    "\n",
    "a\x0bb\x0cc\u2028d\x85e\n",
    "a\r\r\nb",
    "\ufeffa\n",
    "é",
)

CASES = [*TEXT, *CSV_READ, *CSV_ROW, *CSV_WRITE, *CSV_ROW_WRITE, *JSON_ROW, *TIMED, *JSON_ROW_WRITE]

"""The intended differences from Flink's results for expressions, with reasons."""

from __future__ import annotations

import re

import numpy as np

# Functions of Java's math library may differ in the last digit.
_LAST_DIGIT = (
    "SIN",
    "COS",
    "TAN",
    "COT",
    "ASIN",
    "ACOS",
    "ATAN",
    "ATAN2",
    "SINH",
    "COSH",
    "TANH",
    "POWER",
    "EXP",
    "LOG",
)
_BEFORE_1970 = (
    "EXTRACT",
    "YEAR",
    "QUARTER",
    "MONTH",
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "FLOOR",
    "CEIL",
    "WEEK",
    "CAST",
)


def agrees(text: str, reported: str, value: str, our_type: str, our_value: str) -> bool:
    """Return whether Millstream's answer for an expression equals Flink's."""
    if reported.startswith("!") or (our_type.startswith("!") and value.startswith("!")):
        # Millstream may reject in planning what Flink rejects at run time.
        return our_type.startswith("!")
    if our_type != reported:
        return False
    if value.startswith("!"):
        # A null of a type without nulls fails in Flink's sink; in Millstream it is null.
        return our_value.startswith("!") or ("however, a null value is being written" in value and our_value == "NULL")
    if value == "= " and reported.startswith("DECIMAL") and our_value == "NULL":
        # The same null, as text.
        return True
    if reported.startswith("FLOAT") and _is_same_float(value, our_value):
        # Java 17 prints more digits of some numbers than needed to distinguish them; Java 19 does not.
        return True
    return our_value == value or (text.startswith(_LAST_DIGIT) and _are_close(value, our_value))


def _is_same_float(left: str, right: str) -> bool:
    try:
        return bool(np.float32(left.removeprefix("= ")) == np.float32(right.removeprefix("= ")))
    except ValueError:
        return False


def _are_close(left: str, right: str) -> bool:
    try:
        a, b = float(left.removeprefix("= ")), float(right.removeprefix("= "))
    except ValueError:
        return False
    return abs(a - b) <= 1e-15 * abs(a)


def reason_of(text: str, reported: str, value: str) -> str | None:
    """Return the reason for a difference from Flink in an expression, None if none is known."""
    for reason, test in REASONS.items():
        if test(text, reported, value):  # type: ignore[no-untyped-call]
            return reason
    return None


REASONS = {
    "adjacent string literals on one line are concatenated here": lambda e, t, v: e == "'a' 'b'",
    "Flink's plan fails at run time; here the expression has a value": lambda e, t, v: _is_internal_failure(v),
    "functions of integers reject text and fractions in planning; Flink rejects them at run time": (
        lambda e, t, v: e.startswith("RAND_INTEGER(") and "Unsupported call" in v
    ),
    "PI is a function, with parentheses": lambda e, t, v: e == "PI",
    "Flink rounds times before 1970 towards 1970": lambda e, t, v: (
        ("1969-12-31" in e or "LTZ(-1" in e) and e.startswith(_BEFORE_1970)
    ),
    "a day has no seconds; Flink reads its number as milliseconds": (
        lambda e, t, v: "FROM DATE" in e or e.startswith("SECOND(DATE")
    ),
    "Flink's CEIL of a date is the next day, and of a Sunday TO WEEK that day itself": (
        lambda e, t, v: e.startswith("CEIL(DATE") or (e.startswith("CEIL(") and e.endswith("TO WEEK)"))
    ),
    "Flink's planner keeps constants of type FLOAT and DOUBLE as decimals": (
        lambda e, t, v: "0.1 AS FLOAT" in e or "-1.0E-5 AS FLOAT" in e or "-0.0E0" in e or "Infinite or NaN" in t
    ),
    "text is truncated to the length of its type": lambda e, t, v: "'Infinity' AS DOUBLE) AS VARCHAR(3)" in e,
    "a letter is no number; Flink reads a single letter as zero": (
        lambda e, t, v: re.match(r"(TRY_)?CAST\('[a-zA-Z]' AS DECIMAL", e) is not None
    ),
    "text compared with a number is parsed as a number": lambda e, t, v: "! implicit type conversion between" in v,
    "NaN is not equal to, larger or smaller than any number; Flink's planner compares constants differently": (
        lambda e, t, v: " < CAST('NaN'" in e or e.startswith("CAST('NaN' AS DOUBLE) ")
    ),
    "text compared with a boolean is parsed as a boolean": lambda e, t, v: e == "TRUE < 'a'",
    "text is parsed even if the other side is null": lambda e, t, v: (
        v == "NULL" and "CAST(NULL AS INT)" in e and "'" in e and (re.search(" [<=] ", e) is not None or "NULLIF" in e)
    ),
    "text is parsed even if the other side of NULLIF is null": lambda e, t, v: (
        e.startswith("NULLIF(") and "CAST(NULL AS INT)" in e
    ),
    "IF accepts arrays, and NULL without a type": lambda e, t, v: (
        e.startswith("IF(") and ("ARRAY[" in e or "NULL)" in e)
    ),
    "numbers do not become days": lambda e, t, v: e.startswith("CASE") and ("DATE '" in e or "TIMESTAMP '" in e),
    "collections and rows have no order": lambda e, t, v: e.startswith(("ARRAY[", "MAP[", "ROW(")) and " < " in e,
    "NULL is compared with rows, too": lambda e, t, v: "RECORDTYPE" in t and "NULL" in e,
    "only a NULL without a type is cast to everything": (
        lambda e, t, v: e.startswith("CAST(CAST(NULL AS") and " AS TIMESTAMP" in e
    ),
    "JSON of another type than RETURNING is handled by ON ERROR; Flink always fails": (
        lambda e, t, v: "RETURNING" in e and (" cannot be cast to class" in v or "for RETURNING in JSON_VALUE" in v)
    ),
    "days and times are written into JSON as text": (
        lambda e, t, v: (
            e.startswith("JSON_")
            and any("cannot be converted into JSON" in x or "but actual type" in x for x in (t, v))
        )
    ),
    "the JSON document null has no elements": lambda e, t, v: v == "! json object can not be null",
    "the order of a map's keys is not defined": lambda e, t, v: e.startswith("MAP_UNION("),
    "Flink reads a null of a primitive array as zero when it widens it": (
        lambda e, t, v: "ARRAY[3, NULL, 1, 3], ARRAY[CAST(3 AS BIGINT)]" in e
    ),
    "keys of JSON objects are text; other keys are converted to text here": lambda e, t, v: "The key type must be" in v,
    "a row may contain a NULL without a type": lambda e, t, v: e == "ROW(1, 'a', NULL)",
    "a MAP with a null has the type of its other entries": lambda e, t, v: "MAP['a', NULL" in e,
    "text that is no date is null": lambda e, t, v: e == "TO_DATE('x', 'yyyy')",
    "the Gregorian calendar also applies before 1582": lambda e, t, v: "'0001-01-01 00:00:00'" in e,
    "TRY_CAST converts a number to the same interval as CAST; Flink's uses milliseconds, and rejects DECIMAL": (
        lambda e, t, v: e.startswith("TRY_CAST(") and " AS INTERVAL " in e
    ),
    "an interval may have any number of days; Flink limits them to an INT": (
        lambda e, t, v: e == "CAST(3000000000 AS INTERVAL DAY)"
    ),
    "TIMESTAMPDIFF of TIMESTAMP_LTZ and TIMESTAMP is supported here": (
        lambda e, t, v: e.startswith("TIMESTAMPDIFF") and "TIMESTAMP_LTZ only supports" in v
    ),
}


def _is_internal_failure(value: str) -> bool:
    words = (
        *("Unsupported call", "Assignment conversion not possible", "String expression type expected", "Cannot invoke"),
        *(
            "is neither a decimal digit number",
            "CHARACTER SET",
            "Unsupported casting",
            "Mismatch of function's argument",
        ),
    )
    return value.startswith("!") and any(w in value for w in words)


def aggregate_reason(text: str) -> str | None:
    """Return the reason for a difference from Flink in an aggregate's type, None if none is known."""
    if re.match(r"(MIN|MAX)\(", text) and re.search(r"ARRAY\[|MAP\[|ROW\(", text):
        return "MIN and MAX of types without an order are rejected in planning; Flink rejects them at run time"
    if text.startswith("GROUP_ID()"):
        return "all rows are in one group"
    if text.startswith("PERCENTILE") and "INTERVAL" in text:
        return "PERCENTILE does not support intervals"
    return None

"""Where we differ from what Flink says of expressions, and why."""

from __future__ import annotations

import re

import numpy as np

# Numbers that Java's own library computes differ by one in the last digit.
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
        # What Flink refuses only when it runs may be refused before.
        return our_type.startswith("!")
    if our_type != reported:
        return False
    if value.startswith("!"):
        # A null that stands where the type has none fails in Flink's sink; here it is null.
        return our_value.startswith("!") or ("however, a null value is being written" in value and our_value == "NULL")
    if value == "= " and reported.startswith("DECIMAL") and our_value == "NULL":
        # That null again, as text.
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
    """Return the reason for a difference from Flink on an expression, None if there is no known one."""
    for reason, test in REASONS.items():
        if test(text, reported, value):  # type: ignore[no-untyped-call]
            return reason
    return None


REASONS = {
    "text in pieces on one line is one text here": lambda e, t, v: e == "'a' 'b'",
    "Flink cannot run what it has planned; here it has a value": lambda e, t, v: _fails_oddly(v),
    "functions of numbers take no text and no fractions where whole numbers are meant, which Flink finds out later": (
        lambda e, t, v: e.startswith("RAND_INTEGER(") and "Unsupported call" in v
    ),
    "PI is a function, with parentheses": lambda e, t, v: e == "PI",
    "Flink counts times before 1970 towards 1970": lambda e, t, v: (
        ("1969-12-31" in e or "LTZ(-1" in e) and e.startswith(_BEFORE_1970)
    ),
    "a day has no seconds; Flink reads its number as milliseconds": (
        lambda e, t, v: "FROM DATE" in e or e.startswith("SECOND(DATE")
    ),
    "Flink's CEIL of a day is the next one, and of a Sunday that day itself": (
        lambda e, t, v: e.startswith("CEIL(DATE") or (e.startswith("CEIL(") and e.endswith("TO WEEK)"))
    ),
    "Flink's planner keeps constants of type FLOAT and DOUBLE as decimals": (
        lambda e, t, v: "0.1 AS FLOAT" in e or "-1.0E-5 AS FLOAT" in e or "-0.0E0" in e or "Infinite or NaN" in t
    ),
    "text is cut to the length of its type": lambda e, t, v: "'Infinity' AS DOUBLE) AS VARCHAR(3)" in e,
    "a letter is no number; Flink reads it as zero when it is alone": (
        lambda e, t, v: re.match(r"(TRY_)?CAST\('[a-zA-Z]' AS DECIMAL", e) is not None
    ),
    "text that is compared with a number is read as one": lambda e, t, v: "! implicit type conversion between" in v,
    "NaN is not equal to, larger or smaller than anything; Flink's planner compares constants otherwise": (
        lambda e, t, v: " < CAST('NaN'" in e or e.startswith("CAST('NaN' AS DOUBLE) ")
    ),
    "text that is compared with truth values is read as one": lambda e, t, v: e == "TRUE < 'a'",
    "text is read even where the other side is null": lambda e, t, v: (
        v == "NULL" and "CAST(NULL AS INT)" in e and "'" in e and (re.search(" [<=] ", e) is not None or "NULLIF" in e)
    ),
    "text is read even where the other side of NULLIF is null": lambda e, t, v: (
        e.startswith("NULLIF(") and "CAST(NULL AS INT)" in e
    ),
    "IF takes arrays, and NULL without a type": lambda e, t, v: e.startswith("IF(") and ("ARRAY[" in e or "NULL)" in e),
    "numbers do not become days": lambda e, t, v: e.startswith("CASE") and ("DATE '" in e or "TIMESTAMP '" in e),
    "collections and rows have no order": lambda e, t, v: e.startswith(("ARRAY[", "MAP[", "ROW(")) and " < " in e,
    "NULL is compared with rows, too": lambda e, t, v: "RECORDTYPE" in t and "NULL" in e,
    "only a NULL without a type is cast to everything": (
        lambda e, t, v: e.startswith("CAST(CAST(NULL AS") and " AS TIMESTAMP" in e
    ),
    "JSON of another type than RETURNING says is an error like others; Flink fails whatever is said": (
        lambda e, t, v: "RETURNING" in e and (" cannot be cast to class" in v or "for RETURNING in JSON_VALUE" in v)
    ),
    "days and times are written into JSON as text": (
        lambda e, t, v: (
            e.startswith("JSON_")
            and any("cannot be converted into JSON" in x or "but actual type" in x for x in (t, v))
        )
    ),
    "the document null has nothing in it": lambda e, t, v: v == "! json object can not be null",
    "the order of a map's keys is not defined": lambda e, t, v: e.startswith("MAP_UNION("),
    "Flink reads a null of a primitive array as zero when it widens it": (
        lambda e, t, v: "ARRAY[3, NULL, 1, 3], ARRAY[CAST(3 AS BIGINT)]" in e
    ),
    "keys of JSON objects are text; others are written as text here": lambda e, t, v: "The key type must be" in v,
    "a NULL without a type may stand in a row": lambda e, t, v: e == "ROW(1, 'a', NULL)",
    "a MAP with a null is of the type that the others have": lambda e, t, v: "MAP['a', NULL" in e,
    "text that is no date is no date": lambda e, t, v: e == "TO_DATE('x', 'yyyy')",
    "there was no other calendar before 1582": lambda e, t, v: "'0001-01-01 00:00:00'" in e,
    "TRY_CAST makes the same length of time of a number as CAST; Flink's counts milliseconds, and takes no DECIMAL": (
        lambda e, t, v: e.startswith("TRY_CAST(") and " AS INTERVAL " in e
    ),
    "a length of time has as many days as it has; Flink counts them as an INT": (
        lambda e, t, v: e == "CAST(3000000000 AS INTERVAL DAY)"
    ),
    "points in time and times without a zone have a distance here": (
        lambda e, t, v: e.startswith("TIMESTAMPDIFF") and "TIMESTAMP_LTZ only supports" in v
    ),
}


def _fails_oddly(value: str) -> bool:
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
    """Return the reason why an aggregate's type differs from Flink's, None if there is no known one."""
    if re.match(r"(MIN|MAX)\(", text) and re.search(r"ARRAY\[|MAP\[|ROW\(", text):
        return "what has no order has no MIN and MAX, which Flink finds out when it runs"
    if text.startswith("GROUP_ID()"):
        return "all rows are one group"
    if text.startswith("PERCENTILE") and "INTERVAL" in text:
        return "there is no PERCENTILE of lengths of time"
    return None

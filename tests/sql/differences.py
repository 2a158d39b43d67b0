"""Where we differ from what Flink says of expressions, and why."""

from __future__ import annotations

import re

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
_BEFORE_1970 = ("EXTRACT", "YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "FLOOR", "CEIL", "WEEK")


def agrees(text: str, told: str, value: str, our_type: str, our_value: str) -> bool:
    """Tell whether we say the same of an expression as Flink."""
    if told.startswith("!"):
        return our_type.startswith("!")
    if our_type != told:
        return False
    if value.startswith("!"):
        # A null that stands where the type has none fails in Flink's sink; here it is null.
        return our_value.startswith("!") or ("however, a null value is being written" in value and our_value == "NULL")
    return our_value == value or (text.startswith(_LAST_DIGIT) and _are_close(value, our_value))


def _are_close(left: str, right: str) -> bool:
    try:
        a, b = float(left.removeprefix("= ")), float(right.removeprefix("= "))
    except ValueError:
        return False
    return abs(a - b) <= 1e-15 * abs(a)


def reason_of(text: str, told: str, value: str) -> str | None:
    """Return why we differ from Flink on an expression, None if nobody knows."""
    for reason, test in REASONS.items():
        if test(text, told, value):
            return reason
    return None


REASONS = {
    "text in pieces on one line is one text here": lambda e, t, v: e == "'a' 'b'",
    "Flink cannot run what it has planned; here it has a value": lambda e, t, v: _fails_oddly(v),
    "functions of numbers take no text and no fractions where whole numbers are meant, which Flink finds out later": (
        lambda e, t, v: e.startswith("RAND_INTEGER(") and "Unsupported call" in v
    ),
    "PI is a function, with parentheses": lambda e, t, v: e == "PI",
    "Flink counts times before 1970 towards 1970": lambda e, t, v: "1969-12-31" in e and e.startswith(_BEFORE_1970),
    "a day has no seconds; Flink reads its number as milliseconds": (
        lambda e, t, v: "FROM DATE" in e or e.startswith("SECOND(DATE")
    ),
    "Flink's CEIL of a day is the next one, and of a Sunday that day itself": (
        lambda e, t, v: e.startswith("CEIL(DATE") or (e.startswith("CEIL(") and e.endswith("TO WEEK)"))
    ),
    "points in time and times without a zone have a distance here": (
        lambda e, t, v: e.startswith("TIMESTAMPDIFF") and "TIMESTAMP_LTZ only supports" in v
    ),
}


def _fails_oddly(value: str) -> bool:
    words = (
        *("Unsupported call", "Assignment conversion not possible", "String expression type expected", "Cannot invoke"),
        *("is neither a decimal digit number", "CHARACTER SET"),
    )
    return value.startswith("!") and any(w in value for w in words)


def aggregate_reason(text: str) -> str | None:
    """Return why the type of an aggregate differs from Flink's, None if nobody knows."""
    if re.match(r"(MIN|MAX)\(", text) and re.search(r"ARRAY\[|MAP\[|ROW\(", text):
        return "what has no order has no MIN and MAX, which Flink finds out when it runs"
    if text.startswith("GROUP_ID()"):
        return "all rows are one group"
    if text.startswith("PERCENTILE") and "INTERVAL" in text:
        return "there is no PERCENTILE of lengths of time"
    return None

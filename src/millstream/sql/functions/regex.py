"""Regular expression functions with Java's syntax, and SIMILAR TO."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql import types as t
from millstream.sql.functions.function import Datum, Function, Site
from millstream.sql.functions.java_regex import BadPattern, java_pattern
from millstream.sql.functions.rules import BOOLEAN, INT, STRING, any_integer, integer, takes, text
from millstream.sql.functions.strings import is_ascii
from millstream.sql.functions.vectors import by_row


def _regexp(value: str, pattern: str) -> bool:
    if not pattern:
        return False
    try:
        return java_pattern(pattern).python.search(value) is not None
    except BadPattern:
        return False


def _regexp_kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    value, pattern = values
    if isinstance(pattern, pa.Scalar) and pattern.as_py() and not isinstance(value, pa.Scalar):
        try:
            quick = java_pattern(pattern.as_py()).re2
            if quick is not None and is_ascii(value):
                return pc.match_substring_regex(value, quick)
        except BadPattern:
            pass
    return by_row(_regexp)(site, rows, values)


def _regexp_replace(value: str, pattern: str, by: str) -> str | None:
    try:
        return java_pattern(pattern).python.sub(lambda _: by, value)
    except BadPattern:
        return None


def _regexp_replace_kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    value, pattern, by = values
    constant = isinstance(pattern, pa.Scalar) and isinstance(by, pa.Scalar) and pattern.is_valid and by.is_valid
    if constant and not isinstance(value, pa.Scalar) and "\\" not in by.as_py():
        try:
            quick = java_pattern(pattern.as_py()).re2
            if quick is not None and is_ascii(value):
                return pc.replace_substring_regex(value, quick, by.as_py())
        except BadPattern:
            pass
    return by_row(_regexp_replace)(site, rows, values)


def _regexp_extract(value: str, pattern: str, group: int = 0) -> str | None:
    try:
        result = java_pattern(pattern).python.search(value)
    except BadPattern:
        return None
    if result is None or not 0 <= group <= result.re.groups:
        return None
    return result.group(group)


def _regexp_extract_kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    value, pattern, *group = values
    index = 0 if not group else group[0].as_py() if isinstance(group[0], pa.Scalar) else None
    if isinstance(pattern, pa.Scalar) and pattern.is_valid and index is not None and not isinstance(value, pa.Scalar):
        named = _named_groups(pattern.as_py())
        if named is not None and 0 <= index < named[1] and is_ascii(value):
            return pc.struct_field(pc.extract_regex(value, named[0]), f"g{index}")
    return by_row(_regexp_extract)(site, rows, values)


@lru_cache(maxsize=1000)
def _named_groups(pattern: str) -> tuple[str, int] | None:
    """Return an RE2 pattern with groups g0 (the whole match), g1, .. and the number of groups.

    None if RE2 has no equivalent, or if a group is optional: RE2 does not distinguish a missing from an empty group.
    """
    try:
        result = java_pattern(pattern)
    except BadPattern:
        return None
    if result.re2 is None or "(?P<" in result.re2 or re.search(r"\)[?*{]", result.re2):
        return None
    # Other brackets are escaped or inside a class.
    pieces = re.split(r"(\\.|\[(?:\\.|[^\]])*\])", result.re2)
    if _has_group_in_choice("".join(pieces[::2])):
        return None
    count = 0
    for i in range(0, len(pieces), 2):
        parts = re.split(r"\((?!\?)", pieces[i])
        for part in parts[1:]:
            count += 1
            parts[0] += f"(?P<g{count}>{part}"
        pieces[i] = parts[0]
    if count != result.python.groups:
        return None
    return f"(?P<g0>{''.join(pieces)})", count + 1


def _has_group_in_choice(brackets: str) -> bool:
    """Return whether a group is inside an alternative, in a pattern without escapes and classes."""
    # Per open bracket, and for the whole pattern: whether it contains a `|` and a group.
    choices, groups, captures = [False], [False], [False]
    for position, letter in enumerate(brackets):
        if letter == "|":
            choices[-1] = True
        elif letter == "(":
            captures.append(not brackets.startswith("(?", position))
            choices.append(False)
            groups.append(False)
        elif letter == ")":
            has_group = groups.pop()
            if choices.pop() and has_group:
                return True
            groups[-1] |= captures.pop() or has_group
    return choices[-1] and groups[-1]


def _regexp_extract_all(value: str, pattern: str, group: int = 1) -> list[str | None] | None:
    try:
        compiled = java_pattern(pattern).python
    except BadPattern:
        return None
    if not 0 <= group <= compiled.groups:
        return None
    return [m.group(group) for m in compiled.finditer(value)]


def _regexp_count(value: str, pattern: str) -> int | None:
    try:
        return sum(1 for _ in java_pattern(pattern).python.finditer(value))
    except BadPattern:
        return None


def _regexp_instr(value: str, pattern: str) -> int | None:
    try:
        result = java_pattern(pattern).python.search(value)
    except BadPattern:
        return None
    return 0 if result is None else result.start() + 1


def _regexp_substr(value: str, pattern: str) -> str | None:
    return _regexp_extract(value, pattern)


_SIMILAR_CLASSES = {
    "ALPHA": "a-zA-Z",
    "UPPER": "A-Z",
    "LOWER": "a-z",
    "DIGIT": "0-9",
    "ALNUM": "a-zA-Z0-9",
    "SPACE": " ",
    "WHITESPACE": "\\s",
}


def similar_regex(pattern: str, escape: str | None) -> str:
    """Return a Python regular expression for a SIMILAR TO pattern."""
    out = ""
    position = 0
    inside = False
    while position < len(pattern):
        c = pattern[position]
        if escape and c == escape:
            position += 1
            out += re.escape(pattern[position : position + 1])
        elif inside:
            result = re.match(r"\[:(\w+):\]", pattern[position:])
            if result:
                out += _SIMILAR_CLASSES.get(result.group(1).upper(), "")
                position += result.end() - 1
            else:
                inside = c != "]"
                out += "\\" + c if c in "\\&~|[" else c
        elif c == "[":
            inside = True
            out += c
        elif c == "%":
            out += ".*"
        elif c == "_":
            out += "."
        elif c in ".^$\\":
            out += "\\" + c
        else:
            out += c
        position += 1
    return out


def _similar(value: str, pattern: str, escape: str | None = None) -> bool:
    return re.fullmatch(similar_regex(pattern, escape), value, re.DOTALL) is not None


FUNCTIONS = [
    Function("REGEXP", takes(text, text, to=BOOLEAN), _regexp_kernel, api="regexp"),
    Function("RLIKE", takes(text, text, to=BOOLEAN), _regexp_kernel),
    Function(
        "REGEXP_REPLACE",
        takes(text, text, text, to=STRING),
        _regexp_replace_kernel,
        api="regexp_replace",
    ),
    Function(
        "REGEXP_EXTRACT",
        takes(text, text, integer, to=STRING, optional=1, nulls="always"),
        _regexp_extract_kernel,
        api="regexp_extract",
    ),
    Function(
        "REGEXP_EXTRACT_ALL",
        takes(text, text, any_integer, to=t.ArrayType(STRING), optional=1, nulls="always"),
        by_row(_regexp_extract_all),
        api="regexp_extract_all",
    ),
    Function("REGEXP_COUNT", takes(text, text, to=INT, nulls="always"), by_row(_regexp_count), api="regexp_count"),
    Function("REGEXP_INSTR", takes(text, text, to=INT, nulls="always"), by_row(_regexp_instr), api="regexp_instr"),
    Function(
        "REGEXP_SUBSTR", takes(text, text, to=STRING, nulls="always"), by_row(_regexp_substr), api="regexp_substr"
    ),
    Function("SIMILAR TO", takes(text, text, text, to=BOOLEAN, optional=1), by_row(_similar), api="similar"),
]

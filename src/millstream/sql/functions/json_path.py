"""JSON documents and paths, with the semantics of Jackson and JsonPath as in Flink."""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

from millstream.common.aliases import Json
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.columns.value_text import java_double


class PathError(ValueError):
    """An invalid path, or a path without result."""


# --- documents

_DECODER = json.JSONDecoder(parse_float=decimal.Decimal, parse_constant=lambda word: _refuse(word))
_BLANK = re.compile(r"[ \t\n\r]*")


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


def parsed(text: str) -> Json:
    """Return a parsed document.

    Raises:
        ValueError: the text is not JSON. Text after the first value is ignored.
    """
    start = _BLANK.match(text)
    assert start is not None
    value, _ = _DECODER.raw_decode(text, start.end())
    return value


def is_json(text: str) -> tuple[bool, Json]:
    """Return whether text begins with a JSON value, and the value."""
    try:
        return True, parsed(text)
    except (ValueError, RecursionError):
        return False, None


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TO_ESCAPE = re.compile(r'["\\\x00-\x1f]')


def quoted(text: str) -> str:
    """Return text as a JSON string; only control characters are escaped."""
    return '"' + _TO_ESCAPE.sub(lambda m: _ESCAPES.get(m.group()) or f"\\u{ord(m.group()):04X}", text) + '"'


def written(value: Json) -> str:
    """Return a value as compact JSON with sorted members."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float):
        return str(decimal.Decimal(java_double(value)))
    if isinstance(value, dict):
        return "{" + ",".join(f"{quoted(k)}:{written(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return str(value)


def scalar_text(value: Json) -> str:
    """Return a scalar as plain text."""
    return value if isinstance(value, str) else written(value)


# --- paths

_Test = Callable[[Json], bool]
# The names, indexes, bounds or filter of a step, by its kind.
_Argument: TypeAlias = Any


@fast_dataclass
class Step:
    """A step of a path, and whether it selects at most one value."""

    kind: str
    argument: _Argument = None
    definite: bool = True


@fast_dataclass
class Path:
    """A path into a document."""

    steps: tuple[Step, ...]

    @property
    def definite(self) -> bool:
        """Whether it selects at most one value."""
        return all(s.definite for s in self.steps)

    def find(self, document: Json) -> Json:
        """Return the selected value; a list if the path can select several.

        Raises:
            PathError: the path selects nothing.
        """
        result = [document]
        sure = True
        for step in self.steps:
            if step.kind == "function":
                return _FUNCTIONS[step.argument](result[0] if sure and result else result)
            sure = sure and step.definite
            following: list[Json] = []
            for value in result:
                following += _walk(step, value, sure)
            result = following
        return result[0] if sure else result


def _walk(step: Step, value: Json, sure: bool) -> list[Json]:
    """Return the values that a step selects; a definite step without result is an error."""
    result = _FINDERS[step.kind](value, step.argument)
    if sure and not result:
        raise PathError(f"No results for path: {step.argument!r}")
    return result


def _members(value: Json, names: tuple[str, ...]) -> list[Json]:
    if not isinstance(value, dict):
        return []
    return [value[name] for name in names if name in value]


def _elements(value: Json, indexes: tuple[int, ...]) -> list[Json]:
    if not isinstance(value, list):
        return []
    return [value[i] for i in indexes if -len(value) <= i < len(value)]


def _slice(value: Json, bounds: tuple[int | None, int | None]) -> list[Json]:
    return value[slice(*bounds)] if isinstance(value, list) else []


def _all(value: Json, argument: _Argument) -> list[Json]:
    return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []


def _deep(value: Json, step: Step) -> list[Json]:
    result = list(_FINDERS[step.kind](value, step.argument))
    for inner in _all(value, None):
        if isinstance(inner, (dict, list)):
            result += _deep(inner, step)
    return result


def _filtered(value: Json, test: _Test) -> list[Json]:
    if isinstance(value, dict):
        return [value] if test(value) else []
    return [v for v in value if test(v)] if isinstance(value, list) else []


_FINDERS: dict[str, Callable[[Json, _Argument], list[Json]]] = {
    "members": _members,
    "elements": _elements,
    "slice": _slice,
    "all": _all,
    "deep": _deep,
    "filter": _filtered,
}


def _numbers(value: Json) -> list[float]:
    result = [float(v) for v in _all(value, None) if isinstance(v, (int, decimal.Decimal)) and not isinstance(v, bool)]
    if not result:
        raise PathError("Aggregation function attempted to calculate value using empty array")
    return result


def _length(value: Json) -> Json:
    return len(value) if isinstance(value, (list, dict)) else None


_FUNCTIONS: dict[str, Callable[[Json], Json]] = {
    "length": _length,
    "size": _length,
    "min": lambda v: min(_numbers(v)),
    "max": lambda v: max(_numbers(v)),
    "sum": lambda v: sum(_numbers(v)),
    "avg": lambda v: sum(_numbers(v)) / len(_numbers(v)),
    "keys": lambda v: list(v) if isinstance(v, dict) else None,
    "first": lambda v: v[0] if v else None,
    "last": lambda v: v[-1] if v else None,
}

_NAME = re.compile(r"[^.\[\]()\s]+")
_BRACKET_NAMES = re.compile(
    r"\s*(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")(?:\s*,\s*(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))*\s*\]"
)
_ONE_NAME = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_INDEXES = re.compile(r"\s*-?\d+(?:\s*,\s*-?\d+)*\s*\]")
_SLICE = re.compile(r"\s*(-?\d*)\s*:\s*(-?\d*)\s*\]")


@lru_cache(maxsize=1000)
def path_of(text: str) -> Path:
    """Return a parsed path.

    Raises:
        PathError: the path is invalid.

    Example:
        >>> path_of("$.a[1].b").find({"a": [0, {"b": "x"}]})
        'x'
    """
    text = text.strip()
    if not text:
        raise PathError("json can not be null or empty")
    if text[0] not in "$@":
        text = f"$.{text}"
    steps: list[Step] = []
    position = 1
    while position < len(text):
        step, position = _read_step(text, position)
        steps.append(step)
    return Path(tuple(steps))


def _read_step(text: str, position: int) -> tuple[Step, int]:
    if text.startswith("..", position):
        position += 2
        if position >= len(text):
            raise PathError("Path must not end with a '.' or '..'")
        inner, position = _read_bracket(text, position + 1) if text[position] == "[" else _read_name(text, position)
        return Step("deep", inner, False), position
    if text[position] == ".":
        if position + 1 >= len(text):
            raise PathError("Path must not end with a '.' or '..'")
        return _read_name(text, position + 1) if text[position + 1] != "[" else _read_bracket(text, position + 2)
    if text[position] == "[":
        return _read_bracket(text, position + 1)
    raise PathError(f"Illegal character at position {position}")


def _read_name(text: str, position: int) -> tuple[Step, int]:
    if text[position] == "*":
        return Step("all", None, False), position + 1
    result = _NAME.match(text, position)
    if result is None:
        raise PathError(f"Illegal character at position {position}")
    if text.startswith("()", result.end()):
        if result.group() not in _FUNCTIONS:
            raise PathError(f"Function with name: {result.group()} does not exist.")
        return Step("function", result.group()), result.end() + 2
    return Step("members", (result.group(),)), result.end()


def _read_bracket(text: str, position: int) -> tuple[Step, int]:
    """Parse the inside of a bracket."""
    if result := _BRACKET_NAMES.match(text, position):
        names = tuple(_unescaped(a or b) for a, b in _ONE_NAME.findall(result.group()))
        return Step("members", names, len(names) == 1), result.end()
    if result := _INDEXES.match(text, position):
        indexes = tuple(int(i) for i in result.group()[:-1].split(","))
        return Step("elements", indexes, len(indexes) == 1), result.end()
    if result := _SLICE.match(text, position):
        start, stop = (int(g) if g else None for g in result.groups())
        return Step("slice", (start, stop), False), result.end()
    if re.match(r"\s*\*\s*\]", text[position:]):
        return Step("all", None, False), text.index("]", position) + 1
    if text.startswith("?", position):
        return _read_filter(text, position + 1)
    raise PathError("Could not parse token starting at position " + str(position))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


# --- filters: [?(@.a == 1 && @.b)]

_TOKEN = re.compile(
    r"\s*(?:(?P<op>==|!=|<=|>=|<|>|=~|&&|\|\||!|\(|\))|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
    r"|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<word>true|false|null|in\b|nin\b)"
    r"|(?P<regex>/(?:[^/\\]|\\.)*/[a-z]*)|(?P<path>[@$](?:\.\.?[\w*]+|\[[^\]]*\])*))"
)


def _read_filter(text: str, position: int) -> tuple[Step, int]:
    tokens: list[tuple[str, str]] = []
    depth = 0
    while True:
        if depth == 0 and tokens and re.match(r"\s*\]", text[position:]):
            position = text.index("]", position) + 1
            break
        result = _TOKEN.match(text, position)
        if result is None or result.lastgroup is None:
            raise PathError(f"Failed to parse filter at position {position}")
        token = result.group(result.lastgroup)
        depth += {"(": 1, ")": -1}.get(token, 0) if result.lastgroup == "op" else 0
        tokens.append((result.lastgroup, token))
        position = result.end()
    return Step("filter", _Filter(tokens).test(), False), position


class _Filter:
    """Parses the tokens of a filter."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._position = 0

    def test(self) -> _Test:
        result = self._or()
        if self._position != len(self._tokens):
            raise PathError("Failed to parse filter")
        return result

    def _take(self, *operators: str) -> str | None:
        if self._position < len(self._tokens) and self._tokens[self._position][1] in operators:
            self._position += 1
            return self._tokens[self._position - 1][1]
        return None

    def _or(self) -> _Test:
        tests = [self._and()]
        while self._take("||"):
            tests.append(self._and())
        return lambda v: any(test(v) for test in tests)

    def _and(self) -> _Test:
        tests = [self._one()]
        while self._take("&&"):
            tests.append(self._one())
        return lambda v: all(test(v) for test in tests)

    def _one(self) -> _Test:
        if self._take("!"):
            inner = self._one()
            return lambda v: not inner(v)
        if self._take("("):
            result = self._or()
            if not self._take(")"):
                raise PathError("Failed to parse filter")
            return result
        left, is_path = self._operand()
        operator = self._take("==", "!=", "<", "<=", ">", ">=", "=~")
        if operator is None:
            if not is_path:
                raise PathError("Failed to parse filter")
            return lambda v: left(v) is not _MISSING
        right, _ = self._operand()
        compare = _COMPARISONS[operator]
        return lambda v: compare(left(v), right(v))

    def _operand(self) -> tuple[Callable[[Json], Json], bool]:
        if self._position >= len(self._tokens):
            raise PathError("Failed to parse filter")
        kind, text = self._tokens[self._position]
        self._position += 1
        if kind == "path":
            path = path_of(text)
            return lambda v: _found_or_missing(path, v), True
        if kind == "op":
            raise PathError("Failed to parse filter")
        value = _constant(kind, text)
        return lambda v: value, False


_MISSING = object()


def _found_or_missing(path: Path, value: Json) -> Json:
    try:
        return path.find(value)
    except PathError:
        return _MISSING


def _constant(kind: str, text: str) -> Json:
    if kind == "string":
        return _unescaped(text[1:-1])
    if kind == "number":
        return json.loads(text)
    if kind == "regex":
        body, _, flags = text[1:].rpartition("/")
        return re.compile(body, re.IGNORECASE if "i" in flags else 0)
    return {"true": True, "false": False, "null": None}[text]


def _ordered(test: Callable[[Json, Json], bool]) -> Callable[[Json, Json], bool]:
    def compare(left: Json, right: Json) -> bool:
        try:
            return bool(test(left, right))
        except TypeError:
            return False

    return compare


_COMPARISONS: dict[str, Callable[[Json, Json], bool]] = {
    "==": lambda a, b: a is not _MISSING and a == b and isinstance(a, bool) == isinstance(b, bool),
    "!=": lambda a, b: a is _MISSING or a != b,
    "<": _ordered(lambda a, b: a < b),
    "<=": _ordered(lambda a, b: a <= b),
    ">": _ordered(lambda a, b: a > b),
    ">=": _ordered(lambda a, b: a >= b),
    "=~": lambda a, b: isinstance(a, str) and b.fullmatch(a) is not None,
}

"""Inlined functions return the same results as their calls."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.operators.codegen import inline as inlining
from millstream.operators.codegen.inline import OPERATIONS, inline, is_path

LIMIT = 10


def evaluate(function: Callable[..., Any], *arguments: Any) -> Any:
    """Evaluate a function's inlined expression; fail if it cannot be inlined."""
    bound: dict[str, Any] = {}

    def bind(value: Any, hint: str) -> str:
        name = f"{hint}_{len(bound)}"
        bound[name] = value
        return name

    names = [f"x{i}" for i in range(len(arguments))]
    expression = inline(function, names, bind)
    assert expression is not None
    return eval(expression.text, {**bound, **dict(zip(names, arguments, strict=True))})


def is_inlined(function: Callable[..., Any], arguments: int = 1) -> bool:
    return inline(function, [f"x{i}" for i in range(arguments)], lambda value, hint: hint) is not None


class Adder:
    def __init__(self) -> None:
        self.step = 5

    def map(self, value: int) -> int:
        return value + self.step


def modulo(keys: int) -> Callable[[int], Any]:
    return lambda x: (x * 7919 % keys, 1)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda x: x, [3]),
        (lambda t: t[0], [("a", 1)]),
        (lambda t: t[-1], [("a", 1)]),
        (lambda o: o.a["k"].b, [SimpleNamespace(a={"k": SimpleNamespace(b=7)})]),
        (lambda a, b: (a[0], a[1] + b[1]), [("k", 1), ("k", 2)]),
        (lambda x: x * 3 + 1, [4]),
        (lambda x: (x - 2) ** 2 // 3 % 5 / 2, [9]),
        (lambda x: x << 2 | 1 ^ x & 3 >> 1, [5]),
        (lambda x: -x + ~x, [5]),
        (lambda x: not x, [0]),
        (lambda x: x % 2 == 0, [4]),
        (lambda x: x is None, [None]),
        (lambda x: x is not None, [None]),
        (lambda x: x in (1, 2), [2]),
        (lambda x: x not in (1, 2), [2]),
        (lambda x: 2.5 * x, [2]),
        (lambda x: (x <= 4, x < 4, x >= 4, x != 4), [4]),
        (lambda x: (), [2]),
        (lambda x: [], [2]),
        (lambda x: [x, (x, "a'b\"\n", b"c", None, True)], [2]),
        (lambda x: x > LIMIT, [11]),
        (lambda x: None, [1]),
        (modulo(1000), [12345]),
        (Adder().map, [4]),
    ],
)
def test_inlined_function_equals_the_call(function: Callable[..., Any], arguments: list[Any]) -> None:
    actual, expected = evaluate(function, *arguments), function(*arguments)
    assert actual == expected
    assert type(actual) is type(expected)


def branch(x: int) -> int:
    if x:
        return 1
    return 2


def handles(x: Any) -> Any:
    try:
        return x[0]
    except IndexError:
        return None


def cleans_up(x: Any) -> Any:
    try:
        return x[0]
    finally:
        print(x)


def adds_in_place(x: int) -> int:
    x += 1
    return x


def names_a_part(x: Any) -> Any:
    part = x[0]
    return (part, part)


async def waits(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.lower(),
        lambda x: len(x),
        lambda x: 1 if x else 2,
        lambda x: x and 3,
        lambda x: 1 < x < 3,
        lambda x: f"{x}",
        lambda x: (yield x),
        lambda x: [y for y in x],  # noqa: C416
        lambda x, y=1: x,
        lambda *x: x,
        lambda x, *y: y,
        lambda x, **y: y,
        lambda x: {"a": x},
        lambda x: {x},
        lambda x: +x,
        lambda x: x[1:2],
        lambda x: (y := x, y),
        lambda x: lambda: x,
        lambda x: (*x, 1),
        lambda x, /, *, y=1: x,
        branch,
        handles,
        cleans_up,
        adds_in_place,
        names_a_part,
        waits,
        len,
        str,
    ],
)
def test_inlining_skips_functions_with_more_than_an_expression(function: Callable[..., Any]) -> None:
    assert not is_inlined(function)


def test_inlining_opcodes_exist_in_this_python() -> None:
    assert OPERATIONS[sys.version_info[:2]] <= set(dis.opmap)


def test_inlining_is_off_for_an_unlisted_python(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_inlined(lambda x: x)
    monkeypatch.setattr(inlining, "_LISTED", frozenset())
    assert not is_inlined(lambda x: x)
    assert not is_path(lambda x: x)


def test_inlined_function_reads_mutable_closure_variables_each_time() -> None:
    seen = 0

    def count() -> None:
        nonlocal seen
        seen += 1

    read = lambda x: x + seen  # noqa: E731
    bound: dict[str, Any] = {}

    def bind(value: Any, hint: str) -> str:
        bound[hint] = value
        return hint

    expression = inline(read, ["x"], bind)
    assert expression is not None
    text = expression.text
    before = eval(text, {**bound, "x": 1})
    count()
    assert (before, eval(text, {**bound, "x": 1})) == (1, 2)


def test_inlined_function_reads_globals_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    over = lambda x: x > LIMIT  # noqa: E731
    assert evaluate(over, 11)
    monkeypatch.setitem(globals(), "LIMIT", 100)
    assert not evaluate(over, 11)


def test_inlining_skips_long_expressions() -> None:
    assert not is_inlined(eval("lambda x: x" + " + x" * 200))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda t: t[0], True),
        (lambda t: t["a"].b[1], True),
        (lambda t: (t[0], t[1]), False),
        (lambda t: t + 1, False),
        (lambda t: t[LIMIT], False),
        (lambda t: t.lower(), False),
        (lambda t: t.a(), False),
        (modulo(3), False),
        (handles, False),
    ],
)
def test_is_path_accepts_only_field_access(function: Callable[..., Any], expected: bool) -> None:
    assert is_path(function) is expected

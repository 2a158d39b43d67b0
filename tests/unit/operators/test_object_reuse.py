from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import cloudpickle
import pytest

from millstream.common import Row
from millstream.common.immutability import detach
from millstream.operators.codegen.object_reuse import keeps_nothing

CACHE: list[Any] = []


def yields_parts(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word, 1


def keeps(x: Any) -> Any:
    CACHE.append(x)
    return x


def changes(a: Any, b: Any) -> Any:
    a[1] += b[1]
    return a


def adds_in_place(a: Any, b: Any) -> Any:
    a += b
    return a


def yields_a_buffer(x: Any) -> Iterator[Any]:
    buffer: list[Any] = []
    buffer.append(x)
    yield buffer
    buffer.append(x)
    yield buffer


def closes_over() -> Any:
    seen: list[Any] = []
    return lambda x: [seen, x]


def keeps_the_last() -> Any:
    last = None

    def note(x: Any) -> Any:
        nonlocal last
        last, before = x, last
        return before

    return note


def deletes(x: Any) -> Any:
    del x.index
    return x


def has_a_variable_of_its_own(x: Any) -> Any:
    size = len(x)
    return [y + size for y in x]


def splits_fields(line: str) -> Any:
    key, *rest = line.split()
    match rest:
        case [only]:
            return f"{key:>10}", {only: 1}, rest[1:], not rest, -len(rest) if rest else [*rest]
    return None


@pytest.mark.parametrize(
    "function",
    [
        has_a_variable_of_its_own,
        splits_fields,
        lambda x: x,
        lambda x: (x % 10, 1),
        lambda a, b: (a[0], a[1] + b[1]),
        lambda line: [(w, 1) for w in line.split()],
        lambda line: line.lower().split(","),
        lambda d: {k: len(v) for k, v in d.items()},
        yields_parts,
    ],
)
def test_object_reuse_recognises_harmless_functions(function: Any) -> None:
    assert keeps_nothing(function)


@pytest.mark.parametrize(
    "function",
    [
        keeps,
        keeps_the_last(),
        changes,
        deletes,
        adds_in_place,
        yields_a_buffer,
        closes_over(),
        CACHE.append,
        lambda x, seen=[]: seen,
        Row.as_dict,
    ],
)
def test_object_reuse_distrusts_functions_that_may_retain_values(function: Any) -> None:
    assert not keeps_nothing(function)


class Holder:
    def __init__(self) -> None:
        self.inner = [1]


def test_detach_copies_mutable_values() -> None:
    holder = Holder()
    value = (1, [2, {"a": [3]}], Row(f=[4]), holder)
    copy = detach(value)
    value[1][1]["a"].append(9)  # type: ignore[index]
    value[2].f.append(9)
    holder.inner.append(9)
    assert copy[:2] == (1, [2, {"a": [3]}])
    assert copy[2] == Row(f=[4])
    assert copy[3].inner == [1]


class Pair(NamedTuple):
    left: Any
    right: Any


class Marked(Pair):
    """A named tuple that can have additional attributes."""


def test_detach_copies_named_tuples_only_with_mutable_members() -> None:
    fixed, changeable, marked = Pair("a", 1), Pair("a", [1]), Marked("a", 1)
    assert detach(fixed) is fixed
    copy = detach(changeable)
    assert copy == changeable and type(copy) is Pair and copy.right is not changeable.right
    marked.note = []  # type: ignore[attr-defined]
    assert detach(marked).note is not marked.note  # type: ignore[attr-defined]


def test_detach_copies_instances_of_main_module_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    # With their code each would take 2 ms: cloudpickle pickles classes of __main__ by value.
    script = type("Order", (), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Order", script, raising=False)
    order: Any = script()
    order.prices = [1]
    monkeypatch.setattr(cloudpickle, "dumps", lambda *_: pytest.fail("its code was pickled"))
    copy = detach(order)
    assert type(copy) is script and copy.prices == [1] and copy.prices is not order.prices  # type: ignore[attr-defined]

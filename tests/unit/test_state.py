from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.state import changelog, kinds
from millstream.state.descriptors import ValueStateDescriptor
from millstream.state.keyed import KeyedState
from millstream.testing import local


class MemoryStorage(local.MemoryStorage):
    def write(self, name: str, parts: Iterable[bytes]) -> int:
        assert name not in self.files, "files are immutable"
        return super().write(name, parts)


class Replica:
    """One process's view of a subtask's state."""

    def __init__(self, storage: MemoryStorage) -> None:
        self.state = KeyedState("op", 0, storage, lambda: 0)
        self.value = self.state.handle(ValueStateDescriptor("v"))

    def epoch(self, version: str | None, number: int, attempt: str, ops: list[tuple[int, int | None]]) -> str | None:
        self.state.prepare(version)
        self.state.begin()
        for key, value in ops:
            self.state.cell.key = key
            self.value.update(value)
        return self.state.write_delta(number, attempt)

    def content(self, version: str | None) -> dict[Any, Any]:
        self.state.prepare(version)
        return dict(self.state.table("v", kinds.VALUE).base)


epochs = st.lists(
    st.tuples(
        st.integers(0, 2),  # which replica runs it
        st.booleans(),  # whether it is acknowledged, or runs again
        st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 99))), max_size=6),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None)
@given(epochs)
def test_any_process_may_run_any_epoch_and_any_number_of_times(plan: list[Any]) -> None:
    storage = MemoryStorage()
    replicas = [Replica(storage) for _ in range(3)]
    expected: dict[int, int] = {}
    version: str | None = None
    for number, (who, acknowledged, ops) in enumerate(plan):
        written = replicas[who].epoch(version, number, f"attempt{number}", ops)
        if acknowledged:
            version = written
            for key, value in ops:
                if value is None:
                    expected.pop(key, None)
                else:
                    expected[key] = value
    for replica in (*replicas, Replica(storage)):
        assert replica.content(version) == expected


def test_long_chains_are_folded_into_a_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "MAX_CHAIN", 5)
    storage = MemoryStorage()
    replica = Replica(storage)
    version = None
    for number in range(20):
        version = replica.epoch(version, number, "a", [(number, number), (number - 1, None)])
    assert sum(name.endswith(".base") for name in storage.files) == 3
    assert Replica(storage).content(version) == {19: 19}


def test_an_epoch_without_changes_writes_nothing() -> None:
    storage = MemoryStorage()
    replica = Replica(storage)
    version = replica.epoch(None, 1, "a", [(1, 1)])
    assert replica.epoch(version, 2, "a", []) == version
    assert len(storage.files) == 1


def test_a_damaged_file_is_named() -> None:
    storage = MemoryStorage()
    version = Replica(storage).epoch(None, 1, "a", [(1, 1)])
    assert version is not None
    whole = storage.files[version]
    for damaged in (whole[:-1], whole[:-1] + b"\xff", whole[:8], b"nonsense" + whole):
        storage.files[version] = damaged
        with pytest.raises(MillstreamError, match=version):
            Replica(storage).content(version)


def test_a_name_has_one_kind() -> None:
    state = KeyedState("op", 0, MemoryStorage(), lambda: 0)
    state.handle(ValueStateDescriptor("x"))
    with pytest.raises(InvalidProgramError, match="'x' was registered as value"):
        state.table("x", kinds.LIST)

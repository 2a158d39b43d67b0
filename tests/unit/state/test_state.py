from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common.checksums import crc32
from millstream.common.errors import InvalidProgramError, MillstreamError, StateLostError
from millstream.common.time import Time
from millstream.state import changelog, keyed, kinds
from millstream.state.backend import Backend
from millstream.state.descriptors import ValueStateDescriptor
from millstream.state.keyed import KeyedState
from millstream.state.ttl_config import StateTtlConfig
from millstream.testing import local_job


class MemoryStorage(local_job.MemoryStorage):
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
        return dict(self.state.table("v", kinds.VALUE).base)  # type: ignore[arg-type]


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
def test_keyed_state_epochs_run_in_any_process_any_number_of_times(plan: list[Any]) -> None:
    storage = MemoryStorage()
    replicas = [Replica(storage) for _ in range(3)]
    expected: dict[int, int] = {}
    version: str | None = None
    for number, (process, acknowledged, ops) in enumerate(plan):
        written = replicas[process].epoch(version, number, f"attempt{number}", ops)
        if acknowledged:
            version = written
            for key, value in ops:
                if value is None:
                    expected.pop(key, None)
                else:
                    expected[key] = value
    for replica in (*replicas, Replica(storage)):
        assert replica.content(version) == expected


def test_changelog_compacts_long_chains_into_a_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changelog, "MAX_CHAIN", 5)
    storage = MemoryStorage()
    replica = Replica(storage)
    version = None
    for number in range(20):
        version = replica.epoch(version, number, "a", [(number, number), (number - 1, None)])
    assert sum(name.endswith(".base") for name in storage.files) == 3
    assert Replica(storage).content(version) == {19: 19}


def test_changelog_writes_nothing_for_an_epoch_without_changes() -> None:
    storage = MemoryStorage()
    replica = Replica(storage)
    version = replica.epoch(None, 1, "a", [(1, 1)])
    assert replica.epoch(version, 2, "a", []) == version
    assert len(storage.files) == 1


def test_changelog_names_a_damaged_file() -> None:
    storage = MemoryStorage()
    version = Replica(storage).epoch(None, 1, "a", [(1, 1)])
    assert version is not None
    whole = storage.files[version]
    for damaged in (whole[:-1], whole[:-1] + b"\xff", whole[:8], b"nonsense" + whole):
        storage.files[version] = damaged
        with pytest.raises(MillstreamError, match=version):
            Replica(storage).content(version)


def test_keyed_state_rejects_a_second_kind_for_a_name() -> None:
    state = KeyedState("op", 0, MemoryStorage(), lambda: 0)
    state.handle(ValueStateDescriptor("x"))
    with pytest.raises(InvalidProgramError, match="'x' is registered as value"):
        state.table("x", kinds.LIST)


# --- changes that need no file yet


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.booleans(),
            st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 99))), max_size=6),
        ),
        max_size=25,
    )
)
def test_changelog_files_restore_the_state_at_their_epoch(plan: list[Any]) -> None:
    """A restore from the last file returns the state at its write, for any sequence of writes."""
    storage = MemoryStorage()
    replica = Replica(storage)
    expected: dict[int, int] = {}
    version, held, saved = None, None, {}
    for number, (writes, whole, ops) in enumerate(plan, 1):
        replica.state.prepare(version, held)
        replica.state.begin()
        for key, value in ops:
            replica.state.cell.key = key
            replica.value.update(value)
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
        assert dict(replica.state.rows("v")) == expected
        if writes:
            version, held = replica.state.write_delta(number, "a", whole), None
            saved = dict(expected)
        else:
            assert replica.state.hold(number) == version
            held = number
    assert Replica(storage).content(version) == saved


def test_keyed_state_prepare_raises_without_the_held_epoch() -> None:
    storage = MemoryStorage()
    replica = Replica(storage)
    version = replica.epoch(None, 1, "a", [(1, 1)])
    replica.state.prepare(version)
    replica.state.begin()
    assert replica.state.hold(2) == version
    for other in (Replica(storage), replica):
        with pytest.raises(StateLostError, match="operator op after epoch 3"):
            other.state.prepare(version, 3)
    replica.state.prepare(version, 2)


def test_keyed_state_drops_held_changes_when_preparing_an_earlier_epoch() -> None:
    storage = MemoryStorage()
    replica = Replica(storage)
    version = replica.epoch(None, 1, "a", [(1, 1)])
    replica.state.prepare(version)
    replica.state.begin()
    replica.state.cell.key = 1
    replica.value.update(2)
    replica.state.hold(2)
    assert replica.content(version) == {1: 1}


def test_lmdb_state_bounds_held_rows_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "HELD_ROWS", 100)
    storage = MemoryStorage()
    state = KeyedState("op", 0, storage, lambda: 0, Backend.LMDB)
    value = state.handle(ValueStateDescriptor("v"))
    version, held, max_held = None, None, 0
    for epoch in range(1, 200):
        state.prepare(version, held)
        state.begin()
        for i in range(10):
            state.cell.key = epoch * 10 + i
            value.update(epoch)
        max_held = max(max_held, len(state.table("v", kinds.VALUE).overlay))
        state.add_input(1)
        keeps = epoch == 20 or not state.can_hold
        version, held = (state.write_delta(epoch, "a"), None) if keeps else (state.hold(epoch), epoch)  # type: ignore[assignment]
    # Before the first file the base takes all rows; after it, a file is due from time to time.
    assert max_held == 100
    assert len(storage.files) == 1 + 17
    assert len(state.table("v", kinds.VALUE)) == 1990
    monkeypatch.setattr(keyed, "HELD_BYTES", 1)
    assert not state.can_hold


def test_memory_state_overlay_is_bounded_by_its_keys() -> None:
    storage = MemoryStorage()
    replica = Replica(storage)
    version = replica.epoch(None, 1, "a", [(key, 0) for key in range(50)])
    held = None
    for epoch in range(2, 500):
        replica.state.prepare(version, held)
        replica.state.begin()
        for key, value in ((epoch % 60, epoch), ((epoch + 30) % 60, None)):
            replica.state.cell.key = key
            replica.value.update(value)
        replica.state.add_input(1 << 30)
        assert replica.state.can_hold
        version, held = replica.state.hold(epoch), epoch  # type: ignore[assignment]
        table = replica.state.table("v", kinds.VALUE)
        assert len(table.overlay) + len(table.base) <= 60 + 50
    assert len(storage.files) == 1


@pytest.mark.parametrize("backend", Backend)
def test_state_ttl_expires_rows_while_no_file_is_written(backend: Backend) -> None:
    now = [0]
    state = KeyedState("op", 0, MemoryStorage(), lambda: now[0], backend)
    descriptor = ValueStateDescriptor("v")
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(10)).build())
    value = state.handle(descriptor)
    for epoch in range(1, 500):
        now[0] += 1
        state.prepare(None, epoch - 1 or None)
        state.begin()
        state.cell.key = epoch
        value.update(epoch)
        assert state.hold(epoch) is None
        assert len(state.table("v", kinds.VALUE)) < 40


class NamedScratch(MemoryStorage):
    """A storage with a known directory on this host."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def scratch(self, name: str) -> str:
        return str(self._path)


def _expiring(storage: MemoryStorage, ttl: int, clock: Callable[[], int]) -> tuple[KeyedState, Any]:
    state = KeyedState("op", 0, storage, clock, Backend.LMDB)
    descriptor = ValueStateDescriptor("v")
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(ttl)).build())
    return state, state.handle(descriptor)


@pytest.mark.parametrize("writes", [True, False])
def test_lmdb_file_stops_growing_when_keys_expire_as_fast_as_they_arrive(tmp_path: Path, writes: bool) -> None:
    now, rows, ttl, epochs = [0], 100, 10, 160
    state, value = _expiring(NamedScratch(tmp_path), ttl, lambda: now[0])
    version, held, sizes = None, None, []
    for epoch in range(1, epochs + 1):
        now[0] += 1
        state.prepare(version, held)
        state.begin()
        for key in range(epoch * rows, (epoch + 1) * rows):
            state.cell.key = key
            value.update(key)
        if writes:
            version = state.write_delta(epoch, "a")
        else:
            version, held = state.hold(epoch), epoch  # type: ignore[assignment]
        sizes.append((tmp_path / "data.mdb").stat().st_size)
    assert len(state.table("v", kinds.VALUE)) < 2 * ttl * rows
    assert max(sizes) <= 1.2 * max(sizes[: epochs // 2])


def test_lmdb_state_with_ttl_is_written_without_loading_it_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelog, "SECTION_ROWS", 100)
    rows, size, written = 10_000, 500, []
    storage = NamedScratch(tmp_path)
    monkeypatch.setattr(storage, "write", lambda name, parts: written.append(sum(map(len, parts))) or written[-1])  # type: ignore[func-returns-value]
    state, value = _expiring(storage, 1000, lambda: 0)
    state.prepare(None)
    state.begin()
    for key in range(rows):
        state.cell.key = key
        value.update(chr(97 + key % 26) * size)
    state.hold(1)
    tracemalloc.start()
    try:
        state.write_delta(2, "a", whole=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert written[0] > rows * size
    assert peak < rows * size // 5


def test_crc32_equals_zlib() -> None:
    data = bytes(range(256)) * 40
    assert crc32(data) == zlib.crc32(data)
    assert crc32(memoryview(data)[100:], crc32(data[:100])) == zlib.crc32(data)

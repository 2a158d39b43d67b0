"""Incremental snapshots of a simulated database: the replica equals the original for any schedule."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from millstream.connectors.cdc.incremental_snapshot import Chunk, IncrementalSnapshot, ReadChunk
from millstream.connectors.cdc.postgres.splits import Visibility

# Key and value before and after; None for no row.
Change = tuple[str, int, Any, Any]


@dataclass
class Store:
    """A database with transactions: they are numbered at their start, and logged in commit order.

    Changes in the log become visible later, as in PostgreSQL.
    """

    tables: dict[str, dict[int, int]] = field(default_factory=lambda: {"a": {}, "b": {}})
    log: list[tuple[int, list[Change]]] = field(default_factory=list)
    next_xid: int = 3
    open: dict[int, list[tuple[str, int, int | None]]] = field(default_factory=dict)
    hidden: list[int] = field(default_factory=list)

    def begin(self) -> int:
        self.next_xid += 1
        self.open[self.next_xid - 1] = []
        return self.next_xid - 1

    def commit(self, xid: int) -> None:
        """Log the commit; it becomes visible later."""
        changes = []
        for table, key, value in self.open.pop(xid):
            rows = self.tables[table]
            changes.append((table, key, rows.get(key), value))
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        self.log.append((xid, changes))
        self.hidden.append(xid)

    def seen(self) -> Visibility:
        running = {*self.open, *self.hidden}
        xmax = max([x for x in range(3, self.next_xid) if x not in running], default=2) + 1
        inside = frozenset(x for x in running if x < xmax)
        return Visibility(min(inside, default=xmax), xmax, inside)

    def rows(self, table: str, seen: Visibility) -> dict[int, int]:
        """A snapshot's view of a table: the visible part of the log."""
        rows: dict[int, int] = {}
        for xid, changes in self.log:
            for name, key, _, value in changes if seen.sees(xid) else ():
                if name == table:
                    rows.pop(key, None)
                    if value is not None:
                        rows[key] = value
        return rows


class Reader:
    """Reads the simulated database as the connector does, with arbitrary interleaving."""

    def __init__(self, store: Store, rng: random.Random, state: Any = None) -> None:
        self.store, self.rng = store, rng
        position, snapshot, replica = state or (0, None, {"a": {}, "b": {}})
        self.position = position
        self.replica: dict[str, dict[int, int]] = copy.deepcopy(replica)  # type: ignore[arg-type]
        self.machine = IncrementalSnapshot(snapshot)
        self.reading: list[tuple[Chunk, Visibility, int]] = []
        if state is None:
            for table in self.replica:
                self.machine.add(table, store.next_xid)

    def state(self) -> Any:
        return copy.deepcopy((self.position, self.machine.state, self.replica))

    def plan(self) -> None:
        requests = self.machine.to_plan(3)
        if requests is not None:
            table, low, round = requests
            above = sorted(k for k in self.store.tables[table] if low is None or k > low[0])
            size = self.rng.randint(1, 4)
            high = (above[size - 1],) if len(above) >= size else None
            self.machine.planned(table, low, high, round)

    def begin(self) -> None:
        if len(self.reading) < 3:
            chunk = self.machine.next_chunk(4)
            while chunk is not None:
                seen = self.store.seen()
                if self.machine.begin(chunk, seen):
                    self.reading.append((chunk, seen, len(self.store.log)))
                    return
                # Conflicting transactions end by themselves.
                self.store.hidden.clear()
                for xid in list(self.store.open):
                    self.store.commit(xid)
                self.store.hidden.clear()

    def read(self) -> None:
        if self.reading:
            chunk, seen, until = self.reading.pop(self.rng.randrange(len(self.reading)))
            low, high = chunk.low, chunk.high
            rows = {
                k: v
                for k, v in sorted(self.store.rows(chunk.table, seen).items())
                if (low is None or k > low[0]) and (high is None or k <= high[0])
            }
            if len(rows) > 2 and self.rng.random() < 0.3:
                rows = dict(list(rows.items())[: len(rows) // 2])
                high = (max(rows),)
            self.machine.finish_chunk(ReadChunk(chunk, high, seen, until, rows))

    def deal_chunks(self) -> None:
        for done in self.machine.take(2):
            for key, value in done.rows.items():
                assert key not in self.replica[done.chunk.table], "a row comes twice"
                self.replica[done.chunk.table][key] = value

    def deal_log(self) -> None:
        if self.position < len(self.store.log):
            xid, changes = self.store.log[self.position]
            if not self.machine.may_assign(xid):
                return
            self.machine.record_assigned(xid)
            for change in changes:
                self.apply(xid, *change)
            self.position += 1
            self.machine.passed(self.position)

    def apply(self, xid: int, table: str, key: int, before: int | None, after: int | None) -> None:
        if table in self.machine.tables:
            above = sum((key,) > bound for bound in self.machine.bounds(table))
            passes = self.machine.passes(table, above, xid)
            assert passes or not self.machine.all_pass(table, xid)
            if not passes:
                return
        rows = self.replica[table]
        assert rows.get(key) == before, "a change to a row that is not as it was"
        rows.pop(key, None)
        if after is not None:
            rows[key] = after


def work(store: Store, rng: random.Random) -> None:
    """Run transactions on the database; concurrent ones change disjoint rows."""
    choice = rng.random()
    if choice < 0.3:
        store.begin()
    elif choice < 0.6 and store.open:
        xid = rng.choice(list(store.open))
        locked = {(t, k) for x, changes in store.open.items() if x != xid for t, k, _ in changes}
        table, key = rng.choice("ab"), rng.randrange(30)
        if (table, key) not in locked:
            store.open[xid].append((table, key, None if rng.random() < 0.3 else rng.randrange(1000)))
    elif choice < 0.9 and store.open:
        store.commit(rng.choice(list(store.open)))
    elif store.hidden:
        store.hidden.pop(0)


def run(seed: int) -> None:
    rng = random.Random(seed)
    store = Store()
    for _ in range(rng.randrange(120)):
        work(store, rng)
    reader = Reader(store, rng)
    reader.position = len(store.log)
    saved = reader.state()
    for _ in range(400):
        work(store, rng)
        rng.choice([reader.plan, reader.begin, reader.read, reader.deal_chunks, reader.deal_log])()
        if rng.random() < 0.03:
            saved = reader.state()
        if rng.random() < 0.01:
            reader = Reader(store, rng, saved)
    for xid in list(store.open):
        store.commit(xid)
    store.hidden.clear()
    for _ in range(2000):
        for act in (reader.plan, reader.begin, reader.read, reader.deal_chunks, reader.deal_log):
            act()
        if reader.machine.is_complete and reader.position == len(store.log):
            break
    assert reader.machine.is_complete
    assert reader.replica == store.tables


@pytest.mark.parametrize("block", range(4))
def test_cdc_snapshot_replica_equals_original_for_random_schedules(block: int) -> None:
    for seed in range(block * 150, block * 150 + 150):
        try:
            run(seed)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {e}") from e


def test_cdc_snapshot_restarts_truncated_table() -> None:
    machine = IncrementalSnapshot()
    machine.add("t", None)
    machine.planned("t", None, (5,), 0)
    chunk = machine.next_chunk(1)
    assert chunk is not None and machine.begin(chunk, Visibility(10, 10))
    machine.restart("t")
    machine.finish_chunk(ReadChunk(chunk, (5,), Visibility(10, 10), 1, []))
    assert machine.take(10) == []
    assert machine.to_plan(1) == ("t", None, 1)


def test_cdc_visibility_handles_transaction_id_wraparound() -> None:
    seen = Visibility.parse(f"{(1 << 32) + 5}:{(1 << 32) + 8}:{(1 << 32) + 6}")
    assert [seen.sees(x) for x in (4, 5, 6, 7, 8)] == [True, True, False, True, False]
    assert seen.sees((1 << 32) - 1)
    assert seen.is_past((1 << 32) + 5) and not seen.is_past((1 << 32) + 6)

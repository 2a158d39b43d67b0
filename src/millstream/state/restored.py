"""State that is restored from another run: its files, and the part of them that belongs to a subtask.

Keyed state is split by key group, so the parallelism may change. For operator state, a list is redistributed, every
subtask gets the whole of a union list, and broadcast state is the same in all subtasks, so that any copy is correct.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator

from millstream.common.aliases import Key, Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.state.changelog import ChangelogFile, Loads, Section, StoredState, replay
from millstream.state.key_groups import key_group
from millstream.state.table import BY_GROUP, BY_KEY, BY_NAME, BY_NAMESPACE, BY_PANE, BY_TIME, StateTable, key_of

SPLIT_LIST, UNION_LIST = "split.", "union."

Read = Callable[[str], "bytes | memoryview"]


@fast_dataclass
class Restored:
    """The state that a subtask is restored from.

    Attributes:
        files: the state of every former subtask; None for those without state.
        groups: the subtask's key groups, out of `max_parallelism`.
        subtask: the index of the subtask, out of `parallelism`.
    """

    files: tuple[StoredState | None, ...]
    groups: range
    max_parallelism: int
    subtask: int
    parallelism: int
    # The tables whose rows have TTL timestamps; None if unknown.
    expiring: frozenset[str] | None = None

    def sections(self, read: Read) -> Iterator[Section]:
        """Yield the subtask's part of every section, to be applied in this order."""
        named: list[dict[str, StateTable]] = [{} for _ in self.files]
        for tables, file in zip(named, self.files, strict=True):
            panes: dict[str, StateTable] = {}
            for section in stored_sections(file, read) if file is not None else ():
                if section.address == BY_NAME:
                    apply(tables, section)
                elif section.address == BY_PANE:
                    # A pane has keys of all subtasks: one may have removed it while others still have their keys.
                    apply(panes, section)
                else:
                    yield self._owned_part(section)
            for table in panes.values():
                yield self._owned_part(Section(table.name, table.kind, table.address, dict(table.rows())))
        for name in dict.fromkeys(name for tables in named for name in tables):
            parts = [tables.get(name) for tables in named]
            kind = next(p.kind for p in parts if p is not None)
            yield Section(name, kind, BY_NAME, self._operator_state(name, parts))

    def _owned_part(self, section: Section) -> Section:
        own_part = dict(owned(section.address, section.rows.items(), self.groups, self.max_parallelism))
        return Section(section.table, section.kind, section.address, own_part)

    def _operator_state(self, name: str, parts: list[StateTable | None]) -> dict[Key, Value]:
        union = name.startswith(UNION_LIST)
        if not union and not (name.startswith(SPLIT_LIST) and len(parts) != self.parallelism):
            own_part = parts[self.subtask % len(parts)]
            return dict(own_part.rows()) if own_part is not None else {}
        lists: dict[Key, list[Value]] = {}
        for part in parts:
            for row, content in part.rows() if part is not None else ():
                lists.setdefault(row, []).extend(content)
        if not union:
            lists = {row: elements[self.subtask :: self.parallelism] for row, elements in lists.items()}
        return {row: elements for row, elements in lists.items() if elements}


def apply(tables: dict[str, StateTable], section: Section) -> None:
    """Apply a section to the tables of the sections before it."""
    table = tables.get(section.table)
    if table is None:
        table = tables[section.table] = StateTable(section.table, section.kind, section.address, {})
    table.apply(section.rows)


def stored_sections(
    stored: StoredState,
    read: Read,
    only_check: bool = False,
    loads: Loads = pickle.loads,
    only: str | None = None,
) -> Iterator[Section]:
    """Yield the sections of a chain, or of a part of a savepoint, oldest first.

    Args:
        stored: its location.
        read: reads a file.
        only_check: whether to verify checksums only, and leave out the rows.
        loads: reads pickles.
        only: the table to read; None for all.
    """
    if stored.is_part:
        # A deferred import: it loads PyArrow.
        from millstream.state.savepoint_part import decode_part, read_part

        data = read(stored.file)
        if only_check:
            read_part(stored.file, data, stored.checksum)
        else:
            yield from decode_part(stored.file, data, stored.checksum, loads, only)
        return
    for f in chain_files(stored, read):
        yield from f.sections(only_check, loads, only)


def chain_files(stored: StoredState, read: Read) -> Iterator[ChangelogFile]:
    """Yield the files of a chain, oldest first."""
    directory, slash, name = stored.file.rpartition("/")
    _, files = replay(name, lambda n: read(f"{directory}{slash}{n}"), stored.checksum)
    yield from files


def owned(
    address: str, rows: Iterable[tuple[Key, Value]], groups: range, max_parallelism: int
) -> Iterator[tuple[Key, Value]]:
    """Yield the rows whose key is in one of the groups; of a pane, only its keys in these groups."""
    if address == BY_PANE:
        for row, content in rows:
            yield row, {k: v for k, v in content.items() if key_group(k, max_parallelism) in groups}
        return
    if address == BY_GROUP:
        for row, content in rows:
            own_part = tuple(change.part(groups, max_parallelism) for change in content)
            if any(len(change) for change in own_part):
                yield row, own_part
        return
    assert address in (BY_KEY, BY_NAMESPACE, BY_TIME), address
    for row, content in rows:
        if key_group(key_of(address, row), max_parallelism) in groups:
            yield row, content

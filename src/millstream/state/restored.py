"""State that is taken over from another run: from which files, and which part of them.

Keyed state is parted by key group, whatever the parallelism was before. Of operator state, a list is dealt out anew, a
union list goes to everybody, and broadcast state is the same everywhere, so that any copy will do.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from millstream.common.checksums import Checksum
from millstream.common.fast_dataclass import fast_dataclass
from millstream.state.changelog import ChangelogFile, Loads, Section, replay
from millstream.state.key_groups import key_group
from millstream.state.table import BY_GROUP, BY_KEY, BY_NAME, BY_NAMESPACE, BY_PANE, BY_TIME, StateTable

SPLIT_LIST, UNION_LIST = "split.", "union."

Read = Callable[[str], "bytes | memoryview"]


@fast_dataclass
class StoredState:
    """Where the state of a subtask is: the last file of its chain, or its part of a savepoint, with its checksum."""

    file: str
    checksum: Checksum | None = None

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a savepoint."""
        return self.file.endswith(".parquet")


@fast_dataclass
class Restored:
    """What a subtask starts from.

    Attributes:
        files: the state of every subtask of before; None where there was none.
        groups: the key groups that are wanted, out of `max_parallelism`.
        subtask: who wants them, of `parallelism`.
    """

    files: tuple[StoredState | None, ...]
    groups: range
    max_parallelism: int
    subtask: int
    parallelism: int
    # The tables whose rows carry the time they were written; None when that is not known.
    expiring: frozenset[str] | None = None

    def sections(self, read: Read) -> Iterator[Section]:
        """Yield the wanted part of every section, to be applied in this order."""
        named: list[dict[str, StateTable]] = [{} for _ in self.files]
        for tables, file in zip(named, self.files, strict=True):
            panes: dict[str, StateTable] = {}
            for section in stored_sections(file, read) if file is not None else ():
                if section.address == BY_NAME:
                    apply(tables, section)
                elif section.address == BY_PANE:
                    # A pane has keys of all subtasks: when it is gone in one, the others may have theirs still.
                    apply(panes, section)
                else:
                    yield self._wanted(section)
            for table in panes.values():
                yield self._wanted(Section(table.name, table.kind, table.address, dict(table.rows())))
        for name in dict.fromkeys(name for tables in named for name in tables):
            parts = [tables.get(name) for tables in named]
            kind = next(p.kind for p in parts if p is not None)
            yield Section(name, kind, BY_NAME, self._operator_state(name, parts))

    def _wanted(self, section: Section) -> Section:
        mine = dict(owned(section.address, section.rows.items(), self.groups, self.max_parallelism))
        return Section(section.table, section.kind, section.address, mine)

    def _operator_state(self, name: str, parts: list[StateTable | None]) -> dict[Any, Any]:
        union = name.startswith(UNION_LIST)
        if not union and not (name.startswith(SPLIT_LIST) and len(parts) != self.parallelism):
            mine = parts[self.subtask % len(parts)]
            return dict(mine.rows()) if mine is not None else {}
        lists: dict[Any, list[Any]] = {}
        for part in parts:
            for row, content in part.rows() if part is not None else ():
                lists.setdefault(row, []).extend(content)
        dealt = {row: content if union else content[self.subtask :: self.parallelism] for row, content in lists.items()}
        return {row: content for row, content in dealt.items() if content}


def apply(tables: dict[str, StateTable], section: Section) -> None:
    """Add a section to the tables that the sections before it have made."""
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
        stored: where it is.
        read: reads a file.
        only_check: whether only to see that everything is there and not damaged: rows are left out.
        loads: reads pickles.
        only: the one table that is wanted; without it, all are.
    """
    if stored.is_part:
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


def key_of(address: str, row: Any) -> Any:
    """Return the key that a row belongs to."""
    if address == BY_KEY:
        return row
    return row[0] if address == BY_NAMESPACE else row[1]


def owned(
    address: str, rows: Iterable[tuple[Any, Any]], groups: range, max_parallelism: int
) -> Iterator[tuple[Any, Any]]:
    """Yield the rows whose key is in one of the groups; of a pane, the keys that are."""
    if address == BY_PANE:
        for row, content in rows:
            yield row, {k: v for k, v in content.items() if key_group(k, max_parallelism) in groups}
        return
    if address == BY_GROUP:
        for row, content in rows:
            mine = tuple(change.part(groups, max_parallelism) for change in content)
            if any(len(change) for change in mine):
                yield row, mine
        return
    assert address in (BY_KEY, BY_NAMESPACE, BY_TIME), address
    for row, content in rows:
        if key_group(key_of(address, row), max_parallelism) in groups:
            yield row, content

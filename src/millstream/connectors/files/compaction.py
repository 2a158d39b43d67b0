"""Compaction of part files: when a FileSink merges small files, and how.

Each part goes into exactly one file, even if a driver fails during compaction or two drivers run at the same time.

    .{part}.inprogress.{transaction}    a pending part; the checkpoint names it
    .compacted.inprogress.{group}       a group's output while it is written
    .{part}.compacting.{group}          a part claimed by the group
    .{output}.compacted.{group}         a complete output: the group is committed
    {output}                            the visible output

A group creates its output, claims its parts by renaming them, writes, and commits by renaming its output, which fails
if another driver has deleted it. Then it deletes its parts. The output becomes visible only after the last part is
deleted, because users may remove a visible file. So an existing part is in no committed output, unless a `.compacted.`
file of its group exists; and a missing part is in a committed output.

Recovery finishes committed groups. It cancels other groups by deleting their output, and releases their parts.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import BinaryIO, NamedTuple

from millstream.common.errors import InvalidProgramError, LostOutputError
from millstream.connectors.files.part_files import PartFile, create, hidden_path, open_start, sync

__all__ = ["Compaction", "FileCompactStrategy", "FileCompactStrategyBuilder", "FileCompactor"]

Group = list[PartFile]


@dataclass(frozen=True)
class FileCompactStrategy:
    """Decides when the pending files of a bucket are merged.

    Attributes:
        num_checkpoints: checkpoints that a file waits; None for no limit.
        size_threshold: total bytes that trigger a merge; None for no limit.
        num_compact_threads: buckets that the driver merges concurrently.

    Example:
        >>> builder = FileCompactStrategy.builder().enable_compaction_on_checkpoint(5).set_size_threshold(1 << 20)
        >>> builder.set_num_compact_threads(4).build()
        FileCompactStrategy(num_checkpoints=5, size_threshold=1048576, num_compact_threads=4)
    """

    num_checkpoints: int | None = None
    size_threshold: int | None = None
    num_compact_threads: int = 1

    @staticmethod
    def builder() -> FileCompactStrategyBuilder:
        """Return a builder."""
        return FileCompactStrategyBuilder()

    def full_groups(self, parts: Iterable[PartFile]) -> tuple[list[Group], Group]:
        """Group a bucket's parts, in order, by the size threshold; return the full groups and the rest."""
        groups: list[Group] = []
        rest: Group = []
        size = 0
        for part in parts:
            rest.append(part)
            size += part.length
            if self.size_threshold is not None and size >= self.size_threshold:
                groups.append(rest)
                rest, size = [], 0
        return groups, rest

    def is_due(self, parts: Iterable[PartFile]) -> bool:
        """Return whether a part has waited for enough checkpoints."""
        enough = self.num_checkpoints
        return enough is not None and any(part.waited >= enough for part in parts)


class FileCompactStrategyBuilder:
    """Builds a FileCompactStrategy with at least one condition; see FileCompactStrategy for an example."""

    def __init__(self) -> None:
        self._strategy = FileCompactStrategy()

    def enable_compaction_on_checkpoint(self, num_checkpoints_before_compaction: int) -> FileCompactStrategyBuilder:
        """Merge files after this number of checkpoints, by default never."""
        _above_zero("enable_compaction_on_checkpoint", num_checkpoints_before_compaction)
        self._strategy = replace(self._strategy, num_checkpoints=num_checkpoints_before_compaction)
        return self

    def set_size_threshold(self, size_threshold: int) -> FileCompactStrategyBuilder:
        """Merge files when their total size reaches this number of bytes, by default never."""
        _above_zero("set_size_threshold", size_threshold)
        self._strategy = replace(self._strategy, size_threshold=size_threshold)
        return self

    def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategyBuilder:
        """Set the number of buckets to merge concurrently, by default 1."""
        _above_zero("set_num_compact_threads", num_compact_threads)
        self._strategy = replace(self._strategy, num_compact_threads=num_compact_threads)
        return self

    def build(self) -> FileCompactStrategy:
        """Return the strategy."""
        if self._strategy.num_checkpoints is None and self._strategy.size_threshold is None:
            raise InvalidProgramError(
                "FileCompactStrategy: set a condition, with enable_compaction_on_checkpoint(n) or "
                "set_size_threshold(bytes)."
            )
        return self._strategy


class FileCompactor(ABC):
    """Merges several files into one.

    Example:
        >>> import io
        >>> output = io.BytesIO()
        >>> FileCompactor.concat_file_compactor(b"|").compact([[b"to"], [b"be"]], output)
        >>> output.getvalue()
        b'to|be'
    """

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Concatenate files, separated by the delimiter, by default nothing."""
        if file_delimiter is not None and not isinstance(file_delimiter, bytes):
            raise InvalidProgramError(f"concat_file_compactor takes the delimiter as bytes, not {file_delimiter!r}.")
        return _Concat(file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Leave files unchanged: each becomes visible on its own."""
        return _Identical()

    def groups(self, parts: Group) -> list[Group]:
        """Divide the due parts into groups, one per output file."""
        return [parts]

    @abstractmethod
    def compact(self, files: Iterable[Iterable[bytes]], output: BinaryIO) -> None:
        """Write the contents of files, each an iterable of chunks, into one output."""


class _Concat(FileCompactor):
    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter

    def compact(self, files: Iterable[Iterable[bytes]], output: BinaryIO) -> None:
        for i, pieces in enumerate(files):
            if i:
                output.write(self._delimiter)
            output.writelines(pieces)


class _Identical(_Concat):
    def __init__(self) -> None:
        super().__init__(b"")

    def groups(self, parts: Group) -> list[Group]:
        return [[part] for part in parts]


class Compaction(NamedTuple):
    """How a FileSink merges files."""

    strategy: FileCompactStrategy
    compactor: FileCompactor

    def due(self, parts: Sequence[PartFile]) -> list[Group]:
        """Return the groups of a bucket's parts that are due."""
        groups, rest = self.strategy.full_groups(parts)
        if self.strategy.is_due(rest):
            groups.append(rest)
        return [one for group in groups for one in self.compactor.groups(group)]

    def final_groups(self, parts: Sequence[PartFile]) -> list[Group]:
        """Return all of a bucket's parts in groups, because no more parts follow."""
        groups, rest = self.strategy.full_groups(parts)
        return [one for group in (*groups, rest) if group for one in self.compactor.groups(group)]


def _above_zero(method: str, value: int) -> None:
    if value <= 0:
        raise InvalidProgramError(f"FileCompactStrategy: {method} takes a number above 0, not {value}.")


# PyFlink nests the builder in the class.
FileCompactStrategy.Builder = FileCompactStrategyBuilder  # type: ignore[attr-defined]


_CLAIMED = ".compacting."
_COMMITTED = ".compacted."
_PREFIX = "compacted-"
_PIECE_BYTES = 1 << 20


def compact(parts: list[PartFile], group: str, compactor: FileCompactor) -> None:
    """Merge parts of one bucket, and make the output visible.

    Args:
        parts: closed parts; the first names the output.
        group: a unique name.
        compactor: writes the output.
    """
    directory, first = os.path.split(parts[0].final)
    output = _output(directory, group)
    create(output)
    claimed = [_claim(part, group) for part in parts]
    with open(output, "r+b") as file:
        compactor.compact((_pieces(path, part.length) for path, part in zip(claimed, parts, strict=True)), file)
    sync(output)
    # The claims identify the output's parts, so they must be durable before the commit.
    sync(directory)
    committed = f".{_PREFIX}{first}{_COMMITTED}{group}"
    os.rename(output, os.path.join(directory, committed))
    _finish(directory, committed, claimed)


def finish_groups(hidden: Iterable[str], expected: Iterable[PartFile], prefixes: tuple[str, ...]) -> None:
    """Finish or cancel all groups: afterwards each expected part is pending again or in a visible file.

    Args:
        hidden: the existing hidden files.
        expected: the parts that the checkpoint names.
        prefixes: prefixes of the sink's own groups; other parts claimed by these are deleted.
    """
    paths = [os.path.split(path) for path in hidden]
    for directory, name in paths:
        if _parse(name, _COMMITTED) is not None:
            _finish_committed(directory, name)
    by_name = {part.final: part for part in expected}
    for directory, name in paths:
        claim = _parse(name, _CLAIMED)
        if claim is None:
            continue
        part = by_name.get(os.path.join(directory, claim[0]))
        if part is not None or claim[1].startswith(prefixes):
            _cancel(directory, name, claim[1], part)


def _output(directory: str, group: str) -> str:
    return hidden_path(directory, "compacted", group)


def _parse(name: str, marker: str) -> tuple[str, str] | None:
    """Return the name and the group of a hidden file, or None for another kind of file."""
    start, separator, group = name.rpartition(marker)
    return (start[1:], group) if separator and start.startswith(".") else None


def _claim(part: PartFile, group: str) -> str:
    directory, name = os.path.split(part.final)
    claimed = os.path.join(directory, f".{name}{_CLAIMED}{group}")
    try:
        os.rename(part.hidden, claimed)
    except FileNotFoundError:
        raise LostOutputError(
            f"FileSink: {part.hidden} was deleted or moved before compaction: check that no other driver of this job "
            "runs."
        ) from None
    return claimed


def _pieces(path: str, length: int) -> Iterator[bytes]:
    """Yield the acknowledged bytes of a file."""
    with open_start(path, length) as file:
        while length:
            piece = file.read(min(length, _PIECE_BYTES))
            length -= len(piece)
            yield piece


def _finish(directory: str, committed: str, claimed: Iterable[str]) -> None:
    """Delete the parts of a committed group, then make its output visible. Another driver may do the same."""
    sync(directory)
    for path in claimed:
        with suppress(FileNotFoundError):
            os.unlink(path)
    sync(directory)
    parsed = _parse(committed, _COMMITTED)
    assert parsed is not None
    with suppress(FileNotFoundError):
        os.rename(os.path.join(directory, committed), os.path.join(directory, parsed[0]))
    sync(directory)


def _finish_committed(directory: str, committed: str) -> None:
    parsed = _parse(committed, _COMMITTED)
    assert parsed is not None
    claims = (name for name in os.listdir(directory) if name.endswith(f"{_CLAIMED}{parsed[1]}"))
    _finish(directory, committed, [os.path.join(directory, name) for name in claims])


def _cancel(directory: str, name: str, group: str, part: PartFile | None) -> None:
    """Cancel a group unless it is committed; then release its claimed part, or delete the part if it is obsolete."""
    try:
        os.unlink(_output(directory, group))
    except FileNotFoundError:
        # Another driver has cancelled or committed the group meanwhile.
        for late in [n for n in os.listdir(directory) if n.endswith(f"{_COMMITTED}{group}")]:
            _finish_committed(directory, late)
    path = os.path.join(directory, name)
    with suppress(FileNotFoundError):
        if part is None:
            os.unlink(path)
        else:
            os.rename(path, part.hidden)

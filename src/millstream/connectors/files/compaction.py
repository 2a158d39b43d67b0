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
    """When the files of a bucket that wait are put together.

    Attributes:
        num_checkpoints: after how many checkpoints; None: however many there are.
        size_threshold: when they have so many bytes together; None: however many they have.
        num_compact_threads: how many buckets are worked on at once, on the driver.

    Example:
        >>> FileCompactStrategy.builder().enable_compaction_on_checkpoint(5).set_size_threshold(1 << 20).build()
        FileCompactStrategy(num_checkpoints=5, size_threshold=1048576, num_compact_threads=1)
    """

    num_checkpoints: int | None = None
    size_threshold: int | None = None
    num_compact_threads: int = 1

    @staticmethod
    def builder() -> FileCompactStrategyBuilder:
        """Begin a strategy."""
        return FileCompactStrategyBuilder()

    def full_groups(self, parts: Iterable[PartFile]) -> tuple[list[Group], Group]:
        """Cut a bucket's parts, in their order, where they are large enough together; return also what is left."""
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
        """Tell whether some have waited for enough checkpoints."""
        enough = self.num_checkpoints
        return enough is not None and any(part.waited >= enough for part in parts)


class FileCompactStrategyBuilder:
    """Builds a FileCompactStrategy; at least one condition must be given."""

    def __init__(self) -> None:
        self._strategy = FileCompactStrategy()

    def enable_compaction_on_checkpoint(self, num_checkpoints_before_compaction: int) -> FileCompactStrategyBuilder:
        """Let files wait for so many checkpoints."""
        _above_zero("enable_compaction_on_checkpoint", num_checkpoints_before_compaction)
        self._strategy = replace(self._strategy, num_checkpoints=num_checkpoints_before_compaction)
        return self

    def set_size_threshold(self, size_threshold: int) -> FileCompactStrategyBuilder:
        """Let files wait until they have so many bytes together."""
        _above_zero("set_size_threshold", size_threshold)
        self._strategy = replace(self._strategy, size_threshold=size_threshold)
        return self

    def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategyBuilder:
        """Work on so many buckets at once."""
        _above_zero("set_num_compact_threads", num_compact_threads)
        self._strategy = replace(self._strategy, num_compact_threads=num_compact_threads)
        return self

    def build(self) -> FileCompactStrategy:
        """Return the strategy."""
        if self._strategy.num_checkpoints is None and self._strategy.size_threshold is None:
            raise InvalidProgramError(
                "FileCompactStrategy: say when files are put together, with enable_compaction_on_checkpoint(n) or "
                "set_size_threshold(bytes)."
            )
        return self._strategy


class FileCompactor(ABC):
    """Makes one file of several.

    Example:
        >>> import io
        >>> output = io.BytesIO()
        >>> FileCompactor.concat_file_compactor(b"|").compact([[b"to"], [b"be"]], output)
        >>> output.getvalue()
        b'to|be'
    """

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Write files one behind the other, with the delimiter between two."""
        if file_delimiter is not None and not isinstance(file_delimiter, bytes):
            raise InvalidProgramError(f"concat_file_compactor takes the delimiter as bytes, not {file_delimiter!r}.")
        return _Concat(file_delimiter or b"")

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Leave files as they are: each waits and is then shown by itself."""
        return _Identical()

    def groups(self, parts: Group) -> list[Group]:
        """Return which of the parts that are due come into one file."""
        return [parts]

    @abstractmethod
    def compact(self, files: Iterable[Iterable[bytes]], output: BinaryIO) -> None:
        """Write the contents of files, each given in pieces, into one."""


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
    """How a FileSink puts files together."""

    strategy: FileCompactStrategy
    compactor: FileCompactor

    def due(self, parts: Sequence[PartFile]) -> list[Group]:
        """Return the groups of a bucket's parts whose time has come."""
        groups, rest = self.strategy.full_groups(parts)
        if self.strategy.is_due(rest):
            groups.append(rest)
        return [one for group in groups for one in self.compactor.groups(group)]

    def everything(self, parts: Sequence[PartFile]) -> list[Group]:
        """Return all of a bucket's parts in groups: nothing follows that they could wait for."""
        groups, rest = self.strategy.full_groups(parts)
        return [one for group in (*groups, rest) if group for one in self.compactor.groups(group)]


def _above_zero(what: str, value: int) -> None:
    if value <= 0:
        raise InvalidProgramError(f"FileCompactStrategy: {what} takes a number above 0, not {value}.")


# PyFlink has it inside the class it builds.
FileCompactStrategy.Builder = FileCompactStrategyBuilder  # type: ignore[attr-defined]


_CLAIMED = ".compacting."
_COUNTED = ".compacted."
_PREFIX = "compacted-"
_PIECE_BYTES = 1 << 20


def compact(parts: list[PartFile], group: str, compactor: FileCompactor) -> None:
    """Put parts of one bucket together, and show the file.

    Args:
        parts: closed by their writers; the file is called after the first.
        group: a name that nobody else has had or will have.
        compactor: writes the file.
    """
    directory, first = os.path.split(parts[0].final)
    output = _output(directory, group)
    create(output)
    claimed = [_claim(part, group) for part in parts]
    with open(output, "r+b") as file:
        compactor.compact((_pieces(path, part.length) for path, part in zip(claimed, parts, strict=True)), file)
    sync(output)
    # The claims must be on the disk before the group counts: they say what is in it.
    sync(directory)
    counted = f".{_PREFIX}{first}{_COUNTED}{group}"
    os.rename(output, os.path.join(directory, counted))
    _finish(directory, counted, claimed)


def settle(hidden: Iterable[str], wanted: Iterable[PartFile], prefixes: tuple[str, ...]) -> None:
    """Leave no group half done: parts that are wanted wait again, or are in a file that is shown.

    Args:
        hidden: the hidden files that were found.
        wanted: the parts that the checkpoint names.
        prefixes: how the names of the sink's own groups begin; what they have claimed of other parts is deleted.
    """
    paths = [os.path.split(path) for path in hidden]
    for directory, name in paths:
        if _parse(name, _COUNTED) is not None:
            _finish_found(directory, name)
    by_name = {part.final: part for part in wanted}
    for directory, name in paths:
        claim = _parse(name, _CLAIMED)
        if claim is None:
            continue
        part = by_name.get(os.path.join(directory, claim[0]))
        if part is not None or claim[1].startswith(prefixes):
            _take_back(directory, name, claim[1], part)


def _output(directory: str, group: str) -> str:
    return hidden_path(directory, "compacted", group)


def _parse(name: str, marker: str) -> tuple[str, str] | None:
    """Return what a hidden file is of, and its group; None for a file of another kind."""
    start, found, group = name.rpartition(marker)
    return (start[1:], group) if found and start.startswith(".") else None


def _claim(part: PartFile, group: str) -> str:
    directory, name = os.path.split(part.final)
    claimed = os.path.join(directory, f".{name}{_CLAIMED}{group}")
    try:
        os.rename(part.hidden, claimed)
    except FileNotFoundError:
        raise LostOutputError(
            f"FileSink: {part.hidden} is not there any more to be put together with others; "
            "was it moved, or does another driver of this job still run?"
        ) from None
    return claimed


def _pieces(path: str, length: int) -> Iterator[bytes]:
    """Read what was acknowledged of a file."""
    with open_start(path, length) as file:
        while length:
            piece = file.read(min(length, _PIECE_BYTES))
            length -= len(piece)
            yield piece


def _finish(directory: str, counted: str, claimed: Iterable[str]) -> None:
    """The group counts: delete its parts, then show its output. Somebody else may be at it too."""
    sync(directory)
    for path in claimed:
        with suppress(FileNotFoundError):
            os.unlink(path)
    sync(directory)
    found = _parse(counted, _COUNTED)
    assert found is not None
    with suppress(FileNotFoundError):
        os.rename(os.path.join(directory, counted), os.path.join(directory, found[0]))
    sync(directory)


def _finish_found(directory: str, counted: str) -> None:
    found = _parse(counted, _COUNTED)
    assert found is not None
    claims = (name for name in os.listdir(directory) if name.endswith(f"{_CLAIMED}{found[1]}"))
    _finish(directory, counted, [os.path.join(directory, name) for name in claims])


def _take_back(directory: str, name: str, group: str, part: PartFile | None) -> None:
    """End a group, unless it counts by now; then have a part it has claimed wait again, or delete what nobody wants."""
    try:
        os.unlink(_output(directory, group))
    except FileNotFoundError:
        # It was ended before, or it has come to count since we looked.
        for late in [n for n in os.listdir(directory) if n.endswith(f"{_COUNTED}{group}")]:
            _finish_found(directory, late)
    path = os.path.join(directory, name)
    with suppress(FileNotFoundError):
        if part is None:
            os.unlink(path)
        else:
            os.rename(path, part.hidden)

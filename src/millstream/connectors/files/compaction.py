"""FileCompactStrategy and FileCompactor: when a FileSink puts small files together, and how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, NamedTuple

from millstream.common.errors import InvalidProgramError
from millstream.connectors.files.part_files import PartFile

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

"""Several part files into one: each part into exactly one, whoever dies in between, and even if two are at it.

    .{part}.inprogress.{transaction}    a part that waits; the checkpoint names it
    .compacted.inprogress.{group}       the output of a group while it is written
    .{part}.compacting.{group}          a part that the group has claimed
    .{output}.compacted.{group}         the output is complete: from here on the group counts
    {output}                            the output, for everybody to see

A group makes its output, claims its parts, writes, and counts when it has renamed its output: it cannot if somebody has
deleted that. Then its parts are deleted, and only when none is left is the output shown, for then anybody may take it
away. So a part that is there is in no output that counts, unless a `.compacted.` of its group says so; and a part that
is nowhere is in one.

Who goes on after a failure finishes the groups that count. Other groups he ends by deleting their output, and takes the
parts back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from millstream.common.errors import LostOutputError
from millstream.connectors.files.compaction import FileCompactor
from millstream.connectors.files.part_files import PartFile, create, hidden_path, open_start, sync

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

"""Lines in a stretch of a file, read in blocks.

A line belongs to the stretch in which it begins. So a file may be cut at any byte: a stretch leaves out the end of a
line that began before it, and reads its own last line to its end, wherever that is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import BinaryIO

# So much is read at once; the lines in it are handed on together.
BLOCK_BYTES = 1 << 18
# The end of a stream whose length is not known.
UNKNOWN = sys.maxsize


def line_blocks(file: BinaryIO, start: int, end: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin in [start, end), many at a time, each block with the position where it begins.

    Args:
        file: read from its beginning when `start` is 0, else it must be seekable.
        size: where the file ends, though there may be more by now; UNKNOWN for a stream.
    """
    begin = _first_line(file, start, end) if start else 0
    if begin is None:
        return
    at = begin
    parts: list[bytes] = []
    while at < size:
        chunk = file.read(min(BLOCK_BYTES, size - at))
        if not chunk:
            if size != UNKNOWN:
                raise EOFError(f"it has {at} bytes and had {size} when it was found")
            break
        before, at = at, at + len(chunk)
        if at >= end:
            # The last line is the one that goes on at the byte before the end.
            cut = chunk.find(b"\n", max(end - 1 - before, 0)) + 1
            if cut:
                parts.append(chunk[:cut])
                break
        else:
            cut = chunk.rfind(b"\n") + 1
        if cut:
            yield begin, b"".join((*parts, chunk[:cut]))
            parts, begin = [chunk[cut:]], before + cut
        else:
            parts.append(chunk)
    if rest := b"".join(parts):
        yield begin, rest


def _first_line(file: BinaryIO, start: int, end: int) -> int | None:
    """Find where the first line begins in [start, end), and go there; None when there is none."""
    at = start - 1
    file.seek(at)
    while at < end - 1:
        chunk = file.read(min(BLOCK_BYTES, end - 1 - at))
        if not chunk:
            return None
        found = chunk.find(b"\n")
        if found >= 0:
            file.seek(at + found + 1)
            return at + found + 1
        at += len(chunk)
    return None


def text_lines(block: bytes, charset: str, errors: str = "replace") -> list[str]:
    """Return the lines of a block as text, without their ends.

    Example:
        >>> text_lines(b"a\\r\\n\\nb", "utf-8")
        ['a', '', 'b']
    """
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = block.decode(charset, errors).split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


class LineNumbers:
    """Finds the numbers of lines, counted from 1, each behind the one before; for error messages only."""

    def __init__(self) -> None:
        self._at, self._number = 0, 1

    def at(self, file: BinaryIO, offset: int) -> int:
        """Return the number of the line at a position of a file that stands at its beginning."""
        if offset < self._at:
            self._at, self._number = 0, 1
        if self._at:
            file.seek(self._at)
        while self._at < offset and (chunk := file.read(min(BLOCK_BYTES, offset - self._at))):
            self._number += chunk.count(b"\n")
            self._at += len(chunk)
        return self._number

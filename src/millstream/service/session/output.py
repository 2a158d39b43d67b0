"""What a program prints, in a file: as much as anybody will read, however much a program prints."""

from __future__ import annotations

import ctypes
import os
import sys

# More than this of a file is on disk for a moment only, and so much stays; so much is told at once.
_MOST, _KEPT, _ANSWER = 32 << 20, 16 << 20, 1 << 20
_BLOCK = 1 << 16
# The kernel's words for: let go of the disk, and leave the file as long as it is.
_PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01


def trim(path: str) -> None:
    """Let go of the beginning of a file that has become too large. Who writes to it does not notice."""
    about = os.stat(path)
    if sys.platform != "linux" or about.st_blocks * 512 <= _MOST:
        return
    with open(path, "r+b") as file:
        # Whole blocks: part of one would be zeros.
        gone = ctypes.c_long((about.st_size - _KEPT) // _BLOCK * _BLOCK)
        ctypes.CDLL(None).fallocate(file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_long(0), gone)


def read_from(path: str, start: int) -> tuple[bytes, int]:
    """Return what was printed from some byte on, as much as is told at once, and where that ends.

    What was let go of is left out.
    """
    with open(path, "rb") as file:
        # The first byte that is still there.
        try:
            kept = os.lseek(file.fileno(), start, os.SEEK_DATA)
        except OSError:
            # There is nothing behind it.
            return b"", start
        file.seek(kept)
        found = file.read(_ANSWER)
    return found, kept + len(found)

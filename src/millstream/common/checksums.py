"""Checksums of files: CRC-32, as zlib has it, against damage; SHA-256 against people, where state is signed."""

from __future__ import annotations

import hashlib
from typing import Any

try:
    # The same numbers in an eighth of the time. Machines that it is not built for have zlib.
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["Checksum", "Summing", "checksum_of", "crc32", "is_digest", "matches"]

# A CRC-32, or a SHA-256 in hexadecimal.
Checksum = int | str


class Summing:
    """The checksum of bytes that come piece by piece.

    Example:
        >>> summing = Summing(digest=False)
        >>> summing.add(b"ab")
        >>> summing.add(b"c")
        >>> summing.checksum() == crc32(b"abc")
        True
    """

    def __init__(self, digest: bool) -> None:
        self._crc = 0
        self._sha = hashlib.sha256() if digest else None

    def add(self, piece: Any) -> None:
        if self._sha is None:
            self._crc = crc32(piece, self._crc)
        else:
            self._sha.update(piece)

    def checksum(self) -> Checksum:
        return self._crc if self._sha is None else self._sha.hexdigest()


def checksum_of(data: Any, digest: bool) -> Checksum:
    """Return the checksum of bytes: a SHA-256 if `digest`, else a CRC-32."""
    return hashlib.sha256(data).hexdigest() if digest else crc32(data)


def is_digest(checksum: Checksum | None) -> bool:
    """Tell whether a checksum is one that nobody can make other bytes for."""
    return isinstance(checksum, str)


def matches(data: Any, expected: Checksum) -> bool:
    """Tell whether bytes have a checksum, of whichever kind that is."""
    return checksum_of(data, is_digest(expected)) == expected

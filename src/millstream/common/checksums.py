"""Checksums of files: CRC-32 (as zlib computes it) against damage, SHA-256 against tampering where state is signed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

try:
    # Eight times as fast as zlib, with the same results; not built for every platform.
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Checksum", "Summing", "checksum_of", "crc32", "is_digest", "matches"]

# A CRC-32, or a SHA-256 in hexadecimal.
Checksum = int | str


class Summing:
    """An incremental checksum.

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

    def add(self, piece: ReadableBuffer) -> None:
        if self._sha is None:
            self._crc = crc32(piece, self._crc)
        else:
            self._sha.update(piece)

    def checksum(self) -> Checksum:
        return self._crc if self._sha is None else self._sha.hexdigest()


def checksum_of(data: ReadableBuffer, digest: bool) -> Checksum:
    """Return the checksum of bytes: a SHA-256 if `digest`, else a CRC-32."""
    return hashlib.sha256(data).hexdigest() if digest else crc32(data)


def is_digest(checksum: Checksum | None) -> bool:
    """Return whether a checksum is a cryptographic digest."""
    return isinstance(checksum, str)


def matches(data: ReadableBuffer, expected: Checksum) -> bool:
    """Return whether bytes have a checksum of either kind."""
    return checksum_of(data, is_digest(expected)) == expected

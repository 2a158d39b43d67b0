"""How records become bytes in files: Encoder."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from typing import Any, BinaryIO

from millstream.common.errors import InvalidProgramError

__all__ = ["Encoder", "SimpleStringEncoder"]


class Encoder(ABC):
    """Writes one record after another into a file of rows.

    Example:
        >>> import io
        >>> out = io.BytesIO()
        >>> Encoder.simple_string_encoder().encode(("a", 1), out)
        >>> out.getvalue()
        b"('a', 1)\\n"
    """

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> SimpleStringEncoder:
        """Return an encoder that writes `str(value)` and a newline for every record."""
        return SimpleStringEncoder(charset_name)

    @abstractmethod
    def encode(self, element: Any, stream: BinaryIO) -> None:
        """Write a record; nothing but `stream.write` may be called on the stream."""


class SimpleStringEncoder(Encoder):
    """Writes every record as a line of text."""

    def __init__(self, charset_name: str = "UTF-8") -> None:
        try:
            self.charset = codecs.lookup(charset_name).name
            mark = "".encode(self.charset)
        except LookupError:
            raise InvalidProgramError(f"Encoder: there is no charset {charset_name!r} for text.") from None
        if mark:
            # Every record would begin with it.
            raise InvalidProgramError(f"Encoder: {charset_name!r} writes a byte order mark; use UTF-8 or UTF-16LE.")

    def encode(self, element: Any, stream: BinaryIO) -> None:
        stream.write(f"{element}\n".encode(self.charset))

"""InputFormat: what StreamExecutionEnvironment.create_input reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["InputFormat"]


class InputFormat(ABC):
    """A format of files together with a path, such as AvroInputFormat; formats written in Java do not work here."""

    @abstractmethod
    def create_source(self) -> Any:
        """Return the source that reads the files."""

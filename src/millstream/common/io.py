"""InputFormat: the argument of StreamExecutionEnvironment.create_input."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["InputFormat"]


class InputFormat(ABC):
    """A file format with a path, such as AvroInputFormat; Java formats are not supported."""

    @abstractmethod
    def create_source(self) -> object:
        """Return the source that reads the files."""

"""InputFormat: the argument of StreamExecutionEnvironment.create_input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["InputFormat"]


class InputFormat(ABC):
    """A file format with a path, such as AvroInputFormat; Java formats are not supported."""

    @abstractmethod
    def create_source(self) -> Any:
        """Return the source that reads the files."""

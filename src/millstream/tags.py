"""The namespace that pickles of state name: `millstream.tags` and `time-window:1`. Never rename or move this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.tags import reader_of


def __getattr__(name: str) -> Callable[..., Any]:
    reader = reader_of(name)
    globals()[name] = reader
    return reader

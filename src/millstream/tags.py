"""The namespace that pickles of state name: `millstream.tags` and `time-window:1`. Never rename or move this module."""

from __future__ import annotations

from collections.abc import Callable

from millstream.common.tags import reader_of


def __getattr__(name: str) -> Callable[..., object]:
    reader = reader_of(name)
    globals()[name] = reader
    return reader

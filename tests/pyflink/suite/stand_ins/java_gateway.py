"""The gateway to Java, of which Millstream has none: only a catalog in memory can be made with it."""

from __future__ import annotations

from typing import Any

from millstream.table.catalog import GenericInMemoryCatalog


class NeedsJava(Exception):
    """A test asked for an object of Java's."""


class _Jvm:
    GenericInMemoryCatalog = GenericInMemoryCatalog

    def __getattr__(self, name: str) -> Any:
        raise NeedsJava(f"jvm.{name}")


class _Gateway:
    jvm = _Jvm()

    def __getattr__(self, name: str) -> Any:
        raise NeedsJava(f"gateway.{name}")


def get_gateway() -> _Gateway:
    return _Gateway()

"""PyFlink's gateway to Java, of which only an in-memory catalog exists here."""

from __future__ import annotations

from typing import Any

from millstream.table.catalog import GenericInMemoryCatalog


class NeedsJava(Exception):
    """A test used a Java object."""


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

"""PyFlink's serializers for exchanging pickles with Java."""

from __future__ import annotations

from typing import Any

from pyflink.java_gateway import NeedsJava


class _Serializer:
    def __init__(self, *args: Any) -> None:
        raise NeedsJava("pickles that Java reads")


PickleSerializer = BatchedSerializer = _Serializer

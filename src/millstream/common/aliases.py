"""Names for types that only a user's program knows.

A plain `Any` in a signature means that a type is missing. These aliases say instead which value of the user's it is.
"""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Json", "Key", "Value"]

# A record, a field of a record, or a value in state.
Value: TypeAlias = Any
# A key that a stream is partitioned by.
Key: TypeAlias = Any
# A parsed JSON document, checked where it is read.
Json: TypeAlias = Any

"""Names of PyFlink's state that a test uses in an annotation."""

from __future__ import annotations

from collections.abc import Iterator

RemovableConcatIterator = Iterator

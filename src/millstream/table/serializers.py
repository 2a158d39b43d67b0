"""PyFlink's table serializers, which are names only."""

from __future__ import annotations

from millstream.common.unsupported import missing_class

__all__ = ["ArrowSerializer"]

ArrowSerializer = missing_class(__name__, "ArrowSerializer", "it is internal to PyFlink; use to_arrow()")

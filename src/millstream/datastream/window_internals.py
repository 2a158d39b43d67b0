"""Names of PyFlink's window module that are about how it works inside."""

from __future__ import annotations

from typing import Any

from millstream.common.serializer import PickleSerializer
from millstream.common.unsupported import missing_class, missing_function
from millstream.datastream.functions import ReduceFunction

_WINDOW = "millstream.datastream.window"
_INSIDE = "it belongs to the inside of PyFlink, which works differently here"


class Min(ReduceFunction[Any]):
    """The lesser of two."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        return min(value1, value2)


class TimeWindowSerializer(PickleSerializer):
    """Writes a TimeWindow; not in Flink's format."""


class CountWindowSerializer(PickleSerializer):
    """Writes a CountWindow; not in Flink's format."""


class GlobalWindowSerializer(PickleSerializer):
    """Writes a GlobalWindow; not in Flink's format."""


WindowOperationDescriptor = missing_class(_WINDOW, "WindowOperationDescriptor", _INSIDE)
long_to_int_with_bit_mixing = missing_function("long_to_int_with_bit_mixing", _INSIDE)
mod_inverse = missing_function("mod_inverse", _INSIDE)

"""Windows, assigners, triggers and evictors, under PyFlink's names and those of Flink's Java API that PyFlink lacks."""

from __future__ import annotations

from millstream.common.aliases import Value
from millstream.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from millstream.common.serializer import PickleSerializer
from millstream.common.unsupported import missing_class, missing_function
from millstream.datastream.functions import ReduceFunction
from millstream.operators.windows.assigners import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from millstream.operators.windows.count_windows import (
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    DeltaTrigger,
    GlobalWindows,
    NeverTrigger,
    NoRepeatedTrigger,
    PurgingTrigger,
)
from millstream.operators.windows.evictors import (
    CountEvictor,
    DeltaEvictor,
    Evictor,
    TimeEvictor,
    TimestampedValue,
)
from millstream.operators.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    Trigger,
    TriggerResult,
)
from millstream.operators.windows.windows import CountWindow, GlobalWindow, TimeWindow, Window

__all__ = [
    "MAX_LONG_VALUE",
    "MIN_LONG_VALUE",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "CountWindowSerializer",
    "DeltaEvictor",
    "DeltaTrigger",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "GlobalWindows",
    "MergingWindowAssigner",
    "Min",
    "NeverTrigger",
    "NoRepeatedTrigger",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "SessionWindowTimeGapExtractor",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeEvictor",
    "TimeWindow",
    "TimeWindowSerializer",
    "TimestampedValue",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Window",
    "WindowAssigner",
    "WindowOperationDescriptor",
    "long_to_int_with_bit_mixing",
    "mod_inverse",
]


_WINDOW = "millstream.datastream.window"
_INSIDE = "it is internal to PyFlink and works differently here"


class Min(ReduceFunction[Value]):
    """The lesser of two."""

    def reduce(self, value1: Value, value2: Value) -> Value:
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

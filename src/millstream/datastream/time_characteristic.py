"""TimeCharacteristic: removed in Flink 2 but still used by programs; it has no effect."""

from enum import Enum

__all__ = ["TimeCharacteristic"]


class TimeCharacteristic(Enum):
    """The time semantics of a program before Flink 1.12."""

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2

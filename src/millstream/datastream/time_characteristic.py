"""TimeCharacteristic: gone from Flink 2, still in many programs; what assigners and windows say counts."""

from enum import Enum

__all__ = ["TimeCharacteristic"]


class TimeCharacteristic(Enum):
    """Which time a program used to be about as a whole."""

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2

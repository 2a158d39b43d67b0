"""State: descriptors and the states they describe."""

from millstream.state.descriptors import StateDescriptor, ValueStateDescriptor
from millstream.state.keyed import ValueState

__all__ = ["StateDescriptor", "ValueState", "ValueStateDescriptor"]

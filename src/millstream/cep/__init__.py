"""Complex event processing: patterns of events in streams, as Flink's CEP library finds them."""

from typing import TYPE_CHECKING

from millstream.cep.conditions import IterativeCondition, RichIterativeCondition, SimpleCondition
from millstream.cep.dynamic import PatternProcessor, Removed
from millstream.cep.functions import (
    PatternFlatSelectFunction,
    PatternFlatTimeoutFunction,
    PatternProcessFunction,
    PatternSelectFunction,
    PatternTimeoutFunction,
    RichPatternFlatSelectFunction,
    RichPatternSelectFunction,
    TimedOutPartialMatchHandler,
)
from millstream.cep.pattern import GroupPattern, Pattern
from millstream.cep.quantifier import MalformedPatternError, Quantifier, WithinType
from millstream.cep.skip import AfterMatchSkipStrategy

if TYPE_CHECKING:
    from millstream.cep.stream import CEP, PatternStream

__all__ = [
    "CEP",
    "AfterMatchSkipStrategy",
    "GroupPattern",
    "IterativeCondition",
    "MalformedPatternError",
    "Pattern",
    "PatternFlatSelectFunction",
    "PatternFlatTimeoutFunction",
    "PatternProcessFunction",
    "PatternProcessor",
    "PatternSelectFunction",
    "PatternStream",
    "PatternTimeoutFunction",
    "Quantifier",
    "Removed",
    "RichIterativeCondition",
    "RichPatternFlatSelectFunction",
    "RichPatternSelectFunction",
    "SimpleCondition",
    "TimedOutPartialMatchHandler",
    "WithinType",
]


def __getattr__(name: str) -> object:
    # Imported late: operators, which are below streams, use the automaton and must not load streams.
    if name in ("CEP", "PatternStream"):
        from millstream.cep import stream

        return getattr(stream, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

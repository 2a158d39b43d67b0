"""The elements of the pattern stream of CEP.dynamic_patterns."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields

from millstream.cep.functions import Handler, processing
from millstream.cep.pattern import Pattern, check_pattern
from millstream.common.aliases import UserCode, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.tags import tagged

__all__ = ["PatternProcessor", "Removed"]


def _read(*values: Value) -> PatternProcessor:
    # It was checked at construction, and a reader of state may lack its function.
    processor = object.__new__(PatternProcessor)
    for field, value in zip(fields(PatternProcessor), values, strict=True):
        object.__setattr__(processor, field.name, value)
    return processor


@tagged("cep-pattern-processor", read=_read)
@dataclass(frozen=True)
class PatternProcessor:
    """A pattern to look for from now on, in place of one of the same id and a lower version.

    Attributes:
        id: identifies the pattern.
        version: a number; only a higher one replaces the current pattern.
        pattern: the pattern to match.
        function: processes matches, as in `PatternStream.process`.

    Example:
        >>> PatternProcessor("pairs", 1, Pattern.begin("a").next("b"), lambda match, ctx: [match]).id
        'pairs'
    """

    id: Hashable
    version: int
    pattern: Pattern
    function: UserCode

    def __post_init__(self) -> None:
        if not isinstance(self.version, int):
            raise InvalidProgramError(f"The version of pattern {self.id!r} is an int, not {self.version!r}.")
        try:
            hash(self.id)
        except TypeError:
            raise InvalidProgramError(f"The id of a pattern must be hashable, and {self.id!r} is not.") from None
        # Report an invalid pattern here, not in the job.
        check_pattern(self.pattern)
        self.handler()

    def handler(self) -> Handler:
        """Return the function in the form that operators call."""
        return processing(self.function)


@tagged("cep-removed-pattern")
@dataclass(frozen=True)
class Removed:
    """Removes a pattern and its partial matches.

    Example:
        >>> Removed("pairs")
        Removed(id='pairs')
    """

    id: Hashable

"""Aggregate functions of users among the others: what each key has is the user's accumulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.expressions import AggregateCall
from millstream.sql.functions.context import OpenedAggregate
from millstream.sql.operators.aggregate.object_accumulators import ObjectAccumulator
from millstream.sql.operators.query_context import Session


class SessionAggregate:
    """A user's aggregate function as an operator has it: opened with its subtask, closed with it."""

    def __init__(self, call: AggregateCall, session: Session) -> None:
        self._call = call
        self._session = session
        self._opened: OpenedAggregate | None = None

    @property
    def opened(self) -> OpenedAggregate:
        """The function, once the subtask has begun."""
        assert self._opened is not None
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether the subtask has begun."""
        return self._opened is not None

    def open(self, setup: OperatorSetup) -> None:
        """The subtask begins."""
        call = self._call
        context = self._session.context(setup)
        self._opened = call.user.opened(call.function, call.argument_types, call.type, context)

    def close(self) -> None:
        """The subtask has ended."""
        if self._opened is not None:
            self._opened.close()


def in_session(calls: Sequence[AggregateCall], session: Session) -> tuple[AggregateCall, ...]:
    """Return aggregates with those of users ready to be opened by an operator."""
    return tuple(c if c.user is None else replace(c, user=SessionAggregate(c, session)) for c in calls)


class UserAccumulator(ObjectAccumulator):
    """What the user's accumulator has."""

    @property
    def _function(self) -> OpenedAggregate:
        opened: OpenedAggregate = self.call.user.opened
        return opened

    def begin(self) -> Any:
        # What is read from a file is there before the function is.
        return self._function.begin() if self.call.user.is_open else None

    def add(self, kept: Any, values: tuple[Any, ...]) -> Any:
        return self._function.add(kept, values)

    def retract(self, kept: Any, values: tuple[Any, ...]) -> Any:
        return self._function.take_back(kept, values)

    def value(self, kept: Any) -> Any:
        return self._function.value(kept)

    def _values(self, arguments: Sequence[pa.Array], count: int) -> list[tuple[Any, ...]]:
        return self._function.rows(arguments, count)

    def _column(self, values: list[Any]) -> pa.Array:
        return self._function.column(values)

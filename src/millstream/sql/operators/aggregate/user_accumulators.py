"""Accumulators of user-defined aggregate functions."""

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
    """A user-defined aggregate function that an operator opens and closes with its subtask."""

    def __init__(self, call: AggregateCall, session: Session) -> None:
        self._call = call
        self._session = session
        self._opened: OpenedAggregate | None = None

    @property
    def opened(self) -> OpenedAggregate:
        """The function, after the subtask has opened it."""
        assert self._opened is not None
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether the subtask has opened the function."""
        return self._opened is not None

    def open(self, setup: OperatorSetup) -> None:
        """Open the function."""
        call = self._call
        context = self._session.context(setup)
        self._opened = call.user.opened(call.function, call.argument_types, call.type, context)

    def close(self) -> None:
        """Close the function."""
        if self._opened is not None:
            self._opened.close()


def in_session(calls: Sequence[AggregateCall], session: Session) -> tuple[AggregateCall, ...]:
    """Return aggregate calls whose user-defined functions an operator can open."""
    return tuple(c if c.user is None else replace(c, user=SessionAggregate(c, session)) for c in calls)


class UserAccumulator(ObjectAccumulator):
    """Wraps the user's accumulator."""

    @property
    def _function(self) -> OpenedAggregate:
        opened: OpenedAggregate = self.call.user.opened
        return opened

    def begin(self) -> Any:
        # State is restored before the function is opened.
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

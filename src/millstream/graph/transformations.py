"""Transformations: the operators that API calls add to a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from millstream.common.call_site import labelled, program_line
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.typeinfo import TypeInformation
from millstream.operators.base import Operator
from millstream.operators.functions.output_tag import OutputTag
from millstream.operators.runtime.partitioners import Partitioner
from millstream.operators.sink import InvokeOperator, SinkOperator
from millstream.operators.source import SourceOperator
from millstream.state.key_groups import UPPER_BOUND_MAX_PARALLELISM

DEFAULT_SLOT_GROUP = "default"


class ChainingStrategy(Enum):
    """How an operator may be chained."""

    ALWAYS = 0
    NEVER = 1
    HEAD = 2


@dataclass(eq=False)
class Transformation:
    """One operator of the program, as the user defined it."""

    id: int
    name: str
    operator: Operator
    inputs: list[UpstreamEdge]
    parallelism: int | None = None
    max_parallelism: int | None = None
    type_info: TypeInformation | None = None
    uid: str | None = None
    # The uid that the planner assigns to an SQL operator. It is derived from the plan, so two may have the same.
    plan_uid: str | None = None
    uid_hash: str | None = None
    description: str | None = None
    slot_sharing_group: str | None = None
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    # Whether the operator must run in one subtask.
    non_parallel: bool = False
    buffer_timeout: int | None = None
    # The source that this is a part of for the user: settings apply to both.
    source: Transformation | None = None
    # Set by cache(): a Cache of the DataStream API, which lies above this package.
    cache: object = None
    # The line of the program that created it.
    made_at: str | None = None

    @property
    def label(self) -> str:
        """Its name and call site, for errors: `'Map' (made at job.py:12)`."""
        return labelled(self.name, self.made_at)

    @property
    def is_source(self) -> bool:
        return isinstance(self.operator, SourceOperator)

    @property
    def shown_name(self) -> str:
        """The name in plans, logs and errors; sources are marked as in Flink."""
        return f"Source: {self.name}" if self.is_source and not self.name.startswith("Source: ") else self.name

    @property
    def is_bounded(self) -> bool:
        """Whether it ends by itself; only a source can be unbounded."""
        return not isinstance(self.operator, SourceOperator) or self.operator.source.is_bounded

    @property
    def is_sink(self) -> bool:
        return isinstance(self.operator, (SinkOperator, InvokeOperator))

    def set_parallelism(self, parallelism: int) -> None:
        check_parallelism(parallelism, f"operator {self.label}")
        if self.non_parallel and parallelism != 1:
            raise InvalidProgramError(
                f"Operator {self.label} cannot run in parallel: its parallelism must stay 1, not {parallelism}."
            )
        self.parallelism = parallelism
        if self.source is not None:
            self.source.set_parallelism(parallelism)


@fast_dataclass
class UpstreamEdge:
    """An input of an operator: the upstream operator, the side output, and the partitioner."""

    source: Transformation
    partitioner: Partitioner | None = None
    tag: OutputTag | None = None
    input_index: int = 0


def check_parallelism(parallelism: object, owner: str) -> None:
    """Reject an invalid parallelism."""
    _check(parallelism, f"The parallelism of {owner}")


def check_max_parallelism(max_parallelism: object, owner: str) -> None:
    """Reject an invalid max parallelism."""
    _check(max_parallelism, f"The max parallelism of {owner}")


def _check(number: object, label: str) -> None:
    is_valid = isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= UPPER_BOUND_MAX_PARALLELISM
    if not is_valid:
        raise InvalidProgramError(f"{label} must be an int from 1 to {UPPER_BOUND_MAX_PARALLELISM}, not {number!r}.")


@dataclass
class Program:
    """The transformations of an environment, in order."""

    transformations: list[Transformation] = field(default_factory=list)
    _next_id: int = 1

    def add(
        self,
        name: str,
        operator: Operator,
        inputs: Iterable[UpstreamEdge] = (),
        type_info: TypeInformation | None = None,
        parallelism: int | None = None,
    ) -> Transformation:
        """Add an operator with its inputs."""
        t = Transformation(self._next_id, name, operator, list(inputs), parallelism, type_info=type_info)
        t.made_at = program_line()
        self._next_id += 1
        self.transformations.append(t)
        return t

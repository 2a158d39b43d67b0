"""Adds the operators of a plan to a program.

Each kind of node has a function in another module of this package, which `registry.py` finds. It gets the operators of
its inputs from `Translator.ends`, and adds its own with `Translator.add` or one of the methods after it.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from millstream.graph.transformations import Program, Transformation, UpstreamEdge
from millstream.operators.base import Operator
from millstream.operators.runtime.partitioners import ForwardElse, GlobalPartitioner, OrderedPartitioner, Partitioner
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.errors import TableException
from millstream.sql.operators.base import ColumnKeyPartitioner
from millstream.sql.operators.query_context import Session
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.schema import INSERTS


class Translator:
    """Adds the operators of planned nodes to a program, once per node.

    A table's sink becomes a sink of the program. Collected rows become a transformation with one subtask whose records
    are batches; a table converted to a DataStream becomes one whose records are rows.

    Args:
        program: the program to extend.
        session: the settings that operators run with.
        translation_of: returns the translation of a kind of node, or None if it has none.
    """

    def __init__(
        self, program: Program, session: Session, translation_of: Callable[[type[nodes.Node]], Translation | None]
    ) -> None:
        self._program = program
        self.session = session
        self._translation_of = translation_of
        self._ends: dict[int, list[UpstreamEdge]] = {}
        # Holds translated nodes, so that no other object gets their id.
        self._translated: list[Planned] = []

    def translate(self, planned: Planned) -> Transformation:
        """Add a planned sink, collected result or stream; return its last transformation."""
        (end,) = self.ends(planned)
        return end.source

    def ends(self, planned: Planned) -> list[UpstreamEdge]:
        """Return the transformations that emit a node's rows: one, or those of a union."""
        ends = self._ends.get(id(planned))
        if ends is None:
            translation = self._translation_of(type(planned.node))
            if translation is None:
                raise TableException(f"{type(planned.node).__name__} is not supported yet: {planned.name}.")
            ends = preserve_order(translation(self, planned), planned)
            self.register(planned, ends)
        return ends

    def register(self, planned: Planned, ends: list[UpstreamEdge]) -> None:
        """Use these ends for a node, in place of its translation."""
        self._ends[id(planned)] = ends
        self._translated.append(planned)

    def add(
        self,
        planned: Planned,
        operator: Operator,
        inputs: list[UpstreamEdge],
        suffix: str = "",
        parallelism: int | None = None,
    ) -> Transformation:
        """Add an operator under its node's name; `suffix` extends the uid if a node has several operators."""
        added = self._program.add(planned.name, operator, inputs, parallelism=parallelism)
        if planned.uid:
            added.plan_uid = planned.uid + suffix
        return added

    def add_after(
        self, planned: Planned, operator: Operator, inputs: list[UpstreamEdge], single: bool = False
    ) -> list[UpstreamEdge]:
        """Add an operator that reads the given ends; `single` limits it to one subtask."""
        added = self.add(planned, operator, inputs)
        added.non_parallel = single
        return [UpstreamEdge(added)]

    def add_forward(self, planned: Planned, operator: Operator) -> list[UpstreamEdge]:
        """Add an operator that reads its input without an exchange, at the input's parallelism."""
        (before,) = planned.inputs
        ends = self.ends(before)
        added = self.add(planned, operator, ends)
        copy_parallelism(added, ends)
        return [UpstreamEdge(added)]

    def add_join(self, planned: Planned, operator: Operator) -> list[UpstreamEdge]:
        """Add a join whose inputs are partitioned by the join keys."""
        node, (left, right) = planned.node, planned.inputs
        assert isinstance(node, nodes.Join)
        ends = [*self.by_key(left, node.left_keys), *self.by_key(right, node.right_keys, 1)]
        return self.add_after(planned, operator, ends, single=not node.left_keys)

    def by_key(self, planned: Planned, keys: tuple[int, ...], input_index: int = 0) -> list[UpstreamEdge]:
        """Return a node's rows partitioned by key; all to one subtask if there is no key."""
        partitioner: Partitioner = ColumnKeyPartitioner(keys) if keys else GlobalPartitioner()
        return [UpstreamEdge(e.source, partitioner, e.tag, input_index) for e in self.ends(planned)]


Translation = Callable[[Translator, Planned], list[UpstreamEdge]]


def preserve_order(ends: list[UpstreamEdge], planned: Planned) -> list[UpstreamEdge]:
    """Return ends that send changes of one row to the same subtask, at any parallelism of the next operator.

    Args:
        ends: the transformations that emit the rows.
        planned: the node whose rows they are.
    """
    if planned.traits.changes == INSERTS:
        return ends
    key = min((sorted(key) for key in planned.traits.upsert_keys if key), key=lambda k: (len(k), k), default=None)
    partitioner = OrderedPartitioner() if key is None else ColumnKeyPartitioner(tuple(key))
    return [
        e if e.partitioner else UpstreamEdge(e.source, ForwardElse(partitioner), e.tag, e.input_index) for e in ends
    ]


def copy_parallelism(added: Transformation, ends: list[UpstreamEdge]) -> None:
    """Give a transformation the parallelism of its input, if that is a single one."""
    if len(ends) == 1:
        before = ends[0].source
        added.parallelism, added.non_parallel = before.parallelism, before.non_parallel


def arrow_types(planned: Planned) -> list[pa.DataType]:
    """Return the Arrow types of a node's columns."""
    return [arrow_type(f.type) for f in planned.node.fields.fields]

"""Goes through a plan, and has each kind of node made an operator by the module that knows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import cast

import pyarrow as pa

from millstream.graph.transformations import Program, StreamEnd, Transformation
from millstream.operators.base import Operator
from millstream.operators.runtime.partitioners import ForwardElse, GlobalPartitioner, OrderedPartitioner, Partitioner
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.errors import TableException
from millstream.sql.operators.base import ColumnKeyPartitioner
from millstream.sql.operators.query_context import Session
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.row_kinds import INSERTS

# For each kind of node the module of this package and the function in it that makes its operator.
MAKERS: Mapping[type[nodes.Node], tuple[str, str]] = {
    nodes.Scan: ("scan_calc", "scan"),
    nodes.Values: ("scan_calc", "values"),
    nodes.Calc: ("scan_calc", "calc"),
    nodes.Project: ("scan_calc", "calc"),
    nodes.Filter: ("scan_calc", "calc"),
    nodes.Union: ("scan_calc", "union"),
    nodes.MiniBatch: ("scan_calc", "union"),
    nodes.Watermark: ("scan_calc", "watermark"),
    nodes.Collected: ("scan_calc", "collected"),
    nodes.Aggregate: ("aggregates", "aggregate"),
    nodes.TableAggregate: ("aggregates", "table_aggregate"),
    nodes.LocalAggregate: ("aggregates", "local_aggregate"),
    nodes.GlobalAggregate: ("aggregates", "global_aggregate"),
    nodes.WindowAggregate: ("windows", "window_aggregate"),
    nodes.LocalWindowAggregate: ("windows", "local_window_aggregate"),
    nodes.GlobalWindowAggregate: ("windows", "global_window_aggregate"),
    nodes.WindowTable: ("windows", "window_table"),
    nodes.WindowRank: ("window_rows", "window_rank"),
    nodes.WindowJoin: ("window_rows", "window_join"),
    nodes.Join: ("joins", "join"),
    nodes.IntervalJoin: ("joins", "interval_join"),
    nodes.TemporalJoin: ("joins", "temporal_join"),
    nodes.LookupJoin: ("lookups", "lookup_join"),
    nodes.MaterializedLookupJoin: ("lookups", "lookup_join"),
    nodes.Expand: ("expand_correlate", "expand"),
    nodes.Correlate: ("expand_correlate", "correlate"),
    nodes.SetOperation: ("expand_correlate", "set_operation"),
    nodes.Sort: ("ranks", "sort"),
    nodes.Rank: ("ranks", "rank"),
    nodes.Deduplicate: ("ranks", "deduplicate"),
    nodes.ChangelogNormalize: ("ranks", "normalize"),
    nodes.ToChangelog: ("changelogs", "to_changelog"),
    nodes.FromChangelog: ("changelogs", "from_changelog"),
    nodes.Over: ("over", "over"),
    nodes.Match: ("match", "match"),
    nodes.Sink: ("sinks", "sink"),
    nodes.StreamScan: ("streams", "stream_scan"),
    nodes.ToStream: ("streams", "to_stream"),
}


class Translator:
    """Adds planned nodes to a program, each once, however many read it.

    Example:
        A table's sink becomes a sink of the program. What is collected becomes a transformation whose records are
        batches, all in one subtask; what goes to a stream, one whose records are rows.

    Attributes:
        session: the settings that operators run with.
    """

    def __init__(self, program: Program, session: Session) -> None:
        self._program = program
        self.session = session
        self._known: dict[int, list[StreamEnd]] = {}
        # So that an id is not given to another while it is known.
        self._planned: list[Planned] = []

    def translate(self, planned: Planned) -> Transformation:
        """Add what a planned sink, collected rows or a stream needs; return its last transformation."""
        (end,) = self.ends(planned)
        return end.source

    def ends(self, planned: Planned) -> list[StreamEnd]:
        """Return where the rows of a node come from: one transformation, or those of a union."""
        found = self._known.get(id(planned))
        if found is None:
            found = self._known[id(planned)] = in_order(_maker(planned)(self, planned), planned)
            self._planned.append(planned)
        return found

    def add(
        self,
        planned: Planned,
        operator: Operator,
        inputs: list[StreamEnd],
        suffix: str = "",
        parallelism: int | None = None,
    ) -> Transformation:
        """Add an operator under the name of its node."""
        added = self._program.add(planned.name, operator, inputs, parallelism=parallelism)
        if planned.uid:
            added.plan_uid = planned.uid + suffix
        return added

    def one(
        self, planned: Planned, operator: Operator, inputs: list[StreamEnd], single: bool = False
    ) -> list[StreamEnd]:
        """Add an operator to which all rows of a node come; `single` for one that has one subtask."""
        added = self.add(planned, operator, inputs)
        added.non_parallel = single
        return [StreamEnd(added)]

    def behind(self, planned: Planned, operator: Operator) -> list[StreamEnd]:
        """Add an operator that takes rows as they come, in as many subtasks as they come from."""
        (before,) = planned.inputs
        ends = self.ends(before)
        added = self.add(planned, operator, ends)
        spread_like(added, ends)
        return [StreamEnd(added)]

    def by_key(self, planned: Planned, keys: tuple[int, ...], input_index: int = 0) -> list[StreamEnd]:
        """Return a node's rows by key: without one, all in one subtask."""
        partitioner: Partitioner = ColumnKeyPartitioner(keys) if keys else GlobalPartitioner()
        return [StreamEnd(e.source, partitioner, e.tag, input_index) for e in self.ends(planned)]

    def joined(self, planned: Planned, operator: Operator) -> list[StreamEnd]:
        """Add a join whose inputs come by its keys."""
        node, (left, right) = planned.node, planned.inputs
        assert isinstance(node, nodes.Join)
        ends = [*self.by_key(left, node.left_keys), *self.by_key(right, node.right_keys, 1)]
        return self.one(planned, operator, ends, single=not node.left_keys)


Make = Callable[[Translator, Planned], list[StreamEnd]]


def _maker(planned: Planned) -> Make:
    """Return what makes an operator of a node, from the module that is loaded for it."""
    found = MAKERS.get(type(planned.node))
    if found is None:
        raise TableException(f"{type(planned.node).__name__} cannot be run yet: {planned.name}.")
    module, name = found
    return cast(Make, getattr(import_module(f"millstream.sql.translate.{module}"), name))


def in_order(ends: list[StreamEnd], planned: Planned) -> list[StreamEnd]:
    """Return ends of which rows that change each other go one way, also to an operator of another parallelism.

    Args:
        ends: where rows come from.
        planned: the node whose rows they are.
    """
    if planned.traits.changes == INSERTS:
        return ends
    key = min((sorted(key) for key in planned.traits.upsert_keys if key), key=lambda k: (len(k), k), default=None)
    way = OrderedPartitioner() if key is None else ColumnKeyPartitioner(tuple(key))
    return [e if e.partitioner else StreamEnd(e.source, ForwardElse(way), e.tag, e.input_index) for e in ends]


def spread_like(added: Transformation, ends: list[StreamEnd]) -> None:
    """Have an operator run in as many subtasks as its rows come from, where that is one operator's."""
    if len(ends) == 1:
        before = ends[0].source
        added.parallelism, added.non_parallel = before.parallelism, before.non_parallel


def kinds_of(planned: Planned) -> list[pa.DataType]:
    """Return the Arrow types of a node's columns."""
    return [arrow_type(f.type) for f in planned.node.fields.fields]

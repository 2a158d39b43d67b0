"""Runs SQL operators in tests: alone on given batches, or as a job in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.stream_execution_environment import builder_of
from millstream.graph.transformations import UpstreamEdge
from millstream.operators.base import Operator, OperatorSetup, RuntimeServices
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.metrics import MetricGroup
from millstream.operators.runtime.budget import Budget
from millstream.operators.watermarks import WatermarkEmitter
from millstream.runtime_services import requests
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.operators.io.table_io import ScanOperator, TableSinkOperator
from millstream.sql.operators.query_context import Session
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned, Traits
from millstream.sql.schema import ALL_CHANGES, Changes, Field, Fields
from millstream.sql.translate import Translator, translation_of
from millstream.sql.types import DataType
from millstream.state.keyed import KeyedState
from millstream.testing import CollectSink, LocalJob, TestingSource
from millstream.testing.local_job import MemoryStorage

KINDS = ["+I", "-U", "+U", "-D"]

# A change: its kind and the values of its row.
Change = tuple[Any, ...]


def batch_of(changes: Sequence[Change], kinds: Sequence[pa.DataType]) -> Batch:
    """Return changes as a batch with columns of some types."""
    columns = [pa.array([c[1 + i] for c in changes], kind) for i, kind in enumerate(kinds)]
    row_kinds = np.array([KINDS.index(c[0]) for c in changes], np.int8)
    return Batch(columns, row_kinds if row_kinds.any() else None, len(changes))


def changes_of(batches: Iterable[Batch]) -> list[Change]:
    """Return the rows of batches, each with its kind."""
    changes: list[Change] = []
    for batch in batches:
        rows = zip(*(c.to_pylist() for c in batch.columns), strict=True) if batch.columns else [()] * len(batch)
        changes += [(KINDS[k], *row) for k, row in zip(batch.all_kinds().tolist(), rows, strict=True)]
    return changes


def final(changes: Iterable[Change]) -> list[tuple[Any, ...]]:
    """Return the final rows of a changelog, sorted as text."""
    rows: dict[tuple[Any, ...], int] = {}
    for kind, *row in changes:
        key = tuple(_frozen(v) for v in row)
        rows[key] = rows.get(key, 0) + (1 if kind in ("+I", "+U") else -1)
        if not rows[key]:
            del rows[key]
    assert all(count > 0 for count in rows.values()), f"retracted but never inserted: {rows}"
    return sorted((row for row, count in rows.items() for _ in range(count)), key=repr)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


class Bare:
    """One operator, without a job around it."""

    def __init__(
        self,
        operator: Operator,
        clock: Callable[[], int] = lambda: 0,
        batch: bool = False,
        storage: MemoryStorage | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.operator = operator
        self.out: list[Batch] = []
        self.watermarks: list[int | None] = []
        self.storage = storage or MemoryStorage()
        services = RuntimeServices(clock, requests, lambda: 0.0)
        self.state = KeyedState("bare", 0, self.storage, clock)
        context = RuntimeContext("bare", 0, 1, 128, 0, {}, MetricGroup(("bare",)), self.state)
        setup = OperatorSetup(context, self.state, self._emit, batch, services, budget=budget or Budget())
        operator.prepare(setup)
        if isinstance(operator, WatermarkEmitter):
            operator.advance = self.watermarks.append
        self.state.prepare(None)
        self.state.begin()
        operator.open()

    def _emit(self, batches: Iterable[Batch], timestamp: int | None = None) -> None:
        self.out += batches

    def take(self, batch: Batch, input_index: int = 0) -> None:
        operator: Any = self.operator
        name = "process" if operator.inputs < 2 else ("process_left", "process_right")[input_index]
        self.out += [b for b in getattr(operator, name)(batch) if len(b)]

    def restart(self) -> None:
        """Write the state to a file, drop the state and restore it from the file."""
        self._epoch = getattr(self, "_epoch", 0) + 1
        name = self.state.write_delta(self._epoch, "a")
        self.state.prepare(name)
        self.state.begin()
        # The state is dirty and its version differs from the loaded one, so that the operator reads everything again.
        self.state._reload(name, None)

    def changes(self) -> list[Change]:
        """Return the changes since the last call."""
        out, self.out = self.out, []
        return changes_of(out)


def fields(**types: DataType) -> Fields:
    return Fields(tuple(Field(name, kind) for name, kind in types.items()))


class Batches(nodes.Node):
    """An input node of the tests, whose batches the test provides."""


class TestTranslator(Translator):
    """A translator with scans of the test's batches."""

    __test__ = False

    def put(self, planned: Planned, batches: Sequence[Any]) -> None:
        operator = ScanOperator(TestingSource(batches))
        added = self._program.add("batches", operator, parallelism=1)
        added.uid = planned.uid
        self.register(planned, [UpstreamEdge(added)])


def input_node(columns: Fields, changes: frozenset[Changes] = ALL_CHANGES, uid: str = "input") -> Planned:
    """Return a planned node whose rows the test provides."""
    return Planned(Batches(columns), (), Traits(changes), uid, uid)


def planned(node: nodes.Node, *inputs: Planned, changes: frozenset[Changes] = ALL_CHANGES, uid: str = "op") -> Planned:
    return Planned(node, inputs, Traits(changes), uid, uid)


Inputs = Sequence[tuple[Planned, Sequence[Any]]]


def add(env: StreamExecutionEnvironment, query: Planned, inputs: Inputs, session: Session | None = None) -> CollectSink:
    """Add a planned query over batches to a program; return the sink of its result."""
    translator = TestTranslator(builder_of(env).program, session or Session(), translation_of)
    for node, batches in inputs:
        translator.put(node, batches)
    end = translator.translate(planned(nodes.Collected(query.node.fields, query.node), query, uid=f"{query.uid}-all"))
    sink = CollectSink()
    out = builder_of(env).program.add("collect", TableSinkOperator(sink), [UpstreamEdge(end)], parallelism=1)
    out.uid = f"{query.uid}-sink"
    builder_of(env).add_sink(out)
    return sink


def collecting(
    query: Planned, inputs: Inputs, parallelism: int = 1, session: Session | None = None
) -> tuple[StreamExecutionEnvironment, CollectSink]:
    """Return a program that runs a planned query over batches, and the sink of its result."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    if session is not None and session.batch:
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    return env, add(env, query, inputs, session)


def run(query: Planned, inputs: Inputs, parallelism: int = 1, session: Session | None = None) -> list[Change]:
    """Run a planned query over batches to its end; return the changes."""
    env, sink = collecting(query, inputs, parallelism, session)
    LocalJob(env).run()
    return changes_of(sink.results())


def kinds_of(columns: Fields) -> list[pa.DataType]:
    return [arrow_type(f.type) for f in columns.fields]

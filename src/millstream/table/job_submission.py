"""Plans bound statements, adds their operators to the program, and starts jobs.

`Runner.run` calls the optimizer (`plan`), the translator, and the DataStream API, which starts the program as a job
(`datastream/table_bridge.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from millstream.datastream.table_bridge import Bridge
from millstream.graph.transformations import Transformation, UpstreamEdge
from millstream.operators.runtime.partitioners import ForwardElse, OrderedPartitioner
from millstream.sql.catalog.manager import CatalogManager
from millstream.sql.errors import TableException
from millstream.sql.language.statements import Client, Delete, Statement, Truncate, Update
from millstream.sql.operators.io.table_io import TableSinkOperator
from millstream.sql.operators.query_context import Session
from millstream.sql.optimizer.planner import plan
from millstream.sql.optimizer.state_report import unbounded_state
from millstream.sql.plan.nodes import Collected, Node, Planned, Sink, ToStream
from millstream.sql.schema import INSERTS
from millstream.sql.translate import Translator, translation_of
from millstream.table.table_config import TableConfig
from millstream.table.table_result import JobResult, QueryResult, TableResult

log = logging.getLogger("millstream")

_PARALLELISM = "table.exec.resource.default-parallelism"
_WIDTH = "table.display.max-column-width"
_SYNC = "table.dml-sync"
_NAME = "pipeline.name"

End = Sink | Collected | ToStream


class Runner:
    """Runs queries and statements of an environment."""

    def __init__(self, bridge: Bridge, config: TableConfig, catalogs: CatalogManager) -> None:
        self._bridge = bridge
        self._config = config
        self._catalogs = catalogs

    def settings(self) -> dict[str, str]:
        """Return all settings as text."""
        return {k: str(v) for k, v in self._bridge.settings().to_dict().items()}

    @property
    def is_batch(self) -> bool:
        """Whether jobs run in batch mode."""
        return self._bridge.is_batch

    def planned(self, ends: Sequence[End]) -> list[Planned]:
        """Return the plans of ends."""
        return plan(list(ends), self.settings(), self.is_batch)

    def translated(self, ends: Sequence[End]) -> list[Transformation]:
        """Add the operators of ends to the program; return the last of each."""
        return self._added(self.planned(ends))

    def _added(self, plans: Sequence[Planned]) -> list[Transformation]:
        session = Session(
            batch=self.is_batch,
            options=self.settings(),
            time_zone=self._config.get_local_timezone(),
            query_start=time.time_ns() // 1_000_000,
            catalog=self._catalogs.current_catalog,
            database=self._catalogs.current_database,
        )
        before = len(self._bridge.program.transformations)
        translator = Translator(self._bridge.program, session, translation_of)
        for warning in () if self.is_batch else unbounded_state(plans):
            log.warning("SQL: %s", warning)
        ends = [translator.translate(p) for p in plans]
        self._set_parallelism(self._bridge.program.transformations[before:])
        return ends

    def _set_parallelism(self, added: Sequence[Transformation]) -> None:
        parallelism = int(self.settings().get(_PARALLELISM, "-1"))
        for transformation in added if parallelism > 0 else ():
            if transformation.parallelism is None and not transformation.non_parallel:
                transformation.parallelism = parallelism

    def collect(self, node: Node) -> QueryResult:
        """Run a query that returns its rows."""
        end = Collected(node.fields, node)
        with self._bridge.added():
            plans = self.planned([end])
            (last,) = self._added(plans)
            batches, client = self._bridge.collect(self._name("collect"), last, TableSinkOperator)
        zone, max_width = self._config.get_local_timezone(), int(self._config.get(_WIDTH, "30"))
        is_append_only = plans[0].traits.changes == INSERTS
        return QueryResult(node.fields, zone, batches, client, not self.is_batch, max_width, is_append_only)

    def run(self, sinks: Sequence[Sink]) -> TableResult:
        """Start a job that writes to tables."""
        return self.run_planned(self.planned(sinks))

    def run_planned(self, plans: Sequence[Planned]) -> TableResult:
        """Start a job of plans that write to tables."""
        names = [".".join(p.node.name) for p in plans if isinstance(p.node, Sink)]
        with self._bridge.added():
            ends = self._added(plans)
            client = self._bridge.start(self._name(f"insert-into_{','.join(names)}"), ends)
        result = JobResult(names, client)
        if self._config.get(_SYNC, "false").lower() == "true":
            result.wait()
        return result

    def execution_plan(self, ends: Sequence[End]) -> str:
        """Return the job graph of ends as JSON, without starting a job."""
        with self._bridge.added():
            return self._bridge.execution_plan(self.translated(ends))

    def attach(self, sinks: Sequence[Sink]) -> None:
        """Add statements to the program's next `execute()`."""
        self._bridge.attach(self.translated(sinks))

    def stream(self, end: ToStream) -> UpstreamEdge:
        """Add a query to the program as a stream of rows; changes of a row stay in order."""
        (plan,) = self.planned([end])
        (last,) = self._added([plan])
        return UpstreamEdge(last, None if plan.traits.changes == INSERTS else ForwardElse(OrderedPartitioner()))

    def _name(self, otherwise: str) -> str:
        return self._config.get(_NAME, otherwise)


def refuse_unknown(statement: Statement, batch: bool) -> TableException:
    """Return the error of a statement that execute_sql() does not support."""
    if isinstance(statement, (Delete, Truncate, Update)):
        word = type(statement).__name__.upper()
        name = ".".join(statement.table)
        if not batch:
            return TableException(f"{word} statement is not supported for streaming mode now.")
        return TableException(f"{word} statement is not supported for table {name}: no connector can change rows yet.")
    word = statement.word if isinstance(statement, Client) else type(statement).__name__
    return TableException(f"{word} is a statement for a client, not for execute_sql().")

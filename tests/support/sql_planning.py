"""A small environment for tests of SQL's binder, planner and catalogs: tables without connectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.sql.bind.binder import Binder
from millstream.sql.bind.functions import LanguageFunctions
from millstream.sql.catalog.manager import CatalogManager
from millstream.sql.connector_contract import TableContext, TableSink, TableSource
from millstream.sql.ddl.executor import Ddl, Result
from millstream.sql.language.statement_grammar import read_statement, read_statements
from millstream.sql.language.statements import Explain, Insert, QueryStatement
from millstream.sql.optimizer.explain import explained
from millstream.sql.optimizer.planner import plan
from millstream.sql.plan.nodes import Collected, Node, Planned, Sink
from millstream.sql.schema import ALL_CHANGES, INSERTS, UPSERTS
from millstream.sql.types import DataType, DataTypes

CHANGES = {"inserts": INSERTS, "upserts": UPSERTS, "all": ALL_CHANGES}

TABLES = """
CREATE TABLE t (
    a INT, b BIGINT, c STRING, ts TIMESTAMP(3), p AS PROCTIME(), r ROW<f INT, g STRING>, arr ARRAY<INT>,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'none');
CREATE TABLE u (
    k INT, v STRING, uts TIMESTAMP(3), WATERMARK FOR uts AS uts, PRIMARY KEY (k) NOT ENFORCED
) WITH ('connector' = 'none');
CREATE TABLE ups (k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'none', 'changes' = 'upserts');
CREATE TABLE files (a INT, b BIGINT) WITH ('connector' = 'none', 'changes' = 'inserts');
CREATE TABLE printed (a INT, b BIGINT) WITH ('connector' = 'none', 'changes' = 'all');
CREATE TABLE keyed (a INT, b BIGINT, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'none', 'changes' = 'upserts');
"""


class Source(TableSource):
    """A source without rows."""

    def __init__(self, options: dict[str, str]) -> None:
        self.changes = CHANGES[options.get("changes", "inserts")]

    def source(self, columns: Any, filters: Any = (), limit: int | None = None) -> Any:
        raise AssertionError("nothing is run here")

    def metadata(self) -> dict[str, DataType]:
        return {"offset": DataTypes.BIGINT(False)}


class Target(TableSink):
    """A sink that discards rows."""

    def __init__(self, options: dict[str, str]) -> None:
        self.changes = CHANGES[options.get("changes", "all")]

    def sink(self, columns: Any) -> Any:
        raise AssertionError("nothing is run here")


class NoConnectors:
    """Creates sources and sinks for every table."""

    def source(self, context: TableContext) -> TableSource:
        return Source(context.table.options)

    def sink(self, context: TableContext) -> TableSink:
        return Target(context.table.options)


@dataclass
class Scalar:
    """A user-defined function."""

    name: str
    result_type: DataType
    kind: str = "scalar"
    input_types: list[DataType] | None = None
    deterministic: bool = True
    alias_names: tuple[str, ...] = ()
    result_types: list[DataType] = field(default_factory=list)
    result_names: list[str] | None = None

    def __hash__(self) -> int:
        return hash(self.name)


class Session:
    """Runs catalog statements; binds and plans the others."""

    def __init__(self, tables: str = TABLES, batch: bool = False) -> None:
        self.catalogs = CatalogManager()
        self.settings: dict[str, str] = {}
        self.batch = batch
        self.binder = Binder(self.catalogs, LanguageFunctions(), self.settings, NoConnectors(), batch)
        self.ddl = Ddl(self.binder, self.settings, load_function=lambda f: f)
        for statement, text in read_statements(tables):
            self.ddl.execute(statement, text)

    def run(self, text: str) -> Result:
        """Execute a catalog statement."""
        return self.ddl.execute(read_statement(text), text)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return the rows of a SHOW or DESCRIBE."""
        return list(self.run(text).rows)

    def names(self, text: str) -> list[Any]:
        """Return the only column of a SHOW."""
        return [row[0] for row in self.rows(text)]

    def bound(self, text: str) -> Node:
        """Bind a query or an INSERT."""
        statement = read_statement(text)
        if isinstance(statement, Explain):
            statement = statement.statement
        if isinstance(statement, Insert):
            return self.binder.insert(statement, text)
        assert isinstance(statement, QueryStatement)
        return self.binder.query(statement.query, text=text)

    def end(self, text: str) -> Sink | Collected:
        """Bind a query or an INSERT, as the end of a job."""
        node = self.bound(text)
        return node if isinstance(node, Sink) else Collected(node.fields, node)

    def planned(self, *texts: str) -> list[Planned]:
        """Plan queries and INSERTs as one job."""
        return plan([self.end(t) for t in texts], self.settings, self.batch)

    def plan(self, text: str) -> list[str]:
        """Return the names of a plan's nodes, indented, without the end of a query."""
        (root,) = self.planned(text)
        start = root.inputs[0] if isinstance(root.node, Collected) else root
        return list(_names(start, 0))

    def explain(self, text: str, *details: str) -> str:
        """Return the output of EXPLAIN."""
        return explained([self.end(text)], self.settings, self.batch, details)

    def columns(self, text: str) -> list[str]:
        """Return the columns of a query, each with its type."""
        return [f"{f.name} {f}" for f in self.bound(text).fields.fields]


def _names(planned: Planned, depth: int) -> Any:
    yield "  " * depth + planned.name
    for below in planned.inputs:
        yield from _names(below, depth + 1)


def nodes(planned: Planned) -> Any:
    """Yield all nodes of a plan, starting at its root."""
    yield planned
    for below in planned.inputs:
        yield from nodes(below)


def kinds(planned: Planned) -> str:
    """Return the changelog mode of a node, as EXPLAIN prints it."""
    order = ["I", "UB", "UA", "D"]
    return ",".join(k for k in order if k in {c.value for c in planned.traits.changes})

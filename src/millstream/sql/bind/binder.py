"""The binder: converts queries and statements of SQL and the Table API to plan nodes.

`Binder` calls a module for each part: `insert.py` and `select.py` for statements, `relations.py` for FROM, `tables.py`
for tables, `expressions.py` for expressions. They call `Binder` for nested queries, FROM
and tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from millstream.sql.bind import changelogs, insert, relation_builder, windows
from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.functions import Functions, UserFunction, resolved_user_call
from millstream.sql.bind.grouping import GroupWindow
from millstream.sql.bind.relations import RelationBinder, unordered
from millstream.sql.bind.scope import BindError, Scope, located
from millstream.sql.bind.select import SelectBinder, ordinal, whole_number
from millstream.sql.bind.table_steps import TableSteps
from millstream.sql.bind.tables import Connectors, scanned
from millstream.sql.bind.unbound_calls import cast
from millstream.sql.catalog.manager import CatalogManager, InlineView
from millstream.sql.expressions import Column, Expression
from millstream.sql.functions.table import unknown
from millstream.sql.language import statements, syntax
from millstream.sql.language.statement_grammar import read_statement
from millstream.sql.plan.nodes import Node, Sink
from millstream.sql.schema import Field
from millstream.sql.types import DataType

# Operators of the language that belong to no module of Flink: catalog functions take precedence.
# fmt: off
_SQL_OPERATORS = frozenset([
    "CASE", "CHARACTER_LENGTH", "DAYOFMONTH", "DAYOFWEEK", "DAYOFYEAR", "FIELD", "HOUR", "IF",
    "IS_ALPHA", "IS_DECIMAL", "IS_DIGIT", "ITEM", "MINUTE", "MONTH", "NULLIF", "OVERLAPS", "QUARTER",
    "SECOND", "TIMESTAMPADD", "WEEK", "YEAR",
])
# fmt: on


class Binder(TableSteps):
    """Binds queries and statements.

    Attributes:
        catalogs: resolves tables, views and user functions.
        functions: the built-in functions.
        settings: the environment's configuration.
        connectors: creates sources and sinks of tables.
        batch: whether jobs run in batch mode.
    """

    # Table functions of FROM that take a table: windows and changelog conversions.
    TABLE_FUNCTIONS = windows.FUNCTIONS | changelogs.FUNCTIONS

    def __init__(
        self,
        catalogs: CatalogManager,
        functions: Functions,
        settings: Mapping[str, str],
        connectors: Connectors | None = None,
        batch: bool = False,
    ) -> None:
        self.catalogs = catalogs
        self.functions = functions
        self.settings = settings
        self.connectors = connectors
        self.batch = batch
        self._named: dict[str, Node] = {}
        self._views: list[tuple[str, ...]] = []

    # --- entry

    def query(self, query: syntax.Query, outer: Scope | None = None, text: str = "") -> Node:
        """Return the node of a query; with the text, errors have a location."""
        with locating_errors(text):
            return self._query(query, outer)

    def insert(self, statement: statements.Insert, text: str = "") -> Sink:
        """Return the sink node of an INSERT."""
        with locating_errors(text):
            return insert.bound(self, statement)

    def written_to(self, node: Node, path: Sequence[str], overwrite: bool = False) -> Sink:
        """Return the sink node of a relation, as `execute_insert` needs it."""
        with locating_errors(""):
            return insert.written(self, node, tuple(path), overwrite=overwrite)

    # --- queries

    def _query(self, query: syntax.Query, outer: Scope | None) -> Node:
        if isinstance(query, syntax.Select):
            return SelectBinder(self, query, outer).bound()[0]
        if isinstance(query, syntax.Values):
            return self._values(query, outer)
        if isinstance(query, syntax.TableQuery):
            return self.table(query.table)[0]
        if isinstance(query, syntax.SetOperation):
            left, right = self._query(query.left, outer), self._query(query.right, outer)
            return relation_builder.set_operation(query.operator, query.all, left, right, query.position)
        if isinstance(query, syntax.Ordered):
            return self._ordered(query, outer)
        assert isinstance(query, syntax.With)
        before = self._named
        self._named = dict(before)
        try:
            for name, columns, inner in query.tables:
                node = self._query(unordered(inner), outer)
                if columns and len(columns) != len(node.fields):
                    raise BindError(f"Number of columns must match number of query columns of '{name}'", inner.position)
                self._named[name] = relation_builder.renamed(node, columns) if columns else node
            return self._query(query.query, outer)
        finally:
            self._named = before

    def _values(self, query: syntax.Values, outer: Scope | None) -> Node:
        binder = ExpressionBinder(self, Scope(outer=outer))
        rows = [[self.folded(binder.bind(e)) for e in row] for row in query.rows]
        return relation_builder.rows_of(rows, position=query.position)

    def _ordered(self, query: syntax.Ordered, outer: Scope | None) -> Node:
        offset = whole_number(self, query.offset, "OFFSET") or 0
        limit = whole_number(self, query.limit, "LIMIT")
        inner = query.query
        if isinstance(inner, syntax.Select):
            node, order, own = SelectBinder(self, inner, outer).bound(query.order)
        else:
            node = self._query(inner, outer)
            order, own = self._order_of(node, query.order), len(node.fields)
        result = relation_builder.sorted_by(node, order, offset, limit)
        if own < len(node.fields):
            expressions = relation_builder.columns(result.fields)[:own]
            result = relation_builder.project(result, expressions, result.fields.names[:own])
        return result

    def _order_of(self, node: Node, keys: Sequence[syntax.SortKey]) -> list[tuple[int, bool, bool]]:
        """Return the order of a set operation or VALUES, which may use only its columns."""
        result = []
        for key in keys:
            first = not key.descending if key.nulls_first is None else key.nulls_first
            if isinstance(key.value, syntax.Literal) and key.value.kind == "INTEGER":
                index = ordinal(key.value, len(node.fields))
            else:
                bound = ExpressionBinder(self, Scope.of(node.fields)).raw(key.value)
                if not isinstance(bound, Column):
                    raise BindError("ORDER BY of a set operation must use its columns only", key.position)
                index = bound.index
            result.append((index, key.descending, first))
        return result

    # --- relations

    def relation(
        self, relation: syntax.Relation | None, outer: Scope | None, hints: Sequence[syntax.Hint] = ()
    ) -> tuple[Node, Scope]:
        """Return the node of a FROM and its scope; `hints` are those of its SELECT."""
        if relation is None:
            return relation_builder.one_row(), Scope(outer=outer)
        binder = RelationBinder(self, outer, hints)
        result = binder.bind(relation)
        binder.check_hints(result[1])
        return result

    def table(self, name: syntax.TableName) -> tuple[Node, tuple[str, ...]]:
        """Return the node of a table, view or named query, and its path."""
        if len(name.parts) == 1 and name.parts[0] in self._named:
            return self._named[name.parts[0]], name.parts
        path = self.catalogs.full_path(name.parts)
        result = self.catalogs.find(path)
        if result is None:
            raise BindError(f"Object '{name.parts[-1]}' not found{self.catalogs.suggestion(path)}", name.position)
        if isinstance(result, InlineView):
            return result.node, path
        if result.is_view:
            return self._view(path, result.query or "", [c.name for c in result.columns]), path
        options = tuple(pair for hint in name.hints if hint.name == "OPTIONS" for pair in hint.options)
        return scanned(self, path, result, options), path

    def _view(self, path: tuple[str, ...], text: str, names: Sequence[str]) -> Node:
        if path in self._views:
            raise BindError(f"The view '{'.'.join(path)}' refers to itself")
        statement = read_statement(text)
        assert isinstance(statement, statements.QueryStatement)
        named, self._named = self._named, {}
        self._views.append(path)
        try:
            with locating_errors(text), self.catalogs.using_database(path[:2]):
                return relation_builder.renamed(self._query(statement.query, None), names)
        finally:
            self._named = named
            self._views.pop()

    def function_of_table(self, call: syntax.Call, outer: Scope | None = None) -> Node:
        """Return the node of a function that takes a table."""
        if call.name.upper() in changelogs.FUNCTIONS:
            return changelogs.changelog_table(self, call, outer)
        return windows.window_table(self, call, outer)

    def group_window(self, element: syntax.Expression, binder: ExpressionBinder) -> GroupWindow | None:
        """Return the group window of a GROUP BY element; None for other expressions."""
        return windows.group_window(self, element, binder)

    # --- functions

    def user_function(self, name: str) -> UserFunction | None:
        """Return the user function of a name, or None.

        Flink's resolution order: temporary system functions, built-in functions, catalog functions, SQL operators.
        """
        result: UserFunction | None
        if self.functions.kind(name) is not None and name.upper() not in _SQL_OPERATORS:
            result = self.catalogs.find_system_function(name)
        else:
            result = self.catalogs.find_function(tuple(name.split(".")))
        return result

    def table_function(
        self, call: syntax.Call, binder: ExpressionBinder
    ) -> tuple[object, tuple[Expression, ...], tuple[Field, ...]]:
        """Return a table function, its arguments and its result columns."""
        user = self.user_function(call.name)
        if user is None or user.kind != "table":
            raise BindError(str(unknown(call.name, [binder.bind(a).type for a in call.arguments])), call.position)
        arguments_bound = [binder.bind(a) for a in call.arguments]
        resolved = resolved_user_call(call.name, user, [a.type for a in arguments_bound], call.position)
        arguments = tuple(cast(a, t) for a, t in zip(arguments_bound, resolved.arguments, strict=True))
        return user, arguments, resolved.fields

    def cast_to(self, node: Node, kinds: Sequence[DataType]) -> Node:
        """Return a relation with columns cast to some types."""
        return relation_builder.cast_to(node, kinds)

    def folded(self, expression: Expression) -> Expression:
        """Return an expression folded to a constant, if possible."""
        return self.functions.folded(expression)


@contextmanager
def locating_errors(text: str) -> Iterator[None]:
    """Add the location in the text to errors; without a text the caller adds it."""
    try:
        yield
    except BindError as e:
        if not text:
            raise
        raise located(e, text) from None

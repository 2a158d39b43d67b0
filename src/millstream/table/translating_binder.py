"""TranslatingBinder: the binder of statements and of Table API steps.

Each method calls the method of the same name of `sql/bind/binder.py`, and translates its errors to the Table API's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from millstream.common.display_text import did_you_mean
from millstream.sql.bind.binder import Binder
from millstream.sql.bind.scope import BindError
from millstream.sql.errors import ValidationException
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import JoinKind, Node, Sink
from millstream.sql.types import DataType

if TYPE_CHECKING:
    from millstream.sql.language.statements import Insert

_Bound = TypeVar("_Bound")
_UNKNOWN_COLUMN = re.compile(r"Column '(.*)' not found in any table")
_AMBIGUOUS = re.compile(r"join relations with ambiguous names: \[(.*?)[,\]]")


class TranslatingBinder:
    """Binds statements and steps with a `Binder`; errors have the Table API's messages."""

    def __init__(self, binder: Binder) -> None:
        self._binder = binder

    def _translated(self, make: Callable[[], _Bound], *inputs: Node) -> _Bound:
        try:
            return make()
        except BindError as e:
            raise ValidationException(_in_other_words(e.message, inputs)) from None

    def query(self, query: syntax.Query, text: str = "") -> Node:
        """Return the relation that a query is."""
        return self._translated(lambda: self._binder.query(query, text=text))

    def insert(self, statement: Insert, text: str = "") -> Sink:
        """Return the sink of an INSERT."""
        return self._translated(lambda: self._binder.insert(statement, text))

    def written_to(self, node: Node, path: Sequence[str], overwrite: bool = False) -> Sink:
        """Return a sink that writes a relation to a table."""
        return self._translated(lambda: self._binder.written_to(node, path, overwrite), node)

    def filter(self, node: Node, condition: syntax.Expression) -> Node:
        """Return the rows for which a condition is true."""
        return self._translated(lambda: self._binder.filter(node, condition), node)

    def select(self, node: Node, items: Sequence[syntax.SelectItem]) -> Node:
        """Return columns, or aggregates of all rows."""
        return self._translated(lambda: self._binder.select(node, items), node)

    def aggregate(self, node: Node, keys: Sequence[syntax.Expression], items: Sequence[syntax.SelectItem]) -> Node:
        """Return a row for each group."""
        return self._translated(lambda: self._binder.aggregate(node, keys, items), node)

    def table_aggregate(
        self, node: Node, keys: Sequence[syntax.SelectItem], call: syntax.Call, names: Sequence[str]
    ) -> Node:
        """Return the grouping keys and the rows of a table aggregate function for each group."""
        return self._translated(lambda: self._binder.table_aggregate(node, keys, call, names), node)

    def join(self, left: Node, right: Node, condition: syntax.Expression | None, kind: JoinKind) -> Node:
        """Return pairs of rows."""
        return self._translated(lambda: self._binder.join(left, right, condition, kind), left, right)

    def set_operation(self, operator: str, all_: bool, left: Node, right: Node) -> Node:
        """Return UNION, INTERSECT or EXCEPT."""
        return self._translated(lambda: self._binder.set_operation(operator, all_, left, right), left)

    def changelog(self, function: str, node: Node, arguments: Sequence[syntax.Expression]) -> Node:
        """Return changes as rows, or rows as changes."""
        return self._translated(lambda: self._binder.changelog(function, node, arguments), node)

    def distinct(self, node: Node) -> Node:
        """Return each row once."""
        return self._translated(lambda: self._binder.distinct(node), node)

    def order(self, node: Node, keys: Sequence[syntax.SortKey]) -> Node:
        """Return rows in an order."""
        return self._translated(lambda: self._binder.order(node, keys), node)

    def limit(self, node: Node, offset: int | None, fetch: int | None, is_sorted: bool) -> Node:
        """Return some of the rows."""
        return self._translated(lambda: self._binder.limit(node, offset, fetch, is_sorted), node)

    def rename(self, node: Node, names: Sequence[str]) -> Node:
        """Return the rows with other names of columns."""
        return self._translated(lambda: self._binder.rename(node, names), node)

    def cast_to(self, node: Node, kinds: Sequence[DataType]) -> Node:
        """Return the rows with other types of columns."""
        return self._translated(lambda: self._binder.cast_to(node, kinds), node)


def _in_other_words(message: str, inputs: Sequence[Node]) -> str:
    unknown = _UNKNOWN_COLUMN.match(message)
    if unknown is not None:
        names = [n for node in inputs for n in node.fields.names]
        hint = did_you_mean(unknown.group(1), names) or "."
        return f"Cannot resolve field [{unknown.group(1)}], input field list:[{', '.join(names)}]{hint}"
    ambiguous = _AMBIGUOUS.match(message)
    if ambiguous is not None:
        return f"Ambiguous column name: {ambiguous.group(1)}. Rename one of them with alias() or rename_columns()."
    return message

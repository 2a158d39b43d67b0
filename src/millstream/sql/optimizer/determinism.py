"""Non-deterministic updates (`table.optimizer.non-deterministic-update.strategy`), after Flink's plan visitor.

A retraction must equal the row emitted before. From the sink down, each node reports which columns of its input must be
deterministic. A lookup join can make its columns deterministic by storing its results; otherwise the query is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from millstream.common.dispatch import Dispatch
from millstream.sql.catalog.tables import ColumnKind
from millstream.sql.errors import TableException
from millstream.sql.expressions import AggregateCall, Column, Expression, columns_of, conjuncts
from millstream.sql.functions.table import non_deterministic
from millstream.sql.optimizer.changelog import UPDATE_FAST, Kinds
from millstream.sql.optimizer.names import name_of
from millstream.sql.optimizer.text import Style, by_index, text
from millstream.sql.optimizer.upsert_keys import Keys
from millstream.sql.plan import nodes as n
from millstream.sql.schema import INSERTS

STRATEGY = "table.optimizer.non-deterministic-update.strategy"
Columns = frozenset[int]
_NONE: Columns = frozenset()
_Aggregate: TypeAlias = n.Aggregate | n.TableAggregate | n.LocalAggregate | n.WindowAggregate | n.LocalWindowAggregate


class Determinism:
    """Resolves the non-deterministic updates of a plan, or rejects it.

    Args:
        known: returns the row kinds and upsert keys of a node.
    """

    def __init__(self, known: Callable[[n.Node], tuple[Kinds, Keys]]) -> None:
        self._known = known
        self._visits = (
            Dispatch[[Columns], n.Node]()
            .on(n.Scan, self._source)
            .on(n.StreamScan, self._source)
            .on(n.Values, self._source)
            .on(n.Calc, self._calc)
            .on(n.Project, self._calc)
            .on(n.Filter, self._calc)
            .on(n.LookupJoin, self._lookup_join)
            .on(n.Aggregate, self._aggregate)
            .on(n.TableAggregate, self._aggregate)
            .on(n.LocalAggregate, self._aggregate)
            .on(n.WindowAggregate, self._aggregate)
            .on(n.LocalWindowAggregate, self._aggregate)
            .on(n.Join, self._join)
            .on(n.SetOperation, self._set_operation)
            .on(n.Over, self._over)
            .on(n.Rank, self._rank)
            .on(n.Deduplicate, self._rank)
            .on(n.Sort, self._rank)
            .on(n.Correlate, self._correlate)
            .on(n.WindowTable, lambda node, required: self._passed(node, required & _all(node.input)))
            .on(n.Expand, lambda node, required: self._passed(node, required - {len(node.fields) - 1}))
            .on(n.ChangelogNormalize, self._normalize)
            .on(n.ToChangelog, lambda node, required: self._passed(node, _NONE))
            .on(n.FromChangelog, lambda node, required: self._passed(node, _NONE))
            .on(n.Match, lambda node, required: self._passed(node, _NONE))
        )

    def resolved(self, end: n.Single) -> n.Single:
        """Return the plan with lookup joins materialized where retractions need it."""
        if self._has_inserts(end):
            required = _NONE
        elif isinstance(end, n.Sink) and end.table.primary_key and end.materialize is None:
            required = frozenset(end.fields.names.index(key) for key in end.table.primary_key)
        elif isinstance(end, n.ToStream) and end.upsert:
            required = min(self._known(end.input)[1], key=len, default=_NONE)
        else:
            required = _all(end.input)
        result = self._passed(end, required)
        assert isinstance(result, n.Single)
        return result

    def _visit(self, node: n.Node, required: Columns) -> n.Node:
        visit = self._visits.find(node)
        return self._passed(node, required) if visit is None else visit(node, required)

    def _passed(self, node: n.Node, required: Columns) -> n.Node:
        """Return a node whose inputs meet the requirements on columns, except those that upsert keys fix."""
        return _over(node, [self._visit_input(i, required) for i in node.inputs])

    def _visit_input(self, below: n.Node, required: Columns) -> n.Node:
        left = [required - key for key in self._known(below)[1]]
        return self._visit(below, min(left, key=lambda one: (len(one), sorted(one)), default=required))

    def _has_inserts(self, node: n.Node) -> bool:
        return all(self._known(i)[0] == INSERTS for i in node.inputs)

    # --- row by row

    def _source(self, node: n.Scan | n.StreamScan | n.Values, required: Columns) -> n.Node:
        if isinstance(node, n.Scan) and node.source.changes != INSERTS:
            metadata = {c.metadata_key or c.name for c in node.table.columns if c.kind is ColumnKind.METADATA}
            columns = [node.fields.names[i] for i in sorted(required) if node.columns[i] in metadata]
            if columns:
                raise TableException(
                    f"The metadata column(s): '{', '.join(columns)}' in cdc source may cause wrong result or error on "
                    "downstream operators, please consider removing these columns or use a non-cdc source that only "
                    f"has insert messages.\nsource node:\n{self._text(node)}"
                )
        return node

    def _calc(self, node: n.Calc | n.Project | n.Filter, required: Columns) -> n.Node:
        if self._has_inserts(node) or not required:
            return self._passed(node, _NONE)
        if not isinstance(node, n.Project):
            self._check_condition(node, node.condition)
        if isinstance(node, n.Filter):
            return self._passed(node, required)
        self._check_columns(node, required, dict(enumerate(node.expressions)))
        return self._passed(node, frozenset(c for i in required for c in columns_of(node.expressions[i])))

    def _correlate(self, node: n.Correlate, required: Columns) -> n.Node:
        if self._has_inserts(node) or not required:
            return self._passed(node, _NONE)
        self._check_condition(node, node.condition)
        result = required - _all(node.input)
        if result and not getattr(node.function, "deterministic", True):
            self._refuse(node, dict.fromkeys(result, node.function.name))
        return self._passed(node, required & _all(node.input))

    def _lookup_join(self, node: n.LookupJoin, required: Columns) -> n.Node:
        if self._has_inserts(node) or not required:
            return self._passed(node, _NONE)
        self._check_condition(node, node.condition)
        self._check_condition(node, node.filter)
        width = len(node.input.fields)
        self._check_columns(node, required, {width + i: e for i, e in enumerate(node.expressions)})
        result = self._passed(node, required & _all(node.input))
        assert isinstance(result, n.LookupJoin)
        if all(i < width or _is_looked_up_key(node, node.expressions[i - width]) for i in required):
            return result
        key = min(self._known(node.input)[1], key=lambda one: (len(one), sorted(one)), default=_NONE)
        state_key = tuple(sorted(key or _all(node.input)))
        return n.MaterializedLookupJoin(**vars(result), state_key=state_key, replaces=bool(key))

    def _normalize(self, node: n.ChangelogNormalize, required: Columns) -> n.Node:
        self._check_condition(node, node.condition)
        # It stores whole rows, so metadata columns are stable too.
        return node

    # --- stateful nodes

    def _aggregate(self, node: _Aggregate, required: Columns) -> n.Node:
        if not self._has_inserts(node):
            return self._passed(node, _all(node.input))
        calls: Sequence[AggregateCall] = (node.call,) if isinstance(node, n.TableAggregate) else node.calls
        self._check_calls(node, required, calls, len(node.keys))
        return self._passed(node, _NONE)

    def _over(self, node: n.Over, required: Columns) -> n.Node:
        width, calls = len(node.input.fields), node.over.calls
        if self._has_inserts(node):
            self._check_calls(node, required, calls, width)
            return self._passed(node, _NONE)
        used = {*node.over.partition, *(column for column, _, _ in node.over.order)}
        for i, call in enumerate(calls, width):
            if i in required:
                used |= {*call.arguments, *(() if call.condition is None else (call.condition,))}
        return self._passed(node, (required & _all(node.input)) | used)

    def _rank(self, node: n.Rank | n.Deduplicate | n.Sort, required: Columns) -> n.Node:
        if self._has_inserts(node):
            return self._passed(node, _NONE)
        if not isinstance(node, n.Deduplicate) and node.strategy == UPDATE_FAST:
            partition = node.partition if isinstance(node, n.Rank) else ()
            known = {*partition, *(column for column, _, _ in node.order)}
            return self._passed(node, (required & _all(node.input)) - known)
        return self._passed(node, _all(node.input))

    def _set_operation(self, node: n.SetOperation, required: Columns) -> n.Node:
        return _over(node, [self._visit_input(i, _NONE if self._is_inserts(i) else _all(i)) for i in node.inputs])

    def _is_inserts(self, node: n.Node) -> bool:
        return self._known(node)[0] == INSERTS

    def _join(self, node: n.Join, required: Columns) -> n.Node:
        inner = node.kind in (n.JoinKind.INNER, n.JoinKind.SEMI)
        if not (inner and self._has_inserts(node)):
            self._check_condition(node, node.condition)
        width = len(node.left.fields)
        own = required & _all(node.left), frozenset(i - width for i in required if i >= width)
        return _over(node, [self._side(i, side_required) for i, side_required in zip(node.inputs, own, strict=True)])

    def _side(self, below: n.Node, required: Columns) -> n.Node:
        kinds, keys = self._known(below)
        if kinds == INSERTS:
            return self._visit_input(below, _NONE)
        # Without a key, all columns identify the retracted row.
        return self._visit_input(below, required if keys else _all(below))

    # --- unresolvable

    def _check_calls(self, node: n.Node, required: Columns, calls: Sequence[AggregateCall], first: int) -> None:
        result = {first + i: c for i, c in enumerate(calls) if not getattr(c.user, "deterministic", True)}
        functions = {i: c.user.name for i, c in result.items() if i in required}
        if functions:
            self._refuse(node, functions)

    def _check_condition(self, node: n.Node, condition: Expression | None) -> None:
        for test in conjuncts(condition):
            function = non_deterministic(test)
            if function is not None:
                assert condition is not None
                raise TableException(
                    f"There exists non deterministic function: '{function}' in condition: "
                    f"'{text(condition, by_index, Style.PREFIX)}' which may cause wrong result in update pipeline.\n"
                    f"related rel plan:\n{self._text(node)}"
                )

    def _check_columns(self, node: n.Node, required: Columns, expressions: dict[int, Expression]) -> None:
        result = {i: non_deterministic(e) for i, e in expressions.items() if i in required}
        functions = {i: function for i, function in result.items() if function is not None}
        if functions:
            self._refuse(node, functions)

    def _refuse(self, node: n.Node, functions: dict[int, str]) -> None:
        columns = "".join(
            f"{node.fields.names[i]}(generated by non-deterministic function: {functions[i]} ) "
            for i in sorted(functions)
        )
        raise TableException(
            f"The column(s): {columns}can not satisfy the determinism requirement for correctly processing update "
            "message('UB'/'UA'/'D' in changelogMode, not 'I' only), this usually happens when input node has no "
            "upsertKey(upsertKeys=[{}]) or current node outputs non-deterministic update messages. Please consider "
            "removing these non-deterministic columns or making them deterministic by using deterministic functions.\n"
            f"\nrelated rel plan:\n{self._text(node)}"
        )

    def _text(self, node: n.Node) -> str:
        return "\n".join(self._lines(node, 0))

    def _lines(self, node: n.Node, depth: int) -> Iterator[str]:
        traits = [n.Traits(*self._known(i)) for i in node.inputs]
        yield f"{'   ' * (depth - 1) + '+- ' if depth else ''}{name_of(node, traits)}"
        for below in node.inputs:
            yield from self._lines(below, depth + 1)


def _is_looked_up_key(node: n.LookupJoin, expression: Expression) -> bool:
    """Return whether a column belongs to the lookup table's primary key, so that its value is the input's."""
    columns, key = node.scan.columns, set(node.scan.table.primary_key)
    if not key <= {columns[k] for k in node.lookup_keys}:
        return False
    return isinstance(expression, Column) and columns[expression.index] in key


def _all(node: n.Node) -> Columns:
    return frozenset(range(len(node.fields)))


def _over(node: n.Node, inputs: Sequence[n.Node]) -> n.Node:
    same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
    return node if same else node.with_inputs(inputs)

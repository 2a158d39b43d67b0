"""Binds FROM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.bind import relation_builder
from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.match import matched
from millstream.sql.bind.scope import BindError, Scope, Source
from millstream.sql.bind.tables import check_hint
from millstream.sql.expressions import Column, Expression, conjunction
from millstream.sql.language import syntax
from millstream.sql.plan.nodes import Apply, Correlate, Join, JoinKind, Node, TemporalJoin
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import ArrayType, IntType, MapType, MultisetType, RowType

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder


_KINDS = {
    "INNER": JoinKind.INNER,
    "CROSS": JoinKind.INNER,
    "LEFT": JoinKind.LEFT,
    "RIGHT": JoinKind.RIGHT,
    "FULL": JoinKind.FULL,
}
UNNEST = "UNNEST"
_JOIN_HINTS = ("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP")
# MULTI_JOIN affects only the state of joins, not their result.
_OTHER_HINTS = ("LOOKUP", "MULTI_JOIN", "STATE_TTL", "OPTIONS")
# Name of a USING column where either side may be null.
_USING = ("$using",)


@fast_dataclass
class BoundRelation(syntax.Relation):
    """A bound relation in place of a syntactic one."""

    node: Node


def joined_fields(kind: JoinKind, left: Fields, right: Fields) -> Fields:
    """Return the columns of a join; those of an outer side become nullable."""
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        return left
    first = left.fields if kind in (JoinKind.INNER, JoinKind.LEFT) else _nullable(left)
    second = right.fields if kind in (JoinKind.INNER, JoinKind.RIGHT) else _nullable(right)
    return Fields((*first, *_distinct_names(left.names, second)))


def _distinct_names(taken: list[str], fields: tuple[Field, ...]) -> list[Field]:
    """Number columns with duplicate names: plans identify columns by name."""
    names, result = set(taken), []
    for field in fields:
        name, number = field.name, 0
        while name in names:
            name = f"{field.name}{number}"
            number += 1
        names.add(name)
        result.append(replace(field, name=name))
    return result


def unordered(query: syntax.Query) -> syntax.Query:
    """Return a subquery without ORDER BY, which has no effect without LIMIT."""
    if isinstance(query, syntax.Ordered) and query.limit is None and query.offset is None:
        return query.query
    return query


def _nullable(fields: Fields) -> tuple[Field, ...]:
    return tuple(replace(f, type=f.type.nullable()) for f in fields.fields)


def with_types(scope: Scope, fields: Fields) -> Scope:
    """Return a scope with its names and new types."""
    sources = []
    for s in scope.sources:
        new = fields.fields[s.start : s.start + len(s.fields)]
        named = tuple(replace(f, name=old.name) for f, old in zip(new, s.fields.fields, strict=True))
        sources.append(Source(s.path, s.start, Fields(named)))
    return Scope(tuple(sources), scope.merged, scope.outer)


def _temporal_join(join: Node, time: Expression, left: Node, right: Node, table: syntax.TableName) -> TemporalJoin:
    """Return the temporal join with the version of the right side at a time of the left one."""
    assert isinstance(join, Join)
    if not isinstance(time, Column) or left.fields[time.index].time is None:
        raise BindError(
            "Temporal table join currently only supports 'FOR SYSTEM_TIME AS OF' left table's time attribute field",
            table.position,
        )
    if join.kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise BindError(
            f"Temporal table join currently only support INNER JOIN and LEFT JOIN, but was {join.kind.name} JOIN",
            table.position,
        )
    event = left.fields[time.index].time is TimeAttribute.ROWTIME
    times = [i for i, f in enumerate(right.fields.fields) if f.time is TimeAttribute.ROWTIME]
    if event and not times:
        raise BindError(
            "Event-Time Temporal Table Join requires both primary key and row time attribute in versioned table, but "
            "no row time attribute can be found.",
            table.position,
        )
    return TemporalJoin(
        join.fields,
        left,
        right,
        join.kind,
        join.left_keys,
        join.right_keys,
        join.null_safe,
        join.condition,
        time.index,
        times[0] if times else 0,
        event,
    )


class RelationBinder:
    """Binds the relations of one FROM."""

    def __init__(self, binder: Binder, outer: Scope | None, hints: Sequence[syntax.Hint] = ()) -> None:
        self._binder = binder
        self._outer = outer
        self._hints = hints
        self._lookups = [(h, dict(h.options)) for h in hints if h.name == "LOOKUP"]

    def check_hints(self, scope: Scope) -> None:
        """Reject unknown hints, and hints on unknown tables."""
        for hint, options in self._lookups:
            check_hint(options)
            _check_hint_tables(hint, [options["table"]], scope)
        for hint in self._hints:
            if hint.name in _JOIN_HINTS:
                if not hint.words:
                    raise BindError(
                        f"Invalid hint: {hint.name}, expecting at least one table or view specified in hint "
                        f"{hint.name}.",
                        hint.position,
                    )
                _check_hint_tables(hint, hint.words, scope)
            elif hint.name not in _OTHER_HINTS:
                known = ", ".join(sorted((*_JOIN_HINTS, *_OTHER_HINTS)))
                raise BindError(f"Hint {hint.name} is unknown; supported are {known}", hint.position)

    def _join_hints(self, join: syntax.Join, left: Scope, right: Scope) -> tuple[str, ...]:
        """Return the hints that name a side of a join; tables of a nested join are not a side."""
        sides = [right] if isinstance(join.left, syntax.Join) else [left, right]
        sources = [s for side in sides for s in side.sources]
        return tuple(
            h.name
            for h in self._hints
            if h.name in _JOIN_HINTS and any(s.matches((word,)) for s in sources for word in h.words)
        )

    def _lookup_hint(self, path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        """Return the options of a LOOKUP hint on a table."""
        for _, options in self._lookups:
            called = tuple(options.get("table", "").split("."))
            if path[-len(called) :] == called:
                return tuple(options.items())
        return ()

    def bind(self, relation: syntax.Relation, left: Scope | None = None) -> tuple[Node, Scope]:
        """Return the node and its scope; `left` is visible to a lateral relation."""
        if isinstance(relation, BoundRelation):
            return relation.node, self._scope(relation.node, ())
        if isinstance(relation, syntax.Aliased):
            return self._aliased(relation)
        if isinstance(relation, syntax.TableName):
            if relation.as_of is not None:
                raise BindError("FOR SYSTEM_TIME AS OF is allowed only on the right side of a join", relation.position)
            return self._table(relation)
        if isinstance(relation, syntax.Derived):
            node = self._binder.query(unordered(relation.query), outer=self._outer)
            return node, self._scope(node, ())
        if isinstance(relation, syntax.Join):
            return self._join(relation)
        if isinstance(relation, syntax.TableFunction):
            return self._function(relation)
        if isinstance(relation, syntax.Unnest):
            return self._correlated(
                relation_builder.one_row(), Scope(outer=self._outer), relation, "", (), JoinKind.INNER, None
            )
        if isinstance(relation, syntax.Matched):
            below, scope = self.bind(relation.relation)
            result = matched(self._binder, relation, below, scope)
            return result, self._scope(result, ())
        raise BindError(f"{type(relation).__name__} is not allowed in FROM", relation.position)

    def _scope(self, node: Node, path: tuple[str, ...]) -> Scope:
        return Scope.of(node.fields, path, self._outer)

    def _table(self, relation: syntax.TableName) -> tuple[Node, Scope]:
        node, path = self._binder.table(relation)
        return node, self._scope(node, path)

    def _aliased(self, relation: syntax.Aliased) -> tuple[Node, Scope]:
        node, _ = self.bind(relation.relation)
        if relation.columns:
            if len(relation.columns) != len(node.fields):
                raise BindError(
                    f"List of column aliases must have same degree as table; table has {len(node.fields)} columns "
                    f"({', '.join(node.fields.names)}), whereas alias list has {len(relation.columns)} columns",
                    relation.position,
                )
            _refuse_duplicates(relation.columns, relation.position)
            node = relation_builder.renamed(node, relation.columns)
        return node, self._scope(node, (relation.name,))

    def _function(self, relation: syntax.TableFunction) -> tuple[Node, Scope]:
        if relation.call.name.upper() in self._binder.TABLE_FUNCTIONS:
            node = self._binder.function_of_table(relation.call, self._outer)
            return node, self._scope(node, ())
        return self._correlated(
            relation_builder.one_row(), Scope(outer=self._outer), relation, "", (), JoinKind.INNER, None
        )

    # --- joins

    def _join(self, join: syntax.Join) -> tuple[Node, Scope]:
        _check_condition(join)
        left, left_scope = self.bind(join.left)
        kind = _KINDS[join.kind]
        inner, name, columns = _unaliased(join.right)
        if isinstance(inner, syntax.Unnest) or (
            isinstance(inner, syntax.TableFunction) and inner.call.name.upper() not in self._binder.TABLE_FUNCTIONS
        ):
            return self._correlated(left, left_scope, inner, name, columns, kind, join.condition)
        if isinstance(inner, syntax.Derived) and inner.lateral:
            return self._lateral(left, left_scope, join, inner, name, columns)
        if isinstance(inner, syntax.TableName) and inner.as_of is not None:
            return self._temporal(left, left_scope, join, inner, name)
        right, right_scope = self.bind(join.right)
        return self._joined(left, left_scope, right, right_scope, kind, join)

    def _joined(
        self, left: Node, left_scope: Scope, right: Node, right_scope: Scope, kind: JoinKind, join: syntax.Join
    ) -> tuple[Node, Scope]:
        fields = joined_fields(kind, left.fields, right.fields)
        scope = _joined_scope(left_scope, right_scope, join.right.position)
        condition: Expression | None = None
        if join.condition is not None:
            condition = ExpressionBinder(self._binder, scope).boolean(join.condition, "ON")
        names = join.using
        if join.natural:
            names = tuple(n for n in left.fields.names if n in right.fields.names)
        merged: list[tuple[str, int, int]] = []
        for name in names:
            a, b = left_scope.find((name,), join.position), right_scope.find((name,), join.position)
            merged.append((name, a.index, b.index + len(left.fields)))
        if merged:
            binder = ExpressionBinder(self._binder, scope)
            every = scope.fields
            tests = [binder.call("=", [Column(every[a].type, a), Column(every[b].type, b)]) for _, a, b in merged]
            condition = conjunction(tests)
        hints = self._join_hints(join, left_scope, right_scope)
        node: Node = Join(fields, left, right, kind, condition=condition, hints=hints)
        scope = with_types(scope, fields)
        return self._merged(node, scope, kind, merged)

    def _merged(
        self, node: Node, scope: Scope, kind: JoinKind, merged: list[tuple[str, int, int]]
    ) -> tuple[Node, Scope]:
        """Merge the columns of USING into one per pair."""
        if not merged:
            return node, scope
        if kind is not JoinKind.FULL:
            chosen = {n: (b if kind is JoinKind.RIGHT else a) for n, a, b in merged}
            return node, Scope(scope.sources, {**scope.merged, **chosen}, scope.outer)
        # In a full join either side may be null: take the other.
        expressions = relation_builder.columns(node.fields)
        names = list(node.fields.names)
        chosen = {}
        binder = ExpressionBinder(self._binder, scope)
        for name, a, b in merged:
            chosen[name] = len(expressions)
            expressions.append(binder.call("COALESCE", [expressions[a], expressions[b]]))
            names.append(name)
        node = relation_builder.project(node, expressions, names)
        extra = Source(_USING, scope.width, Fields(node.fields.fields[scope.width :]))
        return node, Scope((*scope.sources, extra), {**scope.merged, **chosen}, scope.outer)

    def _lateral(
        self,
        left: Node,
        left_scope: Scope,
        join: syntax.Join,
        derived: syntax.Derived,
        name: str,
        columns: tuple[str, ...],
    ) -> tuple[Node, Scope]:
        right = self._binder.query(derived.query, outer=left_scope)
        right = relation_builder.renamed(right, columns) if columns else right
        kind = _KINDS[join.kind]
        right_scope = self._scope(right, (name,) if name else ())
        scope = _joined_scope(left_scope, right_scope, derived.position)
        condition = None
        if join.condition is not None:
            condition = ExpressionBinder(self._binder, scope).boolean(join.condition, "ON")
        fields = joined_fields(kind, left.fields, right.fields)
        return Apply(fields, left, right, kind, condition), with_types(scope, fields)

    def _temporal(
        self, left: Node, left_scope: Scope, join: syntax.Join, table: syntax.TableName, name: str
    ) -> tuple[Node, Scope]:
        assert table.as_of is not None
        right, path = self._binder.table(replace(table, as_of=None))
        right_scope = self._scope(right, (name,) if name else path)
        node, scope = self._joined(left, left_scope, right, right_scope, _KINDS[join.kind], join)
        time = ExpressionBinder(self._binder, left_scope).raw(table.as_of)
        result = _temporal_join(node, time, left, right, table)
        return replace(result, hint=self._lookup_hint((name,) if name else path)), scope

    # --- table functions

    def _correlated(
        self,
        left: Node,
        left_scope: Scope,
        relation: syntax.Relation,
        name: str,
        columns: tuple[str, ...],
        kind: JoinKind,
        condition: syntax.Expression | None,
    ) -> tuple[Node, Scope]:
        if kind not in (JoinKind.INNER, JoinKind.LEFT):
            raise BindError(f"A table function cannot be on the right side of a {kind.name} JOIN", relation.position)
        binder = ExpressionBinder(self._binder, left_scope)
        ordinality = False
        if isinstance(relation, syntax.Unnest):
            function: object = UNNEST
            arguments = tuple(binder.bind(v) for v in relation.values)
            fields = _unnested(arguments, relation)
            ordinality = relation.ordinality
        else:
            assert isinstance(relation, syntax.TableFunction)
            function, arguments, fields = self._binder.table_function(relation.call, binder)
        if columns:
            if len(columns) != len(fields):
                raise BindError(
                    f"List of column aliases must have same degree as table; table has {len(fields)} columns "
                    f"({', '.join(f.name for f in fields)}), whereas alias list has {len(columns)} columns",
                    relation.position,
                )
            _refuse_duplicates(columns, relation.position)
            fields = tuple(replace(f, name=c) for f, c in zip(fields, columns, strict=True))
        elif isinstance(relation, syntax.Unnest) and name and len(fields) == 1:
            fields = (replace(fields[0], name=name),)
        right = Fields(fields)
        together = joined_fields(kind, left.fields, right)
        scope = _joined_scope(left_scope, Scope.of(right, (name,) if name else ()), relation.position)
        bound = None
        if condition is not None:
            bound = ExpressionBinder(self._binder, scope).boolean(condition, "ON")
        node: Node = Correlate(together, left, function, arguments, kind, bound, ordinality)
        if not left_scope.sources:
            # Without another relation, drop the dummy row.
            only = [Column(f.type, i + len(left.fields)) for i, f in enumerate(fields)]
            node = relation_builder.project(node, only, right.names)
            return node, Scope.of(node.fields, (name,) if name else (), self._outer)
        return node, with_types(scope, together)


def _check_hint_tables(hint: syntax.Hint, tables: Sequence[str], scope: Scope) -> None:
    for table in tables:
        if not any(s.matches(tuple(table.split("."))) for s in scope.sources):
            raise BindError(
                "The options of following hints cannot match the name of input tables or views: \n"
                f"`{table}` in `{hint.name}`",
                hint.position,
            )


def _refuse_duplicates(columns: Sequence[str], position: int | None) -> None:
    for index, name in enumerate(columns):
        if name in columns[:index]:
            raise BindError(f"Duplicate name '{name}' in column alias list", position)


def _check_condition(join: syntax.Join) -> None:
    has_one = join.natural or bool(join.using) or join.condition is not None
    if join.kind == "CROSS" and has_one:
        raise BindError(
            "Cannot specify condition (NATURAL keyword, or ON or USING clause) following CROSS JOIN",
            join.right.position,
        )
    if join.kind != "CROSS" and not has_one:
        raise BindError(
            "INNER, LEFT, RIGHT or FULL join requires a condition (NATURAL keyword or ON or USING clause); CROSS JOIN "
            "returns all pairs of rows",
            join.right.position,
        )


def _joined_scope(left: Scope, right: Scope, position: int | None) -> Scope:
    """Return the scope of two relations side by side, with distinct names."""
    taken = {s.path[-1] for s in left.sources if s.path and s.path != _USING}
    for source in right.sources:
        if source.path and source.path[-1] in taken:
            raise BindError(f"Duplicate relation name '{source.path[-1]}' in FROM clause", position)
    return left.joined(right)


def _unaliased(relation: syntax.Relation) -> tuple[syntax.Relation, str, tuple[str, ...]]:
    if isinstance(relation, syntax.Aliased):
        return relation.relation, relation.name, relation.columns
    return relation, "", ()


def _unnested(arguments: tuple[Expression, ...], relation: syntax.Unnest) -> tuple[Field, ...]:
    fields: list[Field] = []
    for number, argument in enumerate(arguments):
        kind = argument.type
        if isinstance(kind, MapType):
            fields += [Field("KEY", kind.key_type), Field("VALUE", kind.value_type)]
        elif isinstance(kind, (ArrayType, MultisetType)):
            element = kind.element_type
            if isinstance(element, RowType):
                fields += [Field(f.name, f.data_type) for f in element]
            else:
                fields.append(Field(f"EXPR${number}" if number else "EXPR$0", element))
        else:
            raise BindError(f"UNNEST takes an array, map or multiset, not {kind}", relation.position)
    if relation.ordinality:
        fields.append(Field("ORDINALITY", IntType(False)))
    return tuple(fields)

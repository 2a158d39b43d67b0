"""The syntax tree of queries, before names and types are resolved.

Each node has its offset in the text for errors; equality ignores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import TypeVar
from typing import cast as typed

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.types import DataType


@fast_dataclass
class Node:
    """A node of the syntax tree.

    Attributes:
        at: its offset in the text.
    """

    position: int = field(default=0, compare=False, kw_only=True, repr=False)


# --- expressions


class Expression(Node):
    """An expression."""


@fast_dataclass
class Name(Expression):
    """A name: a column, optionally with its table and fields: `a`, `t.a`, `t.a.b`."""

    parts: tuple[str, ...]


@fast_dataclass
class Star(Expression):
    """All columns, of all tables or of one, or all fields of a column."""

    parts: tuple[str, ...] = ()


@fast_dataclass
class Literal(Expression):
    """A literal; its form determines its type.

    Attributes:
        kind: INTEGER, DECIMAL, DOUBLE, STRING, BINARY, BOOLEAN, NULL, DATE, TIME or TIMESTAMP.
        text: the text without quotes.
    """

    kind: str
    text: str


@fast_dataclass
class Interval(Expression):
    """An interval literal: `INTERVAL '1 10:00' DAY TO MINUTE`.

    Attributes:
        text: the text between the quotes.
        negative: whether a minus precedes it.
        first, last: its units; equal for a single unit.
        precision, fraction: the precisions of the first unit and of seconds; None where missing.
    """

    text: str
    negative: bool
    first: str
    last: str
    precision: int | None = None
    fraction: int | None = None


@fast_dataclass
class Symbol(Expression):
    """A keyword as an argument: the unit of EXTRACT, the side of TRIM."""

    word: str


@fast_dataclass
class Call(Expression):
    """A call of a function, operator or special form.

    Attributes:
        name: in upper case for built-in syntax, else as written, with dots.
        arguments: the arguments.
        distinct: whether an aggregate is DISTINCT.
        condition: the FILTER of an aggregate.
        order: the ORDER BY of an aggregate.
        over: the window of an OVER, or its name.
        names: the names of named arguments.
        nulls: True for IGNORE NULLS, False for RESPECT NULLS.
    """

    name: str
    arguments: tuple[Expression, ...] = ()
    distinct: bool = False
    condition: Expression | None = None
    order: tuple[SortKey, ...] = ()
    over: Window | str | None = None
    names: tuple[str, ...] = ()
    nulls: bool | None = None


@fast_dataclass
class Cast(Expression):
    """CAST; `lenient` for TRY_CAST."""

    value: Expression
    type: DataType
    lenient: bool = False


@fast_dataclass
class Case(Expression):
    """CASE: the optional operand, the branches and the default."""

    value: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@fast_dataclass
class Field(Expression):
    """A field of an expression: `f(x).a`."""

    value: Expression
    name: str


@fast_dataclass
class In(Expression):
    """IN a list or query."""

    value: Expression
    operands: tuple[Expression, ...] | Query
    negated: bool = False


@fast_dataclass
class Quantified(Expression):
    """A comparison with SOME, ANY or ALL values of a query or list."""

    operator: str
    quantifier: str
    value: Expression
    operands: tuple[Expression, ...] | Query


@fast_dataclass
class Exists(Expression):
    """EXISTS."""

    query: Query


@fast_dataclass
class Subquery(Expression):
    """A scalar subquery, or a query as an argument."""

    query: Query


@fast_dataclass
class TableArgument(Expression):
    """A table argument of a function: `TABLE t PARTITION BY k`."""

    table: Relation
    partition: tuple[Expression, ...] = ()
    order: tuple[SortKey, ...] = ()


@fast_dataclass
class Argument(Expression):
    """A named argument of the Table API."""

    name: str
    value: Expression


@fast_dataclass
class Json(Expression):
    """A JSON function with its clauses.

    Attributes:
        name: JSON_VALUE, JSON_QUERY, JSON_EXISTS, JSON_OBJECT, JSON_ARRAY, JSON_OBJECTAGG or JSON_ARRAYAGG.
        arguments: the document and the path; keys and values in turn; or values.
        returning: the type of the RETURNING clause.
        empty, error: the ON EMPTY and ON ERROR behaviour: a keyword or a default.
        wrapper: the wrapper of JSON_QUERY.
        null: whether nulls are omitted (ABSENT) or written (NULL).
    """

    name: str
    arguments: tuple[Expression, ...]
    returning: DataType | None = None
    empty: str | Expression | None = None
    error: str | Expression | None = None
    wrapper: str | None = None
    null: str | None = None
    condition: Expression | None = None


@fast_dataclass
class SortKey(Node):
    """A sort key; `nulls_first` None where missing."""

    value: Expression
    descending: bool = False
    nulls_first: bool | None = None


@fast_dataclass
class Bound(Node):
    """A frame bound: before (-1), at (0) or after (1) the row, and the distance; None is unbounded."""

    side: int
    distance: Expression | None = None


@fast_dataclass
class Window(Node):
    """An OVER window."""

    partition: tuple[Expression, ...] = ()
    order: tuple[SortKey, ...] = ()
    unit: str | None = None
    start: Bound | None = None
    end: Bound | None = None
    base: str | None = None


# --- relations


class Relation(Node):
    """A relation."""


@fast_dataclass
class Hint(Node):
    """A hint: its name, and its options or arguments."""

    name: str
    options: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()


@fast_dataclass
class TableName(Relation):
    """A table or view by its name.

    Attributes:
        parts: the name with optional catalog and database.
        hints: its hints.
        as_of: the time of FOR SYSTEM_TIME AS OF.
    """

    parts: tuple[str, ...]
    hints: tuple[Hint, ...] = ()
    as_of: Expression | None = None


@fast_dataclass
class TableFunction(Relation):
    """A table function: a window TVF, or LATERAL TABLE(f(..))."""

    call: Call
    lateral: bool = False


@fast_dataclass
class Unnest(Relation):
    """UNNEST of arrays, maps and multisets."""

    values: tuple[Expression, ...]
    ordinality: bool = False


@fast_dataclass
class Derived(Relation):
    """A query in parentheses."""

    query: Query
    lateral: bool = False


@fast_dataclass
class Aliased(Relation):
    """A relation with an alias, optionally with column aliases."""

    relation: Relation
    name: str
    columns: tuple[str, ...] = ()


@fast_dataclass
class Join(Relation):
    """A join.

    Attributes:
        kind: INNER, LEFT, RIGHT, FULL or CROSS.
        condition: the ON condition, or None.
        using: the columns of a USING.
        natural: whether it is a NATURAL join.
    """

    kind: str
    left: Relation
    right: Relation
    condition: Expression | None = None
    using: tuple[str, ...] = ()
    natural: bool = False


@fast_dataclass
class Matched(Relation):
    """MATCH_RECOGNIZE over a relation."""

    relation: Relation
    partition: tuple[Expression, ...]
    order: tuple[SortKey, ...]
    measures: tuple[tuple[Expression, str], ...]
    rows: str
    skip: tuple[str, ...]
    pattern: tuple[PatternStep, ...]
    within: Expression | None
    subsets: tuple[tuple[str, tuple[str, ...]], ...]
    define: tuple[tuple[str, Expression], ...]


@fast_dataclass
class PatternStep(Node):
    """A pattern variable with its quantifier; `max_count` None is unbounded."""

    variable: str
    min_count: int = 1
    max_count: int | None = 1
    reluctant: bool = False


# --- queries


class Query(Node):
    """A query."""


@fast_dataclass
class SelectItem(Node):
    """A select item and its alias."""

    value: Expression
    alias: str | None = None


@fast_dataclass
class GroupingSets(Expression):
    """GROUPING SETS, CUBE or ROLLUP over lists of expressions."""

    kind: str
    sets: tuple[tuple[Expression, ...] | GroupingSets, ...]


@fast_dataclass
class Select(Query):
    """A SELECT."""

    items: tuple[SelectItem, ...]
    relation: Relation | None = None
    where: Expression | None = None
    group: tuple[Expression, ...] | None = None
    having: Expression | None = None
    windows: tuple[tuple[str, Window], ...] = ()
    distinct: bool = False
    hints: tuple[Hint, ...] = ()
    qualify: Expression | None = None


@fast_dataclass
class Values(Query):
    """VALUES."""

    rows: tuple[tuple[Expression, ...], ...]


@fast_dataclass
class TableQuery(Query):
    """`TABLE t` as a query."""

    table: TableName


@fast_dataclass
class SetOperation(Query):
    """UNION, INTERSECT or EXCEPT of two queries."""

    operator: str
    all: bool
    left: Query
    right: Query


@fast_dataclass
class Ordered(Query):
    """A query with ORDER BY, OFFSET and LIMIT; None where missing."""

    query: Query
    order: tuple[SortKey, ...] = ()
    limit: Expression | None = None
    offset: Expression | None = None


@fast_dataclass
class With(Query):
    """A query with a WITH clause."""

    tables: tuple[tuple[str, tuple[str, ...], Query], ...]
    query: Query


def walk(part: object) -> Iterator[Node]:
    """Yield all nodes of a part of a syntax tree: a node or a tuple of parts; other values have none."""
    if isinstance(part, Node):
        yield part
        for value in vars(part).values():
            yield from walk(value)
    elif isinstance(part, tuple):
        for value in part:
            yield from walk(value)


_Part = TypeVar("_Part")


def replaced(part: _Part, change: Callable[[Node], Node | None]) -> _Part:
    """Return a part of a syntax tree with nodes replaced, outermost first.

    Args:
        part: a node, a tuple of parts, or a value of a node's field.
        change: returns the replacement, of a class that may be there too; for None the node's parts are replaced.
    """
    return typed("_Part", _replaced(part, change))


def _replaced(part: object, change: Callable[[Node], Node | None]) -> object:
    if isinstance(part, tuple):
        return tuple(_replaced(member, change) for member in part)
    if not isinstance(part, Node):
        return part
    changed = change(part)
    if changed is not None:
        return changed
    parts = {name: _replaced(value, change) for name, value in vars(part).items()}
    return replace(part, **parts)  # type: ignore[arg-type]

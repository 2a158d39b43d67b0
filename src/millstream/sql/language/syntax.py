"""What a query is before names and types are known: the tree that the parser makes.

Every node knows where in the text it begins, for errors; two nodes are equal wherever they stand.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from millstream.common.fast_dataclass import record
from millstream.sql.types import DataType


@record
class Node:
    """A part of a statement.

    Attributes:
        at: where it begins in the text.
    """

    at: int = field(default=0, compare=False, kw_only=True, repr=False)


# --- expressions


class Expression(Node):
    """What has a value."""


@record
class Name(Expression):
    """A column, perhaps of a table, perhaps a field of it: `a`, `t.a`, `t.a.b`."""

    parts: tuple[str, ...]


@record
class Star(Expression):
    """All columns, of all tables or of one, or all fields of a column."""

    parts: tuple[str, ...] = ()


@record
class Literal(Expression):
    """A value that is written out; its type follows from how it is written.

    Attributes:
        kind: INTEGER, DECIMAL, DOUBLE, STRING, BINARY, BOOLEAN, NULL, DATE, TIME or TIMESTAMP.
        text: as it is written, without quotes.
    """

    kind: str
    text: str


@record
class Interval(Expression):
    """A length of time: `INTERVAL '1 10:00' DAY TO MINUTE`.

    Attributes:
        text: what is between the quotes.
        negative: whether a minus stands before it.
        first, last: its units; the same if there is one.
        precision, fraction: the digits of the first unit and of the second, None where they are not said.
    """

    text: str
    negative: bool
    first: str
    last: str
    precision: int | None = None
    fraction: int | None = None


@record
class Symbol(Expression):
    """A word that is an argument: the unit of EXTRACT, the side of TRIM."""

    word: str


@record
class Call(Expression):
    """A function, operator or special form applied to arguments.

    Attributes:
        name: in upper case for those that the language has words for, else as it is written, with dots.
        arguments: what it is applied to.
        distinct: whether an aggregate takes every value once.
        condition: the FILTER of an aggregate.
        order: the order in which an aggregate takes its values.
        over: the window of an OVER, or its name.
        names: the names of arguments that are given by name.
        nulls: whether IGNORE NULLS (True) or RESPECT NULLS (False) is said.
    """

    name: str
    arguments: tuple[Expression, ...] = ()
    distinct: bool = False
    condition: Expression | None = None
    order: tuple[SortKey, ...] = ()
    over: Window | str | None = None
    names: tuple[str, ...] = ()
    nulls: bool | None = None


@record
class Cast(Expression):
    """A value as another type; `lenient` for TRY_CAST."""

    value: Expression
    type: DataType
    lenient: bool = False


@record
class Case(Expression):
    """CASE: the value that is compared, if there is one, the branches, and what is left."""

    value: Expression | None
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@record
class Field(Expression):
    """A field of a value that is not just a name: `f(x).a`."""

    value: Expression
    name: str


@record
class In(Expression):
    """Whether a value is one of a list's or of a query's."""

    value: Expression
    among: tuple[Expression, ...] | Query
    negated: bool = False


@record
class Quantified(Expression):
    """A comparison with SOME, ANY or ALL values of a query or list."""

    operator: str
    quantifier: str
    value: Expression
    among: tuple[Expression, ...] | Query


@record
class Exists(Expression):
    """Whether a query has a row."""

    query: Query


@record
class Subquery(Expression):
    """The one value of a query; or a query as an argument."""

    query: Query


@record
class TableArgument(Expression):
    """A table as the argument of a function: `TABLE t PARTITION BY k`."""

    table: Relation
    partition: tuple[Expression, ...] = ()
    order: tuple[SortKey, ...] = ()


@record
class Argument(Expression):
    """An argument that is given by name, of the Table API."""

    name: str
    value: Expression


@record
class Json(Expression):
    """A JSON function with the words that only those have.

    Attributes:
        name: JSON_VALUE, JSON_QUERY, JSON_EXISTS, JSON_OBJECT, JSON_ARRAY, JSON_OBJECTAGG or JSON_ARRAYAGG.
        arguments: the document and the path; keys and values in turn; or values.
        returning: the type of the result where it is said.
        empty, error: what is done when there is nothing, and when something is wrong: a word, or a default.
        wrapper: how JSON_QUERY wraps.
        null: whether nulls are left out (ABSENT) or written (NULL).
    """

    name: str
    arguments: tuple[Expression, ...]
    returning: DataType | None = None
    empty: str | Expression | None = None
    error: str | Expression | None = None
    wrapper: str | None = None
    null: str | None = None
    condition: Expression | None = None


@record
class SortKey(Node):
    """What ORDER BY sorts by; `nulls_first` None where it is not said."""

    value: Expression
    descending: bool = False
    nulls_first: bool | None = None


@record
class Bound(Node):
    """An end of a frame: before (-1), at (0) or behind (1) the row, and how far; None is unbounded."""

    side: int
    distance: Expression | None = None


@record
class Window(Node):
    """What an OVER looks at."""

    partition: tuple[Expression, ...] = ()
    order: tuple[SortKey, ...] = ()
    unit: str | None = None
    start: Bound | None = None
    end: Bound | None = None
    base: str | None = None


# --- relations


class Relation(Node):
    """What has rows."""


@record
class Hint(Node):
    """A hint: its name, and options by key or plain words."""

    name: str
    options: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()


@record
class TableName(Relation):
    """A table or view by its name.

    Attributes:
        parts: catalog, database and name, as many as are said.
        hints: its hints.
        as_of: the time whose version of it is asked for.
    """

    parts: tuple[str, ...]
    hints: tuple[Hint, ...] = ()
    as_of: Expression | None = None


@record
class TableFunction(Relation):
    """The rows that a function gives: a window function, or LATERAL TABLE(f(..))."""

    call: Call
    lateral: bool = False


@record
class Unnest(Relation):
    """The elements of arrays, maps and multisets as rows."""

    values: tuple[Expression, ...]
    ordinality: bool = False


@record
class Derived(Relation):
    """A query in parentheses."""

    query: Query
    lateral: bool = False


@record
class Aliased(Relation):
    """A relation under another name, perhaps with other names of columns."""

    relation: Relation
    name: str
    columns: tuple[str, ...] = ()


@record
class Join(Relation):
    """Two relations joined.

    Attributes:
        kind: INNER, LEFT, RIGHT, FULL or CROSS.
        condition: the ON, None if there is none.
        using: the columns of a USING.
        natural: whether it is a NATURAL join.
    """

    kind: str
    left: Relation
    right: Relation
    condition: Expression | None = None
    using: tuple[str, ...] = ()
    natural: bool = False


@record
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


@record
class PatternStep(Node):
    """A variable of a pattern and how often it comes; `most` None is without end."""

    variable: str
    least: int = 1
    most: int | None = 1
    reluctant: bool = False


# --- queries


class Query(Node):
    """What gives rows and can stand alone."""


@record
class SelectItem(Node):
    """A column of a SELECT and the name it is given."""

    value: Expression
    alias: str | None = None


@record
class GroupingSets(Expression):
    """GROUPING SETS, CUBE or ROLLUP over lists of expressions."""

    kind: str
    sets: tuple[tuple[Expression, ...] | GroupingSets, ...]


@record
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


@record
class Values(Query):
    """Rows that are written out."""

    rows: tuple[tuple[Expression, ...], ...]


@record
class TableQuery(Query):
    """`TABLE t` as a query."""

    table: TableName


@record
class SetOperation(Query):
    """UNION, INTERSECT or EXCEPT of two queries."""

    operator: str
    all: bool
    left: Query
    right: Query


@record
class Ordered(Query):
    """A query with ORDER BY, OFFSET and LIMIT; None for what is not said."""

    query: Query
    order: tuple[SortKey, ...] = ()
    limit: Expression | None = None
    offset: Expression | None = None


@record
class With(Query):
    """A query with others that have names."""

    tables: tuple[tuple[str, tuple[str, ...], Query], ...]
    query: Query


def walk(node: Any) -> Any:
    """Yield a node and all nodes below it."""
    if isinstance(node, Node):
        yield node
        for value in vars(node).values():
            yield from walk(value)
    elif isinstance(node, tuple):
        for value in node:
            yield from walk(value)

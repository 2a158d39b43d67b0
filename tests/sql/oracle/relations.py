"""SQL programs as trees: each relation has its text in both dialects, and can be replaced by one of its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

# The column types in both dialects.
TYPES = {
    "int": ("BIGINT", "BIGINT"),
    "text": ("STRING", "VARCHAR"),
    "dec": ("DECIMAL(12, 2)", "DECIMAL(12, 2)"),
    "dbl": ("DOUBLE", "DOUBLE"),
    "time": ("TIMESTAMP(3)", "TIMESTAMP"),
    "date": ("DATE", "DATE"),
    "bool": ("BOOLEAN", "BOOLEAN"),
}


@dataclass(frozen=True)
class Sql:
    """A piece of SQL in both dialects."""

    flink: str
    duck: str

    def __str__(self) -> str:
        raise TypeError("a piece of SQL has two texts: put it into another one with sql()")


Piece = Sql | str

# An aggregate without keys over no rows emits a row in batch, and none in streaming, as in Flink.
_ANY = " HAVING TRUE"
NOT_EMPTY = Sql("", _ANY)


def on_stream(duck: str) -> str:
    """Return DuckDB's query for a program that runs as a stream."""
    return duck.replace(_ANY, " HAVING COUNT(*) > 0")


def sql(template: str, *parts: Piece) -> Sql:
    """Return a template with its `{}` replaced, in both dialects."""
    flink = [p.flink if isinstance(p, Sql) else p for p in parts]
    duck = [p.duck if isinstance(p, Sql) else p for p in parts]
    return Sql(template.format(*flink), template.format(*duck))


def joined(separator: str, pieces: Sequence[Piece]) -> Sql:
    """Return pieces with a separator between them."""
    return sql(separator.join(["{}"] * len(pieces)), *pieces)


def cast(piece: Piece, kind: str) -> Sql:
    """Return a value cast to another type."""
    flink, duck = TYPES[kind]
    return sql("CAST({} AS {})", piece, Sql(flink, duck))


@dataclass(frozen=True)
class Column:
    """A column of a relation; its name is used once in a program."""

    name: str
    kind: str


@dataclass(frozen=True)
class Relation:
    """A query: its text, with `{0}` for its first input, and its columns.

    Attributes:
        text: the query.
        columns: its columns.
        inputs: the queries below it.
        label: the operator.
        key: the columns that identify its rows.
        streaming_only: whether batch mode does not support it.
    """

    text: Sql
    columns: tuple[Column, ...]
    inputs: tuple[Relation, ...] = ()
    label: str = ""
    key: tuple[str, ...] = ()
    streaming_only: bool = False

    def rendered(self) -> Sql:
        """Return the text of the whole query."""
        below = [i.rendered() for i in self.inputs]
        return Sql(self.text.flink.format(*(b.flink for b in below)), self.text.duck.format(*(b.duck for b in below)))

    def labels(self) -> list[str]:
        """Return the operators, from the top."""
        return [self.label, *(label for i in self.inputs for label in i.labels())]

    def leaves(self) -> list[Relation]:
        """Return the relations without inputs."""
        return [leaf for i in self.inputs for leaf in i.leaves()] if self.inputs else [self]

    @property
    def in_batch(self) -> bool:
        """Whether batch mode supports all its operators."""
        return not self.streaming_only and all(i.in_batch for i in self.inputs)

    @property
    def depth(self) -> int:
        """The depth of the tree."""
        return 1 + max((i.depth for i in self.inputs), default=0)

    def of_kind(self, *kinds: str) -> list[Column]:
        """Return the columns of some types."""
        return [c for c in self.columns if c.kind in kinds]

    def smaller(self) -> Iterator[Relation]:
        """Return programs with one operator fewer."""
        for below in self.inputs:
            yield _with_columns(self, below)
        for index, below in enumerate(self.inputs):
            for smaller_input in below.smaller():
                yield replace(self, inputs=(*self.inputs[:index], smaller_input, *self.inputs[index + 1 :]))


def _with_columns(above: Relation, below: Relation) -> Relation:
    """Return a relation with the columns of the one above it: values of the same types, or nulls."""
    items: list[Sql] = []
    for index, column in enumerate(above.columns):
        alike = below.of_kind(column.kind)
        same = [c for c in alike if c.name == column.name]
        value: Piece = (same or alike)[index % len(same or alike)].name if alike else cast("NULL", column.kind)
        items.append(sql("{} AS {}", value, column.name))
    text = sql("SELECT {} FROM ({}) AS {}", joined(", ", items), "{0}", f"less_{above.columns[0].name}")
    return Relation(text, above.columns, (below,), "columns")

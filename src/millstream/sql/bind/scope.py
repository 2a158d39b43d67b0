"""Name resolution: scopes of relations, and errors with a location."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from millstream.common.display_text import did_you_mean
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.errors import ValidationException
from millstream.sql.language.errors import line_and_column, line_with_caret
from millstream.sql.schema import Field, Fields


class BindError(ValidationException):
    """An error in a statement whose text is not known here; `located` adds it.

    Attributes:
        message: the error in one sentence.
        position: the offset in the text.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


def located(error: BindError, text: str) -> ValidationException:
    """Return the error with line, column and caret."""
    if error.position is None or not text or error.position > len(text):
        return ValidationException(f"SQL validation failed. {error.message}" if text else error.message)
    line, column = line_and_column(text, error.position)
    caret = line_with_caret(text, error.position)
    return ValidationException(f"SQL validation failed. At line {line}, column {column}: {error.message}\n{caret}")


@fast_dataclass
class Source:
    """A relation of a FROM.

    Attributes:
        path: its alias, or its catalog, database and name.
        start: the index of its first column in the row.
        fields: its columns.
    """

    path: tuple[str, ...]
    start: int
    fields: Fields

    def matches(self, parts: tuple[str, ...]) -> bool:
        """Return whether a qualifier refers to it."""
        return bool(parts) and self.path[-len(parts) :] == parts


@fast_dataclass
class ResolvedColumn:
    """A resolved column, the parts of the name that are its fields, and the number of queries outward."""

    index: int
    field: Field
    rest: tuple[str, ...]
    level: int = 0


@fast_dataclass
class Scope:
    """The relations of a query side by side, with the enclosing scope.

    Attributes:
        sources: from left to right.
        merged: the merged columns of USING and NATURAL, by name.
        outer: the scope of the enclosing query.
    """

    sources: tuple[Source, ...] = ()
    merged: dict[str, int] = field(default_factory=dict)
    outer: Scope | None = None

    @staticmethod
    def of(fields: Fields, path: tuple[str, ...] = (), outer: Scope | None = None) -> Scope:
        """Return the scope of one relation."""
        return Scope((Source(path, 0, fields),), outer=outer)

    @property
    def width(self) -> int:
        """The number of columns."""
        return sum(len(s.fields) for s in self.sources)

    @property
    def fields(self) -> Fields:
        """All columns in order."""
        return Fields(tuple(f for s in self.sources for f in s.fields.fields))

    def joined(self, other: Scope) -> Scope:
        """Return the scope with the other's columns appended."""
        moved = tuple(replace(s, start=s.start + self.width) for s in other.sources)
        merged = {**self.merged, **{n: i + self.width for n, i in other.merged.items()}}
        return Scope(self.sources + moved, merged, self.outer)

    def find(self, parts: tuple[str, ...], position: int | None) -> ResolvedColumn:
        """Resolve a name here or in an enclosing query."""
        scope: Scope | None = self
        level = 0
        while scope is not None:
            result = scope._find_here(parts, position)
            if result is not None:
                return replace(result, level=level)
            scope, level = scope.outer, level + 1
        raise self._unknown(parts, position)

    def _find_here(self, parts: tuple[str, ...], position: int | None) -> ResolvedColumn | None:
        for length in range(len(parts) - 1, -1, -1):
            qualifier, name, rest = parts[:length], parts[length], parts[length + 1 :]
            if not qualifier and name in self.merged:
                index = self.merged[name]
                return ResolvedColumn(index, self.fields[index], rest)
            matches = [
                ResolvedColumn(source.start + i, f, rest)
                for source in self.sources
                if not qualifier or source.matches(qualifier)
                for i, f in enumerate(source.fields.fields)
                if f.name == name
            ]
            if len(matches) > 1:
                raise BindError(f"Column '{name}' is ambiguous", position)
            if matches:
                return matches[0]
        return None

    def _unknown(self, parts: tuple[str, ...], position: int | None) -> BindError:
        if len(parts) > 1:
            sources = [s for s in self._all_sources() if s.matches(parts[:-1])]
            if not sources:
                table = ".".join(parts[:-1])
                return BindError(f"Table '{table}' not found{did_you_mean(table, self._source_names())}", position)
            where = f"table '{'.'.join(parts[:-1])}'"
        else:
            sources, where = list(self._all_sources()), "any table"
        names = [f.name for s in sources for f in s.fields.fields]
        return BindError(f"Column '{parts[-1]}' not found in {where}{did_you_mean(parts[-1], names)}", position)

    def _source_names(self) -> list[str]:
        return [s.path[-1] for s in self._all_sources() if s.path]

    def _all_sources(self) -> Iterator[Source]:
        scope: Scope | None = self
        while scope is not None:
            yield from scope.sources
            scope = scope.outer

    def star(self, parts: tuple[str, ...], position: int | None) -> list[tuple[int, Field]]:
        """Return the columns of `*` or `t.*`."""
        if parts:
            for source in self.sources:
                if source.matches(parts):
                    return [(source.start + i, f) for i, f in enumerate(source.fields.fields)]
            raise BindError(f"Unknown identifier '{'.'.join(parts)}'", position)
        ambiguous = set(self.merged)
        columns = [(i, self.fields[i]) for i in self.merged.values()]
        for source in self.sources:
            columns += [(source.start + i, f) for i, f in enumerate(source.fields.fields) if f.name not in ambiguous]
        return columns

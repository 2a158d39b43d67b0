"""Expression methods for arrays, maps and rows."""

from __future__ import annotations

from typing import Any, Self

from millstream.common.errors import InvalidProgramError
from millstream.sql.language import syntax
from millstream.table.api_syntax import FieldAt
from millstream.table.expression_operators import ExpressionBase, T


class CollectionExpression(ExpressionBase[T]):
    """Arrays, maps and rows."""

    def get(self, name_or_index: str | int) -> Self:
        """Return a field of a row, by name or by place from 0."""
        if isinstance(name_or_index, int):
            return self._as(FieldAt(self._tree, name_or_index))
        return self._as(syntax.Field(self._tree, name_or_index))

    @property
    def flatten(self) -> Self:
        """All fields of a row, as columns."""
        if not isinstance(self._tree, syntax.Name):
            raise InvalidProgramError(f"flatten is for a column, as in col('a').flatten, not {self}.")
        return self._as(syntax.Star(self._tree.parts))

    def at(self, index: Any) -> Self:
        """Return the element of an array, from 1, or the value of a map's key."""
        return self._call("ITEM", index)

    def __getitem__(self, index: Any) -> Self:
        return self.at(index)

    @property
    def cardinality(self) -> Self:
        """The number of elements."""
        return self._call("CARDINALITY")

    @property
    def element(self) -> Self:
        """The only element of an array."""
        return self._call("ELEMENT")

    def array_append(self, addition: Any) -> Self:
        """Add an element at the end."""
        return self._call("ARRAY_APPEND", addition)

    def array_contains(self, needle: Any) -> Self:
        """Return whether the array contains an element."""
        return self._call("ARRAY_CONTAINS", needle)

    def array_distinct(self) -> Self:
        """Return every element once."""
        return self._call("ARRAY_DISTINCT")

    def array_position(self, needle: Any) -> Self:
        """Return the first position of an element, from 1; 0 if absent."""
        return self._call("ARRAY_POSITION", needle)

    def array_prepend(self, addition: Any) -> Self:
        """Add an element at the front."""
        return self._call("ARRAY_PREPEND", addition)

    def array_remove(self, needle: Any) -> Self:
        """Remove all elements equal to a value."""
        return self._call("ARRAY_REMOVE", needle)

    def array_reverse(self) -> Self:
        """Return the elements from the last to the first."""
        return self._call("ARRAY_REVERSE")

    def array_slice(self, start_offset: Any, end_offset: Any = None) -> Self:
        """Return the elements from one place to another, from 1."""
        return self._call("ARRAY_SLICE", start_offset, end_offset)

    def array_sort(self, ascending_order: Any = None, null_first: Any = None) -> Self:
        """Return the elements in order."""
        return self._call("ARRAY_SORT", ascending_order, null_first)

    def array_union(self, array: Any) -> Self:
        """Return the elements of both, every one once."""
        return self._call("ARRAY_UNION", array)

    def array_concat(self, *arrays: Any) -> Self:
        """Concatenate arrays."""
        return self._call("ARRAY_CONCAT", *arrays)

    def array_max(self) -> Self:
        """Return the maximum element."""
        return self._call("ARRAY_MAX")

    def array_join(self, delimiter: Any, null_replacement: Any = None) -> Self:
        """Join the elements to one text."""
        return self._call("ARRAY_JOIN", delimiter, null_replacement)

    def array_min(self) -> Self:
        """Return the minimum element."""
        return self._call("ARRAY_MIN")

    def array_except(self, array: Any) -> Self:
        """Return the elements that another array has not."""
        return self._call("ARRAY_EXCEPT", array)

    def array_intersect(self, array: Any) -> Self:
        """Return the elements that another array has, too."""
        return self._call("ARRAY_INTERSECT", array)

    @property
    def map_keys(self) -> Self:
        """The keys of a map."""
        return self._call("MAP_KEYS")

    def map_union(self, *maps: Any) -> Self:
        """Return the entries of all maps; of equal keys the last counts."""
        return self._call("MAP_UNION", *maps)

    @property
    def map_values(self) -> Self:
        """The values of a map."""
        return self._call("MAP_VALUES")

    @property
    def map_entries(self) -> Self:
        """The entries of a map, as rows."""
        return self._call("MAP_ENTRIES")

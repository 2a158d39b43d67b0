"""NOT NULL and length constraints, enforced before a sink.

The constraints are those of Flink's ConstraintEnforcer. Each checks columns of one length: those of the table, the
fields of a ROW, the elements of an ARRAY, the keys and values of a MAP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.numpy_arrays import Ints, Mask, valid_of
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.operators.base import BatchOperator

LENGTHS = "table.exec.sink.type-length-enforcer"
NESTED = "table.exec.sink.nested-constraint-enforcer"
NOT_NULL = "table.exec.sink.not-null-enforcer"

_MAX_LENGTH = 2_147_483_647
_TEXTS = (t.CharType, t.VarCharType)
_BYTES = (t.BinaryType, t.VarBinaryType)

_Flags = Mask


class _Violation(Exception):
    """A value that violates a constraint.

    Args:
        column: the path of the value.
        reason: the text after the column in the message.
        row: the position of the row among the checked ones.
    """

    def __init__(self, column: str, reason: str, row: int) -> None:
        super().__init__(column, reason, row)
        self.column, self.reason, self.row = column, reason, row


class Constraint:
    """A constraint on the values of some columns."""

    def enforce(self, columns: list[pa.Array], rows: _Flags) -> _Flags:
        """Check rows, and change columns in place where values are trimmed or padded.

        Args:
            columns: the columns.
            rows: the rows to check; others, for example in fields of a null ROW, are skipped.

        Returns:
            Which of the rows are kept.

        Raises:
            _Violation: a value is refused.
        """
        raise NotImplementedError


class NotNull(Constraint):
    """Values are not null.

    Args:
        columns: positions and names.
        drops: whether rows with a null are dropped, not refused.
    """

    def __init__(self, columns: Sequence[tuple[int, str]], drops: bool) -> None:
        self.columns = list(columns)
        self.drops = drops

    def __str__(self) -> str:
        return f"NotNullEnforcer(fields=[{', '.join(name for _, name in self.columns)}])"

    def enforce(self, columns: list[pa.Array], rows: _Flags) -> _Flags:
        for index, name in self.columns:
            valid = valid_of(columns[index])
            if valid is None:
                continue
            violations = rows & ~valid
            if not self.drops and violations.any():
                reason = (
                    "is NOT NULL, however, a null value is being written into it. You can set job configuration "
                    f"'{NOT_NULL}'='DROP' to suppress this exception and drop such records silently."
                )
                raise _Violation(name, reason, int(violations.argmax()))
            rows = rows & ~violations
        return rows


@fast_dataclass
class Limited:
    """A column with a length.

    Attributes:
        index: its position.
        name: its name.
        type: its type.
    """

    index: int
    name: str
    type: t.CharType | t.VarCharType | t.BinaryType | t.VarBinaryType

    @property
    def is_text(self) -> bool:
        """Whether it holds text, not bytes."""
        return isinstance(self.type, _TEXTS)

    @property
    def is_fixed(self) -> bool:
        """Whether the length is fixed (CHAR, BINARY)."""
        return isinstance(self.type, (t.CharType, t.BinaryType))

    @property
    def words(self) -> str:
        """The type in messages, without nullability."""
        kind = "CHAR" if self.is_text else "BINARY"
        return f"{kind if self.is_fixed else f'VAR{kind}'}({self.type.length})"

    def lengths(self, column: pa.Array) -> pa.Array:
        """Return the length of each value."""
        return pc.utf8_length(column) if self.is_text else pc.binary_length(column)

    def violations(self, column: pa.Array) -> pa.Array:
        """Return which values violate the length; null for nulls."""
        return (pc.not_equal if self.is_fixed else pc.greater)(self.lengths(column), self.type.length)

    def truncated(self, column: pa.Array) -> pa.Array:
        """Return the values truncated to the length, and padded if it is fixed."""
        length = self.type.length
        if self.is_text:
            truncated = pc.utf8_slice_codeunits(column, 0, length)
            return pc.utf8_rpad(truncated, length, " ") if self.is_fixed else truncated
        truncated = pc.binary_slice(column, 0, length)
        if not self.is_fixed:
            return truncated
        return pa.array([None if v is None else v.ljust(length, b"\0") for v in truncated.to_pylist()], column.type)


class Lengths(Constraint):
    """Text and bytes respect their lengths.

    Args:
        columns: the columns with lengths.
        refuses: whether a value of another length is refused, not trimmed or padded.
    """

    def __init__(self, columns: Sequence[Limited], refuses: bool) -> None:
        self.columns = list(columns)
        self.refuses = refuses

    def __str__(self) -> str:
        return f"LengthEnforcer(fields=[{', '.join(c.name for c in self.columns)}])"

    def enforce(self, columns: list[pa.Array], rows: _Flags) -> _Flags:
        for limit in self.columns:
            column = columns[limit.index]
            violations = rows & pc.fill_null(limit.violations(column), False).to_numpy(zero_copy_only=False)
            if not violations.any():
                continue
            if self.refuses:
                row = int(violations.argmax())
                # Flink says "string" for bytes, too.
                reason = (
                    f"is {limit.words}, however, a string of length {limit.lengths(column)[row]} is being written into "
                    f"it. You can set job configuration '{LENGTHS}' to control this behaviour."
                )
                raise _Violation(limit.name, reason, row)
            columns[limit.index] = limit.truncated(column)
        return rows


@fast_dataclass
class Nested:
    """A column whose values have nested constraints.

    Attributes:
        index: its position.
        name: its name.
        constraints: the nested constraints.
    """

    index: int
    name: str
    constraints: list[Constraint]


def _shown(nested: Sequence[Nested], equals: str = "=") -> str:
    inner = [f"{{{one.name}{equals}[{', '.join(map(str, one.constraints))}]}}" for one in nested]
    return f"(constraints=[{', '.join(inner)}])"


class NestedRows(Constraint):
    """Constraints of the fields of ROWs.

    Args:
        nested: the columns.
    """

    def __init__(self, nested: Sequence[Nested]) -> None:
        self.nested = list(nested)

    def __str__(self) -> str:
        return f"NestedRowEnforcer{_shown(self.nested)}"

    def enforce(self, columns: list[pa.Array], rows: _Flags) -> _Flags:
        for one in self.nested:
            column = columns[one.index]
            valid = valid_of(column)
            rows_to_check = rows if valid is None else rows & valid
            before = column.flatten()
            fields = list(before)
            try:
                passes = _enforced(one.constraints, fields, rows_to_check)
            except _Violation as e:
                raise _Violation(f"{one.name}.{e.column}", e.reason, e.row) from None
            rows = rows & ~(rows_to_check & ~passes)
            if any(a is not b for a, b in zip(fields, before, strict=True)):
                mask = None if valid is None else pa.array(~valid)
                columns[one.index] = pa.StructArray.from_arrays(fields, fields=list(column.type), mask=mask)
        return rows


class NestedArrays(Constraint):
    """Constraints of the elements of ARRAYs.

    Args:
        nested: the columns; the constraints are of one column, `element`.
    """

    def __init__(self, nested: Sequence[Nested]) -> None:
        self.nested = list(nested)

    def __str__(self) -> str:
        return f"NestedArrayEnforcer{_shown(self.nested)}"

    def enforce(self, columns: list[pa.Array], rows: _Flags) -> _Flags:
        for one in self.nested:
            column = columns[one.index]
            owners, positions = _entries(column, rows)
            try:
                passes = _enforced(
                    one.constraints, [column.values.take(pa.array(positions))], np.ones(len(positions), np.bool_)
                )
            except _Violation as e:
                index = positions[e.row] - column.offsets[owners[e.row]].as_py()
                inner = e.column.replace("element", "")
                raise _Violation(f"{one.name}[{index}]{inner}", e.reason, int(owners[e.row])) from None
            rows = _without(rows, owners[~passes])
        return rows


class NestedMaps(Constraint):
    """Constraints of the keys and values of MAPs.

    Args:
        nested: the columns; the constraints are of two columns, `key` and `value`.
    """

    def __init__(self, nested: Sequence[Nested]) -> None:
        self.nested = list(nested)

    def __str__(self) -> str:
        return f"NestedMapEnforcer{_shown(self.nested, '==')}"

    def enforce(self, columns: list[pa.Array], rows: _Flags) -> _Flags:
        for one in self.nested:
            column = columns[one.index]
            owners, positions = _entries(column, rows)
            entries = [part.take(pa.array(positions)) for part in (column.keys, column.items)]
            try:
                passes = _enforced(one.constraints, entries, np.ones(len(positions), np.bool_))
            except _Violation as e:
                part, dot, inner = e.column.partition(".")
                inner = f"{part}]{inner}" if dot else f"{part}]"
                raise _Violation(f"{one.name}[{inner}", e.reason, int(owners[e.row])) from None
            rows = _without(rows, owners[~passes])
        return rows


def _enforced(constraints: Sequence[Constraint], columns: list[pa.Array], rows: _Flags) -> _Flags:
    for constraint in constraints:
        rows = constraint.enforce(columns, rows)
    return rows


def _entries(column: pa.Array, rows: _Flags) -> tuple[Ints, Ints]:
    """Return the rows and positions of the entries of some rows' arrays or maps."""
    offsets = column.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    valid = valid_of(column)
    lengths = np.where(rows if valid is None else rows & valid, np.diff(offsets), 0)
    owners = np.repeat(np.arange(len(column)), lengths)
    firsts = np.cumsum(lengths) - lengths
    return owners, np.arange(len(owners)) + (offsets[:-1] - firsts)[owners]


def _without(rows: _Flags, dropped: Ints) -> _Flags:
    if not len(dropped):
        return rows
    rows = rows.copy()
    rows[dropped] = False
    return rows


# --- the constraints of types


def constraints_of(columns: Sequence[tuple[str, t.DataType]], options: Mapping[str, object]) -> list[Constraint]:
    """Return the constraints of some columns under a session's options.

    Raises:
        TableException: an option has an invalid value.
        ValidationException: values inside of collections would be trimmed or padded.
    """
    words = {key: str(options.get(key, default)).strip().upper() for key, default, _ in _OPTIONS}
    for key, _, known in _OPTIONS:
        if words[key] not in known:
            raise TableException(f"'{key}' is {', '.join(known[:-1])} or {known[-1]}, not {words[key]!r}.")
    return _constraints(columns, words)


_OPTIONS = (
    (NOT_NULL, "ERROR", ("ERROR", "DROP")),
    (LENGTHS, "IGNORE", ("IGNORE", "TRIM_PAD", "ERROR")),
    (NESTED, "IGNORE", ("IGNORE", "ROWS", "ROWS_AND_COLLECTIONS")),
)


def _constraints(columns: Sequence[tuple[str, t.DataType]], words: Mapping[str, str]) -> list[Constraint]:
    constraints: list[Constraint] = []
    needed = [(index, name) for index, (name, kind) in enumerate(columns) if not kind.is_nullable]
    if needed:
        constraints.append(NotNull(needed, words[NOT_NULL] == "DROP"))
    if words[LENGTHS] != "IGNORE":
        for kinds in (_TEXTS, _BYTES):
            limited = [
                Limited(index, name, kind) for index, (name, kind) in enumerate(columns) if isinstance(kind, kinds)
            ]
            limited = [column for column in limited if column.type.length < _MAX_LENGTH]
            constraints += [Lengths(limited, words[LENGTHS] == "ERROR")] if limited else []
    return [*constraints, *_nested(columns, words)]


def _nested(columns: Sequence[tuple[str, t.DataType]], words: Mapping[str, str]) -> list[Constraint]:
    if words[NESTED] == "IGNORE":
        return []
    constraints: list[Constraint] = []
    rows, arrays, maps = [], [], []
    for index, (name, kind) in enumerate(columns):
        if isinstance(kind, t.RowType):
            fields = [(field.name, field.data_type) for field in kind]
            rows.append(Nested(index, name, _constraints(fields, words)))
    if rows:
        constraints.append(NestedRows(rows))
    if words[NESTED] == "ROWS":
        return constraints
    if words[LENGTHS] == "TRIM_PAD":
        raise ValidationException(
            "Trimming and/or padding is not supported if constraint checking is enabled on types nested in collections."
        )
    for index, (name, kind) in enumerate(columns):
        if isinstance(kind, t.ArrayType):
            arrays.append(Nested(index, name, _constraints([("element", kind.element_type)], words)))
        elif isinstance(kind, t.MapType):
            pair = [("key", kind.key_type), ("value", kind.value_type)]
            maps.append(Nested(index, name, _constraints(pair, words)))
    constraints += [NestedArrays(arrays)] if arrays else []
    return [*constraints, *([NestedMaps(maps)] if maps else [])]


class ConstraintOperator(BatchOperator):
    """Enforces constraints on rows before a sink, like Flink's ConstraintEnforcer.

    Args:
        constraints: the constraints.
    """

    def __init__(self, constraints: Sequence[Constraint]) -> None:
        self.constraints = list(constraints)

    def __str__(self) -> str:
        return f"ConstraintEnforcer[{', '.join(map(str, self.constraints))}]"

    def process(self, batch: Batch) -> Iterable[Batch]:
        columns = list(batch.columns)
        try:
            rows = _enforced(self.constraints, columns, np.ones(len(batch), np.bool_))
        except _Violation as e:
            raise TableException(f"Column '{e.column}' {e.reason}") from None
        batch = batch.with_columns(columns)
        return (batch if rows.all() else batch.filter(rows),)

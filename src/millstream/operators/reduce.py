"""The keyed running reduce, and the reducers behind sum, min, max, min_by and max_by."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from operator import length_hint
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.inferred_types import ANYTHING, Fixed, InferredType, either, null_as_in, widened, within
from millstream.common.types import Row
from millstream.operators.base import Downstream, OperatorSetup, make_hashable
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.coercion_codegen import test_of, test_of_record
from millstream.operators.codegen.lookup_codegen import look_up, look_up_cell
from millstream.operators.codegen.object_reuse import keeps_nothing
from millstream.operators.codegen.sum_headroom import ALL, Meter, Room, room_of
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.stateful import FunctionOperator
from millstream.state.kinds import REDUCING
from millstream.state.table import MISSING, StateTable

# After so many rounds without an end nothing is known of a key's value.
_STEPS = 4


@fast_dataclass
class _Known:
    """What a loop counts on of all keys' values.

    Attributes:
        shape: what they are.
        held: the variable that is true while they have that shape, None if that cannot be told.
        room: how long they stay within the declared type, None if that cannot be told.
        sure: the variable that is true while none of them can have left it.
    """

    shape: InferredType
    held: str | None = None
    room: Room | None = None
    sure: str | None = None

    @property
    def variables(self) -> str:
        return f"{self.held}" if self.sure is None else f"{self.held} = {self.sure}"


class ReduceOperator(FunctionOperator):
    """Combines each record with the key's value so far and emits the new value.

    In BATCH only the last value of each key is emitted, at the end.
    """

    identity = "reduce"

    STATE = "_reduce"

    uses_key = True
    emits_state = True
    # Whether every key's first value has had the shape that the loop counts on: then all that came of it have it, too.
    keeps_shape = True
    # Whether there may be values of other shapes: left by an earlier program, or by a loop over other records.
    has_read = False
    _shape: InferredType | None = None
    _table: StateTable

    def __init__(self, function: UserFunction) -> None:
        super().__init__(function, keyed=True)
        self._meter = Meter()

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.state is not None
        self._table = setup.state.table(self.STATE, REDUCING)
        # The members of values that are tuples, while an epoch changes them: newer than what the table has.
        self._cells: dict[Any, list[Any]] = {}
        setup.state.when_loaded(self._when_loaded)
        self.emits_later = setup.batch

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        if self.may_use_state:
            self.set_key(w, key)
        assert key is not None
        members = None if w.many_new_keys else self._members(w, value)
        known = self._known(w, value, in_cells=members is not None)
        new = w.var()
        if members is None:
            self._whole_code(w, value, key, new, known)
        else:
            self._members_code(w, value, key, new, known, members)
        if not self.setup.batch:
            detached = value.detached and keeps_nothing(self.function.function)
            first = value.shape if known.held is None else known.shape
            shape = either(w.result(self.function.call, known.shape, value.shape), first)
            out = value.renamed(new, detached, shape)
            downstream(replace(out, condition=known.held, sure=known.sure))

    def _whole_code(self, w: CodeWriter, value: Var, key: Key, new: str, known: _Known) -> None:
        """Write the lines that replace a key's value by a new one."""
        overlay = w.bind(self._table.overlay, "overlay")
        base_get = w.bind(self._table.base.get, "base_get")
        missing, old, k = w.bind(MISSING, "missing"), w.var("a"), key.name
        # Another loop may have records of which the members are known.
        w.before(f"{w.bind(self.settle, 'settle')}()")
        if w.many_new_keys:
            self._look_at_record(w, value, known)
            make_hashable(w, key)
            w.line(f"{old} = {overlay}[{k}] if {k} in {overlay} else {base_get}({k}, {missing})")
        else:
            look_up(w, self, old, key, value.name, overlay, base_get, lambda: self._look_at(w, old, value, known))
        # A condition, not two blocks: the rest of the chain follows only once.
        reduced = w.call(self.function.call, old, value.name)
        w.line(
            f"{overlay}[{k}] = {new} = {reduced} if {old} is not {missing} else {w.written_out(value.name)}",
            self,
            value.name,
        )

    def _members(self, w: CodeWriter, value: Var) -> tuple[str, ...] | None:
        """Return the members of a record, if it and all that the function makes are tuples of so many."""
        members = w.members(value.name)
        if members is None and isinstance(value.shape, Fixed) and not value.shape.null and value.condition is None:
            members = tuple(f"{value.name}[{i}]" for i in range(len(value.shape.members)))
        width = len(w.made_of(self.function.call, "a", value.name))
        return members if members is not None and width == len(members) else None

    def _members_code(
        self,
        w: CodeWriter,
        value: Var,
        key: Key,
        new: str,
        known: _Known,
        members: tuple[str, ...],
    ) -> None:
        """Write the lines that change the members of a key's value in place, which is cheaper than another tuple."""
        cells, cell, old, stored = w.bind(self._cells, "cells"), w.var("c"), w.var("a"), w.var("a")
        changed, missing, call = [w.var("m") for _ in members], w.bind(MISSING, "missing"), self.function.call
        look_up_cell(w, self, cell, key, value.name, cells)
        with w.block(f"if {cell} is None:"):
            w.line(f"{stored} = {w.bind(self._stored, 'stored')}({key.name})")
            self._look_at(w, stored, value, known)
            with w.block(f"if {stored} is {missing}:"):
                for name, text in zip(changed, members, strict=True):
                    w.line(f"{name} = {text}")
            with w.block("else:"):
                for name, text in zip(changed, w.made_of(call, stored, value.name), strict=True):
                    w.set_member(name, text, self, value.name, call, stored, value.name)
            w.line(f"{cell} = {cells}[{key.name}] = [{', '.join(changed)}]")
        with w.block("else:"):
            places = [f"{cell}[{i}]" for i in range(len(members))]
            w.tuple_of(old, tuple(places))
            made_of = w.made_of(call, old, value.name)
            differ = [i for i, place in enumerate(places) if made_of[i] != place]
            for i in differ:
                w.set_member(changed[i], made_of[i], self, value.name, call, old, value.name)
            # When all are found.
            for i in differ:
                w.line(f"{places[i]} = {changed[i]}")
        w.tuple_of(new, tuple(changed[i] if i in differ else place for i, place in enumerate(places)))

    def _stored(self, key: Any) -> Any:
        """Return what the table has for a key, or MISSING."""
        overlay = self._table.overlay
        return overlay[key] if key in overlay else self._table.base.get(key, MISSING)

    def settle(self) -> None:
        if self._cells:
            self._table.overlay.update(zip(self._cells, map(tuple, self._cells.values()), strict=True))
            self._cells.clear()
        self._meter.begin_anew()

    def _state_shape(self, w: CodeWriter, value: Var) -> InferredType:
        """Return what a key's value is after any number of records, if it was that when the epoch began."""
        if self.declared_type is None:
            return ANYTHING
        # Of None there is no sum.
        shape = null_as_in(value.shape, w.result(self.function.call, value.shape, value.shape))
        for _ in range(_STEPS):
            reduced = w.result(self.function.call, shape, value.shape)
            if within(reduced, shape):
                return shape
            shape = widened(shape, reduced)
        return ANYTHING

    def _known(self, w: CodeWriter, value: Var, in_cells: bool) -> _Known:
        """Write the lines before the loop that say what it counts on, and return that."""
        state = self._state_shape(w, value)
        if self.declared_type is None:
            return _Known(state)
        reduce, shape = w.bind(self, "reduce"), w.bind(state, "shape")
        counts_on, held = f"{reduce}.counts_on({shape})", w.var("held")
        if not test_of(w, "", state):
            # Other loops must not count on what this one leaves.
            w.before(counts_on)
            return _Known(state)
        # Where most keys are new, looking at each value that was read costs more than it saves.
        unread = f" and not {reduce}.has_read" if w.many_new_keys else ""
        w.before(f"{held} = {counts_on}{unread}")
        room = room_of(
            state, self.declared_type.inferred_type(), lambda s: w.result(self.function.call, s, value.shape)
        )
        if room is not None and w.many_new_keys and test_of_record(w, value, room.begin):
            room = None
        sure = None if room is None else w.var("sure")
        # Of a batch that cannot tell how many records it has at most, all room is taken to be used.
        records = f"{w.bind(length_hint, 'length_hint')}(batch, {sys.maxsize})"
        stays = f"{reduce}.stays({ALL + 1 if room is None else f'{records} * {room.share}'}, {in_cells})"
        w.before(stays if sure is None else f"{sure} = {stays} and {held}")
        return _Known(state, held, room, sure)

    def counts_on(self, shape: InferredType) -> bool:
        """Return whether all values so far have the shape that a loop counts on, as far as they were looked at."""
        if self._shape != shape:
            # Loops over records of several kinds leave values of several shapes.
            self.has_read = self.has_read or self._shape is not None
            self.settle()
            self._shape = shape
        return self.keeps_shape

    def stays(self, share: int, in_cells: bool) -> bool:
        """Take notice that a batch may use up so much of the room; return whether no value can leave its type in it.

        Args:
            share: what its records may use up, of ALL.
            in_cells: whether the loop takes values into cells, where they can be looked at.
        """
        return self._meter.take(share, self.has_read, in_cells)

    def _look_at_record(self, w: CodeWriter, value: Var, known: _Known) -> None:
        """Write the lines that look at a record that may become a key's value."""
        reduce = w.bind(self, "reduce")
        test = test_of_record(w, value, known.shape) if known.held is not None else ""
        if test:
            with w.block(f"if not ({test}):"):
                w.line(f"{known.variables} = {reduce}.keeps_shape = False")
        near = test_of_record(w, value, known.room.begin) if known.room is not None else ""
        if near:
            with w.block(f"if not ({near}):"):
                w.line(f"{known.sure} = {w.bind(self._meter, 'meter')}.far()")

    def _look_at(self, w: CodeWriter, old: str, value: Var, known: _Known) -> None:
        """Write the lines that look at a key's first value in an epoch: what another program left, or the record."""
        if known.held is None:
            return
        looks = f"{w.bind(self, 'reduce')}.has_read" if known.room is None else f"{w.bind(self._meter, 'meter')}.looks"
        with w.block(f"if {old} is {w.bind(MISSING, 'missing')}:"):
            w.line("pass")
            self._look_at_record(w, value, known)
        with w.block(f"elif {looks}:"):
            self._look_at_stored(w, old, known)

    def _look_at_stored(self, w: CodeWriter, old: str, known: _Known) -> None:
        reduce, is_it = w.bind(self, "reduce"), test_of(w, old, known.shape)
        differs = f"{known.variables} = {reduce}.keeps_shape = False"
        if known.room is None:
            with w.block(f"if not ({is_it}):"):
                w.line(differs)
            return
        with w.block(f"if not ({test_of(w, old, known.room.begin)}):"):
            with w.block(f"if {is_it}:"):
                w.line(f"{known.sure} = {w.bind(self._meter, 'meter')}.far()")
            with w.block("else:"):
                w.line(differs)

    def _when_loaded(self) -> None:
        self._cells.clear()
        self.has_read = any(True for _ in self._table.rows())

    def finish(self) -> None:
        if self.setup.batch:
            self.settle()
            self.setup.emit([value for _, value in self._table.rows()])


def _replace(record: Any, position: int | str, value: Any) -> Any:
    """Return the record with one field changed; the record itself stays as it is."""
    if isinstance(record, tuple):
        fields = list(record)
        fields[position] = value  # type: ignore[index]
        return tuple(fields)
    if isinstance(record, Row):
        changed = record.__copy__()
        changed[position] = value
        return changed
    changed = record.copy()
    changed[position] = value
    return changed


def _field(record: Any, position: int | str, operation: str) -> Any:
    if position == 0 and not isinstance(record, (tuple, list, dict, Row)):
        # A single value is its own field 0.
        return record
    try:
        return record[position]
    except (IndexError, KeyError, ValueError, TypeError, AttributeError):
        raise InvalidProgramError(
            f"{operation}({position!r}): the record {record!r} has no field {position!r}. "
            f"Give the index or the name of a field that every record has."
        ) from None


def check_position(position: Any, operation: str) -> None:
    """Refuse what is neither an index nor a name."""
    if isinstance(position, bool) or not isinstance(position, (int, str)):
        raise TypeError(f"{operation}({position!r}): the field must be of int or str type.")


def combine_field(position: int | str, operation: str, combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a reducer that combines one field and keeps the others of the first record (sum, min, max)."""

    def reduce(first: Any, second: Any) -> Any:
        if not isinstance(first, (tuple, list, dict, Row)):
            if position != 0:
                raise InvalidProgramError(
                    f"{operation}({position!r}): the record {first!r} is a single value, so only field 0 can be chosen."
                )
            return combine(first, second)
        mine = _field(first, position, operation)
        return _replace(first, position, combine(mine, _field(second, position, operation)))

    return reduce


def choose_by_field(
    position: int | str, operation: str, better: Callable[[Any, Any], bool]
) -> Callable[[Any, Any], Any]:
    """Return a reducer that keeps the whole record whose field is better (min_by, max_by); ties keep the first."""

    def reduce(first: Any, second: Any) -> Any:
        mine, other = _field(first, position, operation), _field(second, position, operation)
        return second if better(other, mine) else first

    return reduce

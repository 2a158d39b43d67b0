"""The keyed running reduce.

`ReduceOperator.code` adds the lines that apply the user's function to the chain's loop: `_ReduceCode` writes them. A
key's value is in a state table (`_ReduceState`). While an epoch runs, members of tuples are changed in place, in cells,
which `write_cached` moves to the table at its end. `_ValueAssumptions` tracks what the loops may assume of the types of
all values, so that they need not test every result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from operator import length_hint

from millstream.common.aliases import Key as KeyValue
from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.inferred_types import ANYTHING, Fixed, InferredType, either, null_as_in, widened, within
from millstream.common.typeinfo import TypeInformation
from millstream.operators.base import Downstream, Operator, OperatorSetup, make_hashable
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.coercion_codegen import test_of, test_of_record
from millstream.operators.codegen.lookup_codegen import look_up, look_up_cell
from millstream.operators.codegen.object_reuse import keeps_nothing
from millstream.operators.codegen.sum_headroom import FULL_HEADROOM, Headroom, HeadroomMeter, headroom_of
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.stateful import FunctionOperator
from millstream.state.keyed import KeyedState
from millstream.state.kinds import REDUCING
from millstream.state.table import MISSING

# Maximum rounds of widening the type of a key's value; after that nothing is assumed.
_MAX_ROUNDS = 4


class ReduceOperator(FunctionOperator):
    """Combines each record with the key's value so far and emits the new value.

    In BATCH only the last value of each key is emitted, at the end.
    """

    identity = "reduce"

    uses_key = True
    emits_state = True

    _state: _ReduceState

    def __init__(self, function: UserFunction) -> None:
        super().__init__(function, keyed=True)
        self._assumptions = _ValueAssumptions(self.write_cached)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.state is not None
        self._state = _ReduceState(setup.state)
        setup.state.when_loaded(self._when_loaded)
        self.emits_later = setup.batch

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        if self.may_use_state:
            self.set_key(w, key)
        assert key is not None
        call = self.function.call
        new, assumption = _ReduceCode(w, self, call, self.declared_type, self._state, self._assumptions).write(
            value, key
        )
        if not self.setup.batch:
            detached = value.detached and keeps_nothing(self.function.function)
            first = value.inferred_type if assumption.holds is None else assumption.value_type
            result = either(w.result(call, assumption.value_type, value.inferred_type), first)
            out = value.renamed(new, detached, result)
            downstream(replace(out, condition=assumption.holds, conforms=assumption.conforms))

    def write_cached(self) -> None:
        self._state.write_cells()
        self._assumptions.meter.restart()

    def _when_loaded(self) -> None:
        self._state.cells.clear()
        self._assumptions.has_untested = not self._state.is_empty

    def finish(self) -> None:
        if self.setup.batch:
            self.write_cached()
            self.setup.emit(list(self._state.values()))


class _ReduceState:
    """The value of each key.

    Attributes:
        table: the state table.
        cells: the members of values that are tuples, while an epoch changes them in place; newer than the table.
    """

    TABLE = "_reduce"

    def __init__(self, state: KeyedState) -> None:
        self.table = state.table(self.TABLE, REDUCING)
        self.cells: dict[KeyValue, list[Value]] = {}

    def stored(self, key: KeyValue) -> Value:
        """Return the value of a key in the table, or MISSING."""
        overlay = self.table.overlay
        return overlay[key] if key in overlay else self.table.base.get(key, MISSING)

    def write_cells(self) -> None:
        """Write the cells to the table."""
        if self.cells:
            self.table.overlay.update(zip(self.cells, map(tuple, self.cells.values()), strict=True))
            self.cells.clear()

    @property
    def is_empty(self) -> bool:
        """Whether the table has no rows."""
        return not any(True for _ in self.table.rows())

    def values(self) -> Iterator[Value]:
        """Yield the values in the table."""
        return (value for _, value in self.table.rows())


class _ValueAssumptions:
    """Tracks whether all values have the inferred type that generated loops assume, and enough headroom.

    Args:
        write_cached: writes cached values to the state, before a loop with another assumption runs.

    Attributes:
        type_holds: whether the first value of every key had the assumed type, so that all later values have it too.
        has_untested: whether there may be values of other types: from an earlier program, or from a loop over other
            records.
        meter: the headroom that values have used.
    """

    def __init__(self, write_cached: Callable[[], None]) -> None:
        self.type_holds = True
        self.has_untested = False
        self.meter = HeadroomMeter()
        self._write_cached = write_cached
        self._type: InferredType | None = None

    def assume(self, value_type: InferredType) -> bool:
        """Start a loop that assumes a type of all values; return whether all tested values have it."""
        if self._type != value_type:
            # Loops over records of several kinds leave values of several types.
            self.has_untested = self.has_untested or self._type is not None
            self._write_cached()
            self._type = value_type
        return self.type_holds

    def has_headroom(self, share: int, in_cells: bool) -> bool:
        """Count the headroom that a batch may use; return whether no value can leave its declared type in it.

        Args:
            share: the headroom that its records may use, of FULL_HEADROOM.
            in_cells: whether the loop puts values into cells, where they are tested.
        """
        return self.meter.take(share, self.has_untested, in_cells)


@fast_dataclass
class _Assumption:
    """The assumptions of a loop about the values of all keys.

    Attributes:
        value_type: their inferred type.
        holds: the variable that is true while they have that type, None if that is unknown.
        headroom: their headroom within the declared type, None if that is unknown.
        conforms: the variable that is true while no value can have left the declared type.
    """

    value_type: InferredType
    holds: str | None = None
    headroom: Headroom | None = None
    conforms: str | None = None

    @property
    def variables(self) -> str:
        """The targets of an assignment that revokes the assumption."""
        return f"{self.holds}" if self.conforms is None else f"{self.holds} = {self.conforms}"


class _ReduceCode:
    """Writes the lines that combine a record with its key's value.

    Args:
        w: writes the loop.
        operator: the reduce, named in errors.
        call: the user's function.
        declared_type: the declared type of its results, None if there is none.
        state: the values.
        assumptions: what is assumed of them.
    """

    def __init__(
        self,
        w: CodeWriter,
        operator: Operator,
        call: Callable[[Value, Value], Value],
        declared_type: TypeInformation | None,
        state: _ReduceState,
        assumptions: _ValueAssumptions,
    ) -> None:
        self._w = w
        self._operator = operator
        self._call = call
        self._declared_type = declared_type
        self._state = state
        self._assumptions = assumptions

    def write(self, value: Var, key: Key) -> tuple[str, _Assumption]:
        """Write the lines; return the variable of the new value, and what is assumed of all values."""
        w = self._w
        members = None if w.many_new_keys else self._members(value)
        assumption = self._assumption(value, in_cells=members is not None)
        new = w.var()
        if members is None:
            self._replace_value(value, key, new, assumption)
        else:
            self._update_members(value, key, new, assumption, members)
        return new, assumption

    def _replace_value(self, value: Var, key: Key, new: str, assumption: _Assumption) -> None:
        """Write the lines that replace a key's value by a new one."""
        w, table = self._w, self._state.table
        overlay, base_get = w.bind(table.overlay, "overlay"), w.bind(table.base.get, "base_get")
        missing, old, k = w.bind(MISSING, "missing"), w.var("a"), key.name
        # Another loop may have cells for records with known members.
        w.before(f"{w.bind(self._operator.write_cached, 'write_cached')}()")
        if w.many_new_keys:
            self._test_record(value, assumption)
            make_hashable(w, key)
            w.line(f"{old} = {overlay}[{k}] if {k} in {overlay} else {base_get}({k}, {missing})")
        else:
            test_first = lambda: self._test_first_value(old, value, assumption)  # noqa: E731
            look_up(w, self._operator, old, key, value.name, overlay, base_get, test_first)
        # A conditional expression instead of two blocks: the rest of the chain follows only once.
        reduced = w.call(self._call, old, value.name)
        w.line(
            f"{overlay}[{k}] = {new} = {reduced} if {old} is not {missing} else {w.expression_of(value.name)}",
            self._operator,
            value.name,
        )

    def _members(self, value: Var) -> tuple[str, ...] | None:
        """Return the members of a record, if it and all results of the function are tuples of the same width."""
        w, record_type = self._w, value.inferred_type
        members = w.members(value.name)
        if members is None and isinstance(record_type, Fixed) and not record_type.null and value.condition is None:
            members = tuple(f"{value.name}[{i}]" for i in range(len(record_type.members)))
        width = len(w.member_expressions(self._call, "a", value.name))
        return members if members is not None and width == len(members) else None

    def _update_members(
        self, value: Var, key: Key, new: str, assumption: _Assumption, members: tuple[str, ...]
    ) -> None:
        """Write the lines that change the members of a key's value in place, which is cheaper than another tuple."""
        w, state, call = self._w, self._state, self._call
        cells, cell, old, stored = w.bind(state.cells, "cells"), w.var("c"), w.var("a"), w.var("a")
        changed, missing = [w.var("m") for _ in members], w.bind(MISSING, "missing")
        look_up_cell(w, self._operator, cell, key, value.name, cells)
        with w.block(f"if {cell} is None:"):
            w.line(f"{stored} = {w.bind(state.stored, 'stored')}({key.name})")
            self._test_first_value(stored, value, assumption)
            with w.block(f"if {stored} is {missing}:"):
                for name, text in zip(changed, members, strict=True):
                    w.line(f"{name} = {text}")
            with w.block("else:"):
                for name, text in zip(changed, w.member_expressions(call, stored, value.name), strict=True):
                    w.set_member(name, text, self._operator, value.name, call, stored, value.name)
            w.line(f"{cell} = {cells}[{key.name}] = [{', '.join(changed)}]")
        with w.block("else:"):
            in_cell = [f"{cell}[{i}]" for i in range(len(members))]
            w.tuple_of(old, tuple(in_cell))
            results = w.member_expressions(call, old, value.name)
            differing = [i for i, text in enumerate(in_cell) if results[i] != text]
            for i in differing:
                w.set_member(changed[i], results[i], self._operator, value.name, call, old, value.name)
            # Only after all are computed.
            for i in differing:
                w.line(f"{in_cell[i]} = {changed[i]}")
        w.tuple_of(new, tuple(changed[i] if i in differing else text for i, text in enumerate(in_cell)))

    # --- assumptions

    def _value_type(self, value: Var) -> InferredType:
        """Return the type of a key's value after any number of records, if it had that type when the epoch began."""
        if self._declared_type is None:
            return ANYTHING
        result = self._w.result
        # None cannot be combined, so that a value is never None.
        value_type = null_as_in(value.inferred_type, result(self._call, value.inferred_type, value.inferred_type))
        for _ in range(_MAX_ROUNDS):
            reduced = result(self._call, value_type, value.inferred_type)
            if within(reduced, value_type):
                return value_type
            value_type = widened(value_type, reduced)
        return ANYTHING

    def _assumption(self, value: Var, in_cells: bool) -> _Assumption:
        """Write the lines before the loop that check what it assumes, and return that."""
        w, value_type = self._w, self._value_type(value)
        if self._declared_type is None:
            return _Assumption(value_type)
        assumptions = w.bind(self._assumptions, "assumptions")
        assume, holds = f"{assumptions}.assume({w.bind(value_type, 'value_type')})", w.var("held")
        if not test_of(w, "", value_type):
            # Other loops must not assume anything of the values of this one.
            w.before(assume)
            return _Assumption(value_type)
        # With mostly new keys, testing each value that was read costs more than it saves.
        all_tested = f" and not {assumptions}.has_untested" if w.many_new_keys else ""
        w.before(f"{holds} = {assume}{all_tested}")
        headroom = self._headroom(value, value_type)
        conforms = None if headroom is None else w.var("sure")
        # A batch of unknown length counts as using all headroom.
        records = f"{w.bind(length_hint, 'length_hint')}(batch, {sys.maxsize})"
        share = FULL_HEADROOM + 1 if headroom is None else f"{records} * {headroom.share}"
        has_headroom = f"{assumptions}.has_headroom({share}, {in_cells})"
        w.before(has_headroom if conforms is None else f"{conforms} = {has_headroom} and {holds}")
        return _Assumption(value_type, holds, headroom, conforms)

    def _headroom(self, value: Var, value_type: InferredType) -> Headroom | None:
        assert self._declared_type is not None
        w, declared = self._w, self._declared_type.inferred_type()
        headroom = headroom_of(value_type, declared, lambda t: w.result(self._call, t, value.inferred_type))
        if headroom is not None and w.many_new_keys and test_of_record(w, value, headroom.initial_type):
            return None
        return headroom

    def _test_record(self, value: Var, assumption: _Assumption) -> None:
        """Write the lines that test a record that may become a key's value."""
        w = self._w
        test = test_of_record(w, value, assumption.value_type) if assumption.holds is not None else ""
        if test:
            with w.block(f"if not ({test}):"):
                w.line(self._revoke(assumption))
        headroom = assumption.headroom
        has_full_headroom = test_of_record(w, value, headroom.initial_type) if headroom is not None else ""
        if has_full_headroom:
            with w.block(f"if not ({has_full_headroom}):"):
                w.line(f"{assumption.conforms} = {self._meter()}.exhaust()")

    def _test_first_value(self, old: str, value: Var, assumption: _Assumption) -> None:
        """Write the lines that test a key's first value in an epoch: a stored one, or the record."""
        if assumption.holds is None:
            return
        w = self._w
        assumptions = w.bind(self._assumptions, "assumptions")
        must_test = f"{assumptions}.has_untested" if assumption.headroom is None else f"{self._meter()}.must_test"
        with w.block(f"if {old} is {w.bind(MISSING, 'missing')}:"):
            w.line("pass")
            self._test_record(value, assumption)
        with w.block(f"elif {must_test}:"):
            self._test_stored(old, assumption)

    def _test_stored(self, old: str, assumption: _Assumption) -> None:
        w, test = self._w, test_of(self._w, old, assumption.value_type)
        if assumption.headroom is None:
            with w.block(f"if not ({test}):"):
                w.line(self._revoke(assumption))
            return
        with w.block(f"if not ({test_of(w, old, assumption.headroom.initial_type)}):"):
            with w.block(f"if {test}:"):
                w.line(f"{assumption.conforms} = {self._meter()}.exhaust()")
            with w.block("else:"):
                w.line(self._revoke(assumption))

    def _revoke(self, assumption: _Assumption) -> str:
        return f"{assumption.variables} = {self._w.bind(self._assumptions, 'assumptions')}.type_holds = False"

    def _meter(self) -> str:
        return self._w.bind(self._assumptions.meter, "meter")

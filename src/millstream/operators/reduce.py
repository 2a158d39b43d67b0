"""The keyed running reduce."""

from __future__ import annotations

from dataclasses import replace

from millstream.common.inferred_types import either
from millstream.operators.base import Downstream, OperatorSetup
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.object_reuse import keeps_nothing
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.reduce_codegen import ReduceCode
from millstream.operators.reduce_state import ReduceState, ValueAssumptions
from millstream.operators.stateful import FunctionOperator


class ReduceOperator(FunctionOperator):
    """Combines each record with the key's value so far and emits the new value.

    In BATCH only the last value of each key is emitted, at the end.
    """

    identity = "reduce"

    uses_key = True
    emits_state = True

    _state: ReduceState

    def __init__(self, function: UserFunction) -> None:
        super().__init__(function, keyed=True)
        self._assumptions = ValueAssumptions(self.write_back)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.state is not None
        self._state = ReduceState(setup.state)
        setup.state.when_loaded(self._when_loaded)
        self.emits_later = setup.batch

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        if self.may_use_state:
            self.set_key(w, key)
        assert key is not None
        call = self.function.call
        new, assumption = ReduceCode(w, self, call, self.declared_type, self._state, self._assumptions).write(
            value, key
        )
        if not self.setup.batch:
            detached = value.detached and keeps_nothing(self.function.function)
            first = value.inferred_type if assumption.holds is None else assumption.value_type
            result = either(w.result(call, assumption.value_type, value.inferred_type), first)
            out = value.renamed(new, detached, result)
            downstream(replace(out, condition=assumption.holds, conforms=assumption.conforms))

    def write_back(self) -> None:
        self._state.write_cells()
        self._assumptions.meter.restart()

    def _when_loaded(self) -> None:
        self._state.cells.clear()
        self._assumptions.has_untested = not self._state.is_empty

    def finish(self) -> None:
        if self.setup.batch:
            self.write_back()
            self.setup.emit(list(self._state.values()))

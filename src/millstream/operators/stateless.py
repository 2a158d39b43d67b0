"""map, filter and flat_map."""

from __future__ import annotations

from dataclasses import replace

from millstream.operators.base import Downstream
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.object_reuse import keeps_nothing
from millstream.operators.codegen.range_vectorizer import Columns
from millstream.operators.stateful import FunctionOperator


class MapOperator(FunctionOperator):
    """Emits one record per record."""

    identity = "map"

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        self.set_key(w, key)
        out, call = w.var(), self.function.call
        w.assign(out, self, value.name, call, value.name)
        detached = value.detached and keeps_nothing(self.function.function)
        downstream(value.renamed(out, detached, w.result(call, value.inferred_type)))

    def column_code(self, columns: Columns) -> bool:
        return columns.map(self, self.function.call)


class FilterOperator(FunctionOperator):
    """Emits the records for which the function returns true."""

    identity = "filter"

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        self.set_key(w, key)
        with w.block(f"if {w.call(self.function.call, value.name)}:", self, value.name):
            # A function that may modify the record may make it violate its type.
            downstream(value if keeps_nothing(self.function.function) else replace(value, coerced_to=None))

    def column_code(self, columns: Columns) -> bool:
        return columns.filter(self.function.call)


class FlatMapOperator(FunctionOperator):
    """Emits any number of records per record; None means none."""

    identity = "flat-map"

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        self.set_key(w, key)
        many, out = w.var("r"), w.var()
        w.line(f"{many} = {w.call(self.function.call, value.name)}", self, value.name)
        with w.block(f"if {many} is not None:"), w.block(f"for {out} in {many}:", self, value.name):
            inferred_type = w.elements(self.function.call)
            w.declare_members(out, inferred_type)
            detached = value.detached and keeps_nothing(self.function.function)
            downstream(value.renamed(out, detached, inferred_type))

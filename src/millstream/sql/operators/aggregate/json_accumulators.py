"""JSON_ARRAYAGG and JSON_OBJECTAGG: what each key has is JSON already, value by value."""

from __future__ import annotations

from typing import Any

from millstream.sql.errors import TableException
from millstream.sql.expressions import AggregateCall
from millstream.sql.functions.json_path import quoted
from millstream.sql.operators.aggregate.object_accumulators import ObjectAccumulator


def _keeps_nulls(call: AggregateCall, otherwise: bool) -> bool:
    """Tell what the words NULL ON NULL or ABSENT ON NULL say; without them, what is usual."""
    return "NULL" in call.options or (otherwise and "ABSENT" not in call.options)


class JsonArray(ObjectAccumulator):
    """JSON_ARRAYAGG: values in the order of arrival."""

    def begin(self) -> Any:
        return []

    def _shown(self, values: tuple[Any, ...]) -> str | None:
        (value,) = values
        return "null" if value is None and _keeps_nulls(self.call, False) else value

    def add(self, kept: Any, values: tuple[Any, ...]) -> Any:
        shown = self._shown(values)
        if shown is not None:
            kept.append(shown)
        return kept

    def take_back(self, kept: Any, values: tuple[Any, ...]) -> Any:
        shown = self._shown(values)
        if shown in kept:
            kept.remove(shown)
        return kept

    def value(self, kept: Any) -> Any:
        return f"[{','.join(kept)}]"


class JsonObject(ObjectAccumulator):
    """JSON_OBJECTAGG: a member for each key, in the order of their names."""

    def begin(self) -> Any:
        return {}

    def add(self, kept: Any, values: tuple[Any, ...]) -> Any:
        key, value = values
        if key is None:
            raise TableException("A key of JSON_OBJECTAGG is null: leave such rows out with FILTER or WHERE.")
        if key in kept:
            raise TableException(
                f"Key '{key}' is already present. Duplicate keys are not allowed in JSON_OBJECTAGG. Please ensure that "
                "keys are unique."
            )
        if value is not None or _keeps_nulls(self.call, True):
            kept[key] = "null" if value is None else value
        return kept

    def take_back(self, kept: Any, values: tuple[Any, ...]) -> Any:
        kept.pop(values[0], None)
        return kept

    def value(self, kept: Any) -> Any:
        return "{" + ",".join(f"{quoted(key)}:{kept[key]}" for key in sorted(kept)) + "}"

"""Dynamic patterns: added, replaced and removed while the job runs.

A broadcast stream carries them. Active patterns are operator state, so that a restart restores them; each has its own
runs, in rows (key, id), independent of the others.
"""

from __future__ import annotations

from collections.abc import Hashable

from millstream.cep.dynamic import PatternProcessor, Removed
from millstream.cep.matcher import Comparator
from millstream.common.aliases import Key as UserKey
from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.operators.base import Downstream, OperatorSetup
from millstream.operators.cep.cep_operator import PatternOperator
from millstream.operators.cep.pattern_runner import Matching
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.operator_state import OperatorStateStore
from millstream.operators.functions.output_tag import OutputTag
from millstream.state.descriptors import MapStateDescriptor
from millstream.state.table import BY_NAMESPACE

PATTERNS = "_cep_patterns"


class DynamicCepOperator(PatternOperator):
    """Matches the active patterns; the second input adds and removes them."""

    identity = "dynamic-cep"

    inputs = 2
    has_operator_state = True
    address = BY_NAMESPACE

    def __init__(self, comparator: Comparator | None, late_tag: OutputTag | None, processing_time: bool) -> None:
        super().__init__(comparator, late_tag, processing_time)
        self._matchings: dict[Hashable, Matching] = {}
        self._is_open = False

    # --- life cycle

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.operator_state is not None
        self._patterns = OperatorStateStore(setup.operator_state).get_broadcast_state(MapStateDescriptor(PATTERNS))
        setup.operator_state.when_loaded(self._load_patterns)

    def open(self) -> None:
        self._is_open = True
        for matching in self._matchings.values():
            self._open(matching)

    def close(self) -> None:
        self._is_open = False
        for matching in self._matchings.values():
            self._close(matching)

    def _open(self, matching: Matching) -> None:
        matching.handler.open(self.setup.context)
        matching.open_conditions()

    def _close(self, matching: Matching) -> None:
        matching.handler.close()
        matching.close_conditions()

    def _load_patterns(self) -> None:
        """Activate the patterns in the loaded state."""
        for pattern_id in list(self._matchings):
            self._drop(pattern_id)
        for processor in self._patterns.values():
            self._add_matching(processor)

    # --- patterns

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        if input_index == 0:
            super().code(w, input_index, value, key, downstream)
        else:
            w.line(f"{w.bind(self.change, 'change')}({value.name})", self, value.name)

    def change(self, change: Value) -> None:
        """Add, replace or remove a pattern."""
        if isinstance(change, Removed):
            if change.id in self._matchings:
                self._remove_matching(change.id)
                self._patterns.remove(change.id)
        elif isinstance(change, PatternProcessor):
            before = self._patterns.get(change.id)
            if before is not None and before.version >= change.version:
                return
            if before is not None:
                self._remove_matching(change.id)
            self._patterns.put(change.id, change)
            self._add_matching(change)
        else:
            raise InvalidProgramError(
                "The second stream of CEP.dynamic_patterns(...) must contain PatternProcessor(...) and Removed(id), "
                f"not {shorten(change)}."
            )

    def _remove_matching(self, pattern_id: Hashable) -> None:
        self._drop(pattern_id)
        for row in [row for row, _ in self._runs.rows() if row[1] == pattern_id]:
            self._runs.remove(row)

    def _drop(self, pattern_id: Hashable) -> None:
        matching = self._matchings.pop(pattern_id)
        if self._is_open:
            self._close(matching)

    def _add_matching(self, processor: PatternProcessor) -> None:
        matching = self._matchings[processor.id] = Matching(
            processor.pattern,
            processor.handler(),
            self.comparator,
            self.setup,
            self._runs,
            self._alarms,
            self.processing_time,
        )
        if self._is_open:
            self._open(matching)

    # --- events

    def _key_of(self, row: UserKey) -> UserKey:
        return row[0]

    def _take_now(self, key: UserKey, value: Value, now: int) -> None:
        for pattern_id, matching in self._matchings.items():
            matching.event((key, pattern_id), key, value, now)

    def _fire_keys(self, events: dict[UserKey, list[tuple[int, Value]]], rows: list[UserKey], now: int) -> None:
        for pattern_id, matching in self._matchings.items():
            matching.fire((((key, pattern_id), key, batch) for key, batch in events.items() if batch), now)
        for row in rows:
            key, pattern_id = row
            # Alarms of removed patterns may remain, and patterns of keys with events have advanced already.
            if pattern_id in self._matchings and not events.get(key):
                self._matchings[pattern_id].fire([(row, key, [])], now)

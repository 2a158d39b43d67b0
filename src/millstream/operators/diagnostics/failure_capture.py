"""Captures the record or timer on which a user function failed, and the state: `millstream replay` runs it again.

The result is JSON with pickled parts in base64. The driver writes it to a file without reading it; only the user's own
`millstream replay` unpickles it (`operators/diagnostics/replay.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from millstream.common.aliases import Json, Key
from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.pickles import TooLargeError, dump_at_most
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.base import Operator
from millstream.operators.diagnostics.epoch_input_log import LoggedRecord
from millstream.operators.diagnostics.failures import Input
from millstream.operators.sink import SinkOperator
from millstream.operators.source import SourceOperator
from millstream.state.key_groups import hashable, thaw
from millstream.state.keyed import KeyedState

# The captured failure; its keys are part of the file format.
CapturedInput = dict[str, Json]


@fast_dataclass
class Capture:
    """The captured input of a failed operator, None for nothing, and a note on the parts that are missing."""

    captured: CapturedInput | None
    note: str = ""


@fast_dataclass
class CaptureContext:
    """What a failed operator has processed in this epoch, and the limit of what is captured.

    Attributes:
        max_bytes: the maximum bytes of the record, and of the state.
        before: the operator's input for the key in this epoch before the record; None if the state at the start of the
            epoch is unknown.
        watermark: the watermark at the start of the epoch.
    """

    max_bytes: int
    before: list[int | LoggedRecord] | None = None
    watermark: int = MIN_WATERMARK


def key_of(operator: Operator, record: Input | None) -> Key:
    """Return the key of the firing timer, or of a record; None if there is none."""
    if operator.firing is not None:
        return operator.firing[1][1]
    return None if record is None or record.key is None else hashable(record.key)


def capture(
    operator: Operator,
    record: Input | None,
    state: KeyedState | None,
    operator_state: KeyedState | None,
    context: CaptureContext,
) -> Capture:
    """Capture a failure.

    Args:
        operator: the operator.
        record: its input, if there is one.
        state: its keyed state, if it has any.
        operator_state: its operator state, if it has any.
        context: the epoch, and the limit.
    """
    max_bytes = context.max_bytes
    if max_bytes <= 0:
        return Capture(None, "failures are not captured (millstream.failures.keep-bytes is 0)")
    if isinstance(operator, SourceOperator):
        return Capture(None, "it happened in a source, before a record existed")
    if isinstance(operator, SinkOperator):
        return Capture(None, "it happened in a sink, and a replay would write to its destination")
    firing = operator.firing
    if firing is None and record is None:
        return Capture(None, "it has no single record or timer as its cause")
    try:
        captured = (
            _input(record, max_bytes)
            if firing is None
            else {"firing": _pickled(firing, max_bytes), "method": firing[0]}
        )
    except Exception as e:
        return Capture(None, _reason("the record" if firing is None else "the timer", e, max_bytes))
    captured |= {"watermark": operator.watermark, "clock": operator.setup.clock()}
    notes = []
    key = key_of(operator, record)
    if state is not None:
        captured["key"] = repr(thaw(key))[:300]
        if not _capture_before(captured, key, state, context):
            notes.append(_capture_state(captured, "state", lambda: state.of_key(key, max_bytes), max_bytes))
    if operator_state is not None:
        notes.append(
            _capture_state(captured, "operator-state", lambda: operator_state.of_key(None, max_bytes), max_bytes)
        )
    return Capture(captured, "; ".join(filter(None, notes)))


def _capture_before(captured: CapturedInput, key: Key, state: KeyedState, context: CaptureContext) -> bool:
    """Capture a key's state at the start of the epoch, and its input since; return whether that was possible."""
    by_watermark = "record" in captured or captured["method"] == "on_event_timer"
    if context.before is None or not by_watermark:
        return False
    try:
        before = {
            "before": _pickled(context.before, context.max_bytes),
            "state": base64.b64encode(state.of_key(key, context.max_bytes, only_base=True)).decode(),
        }
    except Exception:
        # Too large, or not picklable: capture the current state instead.
        return False
    captured |= {**before, "watermark": context.watermark}
    return True


def _input(record: Input | None, max_bytes: int) -> CapturedInput:
    assert record is not None
    fields = record.index, record.value, record.timestamp, record.key, record.is_timestamped
    return {"record": _pickled(fields, max_bytes)}


def _pickled(value: object, max_bytes: int) -> str:
    return base64.b64encode(dump_at_most(value, max_bytes)).decode()


def _capture_state(captured: CapturedInput, name: str, dump_state: Callable[[], bytes], max_bytes: int) -> str:
    """Capture a state; return a note if that failed."""
    try:
        captured[name] = base64.b64encode(dump_state()).decode()
    except Exception as e:
        return _reason("the state of its key" if name == "state" else "the state of its subtask", e, max_bytes)
    return ""


def _reason(part: str, error: Exception, max_bytes: int) -> str:
    if isinstance(error, TooLargeError):
        size = f"{max_bytes:,} bytes of millstream.failures.keep-bytes"
        return f"{part} was not captured: pickled it exceeds the {size}"
    text = (
        str(error) if isinstance(error, MillstreamError) else f"it cannot be pickled ({type(error).__name__}: {error})"
    )
    return f"{part} was not captured: {text}"

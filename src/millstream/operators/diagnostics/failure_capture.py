"""What is kept of a record, or of a timer, whose function has failed: enough to run that operator on it alone.

It is JSON, and what in it is pickled is base64: the driver puts it into a file and never reads it. Who unpickles it is
the user's own `millstream replay` (`operators/diagnostics/replay.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.pickles import TooLargeError, dump_at_most
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.base import Operator
from millstream.operators.diagnostics.failures import Input
from millstream.operators.sink import SinkOperator
from millstream.operators.source import SourceOperator
from millstream.state.key_groups import hashable, thaw
from millstream.state.keyed import KeyedState

Kept = dict[str, Any]


@fast_dataclass
class Evidence:
    """What is kept, None for nothing, and in words what could not be."""

    kept: Kept | None
    note: str = ""


@fast_dataclass
class Keeping:
    """What there is to keep.

    Attributes:
        most: how many bytes may be kept of the record, and as many of the state.
        before: what the operator was given in this epoch for the key before the record; None where it is not known
            what the state was when the epoch began.
        watermark: how far time had come then.
    """

    most: int
    before: list[Any] | None = None
    watermark: int = MIN_WATERMARK


def key_of(operator: Operator, found: Input | None) -> Any:
    """Return the key of what is fired, or of a record; None if there is none."""
    if operator.firing is not None:
        return operator.firing[1][1]
    return None if found is None or found.key is None else hashable(found.key)


def evidence(
    operator: Operator, found: Input | None, state: KeyedState | None, own: KeyedState | None, keeps: Keeping
) -> Evidence:
    """Return what is to be kept of a failure.

    Args:
        operator: the operator.
        found: the record it was given, if it was given one.
        state: its keyed state, if it has any.
        own: its operator state, if it has any.
        keeps: what there is to keep, and how much of it.
    """
    most = keeps.most
    if most <= 0:
        return Evidence(None, "nothing is kept of failures (millstream.failures.keep-bytes is 0)")
    if isinstance(operator, SourceOperator):
        return Evidence(None, "it happened in a source, before there was a record")
    if isinstance(operator, SinkOperator):
        return Evidence(None, "it happened in a sink, and to run that again would write somewhere")
    firing = operator.firing
    if firing is None and found is None:
        return Evidence(None, "no single record or timer is to blame")
    try:
        kept = _input(found, most) if firing is None else {"firing": _packed(firing, most), "method": firing[0]}
    except Exception as e:
        return Evidence(None, _why("the record" if firing is None else "the timer", e, most))
    kept |= {"watermark": operator.watermark, "clock": operator.setup.clock()}
    notes = []
    key = key_of(operator, found)
    if state is not None:
        kept["key"] = repr(thaw(key))[:300]
        if not _keep_before(kept, key, state, keeps):
            notes.append(_keep(kept, "state", lambda: state.of_key(key, most), most))
    if own is not None:
        notes.append(_keep(kept, "operator-state", lambda: own.of_key(None, most), most))
    return Evidence(kept, "; ".join(filter(None, notes)))


def _keep_before(kept: Kept, key: Any, state: KeyedState, keeps: Keeping) -> bool:
    """Keep the state of a key as it was when the epoch began, and what has come since; tell whether that was done."""
    by_watermark = "record" in kept or kept["method"] == "on_event_timer"
    if keeps.before is None or not by_watermark:
        return False
    try:
        before = {
            "before": _packed(keeps.before, keeps.most),
            "state": base64.b64encode(state.of_key(key, keeps.most, only_base=True)).decode(),
        }
    except Exception:
        # Too much, or something that cannot be pickled: then the state as it is now.
        return False
    kept |= {**before, "watermark": keeps.watermark}
    return True


def _input(found: Input | None, most: int) -> Kept:
    assert found is not None
    record = found.index, found.value, found.timestamp, found.key, found.is_timestamped
    return {"record": _packed(record, most)}


def _packed(value: Any, most: int) -> str:
    return base64.b64encode(dump_at_most(value, most)).decode()


def _keep(kept: Kept, name: str, make: Callable[[], bytes], most: int) -> str:
    """Put a state into what is kept; return why it is not there."""
    try:
        kept[name] = base64.b64encode(make()).decode()
    except Exception as e:
        return _why("the state of its key" if name == "state" else "the state of its subtask", e, most)
    return ""


def _why(what: str, error: Exception, most: int) -> str:
    if isinstance(error, TooLargeError):
        return f"{what} is not kept: pickled it takes more than the {most:,} bytes of millstream.failures.keep-bytes"
    text = (
        str(error) if isinstance(error, MillstreamError) else f"it cannot be pickled ({type(error).__name__}: {error})"
    )
    return f"{what} is not kept: {text}"

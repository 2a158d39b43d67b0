"""Calls user functions: attributes their errors to the operator, record and state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import length_hint
from types import FrameType
from typing import TypeVar

from millstream.common.aliases import Value
from millstream.common.errors import DamagedStateError, InvalidProgramError, UnrecoverableError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.codegen.code_writer import site_of
from millstream.operators.diagnostics.epoch_input_log import EpochInputLog
from millstream.operators.diagnostics.failure_capture import Capture, CaptureContext, capture, key_of
from millstream.operators.diagnostics.failures import Failure, Located, SubtaskFailed, locate, user_traceback
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.vertex import JobSettings, Vertex
from millstream.state.keyed import KeyedState

T = TypeVar("T")


class Guard:
    """Runs the functions of a subtask's chain.

    Args:
        vertex: the vertex.
        index: the subtask's index.
        settings: the job's settings.
        states: the states of its operators, by id.
        input_log: the order in which this epoch has processed its input.

    Attributes:
        epoch: the current epoch.
    """

    def __init__(
        self,
        vertex: Vertex,
        index: int,
        settings: JobSettings,
        states: Mapping[str, KeyedState],
        input_log: EpochInputLog,
    ) -> None:
        self.epoch = 0
        self._vertex = vertex
        self._index = index
        self._settings = settings
        self._states = states
        self._input_log = input_log

    def loop(self, function: Callable[[Iterable[Value]], None], batch: Sequence[Value]) -> None:
        """Run a loop over a batch."""
        # The iterator knows the number of items read.
        items = iter(batch) if self._input_log.is_on else batch
        try:
            function(items)
        except Exception as e:
            raise self.failed(e, None, len(batch) - length_hint(items) if self._input_log.is_on else 0) from e

    def call(self, action: Callable[[], T], node: ChainNode) -> T:
        """Call a method of an operator."""
        try:
            return action()
        except SubtaskFailed:
            raise
        except Exception as e:
            raise self.failed(e, node) from e

    def failed(self, error: Exception, node: ChainNode | None, items: int = 0) -> SubtaskFailed:
        """Return the failure of an operator.

        Args:
            error: the error.
            node: the operator to blame if the traceback names none; None for the first operator.
            items: the number of items of the current batch that the loop has read.
        """
        located = locate(error)
        failed = next((n for n in self._vertex.nodes if n.operator is located.operator), node or self._vertex.head)
        error, captured = located.error, self._capture(failed, located, items)
        return SubtaskFailed(
            Failure(
                user_traceback(error),
                failed.name,
                failed.uid,
                failed.id,
                self._index,
                self._vertex.parallelism,
                self.epoch,
                located.shown_record,
                isinstance(error, DamagedStateError),
                isinstance(error, (UnrecoverableError, InvalidProgramError)),
                failed.made_at,
                captured.captured,
                captured.note,
            )
        )

    def _capture(self, node: ChainNode, located: Located, items: int) -> Capture:
        """Capture a failure; an error while doing so must not replace the original one."""
        state, operator_state = self._states.get(node.id), self._states.get(f"{node.id}.operator")
        record = located.record if node.operator is located.operator else None
        try:
            node.operator.write_cached()
            before = None
            if (
                node is self._vertex.head
                and self._input_log.is_on
                and (key := key_of(node.operator, record)) is not None
            ):
                before = self._input_log.before(key, items)
            context = CaptureContext(self._settings.keep_bytes, before, self._input_log.watermark)
            return capture(node.operator, record, state, operator_state, context)
        except Exception as e:
            return Capture(None, f"it could not be captured ({type(e).__name__}: {e})")

    def caller(self, operator: object | None, node: object | None) -> Caller | None:
        """Return the caller whose function runs: an operator, or else a node of the chain."""
        calling = next((n for n in self._vertex.nodes if n.operator is operator), node)
        if not isinstance(calling, ChainNode):
            return None
        name = f"{calling.name}, {calling.made_at}" if calling.made_at else calling.name
        return Caller(name, f"{self._index + 1}/{self._vertex.parallelism}", self._settings.job_name)


@fast_dataclass
class Caller:
    """The operator whose function runs: its name and program line, its subtask as `1/2`, and its job."""

    operator: str
    subtask: str
    job: str


def caller(frame: FrameType | None) -> Caller | None:
    """Return the operator whose function has called this frame; None if there is none."""
    operator: object | None = None
    while frame is not None:
        site = site_of(frame, frame.f_lineno)
        operator = site.operator if operator is None and site is not None else operator
        if frame.f_code.co_filename == __file__ and isinstance(guard := frame.f_locals.get("self"), Guard):
            calling = guard.caller(operator, frame.f_locals.get("node"))
            if calling is not None:
                return calling
        frame = frame.f_back
    return None

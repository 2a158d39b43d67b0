"""What runs a user's functions: an error of theirs comes out with the operator, the record and the state it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import length_hint
from types import FrameType
from typing import Any

from millstream.common.errors import DamagedStateError, IncurableError, InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.codegen.code_writer import site_of
from millstream.operators.diagnostics.epoch_input_log import EpochInputLog
from millstream.operators.diagnostics.failure_capture import Evidence, Keeping, evidence, key_of
from millstream.operators.diagnostics.failures import Failure, Located, SubtaskFailed, locate, user_traceback
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.vertex import JobSettings, Vertex
from millstream.state.keyed import KeyedState


class Guard:
    """Runs the functions of a subtask's chain.

    Args:
        vertex: the vertex.
        index: which of its subtasks this is.
        settings: the job's.
        states: the states of its operators by their ids.
        passed: what this epoch has processed.

    Attributes:
        epoch: the epoch that runs.
    """

    def __init__(
        self, vertex: Vertex, index: int, settings: JobSettings, states: Mapping[str, KeyedState], passed: EpochInputLog
    ) -> None:
        self.epoch = 0
        self._vertex = vertex
        self._index = index
        self._settings = settings
        self._states = states
        self._passed = passed

    def loop(self, function: Callable[[Iterable[Any]], None], batch: Any) -> None:
        """Run a loop over a batch."""
        # The iterator knows how far the loop has come.
        items = iter(batch) if self._passed.is_on else batch
        try:
            function(items)
        except Exception as e:
            raise self.failed(e, None, len(batch) - length_hint(items) if self._passed.is_on else 0) from e

    def call(self, action: Callable[[], Any], node: ChainNode) -> Any:
        """Have an operator do something."""
        try:
            return action()
        except SubtaskFailed:
            raise
        except Exception as e:
            raise self.failed(e, node) from e

    def failed(self, error: Exception, node: ChainNode | None, items: int = 0) -> SubtaskFailed:
        """Return what to tell of an error.

        Args:
            error: the error.
            node: whose it is when nothing in it says so; None: the first operator's.
            items: so many items of the batch in hand were taken.
        """
        located = locate(error)
        found = next((n for n in self._vertex.nodes if n.operator is located.operator), node or self._vertex.head)
        error, kept = located.error, self._evidence(found, located, items)
        return SubtaskFailed(
            Failure(
                user_traceback(error),
                found.name,
                found.uid,
                found.id,
                self._index,
                self._vertex.parallelism,
                self.epoch,
                located.record,
                isinstance(error, DamagedStateError),
                isinstance(error, (IncurableError, InvalidProgramError)),
                found.made_at,
                kept.kept,
                kept.note,
            )
        )

    def _evidence(self, node: ChainNode, located: Located, items: int) -> Evidence:
        """Return what is kept of a failure; that it cannot be is no reason to tell of another error."""
        state, own = self._states.get(node.id), self._states.get(f"{node.id}.operator")
        given = located.found if node.operator is located.operator else None
        try:
            node.operator.settle()
            before = None
            if node is self._vertex.head and self._passed.is_on and (whose := key_of(node.operator, given)) is not None:
                before = self._passed.before(whose, items)
            keeps = Keeping(self._settings.keep_bytes, before, self._passed.watermark)
            return evidence(node.operator, given, state, own, keeps)
        except Exception as e:
            return Evidence(None, f"nothing of it could be kept ({type(e).__name__}: {e})")

    def speaker(self, operator: object | None, node: object | None) -> Speaker | None:
        """Return who speaks when an operator's function does, or else one that is at a place of the chain."""
        found = next((n for n in self._vertex.nodes if n.operator is operator), node)
        if not isinstance(found, ChainNode):
            return None
        name = f"{found.name}, {found.made_at}" if found.made_at else found.name
        return Speaker(name, f"{self._index + 1}/{self._vertex.parallelism}", self._settings.job_name)


@fast_dataclass
class Speaker:
    """Whose function has called us: the operator's name and where it was made, its subtask as `1/2`, and its job."""

    operator: str
    subtask: str
    job: str


def speaker(frame: FrameType | None) -> Speaker | None:
    """Return whose function has called us; None if none has."""
    operator: object | None = None
    while frame is not None:
        site = site_of(frame, frame.f_lineno)
        operator = site.operator if operator is None and site is not None else operator
        if frame.f_code.co_filename == __file__ and isinstance(guard := frame.f_locals.get("self"), Guard):
            found = guard.speaker(operator, frame.f_locals.get("node"))
            if found is not None:
                return found
        frame = frame.f_back
    return None

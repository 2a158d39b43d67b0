"""Scripts that a gateway runs as applications, each in its own session."""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_status import JobStatus
from millstream.common.masking import masked_text
from millstream.gateway.script_text import statements_of
from millstream.gateway.session import Outcome, Session
from millstream.jobmaster.leases import CheckpointLeases
from millstream.jobmaster.machine.requests import Request as JobRequest
from millstream.jobmaster.machine.view import FailureView, JobView
from millstream.operators.runtime.messages import JobPlan
from millstream.operators.runtime.vertex import JobSettings
from millstream.service.registry import Registry
from millstream.sql.errors import TableException
from millstream.sql.language.statement_grammar import read_statement

log = logging.getLogger("millstream")
# The prefix of script ids; the rest is the job id of a failed script.
_PREFIX = "script-"


class Scripts:
    """Runs scripts. Thread-safe."""

    def __init__(self, begin: Callable[[Mapping[str, str]], Session], registry: Registry) -> None:
        """Create an empty set of scripts.

        Args:
            begin: creates a session with settings.
            registry: holds jobs and failed scripts.
        """
        self._begin = begin
        self._registry = registry
        self._is_stopped = threading.Event()

    def deploy(self, text: str, settings: Mapping[str, str]) -> str:
        """Start a script; return its id before its first statement runs.

        Raises:
            SqlParserException: a statement cannot be parsed; no statement runs.
        """
        statements = statements_of(text)
        if not statements:
            raise TableException("The script has no statement.")
        for statement in statements:
            read_statement(statement)
        script_id = f"{_PREFIX}{uuid.uuid4().hex}"
        run = threading.Thread(
            target=self._run, args=(script_id, statements, dict(settings)), name=script_id, daemon=True
        )
        run.start()
        return script_id

    def stop(self) -> None:
        """Stop running statements; the gateway cancels the jobs that scripts wait for."""
        self._is_stopped.set()

    def _run(self, script_id: str, statements: list[str], settings: dict[str, str]) -> None:
        """Run statements until one fails; the failure cancels the jobs that this script has started."""
        log.info("%s: %d statements", script_id, len(statements))
        began = time.time()
        started: list[Outcome] = []
        for number, statement in enumerate(statements, 1):
            if self._is_stopped.is_set():
                return
            try:
                if number == 1:
                    session = self._begin(settings)
                started.append(_execute(session, statement))
            except Exception as e:
                reason = f"Statement {number} of {len(statements)} of the script failed: {e}"
                log.error("%s: %s", script_id, masked_text(reason))
                self._registry.add(FailedScript(script_id, began, reason), settings)
                for outcome in started:
                    if (client := outcome.result.get_job_client()) is not None:
                        client.cancel()
                return
        log.info("%s: all statements have run", script_id)


def _execute(session: Session, statement: str) -> Outcome:
    """Run a statement; the rows of a query are only counted."""
    outcome = session.execute(statement)
    rows = sum(len(batch) for batch in outcome.batches)
    if outcome.is_query:
        log.info("a query of a script gave %d rows", rows)
    return outcome


class FailedScript:
    """A failed script as an entry among the jobs, so that its sender can see the failure."""

    def __init__(self, script_id: str, began: float, reason: str) -> None:
        now = time.time()
        job_id = script_id.removeprefix(_PREFIX)
        settings = JobSettings(job_id=job_id, job_name=script_id, attempt=0, batch=False)
        self.result: Future[JobExecutionResult] = Future()
        self.result.set_exception(TableException(reason))
        self.leases = CheckpointLeases()
        self.view = JobView(
            plan=JobPlan(settings=settings, vertices=[]),
            status=JobStatus.FAILED,
            outcome=JobStatus.FAILED,
            times={JobStatus.INITIALIZING: began, JobStatus.FAILED: now},
            failures=(FailureView(failed_at=now, message=reason, operator=None, restarts_at=None),),
        )

    def cancel(self) -> None:
        """It has ended."""

    def leave(self) -> None:
        """It has ended."""

    def ask(self, request: JobRequest) -> None:
        request.done.set_exception(TableException("The script has failed."))

    def lease_checkpoint(self, seconds: float = math.inf) -> None:
        """Return None: it has no checkpoint."""

    def sample(self, seconds: float) -> None:
        """Ignored: a failed script has no job."""

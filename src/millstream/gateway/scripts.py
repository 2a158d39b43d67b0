"""Scripts that a gateway runs as applications: each with a session of its own, which nobody has to keep open."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from millstream.common.masking import masked_text
from millstream.gateway.script_text import statements_of
from millstream.gateway.session import Outcome, Session
from millstream.sql.errors import TableException
from millstream.sql.language.statement_grammar import read_statement

log = logging.getLogger("millstream")


class Scripts:
    """Runs scripts. Any thread may ask it for something."""

    def __init__(self, begin: Callable[[Mapping[str, str]], Session]) -> None:
        """Have no scripts yet.

        Args:
            begin: makes a session with these settings.
        """
        self._begin = begin
        self._is_stopped = threading.Event()

    def deploy(self, text: str, settings: Mapping[str, str]) -> str:
        """Start a script; return the id by which it is known, before its first statement has run.

        Raises:
            SqlParserException: a statement cannot be read; none of them is run.
        """
        statements = statements_of(text)
        if not statements:
            raise TableException("The script has no statement.")
        for statement in statements:
            read_statement(statement)
        script_id = f"script-{uuid.uuid4().hex}"
        run = threading.Thread(
            target=self._run, args=(script_id, statements, dict(settings)), name=script_id, daemon=True
        )
        run.start()
        return script_id

    def stop(self) -> None:
        """Run no more statements; whose job a script waits for is cancelled by the gateway."""
        self._is_stopped.set()

    def _run(self, script_id: str, statements: list[str], settings: dict[str, str]) -> None:
        """Run statements until one fails: then the jobs that this script has started end, too."""
        log.info("%s: %d statements", script_id, len(statements))
        started: list[Outcome] = []
        for number, statement in enumerate(statements, 1):
            if self._is_stopped.is_set():
                return
            try:
                if number == 1:
                    session = self._begin(settings)
                started.append(_carried_out(session, statement))
            except Exception as e:
                log.error("%s: statement %d of %d failed: %s", script_id, number, len(statements), masked_text(str(e)))
                for outcome in started:
                    if (client := outcome.result.get_job_client()) is not None:
                        client.cancel()
                return
        log.info("%s: all statements have run", script_id)


def _carried_out(session: Session, statement: str) -> Outcome:
    """Carry out a statement; the rows of a query are counted, as there is nobody to see them."""
    outcome = session.execute(statement)
    rows = sum(len(batch) for batch in outcome.batches)
    if outcome.is_query:
        log.info("a query of a script gave %d rows", rows)
    return outcome


def script_at(uri: str) -> str:
    """Return the text of a script that lies on this machine."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        raise TableException(f"A script is read from a file of the gateway's machine, not from {uri!r}: send its text.")
    try:
        return Path(unquote(parts.path)).read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise TableException(f"The script {uri!r} cannot be read: {e}.") from e

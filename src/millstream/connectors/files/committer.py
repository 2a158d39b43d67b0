"""The committer of FileSink: gives part files their names when their checkpoint is complete."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import replace

from millstream.common.errors import LostOutputError
from millstream.connectors.base import CommitContext, Committer
from millstream.connectors.files.compacted_files import settle
from millstream.connectors.files.part_files import PartFile, StagedParts, sync, sync_directories, transaction_of

log = logging.getLogger("millstream")

# So many names of finished files are remembered.
_REMEMBERED = 100_000


class FileCommitter(Committer):
    """Renames part files when their checkpoint is complete."""

    def __init__(self, base: str, context: CommitContext) -> None:
        self._base = base
        self._context = context
        # The last files that were finished here: they may be moved away, and be named again after a restart.
        self._finished: dict[str, None] = {}

    def commit(self, committables: list[tuple[int, StagedParts]]) -> None:
        for _, staged in committables:
            for part in staged.files:
                _finish(part)
                self._remember(part)
        sync_directories((part.final for _, staged in committables for part in staged.files), self._base)
        delete_obsolete(committables)

    def recover(self, committables: list[tuple[int, StagedParts]], former_job_id: str) -> None:
        prefixes = (self._context.prefix(former_job_id), self._context.prefix())
        hidden = _hidden_files(self._base)
        # Also when files are not put together any more: who ran before may have done so.
        settle(hidden, (part for _, staged in committables for part in staged.files), prefixes)
        own = former_job_id == self._context.job_id and bool(self._finished)
        self.commit([(subtask, self._without_gone(staged, own)) for subtask, staged in committables])
        kept = self._kept()
        for path in hidden:
            transaction = transaction_of(os.path.basename(path))
            if transaction is not None and transaction.startswith(prefixes) and path not in kept:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def _kept(self) -> set[str]:
        """Return the hidden files that are wanted though everything was committed."""
        return set()

    def _remember(self, part: PartFile) -> None:
        self._finished[part.final] = None
        if len(self._finished) > _REMEMBERED:
            del self._finished[next(iter(self._finished))]

    def _without_gone(self, staged: StagedParts, own: bool) -> StagedParts:
        """Leave out files that were finished before, and are not there any more.

        Of files of this job and process it is known which were; of others it cannot be.
        """
        there = tuple(p for p in staged.files if os.path.exists(p.hidden) or os.path.exists(p.final))
        for part in staged.files:
            if part not in there:
                if own and not self._is_done(part):
                    raise lost(part)
                self._note_gone(part)
        return replace(staged, files=there)

    def _is_done(self, part: PartFile) -> bool:
        """Tell whether what is in a part was seen by others before."""
        return part.final in self._finished

    def _note_gone(self, part: PartFile) -> None:
        log.warning("FileSink: %s is not there any more: it was finished before the restart, and moved.", part.final)


def delete_obsolete(committables: list[tuple[int, StagedParts]]) -> None:
    """Delete hidden files whose contents are in the files that were committed."""
    for _, staged in committables:
        for path in staged.obsolete:
            with suppress(FileNotFoundError):
                os.unlink(path)


def _hidden_files(base: str) -> list[str]:
    return [os.path.join(d, name) for d, _, names in os.walk(base) for name in names if name.startswith(".")]


def _finish(part: PartFile) -> None:
    try:
        size = os.path.getsize(part.hidden)
        if size > part.length:
            # Whatever is behind what was acknowledged belongs to no epoch that counts.
            os.truncate(part.hidden, part.length)
            sync(part.hidden)
        if size >= part.length:
            os.rename(part.hidden, part.final)
            return
    except FileNotFoundError:
        # It was renamed before, by this job or the one before; its name is nobody else's.
        with suppress(FileNotFoundError):
            if os.path.getsize(part.final) == part.length:
                return
    raise lost(part)


def lost(part: PartFile) -> LostOutputError:
    """Return the error for a part that was written and is not there."""
    return LostOutputError(
        f"FileSink: {part.final} cannot be finished, because neither it nor {part.hidden} has the {part.length} bytes "
        "that were written: the file, or its directory, was deleted or moved under the running job."
    )

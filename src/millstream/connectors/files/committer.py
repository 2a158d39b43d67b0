"""The committer of FileSink: gives part files their names when their checkpoint is complete."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from millstream.common.errors import LostOutputError
from millstream.connectors.base import CommitContext, Committer
from millstream.connectors.files.compaction import Compaction, Group, compact, settle
from millstream.connectors.files.part_files import PartFile, StagedParts, sync, sync_directories, transaction_of

log = logging.getLogger("millstream")

# Maximum names of finished files in memory.
_MAX_FINISHED = 100_000
# Maximum names of compacted parts in memory: overlapping checkpoints name a part more than once.
_MAX_COMPACTED = 10_000


class FileCommitter(Committer):
    """Renames part files when their checkpoint is complete."""

    def __init__(self, base: str, context: CommitContext) -> None:
        self._base = base
        self._context = context
        # Files finished by this process: users may move them, and a restart may name them again.
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
        # Also if compaction is disabled now: the previous execution may have compacted.
        settle(hidden, (part for _, staged in committables for part in staged.files), prefixes)
        own = former_job_id == self._context.job_id and bool(self._finished)
        self.commit([(subtask, self._without_missing(staged, own)) for subtask, staged in committables])
        retained = self._retained()
        for path in hidden:
            transaction = transaction_of(os.path.basename(path))
            if transaction is not None and transaction.startswith(prefixes) and path not in retained:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def _retained(self) -> set[str]:
        """Return the hidden files that remain in use after the commit."""
        return set()

    def _remember(self, part: PartFile) -> None:
        self._finished[part.final] = None
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[next(iter(self._finished))]

    def _without_missing(self, staged: StagedParts, own: bool) -> StagedParts:
        """Drop files that were finished earlier and no longer exist.

        Only files of this job and process are known to be finished; for others a missing file is accepted.
        """
        existing = tuple(p for p in staged.files if os.path.exists(p.hidden) or os.path.exists(p.final))
        for part in staged.files:
            if part not in existing:
                if own and not self._is_finished(part):
                    raise lost(part)
                self._log_missing(part)
        return replace(staged, files=existing)

    def _is_finished(self, part: PartFile) -> bool:
        """Return whether the records of a part are in a visible file."""
        return part.final in self._finished

    def _log_missing(self, part: PartFile) -> None:
        log.warning("FileSink: %s no longer exists: it was finished before the restart, and moved.", part.final)


def delete_obsolete(committables: list[tuple[int, StagedParts]]) -> None:
    """Delete hidden files whose contents are in committed files."""
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
            # Bytes after the acknowledged length belong to a failed epoch.
            os.truncate(part.hidden, part.length)
            sync(part.hidden)
        if size >= part.length:
            os.rename(part.hidden, part.final)
            return
    except FileNotFoundError:
        # This job or its predecessor has renamed it before; the name is unique.
        with suppress(FileNotFoundError):
            if os.path.getsize(part.final) == part.length:
                return
    raise lost(part)


def lost(part: PartFile) -> LostOutputError:
    """Return the error for a missing or truncated part."""
    return LostOutputError(
        f"FileSink: {part.final} cannot be finished, because neither it nor {part.hidden} has the {part.length} bytes "
        "that were written: the file, or its directory, was deleted or moved under the running job."
    )


class CompactingCommitter(FileCommitter):
    """Retains hidden parts, named by every checkpoint, until there are enough of them for one file."""

    def __init__(self, base: str, context: CommitContext, compaction: Compaction) -> None:
        super().__init__(base, context)
        self._compaction = compaction
        # By final path, in arrival order.
        self._pending: dict[str, PartFile] = {}
        self._compacted: dict[str, None] = {}

    def commit(self, committables: list[tuple[int, StagedParts]]) -> None:
        for part in (p for _, staged in committables for p in staged.files):
            self._add(part)
        delete_obsolete(committables)
        self._compact(self._compaction.due)

    def waiting(self) -> list[tuple[int, StagedParts]]:
        return [(0, StagedParts(tuple(self._pending.values())))] if self._pending else []

    @property
    def wants_checkpoints(self) -> bool:
        return bool(self._pending) and self._compaction.strategy.num_checkpoints is not None

    def finish(self) -> None:
        self._compact(self._compaction.everything)

    def recover(self, committables: list[tuple[int, StagedParts]], former_job_id: str) -> None:
        self._pending.clear()
        super().recover(committables, former_job_id)

    def _retained(self) -> set[str]:
        return {part.hidden for part in self._pending.values()}

    def _is_finished(self, part: PartFile) -> bool:
        # A commit that failed later may have compacted a pending part.
        return True

    def _log_missing(self, part: PartFile) -> None:
        log.debug("FileSink: %s was compacted before the restart.", part.final)

    def _add(self, part: PartFile) -> None:
        known = self._pending.get(part.final)
        if known is not None or _is_staged(part, part.final in self._compacted):
            waited = max(part.waited, 0 if known is None else known.waited)
            self._pending[part.final] = replace(part, waited=waited + 1)

    def _compact(self, choose: Callable[[Sequence[PartFile]], list[Group]]) -> None:
        buckets: dict[str, Group] = {}
        for part in self._pending.values():
            buckets.setdefault(os.path.dirname(part.final), []).append(part)
        groups = [group for parts in buckets.values() for group in choose(parts)]
        threads = self._compaction.strategy.num_compact_threads
        if threads == 1 or len(groups) < 2:
            for group in groups:
                self._compact_group(group)
                self._discard(group)
            return
        with ThreadPoolExecutor(threads, "millstream-compact") as pool:
            for group, _ in zip(groups, pool.map(self._compact_group, groups), strict=True):
                self._discard(group)

    def _compact_group(self, group: Group) -> None:
        compact(group, f"{self._context.prefix()}{uuid.uuid4().hex}", self._compaction.compactor)

    def _discard(self, group: Group) -> None:
        for part in group:
            del self._pending[part.final]
            self._compacted[part.final] = None
        while len(self._compacted) > _MAX_COMPACTED:
            del self._compacted[next(iter(self._compacted))]


def _is_staged(part: PartFile, is_compacted: bool) -> bool:
    """Return whether a part exists as a hidden file; False if its records are in a visible file."""
    try:
        if os.path.getsize(part.hidden) >= part.length:
            return True
    except FileNotFoundError:
        if is_compacted:
            return False
        # It was finished alone, before compaction was enabled.
        with suppress(FileNotFoundError):
            if os.path.getsize(part.final) == part.length:
                return False
    raise lost(part)

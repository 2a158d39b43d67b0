"""The committer of a FileSink that puts small files together before they are seen."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from millstream.connectors.base import CommitContext
from millstream.connectors.files.committer import FileCommitter, delete_obsolete, lost
from millstream.connectors.files.compacted_files import compact
from millstream.connectors.files.compaction import Compaction, Group
from millstream.connectors.files.part_files import PartFile, StagedParts

log = logging.getLogger("millstream")

# So many names of parts are remembered that are in files by now: checkpoints that overlap name a part more than once.
_REMEMBERED = 10_000


class CompactingCommitter(FileCommitter):
    """Lets parts wait, hidden and named by every checkpoint, until there are enough of them to make one file."""

    def __init__(self, base: str, context: CommitContext, compaction: Compaction) -> None:
        super().__init__(base, context)
        self._compaction = compaction
        # By the names they would have had, in the order in which they came.
        self._waiting: dict[str, PartFile] = {}
        self._compacted: dict[str, None] = {}

    def commit(self, committables: list[tuple[int, StagedParts]]) -> None:
        for part in (p for _, staged in committables for p in staged.files):
            self._take(part)
        delete_obsolete(committables)
        self._compact(self._compaction.due)

    def waiting(self) -> list[tuple[int, StagedParts]]:
        return [(0, StagedParts(tuple(self._waiting.values())))] if self._waiting else []

    @property
    def wants_checkpoints(self) -> bool:
        return bool(self._waiting) and self._compaction.strategy.num_checkpoints is not None

    def finish(self) -> None:
        self._compact(self._compaction.everything)

    def recover(self, committables: list[tuple[int, StagedParts]], former_job_id: str) -> None:
        self._waiting.clear()
        super().recover(committables, former_job_id)

    def _kept(self) -> set[str]:
        return {part.hidden for part in self._waiting.values()}

    def _is_done(self, part: PartFile) -> bool:
        # One that waited may have been put together by a commit that broke off later.
        return True

    def _note_gone(self, part: PartFile) -> None:
        log.debug("FileSink: %s was put together with others before the restart.", part.final)

    def _take(self, part: PartFile) -> None:
        known = self._waiting.get(part.final)
        if known is not None or _is_staged(part, part.final in self._compacted):
            waited = max(part.waited, 0 if known is None else known.waited)
            self._waiting[part.final] = replace(part, waited=waited + 1)

    def _compact(self, choose: Callable[[Sequence[PartFile]], list[Group]]) -> None:
        buckets: dict[str, Group] = {}
        for part in self._waiting.values():
            buckets.setdefault(os.path.dirname(part.final), []).append(part)
        groups = [group for parts in buckets.values() for group in choose(parts)]
        threads = self._compaction.strategy.num_compact_threads
        if threads == 1 or len(groups) < 2:
            for group in groups:
                self._compact_group(group)
                self._forget(group)
            return
        with ThreadPoolExecutor(threads, "millstream-compact") as pool:
            for group, _ in zip(groups, pool.map(self._compact_group, groups), strict=True):
                self._forget(group)

    def _compact_group(self, group: Group) -> None:
        compact(group, f"{self._context.prefix()}{uuid.uuid4().hex}", self._compaction.compactor)

    def _forget(self, group: Group) -> None:
        for part in group:
            del self._waiting[part.final]
            self._compacted[part.final] = None
        while len(self._compacted) > _REMEMBERED:
            del self._compacted[next(iter(self._compacted))]


def _is_staged(part: PartFile, is_compacted: bool) -> bool:
    """Tell whether a part is there to wait; False when it is in a file that can be seen."""
    try:
        if os.path.getsize(part.hidden) >= part.length:
            return True
    except FileNotFoundError:
        if is_compacted:
            return False
        # It was finished by itself, before files were put together.
        with suppress(FileNotFoundError):
            if os.path.getsize(part.final) == part.length:
                return False
    raise lost(part)

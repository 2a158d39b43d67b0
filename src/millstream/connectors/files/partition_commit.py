"""Partition commits of file tables: `sink.partition-commit.*`.

A partition is complete when the watermark passes its time, or some time after its first file. Then a policy creates a
file such as `_SUCCESS` in its directory, or calls a class of the user. Every checkpoint names pending partitions. A
savepoint names no output, so there a file next to the partitions does.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from importlib import import_module
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.tags import tagged
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.connectors.files.part_files import StagedParts
from millstream.formats.options import Options
from millstream.operators.sink import CommitContext, Committer
from millstream.runtime_services import wall_clock
from millstream.sql.errors import ValidationException
from millstream.sql.functions.date_patterns import BadDatePattern, parser

_COMMIT, _TIME = "sink.partition-commit.", "partition.time-extractor."
PARTITION_COMMIT_OPTIONS = frozenset(
    [
        f"{_COMMIT}trigger",
        f"{_COMMIT}delay",
        f"{_COMMIT}watermark-time-zone",
        f"{_COMMIT}policy.kind",
        f"{_COMMIT}policy.class",
        f"{_COMMIT}success-file.name",
        f"{_TIME}kind",
        f"{_TIME}timestamp-pattern",
        f"{_TIME}timestamp-formatter",
    ]
)
_PATTERNS = ("yyyy-M-d H:m:s", "yyyy-M-d")


@fast_dataclass
class Partition:
    """A complete partition.

    Attributes:
        path: its directory.
        values: the values of the partition columns, by name, as text.
    """

    path: str
    values: dict[str, str]


@tagged("staged-partitions")
@fast_dataclass
class Staged:
    """A writer's committable of an epoch, or the pending partitions of a checkpoint.

    Attributes:
        parts: the writer's files, or None.
        watermark: the watermark of its subtask.
        subtasks: the number of subtasks.
        since: the time of the first file of each pending partition, by its directory.
    """

    parts: StagedParts | None
    watermark: int
    subtasks: int
    since: dict[str, int] = field(default_factory=dict)


@fast_dataclass
class PartitionCommits:
    """The condition for complete partitions, and the policies to apply to them."""

    by_event_time: bool
    delay: int
    zone: str
    pattern: str | None
    formatter: str | None
    policies: tuple[Callable[[Partition], None], ...]
    batch: bool

    def is_complete(self, partition: Partition, since: int, now: int, watermark: int) -> bool:
        """Return whether a partition is complete; `since` is the time of its first file."""
        if watermark >= MAX_WATERMARK:
            return True
        if not self.by_event_time:
            return self.delay == 0 or now > since + self.delay
        return watermark > self.time_of(partition) + self.delay

    def time_of(self, partition: Partition) -> int:
        """Return the time of a partition, from its values, in milliseconds."""
        text = self.pattern or next(iter(partition.values.values()))
        for name, value in partition.values.items():
            text = text.replace(f"${name}", value)
        for pattern in [self.formatter] if self.formatter else _PATTERNS:
            parsed = parser(pattern)(text)
            if parsed is not None:
                local = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=parsed[0])
                return int(local.replace(tzinfo=ZoneInfo(self.zone)).timestamp() * 1000)
        expected = self.formatter or " or ".join(_PATTERNS)
        raise ValidationException(
            f"The partition {partition.path} has no time: {text!r} does not have the form {expected}. Set "
            f"'{_TIME}timestamp-pattern' to derive one from its columns, such as '$day $hour:00:00'."
        )


class SuccessFile:
    """Creates an empty file in a partition."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, partition: Partition) -> None:
        with open(os.path.join(partition.path, self._name), "wb"):
            pass


class _Custom:
    """Calls `commit(partition)` of a class of the user."""

    def __init__(self, path: str) -> None:
        module, _, name = path.replace(":", ".").rpartition(".")
        try:
            self._commit: Callable[[Partition], None] = getattr(import_module(module), name)().commit
        except (ImportError, AttributeError, ValueError, TypeError) as e:
            raise ValidationException(
                f"'{_COMMIT}policy.class' = '{path}' must be a Python class with commit(partition), in the form "
                f"module.Class ({e})."
            ) from None

    def __call__(self, partition: Partition) -> None:
        self._commit(partition)


def partition_commits(options: Options, partition: Sequence[str], batch: bool) -> PartitionCommits | None:
    """Return the partition commits of a table, or None if it has no policies or partitions."""
    kinds = [k.strip() for k in options.text(f"{_COMMIT}policy.kind", "").split(",") if k.strip()]
    if options.text(f"{_TIME}kind", "default") != "default":
        raise ValidationException(
            f"'{_TIME}kind' must be 'default': Java classes are not supported; derive the time from the partition "
            f"columns with '{_TIME}timestamp-pattern'."
        )
    zone = options.text(f"{_COMMIT}watermark-time-zone", "UTC")
    commits = PartitionCommits(
        options.one_of(f"{_COMMIT}trigger", "process-time", {"process-time": False, "partition-time": True}),
        options.duration(f"{_COMMIT}delay", 0),
        zone,
        options.text(f"{_TIME}timestamp-pattern", "") or None,
        options.text(f"{_TIME}timestamp-formatter", "") or None,
        tuple(_policy(kind, options) for kind in kinds),
        batch,
    )
    try:
        parser(commits.formatter or _PATTERNS[0])
    except BadDatePattern as e:
        raise ValidationException(f"'{_TIME}timestamp-formatter' = '{commits.formatter}': {e}.") from None
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise ValidationException(f"'{_COMMIT}watermark-time-zone': there is no time zone {zone!r}.") from None
    return commits if kinds and partition else None


def _policy(kind: str, options: Options) -> Callable[[Partition], None]:
    if kind == "success-file":
        return SuccessFile(options.text(f"{_COMMIT}success-file.name", "_SUCCESS"))
    if kind == "custom":
        return _Custom(options.text(f"{_COMMIT}policy.class", ""))
    if kind == "metastore":
        raise ValidationException(
            "Can not configure a 'metastore' partition commit policy for a file system table. You can only configure "
            "'metastore' partition commit policy for a hive table."
        )
    raise ValidationException(f"Unsupported policy: {kind}. Supported are success-file and custom.")


class PartitionCommitter(Committer):
    """Commits files, then complete partitions."""

    def __init__(
        self,
        inner: Committer,
        base: str,
        commits: PartitionCommits,
        context: CommitContext,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        self._inner = inner
        self._base = base
        self._commits = commits
        self._clock = clock
        self._pending_file = os.path.join(base, f".partitions-{context.operator_id}")
        self._since: dict[str, int] = {}
        self._watermarks: dict[int, int] = {}
        self._subtasks = 0

    def commit(self, committables: list[tuple[int, Staged]]) -> None:
        self._inner.commit(_parts(committables))
        self._add(committables)
        if not self._commits.batch:
            self._commit_complete(self._watermark())

    def _add(self, committables: Iterable[tuple[int, Staged]]) -> None:
        now = self._clock()
        for subtask, staged in committables:
            self._since.update(staged.since)
            for part in staged.parts.files if staged.parts is not None else ():
                self._since.setdefault(os.path.relpath(os.path.dirname(part.final), self._base), now)
            if staged.subtasks:
                self._subtasks = staged.subtasks
                self._watermarks[subtask] = max(self._watermarks.get(subtask, MIN_WATERMARK), staged.watermark)

    def _watermark(self) -> int:
        """Return the minimum watermark of all subtasks."""
        known = [self._watermarks.get(i, MIN_WATERMARK) for i in range(self._subtasks)]
        return min(known, default=MIN_WATERMARK)

    def _commit_complete(self, watermark: int) -> None:
        now = self._clock()
        for name, since in list(self._since.items()):
            partition = Partition(os.path.join(self._base, name), _values(name))
            if self._commits.is_complete(partition, since, now, watermark):
                for policy in self._commits.policies:
                    policy(partition)
                del self._since[name]

    def waiting(self) -> list[tuple[int, Staged]]:
        staged = [(i, Staged(parts, MIN_WATERMARK, 0)) for i, parts in self._inner.waiting()]
        return [*staged, (0, Staged(None, MIN_WATERMARK, 0, dict(self._since)))] if self._since else staged

    @property
    def wants_checkpoints(self) -> bool:
        return self._inner.wants_checkpoints or (bool(self._since) and not self._commits.by_event_time)

    def recover(self, committables: list[tuple[int, Staged]], former_job_id: str) -> None:
        self._since.clear()
        self._watermarks.clear()
        self._inner.recover(_parts(committables), former_job_id)
        if os.path.exists(self._pending_file):
            with open(self._pending_file) as file:
                self._since.update(json.load(file))
            os.unlink(self._pending_file)
        self._add(committables)

    def finish(self) -> None:
        self._inner.finish()
        self._commit_complete(MAX_WATERMARK if self._commits.batch else self._watermark())
        if self._since:
            os.makedirs(self._base, exist_ok=True)
            with open(self._pending_file, "w") as file:
                json.dump(self._since, file)

    def close(self) -> None:
        self._inner.close()


def _parts(committables: Iterable[tuple[int, Staged]]) -> list[tuple[int, StagedParts]]:
    return [(subtask, staged.parts) for subtask, staged in committables if staged.parts is not None]


def _values(name: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in name.split("/"))
    return {unquote(column): unquote(value) for column, _, value in pairs}

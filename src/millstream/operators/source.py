"""Sources: an enumerator on the driver assigns splits, a reader in each subtask reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Generic, Self

from millstream.common.aliases import T_co, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.inferred_types import ANYTHING, InferredType, Whole
from millstream.common.typeinfo import TypeInformation
from millstream.operators.base import Downstream, Operator, Split
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.diagnostics.bad_records import COUNTER, BadRecord, BadRecords
from millstream.operators.functions.output_tag import OutputTag
from millstream.state.key_groups import stable_hash

# Input that sources have not assigned yet, by source, metric name and subtask.
Lags = Mapping[int, Mapping[str, Mapping[int, int]]]

# The part of a split that one subtask reads in one epoch; opaque to all but its source.
SplitRange = Value

# The position of an enumerator; only the source knows its type.
EnumeratorSnapshot = Value


@fast_dataclass
class SplitAssignment:
    """The split ranges that the subtasks of a source read in one epoch.

    Attributes:
        split_ranges: by subtask; empty if there is no input now.
        limited: whether the budget left input unassigned.
        unassigned: the number of available records that are not assigned yet, by subtask; None if unknown.
        unassigned_bytes: the same in bytes.
    """

    split_ranges: dict[int, list[SplitRange]]
    limited: bool = False
    unassigned: Mapping[int, int] | None = None
    unassigned_bytes: Mapping[int, int] | None = None

    @property
    def lag(self) -> dict[str, Mapping[int, int]]:
        """The unassigned input, by metric name and subtask, as far as known."""
        lags = {"pendingRecords": self.unassigned, "pendingBytes": self.unassigned_bytes}
        return {name: count for name, count in lags.items() if count is not None}


class SplitEnumerator(ABC):
    """Assigns splits to subtasks each epoch. Runs on the driver. See Source for an example."""

    @abstractmethod
    def poll(self, budget: int, now: float) -> SplitAssignment:
        """Assign split ranges of about `budget` records to each subtask.

        Returned ranges count as assigned; the next call continues after them.
        """

    def pause_splits(self, splits: Collection[Value]) -> None:
        """Pause these splits, which are ahead of their alignment group, and resume all others.

        Called only if the source sets `aligns_splits`.
        """

    def is_finished(self) -> bool:
        """Return whether all splits are assigned; unbounded sources never finish."""
        return False

    @abstractmethod
    def snapshot(self) -> EnumeratorSnapshot:
        """Return the position from which a new enumerator can continue. It is pickled."""

    def next_poll(self, now: float) -> float | None:
        """Return when to poll again after an empty assignment.

        None if unknown: polls start after a millisecond and become rarer. With `math.inf` the next poll waits until the
        enumerator calls the function passed to `listen`.
        """
        return None

    def listen(self, wake: Callable[[], None]) -> None:
        """Register a function that triggers a poll; it may be called from any thread when input arrives."""

    def committed(self, snapshot: EnumeratorSnapshot) -> None:
        """Handle a completed checkpoint: all input assigned before the snapshot is processed."""

    def close(self) -> None:
        """Release resources at the end of the job."""


class SourceReader(ABC):
    """Reads split ranges. Runs in the subtask; its records depend on the split range alone.

    See Source for an example.
    """

    @abstractmethod
    def read(self, split_range: SplitRange) -> Iterator[Collection[Value]]:
        """Yield the records of a split range in batches.

        Batches that support slicing are sliced lazily, a few records at a time.
        """

    def rest(self, split_range: SplitRange, read: int) -> Iterator[Collection[Value]]:
        """Yield the records of a split range after the first `read`, without reading those if possible."""
        for batch in self.read(split_range):
            if read < len(batch):
                yield list(batch)[read:] if read else batch
            read = max(read - len(batch), 0)

    def split_of(self, split_range: SplitRange) -> Split:
        """Return the split of a range; each split has its own watermark. None: the source has no splits."""
        return None

    def in_turn(self, split_range: SplitRange) -> bool:
        """Return whether the split starts only after all earlier assigned splits have been read, as files do.

        Other splits start when they are assigned: from then on the watermark waits for them. A split without records
        can therefore be assigned with an empty range.
        """
        return False

    def ends_split(self, split_range: SplitRange) -> bool:
        """Return whether this is the last range of its split."""
        return False

    def close(self) -> None:
        """Release resources at the end of the subtask."""


class Source(ABC, Generic[T_co]):
    """Reads records from an external system: an enumerator on the driver assigns splits, readers read them.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> class OneRange(SplitEnumerator):
        ...     def __init__(self, is_done): self.is_done = is_done
        ...     def poll(self, budget, now):
        ...         ranges, self.is_done = {} if self.is_done else {0: [(1, 4)]}, True
        ...         return SplitAssignment(ranges)
        ...     def is_finished(self): return self.is_done
        ...     def snapshot(self): return self.is_done
        >>> class NumberReader(SourceReader):
        ...     def read(self, split_range): yield list(range(*split_range))
        >>> class Numbers(Source):
        ...     is_bounded = True
        ...     def create_enumerator(self, parallelism, restored=None): return OneRange(bool(restored))
        ...     def create_reader(self, subtask, parallelism): return NumberReader()
        >>> list(env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers").execute_and_collect())
        [1, 2, 3]
    """

    name = "Source"
    # The declared type of its records; they conform to it.
    produced_type: TypeInformation | None = None
    # The inferred type of its records.
    inferred_type: InferredType = ANYTHING
    # Whether its readers yield (record, timestamp) pairs.
    timestamped = False
    # Whether its enumerator can pause single splits; else alignment pauses the whole source.
    aligns_splits = False
    # Maximum records per second over all subtasks.
    rate_per_second: float | None = None
    # The policy for records that cannot be deserialized: readers return `bad_records.handle(...)` instead.
    bad_records: BadRecords = BadRecords.fail()

    @property
    def is_bounded(self) -> bool:
        """Whether the source is bounded; `is_finished` of its enumerator then reports the end."""
        return False

    @abstractmethod
    def create_enumerator(self, parallelism: int, restored: EnumeratorSnapshot = None) -> SplitEnumerator:
        """Return a new enumerator, or one restored from a snapshot."""

    @abstractmethod
    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Return the reader of a subtask; called in its process."""

    def check(self) -> None:
        """Raise InvalidProgramError if the source cannot be read; called on the driver before a job starts."""

    def at_most(self, records_per_second: float) -> Self:
        """Return a copy with a rate limit over all subtasks.

        Example:
            >>> from millstream.datastream.connectors.number_seq import NumberSequenceSource
            >>> NumberSequenceSource(1, 10).at_most(records_per_second=5).rate_per_second
            5
        """
        if records_per_second <= 0:
            raise InvalidProgramError(f"{self.name}: a rate must be above 0, it is {records_per_second}.")
        limited = copy(self)
        limited.rate_per_second = records_per_second
        return limited

    def on_bad_records(self, policy: BadRecords) -> Self:
        r"""Return a copy that fails at records it cannot deserialize, skips them, or sends them to a side output.

        Example:
            >>> from pathlib import Path
            >>> from millstream.common import WatermarkStrategy
            >>> from millstream.connectors.files.source import FileSource
            >>> from millstream.formats.json.messages import JsonLinesFormat
            >>> _ = Path("in.json").write_text('{"id": 1}\n{"id":\n')
            >>> source = FileSource.for_record_stream_format(JsonLinesFormat(), "in.json").build()
            >>> source = source.on_bad_records(BadRecords.skip())
            >>> list(env.from_source(source, WatermarkStrategy.no_watermarks(), "in").execute_and_collect())
            [{'id': 1}]
        """
        tolerant = copy(self)
        tolerant.bad_records = policy
        return tolerant

    def subtask_of(self, split: Split, parallelism: int) -> int:
        """Return the subtask that reads a split, and so restores its watermark."""
        return split % parallelism if isinstance(split, int) else stable_hash(split) % parallelism


class SourceOperator(Operator):
    """The head of a chain that reads a source."""

    identity = "source"

    inputs = 0
    reader: SourceReader

    def __init__(self, source: Source) -> None:
        self.source = source
        self.produced_type = source.produced_type
        self.assigns_timestamps = source.timestamped
        self.tags_outputs = source.bad_records.tag is not None

    @property
    def numbers(self) -> Whole | None:
        """The inferred type of its records if they are bounded ints without timestamps, else None."""
        inferred_type = self.source.inferred_type
        alone = self.source.bad_records.fails and not self.source.timestamped
        return (
            inferred_type
            if alone and isinstance(inferred_type, Whole) and inferred_type.size is not None and not inferred_type.null
            else None
        )

    def open(self) -> None:
        context = self.setup.context
        self._bad = None if self.source.bad_records.fails else context.get_metrics_group().counter(COUNTER)
        self.reader = self.source.create_reader(
            context.get_index_of_this_subtask(), context.get_number_of_parallel_subtasks()
        )

    def close(self) -> None:
        self.reader.close()

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        if self.source.timestamped:
            record, stamp = w.var(), w.var("t")
            w.line(f"{record}, {stamp} = {value.name}")
            value = replace(value.renamed(record, value.detached), timestamp=stamp)
        if self.source.bad_records.fails:
            downstream(replace(value, inferred_type=self.source.inferred_type))
            return
        is_bad = f"{value.name}.__class__ is {w.bind(BadRecord, 'bad_record')}"
        counted = f"{w.bind(self, 'source')}.count_bad_record({value.name})"
        if self.tags_outputs:
            tagged = w.var()
            w.line(f"{tagged} = {counted} if {is_bad} else {value.name}")
            downstream(value.renamed(tagged, value.detached))
            return
        with w.block(f"if {is_bad}:"):
            w.line(counted)
        with w.block("else:"):
            downstream(replace(value, inferred_type=self.source.inferred_type))

    def count_bad_record(self, record: BadRecord) -> tuple[OutputTag[BadRecord] | None, BadRecord]:
        """Count a bad record; return its side output and itself."""
        assert self._bad is not None
        self._bad.inc()
        return self.source.bad_records.tag, record

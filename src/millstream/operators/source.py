"""Sources: an enumerator on the driver that says what to read, a reader in the subtask that reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Generic, Self

from millstream.common.aliases import T_co
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import record
from millstream.common.inferred_types import ANYTHING, Shape, Whole
from millstream.common.typeinfo import TypeInformation
from millstream.operators.base import Downstream, Operator
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.diagnostics.bad_records import COUNTER, BadRecord, BadRecords
from millstream.operators.functions.output_tag import OutputTag
from millstream.state.key_groups import stable_hash

# What waits to be read, by source, the name of the metric and subtask.
Lags = Mapping[int, Mapping[str, Mapping[int, int]]]

# A share is what one subtask reads in one epoch from one split: a piece of data only its source understands.
SplitRange = Any


@record
class SplitAssignment:
    """What the subtasks of a source shall read in one epoch.

    Attributes:
        split_ranges: by subtask; empty when there is nothing to read now.
        limited: whether there was more than the budget allowed.
        pending: how many records are there and not dealt out yet, by subtask; None when the source cannot tell.
        pending_bytes: how many bytes are, likewise.
    """

    split_ranges: dict[int, list[SplitRange]]
    limited: bool = False
    pending: Mapping[int, int] | None = None
    pending_bytes: Mapping[int, int] | None = None

    @property
    def lag(self) -> dict[str, Mapping[int, int]]:
        """What waits, by the name of the metric and subtask, as far as the source can tell."""
        found = {"pendingRecords": self.pending, "pendingBytes": self.pending_bytes}
        return {name: count for name, count in found.items() if count is not None}


class SplitEnumerator(ABC):
    """Deals out a source's input, epoch by epoch. Lives on the driver."""

    @abstractmethod
    def poll(self, budget: int, now: float) -> SplitAssignment:
        """Deal out what each subtask shall read next, about `budget` records each.

        What was returned counts as read: the next call goes on behind it.
        """

    def hold_back(self, splits: Collection[Any]) -> None:
        """Deal nothing of these splits out, and of all others again: they are ahead of those they are aligned with.

        Asked only where the source says `aligns_splits`.
        """

    def is_finished(self) -> bool:
        """Tell whether everything has been dealt out for good; never, where nothing else is said."""
        return False

    @abstractmethod
    def snapshot(self) -> Any:
        """Return how far the input was dealt out: what a new enumerator needs to go on from here. It is pickled."""

    def next_poll(self, now: float) -> float | None:
        """Return when it is worth asking again after there was nothing.

        None when it cannot tell: then it is asked after a millisecond, and less and less often while it has nothing.
        With `math.inf` it is asked when it calls what `listen` gave it.
        """
        return None

    def listen(self, wake: Callable[[], None]) -> None:
        """Take what has the source asked at once; it may be called from any thread, whenever there is input."""

    def committed(self, snapshot: Any) -> None:
        """Everything that was dealt out up to a snapshot has been processed for good: a checkpoint is complete."""

    def close(self) -> None:
        """The job has ended."""


class SourceReader(ABC):
    """Reads shares. Lives in the subtask; what it returns depends on the share alone."""

    @abstractmethod
    def read(self, share: SplitRange) -> Iterator[Collection[Any]]:
        """Yield the records of a share in batches.

        What can be sliced is only asked for the records that are needed, a few at a time.
        """

    def rest(self, share: SplitRange, read: int) -> Iterator[Collection[Any]]:
        """Yield the records of a share behind the first `read`; where they can be found, without reading those."""
        for batch in self.read(share):
            if read < len(batch):
                yield list(batch)[read:] if read else batch
            read = max(read - len(batch), 0)

    def split_of(self, share: SplitRange) -> Any:
        """Return which split a share is of; each has watermarks of its own. None: the source has no splits."""
        return None

    def in_turn(self, share: SplitRange) -> bool:
        """Tell whether the share's split begins only when those dealt out before it have been read, as files do.

        Others begin when they are dealt out: from then on their watermark is waited for. So a split that has nothing
        yet may be dealt out with a share that has no records.
        """
        return False

    def ends_split(self, share: SplitRange) -> bool:
        """Tell whether nothing follows the share in its split."""
        return False

    def close(self) -> None:
        """The subtask has ended."""


class Source(ABC, Generic[T_co]):
    """A place records come from."""

    name = "Source"
    # The type of its records, where it says so: they fit it.
    produced_type: TypeInformation | None = None
    # What else is known of its records.
    shape: Shape = ANYTHING
    # Whether its readers give each record with its timestamp, as a pair.
    timestamped = False
    # Whether its enumerator can hold single splits back; else it waits as a whole for those it is aligned with.
    aligns_splits = False
    # How many records a second it is read at most, over all subtasks.
    rate_per_second: float | None = None
    # What its readers do with records that cannot be read: `bad_records.meet(...)` stands in their place.
    bad_records: BadRecords = BadRecords.fail()

    @property
    def is_bounded(self) -> bool:
        """Whether the source ends by itself; then its enumerator says when, in `is_finished`."""
        return False

    @abstractmethod
    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        """Return an enumerator that starts at the beginning, or where a snapshot of an earlier one was taken."""

    @abstractmethod
    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Return the reader of a subtask, in its process."""

    def check(self) -> None:
        """Raise InvalidProgramError when there is nothing to read from; called in the driver before a job starts."""

    def at_most(self, records_per_second: float) -> Self:
        """Return the same source, read no faster than this over all subtasks.

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
        """Return the same source, which fails at records that cannot be read, skips them, or sends them elsewhere."""
        tolerant = copy(self)
        tolerant.bad_records = policy
        return tolerant

    def subtask_of(self, split: Any, parallelism: int) -> int:
        """Return which subtask reads a split, so that the split's watermark can be there too."""
        return split % parallelism if isinstance(split, int) else stable_hash(split) % parallelism


class SourceOperator(Operator):
    """Heads a chain that reads a source."""

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
        """The shape of its records, where that is one of bounded numbers and nothing comes beside them."""
        shape = self.source.shape
        alone = self.source.bad_records.fails and not self.source.timestamped
        return shape if alone and isinstance(shape, Whole) and shape.size is not None and not shape.null else None

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
            downstream(replace(value, shape=self.source.shape))
            return
        is_bad = f"{value.name}.__class__ is {w.bind(BadRecord, 'bad_record')}"
        met = f"{w.bind(self, 'source')}.met_bad_record({value.name})"
        if self.tags_outputs:
            tagged = w.var()
            w.line(f"{tagged} = {met} if {is_bad} else {value.name}")
            downstream(value.renamed(tagged, value.detached))
            return
        with w.block(f"if {is_bad}:"):
            w.line(met)
        with w.block("else:"):
            downstream(replace(value, shape=self.source.shape))

    def met_bad_record(self, record: BadRecord) -> tuple[OutputTag[BadRecord] | None, BadRecord]:
        """Count a record that could not be read, and say where it goes."""
        assert self._bad is not None
        self._bad.inc()
        return self.source.bad_records.tag, record
